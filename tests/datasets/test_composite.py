from __future__ import annotations

from pathlib import Path

import pytest

from capbench.core.errors import DataError, MissingFileError
from capbench.core.records import Judgements
from capbench.datasets.composite import Composite, read_composite_json
from tests.datasets.native_files import five, root, token_text, write, write_json
from tests.errors import raises

IMAGES = {"8k": "11_ab.jpg", "30k": "22.jpg", "coco": "COCO_val2014_000000000033.jpg"}
REFERENCES = {"8k": five("A swan swims"), "30k": five("Men paint"), "coco": five("A cake stands")}
SCORES = {"8k": (5, 2, 3), "30k": (4, 1, 1), "coco": (5, 3, 2)}
HEADER = "subset\timage\tposition\tcandidate\tcorrectness\tis_reference"


def candidates(subset: str) -> list[str]:
    # The human caption is spelled otherwise than its reference; the machine's repeats another reference.
    human, machine = REFERENCES[subset][0].upper().replace(" .", "!"), REFERENCES[subset][3]
    return [human, machine, f"The scene contains {subset}"]


def table_rows() -> list[str]:
    return [
        f"{subset}\t{IMAGES[subset]}\t{position}\t{text}\t{SCORES[subset][position]}\t0"
        for subset in IMAGES
        for position, text in enumerate(candidates(subset))
    ]


def references(folder: Path) -> None:
    write(folder / "flickr8k/Flickr8k.token.txt", token_text({IMAGES["8k"]: REFERENCES["8k"]}))
    write(folder / "flickr30k/results_20130124.token", token_text({IMAGES["30k"]: REFERENCES["30k"]}))
    write_json(folder / "coco/karpathy_test_captions.json", {IMAGES["coco"]: REFERENCES["coco"]})


def table(folder: Path, rows: list[str] | None = None, header: str = HEADER) -> None:
    references(folder)
    text = "\n".join([header, *(table_rows() if rows is None else rows)]) + "\n"
    write(folder / "composite/composite_11985.tsv", text)


def export(subset: str, scores: tuple[object, ...], texts: list[str] | None = None, image: str | None = None) -> str:
    """One row of an export, with a column of Mechanical Turk's before and after."""
    extra = subset != "8k"
    shown = [*(texts or candidates(subset)), *(["A fourth text"] if extra else [])]
    answers = [*scores, *([1] if extra else [])]
    quoted = [f'"{text}"' for text in shown]
    url = f"http://example.org/images/{image or IMAGES[subset]}"
    return ";".join(["HIT", url, *quoted, *map(str, answers), "x"])


def export_header(subset: str) -> str:
    n = 3 if subset == "8k" else 4
    texts = [f"Input.text{i + 1}" for i in range(n)]
    return ";".join(["HITId", "Input.image_url", *texts, *(f"Answer.Q{i + 1}Answer" for i in range(n)), "Approve"])


def exports(folder: Path, aspect: str, changed: dict[str, list[str]] | None = None) -> None:
    references(folder)
    for subset in IMAGES:
        scores = SCORES[subset] if aspect == "correctness" else SCORES[subset][::-1]
        rows = (changed or {}).get(subset, [export(subset, scores)])
        columns = export_header(subset).count(";")
        text = "\n".join([export_header(subset), *rows, "total" + ";" * columns, ";" * columns]) + "\n"
        write(folder / f"composite/{subset}_{aspect}.csv", text)


def load(folder: Path, selection: str = "same-text-out") -> Judgements:
    return Composite(root(folder)).load(Composite.selections[selection])[0]


def test_a_reference_with_the_candidates_text_is_left_out_for_it_alone(tmp_path: Path) -> None:
    table(tmp_path)
    items = load(tmp_path).items
    swan = REFERENCES["8k"]
    assert items[0].references == tuple(swan[1:])
    assert items[1].references == (*swan[:3], swan[4])
    assert items[2].references == tuple(swan)


def test_references_with_any_candidates_text_are_left_out_for_all(tmp_path: Path) -> None:
    table(tmp_path)
    judgements = load(tmp_path, "any-candidate-out")
    assert {len(item.references) for item in judgements.items} == {3}
    assert judgements.notes == ("18 references are left out (same text as a candidate of the image)",)


def test_exports_give_the_same_items_as_the_table(tmp_path: Path) -> None:
    table(tmp_path / "table")
    exports(tmp_path / "exports", "correctness")
    from_table, from_exports = load(tmp_path / "table"), load(tmp_path / "exports")
    assert from_exports.items == from_table.items
    assert from_exports.ratings["correctness"].value.tolist() == from_table.ratings["correctness"].value.tolist()


def test_json_by_source_counts_blank_ratings_and_numbers_the_candidates_of_an_image(tmp_path: Path) -> None:
    entries = [("b.jpg", 2), ("a.jpg", None), ("a.jpg", float("nan")), ("a", 4), ("x/a.jpg", 3)]
    coco = [{"image": image, "caption": f"text {n}", "human": rating} for n, (image, rating) in enumerate(entries)]
    path = tmp_path / "composite.json"
    write_json(path, {"coco": coco, "flickr8k": [{"image": "c.jpg", "caption": "text", "human": 1}]})
    rated, blank = read_composite_json(path)
    found = [(row.subset, row.image, row.position, row.rating) for row in rated]
    assert (found, blank) == ([("8k", "c", 0, 1), ("coco", "b", 0, 2), ("coco", "a", 0, 4), ("coco", "a", 1, 3)], 2)


def test_rows_without_an_image_at_the_end_of_an_export_are_skipped_and_noted(tmp_path: Path) -> None:
    exports(tmp_path, "correctness")
    assert "6 rows without an image at the ends of the correctness exports are skipped" in load(tmp_path).notes


def test_thoroughness_of_the_exports_is_joined_to_the_items(tmp_path: Path) -> None:
    exports(tmp_path, "correctness")
    exports(tmp_path, "throughness")
    judgements = load(tmp_path)
    assert judgements.ratings["thoroughness"].value.tolist() == [3, 2, 5, 1, 1, 4, 2, 3, 5]
    both = judgements.ratings["both"]
    assert both.item.tolist() == [*range(9), *range(9)]
    assert both.rater.tolist() == [0] * 9 + [1] * 9
    assert both.value.tolist() == [5, 2, 3, 4, 1, 1, 5, 3, 2, 3, 2, 5, 1, 1, 4, 2, 3, 5]


def test_missing_thoroughness_is_an_error_only_when_it_is_asked_for(tmp_path: Path) -> None:
    table(tmp_path)
    ratings = load(tmp_path).ratings
    assert "thoroughness" not in ratings
    for aspect in ("thoroughness", "both"):
        with raises(MissingFileError, "missing-file", path=tmp_path / "composite/8k_throughness.csv"):
            ratings[aspect]


def test_thoroughness_of_a_text_at_two_positions_is_joined_by_position(tmp_path: Path) -> None:
    human, machine, _ = candidates("8k")
    shouted = human.replace("!", " .")
    exports(tmp_path, "correctness", {"8k": [export("8k", (5, 2, 3), [human, machine, shouted])]})
    exports(tmp_path, "throughness", {"8k": [export("8k", (1, 4, 5), [shouted, machine, human])]})
    assert load(tmp_path).ratings["thoroughness"].value.tolist()[:3] == [1, 4, 5]
    # Where only one of the two positions is rated, the rating is that position's.
    exports(tmp_path, "throughness", {"8k": [export("8k", ("", 4, 5), [human, machine, shouted])]})
    rated = load(tmp_path).ratings["thoroughness"]
    assert (rated.item.tolist()[:2], rated.value.tolist()[:2]) == ([1, 2], [4, 5])


@pytest.mark.parametrize(
    ("rows", "code", "row", "value"),
    [
        ([export("8k", (5, 9, 1))], "out-of-range", 2, "9"),
        (["HIT;;a;b;c;1;2;3;x", export("8k", (5, 2, 1))], "missing-image", 2, None),
        ([export("8k", (5, 2, 1)), export("8k", (5, 2, 2))], "duplicate", 3, None),
        ([export("8k", (5, 2, 1), image="99_zz.jpg")], "missing-references", 2, "99_zz"),
        ([], "missing-value", None, None),
    ],
)
def test_bad_exports_are_refused(tmp_path: Path, rows: list[str], code: str, row: int | None, value: object) -> None:
    exports(tmp_path, "correctness", {"8k": rows})
    with raises(DataError, code, path=tmp_path / "composite/8k_correctness.csv", row=row, value=value):
        load(tmp_path)

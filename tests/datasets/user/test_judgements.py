from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capbench.core.errors import DataError, UsageError
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import DataRoot
from capbench.datasets.user.judgement_files import ImportProblemsError, read_user_file
from capbench.datasets.user.judgements import ImportedDataset, import_file, imported_folders
from tests.datasets.user.frames import records
from tests.errors import raises

RATED: dict[str, Any] = {
    "image": "one.jpg",
    "candidate": "a red kite over a hill",
    "references": ["a kite in the sky", "someone flies a red kite"],
    "rating": 4,
}
PAIR: dict[str, Any] = {
    "image": "one.jpg",
    "candidate_a": "a red kite",
    "candidate_b": "two boats",
    "references": ["a kite in the sky"],
    "preferred": "a",
}


@pytest.fixture(autouse=True)
def _own_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CAPBENCH_HOME", str(tmp_path / "home"))


@pytest.fixture
def root(tmp_path: Path) -> DataRoot:
    (tmp_path / "data").mkdir()
    return DataRoot(tmp_path / "data", False, "test")


def jsonl(path: Path, *rows: dict[str, Any] | str) -> Path:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    return path


def table(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def other(**fields: Any) -> dict[str, Any]:
    return {k: v for k, v in (RATED | fields).items() if v is not None}


REFERENCES = ["ein Hund läuft", "狗在跑"]
FILES: dict[str, list[dict[str, Any]]] = {
    "one rating": [
        {"image": "a.jpg", "candidate": "a dog", "references": REFERENCES, "rating": 4},
        {"image": "b.jpg", "candidate": "ein Hund 🐕", "references": ["a cat"], "rating": 0.1},
    ],
    "several raters": [
        {"image": f"{image}.jpg", "candidate": text, "references": REFERENCES, "rating": rating, "rater": rater}
        | {"candidate_id": f"{image}-{system}", "system": system, "group": "außen"}
        for image, text, system, rater, rating in [
            ("a", "a dog", "S", "zoë", 1),
            ("b", "a dog", "S", "ann", 2),
            ("a", "a dog", "S", "ann", 3),
            ("a", "a dog", "T", "zoë", 4.5),
        ]
    ],
    "lists of ratings without references": [
        {"image": "a.jpg", "candidate": "a dog", "ratings": [1, 2, 3]},
        {"image": "a.jpg", "candidate": "two dogs", "ratings": [5], "group": "g"},
        {"image": "b.jpg", "candidate": "a dog", "ratings": [0.1, 0.2]},
    ],
    "aspects": [
        {"image": "a.jpg", "candidate": "a dog", "references": ["x"], "rating_fluency": 3, "rating_adequacy": 1},
        {"image": "b.jpg", "candidate": "a dog", "references": ["x"], "ratings": {"adequacy": [2, 4], "fluency": 5}},
    ],
    "pairs": [
        {"image": "a.jpg", "candidate_a": "a dog", "candidate_b": "狗", "references": REFERENCES, "preferred": "tie"}
        | {"group": "HM", "candidate_id_a": "d", "candidate_id_b": "e"},
        {"image": "a.jpg", "candidate_a": "a dog", "candidate_b": "cats", "references": ["x"], "preferred": "b"}
        | {"candidate_id_a": "d", "candidate_id_b": "c"},
    ],
    "pairs with votes": [
        {"image": "a.jpg", "candidate_a": "a dog", "candidate_b": "a cat", "votes_a": 2, "votes_b": 1}
        | {"system_a": "S", "system_b": "T"},
        {"image": "b.jpg", "candidate_a": "a dog", "candidate_b": "a cat", "votes_a": 0, "votes_b": 7}
        | {"system_a": "T", "system_b": "Ü"},
    ],
    "graded pairs": [
        {"image": f"{image}.jpg", "candidate_a": "a dog", "candidate_b": "a cat", "grade": grade, **more}
        for image, grade, more in [("a", 2, {}), ("b", -0.5, {"preferred": "b"}), ("c", 0, {"preferred": "tie"})]
    ],
}


def expected(place: object, record: Mapping[str, Any], aspects: Sequence[str]) -> dict[str, Any]:
    """The row of a valid record, made without capbench's readers."""
    row = {"row": place, **record, "image": record["image"].removesuffix(".jpg")}
    ratings = row.pop("ratings", None)
    if "candidate" in record:
        for name in aspects:
            of_aspect = ratings[name] if isinstance(ratings, dict) else ratings
            of_aspect = row.pop("rating", row.pop(f"rating_{name}", of_aspect))
            row[f"={name}"] = tuple(of_aspect) if isinstance(of_aspect, list) else (of_aspect,)
    elif preferred := row.pop("preferred", None):
        row["direction"] = {"a": 1, "b": -1, "tie": 0}[preferred]
    else:
        row["direction"] = np.sign(row["grade"] if "grade" in row else row["votes_a"] - row["votes_b"])
    return row | ({"references": tuple(row["references"])} if "references" in row else {})


@pytest.mark.parametrize("form", ["jsonl", "json", "ndjson", "parquet"])
@pytest.mark.parametrize("kind", FILES)
def test_rows_are_those_of_the_file(tmp_path: Path, kind: str, form: str) -> None:
    made = FILES[kind]
    file = tmp_path / f"some.{form}"
    if form == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        if kind == "aspects":
            pytest.skip("a column of Parquet has one type")
        names = dict.fromkeys(name for record in made for name in record)
        parquet.write_table(pyarrow.Table.from_pylist([dict.fromkeys(names) | record for record in made]), file)
    elif form == "json":
        file.write_text(json.dumps(made))
    else:
        jsonl(file, *made)
    table = read_user_file(file)
    assert records(table) == [
        expected(f"entry {number}" if form == "json" else number, record, table.aspects)
        for number, record in enumerate(made, 1)
    ]
    assert (table.most_references > 0) == ("references" in made[0])
    assert table.scale is None


KINDS = """image,candidate,system,reference_1,rating_P,rating_total
one.jpg,"a red kite
over a hill",A,a kite,4,3.25
one.jpg,a boat,B,a kite,2,1.5
one.jpg,a dog,C,a kite,1,1.75
two.jpg,a man,A,a person,5,4.125
two.jpg,a cat,B,a person,1,1.0625
two.jpg,a person sits,C,a person,4,2
"""


def test_several_kinds_of_ratings_have_statistics_of_their_own(tmp_path: Path, root: DataRoot) -> None:
    dataset = open_dataset(str(table(tmp_path / "k.csv", KINDS)), root)
    assert str(dataset.protocol()) == "k.csv/as-given/P-tau-b"
    (judgements,) = dataset.load(dataset.protocol().items)
    assert {aspect: r.value.tolist() for aspect, r in judgements.ratings.items()} == {
        "P": [4, 2, 1, 5, 1, 4],
        "total": [3.25, 1.5, 1.75, 4.125, 1.0625, 2],
    }
    assert judgements.ratings["total"].scale == (1.0625, 4.125)
    assert judgements.notes == ("the file specifies no scale; observed: P 1 to 5, total 1.0625 to 4.125",)
    assert [item.system for item in judgements.items] == list("ABCABC")
    assert judgements.items[0].candidate == "a red kite over a hill"
    spec = dataset.protocol("total-within-image-tau-b").statistic
    assert (spec.human, spec.level, spec.coefficient, spec.aggregation) == ("total", "images", "tau-b", "mean")
    assert dataset.protocol("P-system-soft-accuracy").statistic.label == "system soft accuracy"
    assert dataset.protocol("total-within-source-tau-b").statistic.label == "within-source τ-b"
    alias = dataset.protocol("total-system-difference-pearson")
    assert str(alias) == "k.csv/as-given/total-within-image-difference-pearson"


def test_statistics_that_the_ratings_cannot_carry_are_not_offered(tmp_path: Path, root: DataRoot) -> None:
    two_systems = KINDS.replace(",C,", ",A,")
    names = set(open_dataset(str(table(tmp_path / "k.csv", two_systems)), root).statistics)
    assert "P-within-image-tau-b" in names
    assert "P-system-pearson" not in names
    assert "P-within-source-tau-c" in names
    one_each = [other(image=f"{i}.jpg", system=f"s{i % 2}", rating=1 + i % 2) for i in range(4)]
    names = set(open_dataset(str(jsonl(tmp_path / "s.jsonl", *one_each)), root).statistics)
    assert "within-source-tau-b" not in names  # all captions of a system have one rating
    apart = [other(image=f"{i}.jpg", rating=i) for i in range(4)]
    assert set(open_dataset(str(jsonl(tmp_path / "a.jsonl", *apart)), root).statistics) == {
        "tau-b",
        "tau-c",
        "spearman",
        "pearson",
        "acc-eq",
    }


def test_pairs_become_two_items_each_with_votes_and_groups(tmp_path: Path, root: DataRoot) -> None:
    rows = [
        PAIR | {"votes_a": 3, "votes_b": 1, "group": "HM"},
        {k: v for k, v in PAIR.items() if k != "preferred"} | {"image": "two.jpg", "votes_a": 1, "votes_b": 2},
        PAIR | {"image": "three.jpg", "preferred": "tie", "votes_a": 2, "votes_b": 2},
    ]
    dataset = open_dataset(str(jsonl(tmp_path / "p.jsonl", *rows)), root)
    assert str(dataset.protocol()) == "p.jsonl/as-given/preference-strict"
    (judgements,) = dataset.load(dataset.protocol().items)
    assert len(judgements.items) == 6
    pairs = judgements.preferences["preference"]
    assert pairs.first.tolist() == [0, 2, 4]
    assert pairs.second.tolist() == [1, 3, 5]
    assert pairs.preferred.tolist() == [1, -1, 0]
    assert pairs.group == ("HM", "", "")
    assert pairs.votes.tolist() == [[3, 1], [1, 2], [2, 2]]
    assert judgements.items[2].candidate_id == "row-2-a"


@pytest.mark.parametrize(
    ("rows", "row", "code", "value"),
    [
        ([other(image=None)], 1, "missing-column", "image"),
        ([RATED, other(image=None)], 2, "missing-value", "image"),
        ([other(candidate=5)], 1, "wrong-type", "candidate"),
        ([other(candidate="")], 1, "missing-value", "candidate"),
        ([other(candidate="a\x07bell")], 1, "wrong-value", "candidate"),
        ([other(group="two\nlines")], 1, "wrong-value", "group"),
        ([other(image=".jpg")], 1, "missing-image", ".jpg"),
        ([other(system="one"), other(candidate="x")], 2, "missing-value", "system"),
        ([other(candidate_id="c", rater="a"), other(rater="b")], 2, "missing-value", "candidate_id"),
        ([other(candidate_id="c", system="one"), other(candidate_id="c", system="two")], 2, "duplicate", "c"),
        ([PAIR | {"candidate_id_a": "row-1-b"}], 1, "missing-value", None),
        ([other(rating_style=3)], 1, "conflict", "rating"),
        ([other(rating=None, rating_a=1), other(candidate="x")], 2, "missing-value", "a"),
        ([other(rating=None, ratings={"a": 1, "b": "good"})], 1, "not-a-number", "rating"),
        ([PAIR | {"rating_style": 3}], 1, "conflict", "rating_style"),
        ([other(references=[])], 1, "missing-references", None),
        ([other(references="one")], 1, "wrong-type", "references"),
        ([other(references=None, reference_1=["a"])], 1, "wrong-value", "references"),
        ([other(references=["a", ""])], 1, "missing-value", "references"),
        ([other(rating=None)], 1, "missing-column", "rating"),
        ([other(ratings=[1])], 1, "conflict", "rating"),
        ([other(rating="4")], 1, "not-a-number", "rating"),
        ([json.dumps(other(candidate="\ud800 x"))], 1, "wrong-value", "candidate"),
        ([other(rating=None, ratings=[])], 1, "missing-value", "rating"),
        ([RATED, other(candidate="x", ratng=3)], 2, "unknown-column", "ratng"),
        ([RATED, RATED], 2, "duplicate", None),
        ([other(rater="a"), other(rater="a")], 2, "duplicate", "a"),
        ([other(rater="a"), other(candidate="x")], 2, "missing-value", "rater"),
        ([other(rater="a", rating=None, ratings=[1, 2])], 1, "conflict", "rater"),
        ([other(rater="a"), other(rater="b", references=["z"])], 2, "mismatch", "references"),
        ([other(scale=[1, 3])], 1, "out-of-range", "4"),
        ([other(scale="high")], 1, "wrong-value", "scale"),
        ([other(scale=[1, 5]), other(candidate="x", scale=[1, 7])], 2, "mismatch", "scale"),
        ([RATED, other(image="dir/one.jpg", candidate="x")], 2, "duplicate", "one"),
        ([PAIR | {"candidate_b": "a red kite"}], 1, "duplicate", None),
        ([PAIR | {"preferred": "left"}], 1, "wrong-value", "preferred"),
        ([{k: v for k, v in PAIR.items() if k != "preferred"}], 1, "missing-column", "preferred"),
        ([PAIR | {"votes_a": 1, "votes_b": 2}], 1, "mismatch", "preferred"),
        ([PAIR | {"votes_a": 1}], 1, "wrong-type", "votes_b"),
        ([PAIR | {"votes_a": 1.5, "votes_b": 1}], 1, "wrong-type", "votes_a"),
        ([PAIR | {"votes_a": 0, "votes_b": 0}], 1, "missing-value", "votes"),
        ([PAIR, PAIR | {"image": "two", "votes_a": 1, "votes_b": 0}], 2, "missing-value", "votes"),
        ([PAIR | {"grade": -1}], 1, "mismatch", "preferred"),
        ([PAIR | {"grade": "2"}], 1, "not-a-number", "grade"),
        ([PAIR | {"votes_a": 2, "votes_b": 1, "grade": -1}], 1, "mismatch", "grade"),
        ([other(grade=3)], 1, "conflict", "grade"),
        ([PAIR, PAIR | {"candidate_a": "two boats", "candidate_b": "a red kite"}], 2, "duplicate", None),
        ([PAIR, RATED], 2, "conflict", "rating"),
    ],
)
def test_a_row_that_does_not_fit_is_named(
    tmp_path: Path, rows: list[dict[str, Any] | str], row: int, code: str, value: str | None
) -> None:
    file = jsonl(tmp_path / "bad.jsonl", *rows)
    with pytest.raises(ImportProblemsError) as caught:
        read_user_file(file)
    problems = {(problem.row, problem.code, problem.value) for problem in caught.value.problems}
    assert (row, code, value) in problems, caught.value
    line = str(caught.value)
    assert line.startswith(f"{file}, row ")
    assert "\n" not in line
    assert all(problem.hint for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("name", "text", "code", "row", "value"),
    [
        ("a.csv", "", "damaged", None, None),
        ("a.csv", "image,candidate,reference_1,rating\n", "missing-value", None, None),
        ("a.csv", "picture,candidate\nx,y\n", "missing-column", 1, "image"),
        ("a.csv", "image,candidate,reference_1,rating\nx,a, b,c,1\n", "wrong-format", 2, 5),
        ("a.csv", "image,candidate,references,rating\nx,a,b,1\n", "wrong-type", 2, "references"),
        ("a.csv", "image,candidate,reference_1,reference_2,rating\nx,a,,b,1\n", "missing-value", 2, "reference"),
        ("a.csv", "image,candidate,reference_1,rating\nx,a,b,good\n", "not-a-number", 2, "rating"),
        ("a.csv", "image,candidate,reference_1,rating\nx,a,b,nan\n", "not-a-number", 2, "rating"),
        ("a.csv", "image,candidate,reference_1,rating\nx,a,b,1_000\n", "not-a-number", 2, "rating"),
        ("a.csv", "image,candidate,reference_1,rating\nx,a,b,\n", "missing-value", 2, "rating"),
        ("a.csv", "image,candidate,reference_1,reference_01,rating\nx,a,b,c,1\n", "ambiguous", 1, "reference_01"),
        ("a.csv", 'image,candidate,reference_1,rating\nx,"a\n\nb",c,1\nx,d,e,high\n', "not-a-number", 5, "rating"),
        ("a.csv", "image,candidate,reference_1,rating_a b\nx,a,c,1\n", "wrong-value", 2, "a b"),
        ("a.csv", "image,candidate,reference_1,rating_a,rating_1\nx,a,c,1,2\n", "conflict", 2, "rating"),
        ("a.csv", "image,candidate,reference_1,rating_a,rating_b\nx,a,c,1,\nx,b,c,1,2\n", "missing-value", 2, "b"),
        ("a.json", "{}", "missing-value", None, None),
        ("a.txt", "image", "wrong-format", None, ".txt"),
        ("a.jsonl", "{", "wrong-format", 1, None),
        ("a.csv", "image;candidate;rating\nx;a;1,5\ny;a;1.5\n", "ambiguous", None, "rating"),
        ("a.jsonl", "\n\n", "damaged", None, None),
    ],
)
def test_a_table_that_does_not_fit_is_an_error(
    tmp_path: Path, name: str, text: str, code: str, row: int | None, value: object
) -> None:
    with raises(DataError, code, row=row, value=value):
        read_user_file(table(tmp_path / name, text))


def test_all_problems_are_found_at_once_and_the_line_says_how_many(tmp_path: Path) -> None:
    file = jsonl(tmp_path / "a.jsonl", other(rating="x"), RATED | {"image": 2}, other(candidate=""), other(image=None))
    with pytest.raises(ImportProblemsError) as caught:
        read_user_file(file)
    assert [problem.row for problem in caught.value.problems] == [1, 3, 4]
    assert "; 2 more problems" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "values"),
    [
        ("a.csv", "image;candidate;rating\nx;a;1,5\n\ny;a;2\n\n", [1.5, 2]),
        ("a.tsv", "image\tcandidate\trating\nx\ta, b\t1,5\ny\ta\t-,25\n", [1.5, -0.25]),
        ("a.csv", 'image,candidate,rating\n\nx,a,"1.5"\ny,a,2e0', [1.5, 2]),
        ("a.csv", "image,candidate,rating_1,rating_2,rating_3\nx,a,1,,3\ny,a,,2,\n", [1, 3, 2]),
    ],
)
def test_blank_lines_blank_ratings_and_decimal_commas(
    tmp_path: Path, name: str, text: str, values: list[float]
) -> None:
    rows = records(read_user_file(table(tmp_path / name, text)))
    assert [value for row in rows for value in row["=rating"]] == values


def test_a_workbook_is_read_like_its_table(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (
        ["image", "candidate", "reference_1", "rating"],
        ["1.jpg", "a kite", "a toy", 4.5],
        [],
        [2, "x", "y", 1],
    ):
        book.active.append(row)
    book.save(tmp_path / "a.xlsx")
    assert records(read_user_file(tmp_path / "a.xlsx")) == [
        {"row": 2, "image": "1", "candidate": "a kite", "references": ("a toy",), "=rating": (4.5,)},
        {"row": 4, "image": "2", "candidate": "x", "references": ("y",), "=rating": (1.0,)},
    ]
    openpyxl.Workbook().save(tmp_path / "empty.xlsx")
    with raises(DataError, "missing-value"):
        read_user_file(tmp_path / "empty.xlsx")


@pytest.mark.parametrize("name", ["system", "candidate_id"])
def test_one_caption_of_two_systems_is_two_candidates(tmp_path: Path, root: DataRoot, name: str) -> None:
    rows = [other(rating=4, **{name: "Up-Down"}), other(rating=2, **{name: "VinVL"}), other(image="two", **{name: "x"})]
    dataset = open_dataset(str(jsonl(tmp_path / "a.jsonl", *rows)), root)
    (judgements,) = dataset.load(dataset.protocol().items)
    assert [getattr(item, name) for item in judgements.items] == ["Up-Down", "VinVL", "x"]
    assert len({item.candidate_id for item in judgements.items}) == 3
    assert judgements.items[0].key == judgements.items[1].key  # one score serves both
    assert judgements.ratings["rating"].item.tolist() == [0, 1, 2]
    assert str(dataset.protocol()) == "a.jsonl/as-given/tau-b"


def test_an_import_gives_what_the_file_gives(tmp_path: Path, root: DataRoot) -> None:
    file = jsonl(tmp_path / "mine.jsonl", RATED, other(candidate="a boat", rating=None, ratings=[1, 2], group="far"))
    made = import_file(file, "mine", root, scale=(1, 5))
    assert made.path == root.path / "imported" / "mine" / "judgements.jsonl"
    assert list(imported_folders(root)) == ["mine"]
    again = open_dataset("mine", root)
    assert isinstance(again, ImportedDataset)
    (stored,) = again.load(again.protocol().items)
    direct = open_dataset(str(file), root)
    (read,) = direct.load(direct.protocol().items)
    (returned,) = made.load(made.protocol().items)
    assert stored.items == read.items == returned.items
    assert np.array_equal(stored.ratings["rating"].value, read.ratings["rating"].value)
    assert np.array_equal(stored.ratings["rating"].value, returned.ratings["rating"].value)
    assert (made.citation, made.path, records(made.table)) == (again.citation, again.path, records(again.table))
    assert stored.ratings["rating"].scale == (1.0, 5.0)
    assert stored.notes == ()
    assert str(again.protocol()) == "mine/as-given/unaggregated-tau-b"
    meta = json.loads((made.path.parent / "meta.json").read_text())
    assert (meta["schema"], meta["kind"], meta["rows"], meta["source"]["file"]) == (1, "ratings", 2, "mine.jsonl")
    assert sorted(path.name for path in made.path.parent.iterdir()) == ["judgements.jsonl", "meta.json"]


def test_a_name_that_is_taken_needs_replace(tmp_path: Path, root: DataRoot) -> None:
    import_file(jsonl(tmp_path / "a.jsonl", RATED), "mine", root)
    newer = jsonl(tmp_path / "b.jsonl", other(rating=2))
    with raises(UsageError, "exists", path=tmp_path / "data/imported/mine", value="mine"):
        import_file(newer, "mine", root)
    import_file(newer, "mine", root, replace=True)
    dataset = open_dataset("mine", root)
    assert dataset.load(dataset.protocol().items)[0].ratings["rating"].value.tolist() == [2]
    assert [path.name for path in (root.path / "imported").iterdir()] == ["mine"]

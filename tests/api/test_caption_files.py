"""Captions in the forms that people have give pycocoevalcap's values (its tokeniser, corpus scores), or a warning."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import capbench
from capbench.core.errors import CapbenchWarning, DataError, MetricError, UsageError
from tests.errors import raises

FILES = Path(__file__).parents[1] / "fixtures" / "caption_files"
VALUES = json.loads((FILES / "values.json").read_text("utf-8"))
COLUMNS = {"BLEU-1": "bleu-1", "BLEU-4": "bleu-4", "ROUGE-L": "rouge-l", "CIDEr": "cider"}
METRICS = list(COLUMNS.values())


def read(name: str) -> Any:
    return json.loads((FILES / name).read_text("utf-8"))


def assert_values(scores: dict[str, float], key: str) -> None:
    assert {column: scores[column] for column in METRICS} == pytest.approx(
        {COLUMNS[name]: value for name, value in VALUES[key].items()}, abs=6e-7
    )


def score(candidates: object, references: object, **options: Any) -> dict[str, float]:
    first, second = (FILES / given if isinstance(given, str) else given for given in (candidates, references))
    table = capbench.score(first, second, METRICS, **options)  # type: ignore[arg-type]
    return {row.name: table.corpus[row.key] for row in table.rows}


@pytest.mark.parametrize(
    ("candidates", "references", "key"),
    [
        ("results.json", "references.json", "results.json"),
        ("results_empty_caption.json", "references.json", "results_empty_caption.json"),
        ("results_stop_token.json", "references.json", "results_stop_token.json"),
        ("candidates.csv", "references.json", "candidates.csv"),
        ("candidates_semicolon.csv", "references.json", "candidates_semicolon.csv"),
        ("results.json", "dataset_coco.json", "dataset_coco.json, all splits"),
        ("results.json", "nocaps_val.json", "nocaps_val.json, entire"),
        ("results_flickr8k.json", "Flickr8k.token.txt", "results_flickr8k.json with Flickr8k.token.txt"),
        ("results_flickr8k.json", "captions.txt", "results_flickr8k.json with captions.txt"),
        (
            "results_names_2017.json",
            "references_names_2014.json",
            "results_names_2017.json with references_names_2014.json",
        ),
        ("results.json", "references_names_2014.json", "results.json"),
    ],
)
def test_files_in_common_forms_have_pycocoevalcaps_scores(candidates: str, references: str, key: str) -> None:
    assert_values(score(candidates, references), key)


def test_tables_dictionaries_of_pycocoevalcap_and_flickr30ks_annotations_are_read(tmp_path: Path) -> None:
    results, references = read("results.json"), read("references.json")
    import openpyxl

    book = openpyxl.Workbook()
    sheet = book.create_sheet("captions", 0)
    sheet.append(["image_id", "caption"])
    for row in results:
        sheet.append([row["image_id"], row["caption"]])
    book.save(tmp_path / "c.xlsx")
    with open(tmp_path / "c.tsv", "w", newline="") as stream:
        csv.writer(stream, delimiter="\t").writerows(
            [["Caption", "ID"], *([r["caption"], r["image_id"]] for r in results)]
        )
    (tmp_path / "c.json").write_text(json.dumps({row["image_id"]: [{"caption": row["caption"]}] for row in results}))
    by_image = {image: [{"caption": text} for text in texts] for image, texts in references.items()}
    (tmp_path / "r.json").write_text(json.dumps(by_image))
    with open(tmp_path / "r.csv", "w", newline="") as stream:
        rows = [[image, *texts] for image, texts in references.items()]
        csv.writer(stream).writerows([["image", "ref1", "ref2", "ref3"], *rows])
    images = [
        {"filename": f"{image}.jpg", "split": "test", "sentences": [{"raw": text} for text in texts]}
        for image, texts in references.items()
    ]
    (tmp_path / "dataset_flickr30k.json").write_text(json.dumps({"dataset": "flickr30k", "images": images}))
    for candidates in ("c.xlsx", "c.tsv", "c.json"):
        for given in ("r.json", "r.csv", "dataset_flickr30k.json"):
            assert_values(score(tmp_path / candidates, tmp_path / given), "results.json")


def test_a_split_is_scored_alone() -> None:
    with raises(DataError, "unknown-item", value="98", row="entry 9"):
        score("results.json", "dataset_coco.json", split="test")
    assert_values(
        score("results.json", "dataset_coco.json", split="test", restrict=True), "dataset_coco.json, split test"
    )
    with raises(UsageError, "unknown-name", value="tset"):
        score("results.json", "dataset_coco.json", split="tset")
    with raises(UsageError, "missing-option"):
        score("results.json", "dataset_coco.json", restrict=True)


def test_nocaps_is_scored_by_domain_with_document_frequencies_of_each() -> None:
    table = capbench.score(FILES / "results.json", FILES / "nocaps_val.json", metrics=METRICS)
    rows = table.domains
    assert [(row["domain"], row["images"]) for row in rows] == [
        ("in-domain", 3),
        ("near-domain", 6),
        ("out-domain", 3),
        ("entire", 12),
    ]
    for row in rows[:3]:
        assert_values(row["corpus"], f"nocaps_val.json, {row['domain']}, documents of its own")
    assert_values(rows[3]["corpus"], "nocaps_val.json, entire")
    part = capbench.score(FILES / "results.json", FILES / "nocaps_val.json", METRICS, split="out-domain", restrict=True)
    assert_values(
        {row.name: part.corpus[row.key] for row in part.rows}, "nocaps_val.json, out-domain, documents of its own"
    )


@pytest.mark.parametrize(
    ("candidates", "words"),
    [
        ("results_empty_caption.json", "1 of 12 candidates is empty: metrics score them 0 (first: image '70'"),
        ("results_stop_token.json", "12 candidates contain a token of a model (first: image '42'"),
        ("results_list_as_text.json", "12 candidates are a list written as a text (first: image '42'"),
    ],
)
def test_captions_that_mislead_are_named_with_their_number_and_the_first(candidates: str, words: str) -> None:
    notes = capbench.score(FILES / candidates, FILES / "references.json", metrics=["bleu"]).notes
    assert any(words in line for line in notes), notes


def test_an_empty_caption_costs_the_other_metrics_their_scores() -> None:
    def length(candidate: str) -> float:
        return float(len(candidate))

    files = FILES / "results_empty_caption.json", FILES / "references.json"
    with pytest.warns(CapbenchWarning, match="length is not computed"):
        table = capbench.score(*files, metrics={"length": length, "cider": "cider"})
    assert [row.name for row in table.rows] == ["cider"]
    assert {row.name for row in table.incomplete} == {"length"}
    assert table["cider"][4] == 0
    with raises(MetricError, "missing-caption", row="image '70'", value="70"):
        capbench.score(*files, metrics={"length": length})

"""Ratings of descriptions in context."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capbench.core.errors import DataError
from capbench.core.records import Judgements
from capbench.datasets.base import Dataset
from capbench.datasets.context import ContextBlv, ContextSighted
from capbench.stats.correlation import correlation
from capbench.stats.pairwise_accuracy import aggregate
from tests.datasets.native_files import root, write
from tests.errors import raises

HEADER = (
    "context,participant,img_id,description,"
    "q_reconstructivity,q_relevance,q_irrelevance,q_imgfit,q_overall,article_text\n"
)
ROWS = (
    'Roof,p1,church1,"A roof, in the sun",3,2,5,2,3,"An article, with ""quotes""\nand two lines"\n'
    'Roof,p2,church1,"A roof, in the sun",4,2,5,2,5,text\n'
    "Window,p1,church1,A window,1,1,1,1,1,text\n"
    'Window,p2,church1,"A roof, in the sun",1,2,3,4,2,text\n'
)


def load(dataset: type[Dataset], folder: Path) -> Judgements:
    (judged,) = dataset(root(folder)).load(dataset.selections["all-descriptions"])
    return judged


def test_ratings_of_a_description_in_one_context_belong_together(tmp_path: Path) -> None:
    write(tmp_path / "context_blv/blv_data_criticaltrials.csv", HEADER + ROWS)
    judged = load(ContextBlv, tmp_path)
    assert [item.candidate for item in judged.items] == ["A roof, in the sun", "A window", "A roof, in the sun"]
    assert len({item.candidate_id for item in judged.items}) == 3
    overall = judged.ratings["overall"]
    assert overall.item.tolist() == [0, 0, 1, 2]
    assert overall.value.tolist() == [3, 5, 1, 2]
    assert overall.rater.tolist() == [0, 1, 0, 0]
    assert judged.ratings["irrelevance"].value.tolist() == [5, 5, 1, 3]


@pytest.mark.parametrize(
    ("old", "new", "code", "row"),
    [
        ("3,2,5,2,3", "3,2,5,2,6", "out-of-range", 2),
        ("3,2,5,2,3", "3,2,,2,3", "not-a-number", 2),
        ("3,2,5,2,3", "3,2,5,2", "wrong-format", 2),
        ("A window,", ",", "missing-value", 5),
        ("Roof,p2", "Roof,p1", "duplicate", 4),
        ("q_imgfit", "q_fit", "missing-column", 1),
        (ROWS, "", "missing-value", None),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, old: str, new: str, code: Any, row: int | None) -> None:
    path = write(tmp_path / "context_blv/blv_data_criticaltrials.csv", (HEADER + ROWS).replace(old, new))
    with raises(DataError, code, path=path, row=row):
        load(ContextBlv, tmp_path)


@pytest.mark.real_data
def test_published_counts(real_data: Path) -> None:
    blv, sighted = load(ContextBlv, real_data), load(ContextSighted, real_data)
    assert (len(blv.items), len(blv.ratings["overall"])) == (68, 272)
    assert (len(sighted.items), len(sighted.ratings["overall"])) == (270, 986)
    assert set(blv.ratings) == {"overall", "relevance", "irrelevance", "reconstructivity", "imgfit"}
    assert len(sighted.ratings) == 9
    assert "reconstructivity" not in sighted.ratings


@pytest.mark.real_data
def test_longer_descriptions_are_rated_higher_by_blind_readers_only(real_data: Path) -> None:
    for dataset, column, expected in ((ContextBlv, "q_overall", 0.595), (ContextSighted, "q_overall.postimg", 0.028)):
        judged = load(dataset, real_data)
        item, mean = aggregate(judged.ratings["overall"].item, judged.ratings["overall"].value, "mean")
        words = np.array([len(judged.items[place].candidate.split()) for place in item], dtype=float)
        found = correlation("pearson", words, mean).value
        assert found == pytest.approx(expected, abs=5e-4)
        with root(real_data).file(dataset.file_name).open(newline="", encoding="utf-8") as stream:
            by_text = defaultdict(list)
            for row in csv.DictReader(stream):
                by_text[row["img_id"], row["description"]].append(float(row[column]))
        means = [np.mean(values) for values in by_text.values()]
        assert found == pytest.approx(np.corrcoef([len(text.split()) for _, text in by_text], means)[0, 1])

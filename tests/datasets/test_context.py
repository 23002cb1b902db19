"""Ratings of descriptions in context."""

from __future__ import annotations

from pathlib import Path

import pytest

from capbench.core.records import Judgements
from capbench.datasets.base import Dataset
from capbench.datasets.context import ContextBlv, ContextSighted
from tests.datasets.native_files import root, write

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


@pytest.mark.real_data
def test_published_counts(real_data: Path) -> None:
    blv, sighted = load(ContextBlv, real_data), load(ContextSighted, real_data)
    assert (len(blv.items), len(blv.ratings["overall"])) == (68, 272)
    assert (len(sighted.items), len(sighted.ratings["overall"])) == (270, 986)
    assert set(blv.ratings) == {"overall", "relevance", "irrelevance", "reconstructivity", "imgfit"}
    assert len(sighted.ratings) == 9
    assert "reconstructivity" not in sighted.ratings

"""Ratings of descriptions in context."""

from __future__ import annotations

from pathlib import Path

import pytest

from capbench.core.records import Judgements
from capbench.datasets.base import Dataset
from capbench.datasets.context import ContextBlv, ContextSighted
from tests.datasets.native_files import root


def load(dataset: type[Dataset], folder: Path) -> Judgements:
    (judged,) = dataset(root(folder)).load(dataset.selections["all-descriptions"])
    return judged


@pytest.mark.real_data
def test_published_counts(real_data: Path) -> None:
    blv, sighted = load(ContextBlv, real_data), load(ContextSighted, real_data)
    assert (len(blv.items), len(blv.ratings["overall"])) == (68, 272)
    assert (len(sighted.items), len(sighted.ratings["overall"])) == (270, 986)
    assert set(blv.ratings) == {"overall", "relevance", "irrelevance", "reconstructivity", "imgfit"}
    assert len(sighted.ratings) == 9
    assert "reconstructivity" not in sighted.ratings

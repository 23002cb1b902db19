"""Graded preferences in studies: draws, metrics, groups that are too small, and two data sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from capbench.core.records import FloatArray, Item, Judgements, Preferences
from capbench.datasets.base import Dataset
from capbench.datasets.protocol import ItemSelection, StatisticSpec, graded_preferences
from capbench.datasets.root import DataRoot
from capbench.studies.results import StudyResult
from tests.studies.toys import run

#: By pair: words of both captions, grade, group. The group "small" has no pair whose shorter caption is preferred.
PAIRS = [
    (6, 2, 2, "large"),
    (1, 4, 1, "large"),
    (3, 5, -2, "large"),
    (5, 4, 0, "large"),
    (2, 3, -1, "large"),
    (4, 4, 1, "large"),
    (5, 1, 1, "small"),
    (7, 3, 2, "small"),
]
STATISTICS = ("pairs-strict", "pairs-length-balanced", "pairs-graded-pearson", "pairs-graded-tau-b")
METRICS = tuple(f"tests.studies.toys:{name}" for name in ("Length", "Zigzag", "Constant"))


class GradedToy(Dataset):
    """Eight graded pairs; in the second draw, the first caption of every third pair is a word longer."""

    name = "graded-toy"
    title = "Graded"
    citation = "nobody"
    selections: ClassVar[Mapping[str, ItemSelection]] = {
        "all": ItemSelection("all", "all items"),
        "drawn": ItemSelection("drawn", "two draws", draws=2, seed=0),
    }
    statistics: ClassVar[Mapping[str, StatisticSpec]] = graded_preferences("pairs")
    default = ("all", "pairs-strict")

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        return tuple(self._draw(selection, draw) for draw in range(selection.draws))

    def _draw(self, selection: ItemSelection, draw: int) -> Judgements:
        items = tuple(
            Item(f"i{place}", " ".join(["word"] * words), ("a word",), f"{place}{side}")
            for place, pair in enumerate(PAIRS)
            for side, words in (("a", pair[0] + (place % 3 == 0) * draw), ("b", pair[1]))
        )
        first = np.arange(0, 2 * len(PAIRS), 2)
        grade = np.array([pair[2] for pair in PAIRS])
        groups = tuple(pair[3] for pair in PAIRS)
        pairs = Preferences(
            first, first + 1, np.sign(grade), groups, np.zeros((len(PAIRS), 0), np.int64), grade.astype(float)
        )
        return Judgements(self.name, selection.name, items, preferences={"pairs": pairs}, draw=draw)


class OtherToy(GradedToy):
    """The same pairs without the group that is too small."""

    name = "other-toy"
    title = "Other"

    def _draw(self, selection: ItemSelection, draw: int) -> Judgements:
        whole = super()._draw(selection, draw)
        pairs = whole.preferences["pairs"]
        assert pairs.grade is not None
        few = replace(
            pairs,
            **{name: getattr(pairs, name)[:6] for name in ("first", "second", "preferred", "group", "votes", "grade")},
        )
        return replace(whole, items=whole.items[:12], preferences={"pairs": few})


def words(draw: int) -> tuple[FloatArray, FloatArray]:
    first = np.array([pair[0] + (place % 3 == 0) * draw for place, pair in enumerate(PAIRS)], dtype=float)
    return first, np.array([pair[1] for pair in PAIRS], dtype=float)


def zigzag(values: FloatArray) -> FloatArray:
    return values + 2 * (values % 2)


def study(
    tmp_path: Path, selection: str, *toys: str, metrics: tuple[str, ...] = METRICS, **changes: object
) -> StudyResult:
    names = (f"tests.studies.test_graded:{toy}/{selection}" for toy in toys)
    protocols = tuple(f"{name}/{statistic}" for name in names for statistic in STATISTICS)
    return run(DataRoot(tmp_path, False, "test"), protocols=protocols, metrics=metrics, **changes)


def plain(statistic: str, d: FloatArray, length: FloatArray, grade: FloatArray) -> float:
    """The statistic of one group of pairs, pair by pair; NaN where it is undefined."""
    decided = [(x, n * g) for x, n, g in zip(d * np.sign(grade), length, grade, strict=True) if g]
    if statistic == "pairs-strict":
        return float(np.mean([x > 0 for x, _ in decided]))
    if statistic == "pairs-length-balanced":
        sides = [[(x > 0) + (x == 0) / 2 for x, side in decided if np.sign(side) == sign] for sign in (1, -1)]
        return float(np.mean([np.mean(side) for side in sides])) if all(sides) else np.nan
    both = np.concatenate([d, -d]), np.concatenate([grade, -grade])
    if not d.any():
        return np.nan
    if statistic.endswith("pearson"):
        return float(np.corrcoef(*both)[0, 1])
    order = [np.sign(np.subtract.outer(side, side)) for side in both]
    return float((order[0] * order[1]).sum() / np.sqrt((order[0] ** 2).sum() * (order[1] ** 2).sum()))


@pytest.mark.parametrize("selection", ["all", "drawn"])
@pytest.mark.parametrize("toys", [("GradedToy",), ("GradedToy", "OtherToy")])
def test_every_number_is_that_of_the_pairs_one_by_one(tmp_path: Path, selection: str, toys: tuple[str, ...]) -> None:
    cells = {
        (cell.protocol.partition("/")[0], cell.protocol.rpartition("/")[2], cell.column, cell.group): cell.value
        for cell in study(tmp_path, selection, *toys).cells
    }
    grade = np.array([pair[2] for pair in PAIRS], dtype=float)
    group = np.array([pair[3] for pair in PAIRS])
    metrics: dict[str, Callable[[FloatArray], FloatArray]] = {
        "length": lambda x: x,
        "zigzag": zigzag,
        "constant": lambda x: 0 * x,
    }
    for toy, statistic in (
        (toy, statistic) for toy in ("graded-toy", "other-toy")[: len(toys)] for statistic in STATISTICS
    ):
        for column, metric in metrics.items():
            by_draw = []
            for draw in range(2 if selection == "drawn" else 1):
                first, second = words(draw)
                d = metric(first) - metric(second)
                of = {
                    name: plain(statistic, d[group == name], (first - second)[group == name], grade[group == name])
                    for name in (["large", "small"] if toy == "graded-toy" else ["large"])
                }
                if "graded" in statistic:
                    chosen = np.isin(group, list(of))
                    of[""] = plain(statistic, d[chosen], (first - second)[chosen], grade[chosen])
                else:
                    of[""] = float(np.nanmean(list(of.values())))
                by_draw.append(of)
            for name in by_draw[0]:
                expected = float(np.mean([of[name] for of in by_draw]))
                found = cells[toy, statistic, column, name]
                assert (found is None) == np.isnan(expected), (toy, statistic, column, name)
                assert found is None or found == pytest.approx(expected), (toy, statistic, column, name)


def test_the_accuracy_of_the_longer_caption_is_noted_next_to_the_raw_one(tmp_path: Path) -> None:
    result = study(tmp_path, "all", "GradedToy")
    (strict,) = (info for info in result.protocols if info.id.endswith("pairs-strict"))
    # large: right on the first and third pair and the fifth; wrong on the second; equal lengths on the sixth.
    share = 100 * ((3 + 0.5) / 5 + 1) / 2
    assert any(f"{share:.2f}" in note for note in strict.notes)

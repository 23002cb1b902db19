"""A data set and metrics so small that every result can be worked out by hand; plugged in as module:Class."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, TypeVar

import numpy as np

from capbench.core.errors import MissingFileError
from capbench.core.options import Number, Options, option
from capbench.core.progress import Progress, SlowWork
from capbench.core.records import FloatArray, Item, Judgements, Preferences, Ratings
from capbench.datasets.base import Dataset
from capbench.datasets.opening import open_dataset
from capbench.datasets.protocol import ItemSelection, StatisticSpec, accuracy, correlations
from capbench.datasets.root import DataRoot, find_root
from capbench.metrics.base import Metric
from capbench.studies.plan import plan_study
from capbench.studies.results import StudyResult
from capbench.studies.run import run_plan
from capbench.studies.scoring import no_progress
from capbench.studies.study import Study

T = TypeVar("T")
LENGTHS = (1, 2, 3, 4, 5, 6)
TOY = "tests.studies.toys:Toy"
LENGTH = "tests.studies.toys:Length"
STUDY = Study("toy", "Toy", (TOY,), (LENGTH,))
HUMAN = ((1.0, 2.0), (1.0, 1.0), (3.0, 2.0), (2.0, 3.0), (4.0, 4.0), (3.0, 4.0))


class Toy(Dataset):
    """Six items whose candidates have one to six words; two ratings each; three pairs."""

    name = "toy"
    title = "Toy"
    citation = "nobody"
    selections: ClassVar[Mapping[str, ItemSelection]] = {
        "all": ItemSelection("all", "all items"),
        "drawn": ItemSelection("drawn", "three draws", draws=3, seed=0),
        "gone": ItemSelection("gone", "items whose file is not here"),
    }
    statistics: ClassVar[Mapping[str, StatisticSpec]] = {
        **correlations("rating", ("unaggregated", "mean")),
        **accuracy("votes"),
        **accuracy("other"),
    }
    default = ("all", "unaggregated-tau-c")

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        if selection.name == "gone":
            raise MissingFileError("there is no such file", path="toy/gone.txt")
        return tuple(self._draw(selection, draw) for draw in range(selection.draws))

    def _draw(self, selection: ItemSelection, draw: int) -> Judgements:
        items = tuple(
            Item(
                f"image{i}", " ".join(["word"] * (n + draw * (n % 2))), ("a word",), f"c{i}", "odd" if n % 2 else "even"
            )
            for i, n in enumerate(LENGTHS)
        )
        index = np.repeat(np.arange(len(items)), 2)
        ratings = Ratings(index, np.array(HUMAN).ravel(), np.tile(np.arange(2), len(items)), (1.0, 4.0))
        preferences = Preferences(
            first=np.array([0, 2, 4]),
            second=np.array([1, 3, 5]),
            preferred=np.array([-1, 1, -1]),
            group=("A", "A", "B"),
            votes=np.zeros((3, 0), dtype=np.int64),
        )
        return Judgements(
            self.name,
            selection.name,
            items,
            {"rating": ratings},
            {"votes": preferences},
            draw,
            ("nothing is left out",),
        )


@dataclass(frozen=True)
class LengthOptions(Options):
    scale: float = option(1.0, Number(), "what lengths are multiplied by")


class Length(Metric):
    """Number of words."""

    name = "length"
    columns: ClassVar[tuple[str, ...]] = ("length", "negative")
    titles: ClassVar[Mapping[str, str]] = {"length": "Length", "negative": "Negative length"}
    citation = "nobody"

    option_type = LengthOptions
    options: LengthOptions

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        progress(len(items))
        return np.array([[self.options.scale * len(i.candidate.split()), -len(i.candidate.split())] for i in items])


class Slow(Length):
    """Number of words, which takes a minute a distinct length to learn; each is learnt once."""

    name = "slow"
    columns: ClassVar[tuple[str, ...]] = ("slow",)
    titles: ClassVar[Mapping[str, str]] = {"slow": "Slow"}
    learnt: ClassVar[list[int]] = []

    def slow_work(self, items: Sequence[Item]) -> SlowWork | None:
        lengths = {len(item.candidate.split()) for item in items} - set(self.learnt)

        def run(progress: Progress, _: object) -> None:
            for length in sorted(lengths):
                self.learnt.append(length)
                progress(1)

        names = frozenset(map(str, lengths))
        return SlowWork("Slow learns", "lengths", names, 1 / 60, run) if names else None

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        lengths = [len(item.candidate.split()) for item in items]
        assert set(lengths) <= set(self.learnt)
        progress(len(items))
        return np.array([[float(length)] for length in lengths])


class Constant(Length):
    """The same score for everything: correlations with it are undefined."""

    name = "constant"
    columns: ClassVar[tuple[str, ...]] = ("constant",)
    titles: ClassVar[Mapping[str, str]] = {"constant": "Constant"}

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        return np.ones((len(items), 1))


class Zigzag(Length):
    """Number of words with the odd ones raised by two, and half the number of words: two other orders of the items."""

    name = "zigzag"
    columns: ClassVar[tuple[str, ...]] = ("zigzag", "steps")
    titles: ClassVar[Mapping[str, str]] = {"zigzag": "Zigzag", "steps": "Steps"}

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        lengths = [len(item.candidate.split()) for item in items]
        return np.array([[n + 2.0 * (n % 2), (n + 1) // 2] for n in lengths])


class NotANumber(Constant):
    """Gives NaN for the third item."""

    name = "nan"
    columns: ClassVar[tuple[str, ...]] = ("nan",)
    titles: ClassVar[Mapping[str, str]] = {"nan": "NaN"}

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        values = np.ones((len(items), 1))
        values[2] = np.nan
        return values


def known(value: T | None) -> T:
    """A value that is there."""
    assert value is not None
    return value


def run(root: DataRoot, **changes: object) -> StudyResult:
    """The study of the length, with changes."""
    return run_plan(plan_study(replace(STUDY, **changes), root), no_progress)  # type: ignore[arg-type]


def write_lengths(path: Path, items: tuple[Item, ...], keep: Callable[[Item], bool] = lambda _: True) -> Path:
    """A file with the number of words of some items."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["image", "caption", "words"])
        writer.writerows(
            (item.image, item.candidate, len(item.candidate.split()))
            for item in {item.key: item for item in items}.values()
            if keep(item)
        )
    return path


def items_of(name: str) -> tuple[Item, ...]:
    """The items of a data set of the sample."""
    dataset = open_dataset(name, find_root("sample"))
    return dataset.load(dataset.protocol().items)[0].items

"""A newcomer's metric that explains itself with every kind of panel, and needs neither features nor weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from capbench.core.explanations import (
    Bars,
    ExplainedCandidate,
    Explanation,
    Matrix,
    RegionMaps,
    Regions,
    Subject,
    Table,
)
from capbench.core.progress import Progress
from capbench.core.records import FloatArray, Item
from capbench.metrics.base import Metric


class Overlap(Metric):
    """Share of the candidate's words that the first reference has."""

    name: ClassVar[str] = "overlap"
    columns: ClassVar[tuple[str, ...]] = ("overlap",)
    titles: ClassVar[Mapping[str, str]] = {"overlap": "Overlap"}
    citation: ClassVar[str] = "of the tests"

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        progress(len(items))
        return np.array([[len(shared(item)) / len(item.candidate.split())] for item in items])

    def explain(self, subject: Subject) -> Explanation:
        boxes = np.array([[0, 0, 0.5, 1], [0.5, 0, 1, 1]])
        values = self.statistics(subject.items, lambda _: None)
        positions = tuple(str(i) for i in range(len(values)))
        return Explanation(
            "Overlap",
            subject.image,
            tuple(map(explained, subject.items, subject.humans)),
            self.signature(),
            Regions(("left half", "right half"), boxes, (1, 1)),
            comparison=(Matrix("Shares", positions, ("overlap",), values),),
            notes=("a note of the metric's",),
        )


def shared(item: Item) -> list[str]:
    return [word for word in item.candidate.split() if word in item.references[0].split()]


def explained(item: Item, human: float | None) -> ExplainedCandidate:
    left, right = tuple(item.candidate.split()), tuple(item.references[0].split())
    alike = np.array([[float(a == b) for b in right] for a in left])
    marked = tuple((int(i), int(j)) for i, j in np.argwhere(alike > 0))
    panels = (
        RegionMaps("Halves", ("halves",), np.array([[0.2, 0.9]])),
        RegionMaps("Words in halves", left, np.tile([0.0, 1.0], (len(left), 1))),
        Matrix("Same words", left, right, alike, marked),
        Bars("shares", left, np.full(len(left), 1 / len(left))),
        Table("Words", ("word", "shared", "number"), tuple((word, str(word in right), 0.25) for word in left)),
    )
    scores = {"overlap": len(shared(item)) / len(left), "shared": float(len(shared(item)))}
    return ExplainedCandidate(item.candidate, item.references, human, scores, panels)


class Silent(Overlap):
    """Offers an explanation in general, and has none for these candidates."""

    name: ClassVar[str] = "silent"

    def explain(self, subject: Subject) -> None:  # type: ignore[override]
        return None

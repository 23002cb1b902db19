"""A newcomer's metric that explains itself with every kind of panel, and needs neither features nor weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from capbench.core.explanations import (
    Bar,
    Bars,
    Chart,
    ExplainedCandidate,
    Explanation,
    Link,
    Matching,
    Matrix,
    Note,
    Panel,
    RegionMap,
    RegionMaps,
    Regions,
    Score,
    Scores,
    Series,
    Subject,
    Table,
    WeightedWords,
)
from capbench.core.progress import Progress
from capbench.core.records import FloatArray, Item
from capbench.metrics.base import Metric


@dataclass(frozen=True)
class Details:
    shared: tuple[str, ...]
    share: float


class Overlap(Metric):
    """Share of the candidate's words that the first reference has."""

    name: ClassVar[str] = "overlap"
    columns: ClassVar[tuple[str, ...]] = ("overlap",)
    titles: ClassVar[Mapping[str, str]] = {"overlap": "Overlap"}
    citation: ClassVar[str] = "of the tests"

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        progress(len(items))
        return np.array([[self._details(item).share] for item in items])

    def explain(self, subject: Subject) -> Explanation:
        boxes = np.array([[0, 0, 0.5, 1], [0.5, 0, 1, 1]])
        candidates = tuple(map(self._candidate, subject.items, subject.humans))
        values = np.array([self._details(item).share for item in subject.items])
        positions = tuple(str(i) for i in range(len(values)))
        return Explanation(
            "Overlap",
            subject.image,
            candidates,
            self.signature(),
            Regions(("left half", "right half"), boxes, (1, 1)),
            opening=(Note("Words that both have."),),
            comparison=(Chart("Shares", positions, (Series("overlap", values),), "candidate"),),
            notes=("a note of the metric's",),
        )

    def _details(self, item: Item) -> Details:
        words, others = item.candidate.split(), set(item.references[0].split())
        shared = tuple(word for word in words if word in others)
        return Details(shared, len(shared) / len(words))

    def _candidate(self, item: Item, human: float | None) -> ExplainedCandidate:
        left, right = tuple(item.candidate.split()), tuple(item.references[0].split())
        alike = np.array([[float(a == b) for b in right] for a in left])
        matches = [(int(i), int(j)) for i, j in np.argwhere(alike > 0)]
        details = self._details(item)
        share = Score("overlap", details.share, (Score("shared", len(details.shared), form=".0f"),))
        panels: tuple[Panel, ...] = (
            Scores("", (share,)),
            WeightedWords("shared words", tuple(zip(left, alike.max(axis=1).tolist(), strict=True)), "reference"),
            RegionMaps("Halves", (RegionMap("Halves", np.array([0.2, 0.9]), (1,)), RegionMap("Bare", None, (0,)))),
            RegionMaps("Words in halves", (RegionMap("word", np.array([0.0, 1.0]), (1,), "right"),), small=True),
            Matching("Words", "candidate", left, "reference", right, tuple(Link(i, j, 0.5) for i, j in matches)),
            Matrix("Same words", left, right, alike, marked=tuple(matches)),
            Bars("shares", tuple(Bar(word, 1 / len(left), "of all") for word in left), "neutral", "share"),
            Table("Words", ("word", "shared"), tuple((word, str(word in right)) for word in left)),
        )
        return ExplainedCandidate(item.candidate, item.references, human, panels, details)


class Silent(Overlap):
    """Offers an explanation in general, and has none for these candidates."""

    name: ClassVar[str] = "silent"

    def explain(self, subject: Subject) -> None:  # type: ignore[override]
        return None

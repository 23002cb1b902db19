"""Explanations of scores: named arrays that metrics return and :mod:`capbench.reports.explain` draws.

A metric offers explanations with a method ``explain(subject: Subject) -> Explanation``. Arrays are float64; one with a
number that is not finite, or whose shape differs from its names, raises MetricError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from capbench.core.errors import MetricError
from capbench.core.records import FloatArray, Item


def letter(number: int) -> str:
    """A name for a candidate, counted from 0: A, B, ... Z, A2, B2, ..."""
    return chr(65 + number % 26) + (str(number // 26 + 1) if number >= 26 else "")


@dataclass(frozen=True)
class Subject:
    """The candidates of one image to explain."""

    image: str  # its id
    items: tuple[Item, ...]  # one or more candidates with their references, if there are any
    humans: tuple[float | None, ...]  # mean human rating of each candidate, None if unknown
    picture: Path | None = None  # the image file, None if it is not available
    # phrases that human raters marked in each candidate as ``extra`` and ``missing``; may be empty
    errors: tuple[Mapping[str, Sequence[str]], ...] = ()


@dataclass(frozen=True, eq=False)
class Regions:
    """Regions of the image."""

    names: tuple[str, ...]  # (n) display names
    boxes: FloatArray | None = None  # (n, 4) x1, y1, x2, y2 in units of ``size``; None if unknown
    # width and height of the image in the units of the boxes: pixels, (1, 1) for fractions, (0, 0) if unknown
    size: tuple[int, int] = (0, 0)


@dataclass(frozen=True, eq=False)
class Bars:
    """Named numbers."""

    title: str  # meaning of the numbers
    rows: tuple[str, ...]  # (r) names
    values: FloatArray  # (r,)


@dataclass(frozen=True, eq=False)
class Matrix:
    """A number for each pair of a row and a column: words and words, scores and candidates."""

    title: str  # meaning of the numbers
    rows: tuple[str, ...]  # (r) names
    columns: tuple[str, ...]  # (c) names
    values: FloatArray  # (r, c)
    marked: tuple[tuple[int, int], ...] = ()  # cells to outline, as (row, column): the match of each word


@dataclass(frozen=True, eq=False)
class RegionMaps:
    """Weights of the explanation's regions, one map per row, on a common scale; drawn as heat maps."""

    title: str  # meaning of the weights
    rows: tuple[str, ...]  # (r) names: the candidate's words, or the compared captions
    values: FloatArray  # (r, n)
    top: int = 1  # number of regions to outline in each map, those with the largest weights

    def best(self, row: int) -> list[int]:
        """The regions to outline, the largest weight first; none if all weights are equal."""
        weights = self.values[row]
        if not len(weights) or weights.max() <= weights.min():
            return []
        best: list[int] = np.argsort(-weights, kind="stable")[: self.top].tolist()
        return best


@dataclass(frozen=True)
class Table:
    """Texts and numbers in rows and columns; folded on a page, omitted in a picture."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str | float, ...], ...]


Panel = RegionMaps | Matrix | Bars | Table


@dataclass(frozen=True, eq=False)
class ExplainedCandidate:
    """Explanation of one candidate's scores."""

    text: str  # the candidate, unchanged
    references: tuple[str, ...]  # its references, unchanged
    human: float | None  # mean human rating, None if unknown
    scores: Mapping[str, float]  # the metric's columns, then the terms from which they are computed
    panels: tuple[Panel, ...] = ()  # named arrays in reading order
    notes: tuple[str, ...] = ()  # remarks for the reader, one sentence each

    def to_dict(self) -> dict[str, Any]:
        """All fields as values for JSON."""
        panels = [
            {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in vars(panel).items()}
            for panel in self.panels
        ]
        return {**vars(self), "scores": dict(self.scores), "panels": panels}


@dataclass(frozen=True, eq=False)
class Explanation:
    """Explanation of a metric's scores for the candidates of one image."""

    title: str  # the metric's display name
    image: str  # its id
    candidates: tuple[ExplainedCandidate, ...]  # in the order of the subject's items
    signature: str  # signature of the metric
    regions: Regions | None = None  # the image's regions that maps refer to, None if the metric has none
    comparison: tuple[Panel, ...] = ()  # arrays on all candidates, shown after them
    notes: tuple[str, ...] = ()  # remarks for the reader, one sentence each

    def __post_init__(self) -> None:
        regions = 0 if self.regions is None else len(self.regions.names)
        for panel in (*(panel for candidate in self.candidates for panel in candidate.panels), *self.comparison):
            if not isinstance(panel, Table):
                further = [regions] if isinstance(panel, RegionMaps) else []
                further += [len(panel.columns)] if isinstance(panel, Matrix) else []
                _check_array(panel.title, panel.values, (len(panel.rows), *further))
        for candidate in self.candidates:
            for name, value in candidate.scores.items():
                _check_array(name, np.asarray(value), ())


def _check_array(name: str, values: FloatArray, shape: tuple[int, ...]) -> None:
    if np.shape(values) != shape:
        message = f"the explanation's '{name}' has values of shape {np.shape(values)} for {shape} names"
        raise MetricError(message, code="wrong-shape", value=np.shape(values))
    if not np.isfinite(values).all():
        message = f"the explanation's '{name}' contains a number that is not finite"
        raise MetricError(message, code="not-a-number", value=name)

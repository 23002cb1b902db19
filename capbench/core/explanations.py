"""Explanations of scores: records that metrics build and :mod:`capbench.reports.explain` draws.

A metric offers explanations with a method ``explain(subject: Subject) -> Explanation``. It returns panels: scores with
their components, weights of regions and words, bars, charts, matrices, matchings, tables and notes. The renderer
determines their appearance on a page, in a picture and on a terminal.

Arrays are float64. A panel with a number that is not finite, or with lists of different lengths, raises MetricError.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from capbench.core.errors import MetricError
from capbench.core.records import FloatArray, Item

Tone = Literal["reference", "candidate", "missing", "neutral"]
"""Owner of a number, which determines its colour; additions of a candidate have the candidate's colour."""
Mark = Literal["bars", "steps", "line", "dots", "thin"]
"""Style of a series; ``dots`` is a line with points, ``thin`` one of many lines in the background."""


def letter(number: int) -> str:
    """A name for a candidate, counted from 0: A, B, ... Z, A2, B2, ...

    >>> letter(1), letter(27)
    ('B', 'B2')
    """
    return chr(65 + number % 26) + (str(number // 26 + 1) if number >= 26 else "")


@dataclass(frozen=True)
class Subject:
    """The candidates of one image to explain.

    Attributes:
        image: its id.
        items: one or more candidates with their references, if there are any.
        humans: mean human rating of each candidate, None if unknown.
        picture: the image file, None if it is not available.
        errors: phrases that human raters marked in each candidate as ``extra`` and ``missing``; may be empty.
    """

    image: str
    items: tuple[Item, ...]
    humans: tuple[float | None, ...]
    picture: Path | None = None
    errors: tuple[Mapping[str, Sequence[str]], ...] = ()

    def __post_init__(self) -> None:
        if not self.items or any(item.image != self.image for item in self.items):
            message = f"there are no captions of the image '{self.image}' to explain, or captions of another image"
            raise MetricError(message, code="missing-caption", value=self.image)
        _check_length("human ratings", len(self.humans), len(self.items))
        if self.errors:
            _check_length("candidates with named errors", len(self.errors), len(self.items))


@dataclass(frozen=True, eq=False)
class Regions:
    """Regions of the image.

    Attributes:
        names: (n) display names.
        boxes: (n, 4) x1, y1, x2, y2 in units of ``size``; None if unknown.
        size: width and height of the image in the units of the boxes: pixels, (1, 1) for fractions, (0, 0) if unknown.
    """

    names: tuple[str, ...]
    boxes: FloatArray | None = None
    size: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        if self.boxes is not None:
            _check_length("boxes", len(self.boxes), len(self.names))


@dataclass(frozen=True)
class Score:
    """A number and its components.

    Attributes:
        name: display name.
        value: finite.
        parts: the numbers from which it is computed.
        form: format specification, as in Python's format strings.
    """

    name: str
    value: float
    parts: tuple[Score, ...] = ()
    form: str = ".4f"

    def __post_init__(self) -> None:
        _finite(self.name, [self.value])

    def __str__(self) -> str:
        return f"{self.name} {self.value:{self.form}}"


@dataclass(frozen=True)
class Scores:
    """A row of scores; ``title`` names what the candidate is compared with, or is ``""``."""

    title: str
    scores: tuple[Score, ...]


@dataclass(frozen=True, eq=False)
class RegionMap:
    """The image overlaid with the weights of its regions.

    Attributes:
        title: meaning of the weights.
        weights: (n), None to show only the image.
        top: regions to outline, the most important first.
        note: one phrase that describes the map.
    """

    title: str
    weights: FloatArray | None = None
    top: tuple[int, ...] = ()
    note: str = ""

    def __post_init__(self) -> None:
        if self.weights is not None:
            _finite(self.title, self.weights)


@dataclass(frozen=True, eq=False)
class RegionMaps:
    """Maps of the explanation's regions on a common scale.

    Attributes:
        title: common title.
        maps: from left to right.
        low: weight without overlay in small maps, and of the darkest colour in others.
        high: weight of the brightest colour.
        small: True for many small maps, one per word, False for a few large ones.
    """

    title: str
    maps: tuple[RegionMap, ...]
    low: float = 0.0
    high: float = 1.0
    small: bool = False

    def __post_init__(self) -> None:
        _finite(self.title, [self.low, self.high])


@dataclass(frozen=True)
class WeightedWords:
    """Words of a text in order, each with a weight from 0 to 1 (values outside are clipped)."""

    title: str
    words: tuple[tuple[str, float], ...]
    tone: Tone = "candidate"

    def __post_init__(self) -> None:
        _finite(self.title, [weight for _, weight in self.words])


@dataclass(frozen=True)
class Bar:
    """One bar: a name, a number, and a short note after it."""

    name: str
    value: float
    note: str = ""


@dataclass(frozen=True)
class Bars:
    """Named numbers, the most important first, with their unit. A bar of 1 fills the width."""

    title: str
    bars: tuple[Bar, ...]
    tone: Tone = "candidate"
    unit: str = ""

    def __post_init__(self) -> None:
        _finite(self.title, [bar.value for bar in self.bars])


@dataclass(frozen=True)
class Link:
    """A line between the two sides of a matching, with a weight from 0 to 1."""

    left: int
    right: int
    weight: float = 1.0


@dataclass(frozen=True)
class Matching:
    """Links between two lists of names.

    Attributes:
        title: name of the matching.
        left_title: heading of the left list.
        left: names on the left.
        right_title: heading of the right list.
        right: names on the right.
        links: by positions in the lists, from 0.
        note: one phrase that describes the matching.
    """

    title: str
    left_title: str
    left: tuple[str, ...]
    right_title: str
    right: tuple[str, ...]
    links: tuple[Link, ...]
    note: str = ""

    def __post_init__(self) -> None:
        _finite(self.title, [link.weight for link in self.links])
        for link in self.links:
            if not (0 <= link.left < len(self.left) and 0 <= link.right < len(self.right)):
                raise MetricError(
                    f"'{self.title}' links positions {link.left} and {link.right}, which do not both exist",
                    code="out-of-range",
                    value=(link.left, link.right),
                )


@dataclass(frozen=True, eq=False)
class Series:
    """One value for each position of a chart; series of the same name have one legend entry."""

    name: str
    values: FloatArray
    mark: Mark = "bars"
    tone: Tone = "candidate"

    def __post_init__(self) -> None:
        _finite(self.name, self.values)


@dataclass(frozen=True, eq=False)
class Chart:
    """Series over common positions.

    Attributes:
        title: content of the chart, with the important sums.
        positions: (n) names.
        series: each with n values; later ones are drawn on top.
        x_label: label of the positions.
        hints: (n) tooltips of the positions, or empty.
    """

    title: str
    positions: tuple[str, ...]
    series: tuple[Series, ...]
    x_label: str = ""
    hints: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for series in self.series:
            _check_length(f"values of '{series.name}'", len(series.values), len(self.positions))
        if self.hints:
            _check_length(f"hints of '{self.title}'", len(self.hints), len(self.positions))


@dataclass(frozen=True, eq=False)
class Matrix:
    """A number for each pair of a row and a column: words and regions, words and words.

    Attributes:
        title: meaning of the numbers.
        rows: (r) names.
        columns: (c) names.
        values: (r, c).
        low: value of the darkest colour.
        high: value of the brightest.
        marked: cells to outline, as (row, column): the match of each word.
    """

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: FloatArray
    low: float = 0.0
    high: float = 1.0
    marked: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        if self.values.shape != (len(self.rows), len(self.columns)):
            raise MetricError(
                f"'{self.title}' has values of shape {self.values.shape} for {len(self.rows)} rows and "
                f"{len(self.columns)} columns",
                code="wrong-shape",
                value=self.values.shape,
            )
        _finite(self.title, self.values)


@dataclass(frozen=True)
class Table:
    """Text in rows and columns, the most important rows first; collapsed on a page, omitted in a picture."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            _check_length(f"cells of '{self.title}'", len(row), len(self.heads))


@dataclass(frozen=True)
class Note:
    """A sentence."""

    text: str


Panel = Scores | RegionMaps | WeightedWords | Bars | Matching | Chart | Matrix | Table | Note


@dataclass(frozen=True, eq=False)
class ExplainedCandidate:
    """Explanation of one candidate's scores.

    Attributes:
        text: the candidate, unchanged.
        references: its references, unchanged.
        human: mean human rating, None if unknown.
        panels: in reading order.
        details: a dataclass of the metric with all numbers at full precision, for ``--json``.
    """

    text: str
    references: tuple[str, ...]
    human: float | None
    panels: tuple[Panel, ...]
    details: object


@dataclass(frozen=True, eq=False)
class Explanation:
    """Explanation of a metric's scores for the candidates of one image.

    Attributes:
        title: the metric's display name.
        image: its id.
        candidates: in the order of the subject's items.
        signature: signature of the metric.
        regions: the image's regions that maps refer to, None if the metric has none.
        opening: panels before the candidates.
        comparison: panels on all candidates, after them.
        notes: remarks for the reader, one sentence each.
    """

    title: str
    image: str
    candidates: tuple[ExplainedCandidate, ...]
    signature: str
    regions: Regions | None = None
    opening: tuple[Panel, ...] = ()
    comparison: tuple[Panel, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        panels = [panel for candidate in self.candidates for panel in candidate.panels]
        for panel in (*self.opening, *panels, *self.comparison):
            for region_map in panel.maps if isinstance(panel, RegionMaps) else ():
                known = 0 if self.regions is None else len(self.regions.names)
                if region_map.weights is not None:
                    _check_length(f"weights of '{region_map.title}'", len(region_map.weights), known)
                if any(not 0 <= region < known for region in region_map.top):
                    message = f"'{region_map.title}' outlines the regions {region_map.top}, but there are {known}"
                    raise MetricError(message, code="out-of-range", value=region_map.top)


def _finite(name: str, values: Iterable[float] | FloatArray) -> None:
    if not np.isfinite(np.asarray(values, dtype=np.float64)).all():
        message = f"the explanation's '{name}' contains a number that is not finite"
        raise MetricError(message, code="not-a-number", value=name)


def _check_length(name: str, length: int, expected: int) -> None:
    if length != expected:
        raise MetricError(f"the explanation has {length} {name} instead of {expected}", code="mismatch", value=length)

"""What a metric can say about why it gave its scores: records that a metric builds and one renderer draws.

A metric offers an explanation by a method ``explain(subject: Subject) -> Explanation``. It fills in panels: scores with
their parts, weights of regions and words, bars, charts, matrices, matchings, tables and notes. How a panel looks is no
matter of the metric: :mod:`capbench.reports.explain` draws all of them, as a page, as a picture, and as lines on a
terminal.

Arrays are float64. A panel that holds a number which is not finite, or lists that do not fit, raises MetricError.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from capbench.core.errors import MetricError
from capbench.core.records import FloatArray, Item

__all__ = [
    "Bar",
    "Bars",
    "Chart",
    "ExplainedCandidate",
    "Explanation",
    "Link",
    "Mark",
    "Matching",
    "Matrix",
    "NamedErrors",
    "Note",
    "Panel",
    "RegionMap",
    "RegionMaps",
    "Regions",
    "Score",
    "Scores",
    "Series",
    "Subject",
    "Table",
    "Tone",
    "WeightedWords",
    "letter",
]

Tone = Literal["reference", "candidate", "missing", "neutral"]
"""Whose a number is, which decides its colour; what a candidate adds has the candidate's."""
Mark = Literal["bars", "steps", "line", "dots", "thin"]
"""How a series is drawn; ``dots`` is a line with its points, ``thin`` one of many lines in the background."""


def letter(number: int) -> str:
    """A name for a candidate, counted from 0: A, B, ... Z, A2, B2, ...

    >>> letter(1), letter(27)
    ('B', 'B2')
    """
    return chr(65 + number % 26) + (str(number // 26 + 1) if number >= 26 else "")


@dataclass(frozen=True)
class NamedErrors:
    """What people name as wrong with a candidate.

    Attributes:
        extra: phrases that say more than there is to see.
        missing: phrases that it lacks.
    """

    extra: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Subject:
    """What is to be explained: candidates of one image.

    Attributes:
        image: its id.
        items: one or more candidates with their references, which may be lacking.
        humans: mean human rating of each, None where it is not known.
        picture: the image's file, None if it is not at hand.
        errors: what people name as wrong with each, for metrics that look for such; none where nobody did.
    """

    image: str
    items: tuple[Item, ...]
    humans: tuple[float | None, ...]
    picture: Path | None = None
    errors: tuple[NamedErrors, ...] = ()

    def __post_init__(self) -> None:
        if not self.items or any(item.image != self.image for item in self.items):
            raise MetricError(f"captions of '{self.image}' are to be explained, and there are none or others'")
        _fit("ratings of people", len(self.humans), len(self.items))
        if self.errors:
            _fit("candidates with named errors", len(self.errors), len(self.items))


@dataclass(frozen=True, eq=False)
class Regions:
    """Regions of the image.

    Attributes:
        names: (n) what to call each.
        boxes: (n, 4) x1, y1, x2, y2 in units of ``size``; None if they are not known.
        size: width and height that boxes are measured in: pixels, (1, 1) for fractions, (0, 0) if it is not known.
    """

    names: tuple[str, ...]
    boxes: FloatArray | None = None
    size: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        if self.boxes is not None:
            _fit("boxes", len(self.boxes), len(self.names))


@dataclass(frozen=True)
class Score:
    """A number and what it is made of.

    Attributes:
        name: as people call it.
        value: finite.
        parts: the numbers that it follows from.
        form: how it is written, as in Python's format strings.
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
    """Scores in a row; ``title`` says against what, ``""`` if there is nothing to say."""

    title: str
    scores: tuple[Score, ...]


@dataclass(frozen=True, eq=False)
class RegionMap:
    """The image under the weights of its regions.

    Attributes:
        title: what the weights are.
        weights: (n), None to show the image alone.
        top: regions to draw a box around, the most important first.
        note: one phrase on what is to be seen.
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
    """Maps on one scale, so that they can be compared; regions are those of the explanation.

    Attributes:
        title: of them all.
        maps: as they stand side by side.
        low: weight that small maps leave bare, and that is darkest in others.
        high: weight of the brightest colour.
        small: many small maps, one a word, rather than a few large ones.
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
    """Words of a text in their order, each with a weight from 0 to 1 (beyond it, the end counts)."""

    title: str
    words: tuple[tuple[str, float], ...]
    tone: Tone = "candidate"

    def __post_init__(self) -> None:
        _finite(self.title, [weight for _, weight in self.words])


@dataclass(frozen=True)
class Bar:
    """One row of bars: a name, a number, and a short note that stands behind it."""

    name: str
    value: float
    note: str = ""


@dataclass(frozen=True)
class Bars:
    """Named numbers, the most important first; ``unit`` says what they measure. A bar of 1 fills the width."""

    title: str
    bars: tuple[Bar, ...]
    tone: Tone = "candidate"
    unit: str = ""

    def __post_init__(self) -> None:
        _finite(self.title, [bar.value for bar in self.bars])


@dataclass(frozen=True)
class Link:
    """A line between two sides of a matching, with a weight from 0 to 1: its strength."""

    left: int
    right: int
    weight: float = 1.0


@dataclass(frozen=True)
class Matching:
    """Two lists of names, and which of one go with which of the other.

    Attributes:
        title: what is matched.
        left_title: whose the names on the left are.
        left: their names.
        right_title: whose the names on the right are.
        right: their names.
        links: by places in the lists, from 0.
        note: one phrase on what is to be seen.
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
                raise MetricError(f"'{self.title}' links {link.left} and {link.right}, which it does not list")


@dataclass(frozen=True, eq=False)
class Series:
    """One value for each position of a chart; series of the same name stand in its key once."""

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
        title: what it shows, with the sums that matter.
        positions: (n) name of each.
        series: each with n values; those drawn last lie on top.
        x_label: what positions are.
        hints: (n) what each position is, for a pointer that rests on it; or none.
    """

    title: str
    positions: tuple[str, ...]
    series: tuple[Series, ...]
    x_label: str = ""
    hints: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for series in self.series:
            _fit(f"values of '{series.name}'", len(series.values), len(self.positions))
        if self.hints:
            _fit(f"hints of '{self.title}'", len(self.hints), len(self.positions))


@dataclass(frozen=True, eq=False)
class Matrix:
    """A number for each pair of a row and a column: words and regions, words and words.

    Attributes:
        title: what the numbers are.
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
                f"{len(self.columns)} columns"
            )
        _finite(self.title, self.values)


@dataclass(frozen=True)
class Table:
    """Text in rows and columns, the most important rows first; a page shows it folded, a picture leaves it out."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            _fit(f"cells of '{self.title}'", len(row), len(self.heads))


@dataclass(frozen=True)
class Note:
    """A sentence."""

    text: str


Panel = Scores | RegionMaps | WeightedWords | Bars | Matching | Chart | Matrix | Table | Note


@dataclass(frozen=True, eq=False)
class ExplainedCandidate:
    """Why one candidate got its scores.

    Attributes:
        text: as given.
        references: as given.
        human: mean human rating, None if it is not known.
        panels: in the order in which they are read.
        details: a dataclass of the metric's own with every number in full, which ``--json`` prints.
    """

    text: str
    references: tuple[str, ...]
    human: float | None
    panels: tuple[Panel, ...]
    details: object


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why a metric gave candidates of one image their scores.

    Attributes:
        title: the metric's name as people write it.
        image: its id.
        candidates: in the order of the subject's items.
        signature: the metric's.
        regions: the image's regions that maps speak of, None if the metric has none.
        opening: panels before the candidates.
        comparison: panels on all candidates, after them.
        notes: what a reader should know, one sentence each.
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
                    _fit(f"weights of '{region_map.title}'", len(region_map.weights), known)
                if any(not 0 <= region < known for region in region_map.top):
                    raise MetricError(f"'{region_map.title}' outlines regions {region_map.top}, of {known}")


def _finite(name: str, values: Iterable[float] | FloatArray) -> None:
    if not np.isfinite(np.asarray(values, dtype=np.float64)).all():
        raise MetricError(f"the explanation's '{name}' holds a number that is not finite")


def _fit(name: str, length: int, expected: int) -> None:
    if length != expected:
        raise MetricError(f"the explanation has {length} {name} for {expected}")

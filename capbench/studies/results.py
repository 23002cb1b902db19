"""Results as data: what a study measured, in a typed schema with a version, readable for good.

``results.json`` holds one :class:`StudyResult`. A reader of a later version must go on reading
files of this one; a test keeps an old file for that.

Version 2 added intervals, tests between metrics and the human ceiling; version 3 labels of metrics, and the published
table with its notes, its rows that none of ours is, and differences that nothing explains. The version of a data set
came later without a new schema version. Version 4 added cells without a value, which say why; before, a row whose
statistic was undefined was an entry of ``missing``, and a group in which it was undefined had no cell. All of them are
optional, so a file of an earlier version is a valid file of a later one; the level of its protocols is added when it is
read.
"""

from __future__ import annotations

import os
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from capbench.core.errors import DataError, StatisticError
from capbench.core.files import read_json
from capbench.core.typed_json import Strict
from capbench.datasets.protocol import Level, with_version
from capbench.studies.published.tables import PublishedInfo

__all__ = [
    "LEFT_OUT",
    "LEFT_OUT_WITH_PARSES",
    "OURS",
    "RESULT_SCHEMA_VERSION",
    "BootstrapInfo",
    "Ceiling",
    "Cell",
    "Comparisons",
    "Missing",
    "PairTest",
    "ProtocolInfo",
    "StudyResult",
    "is_left_out",
    "load_result",
    "missing_word",
]

RESULT_SCHEMA_VERSION = 4
_WITH_LEVELS = 4
"""The first version whose protocols have a ``level``."""
LEFT_OUT = "left out (--without)"
"""The reason of what is missing because the user wants it so."""
LEFT_OUT_WITH_PARSES = f"{LEFT_OUT}: requires the parses of SPICE"
"""The reason of what is missing because it requires the parses of a metric that the user leaves out."""
_UNDEFINED = "undefined under "
"""Beginning of the reason of a missing row whose statistic is undefined, in files of version 3 and before."""
OURS = "ours, after the paper"
"""Stands in the title of a study, and then of each of its tables, whose data takes the place of a paper's own."""
NO_TESTS = ": no tests between metrics: "
"""Stands in a note between the protocol, with its group, and the reason."""


class BootstrapInfo(Strict):
    """How the intervals of a protocol were made.

    Attributes:
        method: ``percentile`` or ``bca``.
        level: nominal coverage.
        unit: what was drawn with replacement.
        units: how many of them there are (in the whole protocol; a group has fewer).
        resamples: number of resamples.
        seed: their seed.
    """

    method: Literal["percentile", "bca"]
    level: float
    unit: Literal["image", "item", "rating"]
    units: int
    resamples: int
    seed: int


class ProtocolInfo(Strict):
    """One protocol of the study.

    Attributes:
        id: ``dataset/items/statistic``.
        dataset: name of the data set.
        dataset_title: its name in tables.
        statistic: short name of the statistic (``τ-c``).
        kind: what ``value`` of its cells is.
        description: the rules in words.
        groups: names of the groups that cells exist for, in order, beside the overall ``""``.
        notes: what was left out, one line each.
        n_items: number of scored items (of one draw).
        n_items_whole: number of items before those without a score in a file were left out (``--allow-missing``); None
            if none were. Numbers of a part of the items are not compared with published ones.
        draws: number of draws of references.
        bootstrap: how the intervals of its cells were made, None if there are none.
        version: version of the data set, which ``id`` leaves out; ``""`` if it has none, and in files from before data
            sets had versions.
        level: what the statistic is computed over: all captions, the captions of each image, or systems.
    """

    id: str
    dataset: str
    dataset_title: str
    statistic: str
    kind: Literal["correlation", "accuracy", "mean"]
    description: str
    groups: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    n_items: int
    n_items_whole: int | None = None
    draws: int = 1
    bootstrap: BootstrapInfo | None = None
    version: str = ""
    level: Level = "captions"

    @property
    def versioned_id(self) -> str:
        """The id as it is printed: with the data set's version."""
        return with_version(self.id, self.version)


class Cell(Strict):
    """One number: one metric column under one protocol, overall (``group`` is ``""``) or in one group.

    A cell has a value, or ``undefined`` gives the reason why it has none.

    Attributes:
        metric: the metric's name.
        label: the request's label; the same for a metric under its own name, and in files of schema 2 and before.
        column: the row's name, unique in the study.
        value: the statistic; accuracies are shares in [0, 1]; the mean over draws if there are several; None if it
            could not be computed.
        undefined: the reason why there is no value, one sentence; ``""`` if there is one.
        placeholder: the short text that tables print in the place of a missing value; ``""`` for ``undefined``.
        sd: sample standard deviation over draws, None for a single one.
        low: lower end of the bootstrap interval of ``value``, None without one.
        high: its upper end.
        n: data points behind it (ratings or pairs; within images captions, over systems systems); the smallest number
            if draws differ.
        p_value: two-sided, of data points that are taken as independent; None where there is none (accuracies, several
            draws) and for unaggregated ratings, of which several are of one caption.
        ties: tied pairs of the metric's scores: among all pairs of data points for correlations, among the judged pairs
            for accuracies.
        chance: accuracy that is reached by chance under the tie rule, the mean over draws if there are several; None
            for other statistics.
        published: the number in the published table, in the unit of ``value``; None if there is none.
        published_printed: the same as it stands in the paper; None in files of version 1 and 2.
        published_digits: decimals that it was printed with.
        published_sd: its printed standard deviation.
        published_note: a remark on the published number (a likely misprint).
        unexplained: True if ours differs from it by more than rounding and draws can do, and nobody knows why.
    """

    protocol: str
    metric: str
    label: str = ""
    column: str
    title: str
    group: str = ""
    value: float | None = None
    undefined: str = ""
    placeholder: str = ""
    sd: float | None = None
    low: float | None = None
    high: float | None = None
    n: int
    p_value: float | None = None
    ties: int | None = None
    chance: float | None = None
    published: float | None = None
    published_printed: str | None = None
    published_digits: int | None = None
    published_sd: float | None = None
    published_note: str | None = None
    unexplained: bool = False

    @model_validator(mode="after")
    def _value_or_reason(self) -> Self:
        if (self.value is None) != bool(self.undefined):
            raise ValueError("a cell has either a value or the reason why it has none ('undefined')")
        return self

    @property
    def number(self) -> float:
        """The value of a cell that has one; raises StatisticError with the reason if it has none."""
        if self.value is None:
            raise StatisticError(f"{self.title} under {self.protocol}: {self.undefined}")
        return self.value

    @property
    def shown_instead(self) -> str:
        """What tables print in the place of a missing value; ``""`` if there is a value."""
        return (self.placeholder or "undefined") if self.value is None else ""


class Ceiling(Strict):
    """How well one more person would agree with people under a protocol: not a metric.

    Attributes:
        protocol: its protocol.
        group: the group, ``""`` for overall.
        value: the statistic, in the unit of the protocol's cells.
        low: lower end of its bootstrap interval, None without one (acc-eq, and in files of version 3 and before where
            the study has none).
        high: its upper end.
        bootstrap: how the interval was made; None without one, and in files of version 3 and before.
        n: data points (ratings or pairs) behind it.
        method: ``leave-one-rater-out`` (every rating beside the mean of the item's other ratings) or ``votes`` (every
            voter beside the majority of the pair's other voters).
    """

    protocol: str
    group: str = ""
    value: float
    low: float | None = None
    high: float | None = None
    bootstrap: BootstrapInfo | None = None
    n: int
    method: Literal["leave-one-rater-out", "votes"]


class PairTest(Strict):
    """The test of one pair of metrics.

    Attributes:
        better: column of the metric with the larger value.
        worse: column of the other one.
        difference: value of ``better`` minus value of ``worse``, ≥ 0.
        low: lower end of the difference's bootstrap interval (percentile), None without a bootstrap.
        high: its upper end.
        p_value: two-sided, not corrected.
        p_adjusted: after the correction for all pairs.
        significant: whether ``p_adjusted`` is at most α.
    """

    better: str
    worse: str
    difference: float
    low: float | None = None
    high: float | None = None
    p_value: float
    p_adjusted: float
    significant: bool


class Comparisons(Strict):
    """Tests between all pairs of metrics under one protocol, overall or in one group.

    Attributes:
        protocol: the protocol.
        group: the group, ``""`` for overall.
        test: the test.
        correction: for the number of pairs.
        alpha: significance level.
        unit: what changes places or is drawn; None for tests from formulas, which take data points as independent.
        units: number of units, or of data points.
        resamples: number of permutations or resamples, None for tests from formulas.
        requested: the number that was asked for, if more were needed for the number of pairs; else None.
        seed: seed of the permutations or resamples, None for tests from formulas.
        level: coverage of the intervals of the differences, None if there are none.
        top: columns of the best metric and of all that are not significantly worse than it, best first.
        ranks: significance clusters: rank by column, from 1, best first.
        pairs: one test for each pair, the best metrics first.
    """

    protocol: str
    group: str = ""
    test: Literal["permutation", "bootstrap", "williams", "steiger", "mcnemar"]
    correction: Literal["holm", "bh", "none"]
    alpha: float
    unit: Literal["image", "item", "rating"] | None
    units: int
    resamples: int | None
    requested: int | None = None
    seed: int | None
    level: float | None
    top: tuple[str, ...]
    ranks: dict[str, int]
    pairs: tuple[PairTest, ...]


def is_left_out(reason: str) -> bool:
    """True if something is missing for a reason because the user wants it so."""
    return reason in (LEFT_OUT, LEFT_OUT_WITH_PARSES)


def missing_word(reason: str) -> str:
    """What stands in a table's cell in the place of a number that is missing for a reason."""
    if is_left_out(reason):
        return "left out"
    return "undefined" if reason.startswith(_UNDEFINED) else "waits"


class Missing(Strict):
    """Something that was asked for and could not be computed.

    Attributes:
        protocol: its protocol, ``""`` for all of them.
        column: the metric's column, ``""`` for all metrics.
        title: the column's title, ``""`` for all metrics.
        reason: what it waits for, one sentence.
        planned: True if this version of capbench does not have the metric at all; False for files that are not here.
        published: numbers of that row as the paper prints them, by ``protocol|group``: in files of version 1 and 2
            alone, since version 3 they stand in ``published_table``.
    """

    protocol: str = ""
    column: str = ""
    title: str = ""
    reason: str
    planned: bool = False
    published: dict[str, str] = Field(default_factory=dict)

    @property
    def left_out(self) -> bool:
        """Whether it is missing because the user wants it so."""
        return is_left_out(self.reason)


class StudyResult(Strict):
    """Everything that one run of a study found.

    Attributes:
        schema_version: version of this schema.
        capbench: version of the program.
        name: the study's name.
        title: the study's title.
        created: UTC time in ISO 8601.
        sample: True if the data was the embedded synthetic sample.
        protocols: in the order of the study.
        columns: titles by name of the row, in the order of the table's rows, those that could not be computed included.
        signatures: one line by metric and protocol's *dataset/items* (scores depend on these alone).
        cells: all numbers, and those that are undefined with the reason.
        ceilings: people's agreement with each other, where raters or votes are known.
        comparisons: tests between metrics, by protocol and group; empty if none were asked for.
        missing: what could not be computed, and why.
        published: citation of the published table, None if there is none.
        published_table: what belongs beside the study of that table; None without one, and in files of version 1 and 2.
        seconds: wall-clock time of scoring by *dataset/items*, of intervals and tests by protocol, and of everything as
            ``total``.
        cached: items whose scores came from the cache, by *dataset/items* and metric as ``dataset/items|metric``.
    """

    schema_version: int = RESULT_SCHEMA_VERSION
    capbench: str
    name: str
    title: str
    created: str
    sample: bool
    protocols: tuple[ProtocolInfo, ...]
    columns: dict[str, str]
    signatures: dict[str, dict[str, str]]
    cells: tuple[Cell, ...]
    ceilings: tuple[Ceiling, ...] = ()
    comparisons: tuple[Comparisons, ...] = ()
    missing: tuple[Missing, ...] = ()
    published: str | None = None
    published_table: PublishedInfo | None = None
    seconds: dict[str, float]
    cached: dict[str, int] = Field(default_factory=dict)

    def cell(self, protocol: str, column: str, group: str = "") -> Cell | None:
        """The cell of a column under a protocol, or None if it could not be computed."""
        return next((c for c in self.cells if (c.protocol, c.column, c.group) == (protocol, column, group)), None)

    def ceiling(self, protocol: str, group: str = "") -> Ceiling | None:
        """People's agreement with each other under a protocol, or None where it is not known."""
        return next((c for c in self.ceilings if (c.protocol, c.group) == (protocol, group)), None)

    def comparison(self, protocol: str, group: str = "") -> Comparisons | None:
        """The tests between metrics under a protocol, or None if there are none."""
        return next((c for c in self.comparisons if (c.protocol, c.group) == (protocol, group)), None)

    @property
    def undefined(self) -> tuple[Cell, ...]:
        """The cells without a value."""
        return tuple(cell for cell in self.cells if cell.value is None)

    def undefined_lines(self) -> list[str]:
        """The cells without a value in words, one line for each reason, with all places that it is about."""
        places: dict[tuple[str, str], list[str]] = {}
        for cell in self.undefined:
            place = f"{cell.title} under {cell.protocol}{f', {cell.group}' if cell.group else ''}"
            places.setdefault((cell.shown_instead, cell.undefined), []).append(place)
        return [f"{instead}: {'; '.join(names)}: {reason}" for (instead, reason), names in places.items()]

    @property
    def stand_in(self) -> bool:
        """Whether it is "ours, after the paper": of data that takes the place of what was not published."""
        return f"({OURS})" in self.title

    def reasons(self) -> dict[str, list[str]]:
        """What is missing, each reason once: reason → titles of rows, or protocols."""
        by_reason: dict[str, list[str]] = {}
        for entry in self.missing:
            names = by_reason.setdefault(entry.reason, [])
            name = entry.title or entry.protocol or "all metrics"
            names += [] if name in names else [name]
        return by_reason


def _add_levels(raw: dict[str, Any]) -> None:
    """Add to protocols of an older version their level, which only the label of the statistic gives there."""
    protocols = raw.get("protocols")
    for info in protocols if isinstance(protocols, list) else ():
        if isinstance(info, dict) and isinstance(info.get("statistic"), str):
            level = {"within-image": "images", "system": "systems"}.get(info["statistic"].partition(" ")[0])
            info |= {"level": level} if level else {}


_WRITES = "Give results.json, which 'capbench correlate ... --out DIR' writes, or its folder"


def load_result(path: str | os.PathLike[str]) -> StudyResult:
    """Read a ``results.json`` of this or an earlier version.

    Raises:
        DataError: it is no result file, or of a later version than this one reads.
    """
    raw = read_json(path)
    version = raw.get("schema_version") if isinstance(raw, dict) else None
    if not isinstance(version, int) or version < 1:
        raise DataError("is no result file of capbench ('schema_version' is missing)", path=path, hint=_WRITES)
    if version > RESULT_SCHEMA_VERSION:
        raise DataError(
            f"has result schema {version}; this version reads up to {RESULT_SCHEMA_VERSION}",
            path=path,
            hint="Update capbench",
        )
    if version < _WITH_LEVELS:
        _add_levels(raw)
    try:
        return StudyResult.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(key) for key in first["loc"])
        problems = f"{where}: {first['msg']} ({error.error_count()} problems)"
        raise DataError(problems, path=path, hint="Make the file again with the command that wrote it") from error

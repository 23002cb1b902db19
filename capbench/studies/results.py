"""Results of a study: a typed schema with a version; ``results.json`` contains one :class:`StudyResult`."""

from __future__ import annotations

import dataclasses
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)
from typing_extensions import Unpack

from capbench.core.arguments import Unit
from capbench.core.errors import StatisticError, UsageError, suggest
from capbench.core.training_record import TrainingOverlap
from capbench.core.typed_json import Strict, read_versioned
from capbench.datasets.protocol import Level, with_version
from capbench.stats.pairs import Pair, Tests
from capbench.studies.published.tables import PublishedInfo, given_parts
from capbench.studies.study import BootstrapSettings, CurveSettings

if TYPE_CHECKING:
    import pandas as pd

RESULT_SCHEMA_VERSION = 4
LEFT_OUT = "left out (--without)"  # reason of rows that the user leaves out
LEFT_OUT_WITH_PARSES = f"{LEFT_OUT}: requires the parses of SPICE"  # that of rows which require parses, without SPICE
OURS = "ours, after the paper"  # in the title of a study, and of its tables, whose data is a substitute for a paper's
OTHER_NUMBERS = ", with other numbers"  # end of a note on the protocol of other papers
NO_TESTS = ": no tests between metrics: "  # in a note, between the protocol with its group and the reason
ON_SAMPLE = ", on the embedded synthetic sample"
# Newer than schema 4: written only if they have content, since earlier programs reject unknown keys.
_OMITTED_IF_EMPTY = ("answers", "curves", "file_columns", "points", "rankings", "sentinels", "training")


class _Growing(Strict):
    @model_serializer(mode="wrap")
    def _without_empty(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {key: value for key, value in dump(self).items() if value or key not in _OMITTED_IF_EMPTY}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BootstrapInfo(BootstrapSettings):
    """Settings of the intervals of a protocol."""

    units: int  # number of units (in the whole protocol; a group has fewer)


class ProtocolInfo(_Growing):
    """One protocol of the study."""

    id: str  # dataset/items/statistic
    dataset: str
    dataset_title: str  # its name in tables
    statistic: str  # short name of the statistic (τ-c)
    kind: Literal["correlation", "accuracy", "mean"]  # kind of value of its cells
    description: str  # the rules in words
    groups: tuple[str, ...] = ()  # names of the groups with cells, in order, without the overall ""
    notes: tuple[str, ...] = ()  # notes on what was left out, one line each
    n_items: int  # number of scored items (of one draw)
    n_items_whole: int | None = None  # before items without a score in a file were left out (--allow-missing)
    draws: int = 1
    bootstrap: BootstrapInfo | None = None  # settings of the intervals of its cells, None without intervals
    version: str = ""  # of the data set, which id leaves out
    level: Level = "captions"  # what the statistic is computed over
    file_columns: dict[str, str] = Field(default_factory=dict)  # field of each column of a user's file, "" if not read

    @property
    def versioned_id(self) -> str:
        """The id as printed: with the data set's version."""
        return with_version(self.id, self.version)


class Cell(Strict):
    """One number: one metric column under one protocol, overall (``group`` is ``""``) or in one group."""

    protocol: str
    metric: str
    label: str = ""  # the request's label; the same for a metric under its own name
    column: str  # the row's name, unique in the study
    title: str
    group: str = ""
    value: float | None = None  # the mean over draws if there are several; accuracies are shares in [0, 1]
    undefined: str = ""  # the reason why there is no value, one sentence; "" with a value
    placeholder: str = ""  # what tables print in the place of a missing value; "" for undefined
    sd: float | None = None  # sample standard deviation over draws, None for a single one
    low: float | None = None  # lower end of the bootstrap interval of value, None without one
    high: float | None = None
    n: int  # data points (ratings or pairs; captions within images; systems over systems), the fewest of any draw
    p_value: float | None = None  # two-sided; None for accuracies, unaggregated ratings and several draws
    ties: int | None = None  # tied pairs of the metric's scores, for accuracies among the judged pairs
    chance: float | None = None  # accuracy reached by chance under the tie rule; None for other statistics
    published: float | None = None  # the number in the published table, in the unit of value
    published_printed: str | None = None  # the same number as printed
    published_digits: int | None = None  # decimals that it was printed with
    published_sd: float | None = None
    published_note: str | None = None  # a note on the published number (such as the reason of a difference)
    # True if it differs from the published number by more than rounding and draws explain, without a known reason
    unexplained: bool = False

    @model_validator(mode="after")
    def _value_or_reason(self) -> Self:
        if (self.value is None) != bool(self.undefined):
            raise ValueError("a cell has either a value or the reason why it has none ('undefined')")
        return self

    @property
    def number(self) -> float:
        """The value of the cell. Raises StatisticError with the reason if it has none."""
        if self.value is None:
            raise StatisticError(f"{self.title} under {self.protocol}: {self.undefined}", value=self.column)
        return self.value

    @property
    def shown_instead(self) -> str:
        """Text in tables in the place of a missing value; ``""`` if there is a value."""
        return (self.placeholder or "undefined") if self.value is None else ""


class Point(Cell):
    """A number of a curve: with some references, or in a layer of a network."""

    at: int  # number of references of each candidate, from 0, or of the layer, from 1
    values: tuple[float, ...] = ()  # of each draw of references; a single one without draws (no references, or all)


class Ranked(Strict):
    """The rank of a metric under one of all protocols of a data set."""

    protocol: str
    # True for the protocol that the others are compared with: the data set's default one, or else the first available
    default: bool
    column: str
    value: float
    rank: int  # from 1, the largest value first; equal values share the better rank
    move: int | None  # ranks gained (positive) or lost (negative) compared with the default protocol
    tau: float | None  # Kendall's tau-b between the rankings of this and the default protocol; None if undefined
    used_by: tuple[str, ...] = ()  # names of published tables that use this protocol (tiger-table1)


class Number(Strict):
    """A number: a correlation in [-1, 1], or an accuracy as a share."""

    value: float
    low: float | None = None  # lower end of its bootstrap interval, None without one
    high: float | None = None
    n: int  # data points (ratings or pairs) behind it


_FAMILY = ("protocol", "group", "test", "correction", "alpha", "unit", "units", "resamples", "seed", "level")
PAIR_COLUMNS = (*_FAMILY[:2], *(field.name for field in dataclasses.fields(Pair)), *_FAMILY[2:])
"""The columns of tests in CSV files: the place, the fields of a pair, and how it was tested."""
NUMBER = {*Number.model_fields}
"""The fields of a number, to copy those of a cell or a ceiling."""


class Ceiling(Number):
    """Agreement of one more rater with the other raters under a protocol: not a metric."""

    protocol: str
    group: str = ""
    bootstrap: BootstrapInfo | None = None  # settings of the interval; None without one (acc-eq)
    # Every rating against the mean of the item's others, or every voter against the majority of the pair's others.
    method: Literal["leave-one-rater-out", "votes"]
    pairwise_tau_b: float | None = None  # mean over all pairs of raters; None unless every item has the same raters
    raters: int | None = None  # number of raters of each item behind it


class Needed(Strict):
    """Amount of data that distinguishes two metrics (power analysis)."""

    better: str  # column of the metric with the larger value
    worse: str  # column of the other one
    difference: float  # their difference, which is to be detected
    unit: Unit
    units: int
    needed: int
    power: float  # probability with which the test then finds the difference
    alpha: float  # significance level, two-sided


class Answer(Strict):
    """The metric that fits a user's judgements best under one protocol."""

    protocol: str
    text: tuple[str, ...]  # the answer in words, one sentence for each entry
    ranking: tuple[str, ...]  # columns, best first
    groups: tuple[tuple[str, ...], ...] = ()  # columns by significance cluster, the best first; empty without tests
    ties: tuple[str, ...] = ()  # columns that cannot be distinguished from the best one, best first
    needed: Needed | None = None  # to distinguish the best from the next metric that neither is computed from the other
    reasons: dict[str, str] = Field(default_factory=dict)  # of what is missing: intervals, groups, needed


class Sentinels(Strict):
    """Agreement of the sentinels with human judgements under one protocol; sentinels are not metrics."""

    protocol: str
    cells: tuple[Cell, ...]  # metric, column and title are the sentinel's name
    # Tests of the metrics, overall and by group: each ("better", whatever the sign) against the sentinel ("worse") with
    # the largest one-sided p-value; ``top`` are those that are significantly better than every sentinel.
    tests: tuple[Tests, ...] = ()
    inputs: dict[str, str] = Field(default_factory=dict)  # what each sentinel is computed from, by name
    signatures: dict[str, str] = Field(default_factory=dict)  # by name, with the checksum of the judgements
    notes: tuple[str, ...] = ()  # the reason why there are no tests, one line for each group
    raters: tuple[Any, ...] = Field(default=(), exclude=True)  # of earlier versions

    @field_validator("tests", mode="before")
    @classmethod
    def _of_0_2(cls, given: Any, known: ValidationInfo) -> Any:
        """Tests as files of version 0.2 have them."""
        names = {"column": "better", "sentinel": "worse", "better": "significant"}
        made = []
        for tests in given:
            if isinstance(tests, dict) and "permutations" in tests:
                pairs = [{names.get(key, key): value for key, value in test.items()} for test in tests["tests"]]
                same = {key: tests[key] for key in ("group", "correction", "alpha", "unit", "units", "seed")}
                top = [pair["better"] for pair in pairs if pair["significant"]]
                tests = {**same, "test": "permutation", "resamples": tests["permutations"], "level": None, "ranks": {}}
                tests |= {"protocol": known.data["protocol"], "top": top, "pairs": pairs}
            made.append(tests)
        return made

    def tests_of(self, group: str = "") -> Tests | None:
        """The tests of a group, or None if there are none."""
        return next((tests for tests in self.tests if tests.group == group), None)


def is_left_out(reason: str) -> bool:
    """True if the user left it out."""
    return reason.startswith(LEFT_OUT)


class TableChoices(TypedDict, total=False):
    """Choices for the tables of a result."""

    digits: int | None  # after the decimal point; by default one of numbers × 100, else four
    percent: bool | None  # whether numbers are multiplied by 100; by default correlations and accuracies
    bold: bool  # emphasise the best value of each column
    daggers: bool  # mark metrics that are not significantly worse than the best, or not better than sentinels
    intervals: bool
    by_source: bool  # with the tables by group, of a study


class Shown:
    """A result with tables."""

    def _document(self, **choices: Unpack[TableChoices]) -> Any:  # a document of reports
        raise NotImplementedError

    def to_latex(self, **choices: Unpack[TableChoices]) -> str:
        """The tables as LaTeX, for the packages booktabs and graphicx."""
        from capbench.reports.markup import latex

        return latex(self._document(**choices))

    def to_markdown(self, **choices: Unpack[TableChoices]) -> str:
        """The tables as Markdown."""
        from capbench.reports.markup import markdown

        return markdown(self._document(**choices))


class Missing(Strict):
    """A requested row or protocol that could not be computed."""

    protocol: str = ""  # its protocol, "" for all of them
    column: str = ""  # the metric's column, "" for all metrics
    title: str = ""  # the column's title, "" for all metrics
    reason: str
    planned: bool = False  # True if a requirement of the metric is missing, whatever the data; False for missing files
    published: dict[str, str] = Field(default_factory=dict)  # always empty; files of version 0.2 have this key


class StudyResult(Shown, _Growing):
    """Result of a study, as :func:`capbench.correlate` and :func:`capbench.compare` return and print it."""

    schema_version: int = RESULT_SCHEMA_VERSION
    capbench: str  # version of the program
    name: str
    title: str
    created: str  # UTC time in ISO 8601
    sample: bool  # True if the data was the embedded synthetic sample
    protocols: tuple[ProtocolInfo, ...]  # in the order of the study
    columns: dict[str, str]  # titles by name of the row, in the table's order; also those that could not be computed
    signatures: dict[str, dict[str, str]]  # by dataset/items, on which scores depend, and metric
    cells: tuple[Cell, ...]  # all numbers, and undefined ones with the reason
    ceilings: tuple[Ceiling, ...] = ()  # agreement between human raters, where raters or votes are known
    comparisons: tuple[Tests, ...] = ()  # tests between metrics, by protocol and group; empty if none were requested
    missing: tuple[Missing, ...] = ()  # rows and protocols that could not be computed, with the reason
    published: str | None = None  # citation of the published table, None if there is none
    published_table: PublishedInfo | None = None  # the part of that table that corresponds to the study
    seconds: dict[str, float] = Field(default_factory=dict)  # wall-clock time, ``total``
    cached: dict[str, int] = Field(default_factory=dict)  # items with scores from the cache, by dataset/items|metric
    answers: tuple[Answer, ...] = ()  # the best metric for each of the user's data sets, in a study without a file
    practices: tuple[Any, ...] = Field(default=(), exclude=True)  # of earlier versions
    sentinels: tuple[Sentinels, ...] = ()  # agreement of the sentinels by protocol; empty if none were requested
    training: dict[str, tuple[TrainingOverlap, ...]] = Field(default_factory=dict)  # by dataset/items
    curves: CurveSettings | None = None  # of the points if they are over the number of references
    rankings: tuple[Ranked, ...] = ()  # under all protocols of the data sets, by data set and protocol
    points: tuple[Point, ...] = ()  # over the number of references or the layer, by protocol and column

    def value(self, column: str, protocol: str | None = None, group: str = "") -> float:
        """One number: that of a row (``cider``) under a protocol, which is optional if there is only one."""
        ids = [info.id for info in self.protocols]
        if protocol is None and len(ids) != 1:
            hint = f"Name one: {', '.join(ids)}"
            raise UsageError(f"the result has {len(ids)} protocols", code="ambiguous", hint=hint)
        protocol = protocol or ids[0]
        cell = self.cell(protocol, column, group)
        if cell is None:
            known = [c.column for c in self.cells if (c.protocol, c.group) == (protocol, group)]
            reason = next((f": {m.reason}" for m in self.missing if m.column == column), "")
            message = f"'{column}' has no value under {protocol}{f', {group}' if group else ''}{reason}"
            raise UsageError(message, code="unknown-name", value=column, hint=suggest(str(column), known))
        return cell.number

    def rows(self) -> list[dict[str, Any]]:
        """One record for each cell: its fields, the ``difference`` from the paper, ``rank`` and ``top`` from tests,
        whether the published number is that of another model (``own_model``), and with sentinels ``beats_sentinels``.
        """
        return [self._row(cell) for cell in self.cells]

    def _row(self, cell: Cell) -> dict[str, Any]:
        tests = self.comparison(cell.protocol, cell.group)
        rank = None if tests is None else tests.ranks.get(cell.column)
        given = given_parts(self.signatures, cell.label or cell.metric, self.published_table)
        row = {
            **cell.model_dump(),
            "difference": None if cell.published is None or cell.value is None else cell.value - cell.published,
            "rank": rank,
            "top": None if tests is None or rank is None else cell.column in tests.top,
            "own_model": cell.published is not None and bool(given),
        }
        if self.sentinels:
            sentinels = self.sentinels_of(cell.protocol)
            against = None if sentinels is None else sentinels.tests_of(cell.group)
            known = {} if against is None else {pair.better: pair.significant for pair in against.pairs}
            row["beats_sentinels"] = known.get(cell.column)
        return row

    def to_frame(self) -> pd.DataFrame:
        """The :meth:`rows` as a data frame, with fractions in full."""
        import pandas as pd

        names = [*Cell.model_fields, "difference", "rank", "top", "own_model"]
        names += ["beats_sentinels"] if self.sentinels else []
        return pd.DataFrame(self.rows(), columns=names)

    def pairs_to_frame(self) -> pd.DataFrame:
        """A row for each test of two metrics; none without ``compare``."""
        import pandas as pd

        return pd.DataFrame(self.pairs(), columns=PAIR_COLUMNS)

    def pairs(self) -> list[dict[str, Any]]:
        """One record for each test of two metrics, with :data:`PAIR_COLUMNS`."""
        how = [(tests, {name: getattr(tests, name) for name in _FAMILY}) for tests in self.comparisons]
        return [{**shared, **vars(pair)} for tests, shared in how for pair in tests.pairs]

    def write(self, folder: str | os.PathLike[str], *, by_source: bool = False) -> list[Path]:
        """Write CSV, JSON, Markdown and LaTeX files, as ``capbench correlate --out`` does, and return them."""
        from capbench.reports.markup import write_result

        return write_result(self, Path(folder), by_source=by_source)

    def _document(self, **choices: Unpack[TableChoices]) -> Any:
        from capbench.reports.table import TableStyle
        from capbench.reports.tables import study_document

        style = dict[str, Any](choices)
        return study_document(self, by_source=style.pop("by_source", False), style=TableStyle(**style))

    def cite(self) -> str:
        """A description for a paper, and BibTeX entries, as ``capbench correlate --cite`` prints."""
        from capbench.reports.cite import cite_study

        return cite_study(self)

    def __repr__(self) -> str:
        where = ", ".join(info.id for info in self.protocols) or "nothing"
        missing = len(self.missing) + len(self.undefined)
        listed = ", ".join(dict.fromkeys(cell.column for cell in self.cells if cell.value is not None)) or "no numbers"
        waiting = f", {missing} not computed" if missing else ""
        return f"StudyResult({where}: {listed}{waiting}{ON_SAMPLE if self.sample else ''})"

    def __str__(self) -> str:
        from capbench.reports.tables import study_document
        from capbench.reports.terminal import print_document, printed

        return printed(partial(print_document, study_document(self), details=True), sample=self.sample)

    def _repr_html_(self) -> str:
        from capbench.reports.markup import html
        from capbench.reports.tables import study_document

        return html(study_document(self))

    def cell(self, protocol: str, column: str, group: str = "") -> Cell | None:
        """The cell of a column under a protocol, or None if it could not be computed."""
        return next((c for c in self.cells if (c.protocol, c.column, c.group) == (protocol, column, group)), None)

    def ceiling(self, protocol: str, group: str = "") -> Ceiling | None:
        """Agreement between human raters under a protocol, or None if it is unknown."""
        return next((c for c in self.ceilings if (c.protocol, c.group) == (protocol, group)), None)

    def comparison(self, protocol: str, group: str = "") -> Tests | None:
        """The tests between metrics under a protocol, or None if there are none."""
        return next((c for c in self.comparisons if (c.protocol, c.group) == (protocol, group)), None)

    def sentinels_of(self, protocol: str) -> Sentinels | None:
        """The sentinels under a protocol, or None if there are none."""
        return next((entry for entry in self.sentinels if entry.protocol == protocol), None)

    def sentinel_values(self, protocol: str, group: str = "") -> dict[str, float]:
        """The defined values of the sentinels by name."""
        sentinels = self.sentinels_of(protocol)
        cells = () if sentinels is None else sentinels.cells
        return {cell.column: cell.value for cell in cells if cell.group == group and cell.value is not None}

    def no_better(self, protocol: str, group: str = "") -> frozenset[str]:
        """Columns of the metrics that are not significantly better than every sentinel."""
        sentinels = self.sentinels_of(protocol)
        tests = None if sentinels is None else sentinels.tests_of(group)
        return frozenset(pair.better for pair in tests.pairs if not pair.significant) if tests else frozenset()

    def has_read(self, protocol: str, label: str, group: str = "") -> bool:
        """True if a metric's training has read captions, photographs or judgements of a protocol's items."""
        overlaps = self.training.get(protocol.rpartition("/")[0], ())
        read = {overlap.group: overlap.has_read for overlap in overlaps if overlap.label == label}
        return read.get(group, read.get("", False))

    def answer(self, protocol: str) -> Answer | None:
        """The best metric for a user's data set under a protocol, or None for published data sets."""
        return next((answer for answer in self.answers if answer.protocol == protocol), None)

    def curve(self, protocol: str, group: str = "") -> tuple[Point, ...]:
        """The points under a protocol, overall or in a group."""
        return tuple(point for point in self.points if (point.protocol, point.group) == (protocol, group))

    @property
    def undefined(self) -> tuple[Cell, ...]:
        """The cells without a value."""
        return tuple(cell for cell in self.cells if cell.value is None)

    def undefined_lines(self) -> list[str]:
        """The cells without a value in words, one line for each reason, with all of its places."""
        places: dict[tuple[str, str], list[str]] = {}
        for cell in self.undefined:
            place = f"{cell.title} under {cell.protocol}{f', {cell.group}' if cell.group else ''}"
            places.setdefault((cell.shown_instead, cell.undefined), []).append(place)
        return [f"{instead}: {'; '.join(names)}: {reason}" for (instead, reason), names in places.items()]

    @property
    def stand_in(self) -> bool:
        """True for a study "ours, after the paper", whose data is a substitute for unpublished data."""
        return f"({OURS})" in self.title

    def reasons(self) -> dict[str, list[str]]:
        """Missing rows or protocols by reason: reason → titles of rows, or protocols."""
        by_reason: dict[str, list[str]] = {}
        for entry in self.missing:
            names = by_reason.setdefault(entry.reason, [])
            name = entry.title or entry.protocol or "all metrics"
            names += [] if name in names else [name]
        return by_reason


def load_result(path: str | os.PathLike[str]) -> StudyResult:
    """Read a ``results.json``. Raises DataError for another format or schema."""
    hint = "Pass results.json, which 'capbench correlate ... --out DIR' writes, or its folder"
    return read_versioned(StudyResult, path, RESULT_SCHEMA_VERSION, "a result file of capbench", hint)

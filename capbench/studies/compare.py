"""Compares metrics under one protocol: intervals, tests between all pairs, and power analysis of a pair."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from capbench import __version__
from capbench.core.errors import ProtocolError, UsageError
from capbench.core.records import FloatArray, Judgements
from capbench.core.training_record import TrainingOverlap
from capbench.datasets.base import Dataset
from capbench.datasets.protocol import Protocol
from capbench.metrics.metric_request import MetricRequest, Row
from capbench.metrics.needs import Resources
from capbench.stats.agreement import Accuracies, Agreement
from capbench.stats.intervals import Interval, bootstrap_intervals, draw_bootstrap
from capbench.stats.pairs import Correction, Test, Tests, Unit
from capbench.stats.power import Power, power
from capbench.stats.significance import RESAMPLES
from capbench.studies import evaluate as evaluation
from capbench.studies.evaluate import agreement, check_defined, evaluate, photograph_note, unscored_cells
from capbench.studies.judged import Incomplete, ProgressFactory, Scored, judge, no_progress
from capbench.studies.results import (
    BootstrapInfo,
    Cell,
    ProtocolInfo,
    Sentinels,
    SentinelTest,
    StudyResult,
)
from capbench.studies.sentinels import assess_sentinels
from capbench.studies.study import BootstrapSettings, TestSettings
from capbench.studies.uncertainty import compare_pairs


@dataclass(frozen=True, kw_only=True)
class ComparedTests(Tests):
    """Tests between metrics, by title, with the statistic's name and its values, best first."""

    statistic: str
    values: dict[str, float]


@dataclass(frozen=True)
class MetricComparison:
    """Result of :func:`compare_metrics`.

    Attributes:
        protocol: id of the protocol.
        n: data points (ratings or pairs; captions within images; systems over systems).
        intervals: bootstrap interval of each metric, by title.
        table: the tests, with metrics by title.
        signatures: one line by label.
        sample: True if the data was the embedded synthetic sample.
        notes: notes on the data set's items, one line each.
        version: version of the data set, which ``protocol`` leaves out; ``""`` if it has none.
        incomplete: columns that were left out, by title with the reason: incomplete score files.
        file_columns: for a user's file: the field that each column was read as, ``""`` for columns that are not read.
        sentinels: agreement of the sentinels, and tests of the metrics against them, with metrics by title; None if
            they were not requested.
        training: overlap of the judged items with the training data of metrics with trained files.
        read: titles of the metrics whose training has read the captions, photographs or judgements of the items.
    """

    protocol: str
    n: int
    intervals: dict[str, Interval]
    table: ComparedTests
    signatures: dict[str, str]
    sample: bool = False
    notes: tuple[str, ...] = ()
    version: str = ""
    incomplete: dict[str, Incomplete] = field(default_factory=dict)
    file_columns: dict[str, str] = field(default_factory=dict)
    sentinels: Sentinels | None = None
    training: tuple[TrainingOverlap, ...] = ()
    read: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Plain values for JSON; those in ``optional`` only if there are any."""
        optional = ("file_columns", "sentinels", "training", "read")
        values = asdict(replace(self, sentinels=None))
        values["sentinels"] = None if self.sentinels is None else self.sentinels.model_dump(mode="json")
        return {key: value for key, value in values.items() if value or key not in optional}


def compare_metrics(
    dataset: Dataset,
    protocol: Protocol,
    requests: Sequence[MetricRequest],
    *,
    test: Test = "permutation",
    correction: Correction = "holm",
    resamples: int | None = None,
    seed: int = 0,
    unit: Unit = "image",
    resources: Resources | None = None,
    cache: bool = True,
    progress: ProgressFactory = no_progress,
) -> MetricComparison:
    """Score metrics on a protocol, with bootstrap intervals and tests between them.

    Args:
        dataset: the data set.
        protocol: one of its protocols, with a correlation or an accuracy as its statistic.
        requests: the metrics; every requested column is compared.
        test: see :func:`capbench.stats.significance.compare`.
        correction: correction for the number of pairs.
        resamples: bootstrap resamples, and permutations; None for 1,000 and 10,000. More permutations are drawn if the
            number of metrics requires them, see :func:`capbench.stats.significance.permutations_to_use`.
        seed: seed of both.
        unit: resampled unit.
        resources: features, weights and images for the metrics.
        cache: True to use the score cache.
        progress: makes progress bars.

    Raises:
        ProtocolError: the protocol's statistic is a plain mean.
        StatisticError: the test does not apply, or a statistic is undefined.
        DataError, MetricError, …: loading or scoring failed.
    """
    scored = score_all(dataset, protocol, requests, resources, cache=cache, progress=progress)
    rows = [row for request in requests for row in request.rows]
    settings = TestSettings(test, correction, resamples=resamples, seed=seed, unit=unit)
    return compare_scored(protocol, scored, rows, settings)


def score_all(
    dataset: Dataset,
    protocol: Protocol,
    requests: Sequence[MetricRequest],
    resources: Resources | None = None,
    *,
    cache: bool = True,
    progress: ProgressFactory = no_progress,
    check: Callable[[Judgements], None] | None = None,
) -> Scored:
    """Score a protocol's items with metrics that are all required, except columns of incomplete score files.

    ``check`` is called with the judgements of the first draw before scoring, and may raise.

    Raises:
        ProtocolError: the protocol's statistic is a plain mean.
        DataError, MetricError, …: loading or scoring failed.
    """
    refuse_means(protocol)
    judged = judge(dataset, protocol.items, requests, resources, cache=cache).require_all()
    if check is not None:
        check(judged.draws[0])
    return judged.score(progress).require_all()


def refuse_means(protocol: Protocol) -> None:
    """Raise ProtocolError if a protocol's statistic is a plain mean."""
    if protocol.statistic.kind == "mean":
        raise ProtocolError(
            f"{protocol} has no human judgements to compare metrics on", code="unsupported", value=str(protocol)
        )


def compare_scored(
    protocol: Protocol,
    scored: Scored,
    rows: Sequence[Row],
    settings: TestSettings,
    *,
    bootstrap: int | None = None,
    sentinels: bool = False,
) -> MetricComparison:
    """Bootstrap intervals and tests from existing scores.

    Args:
        protocol: one of the data set's protocols.
        scored: scores that include all rows.
        rows: the columns to compare; columns of incomplete score files are left out, and named.
        settings: settings of the tests; the intervals have the same unit and seed, and the same number of resamples
            if the settings name one.
        bootstrap: number of resamples of the intervals, if it differs from that of the settings.
        sentinels: True for the agreement of sentinels, and tests of the metrics against them.

    Raises:
        DataError: fewer than two rows remain without the columns of incomplete score files.
        StatisticError: the test does not apply, or a statistic is undefined.
    """
    compared = _compared(protocol, scored, scored.complete(rows, at_least=2), settings.unit)
    unit, seed, resamples = settings.unit, settings.seed, bootstrap or settings.resamples or RESAMPLES
    sample = draw_bootstrap(compared.data, resamples=resamples, seed=seed, unit=unit)
    tests = compare_pairs(compared.data, settings, sample=sample)
    # The values are computed from the same scores by the same code as in 'correlate'.
    values = {title: compared.values[title] for title in tests.ranks}
    intervals = {
        title: replace(interval, value=compared.values[title])
        for title, interval in bootstrap_intervals(compared.data, sample).items()
    }
    of_sentinels = None
    if sentinels:
        of_sentinels = assess_sentinels(
            protocol,
            scored.draws,
            compared.scores,
            compared.cells,
            bootstrap=BootstrapSettings(resamples=resamples, unit=unit, seed=seed),
            tests=replace(settings, resamples=tests.resamples),
        )
    return MetricComparison(
        protocol=str(protocol),
        n=compared.n,
        intervals=intervals,
        table=ComparedTests(**vars(tests), statistic=compared.data.label, values=values),
        signatures=compared.signatures,
        notes=compared.notes,
        version=protocol.version,
        incomplete=scored.incomplete(rows),
        file_columns=dict(scored.dataset.file_columns),
        sentinels=of_sentinels,
        training=scored.training,
        read=_read(scored.training, rows),
    )


def _read(training: Sequence[TrainingOverlap], rows: Sequence[Row]) -> tuple[str, ...]:
    """Titles of the rows whose metric has read judged captions."""
    labels = {overlap.label for overlap in training if overlap.has_read and not overlap.group}
    return tuple(row.title for row in rows if row.key.label in labels)


@dataclass(frozen=True)
class MetricPower:
    """Result of :func:`metric_power`.

    Attributes:
        protocol: id of the protocol.
        n: available data points (ratings or pairs; captions within images; systems over systems).
        values: the statistic of both metrics, by title.
        power: numbers of units that distinguish the metrics.
        signatures: one line by label.
        notes: notes on the data set's items, one line each.
        version: version of the data set, which ``protocol`` leaves out; ``""`` if it has none.
        file_columns: for a user's file: the field that each column was read as, ``""`` for columns that are not read.
    """

    protocol: str
    n: int
    values: dict[str, float]
    power: Power
    signatures: dict[str, str]
    notes: tuple[str, ...] = ()
    version: str = ""
    file_columns: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Plain values for JSON; ``file_columns`` only if there are any."""
        return {key: value for key, value in asdict(self).items() if key != "file_columns" or value}


def metric_power(
    dataset: Dataset,
    protocol: Protocol,
    requests: Sequence[MetricRequest],
    *,
    gap: float | None = None,
    alpha: float = 0.05,
    target: float = 0.8,
    resamples: int = 500,
    seed: int = 0,
    unit: Unit = "image",
    resources: Resources | None = None,
    cache: bool = True,
    progress: ProgressFactory = no_progress,
) -> MetricPower:
    """Score two metrics, and estimate how much data is needed to distinguish them (power analysis).

    Args:
        dataset: the data set.
        protocol: one of its protocols, with a correlation or an accuracy as its statistic.
        requests: metrics with two columns in all.
        gap: the difference to detect; None for the observed one.
        alpha: significance level, two-sided.
        target: target power.
        resamples: resamples at each size.
        seed: seed of the resamples.
        unit: unit that is resampled and counted.
        resources: features, weights and images for the metrics.
        cache: True to use the score cache.
        progress: makes progress bars.

    Raises:
        UsageError: the metrics do not have two columns in all.
        ProtocolError, StatisticError, DataError, MetricError, …: see :func:`compare_metrics` and
            :func:`capbench.stats.power.power`.
    """
    names = [row.name for request in requests for row in request.rows]
    if len(names) != 2:
        raise UsageError(
            f"exactly two metrics are required, not {len(names)}: {', '.join(names)}",
            code="wrong-value",
            value=len(names),
            hint="Name single columns, such as bleu-4 instead of bleu",
        )
    scored = score_all(dataset, protocol, requests, resources, cache=cache, progress=progress)
    rows = [row for request in requests for row in request.rows]
    compared = _compared(protocol, scored, scored.complete(rows, at_least=2), unit)
    data = compared.data
    needed = power(data, *data.names, gap=gap, alpha=alpha, target=target, resamples=resamples, seed=seed, unit=unit)
    return MetricPower(
        str(protocol),
        compared.n,
        compared.values,
        needed,
        compared.signatures,
        compared.notes,
        protocol.version,
        dict(scored.dataset.file_columns),
    )


@dataclass(frozen=True)
class _Compared:
    """Metrics paired with the human side of a protocol.

    Attributes:
        data: input of intervals and tests, metrics by title.
        n: data points.
        values: the protocol's statistic by title.
        scores: (draws, items) scores by title.
        cells: the overall cells, whose ``column`` is the title.
        signatures: one line by label.
        notes: notes on the data set's items.
    """

    data: Agreement
    n: int
    values: dict[str, float]
    scores: dict[str, FloatArray]
    cells: list[Cell]
    signatures: dict[str, str]
    notes: tuple[str, ...]


def _compared(protocol: Protocol, scored: Scored, rows: Sequence[Row], unit: Unit) -> _Compared:
    cells = [cell for cell in evaluate(protocol, scored.draws, scored.tables, rows)[0] if not cell.group]
    check_defined(cells)
    values = {cell.title: cell.value for cell in cells if cell.value is not None}
    scores = {row.title: np.stack([table.values[row.key] for table in scored.tables]) for row in rows}
    data = agreement(protocol, scored.draws[0], scores, unit)
    preferences = scored.draws[0].preferences
    n = len(preferences[protocol.statistic.human]) if isinstance(data, Accuracies) else data.n
    of_draws = dict.fromkeys(note for judgements in scored.draws for note in judgements.notes)
    notes = (*of_draws, *evaluation.notes(protocol, scored.draws, scored.tables, rows))
    note = photograph_note(scored.draws[0]) if unit == "image" else None
    by_title = [cell.model_copy(update={"column": cell.title}) for cell in cells]
    return _Compared(data, n, values, scores, by_title, scored.signatures, (*notes, *([note] if note else [])))


# A comparison of metrics in the form of a study's result.


def comparison_result(
    comparison: MetricComparison, protocol: Protocol, scored: Scored, rows: Sequence[Row]
) -> StudyResult:
    """A comparison as the result of a study, with the values of the data set's groups.

    Args:
        comparison: intervals and tests, metrics by title.
        protocol: its protocol.
        scored: the scores behind it.
        rows: the compared columns.
    """
    columns = {row.title: row.name for row in rows}
    cells, groups = evaluate(protocol, scored.draws, scored.tables, rows)
    unscored = unscored_cells(protocol, scored, rows, groups)
    by_title = comparison.intervals
    first = next(iter(by_title.values()))
    return StudyResult(
        capbench=__version__,
        name="comparison",
        title=f"{' and '.join(columns)} compared" if len(columns) == 2 else f"{len(columns)} metrics compared",
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        sample=comparison.sample,
        protocols=(
            ProtocolInfo(
                id=str(protocol),
                dataset=scored.dataset.name,
                dataset_title=scored.dataset.title,
                statistic=protocol.statistic.label,
                kind=protocol.statistic.kind,
                description=f"{protocol.items.description}; {protocol.statistic.description}",
                groups=groups,
                notes=(*comparison.notes, *scored.cautions),
                n_items=len(scored.draws[0].items),
                n_items_whole=scored.whole,
                draws=len(scored.draws),
                bootstrap=_how(first),
                version=protocol.version,
                level=protocol.statistic.level,
                file_columns=comparison.file_columns,
            ),
        ),
        columns={row.name: row.title for row in rows},
        signatures={f"{scored.dataset.name}/{protocol.items.name}": dict(comparison.signatures)},
        cells=(*(cell if cell.group else _with_interval(cell, by_title[cell.title]) for cell in cells), *unscored),
        comparisons=(_tests(comparison, str(protocol), columns),),
        seconds={},
        sentinels=_sentinels(comparison, columns),
        training={f"{scored.dataset.name}/{protocol.items.name}": scored.training} if scored.training else {},
    )


def _sentinels(comparison: MetricComparison, columns: dict[str, str]) -> tuple[Sentinels, ...]:
    """The sentinels, with metrics by column instead of title."""
    if comparison.sentinels is None:
        return ()

    def by_column(test: SentinelTest) -> SentinelTest:
        return test.model_copy(update={"column": columns[test.column]})

    tests = [
        of_group.model_copy(update={"tests": tuple(map(by_column, of_group.tests))})
        for of_group in comparison.sentinels.tests
    ]
    raters = [
        of_group.model_copy(
            update={
                "p_adjusted": {columns[title]: p for title, p in of_group.p_adjusted.items()},
                **{
                    name: tuple(columns[title] for title in getattr(of_group, name))
                    for name in ("above", "below", "alike")
                },
            }
        )
        for of_group in comparison.sentinels.raters
    ]
    return (comparison.sentinels.model_copy(update={"tests": tuple(tests), "raters": tuple(raters)}),)


def _how(interval: Interval) -> BootstrapInfo | None:
    if interval.unit is None or interval.resamples is None or interval.seed is None:
        return None
    return BootstrapInfo(
        method="bca" if interval.method == "bca" else "percentile",
        level=interval.level,
        unit=interval.unit,
        units=interval.units,
        resamples=interval.resamples,
        seed=interval.seed,
    )


def _with_interval(cell: Cell, interval: Interval) -> Cell:
    return cell.model_copy(update={"low": interval.low, "high": interval.high})


def _tests(comparison: MetricComparison, protocol: str, columns: dict[str, str]) -> Tests:
    table = {name: value for name, value in vars(comparison.table).items() if name not in ("statistic", "values")}
    return replace(
        Tests(**table),
        protocol=protocol,
        requested=None,
        top=tuple(columns[title] for title in comparison.table.top),
        ranks={columns[title]: rank for title, rank in comparison.table.ranks.items()},
        pairs=tuple(
            replace(pair, better=columns[pair.better], worse=columns[pair.worse]) for pair in comparison.table.pairs
        ),
    )

"""Computes intervals of a study's numbers, tests between its metrics, the human ceiling, and power.

Scores are computed once and all metrics share the resamples of a protocol. Comparisons of metrics under one protocol
have intervals, tests between all pairs, and the power analysis of a pair.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from capbench import __version__
from capbench.core.errors import ProtocolError, StatisticError, UsageError
from capbench.core.records import FloatArray, Judgements, ScoreTable
from capbench.datasets.base import Dataset
from capbench.datasets.protocol import Protocol
from capbench.metrics.base import Resources
from capbench.metrics.requests import MetricRequest, Row
from capbench.stats.agreement import Accuracies, Agreement, Correlations, Unit
from capbench.stats.intervals import BootstrapSample, Interval, bootstrap_intervals, draw_bootstrap
from capbench.stats.power import Power, power
from capbench.stats.significance import ComparisonTable, Correction, Test, compare, permutations_to_use
from capbench.studies import evaluate as evaluation
from capbench.studies.evaluate import (
    PEOPLE,
    agreement,
    check_defined,
    evaluate,
    people,
    photograph_note,
    unscored_cells,
)
from capbench.studies.judged import Incomplete, ProgressFactory, Scored, judge, no_progress
from capbench.studies.results import (
    NO_TESTS,
    BootstrapInfo,
    Ceiling,
    Cell,
    Comparisons,
    PairTest,
    ProtocolInfo,
    StudyResult,
)
from capbench.studies.study import BootstrapSettings, TestSettings

__all__ = [
    "USUAL_RESAMPLES",
    "MetricComparison",
    "MetricPower",
    "Uncertainty",
    "assess",
    "compare_metrics",
    "compare_pairs",
    "compare_scored",
    "comparison_result",
    "metric_power",
    "refuse_means",
    "score_all",
]


@dataclass
class Uncertainty:
    """Result of :func:`assess` for one protocol.

    Attributes:
        cells: the cells, with intervals.
        ceilings: the human ceiling, overall and by group.
        comparisons: tests, overall and by group.
        bootstrap: settings of the intervals.
        notes: notes on what could not be computed and why, one line each.
    """

    cells: list[Cell] = field(default_factory=list)
    ceilings: list[Ceiling] = field(default_factory=list)
    comparisons: list[Comparisons] = field(default_factory=list)
    bootstrap: BootstrapInfo | None = None
    notes: list[str] = field(default_factory=list)


def assess(
    protocol: Protocol,
    draws: Sequence[Judgements],
    tables: Sequence[ScoreTable],
    rows: Sequence[Row],
    cells: Sequence[Cell],
    *,
    bootstrap: BootstrapSettings | None,
    tests: TestSettings | None,
    ceiling: bool,
    groups: bool = True,
    progress: Callable[[int], None] = lambda _: None,
) -> Uncertainty:
    """Add intervals, tests and the human ceiling to one protocol's cells.

    A number without an interval, or metrics that cannot be tested (in a group of one image, say), get a note instead.

    Args:
        protocol: the protocol; under a plain mean nothing is added.
        draws: its judgements, one for each draw.
        tables: their scores, in the same order.
        rows: the rows of the study.
        cells: its cells, from :func:`~capbench.studies.evaluate.evaluate`.
        bootstrap: settings of intervals, None for none.
        tests: settings of tests, None for none.
        ceiling: True to compute the human ceiling.
        groups: False for the overall numbers only: groups get no intervals, tests and ceilings.
        progress: called with 1 for each group done.
    """
    uncertainty = Uncertainty(cells=list(cells))
    if protocol.statistic.kind == "mean":
        return uncertainty
    scores = _common_scores(tables, rows)
    by_image = any(settings is not None and settings.unit == "image" for settings in (bootstrap, tests))
    if scores and by_image and (note := photograph_note(draws[0])):
        uncertainty.notes.append(f"{protocol}: {note}")
    for group in dict.fromkeys(cell.group for cell in cells if groups or not cell.group):
        defined = {cell.column for cell in cells if cell.group == group and cell.value is not None}
        of_group = {name: values for name, values in scores.items() if name in defined}
        if of_group and (bootstrap is not None or tests is not None):
            _assess_group(uncertainty, protocol, draws[0], of_group, group, bootstrap, tests)
        if ceiling:
            defined_here = _add_ceiling(uncertainty, protocol, draws[0], group, bootstrap)
            ceiling = defined_here or bool(group)  # if all judgements are too few, so are those of every group
        progress(1)
    return uncertainty


def _common_scores(tables: Sequence[ScoreTable], rows: Sequence[Row]) -> dict[str, FloatArray]:
    """(draws, items) scores by row name, of the rows with scores in all draws."""
    return {
        row.name: np.stack([table.values[row.key] for table in tables])
        for row in rows
        if tables and all(row.key in table.values for table in tables)
    }


def _assess_group(
    uncertainty: Uncertainty,
    protocol: Protocol,
    judgements: Judgements,
    scores: Mapping[str, FloatArray],
    group: str,
    bootstrap: BootstrapSettings | None,
    tests: TestSettings | None,
) -> None:
    place = f"{protocol}{f' {group}' if group else ''}"
    sample = None
    if bootstrap is not None:
        try:
            data = agreement(protocol, judgements, scores, bootstrap.unit, group)
            sample = draw_bootstrap(data, resamples=bootstrap.resamples, seed=bootstrap.seed, unit=bootstrap.unit)
            intervals = bootstrap_intervals(data, sample, method=bootstrap.method, level=bootstrap.level)
        except StatisticError as error:
            uncertainty.notes.append(f"{place}: no intervals: {error}")
        else:
            uncertainty.cells = [
                _with_interval(cell, intervals[cell.column])
                if cell.group == group and cell.column in intervals
                else cell
                for cell in uncertainty.cells
            ]
            if not group:
                uncertainty.bootstrap = _info(bootstrap, data.units)
            left_out = sum(interval.undefined for interval in intervals.values())
            if left_out:
                uncertainty.notes.append(
                    f"{place}: {left_out:,} resamples without variety are excluded from the intervals"
                )
    if tests is not None and len(scores) > 1:
        try:
            table, requested = compare_pairs(
                agreement(protocol, judgements, scores, tests.unit, group),
                tests,
                sample=sample if bootstrap is not None and bootstrap.unit == tests.unit else None,
                level=0.95 if bootstrap is None else bootstrap.level,
            )
        except StatisticError as error:
            uncertainty.notes.append(f"{place}{NO_TESTS}{error}")
        else:
            uncertainty.comparisons.append(_comparisons(str(protocol), table, group=group, requested=requested))


def compare_pairs(
    data: Agreement, settings: TestSettings, *, sample: BootstrapSample | None = None, level: float = 0.95
) -> tuple[ComparisonTable, int | None]:
    """Test all pairs of metrics, with more permutations than requested if the number of pairs requires them.

    Args:
        data: the metrics and the human side.
        settings: test, correction, level, number and seed.
        sample: a bootstrap of the same data, for intervals of the differences.
        level: coverage of these intervals.

    Returns:
        The tests, and the requested number of permutations or resamples if it was raised, else None.

    Raises:
        StatisticError: the test does not apply to the data.
    """
    count = permutations_to_use(settings.resamples, len(data.names), settings.alpha, settings.correction)
    resampling = settings.test in ("permutation", "bootstrap")
    raised = resampling and settings.resamples is not None and count > settings.resamples
    with_sample = sample
    if settings.test == "bootstrap" and (sample is None or (sample.resamples, sample.seed) != (count, settings.seed)):
        with_sample = draw_bootstrap(data, resamples=count, seed=settings.seed, unit=settings.unit)
    table = compare(
        data,
        test=settings.test,
        correction=settings.correction,
        alpha=settings.alpha,
        permutations=count,
        seed=settings.seed,
        unit=settings.unit,
        sample=with_sample,
        level=level,
    )
    return table, settings.resamples if raised else None


def _add_ceiling(
    uncertainty: Uncertainty,
    protocol: Protocol,
    judgements: Judgements,
    group: str,
    bootstrap: BootstrapSettings | None,
) -> bool:
    """Add the human ceiling, if raters are known; False if it is undefined, with a note."""
    # It always has an interval: without settings, the default one.
    settings = bootstrap or BootstrapSettings()
    try:
        human = people(protocol, judgements, settings.unit, group)
        if human is None:
            return True
        data, ceiling = human
        if protocol.statistic.coefficient != "acc-eq":  # acc-eq has no intervals
            sample = draw_bootstrap(data, resamples=settings.resamples, seed=settings.seed, unit=settings.unit)
            interval = bootstrap_intervals(data, sample, method=settings.method, level=settings.level)[PEOPLE]
            made = {"low": interval.low, "high": interval.high, "bootstrap": _info(settings, data.units)}
            ceiling = ceiling.model_copy(update=made)
    except StatisticError as error:
        uncertainty.notes.append(f"{protocol}{f' {group}' if group else ''}: no human ceiling: {error}")
        return False
    uncertainty.ceilings.append(ceiling)
    return True


def _with_interval(cell: Cell, interval: Interval) -> Cell:
    return cell.model_copy(update={"low": interval.low, "high": interval.high})


def _info(settings: BootstrapSettings, units: int) -> BootstrapInfo:
    return BootstrapInfo(
        method=settings.method,
        level=settings.level,
        unit=settings.unit,
        units=units,
        resamples=settings.resamples,
        seed=settings.seed,
    )


def _comparisons(
    protocol: str,
    table: ComparisonTable,
    names: Mapping[str, str] | None = None,
    *,
    group: str = "",
    requested: int | None = None,
) -> Comparisons:
    """Tests in the form of a study's result; ``names`` maps the metrics of the table to columns, if they differ."""
    names = {name: name for name in table.ranks} if names is None else names
    pairs = [asdict(pair) | {"better": names[pair.better], "worse": names[pair.worse]} for pair in table.pairs]
    return Comparisons(
        protocol=protocol,
        group=group,
        test=table.test,
        correction=table.correction,
        alpha=table.alpha,
        unit=table.unit,
        units=table.units,
        resamples=table.resamples,
        requested=requested,
        seed=table.seed,
        level=table.level,
        top=tuple(names[name] for name in table.top),
        ranks={names[name]: rank for name, rank in table.ranks.items()},
        pairs=tuple(PairTest(**pair) for pair in pairs),
    )


USUAL_RESAMPLES = 1000
"""Default number of resamples of intervals; the ends of 95 % intervals require about this many."""


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
    """

    protocol: str
    n: int
    intervals: dict[str, Interval]
    table: ComparisonTable
    signatures: dict[str, str]
    sample: bool = False
    notes: tuple[str, ...] = ()
    version: str = ""
    incomplete: dict[str, Incomplete] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def compare_metrics(
    dataset: Dataset,
    protocol: Protocol,
    requests: Sequence[MetricRequest],
    *,
    test: Test = "permutation",
    correction: Correction = "holm",
    resamples: int = 1000,
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
        resamples: bootstrap resamples, and permutations. More permutations are drawn if the number of metrics requires
            them, see :func:`capbench.stats.significance.permutations_to_use`.
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


def compare_scored(protocol: Protocol, scored: Scored, rows: Sequence[Row], settings: TestSettings) -> MetricComparison:
    """Bootstrap intervals and tests from existing scores.

    Args:
        protocol: one of the data set's protocols.
        scored: scores that include all rows.
        rows: the columns to compare; columns of incomplete score files are left out, and named.
        settings: settings of the tests; the intervals have the same number of resamples, unit and seed.

    Raises:
        DataError: fewer than two rows remain without the columns of incomplete score files.
        StatisticError: the test does not apply, or a statistic is undefined.
    """
    compared = _compared(protocol, scored, scored.complete(rows, at_least=2), settings.unit)
    unit, seed, resamples = settings.unit, settings.seed, settings.resamples or USUAL_RESAMPLES
    sample = draw_bootstrap(compared.data, resamples=resamples, seed=seed, unit=unit)
    table, _ = compare_pairs(compared.data, settings, sample=sample)
    # The values are computed from the same scores by the same code as in 'correlate'.
    values = {title: compared.values[title] for title in table.values}
    intervals = {
        title: replace(interval, value=compared.values[title])
        for title, interval in bootstrap_intervals(compared.data, sample).items()
    }
    return MetricComparison(
        protocol=str(protocol),
        n=compared.n,
        intervals=intervals,
        table=replace(table, values=values),
        signatures=compared.signatures,
        notes=compared.notes,
        version=protocol.version,
        incomplete=scored.incomplete(rows),
    )


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
    """

    protocol: str
    n: int
    values: dict[str, float]
    power: Power
    signatures: dict[str, str]
    notes: tuple[str, ...] = ()
    version: str = ""

    def as_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


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
        str(protocol), compared.n, compared.values, needed, compared.signatures, compared.notes, protocol.version
    )


@dataclass(frozen=True)
class _Compared:
    """Metrics paired with the human side of a protocol.

    Attributes:
        data: input of intervals and tests, metrics by title.
        n: data points.
        values: the protocol's statistic by title.
        signatures: one line by label.
        notes: notes on the data set's items.
    """

    data: Agreement
    n: int
    values: dict[str, float]
    signatures: dict[str, str]
    notes: tuple[str, ...]


def _compared(protocol: Protocol, scored: Scored, rows: Sequence[Row], unit: Unit) -> _Compared:
    cells = [cell for cell in evaluate(protocol, scored.draws, scored.tables, rows)[0] if not cell.group]
    check_defined(cells)
    values = {cell.title: cell.value for cell in cells if cell.value is not None}
    scores = {row.title: np.stack([table.values[row.key] for table in scored.tables]) for row in rows}
    data = agreement(protocol, scored.draws[0], scores, unit)
    preferences = scored.draws[0].preferences
    if isinstance(data, Accuracies):
        n = len(preferences[protocol.statistic.human])
    else:
        n = len(data.human) if isinstance(data, Correlations) else data.n
    of_draws = dict.fromkeys(note for judgements in scored.draws for note in judgements.notes)
    notes = (*of_draws, *evaluation.notes(protocol, scored.draws, scored.tables, rows))
    note = photograph_note(scored.draws[0]) if unit == "image" else None
    return _Compared(data, n, values, scored.signatures, (*notes, *([note] if note else [])))


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
            ),
        ),
        columns={row.name: row.title for row in rows},
        signatures={f"{scored.dataset.name}/{protocol.items.name}": dict(comparison.signatures)},
        cells=(*(cell if cell.group else _with_interval(cell, by_title[cell.title]) for cell in cells), *unscored),
        comparisons=(_comparisons(str(protocol), comparison.table, columns),),
        seconds={},
    )


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

"""Computes intervals of a study's numbers, tests between its metrics, and the human ceiling.

Scores are computed once and all metrics share the resamples of a protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from capbench.core.errors import StatisticError
from capbench.core.records import FloatArray, Judgements, ScoreTable
from capbench.datasets.protocol import Protocol
from capbench.metrics.requests import Row
from capbench.stats.agreement import Agreement
from capbench.stats.intervals import BootstrapSample, Interval, bootstrap_intervals, draw_bootstrap
from capbench.stats.significance import ComparisonTable, compare, permutations_to_use
from capbench.studies.evaluate import PEOPLE, agreement, people, photograph_note
from capbench.studies.results import NO_TESTS, BootstrapInfo, Ceiling, Cell, Comparisons, PairTest
from capbench.studies.study import BootstrapSettings, TestSettings

__all__ = ["Uncertainty", "assess", "compare_pairs"]


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
            uncertainty.cells = [_with_interval(cell, group, intervals) for cell in uncertainty.cells]
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
            uncertainty.comparisons.append(_comparisons(str(protocol), group, table, requested))


def compare_pairs(
    data: Agreement,
    settings: TestSettings,
    *,
    sample: BootstrapSample | None = None,
    level: float = 0.95,
    usual: int = 1000,
) -> tuple[ComparisonTable, int | None]:
    """Test all pairs of metrics, with more permutations than requested if the number of pairs requires them.

    Args:
        data: the metrics and the human side.
        settings: test, correction, level, number and seed.
        sample: a bootstrap of the same data, for intervals of the differences.
        level: coverage of these intervals.
        usual: number of permutations or resamples if the settings have none.

    Returns:
        The tests, and the requested number of permutations or resamples if it was raised, else None.

    Raises:
        StatisticError: the test does not apply to the data.
    """
    count = permutations_to_use(settings.resamples, len(data.names), settings.alpha, settings.correction, usual=usual)
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


def _with_interval(cell: Cell, group: str, intervals: Mapping[str, Interval]) -> Cell:
    if cell.group != group or cell.column not in intervals:
        return cell
    interval = intervals[cell.column]
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


def _comparisons(protocol: str, group: str, table: ComparisonTable, requested: int | None) -> Comparisons:
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
        top=table.top,
        ranks=table.ranks,
        pairs=tuple(
            PairTest(
                better=pair.better,
                worse=pair.worse,
                difference=pair.difference,
                low=pair.low,
                high=pair.high,
                p_value=pair.p_value,
                p_adjusted=pair.p_adjusted,
                significant=pair.significant,
            )
            for pair in table.pairs
        ),
    )

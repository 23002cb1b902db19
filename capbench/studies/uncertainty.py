"""Computes intervals of a study's numbers, tests between its metrics, and the human ceiling, from shared resamples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

import numpy as np

from capbench.core.errors import StatisticError, count
from capbench.core.records import FloatArray, Judgements, ScoreTable
from capbench.datasets.opening import group_of
from capbench.datasets.protocol import Protocol
from capbench.metrics.metric_request import Row
from capbench.stats.agreement import Agreement
from capbench.stats.intervals import BootstrapSample, Interval, bootstrap_intervals, draw_bootstrap
from capbench.stats.pairs import Tests
from capbench.stats.power import fewest_units
from capbench.stats.significance import compare, permutations_to_use
from capbench.studies.data_points import agreement
from capbench.studies.human_ceiling import HUMAN_CEILING, human_ceiling
from capbench.studies.results import (
    NO_TESTS,
    Answer,
    BootstrapInfo,
    Ceiling,
    Cell,
    ProtocolInfo,
    Sentinels,
    StudyResult,
)
from capbench.studies.scoring import Scored
from capbench.studies.study import BootstrapSettings, TestSettings

RANK_RULE = (
    "A metric opens a new rank if it is significantly worse than some metric of the rank above it, "
    "not necessarily the best"
)


@dataclass
class Numbers:
    """The part of a :class:`~capbench.studies.results.StudyResult` that is of one protocol."""

    info: ProtocolInfo = field(init=False)  # set when the numbers are complete
    cells: list[Cell] = field(default_factory=list)
    ceilings: list[Ceiling] = field(default_factory=list)
    comparisons: list[Tests] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    sentinels: list[Sentinels] = field(default_factory=list)
    bootstrap: BootstrapInfo | None = None
    notes: list[str] = field(default_factory=list)  # what could not be computed and why
    reasons: dict[str, str] = field(default_factory=dict)  # why overall numbers have no intervals, or no groups (tests)


def common_scores(tables: Sequence[ScoreTable], rows: Sequence[Row]) -> dict[str, FloatArray]:
    """(draws, items) scores by row name, of the rows with scores in all draws."""
    return {
        row.name: np.stack([table.values[row.key] for table in tables])
        for row in rows
        if tables and all(row.key in table.values for table in tables)
    }


def group_scores(scored: Scored, group: str, rows: Sequence[Row]) -> dict[str, FloatArray]:
    """(draws, items) scores by row name, of the rows that were scored on the items of a group only; NaN for others."""
    alone = scored.groups.get(group)
    if alone is None:
        return {}
    places = group_of(scored.dataset, group).places(scored.draws[0])
    scores: dict[str, FloatArray] = {}
    for name, values in common_scores(alone.tables, rows).items():
        scores[name] = np.full((len(scored.draws), len(scored.draws[0].items)), np.nan)
        scores[name][:, places] = values
    return scores


def assess_group(
    numbers: Numbers,
    protocol: Protocol,
    judgements: Judgements,
    scores: Mapping[str, FloatArray],  # (draws, items) by row name
    group: str,
    bootstrap: BootstrapSettings | None,
    tests: TestSettings | None,
) -> None:
    """Add intervals of the defined cells of a group, and tests; what cannot be computed gets a note."""
    defined = {cell.column for cell in numbers.cells if cell.group == group and cell.value is not None}
    scores = {name: values for name, values in scores.items() if name in defined}
    if not scores:
        return
    place = f"{protocol}{f' {group}' if group else ''}"
    sample = None
    if bootstrap is not None:
        try:
            data = agreement(protocol, judgements, scores, bootstrap.unit, group)
            sample, intervals = draw_intervals(data, bootstrap)
        except StatisticError as error:
            numbers.notes.append(f"{place}: no intervals: {error}")
            if not group:
                numbers.reasons["intervals"] = error.message
        else:
            numbers.cells = with_intervals(numbers.cells, intervals, group)
            if not group:
                numbers.bootstrap = _info(bootstrap, data.units)
            if left_out := sum(interval.undefined for interval in intervals.values()):
                note = f"{place}: {left_out:,} resamples without variety are excluded from the intervals"
                numbers.notes.append(note)
    if tests is not None and len(scores) > 1:
        try:
            data = agreement(protocol, judgements, scores, tests.unit, group)
            shared = sample if bootstrap is not None and bootstrap.unit == tests.unit else None
            tested = _compare(data, tests, shared, 0.95 if bootstrap is None else bootstrap.level)
        except StatisticError as error:
            numbers.notes.append(f"{place}{NO_TESTS}{error}")
            if not group:
                numbers.reasons["groups"] = error.message
        else:
            numbers.comparisons.append(replace(tested, protocol=str(protocol), group=group))


def _compare(data: Agreement, settings: TestSettings, sample: BootstrapSample | None, level: float) -> Tests:
    """Tests of all pairs of metrics; ``sample``: a bootstrap for intervals of the differences with the coverage
    ``level``."""
    # More than requested if the number of pairs requires them.
    draws = permutations_to_use(
        settings.resamples, len(data.names), settings.alpha, settings.correction, test=settings.test
    )
    raised = settings.test in ("permutation", "bootstrap") and draws > (settings.resamples or draws)
    if settings.test == "bootstrap" and (sample is None or (sample.resamples, sample.seed) != (draws, settings.seed)):
        sample = draw_bootstrap(data, resamples=draws, seed=settings.seed)
    tests = compare(
        data,
        test=settings.test,
        correction=settings.correction,
        alpha=settings.alpha,
        permutations=draws,
        seed=settings.seed,
        unit=settings.unit,
        sample=sample,
        level=level,
    )
    return replace(tests, requested=settings.resamples if raised else None)


def add_ceiling(
    numbers: Numbers,
    protocol: Protocol,
    judgements: Judgements,
    group: str,
    bootstrap: BootstrapSettings | None,
) -> bool:
    """Add the human ceiling, if raters are known; False if it is undefined, with a note."""
    # It always has an interval: without settings, the default one.
    settings = bootstrap or BootstrapSettings()
    try:
        human = human_ceiling(protocol, judgements, settings.unit, group)
        if human is None:
            return True
        data, ceiling = human
        if protocol.statistic.coefficient != "acc-eq":  # acc-eq has no intervals
            interval = draw_intervals(data, settings)[1][HUMAN_CEILING]
            made = {"low": interval.low, "high": interval.high, "bootstrap": _info(settings, data.units)}
            ceiling = ceiling.model_copy(update=made)
    except StatisticError as error:
        numbers.notes.append(f"{protocol}{f' {group}' if group else ''}: no human ceiling: {error}")
        return False
    numbers.ceilings.append(ceiling)
    return True


def draw_intervals(data: Agreement, settings: BootstrapSettings) -> tuple[BootstrapSample, dict[str, Interval]]:
    """A bootstrap of the metrics, and their intervals."""
    sample = draw_bootstrap(data, resamples=settings.resamples, seed=settings.seed)
    return sample, bootstrap_intervals(data, sample, method=settings.method, level=settings.level)


def with_intervals(cells: Iterable[Cell], intervals: Mapping[str, Interval], group: str | None = None) -> list[Cell]:
    """The cells with their columns' intervals; with a group, only those of that group."""
    ends = {name: {"low": interval.low, "high": interval.high} for name, interval in intervals.items()}
    return [
        cell.model_copy(update=ends.get(cell.column, {})) if group in (None, cell.group) else cell for cell in cells
    ]


def _info(settings: BootstrapSettings, units: int) -> BootstrapInfo:
    return BootstrapInfo(**asdict(settings), units=units)


def too_few_units(tests: Tests) -> str:
    """The reason why no difference can be significant, whatever the scores; ``""`` if one can."""
    fewest = fewest_units_to_test(tests.test, tests.correction, tests.alpha, len(tests.pairs))
    if tests.units >= fewest:
        return ""
    units = count(tests.units, str(tests.unit))
    return f"{units} are too few, since the permutation test requires {fewest:,} to find any difference"


def decided(result: StudyResult, protocol: str, group: str = "") -> Tests | None:
    """The tests between the metrics of a column; None without tests, and if no difference can be significant."""
    tests = result.comparison(protocol, group)
    return None if tests is None or too_few_units(tests) else tests


def fewest_units_to_test(test: str, correction: str, alpha: float, pairs: int) -> int:
    """The smallest number of units on which a test between some pairs can find any difference."""
    if test != "permutation":
        return 0
    return fewest_units(alpha, pairs if correction == "holm" else 1)

"""Sentences on pairs of metrics, and the table of a power analysis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from capbench.core.errors import count
from capbench.core.records import signature_lines
from capbench.datasets.protocol import with_version
from capbench.reports.methods import p_value_of
from capbench.reports.table import USUAL_TABLE, Table, TableStyle
from capbench.reports.tables import study_document
from capbench.reports.terminal import print_document
from capbench.stats.pairs import Pair, Tests
from capbench.studies.power import MetricPower
from capbench.studies.results import StudyResult
from capbench.studies.uncertainty import too_few_units

if TYPE_CHECKING:
    from rich.console import Console

    from capbench.stats.systems import SystemPair


def print_comparison(
    result: StudyResult,
    console: Console,
    *,
    of: str | None = None,
    details: bool = False,
    style: TableStyle = USUAL_TABLE,
) -> None:
    """Print the table of a result with a sentence for each tested pair, or for each pair with the metric ``of``."""
    answer = tuple(
        sentence(pair, tests, result, style)
        for tests in result.comparisons
        for pair in tests.pairs
        if not tests.group and (of is None or of in (pair.better, pair.worse))
    )
    document = study_document(result, style=style)
    first, *others = document.tables
    first = replace(first, answer=answer or first.answer)
    print_document(replace(document, tables=(first, *others)), console, details=details)


def sentence(pair: Pair, tests: Tests, result: StudyResult, style: TableStyle = USUAL_TABLE) -> str:
    """One sentence on a pair, by the corrected p-value: the metric that agrees better, or that they do not differ.

    With too few units for any difference to be significant, it has no p-value and no verdict.
    """
    (info,) = [info for info in result.protocols if info.id == tests.protocol]
    show = style.number

    def value(column: str) -> str:
        cell = result.cell(tests.protocol, column, tests.group)
        return "" if cell is None else show(cell.number)

    better, worse = result.columns[pair.better], result.columns[pair.worse]
    corrected = len(tests.pairs) if tests.correction != "none" else 1
    untested = bool(too_few_units(tests))
    values = f"{info.statistic} {value(pair.better)} against {value(pair.worse)}, difference {show(pair.difference)}"
    p_value = "" if untested else p_value_of(pair, tests)
    evidence = evidence_of(pair, values, p_value, show, level=tests.level, alpha=tests.alpha, corrected=corrected)
    if untested:
        return f"{better} and {worse} are not tested: {evidence}"
    if pair.significant:
        return f"{better} agrees better with human ratings than {worse}: {evidence}"
    return f"{better} and {worse} do not differ significantly: {evidence}"


def evidence_of(
    pair: Pair | SystemPair,
    values: str,
    p_value: str,
    show: Callable[[float], str],
    *,
    level: float | None,
    alpha: float,
    corrected: int,
    noun: str = "pair",
) -> str:
    """The numbers of a test, and a sentence on an interval that suggests the opposite of the test.

    ``p_value``: as printed, or ``""`` if nothing was tested; ``corrected``: number of tests for which it is corrected;
    ``noun``: name of such a test.
    """
    is_corrected = corrected > 1
    evidence = values + (f", {'corrected ' if is_corrected else ''}p {p_value}" if p_value else "")
    if pair.low is None or pair.high is None or level is None:
        return f"{evidence}."
    interval = f"{100 * level:g} % interval [{show(pair.low)}, {show(pair.high)}]"
    evidence += f", {'uncorrected ' if is_corrected else ''}{interval}."
    excludes_zero = pair.low > 0 or pair.high < 0
    if excludes_zero is pair.significant:
        return evidence
    if excludes_zero and pair.p_value <= alpha:
        return f"{evidence} Without the correction for {count(corrected, noun)}, the difference is significant."
    contains = "does not contain 0" if excludes_zero else "contains 0"
    return (
        f"{evidence} The interval {contains}, but the test decides: the two methods differ near the significance level."
    )


def power_table(result: MetricPower) -> Table:
    """The number of units that distinguish two metrics, and the power at each number of units."""
    power, show = result.power, USUAL_TABLE.number
    better, worse = (power.first, power.second) if power.difference >= 0 else (power.second, power.first)
    values = f"{result.statistic} {show(result.values[better])} against {show(result.values[worse])}"
    if power.gap == abs(power.difference):
        purpose = f"to distinguish {better} from {worse} ({values}, difference {show(power.gap)})"
    else:
        purpose = f"to detect a difference of {show(power.gap)} between {better} and {worse} (measured: {values})"
    return Table.of(
        [f"{power.unit}s", "standard error", "power"],
        [(f"{point.units:,}", show(point.standard_error), f"{100 * point.power:.0f} %") for point in power.points],
        answer=(
            f"{power.needed:,} {power.unit}s are needed {purpose} with {100 * power.target:g} % power at "
            f"α = {power.alpha:g}; the data has {power.units:,} {power.unit}s.",
        ),
        notes=(
            f"{with_version(result.protocol, result.version)}: {result.n:,} {result.data_points}; standard errors of "
            f"the difference from {power.resamples:,} resamples of each number of {power.unit}s, seed {power.seed}; "
            f"two-sided test, α = {power.alpha:g}",
            *result.notes,
            *signature_lines(result.signatures),
        ),
    )

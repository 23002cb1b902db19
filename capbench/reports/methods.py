"""The words of methods, once: marks, intervals, tests, corrections, p-values, the human ceiling and sentinels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from capbench.core.errors import count
from capbench.stats.pairs import Pair, Tests
from capbench.stats.significance import at_floor
from capbench.studies.results import BootstrapInfo, Ceiling, Cell, ProtocolInfo, Sentinels, StudyResult
from capbench.studies.sentinels import BOUNDS
from capbench.studies.uncertainty import decided, too_few_units

if TYPE_CHECKING:
    from capbench.stats.systems import SystemPair, SystemTable

MARK = "†"
"""Marks the best metric of a column and those that are not significantly worse."""
SENTINEL_MARK = "‡"
"""Marks metrics that are not significantly better than every sentinel."""
READ_MARK = "§"
"""Marks metrics whose training has read the captions, photographs or judgements on which they are tested."""
READ_NOTE = (
    f"{READ_MARK} its training has read captions, photographs or judgements of these items: not a test on new data"
)
SENTINEL_NOTE = f"{SENTINEL_MARK} not significantly better than every sentinel"

CORRECTIONS = {"holm": "Holm's correction", "bh": "Benjamini and Hochberg's correction", "none": "no correction"}
TESTS = {
    "permutation": "permutation test (PERM-BOTH)",
    "bootstrap": "paired bootstrap test",
    "williams": "Williams' test",
    "steiger": "Steiger's test",
    "mcnemar": "McNemar's test",
}
_CEILINGS = {
    "leave-one-rater-out": "each rating against the mean of the item's other ratings (leave one rater out)",
    "votes": "one voter against the majority of the pair's other voters",
}


def details(protocols: Sequence[ProtocolInfo]) -> dict[str, str]:
    """By protocol id, the part of the id that distinguishes protocols of the same data set and statistic.

    It is ``""`` if title and statistic are sufficient, else the items, the statistic's full name, or both; also the
    data set if two of them have the same title.
    """
    alike: dict[tuple[str, str], list[ProtocolInfo]] = {}
    for info in protocols:
        alike.setdefault((info.dataset_title, info.statistic), []).append(info)
    shown = {}
    for infos in alike.values():
        parts = [info.id.split("/") for info in infos]
        differing = [place for place in range(len(parts[0])) if len({names[place] for names in parts}) > 1]
        for info, names in zip(infos, parts, strict=True):
            shown[info.id] = ", ".join(names[place] for place in differing)
    return shown


def intervals(level: float, method: str, unit: str | None, resamples: int | None, seed: int | None) -> str:
    """The method of intervals: ``95 % bootstrap intervals (percentile) over images, 1,000 resamples, seed 0``."""
    name = {"bca": "BCa"}.get(method, method)
    drawn = "" if resamples is None else f", {resamples:,} resamples, seed {seed}"
    return f"{100 * level:g} % bootstrap intervals ({name}) over {unit}s{drawn}"


def tested_by(test: str, unit: str | None, resamples: int | None, seed: int | None, few: str) -> str:
    """The method of tests: ``permutation test (PERM-BOTH) over images, 1,000 permutations, seed 0``."""
    if resamples is None:
        return f"{TESTS[test]}, which assumes independent data points"
    drawn = "permutations" if test == "permutation" else "resamples"
    return f"{TESTS[test]} over {unit}s, {resamples:,} {drawn}{few}, seed {seed}"


def legend(result: StudyResult, places: Sequence[tuple[str, str]]) -> list[str]:
    """The meaning of the marks and intervals of columns, by protocol and group, in a short line each."""
    lines = []
    for tests in filter(None, (decided(result, *place) for place in places)):
        corrected = "" if tests.correction == "none" else f"{CORRECTIONS[tests.correction]}, "
        lines.append(f"{MARK} the best of its column, or not significantly worse ({corrected}α = {tests.alpha:g})")
    protocols = {protocol for protocol, _ in places}
    for info in (p.bootstrap for p in result.protocols if p.id in protocols):
        if info is not None:
            lines.append(f"[a, b]: {100 * info.level:g} % bootstrap intervals over {info.unit}s")
    if any(result.no_better(*place) for place in places):
        lines.append(SENTINEL_NOTE)
    return list(dict.fromkeys(lines))


def notes(result: StudyResult, places: Sequence[tuple[str, str]]) -> list[str]:
    """Methods of the intervals, tests and ceilings of columns, by protocol and group, one line each."""
    protocols = dict.fromkeys(protocol for protocol, _ in places)
    lines = [_interval(p.bootstrap) for p in result.protocols if p.id in protocols and p.bootstrap is not None]
    for protocol, group in places:
        tests = result.comparison(protocol, group)
        if tests is not None and not (reason := too_few_units(tests)):
            lines.append(test_note(tests))
        elif tests is not None and (group or result.answer(protocol) is None):  # an answer has the reason in words
            lines.append(f"{protocol}{f' {group}' if group else ''}: no tests between the metrics: {reason}")
    ceilings = [known for place in places if (known := result.ceiling(*place)) is not None]
    lines += [f"human ceiling (not a metric): {_CEILINGS[known.method]}; {_sizes(ceilings)}" for known in ceilings]
    lines += [
        f"between human raters (mean τ-b of the pairs of {known.raters} raters): {known.pairwise_tau_b:.4f}"
        for known in ceilings
        if known.pairwise_tau_b is not None
    ]
    lines += [f"human ceiling: {_interval(known.bootstrap)}" for known in ceilings if known.bootstrap is not None]
    lines += sentinel_notes(result.sentinels, places)
    return list(dict.fromkeys(lines))


def _interval(info: BootstrapInfo) -> str:
    return f"[a, b]: {intervals(info.level, info.method, info.unit, info.resamples, info.seed)}"


def test_note(tests: Tests) -> str:
    """The meaning of :data:`MARK` and the test behind it, in one line."""
    pairs = count(len(tests.pairs), "pair")
    few = "" if tests.requested is None else f" ({tests.requested:,} are too few for {pairs})"
    method = tested_by(tests.test, tests.unit, tests.resamples, tests.seed, few)
    return (
        f"{MARK} the best of its column, or not significantly worse: {method}; {CORRECTIONS[tests.correction]} over "
        f"{pairs} per column, α = {tests.alpha:g}"
    )


def _sizes(ceilings: Sequence[Ceiling]) -> str:
    """Numbers of data points behind ceilings: one number, or one for each column."""
    sizes = dict.fromkeys(f"{known.n:,}" for known in ceilings)
    if len(sizes) == 1:
        return f"n = {next(iter(sizes))}"
    return "n = " + ", ".join(f"{k.n:,} ({k.protocol}{f' {k.group}' if k.group else ''})" for k in ceilings)


def ranks(result: StudyResult, tests: Tests) -> str:
    """The significance clusters in one line: ``1 SPICE; 2 CIDEr, METEOR``."""
    clusters: dict[int, list[str]] = {}
    for column, rank in tests.ranks.items():
        clusters.setdefault(rank, []).append(result.columns.get(column, column))
    return "; ".join(f"{rank} {', '.join(names)}" for rank, names in sorted(clusters.items()))


def p_value_text(value: float, *, is_bound: bool, digits: int = 4) -> str:
    """A p-value with its relation: ``= 0.0150``, ``< 0.0001``, or ``≤ 0.0016`` for an upper bound, rounded up.

    ``is_bound`` if the number of permutations limits it (:func:`capbench.stats.significance.at_floor`).
    """
    step = 10.0**-digits
    if is_bound:
        return f"≤ {math.ceil(value / step - 1e-6) * step:.{digits}f}"
    return f"< {step:.{digits}f}" if value < step else f"= {value:.{digits}f}"


def p_value_of(pair: Pair | SystemPair, tests: Tests | SystemTable, digits: int = 4) -> str:
    """The corrected p-value of a pair, with ``≤`` for a bound; three digits or fewer only for one that they show."""
    draws = tests.resamples if isinstance(tests, Tests) or tests.permutations is None else tests.permutations
    is_bound = at_floor(
        pair.p_value, pair.p_adjusted, pairs=len(tests.pairs), resamples=draws, correction=tests.correction
    )
    is_shown = digits > 3 or pair.p_adjusted >= 10.0**-digits
    return p_value_text(pair.p_adjusted, is_bound=is_bound and is_shown, digits=digits)


# Sentinels.


def marks(result: StudyResult, cell: Cell, *, daggers: bool = True) -> str:
    """The marks of a number; ``daggers``: False for none of tests."""
    tests = decided(result, cell.protocol, cell.group)
    shown = MARK * (daggers and tests is not None and cell.column in tests.top)
    shown += SENTINEL_MARK * (daggers and cell.column in result.no_better(cell.protocol, cell.group))
    return shown + READ_MARK * result.has_read(cell.protocol, cell.label or cell.metric, cell.group)


def sentinel_title(name: str) -> str:
    """The title of a sentinel's row."""
    return f"{name} (bound)" if name in BOUNDS else name


def sentinel_notes(several: Iterable[Sentinels], places: Iterable[tuple[str, str]]) -> list[str]:
    """The meaning of :data:`SENTINEL_MARK`, the test behind it, and the inputs of the sentinels of columns, by
    protocol and group; one line each."""
    lines: list[str] = []
    inputs: dict[str, str] = {}
    reasons: list[str] = []
    places = list(places)
    for sentinels in several:
        groups = [group for protocol, group in places if protocol == sentinels.protocol]
        if not groups:
            continue
        for tests in filter(None, map(sentinels.tests_of, groups)):
            method = tested_by(tests.test, tests.unit, tests.resamples, tests.seed, "")
            of_group = [cell for cell in sentinels.cells if cell.group == tests.group and cell.value is not None]
            names = ", ".join(cell.column for cell in of_group if cell.column not in BOUNDS)
            lines.append(
                f"{SENTINEL_NOTE} ({names}): {method}; the largest one-sided p-value; "
                f"{CORRECTIONS[tests.correction]} over {count(len(tests.pairs), 'metric')} per column, "
                f"α = {tests.alpha:g}"
            )
        inputs |= sentinels.inputs
        reasons += sentinels.notes
    if inputs:
        used = "; ".join(f"{name}: {text}" for name, text in inputs.items())
        lines.append(f"sentinels (not metrics, see docs/sentinels.md) use only: {used}")
    return list(dict.fromkeys([*lines, *reasons]))

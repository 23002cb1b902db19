"""Notes of tables on intervals, tests and the human ceiling."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from capbench.studies.results import BootstrapInfo, Ceiling, Comparisons, StudyResult
from capbench.studies.uncertainty import too_few_units

__all__ = ["MARK", "decided", "notes", "p_value_text", "ranks", "test_note"]

MARK = "†"
"""Marks the best metric of a column and those that are not significantly worse."""


_CORRECTIONS = {"holm": "Holm's correction", "bh": "Benjamini and Hochberg's correction", "none": "no correction"}
_FORMULAS = {"williams": "Williams' test", "steiger": "Steiger's test", "mcnemar": "McNemar's test"}
_CEILINGS = {
    "leave-one-rater-out": "each rating against the mean of the item's other ratings (leave one rater out)",
    "votes": "one voter against the majority of the pair's other voters",
}


def decided(result: StudyResult, protocol: str, group: str = "") -> Comparisons | None:
    """The tests between the metrics of a column; None without tests, and if no difference can be significant."""
    tests = result.comparison(protocol, group)
    return None if tests is None or too_few_units(tests) else tests


def notes(result: StudyResult, places: Iterable[tuple[str, str]]) -> list[str]:
    """Methods of the intervals, marks and ceilings of a table's columns, one line each.

    Args:
        result: the result.
        places: protocol and group of the columns.
    """
    places = list(places)
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
    lines += [_interval(known.bootstrap) for known in ceilings if known.bootstrap is not None]
    return list(dict.fromkeys(lines))


def p_value_text(value: float, *, is_bound: bool, digits: int = 4) -> str:
    """A p-value with its relation: ``= 0.0150``, ``< 0.0001``, or ``≤ 0.0016`` for an upper bound, rounded up.

    Args:
        value: the p-value.
        is_bound: True if the number of permutations limits it (:func:`capbench.stats.significance.at_floor`).
        digits: number of decimals.
    """
    step = 10.0**-digits
    if is_bound:
        return f"≤ {math.ceil(value / step - 1e-6) * step:.{digits}f}"
    return f"< {step:.{digits}f}" if value < step else f"= {value:.{digits}f}"


def _sizes(ceilings: Sequence[Ceiling]) -> str:
    """Numbers of data points behind ceilings: one number, or one for each column."""
    sizes = dict.fromkeys(f"{known.n:,}" for known in ceilings)
    if len(sizes) == 1:
        return f"n = {next(iter(sizes))}"
    return "n = " + ", ".join(f"{k.n:,} ({k.protocol}{f' {k.group}' if k.group else ''})" for k in ceilings)


def _interval(info: BootstrapInfo) -> str:
    method = {"percentile": "percentile", "bca": "BCa"}[info.method]
    return (
        f"[low, high]: {100 * info.level:g} % bootstrap intervals ({method}) over {info.unit}s, "
        f"{info.resamples:,} resamples, seed {info.seed}"
    )


def test_note(tests: Comparisons) -> str:
    """The meaning of :data:`MARK` and the test behind it, in one line."""
    if tests.test in _FORMULAS:
        method = f"{_FORMULAS[tests.test]}, which assumes independent data points"
    else:
        name, unit = {
            "permutation": ("permutation test (PERM-BOTH)", "permutations"),
            "bootstrap": ("paired bootstrap test", "resamples"),
        }[tests.test]
        number = f"{tests.resamples:,} {unit}"
        if tests.requested is not None:
            number += f" ({tests.requested:,} are too few for {_pairs(len(tests.pairs))})"
        method = f"{name} over {tests.unit}s, {number}, seed {tests.seed}"
    return (
        f"{MARK} the best of its column, or not significantly worse: {method}; {_CORRECTIONS[tests.correction]} over "
        f"{_pairs(len(tests.pairs))} per column, α = {tests.alpha:g}"
    )


def _pairs(count: int) -> str:
    return f"{count} pair{'s' if count != 1 else ''}"


def ranks(result: StudyResult, tests: Comparisons) -> str:
    """The significance clusters in one line: ``1 SPICE; 2 CIDEr, METEOR``."""
    clusters: dict[int, list[str]] = {}
    for column, rank in tests.ranks.items():
        clusters.setdefault(rank, []).append(result.columns.get(column, column))
    return "; ".join(f"{rank} {', '.join(names)}" for rank, names in sorted(clusters.items()))

"""What a study says about intervals and tests, and the check of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from capbench.datasets.protocol import Protocol
from capbench.errors import suggest
from capbench.stats.agreement import Unit
from capbench.stats.correction import Correction
from capbench.stats.significance import Test

__all__ = [
    "BootstrapMethod",
    "BootstrapSettings",
    "TestSettings",
    "misfit",
    "parse_bootstrap",
    "parse_compare",
    "problems_of_bootstrap",
    "problems_of_test",
]

BootstrapMethod = Literal["percentile", "bca"]
FEWEST = 100


@dataclass(frozen=True)
class BootstrapSettings:
    """How the intervals of a study are made.

    Attributes:
        resamples: number of resamples, 100 or more.
        unit: what is drawn with replacement.
        seed: of the resamples.
        method: ``percentile`` or ``bca``.
        level: nominal coverage.
    """

    resamples: int = 1000
    unit: Unit = "image"
    seed: int = 0
    method: BootstrapMethod = "percentile"
    level: float = 0.95


@dataclass(frozen=True)
class TestSettings:
    """How the metrics of a study are tested against each other.

    Attributes:
        test: the test of each pair, see :func:`capbench.stats.significance.compare`.
        correction: for the number of pairs under one protocol.
        alpha: significance level.
        resamples: permutations, or resamples of the test ``bootstrap``, 100 or more; None for 1,000, or more where the
            correction needs more.
        seed: of the permutations or resamples.
        unit: what changes places or is drawn.
    """

    __test__ = False  # pytest takes classes that are called Test… for tests

    test: Test = "permutation"
    correction: Correction = "holm"
    alpha: float = 0.05
    resamples: int | None = None
    seed: int = 0
    unit: Unit = "image"


def parse_bootstrap(raw: Any, add: Callable[[str], None]) -> BootstrapSettings | None:
    """Read ``bootstrap:`` of a study file; ``bootstrap: 1000`` is short for ``bootstrap: {resamples: 1000}``.

    Args:
        raw: the value in the file; None if there is none.
        add: takes each problem.
    """
    if raw is None:
        return None
    if _is_whole(raw):
        raw = {"resamples": raw}
    given = _mapping(raw, "bootstrap", ("resamples", "unit", "seed", "method", "level"), "{resamples: 1000}", add)
    if given is None:
        return None
    settings = BootstrapSettings(**given)
    problems = problems_of_bootstrap(settings)
    for problem in problems:
        add(problem)
    return None if problems else settings


def parse_compare(raw: Any, bootstrap: BootstrapSettings | None, add: Callable[[str], None]) -> TestSettings | None:
    """Read ``compare:`` of a study file; ``compare: permutation`` is short for ``compare: {test: permutation}``.

    Unit and seed are those of the intervals unless they are given.

    Args:
        raw: the value in the file; None if there is none.
        bootstrap: the settings of the intervals.
        add: takes each problem.
    """
    if raw is None:
        return None
    if isinstance(raw, str):
        raw = {"test": raw}
    keys = ("test", "correction", "alpha", "resamples", "seed", "unit")
    given = _mapping(raw, "compare", keys, "{test: permutation}", add)
    if given is None:
        return None
    if bootstrap is not None:
        given = {"unit": bootstrap.unit, "seed": bootstrap.seed, **given}
    settings = TestSettings(**given)
    problems = problems_of_test(settings)
    for problem in problems:
        add(problem)
    return None if problems else settings


def problems_of_bootstrap(settings: BootstrapSettings) -> list[str]:
    """What is wrong with the settings of intervals, whatever types their values have; empty if nothing is."""
    problems = [
        _count(settings.resamples, "bootstrap.resamples", FEWEST),
        _choice(settings.unit, "bootstrap.unit", get_args(Unit)),
        _count(settings.seed, "bootstrap.seed", 0),
        _choice(settings.method, "bootstrap.method", get_args(BootstrapMethod)),
        _share(settings.level, "bootstrap.level", "0.95"),
    ]
    return [problem for problem in problems if problem]


def problems_of_test(settings: TestSettings) -> list[str]:
    """What is wrong with the settings of tests, whatever types their values have; empty if nothing is."""
    problems = [
        _choice(settings.test, "compare.test", get_args(Test)),
        _choice(settings.correction, "compare.correction", get_args(Correction)),
        _share(settings.alpha, "compare.alpha", "0.05"),
        "" if settings.resamples is None else _count(settings.resamples, "compare.resamples", FEWEST),
        _count(settings.seed, "compare.seed", 0),
        _choice(settings.unit, "compare.unit", get_args(Unit)),
    ]
    return [problem for problem in problems if problem]


def misfit(settings: TestSettings, protocol: Protocol) -> str:
    """Why a test cannot be done under a protocol; ``""`` if it can. Plain means are not tested at all."""
    spec, test = protocol.statistic, settings.test
    if spec.kind == "mean" or test in ("permutation", "bootstrap"):
        return ""
    if protocol.items.draws > 1:
        return f"the test '{test}' is for one draw of references, and {protocol} has {protocol.items.draws}"
    if test == "mcnemar":
        if spec.kind != "accuracy":
            return f"the test 'mcnemar' is for accuracies, and {protocol} is a correlation"
        if spec.ties == "ties-half":
            return f"the test 'mcnemar' is not defined where ties count one half, as under {protocol}"
    elif spec.kind != "correlation" or spec.coefficient not in ("pearson", "spearman"):
        return f"the test '{test}' is for Pearson's r and Spearman's rho, which {protocol} is not"
    return ""


def _mapping(
    raw: Any, key: str, known: Sequence[str], example: str, add: Callable[[str], None]
) -> dict[str, Any] | None:
    if not isinstance(raw, dict):
        add(f"'{key}' should be a mapping such as {example}, not {raw!r}")
        return None
    for name in raw:
        if name not in known:
            add(f"unknown key '{key}.{name}'. {suggest(str(name), list(known))}")
    return {name: value for name, value in raw.items() if name in known and value is not None}


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _count(value: Any, name: str, least: int) -> str:
    if _is_whole(value) and value >= least:
        return ""
    return f"'{name}' should be a whole number from {least}, not {value!r}"


def _choice(value: Any, name: str, choices: Sequence[str]) -> str:
    return "" if value in choices else f"'{name}' is {value!r}. {suggest(str(value), list(choices))}"


def _share(value: Any, name: str, example: str) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1:
        return ""
    return f"'{name}' should be a number between 0 and 1 such as {example}, not {value!r}"

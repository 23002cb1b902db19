"""Results of significance tests: of two metrics (:class:`Pair`), and of a family of pairs (:class:`Tests`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from capbench.core.arguments import Correction as Correction
from capbench.core.arguments import Test as Test
from capbench.core.arguments import Unit as Unit

# Read by pydantic, whose models contain these records.
_STRICT: dict[str, Any] = {"extra": "forbid", "allow_inf_nan": False}


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two metrics under one statistic."""

    better: str
    worse: str
    difference: float  # value of better minus value of worse, ≥ 0 unless one is a sentinel
    low: float | None = None  # percentile bootstrap interval of the difference; None without a bootstrap
    high: float | None = None
    p_value: float  # not corrected; two-sided, one-sided against sentinels
    p_adjusted: float  # after the correction for the whole family
    significant: bool  # p_adjusted is at most α

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT


@dataclass(frozen=True, kw_only=True)
class Tests:
    """A family of tests with one correction: all pairs of metrics under one statistic, best first."""

    protocol: str = ""
    group: str = ""  # of the items or pairs; "" for all
    test: Test
    correction: Correction
    alpha: float
    unit: Unit | None  # permuted or resampled; None for closed-form tests, which assume independent data points
    units: int  # or data points, for closed-form tests
    resamples: int | None  # permutations or resamples; None for closed-form tests
    requested: int | None = None  # their requested number, if the number of pairs required more
    seed: int | None
    level: float | None  # coverage of the intervals of the differences; None if there are none
    top: tuple[str, ...]  # the best metric and all that are not significantly worse than it, best first
    ranks: dict[str, int]  # significance clusters: rank by metric, from 1, best first
    pairs: tuple[Pair, ...]

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT
    __test__: ClassVar[bool] = False  # pytest collects classes whose name begins with Test

"""What forest plots and significance matrices show, from a comparison at hand or from saved JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capbench.datasets.protocol import with_version
from capbench.errors import CapbenchError, DataError, UsageError
from capbench.files import read_json
from capbench.reports.figures.style import statistic_label

if TYPE_CHECKING:
    from capbench.analyses.comparing import MetricComparison
    from capbench.studies.results import StudyResult

__all__ = ["Compared", "PairResult", "from_comparison", "from_study", "read_compared"]


@dataclass(frozen=True)
class PairResult:
    """The test of one pair."""

    better: str
    worse: str
    difference: float
    p_value: float
    significant: bool


@dataclass(frozen=True)
class Compared:
    """Metrics under one protocol, by title.

    Attributes:
        protocol: its id.
        label: short name of the statistic.
        percent: True for accuracies, which are shown in percent.
        n: data points.
        values: the statistic, best first.
        intervals: low and high end of each; empty if there are none.
        interval_note: how the intervals were made, one phrase.
        top: the best metric and those not significantly worse; empty if nothing was tested.
        pairs: the tests.
        test_note: how they were made, one phrase; ``""`` if there are none.
        ceiling: how well one more person would agree, None where that is not known.
        sample: whether the data was the embedded sample.
        version: version of the data set, which ``protocol`` leaves out; ``""`` if it has none.
    """

    protocol: str
    label: str
    percent: bool
    n: int
    values: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]
    interval_note: str
    top: tuple[str, ...]
    pairs: tuple[PairResult, ...]
    test_note: str
    ceiling: float | None = None
    sample: bool = False
    version: str = ""

    @property
    def versioned_id(self) -> str:
        """The protocol's id as it is printed: with the data set's version."""
        return with_version(self.protocol, self.version)


def from_comparison(comparison: MetricComparison, *, sample: bool = False) -> Compared:
    """From what :func:`capbench.analyses.comparing.compare_metrics` gives."""
    return _from_plain(comparison.as_json(), sample=sample)


def from_study(result: StudyResult, protocol: str | None = None) -> Compared:
    """From one protocol of a study with intervals or tests.

    Args:
        result: the study.
        protocol: its id; may be left out if the study has only one with intervals or tests.

    Raises:
        UsageError: no such protocol, several to choose from, or none with intervals or tests.
    """
    able = {cell.protocol for cell in result.cells if cell.low is not None and not cell.group}
    able |= {tests.protocol for tests in result.comparisons if not tests.group}
    if not able:
        raise UsageError(
            "the study has neither intervals nor tests", hint="Add 'bootstrap' and 'compare' to the study, and run it"
        )
    ids = [info.id for info in result.protocols if info.id in able]
    if protocol is None and len(ids) > 1:
        raise UsageError(f"the study has {len(ids)} protocols", hint=f"Choose one by --protocol: {', '.join(ids)}")
    chosen = protocol or ids[0]
    if chosen not in ids:
        raise UsageError(f"the study has no intervals or tests for '{chosen}'", hint=f"Choices: {', '.join(ids)}")
    (info,) = [info for info in result.protocols if info.id == chosen]
    cells = [c for c in result.cells if c.protocol == chosen and not c.group]
    cells.sort(key=lambda cell: -cell.value)
    tests = result.comparison(chosen)
    boot = info.bootstrap
    ceiling = result.ceiling(chosen)
    titles = result.columns
    return Compared(
        chosen,
        info.statistic,
        info.kind == "accuracy",
        max(cell.n for cell in cells),
        {cell.title: cell.value for cell in cells},
        {c.title: (c.low, c.high) for c in cells if c.low is not None and c.high is not None},
        ""
        if boot is None
        else _interval_note(boot.level, boot.method, boot.resamples, boot.units, boot.unit, boot.seed),
        () if tests is None else tuple(titles[column] for column in tests.top),
        ()
        if tests is None
        else tuple(
            PairResult(titles[p.better], titles[p.worse], p.difference, p.p_adjusted, p.significant)
            for p in tests.pairs
        ),
        ""
        if tests is None
        else _test_note(tests.test, tests.correction, tests.alpha, tests.resamples, tests.unit, tests.seed),
        None if ceiling is None else ceiling.value,
        result.sample,
        info.version,
    )


def read_compared(path: Path, protocol: str | None = None) -> Compared:
    """From a file: the output of ``capbench compare --json``, or a study's ``results.json`` with intervals or tests.

    Raises:
        DataError: it is neither.
        UsageError: see :func:`from_study`.
    """
    raw = read_json(path)
    if isinstance(raw, dict) and "schema_version" in raw and "cells" in raw:
        from capbench.studies.results import load_result

        return from_study(load_result(path), protocol)
    try:
        comparison = _from_plain(raw, sample=False)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise DataError(
            "is neither the output of 'capbench compare --json' nor a study's results.json", path=path
        ) from error
    except CapbenchError as error:
        raise DataError(error.message, path=path) from error
    if protocol not in (None, comparison.protocol):
        raise UsageError(f"the comparison is of {comparison.protocol}, not of {protocol}", path=path)
    return comparison


def _from_plain(raw: Any, *, sample: bool) -> Compared:
    table = raw["table"]
    values = {str(name): float(value) for name, value in table["values"].items()}
    label = statistic_label(str(raw["protocol"]))
    first = next(iter(raw["intervals"].values()))
    pairs = tuple(
        PairResult(
            str(p["better"]), str(p["worse"]), float(p["difference"]), float(p["p_adjusted"]), bool(p["significant"])
        )
        for p in table["pairs"]
    )
    if not values or any(name not in values for p in pairs for name in (p.better, p.worse)):
        raise DataError("names a metric without a value")
    return Compared(
        str(raw["protocol"]),
        label,
        label == "accuracy",
        int(raw["n"]),
        dict(sorted(values.items(), key=lambda pair: -pair[1])),
        {name: (float(raw["intervals"][name]["low"]), float(raw["intervals"][name]["high"])) for name in values},
        _interval_note(
            float(first["level"]), first["method"], first["resamples"], first["units"], first["unit"], first["seed"]
        ),
        tuple(map(str, table["top"])),
        pairs,
        _test_note(
            table["test"], table["correction"], table["alpha"], table["resamples"], table["unit"], table["seed"]
        ),
        None,
        bool(raw.get("sample")) or sample,
        str(raw.get("version", "")),
    )


def _interval_note(
    level: float, method: str, resamples: int | None, units: int, unit: str | None, seed: int | None
) -> str:
    drawn = "" if resamples is None else f", {resamples:,} resamples of {units:,} {unit}s, seed {seed}"
    return f"{100 * level:g} % intervals ({method}{drawn})"


def _test_note(
    test: str, correction: str, alpha: float, resamples: int | None, unit: str | None, seed: int | None
) -> str:
    drawn = "" if resamples is None else f", {resamples:,} times by {unit}, seed {seed}"
    return f"{test} test{drawn}; correction {correction}, α = {alpha:g}"

"""``capbench.correlate`` and ``capbench.compare``: agreement of metrics with human raters, and its differences."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from capbench.api.checking import check_arguments, check_name
from capbench.api.resolve import (
    DatasetGiven,
    FilesGiven,
    MetricInputs,
    MetricsGiven,
    OptionsGiven,
    PathGiven,
    ScoresGiven,
    VersionGiven,
    asked,
    python_caller,
    resolve_judged,
    resolve_study,
    texts,
    warn,
    with_inputs,
)
from capbench.api.results import ON_SAMPLE
from capbench.core import records
from capbench.core.errors import StatisticError, UsageError, suggest
from capbench.core.progress import words
from capbench.datasets.root import find_root
from capbench.studies.compare import MetricComparison, compare_metrics
from capbench.studies.judged import Incomplete, ProgressFactory
from capbench.studies.results import StudyResult
from capbench.studies.run import SlowPart, run_plan
from capbench.studies.study import StatisticsChoice, Study, TestSettings, protocols_asked, with_statistics

if TYPE_CHECKING:
    import pandas as pd

    from capbench.stats.agreement import Unit
    from capbench.stats.significance import Correction, Test
    from capbench.studies.study import BootstrapMethod

__all__ = ["ComparisonResult", "CorrelationResult", "compare", "correlate"]


def correlate(
    dataset: DatasetGiven | Sequence[DatasetGiven] | None = None,
    metrics: MetricsGiven = (),
    *,
    protocol: str | Sequence[str] | None = None,
    scores: ScoresGiven = (),
    allow_missing: bool = False,
    bootstrap: int | None = None,
    interval: BootstrapMethod | None = None,
    compare: Test | None = None,
    correction: Correction | None = None,
    alpha: float | None = None,
    permutations: int | None = None,
    unit: Unit | None = None,
    seed: int | None = None,
    without: str | Sequence[str] = (),
    options: OptionsGiven | None = None,
    features: FilesGiven | None = None,
    model: FilesGiven | None = None,
    images: PathGiven | None = None,
    data: PathGiven | None = None,
    cache: bool = True,
    version: VersionGiven | None = None,
    progress: bool | ProgressFactory = False,
) -> CorrelationResult:
    """Measure how well metrics agree with people, as ``capbench correlate`` does.

    What cannot be computed (a metric that waits for weights) stands in the result's ``missing``, and is warned of.

    Args:
        dataset: a data set, or several: names (``flickr8k-expert``, ``composite@8k``), files of judgements, or classes.
        metrics: names, functions or classes, or a dictionary of them by label.
        protocol: ``dataset/items/statistic``, or a part of it that is meant of each data set; by default the
            literature's. One or several.
        scores: files of scores that were computed elsewhere; every column of numbers is a metric.
        allow_missing: whether items without a score in such a file are left out, for all metrics.
        bootstrap: number of resamples for intervals; none by default.
        interval: how their ends are found, ``percentile`` or ``bca``.
        compare: the test between all pairs of metrics: ``permutation``, ``bootstrap``, ``williams``, ``steiger`` or
            ``mcnemar``; none by default.
        correction: for the number of pairs, ``holm``, ``bh`` or ``none``.
        alpha: significance level.
        permutations: their number; by default 1,000, or what is needed.
        unit: what is resampled: ``image``, ``item`` or ``rating``.
        seed: of resamples and permutations.
        without: metrics, labels or columns that are left out.
        options: options of metrics: ``{"cider": {"df": "coco-val"}}`` or ``{"cider.df": "coco-val"}``.
        features: region features for all metrics, or by metric.
        model: weights for all metrics that need some, or by metric.
        images: the folder of the pictures; by default the data set's image folders.
        data: the data folder; by default ``CAPBENCH_DATA``, else the embedded sample.
        cache: whether the score cache is read and written.
        version: a version of the functions among the metrics, or versions by name: their scores are then cached under
            it, whatever they do. Without one, a function that cannot be signed completely is scored anew.
        progress: True to show progress on stderr; or a function that shows it: it takes a description and the number
            of steps, and returns a context manager that yields a function of the steps done.

    Raises:
        UsageError, StudyError: an argument does not fit; StudyError lists all that do not.
        DataError: a file does not hold what it should.
        MetricError: a metric failed, or a function gave no number; the caption is named.
        StatisticError: a statistic is undefined on these numbers.
    """
    check_arguments(locals(), several=["dataset", "protocol"])
    inputs = MetricInputs(
        options=options,
        features=features,
        model=model,
        images=images,
        data=data,
        scores=scores,
        allow_missing=allow_missing,
        cache=cache,
        version=version,
    )
    caller = python_caller(progress)
    names = asked(metrics, version)
    protocols = protocols_asked(texts(dataset), texts(protocol), caller.spelled)
    if not protocols:
        raise UsageError("no data set is named", hint="Give one, such as 'flickr8k-expert'")
    if not names and not scores:
        raise UsageError("no metric is named", hint=caller.no_metric)
    study = Study(
        name="quick-look",
        title="Agreement with human judgements",
        protocols=tuple(protocols),
        metrics=tuple(names),
        without=(without,) if isinstance(without, str) else tuple(without),
    )
    choice = StatisticsChoice(
        bootstrap=bootstrap,
        interval=interval,
        compare=compare,
        correction=correction,
        alpha=alpha,
        permutations=permutations,
        unit=unit,
        seed=seed,
    )
    study = with_statistics(with_inputs(study, inputs, caller), choice, caller.spelled)
    plan = resolve_study(study, find_root(data), caller)
    result = run_plan(plan, caller.progress, cache=cache, announce=_announce)
    for missing in result.missing:
        if not missing.left_out:
            text = f"{missing.title or missing.protocol} is not computed: {missing.reason}"
            warn(text)
    for cell in result.undefined:
        place = f"{cell.protocol}{f', {cell.group}' if cell.group else ''}"
        warn(f"{cell.title} is undefined under {place}: {cell.undefined}")
    return CorrelationResult.of(result)


def compare(
    dataset: DatasetGiven,
    metrics: MetricsGiven = (),
    *,
    protocol: str | None = None,
    scores: ScoresGiven = (),
    allow_missing: bool = False,
    test: Test = "permutation",
    correction: Correction = "holm",
    resamples: int = 1000,
    seed: int = 0,
    unit: Unit = "image",
    options: OptionsGiven | None = None,
    features: FilesGiven | None = None,
    model: FilesGiven | None = None,
    images: PathGiven | None = None,
    data: PathGiven | None = None,
    cache: bool = True,
    version: VersionGiven | None = None,
    progress: bool | ProgressFactory = False,
) -> ComparisonResult:
    """Test whether metrics differ in how well they agree with people, as ``capbench compare`` does.

    Args:
        dataset: a data set's name, a file of judgements, or a class.
        metrics: two or more: names, functions or classes, or a dictionary of them by label.
        protocol: one of the data set's protocols; by default the literature's.
        scores: files of scores that were computed elsewhere; every column of numbers is a metric, or those that
            ``metrics`` names.
        allow_missing: whether items without a score in such a file are left out, for all metrics.
        test: ``permutation``, ``bootstrap``, ``williams``, ``steiger`` or ``mcnemar``.
        correction: for the number of pairs, ``holm``, ``bh`` or ``none``.
        resamples: bootstrap resamples, and permutations, of which more are drawn where the number of pairs needs them.
        seed: of both.
        unit: what is resampled: ``image``, ``item`` or ``rating``.
        options: options of metrics: ``{"cider": {"df": "coco-val"}}`` or ``{"cider.df": "coco-val"}``.
        features: region features for all metrics, or by metric.
        model: weights for all metrics that need some, or by metric.
        images: the folder of the pictures; by default the data set's image folders.
        data: the data folder; by default ``CAPBENCH_DATA``, else the embedded sample.
        cache: whether the score cache is read and written.
        version: a version of the functions among the metrics, or versions by name: their scores are then cached under
            it, whatever they do. Without one, a function that cannot be signed completely is scored anew.
        progress: True to show progress on stderr; or a function that shows it: it takes a description and the number
            of steps, and returns a context manager that yields a function of the steps done.

    Raises:
        UsageError: there is but one metric, or an argument does not fit.
        ProtocolError: the data set has no such protocol, or the protocol knows no human judgements.
        DataError, MetricError, StatisticError: as :func:`correlate` raises them.
    """
    check_arguments(locals(), required=["dataset"])
    inputs = MetricInputs(
        options=options,
        features=features,
        model=model,
        images=images,
        data=data,
        scores=scores,
        allow_missing=allow_missing,
        cache=cache,
        version=version,
    )
    settings = TestSettings.read(
        "compare",
        {"test": test, "correction": correction, "resamples": resamples, "seed": seed, "unit": unit},
    )
    one_alone = UsageError("one metric alone cannot be compared", hint="Name two or more")
    judged = resolve_judged(metrics, dataset, protocol, inputs, python_caller(progress), one_alone=one_alone)
    comparison = compare_metrics(
        judged.dataset,
        judged.protocol,
        judged.requests,
        test=settings.test,
        correction=settings.correction,
        resamples=resamples,
        seed=seed,
        unit=settings.unit,
        resources=judged.resources,
        cache=cache,
        progress=judged.caller.progress,
    )
    _warn_of(comparison.incomplete)
    statistic = judged.protocol.statistic
    comparison = dataclasses.replace(comparison, sample=judged.sample)
    return ComparisonResult.of(comparison, statistic.label, percent=statistic.kind == "accuracy")


def _warn_of(incomplete: Mapping[str, Incomplete]) -> None:
    """Warn of columns of files that lack scores, by title, for the function that a user has called."""
    for title, less in incomplete.items():
        warn(f"{title} is not computed: {less}")


def _announce(slow: SlowPart) -> None:
    """Warn of what takes more than half a minute, and say how to do without."""
    what = "; ".join(f"{w.subject} {len(w.units):,} {w.unit} first, {words(w.seconds)}" for w in slow.works)
    text = f"{what}; leave it out with without={list(slow.labels)}, or see how far it is with progress=True"
    warn(text)


class CorrelationResult(StudyResult):
    """How well metrics agree with people, as :func:`capbench.correlate` gives it; ``print(result)`` prints its tables.

    Attributes are those of :class:`capbench.studies.results.StudyResult`, which is what ``correlate --json`` prints.
    """

    @classmethod
    def of(cls, result: StudyResult) -> CorrelationResult:
        """The same result."""
        return cls.model_construct(**{name: getattr(result, name) for name in StudyResult.model_fields})

    def value(self, column: str, protocol: str | None = None, group: str = "") -> float:
        """One number.

        Args:
            column: the row's name (``cider``).
            protocol: id of its protocol; may be left out where there is but one.
            group: the group, ``""`` for overall.

        Raises:
            UsageError: there is no such number; the choices are listed.
            StatisticError: it is undefined; the reason is given.
        """
        check_name("column", column)
        check_name("group", group)
        if protocol is not None:
            check_name("protocol", protocol)
        ids = [info.id for info in self.protocols]
        if protocol is None and len(ids) != 1:
            raise UsageError(f"the result has {len(ids)} protocols", hint=f"Name one: {', '.join(ids)}")
        cell = self.cell(protocol or ids[0], column, group)
        if cell is None:
            known = [c.column for c in self.cells if c.protocol == (protocol or ids[0]) and c.group == group]
            reason = next((f": {m.reason}" for m in self.missing if m.column == column), "")
            where = f"{protocol or ids[0]}{f', {group}' if group else ''}"
            raise UsageError(f"there is no number of '{column}' under {where}{reason}", hint=suggest(column, known))
        if cell.value is None:
            place = f"{cell.protocol}{f', {group}' if group else ''}"
            raise StatisticError(
                f"there is no number of '{column}' under {place}: {cell.undefined}",
                hint="result.cell(protocol, column, group).undefined is the reason, without an exception",
            )
        return cell.value

    def to_frame(self) -> pd.DataFrame:
        """A row for each number: protocol, group, column, ``value``, its interval, ``rank`` and ``top`` from tests."""
        import pandas as pd

        from capbench.reports.markup import cell_rows
        from capbench.studies.results import Cell

        return pd.DataFrame(cell_rows(self), columns=[*Cell.model_fields, "difference", "rank", "top", "own_model"])

    def pairs_to_frame(self) -> pd.DataFrame:
        """A row for each test of two metrics; none without ``compare``."""
        import pandas as pd

        from capbench.studies.results import PairTest

        rows = [
            {"protocol": tests.protocol, "group": tests.group, **pair.model_dump(), "test": tests.test}
            for tests in self.comparisons
            for pair in tests.pairs
        ]
        return pd.DataFrame(rows, columns=["protocol", "group", *PairTest.model_fields, "test"])

    def __repr__(self) -> str:
        where = ", ".join(info.id for info in self.protocols) or "nothing"
        missing = len(self.missing) + len(self.undefined)
        waiting = f", {missing} not computed" if missing else ""
        scored = {cell.column for cell in self.cells if cell.value is not None}
        return f"CorrelationResult({where}: {_listed(scored, self.columns)}{waiting}{ON_SAMPLE if self.sample else ''})"

    def __str__(self) -> str:
        from rich.console import Console

        from capbench.reports.markup import SAMPLE
        from capbench.reports.terminal import print_result

        text = io.StringIO()
        console = Console(file=text, width=200, highlight=False, force_jupyter=False, color_system=None)
        if self.sample:
            console.print(SAMPLE, markup=False)
        print_result(self, console)
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())

    def _repr_html_(self) -> str:
        from capbench.reports.markup import to_html

        return to_html(self)


@dataclass(frozen=True, repr=False)
class ComparisonResult(MetricComparison):
    """Intervals of metrics and tests between all pairs, as :func:`capbench.compare` gives them.

    Attributes:
        statistic: short name of the statistic (``τ-c``).
        percent: whether values are shown times 100.
    """

    statistic: str = ""
    percent: bool = False

    @classmethod
    def of(cls, comparison: MetricComparison, statistic: str, *, percent: bool) -> ComparisonResult:
        """The same comparison, with what its numbers are."""
        fields = {f.name: getattr(comparison, f.name) for f in dataclasses.fields(comparison)}
        return cls(**fields, statistic=statistic, percent=percent)

    def as_json(self) -> dict[str, Any]:
        """What ``compare --json`` prints."""
        given = {f.name for f in dataclasses.fields(MetricComparison)}
        return {name: value for name, value in dataclasses.asdict(self).items() if name in given}

    def to_frame(self) -> pd.DataFrame:
        """A row for each metric, the best first: ``metric``, ``value``, ``low``, ``high``, ``rank``, ``top``."""
        import pandas as pd

        rows = [
            {
                "metric": name,
                "value": value,
                "low": self.intervals[name].low,
                "high": self.intervals[name].high,
                "rank": self.table.ranks[name],
                "top": name in self.table.top,
            }
            for name, value in self.table.values.items()
        ]
        return pd.DataFrame(rows)

    def pairs_to_frame(self) -> pd.DataFrame:
        """A row for each pair: ``better``, ``worse``, ``difference``, its interval, p-values, ``significant``."""
        import pandas as pd

        return pd.DataFrame([dataclasses.asdict(pair) for pair in self.table.pairs])

    def __repr__(self) -> str:
        on_sample = ON_SAMPLE if self.sample else ""
        return f"ComparisonResult({self.protocol}: {', '.join(self.table.values)}{on_sample})"

    def __str__(self) -> str:
        from capbench.reports.compare import basis, incomplete, sentence
        from capbench.reports.markup import SAMPLE

        lines = [SAMPLE] if self.sample else []
        lines += [sentence(pair, self, self.statistic, percent=self.percent) for pair in self.table.pairs]
        lines += incomplete(self)
        return "\n".join([*lines, basis(self), *self.notes, *records.signature_lines(self.signatures)])

    def _repr_html_(self) -> str:
        from capbench.reports.compare import comparison_html

        return comparison_html(self, self.statistic, percent=self.percent)


def _listed(scored: set[str], columns: Mapping[str, str]) -> str:
    return ", ".join(name for name in columns if name in scored) or "no numbers"

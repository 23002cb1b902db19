"""``capbench.compare`` and ``capbench.power``: differences between metrics in agreement with human judgements.

``capbench.compare_systems`` tests captioning systems against each other on the same images.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capbench.api.checking import check_arguments
from capbench.api.resolve import (
    Caller,
    DatasetGiven,
    FilesGiven,
    MetricInputs,
    MetricsGiven,
    OptionsGiven,
    PathGiven,
    ResolvedJudged,
    ScoresGiven,
    VersionGiven,
    given_inputs,
    python_caller,
    resolve,
    resolve_judged,
    warn,
)
from capbench.api.results import ON_SAMPLE
from capbench.core import records
from capbench.core.errors import UsageError, count, suggest
from capbench.datasets.user.caption_warnings import note_without_candidate
from capbench.datasets.user.captions import ReadingOptions, read_systems
from capbench.stats.power import FEWEST_UNITS
from capbench.studies.compare import (
    MetricComparison,
    MetricPower,
    compare_scored,
    comparison_result,
    metric_power,
    score_all,
)
from capbench.studies.judged import Incomplete, ProgressFactory, Scored
from capbench.studies.results import StudyResult
from capbench.studies.study import BootstrapSettings, TestSettings
from capbench.studies.systems import SystemComparison
from capbench.studies.systems import compare_systems as _compare

if TYPE_CHECKING:
    import pandas as pd

    from capbench.datasets.protocol import StatisticSpec
    from capbench.reports.table import Table
    from capbench.stats.pairs import Correction, Test, Unit
    from capbench.stats.systems import SystemTest

__all__ = [
    "SYSTEM_METRICS",
    "Comparison",
    "ComparisonResult",
    "MeasuredPower",
    "compare",
    "compare_judged",
    "compare_systems",
    "power",
    "power_judged",
    "system_comparison",
]


def compare(
    dataset: DatasetGiven,
    metrics: MetricsGiven = (),
    *,
    protocol: str | None = None,
    scores: ScoresGiven = (),
    allow_missing: bool = False,
    test: Test = "permutation",
    correction: Correction = "holm",
    resamples: int | None = None,
    seed: int = 0,
    unit: Unit = "image",
    sentinels: bool = True,
    options: OptionsGiven | None = None,
    features: FilesGiven | None = None,
    model: FilesGiven | None = None,
    images: PathGiven | None = None,
    data: PathGiven | None = None,
    cache: bool = True,
    version: VersionGiven | None = None,
    columns: Mapping[str, str] | None = None,
    progress: bool | ProgressFactory = False,
) -> ComparisonResult:
    """Test whether metrics differ in how well they agree with human judgements, as ``capbench compare`` does.

    Args:
        dataset: a data set's name, a file of judgements, or a class.
        metrics: two or more: names, functions or classes, or a dictionary of them by label.
        protocol: one of the data set's protocols; by default its default protocol.
        scores: see :class:`capbench.api.resolve.MetricInputs`, as for ``allow_missing``, ``options``, ``features``,
            ``model``, ``images``, ``data``, ``cache``, ``version`` and ``columns``.
        test: ``permutation``, ``bootstrap``, ``williams``, ``steiger`` or ``mcnemar``.
        correction: correction for the number of pairs, ``holm``, ``bh`` or ``none``.
        resamples: number of bootstrap resamples and permutations; by default 1,000 and 10,000. The number of pairs may
            require more permutations.
        seed: seed of resamples and permutations.
        unit: unit of resampling: ``image``, ``item`` or ``rating``.
        sentinels: True to test the metrics against sentinels, too; see docs/sentinels.md.
        progress: see :func:`capbench.api.caller.python_caller`.

    Raises:
        UsageError: there is only one metric, or an argument is not valid.
        ProtocolError: the data set has no such protocol, or the protocol has no human judgements.
        DataError, MetricError, StatisticError: as :func:`correlate` raises them.
    """
    check_arguments(locals(), required=["dataset"])
    settings = TestSettings.read(
        "compare",
        {"test": test, "correction": correction, "resamples": resamples, "seed": seed, "unit": unit},
    )
    inputs = given_inputs(locals())
    made = compare_judged(metrics, dataset, protocol, inputs, settings, python_caller(progress), sentinels=sentinels)
    _warn_of(made.result.incomplete)
    return made.result


@dataclass(frozen=True)
class Comparison:
    """A comparison of metrics, and the scores behind it.

    Attributes:
        result: intervals and tests.
        judged: metrics, data set and protocol.
        scored: the scores.
    """

    result: ComparisonResult
    judged: ResolvedJudged
    scored: Scored

    def as_study(self) -> StudyResult:
        """The comparison as the result of a study, which reports read."""
        return comparison_result(self.result, self.judged.protocol, self.scored, self.judged.rows)


def compare_judged(
    metrics: MetricsGiven,
    dataset: DatasetGiven,
    protocol: str | None,
    inputs: MetricInputs,
    settings: TestSettings,
    caller: Caller,
    *,
    bootstrap: int | None = None,
    sentinels: bool = False,
) -> Comparison:
    """Compare metrics for Python or the command line; see :func:`compare`.

    ``bootstrap`` is the number of resamples of the intervals, by default that of the settings.
    """
    one_alone = UsageError("a comparison requires two metrics", code="too-few", hint="Name two or more")
    judged = resolve_judged(metrics, dataset, protocol, inputs, caller, one_alone=one_alone)
    scored = score_all(
        judged.dataset,
        judged.protocol,
        judged.requests,
        judged.resources,
        cache=judged.cache,
        progress=caller.progress,
    )
    comparison = compare_scored(
        judged.protocol, scored, judged.rows, settings, bootstrap=bootstrap, sentinels=sentinels
    )
    used, wanted = comparison.table.resamples, settings.resamples
    if used is not None and wanted is not None and used > wanted:
        pairs = count(len(comparison.table.pairs), "pair")
        caller.tell(f"{used:,} permutations or resamples were used: {wanted:,} are too few for {pairs}")
    result = ComparisonResult.of(
        replace(comparison, sample=judged.sample), judged.protocol.statistic, judged.dataset.title
    )
    return Comparison(result, judged, scored)


def power(
    dataset: DatasetGiven,
    metrics: MetricsGiven = (),
    *,
    protocol: str | None = None,
    scores: ScoresGiven = (),
    allow_missing: bool = False,
    power: float = 0.8,
    alpha: float = 0.05,
    gap: float | None = None,
    resamples: int = 500,
    seed: int = 0,
    unit: Unit = "image",
    options: OptionsGiven | None = None,
    features: FilesGiven | None = None,
    model: FilesGiven | None = None,
    images: PathGiven | None = None,
    data: PathGiven | None = None,
    cache: bool = True,
    version: VersionGiven | None = None,
    columns: Mapping[str, str] | None = None,
    progress: bool | ProgressFactory = False,
) -> MetricPower:
    """Estimate how many images are needed to distinguish two metrics, as ``capbench compare --power`` does.

    Args:
        dataset: a data set's name, a file of judgements, or a class.
        metrics: two: names, functions or classes, or a dictionary of them by label.
        protocol: one of the data set's protocols; by default its default protocol.
        scores: see :class:`capbench.api.resolve.MetricInputs`, as for ``allow_missing``, ``options``, ``features``,
            ``model``, ``images``, ``data``, ``cache``, ``version`` and ``columns``.
        power: probability with which the difference should be found.
        alpha: significance level, two-sided.
        gap: the difference to find (a share for accuracies); by default the measured one.
        resamples: resamples at each number of images.
        seed: of the resamples.
        unit: unit that is resampled and counted: ``image``, ``item`` or ``rating``.
        progress: see :func:`capbench.api.caller.python_caller`.

    Raises:
        UsageError: there are not two columns, or an argument is not valid.
        ProtocolError, DataError, MetricError, StatisticError: as :func:`compare` raises them.
    """
    check_arguments(locals(), required=["dataset", "alpha", "resamples"])
    inputs = given_inputs(locals())
    caller = python_caller(progress)
    measured = power_judged(
        metrics,
        dataset,
        protocol,
        inputs,
        caller,
        power=power,
        alpha=alpha,
        gap=gap,
        resamples=resamples,
        seed=seed,
        unit=unit,
    )
    return measured.result


@dataclass(frozen=True)
class MeasuredPower:
    """Power analysis of two metrics, with the statistic of the protocol."""

    result: MetricPower
    statistic: StatisticSpec


def power_judged(
    metrics: MetricsGiven,
    dataset: DatasetGiven,
    protocol: str | None,
    inputs: MetricInputs,
    caller: Caller,
    *,
    power: float,
    alpha: float,
    gap: float | None,
    resamples: int,
    seed: int,
    unit: Unit,
) -> MeasuredPower:
    """Estimate for Python or the command line how many images are needed; see :func:`power`."""
    for name, value in (("power", power), ("alpha", alpha)):
        if not 0 < value < 1:
            raise UsageError(
                f"{caller.spelled(name)} {value:g}: not a share between 0 and 1",
                code="out-of-range",
                value=value,
                hint="Example: 0.8",
            )
    settings = BootstrapSettings.read("power", {"resamples": resamples, "seed": seed, "unit": unit})
    judged = resolve_judged(metrics, dataset, protocol, inputs, caller)
    result = metric_power(
        judged.dataset,
        judged.protocol,
        judged.requests,
        gap=gap,
        alpha=alpha,
        target=power,
        resamples=settings.resamples,
        seed=settings.seed,
        unit=settings.unit,
        resources=judged.resources,
        cache=judged.cache,
        progress=caller.progress,
    )
    if result.power.units < FEWEST_UNITS:
        have = count(result.power.units, unit)
        caller.note(f"{have} are too few for a reliable estimate, which requires {FEWEST_UNITS}")
    return MeasuredPower(result, judged.protocol.statistic)


def _warn_of(incomplete: Mapping[str, Incomplete]) -> None:
    """Warn of columns with missing scores, by title."""
    for title, missing_scores in incomplete.items():
        warn(f"{title} is not computed: {missing_scores}")


@dataclass(frozen=True, repr=False)
class ComparisonResult(MetricComparison):
    """Intervals of metrics and tests between all pairs, as :func:`capbench.compare` returns them.

    Attributes:
        statistic: short name of the statistic (``τ-c``).
        percent: True if values are shown as percentages.
        dataset_title: title of the data set (``Flickr8k Expert``).
    """

    statistic: str = ""
    percent: bool = False
    dataset_title: str = ""

    @classmethod
    def of(cls, comparison: MetricComparison, statistic: StatisticSpec, dataset_title: str) -> ComparisonResult:
        """The same comparison, with the statistic of its protocol and the title of its data set."""
        fields = {f.name: getattr(comparison, f.name) for f in dataclasses.fields(comparison)}
        percent = statistic.kind == "accuracy"
        return cls(**fields, statistic=statistic.label, percent=percent, dataset_title=dataset_title)

    def as_json(self) -> dict[str, Any]:
        """The value that ``compare --json`` prints."""
        names = {f.name for f in dataclasses.fields(MetricComparison)}
        return {name: value for name, value in super().as_json().items() if name in names}

    def to_latex(
        self,
        *,
        columns: str | Sequence[str] | None = None,
        digits: int | None = None,
        percent: bool | None = None,
        bold: bool = True,
        daggers: bool = True,
        intervals: bool = True,
    ) -> str:
        """The table as LaTeX, for the packages booktabs and threeparttable.

        Args:
            columns: the columns to show, in this order: the statistic (``τ-c``) and ``rank``; both by default.
            digits: digits after the decimal point; by default four, or two for percentages.
            percent: True to multiply values by 100, False not to; by default for accuracies only.
            bold: True to emphasise the best value.
            daggers: True to mark metrics that are not significantly worse than the best, or not better than sentinels.
            intervals: True to show the intervals.

        Raises:
            UsageError: the table has no such column; the choices are listed.
        """
        from capbench import __version__
        from capbench.reports.markup import latex_document

        table = self._table(columns, digits, percent=percent, bold=bold, daggers=daggers, intervals=intervals)
        return latex_document([table], self.protocol, f"capbench {__version__}", sample=self.sample)

    def to_markdown(
        self,
        *,
        columns: str | Sequence[str] | None = None,
        digits: int | None = None,
        percent: bool | None = None,
        bold: bool = True,
        daggers: bool = True,
        intervals: bool = True,
    ) -> str:
        """The table as Markdown; the arguments are those of :meth:`to_latex`, as for errors."""
        from capbench.reports.compare import comparison_markdown

        table = self._table(columns, digits, percent=percent, bold=bold, daggers=daggers, intervals=intervals)
        return comparison_markdown(table, self)

    def _table(self, columns: str | Sequence[str] | None, digits: int | None, **choices: bool | None) -> Table:
        from capbench.reports.compare import comparison_table
        from capbench.reports.table import TableStyle

        style = TableStyle.of(columns, digits, **choices)
        return comparison_table(self, self.dataset_title, self.statistic, percent=self.percent, style=style)

    def to_frame(
        self, *, columns: str | Sequence[str] | None = None, digits: int | None = None, percent: bool | None = None
    ) -> pd.DataFrame:
        """A row for each metric, the best first: ``metric``, ``value``, ``low``, ``high``, ``rank``, ``top``.

        With sentinels, ``beats_sentinels`` is True for metrics that are significantly better than each of them.

        Args:
            columns: those after ``metric``; all by default.
            digits: digits after the decimal point; by default all.
            percent: True to multiply values by 100. By default correlations and accuracies are numbers from 0 to 1.

        Raises:
            UsageError: there is no such column; the choices are listed.
        """
        import pandas as pd

        from capbench.reports.table import TableStyle

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
        frame = pd.DataFrame(rows)
        tests = None if self.sentinels is None else self.sentinels.tests_of()
        if tests is not None:
            better = {test.column: test.better for test in tests.tests}
            frame["beats_sentinels"] = [better[name] for name in self.table.values]
        numbers = ["value", "low", "high"]
        return TableStyle.of(columns, digits, percent=percent).frame(frame, numbers, keep=["metric"])

    def cite(self) -> str:
        """A description for a paper: a sentence with protocol, amount of data, intervals and test, and the
        BibTeX entries of data set and metrics; see ``capbench compare --cite``."""
        from capbench.reports.cite import cite_comparison

        return cite_comparison(self, self.dataset_title, self.statistic)

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

        return comparison_html(self, self.dataset_title, self.statistic, percent=self.percent)


SYSTEM_METRICS = ("bleu-4", "rouge-l", "meteor", "cider")
"""Default metrics of a comparison of systems."""
_TESTS = ("permutation", "bootstrap")
_CORRECTIONS = ("holm", "bh", "none")


def compare_systems(
    systems: Mapping[str, PathGiven] | Sequence[PathGiven],
    references: PathGiven,
    metrics: MetricsGiven = SYSTEM_METRICS,
    *,
    test: SystemTest = "permutation",
    correction: Correction = "holm",
    resamples: int | None = None,
    permutations: int | None = None,
    seed: int = 0,
    all_pairs: bool = False,
    examples: int = 0,
    keep_first: bool = False,
    split: str | None = None,
    restrict: bool = False,
    options: OptionsGiven | None = None,
    features: FilesGiven | None = None,
    model: FilesGiven | None = None,
    images: PathGiven | None = None,
    data: PathGiven | None = None,
    cache: bool = True,
    version: VersionGiven | None = None,
    progress: bool | ProgressFactory = False,
) -> SystemComparison:
    """Test whether captioning systems differ in their corpus scores, as ``capbench compare-systems`` does.

    Args:
        systems: files of captions by the systems' names, the baseline first; or a list of files, which name them.
        references: the file of references.
        metrics: names, functions or classes, or a dictionary of them by label.
        test: ``permutation`` or ``bootstrap``; both are paired, by image.
        correction: correction for the number of comparisons, ``holm``, ``bh`` or ``none``.
        resamples: number of bootstrap resamples and permutations; by default 1,000 and 10,000.
        permutations: number of permutations, if it differs from that of the resamples.
        seed: seed of both.
        all_pairs: True to compare all pairs, False to compare each system with the baseline.
        keep_first: True to compare the first caption of each image; by default, several captions are an error.
        split: see :func:`score`, as for ``restrict``.
        options: see :class:`capbench.api.resolve.MetricInputs`, as for ``features``, ``model``, ``images``, ``data``,
            ``cache`` and ``version``.
        progress: see :func:`capbench.api.caller.python_caller`.

    Raises:
        UsageError: there are fewer than two systems, two have the same name, or an argument is invalid.
        DataError: a file has invalid content, or systems caption different images.
        MetricError: a requirement of a metric is missing, or it failed.
    """
    inputs = given_inputs(locals())
    check_arguments(
        {**inputs, "metrics": metrics, "progress": progress, "permutations": permutations, "seed": seed}
        | {"keep_first": keep_first, "split": split, "restrict": restrict}
    )
    entries = systems.items() if isinstance(systems, Mapping) else ((Path(file).stem, file) for file in systems)
    return system_comparison(
        [(name, Path(file)) for name, file in entries],
        Path(references),
        metrics,
        inputs,
        python_caller(progress),
        test=test,
        correction=correction,
        resamples=resamples,
        permutations=permutations,
        seed=seed,
        all_pairs=all_pairs,
        examples=examples,
        keep_first=keep_first,
        split=split,
        restrict=restrict,
    )


def system_comparison(
    systems: Sequence[tuple[str, Path]],
    references: Path,
    metrics: MetricsGiven,
    inputs: MetricInputs,
    caller: Caller,
    *,
    test: str,
    correction: str,
    resamples: int | None,
    permutations: int | None = None,
    seed: int,
    all_pairs: bool,
    examples: int = 0,
    keep_first: bool = False,
    split: str | None = None,
    restrict: bool = False,
) -> SystemComparison:
    """Compare systems for Python or the command line; see :func:`compare_systems`."""
    for argument, value, choices in (("test", test, _TESTS), ("correction", correction, _CORRECTIONS)):
        if value not in choices:
            raise UsageError(
                f"{caller.spelled(argument)} {value}: unknown",
                code="wrong-value",
                value=value,
                hint=suggest(str(value), list(choices)),
            )
    files: dict[str, Path] = {}
    for name, file in systems:
        if name in files:
            raise UsageError(
                f"two systems have the name '{name}': {files[name]} and {file}",
                code="duplicate",
                value=name,
                hint=f"Name them: NAME={file}",
            )
        files[name] = file
    if len(files) < 2:
        raise UsageError(
            "a comparison requires two systems", code="too-few", hint="Pass a baseline and one or more systems"
        )
    resolved = resolve(metrics, inputs, caller)
    spelled = caller.spelled("keep_first")
    if restrict and split is None:
        message = f"{caller.spelled('restrict')} requires {caller.spelled('split')}"
        raise UsageError(message, code="missing-option", hint=f"Add {caller.spelled('split')}")
    options = ReadingOptions(split, restrict, caller.spelled("split"), caller.spelled("restrict"))
    captions = read_systems(files, references, keep_first=keep_first, keep_option=spelled, options=options)
    for request in resolved.requests:
        for items in captions.items.values():
            request.metric.check_captions(items)
    first, *_ = captions.items.values()
    if note := note_without_candidate(captions.without_candidate, first, references.name):
        caller.note(note)
    for name, left_out in captions.left_out.items():
        if left_out:
            caller.note(f"{name}: {count(left_out, 'further caption')} of the same images left out ({spelled})")
    return _compare(
        captions,
        resolved.requests,
        test=test,  # type: ignore[arg-type]  # checked above, as is the next one
        correction=correction,  # type: ignore[arg-type]
        resamples=resamples,
        permutations=permutations,
        seed=seed,
        all_pairs=all_pairs,
        examples=examples,
        resources=resolved.resources,
        cache=resolved.cache,
        progress=caller.progress,
    )

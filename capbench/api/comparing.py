"""``capbench.compare`` and ``capbench.power``: differences between metrics in agreement with human judgements.

``capbench.compare_systems`` tests captioning systems against each other on the same images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from capbench.api.agreement import CorrelationResult, StudyRequest, plan_agreement, warn_of_missing
from capbench.api.checking import check_arguments
from capbench.api.resolve import (
    Caller,
    DatasetGiven,
    FilesGiven,
    MetricInputs,
    MetricsGiven,
    OptionsGiven,
    PathGiven,
    ScoresGiven,
    VersionGiven,
    given_inputs,
    python_caller,
    resolve,
    resolve_judged,
)
from capbench.core.errors import UsageError, count, suggest
from capbench.datasets.user.caption_warnings import note_without_candidate
from capbench.datasets.user.captions import ReadingOptions, read_systems
from capbench.stats.power import FEWEST_UNITS
from capbench.stats.significance import RESAMPLES
from capbench.studies.judged import ProgressFactory
from capbench.studies.power import MetricPower, metric_power
from capbench.studies.study import BootstrapSettings, StatisticsChoice
from capbench.studies.systems import SystemComparison
from capbench.studies.systems import compare_systems as _compare

if TYPE_CHECKING:
    from capbench.stats.pairs import Correction, Test, Unit
    from capbench.stats.systems import SystemTest

__all__ = [
    "SYSTEM_METRICS",
    "compare",
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
) -> CorrelationResult:
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
    statistics = StatisticsChoice(
        bootstrap=resamples or RESAMPLES,
        compare=test or "permutation",
        correction=correction,
        permutations=resamples,
        unit=unit,
        seed=seed,
    )
    request = StudyRequest(
        datasets=dataset,
        metrics=metrics,
        protocols=protocol,
        statistics=statistics,
        sentinels=sentinels,
        comparison=True,
    )
    result = plan_agreement(request, given_inputs(locals()), python_caller(progress)).run()
    warn_of_missing(result)
    return result


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
    return power_judged(
        metrics,
        dataset,
        protocol,
        given_inputs(locals()),
        python_caller(progress),
        power=power,
        alpha=alpha,
        gap=gap,
        resamples=resamples,
        seed=seed,
        unit=unit,
    )


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
) -> MetricPower:
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
    return result


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

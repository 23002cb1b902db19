"""``capbench.compare`` and ``capbench.power``: differences between metrics in agreement with human judgements."""

from __future__ import annotations

from collections.abc import Mapping
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
    resolve_judged,
)
from capbench.core.errors import UsageError, count
from capbench.stats.power import FEWEST_UNITS
from capbench.stats.significance import RESAMPLES
from capbench.studies.judged import ProgressFactory
from capbench.studies.power import MetricPower, metric_power
from capbench.studies.study import BootstrapSettings, StatisticsChoice

if TYPE_CHECKING:
    from capbench.stats.pairs import Correction, Test, Unit

__all__ = [
    "compare",
    "power",
    "power_judged",
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

"""``capbench.compare``, ``power`` and ``combine``: metrics against and with each other under one protocol."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Le
from typing_extensions import Unpack

from capbench.api.agreement import plan_judged, warn_of_missing
from capbench.api.arguments import CombinationChoices, Statistics
from capbench.api.caller import Caller, ProgressGiven, python_caller
from capbench.api.checking import checked
from capbench.api.resolve import DatasetGiven, Inputs, MetricInputs, MetricsGiven
from capbench.core.arguments import Correction, OpenShare, Resamples, Seed, Test, Unit
from capbench.core.errors import StatisticError, count
from capbench.core.files import check_writable
from capbench.stats.nested_cross_validation import Settings
from capbench.stats.power import FEWEST_UNITS
from capbench.stats.significance import RESAMPLES
from capbench.studies.plan import Plan
from capbench.studies.power import MetricPower, metric_power
from capbench.studies.results import NO_TESTS, StudyResult
from capbench.studies.run import Keep, run_plan
from capbench.studies.scoring import refuse_means

if TYPE_CHECKING:
    from capbench.studies.combine import CombinationResult


@checked
def compare(
    dataset: DatasetGiven,
    metrics: MetricsGiven = (),
    *,
    protocol: str | None = None,
    test: Test = "permutation",
    correction: Correction = "holm",
    resamples: Resamples | None = None,
    seed: Seed = 0,
    unit: Unit = "image",
    sentinels: bool = True,
    progress: ProgressGiven = False,
    **inputs: Unpack[MetricInputs],
) -> StudyResult:
    """Test whether metrics differ in how well they agree with human judgements, as ``capbench compare`` does.

    This is :func:`capbench.correlate` under one protocol with intervals, tests and sentinels, the best metrics first.
    ``resamples`` is the number of bootstrap resamples (by default 1,000) and of permutations (10,000; the number of
    pairs may require more). Other inputs: :class:`capbench.api.resolve.MetricInputs`.
    """
    caller = python_caller(progress)
    tests: Statistics = {"compare": test, "correction": correction, "unit": unit, "seed": seed}
    if resamples is not None:
        tests |= {"bootstrap": resamples, "permutations": resamples}
    plan = plan_comparison(dataset, metrics, protocol, inputs, caller, tests, sentinels=sentinels)
    result = run_comparison(plan, caller, cache=inputs.get("cache", True))
    warn_of_missing(result)
    return result


def plan_comparison(
    dataset: DatasetGiven,
    metrics: MetricsGiven,
    protocol: str | None,
    inputs: Inputs,
    caller: Caller,
    statistics: Statistics,
    *,
    sentinels: bool,
) -> Plan:
    """A comparison for Python or the command line: two metrics or more, which are all required; see :func:`compare`."""
    usual: Statistics = {"bootstrap": RESAMPLES, "compare": "permutation"}
    stated = {name: value for name, value in statistics.items() if value is not None}
    tests = {**usual, **stated}
    plan = plan_judged(dataset, metrics, protocol, inputs, caller, tests, at_least=2, sentinels=sentinels)
    for _, chosen in plan.protocols:
        refuse_means(chosen)
    return plan


def run_comparison(plan: Plan, caller: Caller, *, cache: bool = True, keep: Keep | None = None) -> StudyResult:
    """The result with the best metrics first; StatisticError if fewer than two metrics have a value."""
    result = run_plan(plan, caller.progress, cache=cache, test_groups=False, announce=caller.announce, keep=keep)
    (protocol,) = result.protocols
    tests = result.comparison(protocol.id)
    if tests is None:
        reasons = [f"{cell.title}: {cell.undefined}" for cell in result.undefined if not cell.group]
        reasons += [f"{missing.title}: {missing.reason}" for missing in result.missing]
        reasons += [note.partition(NO_TESTS)[2] for note in protocol.notes if NO_TESTS in note]
        raise StatisticError(reasons[0], code="missing-value", value=protocol.id)
    best_first = dict.fromkeys((*tests.ranks, *result.columns))
    columns = {name: result.columns[name] for name in best_first}
    return result.model_copy(update={"columns": columns})


@checked
def power(
    dataset: DatasetGiven,
    metrics: MetricsGiven = (),
    *,
    protocol: str | None = None,
    power: OpenShare = 0.8,
    alpha: OpenShare = 0.05,
    gap: Annotated[float, Ge(-2), Le(2)] | None = None,
    resamples: Resamples = 500,
    seed: Seed = 0,
    unit: Unit = "image",
    progress: ProgressGiven = False,
    **inputs: Unpack[MetricInputs],
) -> MetricPower:
    """Estimate how many images are needed to distinguish two metrics, as ``capbench compare --power`` does.

    ``gap`` is the difference to find (a share for accuracies), by default the measured one; ``power`` the probability
    with which it should be found. Other inputs: :class:`capbench.api.resolve.MetricInputs`.
    """
    caller = python_caller(progress)
    plan = plan_judged(dataset, metrics, protocol, inputs, caller)
    result = metric_power(
        *plan.protocols[0],
        plan.requests,
        target=power,
        alpha=alpha,
        gap=gap,
        resamples=resamples,
        seed=seed,
        unit=unit,
        resources=plan.resources,
        cache=inputs.get("cache", True),
        progress=caller.progress,
    )
    if result.power.units < FEWEST_UNITS:
        have = count(result.power.units, result.power.unit)
        caller.note(f"{have} are too few for a reliable estimate, which requires {FEWEST_UNITS}")
    return result


class CombinationInputs(MetricInputs, CombinationChoices, total=False):
    """Inputs of the metrics, and how the combination is learned."""


@checked
def combine(
    dataset: DatasetGiven,
    metrics: MetricsGiven = (),
    *,
    protocol: str | None = None,
    progress: ProgressGiven = False,
    **inputs: Unpack[CombinationInputs],
) -> CombinationResult:
    """Learn one score from several metrics, as ``capbench train combination`` does.

    Other inputs: :class:`capbench.api.arguments.CombinationChoices` and :class:`capbench.api.resolve.MetricInputs`.
    """
    from capbench.metrics.combination import saved_name, write_combination
    from capbench.metrics.scoring import check_ending, write_scores
    from capbench.studies.combine import combine_metrics, learner_for

    caller, seed, resamples = python_caller(progress), inputs.get("seed", 0), inputs.get("resamples")
    save, out = (None if path is None else Path(path) for path in (inputs.get("save"), inputs.get("out")))
    for path in filter(None, (save, out)):
        check_writable(path)
    if out is not None:
        check_ending(out)
    tests = {"bootstrap": resamples or RESAMPLES, "compare": "permutation", "permutations": resamples, "seed": seed}
    plan = plan_judged(dataset, metrics, protocol, inputs, caller, tests)
    ((_, chosen),) = plan.protocols
    refuse_means(chosen)
    if save is not None:
        for request in plan.requests:
            saved_name(request)
    learner = learner_for(chosen, inputs.get("learner", "auto"))
    settings = Settings(learner, inputs.get("folds", 10), inputs.get("inner_folds", 5), seed)
    result, tables = combine_metrics(plan, settings, caller.progress, cache=inputs.get("cache", True))
    if out is not None:
        write_scores(tables[0], out)
        if len(tables) > 1:
            caller.tell(f"{out} has the scores of the first of {len(tables)} samples of references")
    if save is not None and result.combination is not None:
        write_combination(result.combination, save)
    return result

"""``capbench compare``: test whether one metric agrees better with human judgements than another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from capbench.cli import common
from capbench.cli.options import MetricNames, ScoringInputs, SentinelsOption, Target
from capbench.cli.report import ReportOption, write_report
from capbench.core.arguments import Bootstrap, Correction, Help, Permutations, Seed, Test, Unit

if TYPE_CHECKING:
    from capbench.api.arguments import Statistics


def compare(
    *,
    names: MetricNames,
    target: Target,
    test: Annotated[Test | None, Help("Test of each pair. Default: permutation.")] = None,
    correction: Annotated[Correction | None, Help("Correction for the number of pairs. Default: holm.")] = None,
    bootstrap: Bootstrap | None = None,
    permutations: Permutations | None = None,
    share: Annotated[
        float | None, Help("Instead: images that distinguish two metrics. Default: 0.8.", ("--power",), "[SHARE]")
    ] = None,
    gap: Annotated[
        float | None, Help("With --power: difference to detect. Default: the measured one.", metavar="SIZE")
    ] = None,
    alpha: Annotated[float, Help("Significance level, two-sided.", metavar="SHARE")] = 0.05,
    seed: Annotated[Seed, Help("Seed of resamples and permutations.")] = 0,
    unit: Annotated[Unit, Help("Unit of resampling.")] = "image",
    sentinels: SentinelsOption = None,
    report: ReportOption = None,
    cite: common.CiteOption = False,
    details: common.DetailsOption = False,
    digits: common.DigitsOption = None,
    inputs: ScoringInputs,
    json_output: common.JsonOption = False,
) -> None:
    """Test whether metrics differ in human agreement.

    Prints 95 % bootstrap intervals over images, and one sentence for each pair of metrics. With --power, estimates how
    many images a study requires. See docs/statistics.md.

    Example: capbench compare cider meteor --dataset flickr8k-expert

    Example: capbench compare cider meteor -d composite --power 0.9 --gap 0.02
    """
    from capbench.api.comparing import plan_comparison, power, run_comparison
    from capbench.core.files import check_writable
    from capbench.reports.compare import power_table, print_comparison
    from capbench.reports.table import TableStyle
    from capbench.studies.item_scores import Collector

    if share is not None:
        of_tests: dict[str, object] = {"test": test, "correction": correction, "permutations": permutations}
        others = {"report": report, "sentinels": sentinels, "cite": cite}
        common.refuse_options(of_tests | others, "does not apply to --power")
        caller = common.caller(json_output=json_output)
        estimate = power(
            target.dataset,
            names.names,
            protocol=target.protocol,
            power=share,
            alpha=alpha,
            gap=gap,
            resamples=bootstrap or 500,
            seed=seed,
            unit=unit,
            progress=caller,
            **inputs.values(),
        )
        common.answer(json_output, estimate.as_json(), [power_table(estimate)], details=details)
        return
    common.refuse_options({"gap": gap}, "requires --power", code="missing-option", hint="Add --power, or omit it")
    if json_output:
        common.refuse_options({"cite": cite}, "does not apply to --json")
    if report is not None:
        check_writable(report)
    if test not in (None, "permutation"):
        common.refuse_options({"permutations": permutations}, f"does not apply to --test {test}")
    # The resamples of a bootstrap test are those of the intervals.
    draws = bootstrap if test == "bootstrap" else permutations
    statistics: Statistics = {"alpha": alpha, "unit": unit, "seed": seed, "correction": correction}
    statistics |= {"permutations": draws, "bootstrap": bootstrap, "compare": test}
    caller = common.caller(json_output=json_output)
    plan = plan_comparison(
        target.dataset,
        names.names,
        target.protocol,
        inputs.values(),
        caller,
        statistics,
        sentinels=sentinels is not False,
    )
    collector = Collector() if report is not None else None
    result = run_comparison(plan, caller, cache=inputs.cache, keep=collector)
    style = TableStyle(digits=digits)
    common.answer(json_output, result, lambda: print_comparison(result, common.out(), details=details, style=style))
    if cite:
        print(f"\n{result.cite()}", end="")
    write_report(report, result, collector, plan)
    common.leave_if_missing(result)

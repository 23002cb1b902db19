"""``capbench compare``: test whether one metric agrees better with human judgements than another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from capbench.cli import common
from capbench.cli.options import MetricNames, ScoringInputs, SentinelsOption, Target, with_groups
from capbench.cli.report import ExplanationsOption, ReportOption, check_report, write_report
from capbench.core.arguments import Bootstrap, Correction, Help, Resamples, Seed, Test, Unit

if TYPE_CHECKING:
    from capbench.api.arguments import Statistics
    from capbench.studies.power import MetricPower

RESAMPLES = 1000
_RESAMPLES_OF_POWER = 500
"""Default number of resamples at each number of images."""


@with_groups
def compare(
    *,
    names: MetricNames,
    target: Target,
    test: Annotated[Test | None, Help("Test of each pair. Default: permutation.")] = None,
    correction: Annotated[Correction | None, Help("Correction for the number of pairs. Default: holm.")] = None,
    bootstrap: Bootstrap | None = None,
    permutations: Annotated[
        Resamples | None, Help("Permutations of the tests. Default: 10,000, or more if needed.", metavar="N")
    ] = None,
    share: Annotated[
        float | None,
        typer.Option(
            "--power",
            metavar="[SHARE]",
            help="Instead of tests: estimate how many images distinguish two metrics with this power. Default: 0.8.",
        ),
    ] = None,
    gap: Annotated[
        float | None,
        Help("With --power: difference to detect (accuracies: a share). Default: the measured one.", metavar="SIZE"),
    ] = None,
    alpha: Annotated[float, Help("Significance level, two-sided.", metavar="SHARE")] = 0.05,
    seed: Annotated[Seed, Help("Seed of resamples and permutations.")] = 0,
    unit: Annotated[Unit, Help("Unit of resampling.")] = "image",
    sentinels: SentinelsOption = None,
    report: ReportOption = None,
    explanations: ExplanationsOption = None,
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

    Example: capbench compare -m bleu-4,rouge-l,meteor,cider -d pascal-50s --correction bh

    Example: capbench compare cider meteor -d composite --report page.html

    Example: capbench compare cider meteor -d composite --power 0.9 --gap 0.02
    """
    from capbench.api.comparing import plan_comparison, power_judged, run_comparison
    from capbench.api.resolve import resolve_judged
    from capbench.reports.compare import print_comparison
    from capbench.studies.item_scores import Collector

    if share is not None:
        of_tests: dict[str, object] = {"test": test, "correction": correction, "permutations": permutations}
        others = {"report": report, "explanations": explanations, "sentinels": sentinels, "cite": cite}
        common.refuse_options(of_tests | others, "does not apply to --power")
        caller = common.caller(json_output=json_output, no_metric="Name two, or pass --scores FILE")
        judged = resolve_judged(names.names, target.dataset, target.protocol, inputs.values(), caller)
        choices = {"alpha": alpha, "gap": gap, "resamples": bootstrap or _RESAMPLES_OF_POWER, "seed": seed}
        power = power_judged(judged, power=share, unit=unit, **choices)
        if json_output:
            common.print_json(power.as_json())
        else:
            _print_power(power)
        return
    common.refuse_options({"gap": gap}, "requires --power", code="missing-option", hint="Add --power, or omit it")
    if json_output:
        common.refuse_options({"cite": cite}, "does not apply to --json")
    if report is not None:
        check_report(report)
    else:
        common.refuse_options(
            {"explanations": explanations}, "requires --report", code="missing-option", hint="Add --report FILE"
        )
    if test not in (None, "permutation"):
        common.refuse_options({"permutations": permutations}, f"does not apply to --test {test}")
    # The resamples of a bootstrap test are those of the intervals.
    draws = bootstrap if test == "bootstrap" else permutations
    statistics: Statistics = {"alpha": alpha, "unit": unit, "seed": seed, "correction": correction}
    statistics |= {"permutations": draws, "bootstrap": bootstrap or RESAMPLES, "compare": test or "permutation"}
    caller = common.caller(json_output=json_output, no_metric="Name two or more, or pass --scores FILE")
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
    if json_output:
        common.print_json(result.model_dump(mode="json"))
    else:
        from capbench.reports.compare import print_comparison
        from capbench.reports.table import TableStyle

        print_comparison(result, common.out(), details=details, style=TableStyle(digits=digits))
        if cite:
            print(f"\n{result.cite()}", end="")
    write_report(report, result, collector, plan, explanations)
    common.leave_if_missing(result)


def _print_power(result: MetricPower) -> None:
    from rich import box
    from rich.table import Table

    from capbench.core.records import signature_lines
    from capbench.datasets.protocol import with_version
    from capbench.reports.table import number

    def show(value: float) -> str:
        return number(value)

    power = result.power
    better, worse = (power.first, power.second) if power.difference >= 0 else (power.second, power.first)
    values = f"{result.statistic} {show(result.values[better])} against {show(result.values[worse])}"
    if power.gap == abs(power.difference):
        purpose = f"to distinguish {better} from {worse} ({values}, difference {show(power.gap)})"
    else:
        purpose = f"to detect a difference of {show(power.gap)} between {better} and {worse} (measured: {values})"
    console = common.out()
    console.print(
        f"{power.needed:,} {power.unit}s are needed {purpose} with {100 * power.target:g} % power at "
        f"α = {power.alpha:g}; the data has {power.units:,} {power.unit}s.",
        markup=False,
        soft_wrap=True,
    )
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head in (f"{power.unit}s", "standard error", "power"):
        shown.add_column(head, justify="right")
    for point in power.points:
        shown.add_row(f"{point.units:,}", show(point.standard_error), f"{100 * point.power:.0f} %")
    console.print(shown)
    drawn = (
        f"{with_version(result.protocol, result.version)}: {result.n:,} {result.data_points}; standard errors of the "
        f"difference from {power.resamples:,} resamples of each number of {power.unit}s, seed {power.seed}; "
        f"two-sided test, α = {power.alpha:g}"
    )
    for line in (drawn, *result.notes, *signature_lines(result.signatures)):
        console.print(line, style="dim", markup=False, soft_wrap=True)

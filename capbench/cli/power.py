"""``capbench power``: estimate how many images are needed to distinguish two metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from capbench.cli import common
from capbench.cli.options import ScoringInputs, Target, with_groups

if TYPE_CHECKING:
    from capbench.studies.uncertainty import MetricPower

__all__ = ["power"]


@with_groups
def power(
    *,
    metric: Annotated[
        list[str] | None,
        typer.Argument(metavar="METRIC METRIC", help="Two metrics, or columns of --scores.", show_default=False),
    ] = None,
    target: Target,
    share: Annotated[
        float, typer.Option("--power", metavar="SHARE", help="Probability of detecting the difference.")
    ] = 0.8,
    alpha: Annotated[float, typer.Option("--alpha", metavar="SHARE", help="Significance level, two-sided.")] = 0.05,
    gap: Annotated[
        float | None,
        typer.Option(
            "--gap", metavar="SIZE", help="Difference to detect (accuracies: a share). Default: the measured one."
        ),
    ] = None,
    resamples: Annotated[int, typer.Option("--resamples", min=100, help="Number of resamples at each size.")] = 500,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the resamples.")] = 0,
    unit: Annotated[common.Unit, typer.Option("--unit", help="Unit of resampling.")] = "image",
    inputs: ScoringInputs,
    json_output: common.JsonOption = False,
) -> None:
    """Estimate how many images separate two metrics.

    The power analysis estimates the standard error of the difference from resamples of several sizes. Use it to plan a
    study; the power for the measured difference on the same data only restates the p-value. See docs/statistics.md.

    Example: capbench power cider meteor --dataset flickr8k-expert

    Example: capbench power bleu-4 rouge-l -d composite --power 0.9 --gap 0.02
    """
    from capbench.api.comparing import power_judged

    measured = power_judged(
        metric or [],
        target.dataset,
        target.protocol,
        inputs.values(),
        common.caller(json_output=json_output, no_metric="Name two, or pass --scores FILE"),
        power=share,
        alpha=alpha,
        gap=gap,
        resamples=resamples,
        seed=seed,
        unit=unit,
    )
    if json_output:
        common.print_json(measured.result.as_json())
    else:
        statistic = measured.statistic
        _print(measured.result, statistic.label, statistic.data_points, percent=statistic.kind == "accuracy")


def _print(result: MetricPower, label: str, data_points: str, *, percent: bool) -> None:
    from rich import box
    from rich.table import Table

    from capbench.core.records import signature_lines
    from capbench.datasets.protocol import with_version
    from capbench.reports.tables import number

    def show(value: float) -> str:
        return number(value, percent)

    power = result.power
    console = common.out()
    console.print(_sentence(result, label, show), markup=False, soft_wrap=True)
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head in (f"{power.unit}s", "standard error", "power"):
        shown.add_column(head, justify="right")
    for point in power.points:
        shown.add_row(f"{point.units:,}", show(point.standard_error), f"{100 * point.power:.0f} %")
    console.print(shown)
    console.print(
        f"{with_version(result.protocol, result.version)}: {result.n:,} {data_points}; standard errors of the "
        f"difference from {power.resamples:,} resamples of each number of {power.unit}s, seed {power.seed}; "
        f"two-sided test, α = {power.alpha:g}",
        style="dim",
        markup=False,
        soft_wrap=True,
    )
    for line in (*result.notes, *signature_lines(result.signatures)):
        console.print(line, style="dim", markup=False, soft_wrap=True)


def _sentence(result: MetricPower, label: str, show: Callable[[float], str]) -> str:
    power = result.power
    better, worse = (power.first, power.second) if power.difference >= 0 else (power.second, power.first)
    values = f"{label} {show(result.values[better])} against {show(result.values[worse])}"
    if power.gap == abs(power.difference):
        purpose = f"to distinguish {better} from {worse} ({values}, difference {show(power.gap)})"
    else:
        purpose = f"to detect a difference of {show(power.gap)} between {better} and {worse} (measured: {values})"
    return (
        f"{power.needed:,} {power.unit}s are needed {purpose} with {100 * power.target:g} % power at "
        f"α = {power.alpha:g}; the data has {power.units:,} {power.unit}s."
    )

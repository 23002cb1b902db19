"""What a comparison of metrics says in words, and the comparison as HTML."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from capbench.analyses.comparing import MetricComparison
from capbench.datasets.protocol import StatisticSpec, with_version
from capbench.records import signature_lines
from capbench.reports.html import SAMPLE, document, html_table
from capbench.reports.tables import number
from capbench.stats.significance import Comparison

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["basis", "comparison_html", "print_comparison", "sentence"]


def sentence(pair: Comparison, comparison: MetricComparison, label: str, *, percent: bool) -> str:
    """One sentence on a pair: which metric agrees better with people, or that they do not differ.

    Args:
        pair: the pair's test.
        comparison: what it is one of.
        label: short name of the statistic (``τ-c``).
        percent: whether values are shown times 100.
    """

    def show(value: float) -> str:
        return number(value, percent)

    values = comparison.table.values
    interval = "" if pair.low is None or pair.high is None else f" [{show(pair.low)}, {show(pair.high)}]"
    evidence = (
        f"{label} {show(values[pair.better])} against {show(values[pair.worse])}, difference {show(pair.difference)}"
        f"{interval}, p = {pair.p_adjusted:.4f}"
    )
    if pair.significant:
        return f"{pair.better} agrees better with people than {pair.worse}: {evidence}."
    return f"{pair.better} and {pair.worse} do not differ significantly: {evidence}."


def basis(comparison: MetricComparison, data_points: str = "judgements") -> str:
    """What was tested on which data, and how; one line.

    Args:
        comparison: the comparison.
        data_points: what the statistic counts, in words.
    """
    table = comparison.table
    over = "" if table.unit is None else f" over {table.units:,} {table.unit}s"
    drawn = "" if table.resamples is None else f", {table.resamples:,} times, seed {table.seed}"
    return (
        f"{with_version(comparison.protocol, comparison.version)}: {comparison.n:,} {data_points}; "
        f"{table.test} test{over}{drawn}; "
        f"correction {table.correction}, α = {table.alpha:g}"
    )


def comparison_html(comparison: MetricComparison, label: str, *, percent: bool) -> str:
    """A comparison as a piece of HTML: the metrics, a sentence for each pair, what it stands on."""
    table = comparison.table
    rows = []
    for name, value in table.values.items():
        interval = comparison.intervals[name]
        ends = f"{number(interval.low, percent)} – {number(interval.high, percent)}"
        rows.append([name, number(value, percent), ends, f"{table.ranks[name]}{'*' if name in table.top else ''}"])
    shown = html_table(["metric", label, "95 % interval", "rank"], rows)
    sentences = [sentence(pair, comparison, label, percent=percent) for pair in table.pairs]
    notes = ["* not significantly worse than the best", *sentences, basis(comparison), *comparison.notes]
    return document(
        f"<p><strong>{escape(comparison.protocol)}</strong></p>",
        shown,
        notes=[*([SAMPLE] if comparison.sample else []), *notes],
        signatures=signature_lines(comparison.signatures),
    )


def print_comparison(
    comparison: MetricComparison, statistic: StatisticSpec, console: Console, *, of: str | None = None
) -> None:
    """Print a comparison: the metrics, a sentence for each pair, what it stands on, signatures.

    Args:
        comparison: the comparison.
        statistic: of its protocol.
        console: where to.
        of: the metric whose pairs get a sentence; None for all pairs.
    """
    from rich import box
    from rich.table import Table

    percent = statistic.kind == "accuracy"

    def show(value: float) -> str:
        return number(value, percent)

    table = comparison.table
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    shown.add_column("metric")
    for head in (statistic.label, "95 % interval", "rank"):
        shown.add_column(head, justify="right")
    for name, value in table.values.items():
        interval = comparison.intervals[name]
        best = "*" if name in table.top else ""
        shown.add_row(name, show(value), f"{show(interval.low)} – {show(interval.high)}", f"{table.ranks[name]}{best}")
    console.print(shown)
    console.print("* not significantly worse than the best", style="dim")
    for pair in table.pairs:
        if of is None or of in (pair.better, pair.worse):
            console.print(sentence(pair, comparison, statistic.label, percent=percent), markup=False, soft_wrap=True)
    console.print(basis(comparison, statistic.data_points), style="dim", markup=False, soft_wrap=True)
    for line in (*comparison.notes, *signature_lines(comparison.signatures)):
        console.print(line, style="dim", markup=False, soft_wrap=True)

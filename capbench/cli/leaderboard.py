"""``capbench leaderboard``: metrics, score files and published numbers on all judged data sets, in one table."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from capbench.cli import common
from capbench.cli.options import MetricNames, ScoringInputs, with_groups
from capbench.cli.study_flags import LeftOut


@with_groups
def leaderboard(
    *,
    names: MetricNames,
    dataset: Annotated[
        list[str] | None,
        typer.Option("--dataset", "-d", metavar="NAME", help="Only this data set, or file of judgements; repeatable."),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option("--column", metavar="NAME", help="Only this column, such as pascal-mm; repeatable, or a list."),
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option("--sort", metavar="COLUMN", help="Order of the rows. Default: rank, or the first --column."),
    ] = None,
    digits: Annotated[int, typer.Option("--digits", min=0, max=6, help="Digits after the decimal point.")] = 1,
    intervals: Annotated[
        bool, typer.Option("--intervals/--no-intervals", help="Print 95 % bootstrap intervals.")
    ] = True,
    bootstrap: Annotated[int, typer.Option("--bootstrap", metavar="N", min=100, help="Resamples of intervals.")] = 1000,
    permutations: Annotated[
        int | None,
        typer.Option("--permutations", metavar="N", min=100, help="Of the tests. Default: 10,000, or more if needed."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of resamples and permutations.")] = 0,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Also write an HTML page.")] = None,
    latex: Annotated[
        Path | None,
        typer.Option("--latex", metavar="FILE", help="Also write one compact table for a paper (booktabs, graphicx)."),
    ] = None,
    from_: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="JSON", help="Show the leaderboard of a file that --json wrote; compute nothing."
        ),
    ] = None,
    left_out: LeftOut,
    inputs: ScoringInputs,
    json_output: common.JsonOption = False,
) -> None:
    """Show metrics next to all published numbers.

    One table has all metrics that can be computed without long preparation (or those named), the scores of --scores,
    and the published numbers of the same protocols, × 100, with intervals, tests, sentinels and the human ceiling.
    Metrics are in the order of capbench rank --tasks leaderboard. Published numbers under other protocols are in a
    second table. See docs/leaderboard.md.

    Exit code 1: done, but a metric has no number on an installed data set (listed), such as an incomplete score file.

    Example: capbench leaderboard --scores mine.csv

    Example: capbench leaderboard -d flickr8k-expert --scores mine.csv --html leaderboard.html --latex leaderboard.tex
    """
    from capbench.api.leaderboard import LeaderboardRequest, LeaderboardResult, compute_leaderboard
    from capbench.core.files import check_writable, write_text
    from capbench.studies.leaderboard import BY_RANK, load_leaderboard
    from capbench.studies.study import BootstrapSettings, TestSettings

    columns = [name for text in column or () for name in text.split(",")]
    for path in filter(None, (html, latex)):
        check_writable(path)
    if from_ is not None:
        common.refuse_options(
            {
                "dataset": dataset,
                "metric": names.names or None,
                "without": left_out.names or None,
                "scores": inputs.scores or None,
            },
            "with --from, nothing is computed",
        )
        result = LeaderboardResult.of(load_leaderboard(from_))
    else:
        tests = {"seed": seed} | ({} if permutations is None else {"resamples": permutations})
        request = LeaderboardRequest(
            datasets=dataset,
            metrics=names.names,
            bootstrap=BootstrapSettings.read("bootstrap", {"resamples": bootstrap, "seed": seed}),
            tests=TestSettings.read("compare", tests),
            without=left_out.names,
            command=shlex.join(["capbench", *sys.argv[1:]]),
            shown=[*columns, *([sort] if sort not in (None, BY_RANK) else [])],
        )
        result = compute_leaderboard(request, inputs.values(), common.caller(json_output=json_output))
    shown = result.chosen(columns)
    order = sort or (shown[0].name if columns or len(shown) == 1 else BY_RANK)
    result.sorted(order)
    if json_output:
        common.print_json(result.model_dump(mode="json"))
    else:
        from capbench.reports.leaderboard import print_leaderboard

        print_leaderboard(result, common.out(), columns=columns, sort=order, digits=digits, intervals=intervals)
    if html is not None:
        result.write_html(html, sort=order, digits=digits)
        common.note(f"wrote {html}")
    if latex is not None:
        write_text(latex, result.to_latex(columns, sort=order, digits=digits))
        common.note(f"wrote {latex}")
    if from_ is None and result.is_incomplete:
        raise typer.Exit(1)

"""``capbench leaderboard``: metrics, score files and published numbers on all judged data sets, in one table."""

from __future__ import annotations

import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from annotated_types import Ge, Le

from capbench.cli import common
from capbench.cli.options import LeftOut, MetricNames, ScoringInputs
from capbench.core.arguments import Help, Permutations, Resamples, Seed


def leaderboard(
    *,
    names: MetricNames,
    dataset: Annotated[
        list[str] | None, Help("Only this data set or file; repeatable.", ("--dataset", "-d"), "NAME")
    ] = None,
    column: Annotated[list[str] | None, Help("Only this column; repeatable, or a list.", metavar="NAME")] = None,
    sort: Annotated[str, Help("Order of the rows. Default: the first column.", metavar="COLUMN")] = "",
    digits: Annotated[int, Ge(0), Le(6), Help("Digits after the decimal point.")] = 1,
    intervals: Annotated[bool, Help("Also print 95 % bootstrap intervals.")] = False,
    bootstrap: Annotated[Resamples, Help("Resamples of intervals. Default: 1,000.", metavar="N")] | None = None,
    permutations: Permutations | None = None,
    seed: Annotated[Seed, Help("Seed of resamples and permutations. Default: 0.")] | None = None,
    html: Annotated[Path | None, Help("Also write an HTML page.", metavar="FILE")] = None,
    latex: Annotated[Path | None, Help("Also write a table for a paper.", metavar="FILE")] = None,
    from_: Annotated[Path | None, Help("Show the leaderboard that --json wrote.", ("--from",), "JSON")] = None,
    compute: Annotated[bool, Help("Compute anew, as do data sets, metrics, --scores and settings of tests.")] = False,
    left_out: LeftOut,
    inputs: ScoringInputs,
    json_output: common.JsonOption = False,
) -> None:
    """Show metrics next to all published numbers.

    Shows the leaderboard that comes with capbench, sorted by one column. Published numbers stand in the columns of
    their protocol, all others in a second table. With metrics, data sets or --scores, or with --compute, computes a new
    one, by default of all metrics that need no long preparation. See docs/leaderboard.md.

    Exit code 1: done, but a metric has no number on an installed data set (listed), such as an incomplete score file.

    Example: capbench leaderboard -d flickr8k-expert --scores mine.csv --html leaderboard.html --latex leaderboard.tex
    """
    from capbench.api.ranking import leaderboard as compute_anew
    from capbench.core.files import check_writable, write_text
    from capbench.reports.leaderboard import print_leaderboard
    from capbench.studies.leaderboard import committed_leaderboard, load_leaderboard

    columns = [name for text in column or () for name in text.split(",")]
    written = [path for path in (html, latex) if path is not None]
    for path in written:
        check_writable(path)
    requests = {
        "dataset": dataset,
        "metric": names.names or None,
        "without": left_out.names or None,
        "scores": inputs.scores or None,
        "compute": compute or None,
        "bootstrap": bootstrap,
        "permutations": permutations,
        "seed": seed,
    }
    computed = any(value is not None for value in requests.values())
    if computed and from_ is None:
        result = compute_anew(
            dataset,
            names.names,
            bootstrap=bootstrap or 1000,
            permutations=permutations,
            seed=seed or 0,
            without=left_out.names,
            command=shlex.join(["capbench", *sys.argv[1:]]),
            shown=[*columns, *filter(None, [sort])],
            progress=common.caller(json_output=json_output),
            **inputs.values(),
        )
    else:
        common.refuse_options(requests, "with --from, nothing is computed")
        result = load_leaderboard(from_ or committed_leaderboard())
    sort = sort or result.chosen(columns)[0].name
    look: dict[str, Any] = {"sort": sort, "digits": digits}
    shown = partial(print_leaderboard, result, common.out(), columns=columns, intervals=intervals, **look)
    common.answer(json_output, result, shown)
    if html is not None:
        result.write_html(html, **look)
    if latex is not None:
        write_text(latex, result.to_latex(columns, **look))
    common.wrote(*written)
    if computed and result.is_incomplete:
        raise typer.Exit(1)

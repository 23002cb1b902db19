"""``capbench score``: run metrics over a data set's candidates or over a user's own captions."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from capbench.cli import common
from capbench.cli.cluster import SpreadPlace
from capbench.cli.given import Given, requested
from capbench.cli.groups import with_groups
from capbench.cli.own_captions import below_limits, own_items, parse_limits
from capbench.cli.sample import is_sample_data
from capbench.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from capbench.datasets.root import DataRoot
    from capbench.metrics.base import Resources
    from capbench.metrics.requests import MetricRequest
    from capbench.records import Item, ScoreColumn, ScoreTable
    from capbench.scoring import CorpusStatistics
    from capbench.stats.intervals import Interval

__all__ = ["score"]


@with_groups
def score(
    *,
    metric: Annotated[
        list[str],
        typer.Option("--metric", "-m", metavar="NAME", help="Metric or column (bleu, bleu-4); repeatable; or 'all'."),
    ],
    dataset: Annotated[
        str | None,
        typer.Option(
            "--dataset", "-d", metavar="NAME", help="Data set, or a file of judgements. Default: flickr8k-expert."
        ),
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option("--protocol", "-p", metavar="ID", help="Which items: dataset/items, or a full protocol id."),
    ] = None,
    draw: Annotated[int, typer.Option("--draw", min=1, help="Which random draw of references, counted from 1.")] = 1,
    candidates: Annotated[
        Path | None,
        typer.Option("--candidates", metavar="FILE", help="Own captions: COCO results JSON, or JSONL; - for stdin."),
    ] = None,
    references: Annotated[
        Path | None,
        typer.Option(
            "--references",
            metavar="FILE",
            help="Their references: COCO annotations, {image: [..]} JSON, or JSONL. Left out: reference-free.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Write every caption's score: .csv, .jsonl or .parquet."),
    ] = None,
    escape_formulas: common.EscapeOption = False,
    fail_under: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-under",
            metavar="METRIC=VALUE",
            help="Exit code 1 if the metric's corpus score is lower; repeatable.",
        ),
    ] = None,
    bootstrap: Annotated[
        bool, typer.Option("--bootstrap", help="95 % bootstrap intervals of corpus scores, over images.")
    ] = False,
    resamples: Annotated[
        int | None, typer.Option("--resamples", min=100, help="Of --bootstrap. Default: 1,000.", show_default=False)
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Of --bootstrap. Default: 0.", show_default=False)
    ] = None,
    given: Given,
    place: SpreadPlace,
    json_output: common.JsonOption = False,
) -> None:
    """Score captions with one or more metrics.

    Prints the corpus-level score and the mean and range over captions; --out writes one line for each caption and
    metric column. Scores are cached: a second run reads them and says so.

    Example: capbench score --metric bleu-4 --metric cider --dataset flickr8k-expert --out scores.csv

    Example: capbench score --metric all --candidates results.json --references captions_val2014.json

    Example: capbench score --metric cider --candidates results.json --references refs.json --bootstrap --resamples 2000

    Example: capbench score --metric faier --candidates results.json --features features.h5 --model faier.safetensors

    Example: capbench score --metric tiger --features features.h5 --model tiger=scan.safetensors

    Example: capbench score --metric meteor --candidates results.json --references refs.json --on ray --workers 8
    """
    from capbench.datasets.user.cautions import caption_cautions
    from capbench.files import check_writable
    from capbench.scoring import score_for_resampling, write_scores
    from capbench.studies.file_scores import items_with_scores

    if not bootstrap and (resamples is not None or seed is not None):
        raise UsageError("--resamples and --seed are for --bootstrap", hint="Add --bootstrap, or leave them out")
    root = given.root()
    own_captions = candidates is not None or references is not None
    sample = not own_captions and is_sample_data(root, _dataset_of(dataset, protocol))
    requests, resources = requested(metric, given, root, sample=sample)
    if own_captions and references is None:
        from capbench.metrics.asking import without_references

        requests, left_out = without_references(requests, "--references FILE")
        for line in left_out:
            common.note(line)
    score_rows = [row for request in requests for row in request.rows]
    limits = parse_limits(fail_under or [], score_rows)
    if out is not None and out.suffix.lower() not in (".csv", ".jsonl", ".parquet"):
        raise UsageError(f"--out {out}: unknown ending", hint="Use .csv, .jsonl or .parquet")
    if escape_formulas and (out is None or out.suffix.lower() != ".csv"):
        raise UsageError("--escape-formulas is for CSV files", hint="Add --out FILE.csv, or leave it out")
    if out is not None:
        check_writable(out)
    if own_captions:
        items, name = _own_items(dataset, protocol, candidates, references)
        items, joined = items_with_scores(items, requests, name, allow_missing=given.allow_missing)
        for line in joined:
            common.note(line)
        for line in caption_cautions(items, [request.metric.name for request in requests]):
            common.warn(line)
    else:
        items, name = _dataset_items(
            _dataset_of(dataset, protocol), protocol, draw, root, requests, resources, json_output
        )
    with place.spread() as spread, common.progress("scoring", len(items) * len(requests)) as step:
        table, kept = score_for_resampling(
            items,
            requests,
            resources,
            dataset=name,
            cache=given.cache,
            progress=step,
            spread=spread,
            keep=bootstrap,
        )
    intervals = _intervals(table, kept, requests, resamples or 1000, seed or 0) if bootstrap else {}
    rows = _summary(table, intervals)
    if json_output:
        common.print_json({"dataset": name, "n": len(items), "scores": rows, "signatures": dict(table.signatures)})
    else:
        _print(rows, table, name, [label for label, of in kept.items() if of.metric.corpus_id()])
    for label, lines in table.cautions.items():
        for line in lines:
            common.warn(f"{label}: {line}")
    for metric_name, count in table.cached.items():
        if count:
            common.note(f"{metric_name}: {count:,} of {len(items):,} scores came from the cache")
    if out is not None:
        write_scores(table, out, escape_formulas=escape_formulas)
        common.note(f"wrote {out}")
    failures = below_limits(table, score_rows, limits)
    for line in failures:
        common.note(line)
    if failures:
        raise typer.Exit(1)


def _dataset_of(dataset: str | None, protocol: str | None) -> str:
    """The data set that is named, or that the protocol's id names, or the default one."""
    if dataset is not None:
        return dataset
    return protocol.split("/")[0] if protocol and "/" in protocol else "flickr8k-expert"


def _own_items(
    dataset: str | None,
    protocol: str | None,
    candidates: Path | None,
    references: Path | None,
) -> tuple[tuple[Item, ...], str]:
    """A user's own captions and what to call them."""
    if candidates is None:
        raise UsageError("--references are those of --candidates", hint="Give both")
    if dataset is not None or protocol is not None:
        raise UsageError("--candidates was given together with --dataset or --protocol", hint="Give one of them")
    return own_items(candidates, references)


def _dataset_items(
    dataset: str,
    protocol: str | None,
    draw: int,
    root: DataRoot,
    requests: Sequence[MetricRequest],
    resources: Resources,
    json_output: bool,
) -> tuple[tuple[Item, ...], str]:
    """Items of one draw of a data set, which are told on stderr, and the data set's name."""
    from capbench.datasets.opening import open_dataset
    from capbench.datasets.protocol import with_version
    from capbench.studies.judged import judge

    opened = open_dataset(dataset, root)
    named = with_version(opened.name, opened.version)
    text = protocol.removeprefix(f"{named}/").removeprefix(f"{opened.name}/") if protocol else None
    chosen = opened.protocol(text)
    common.announce_root(root, json_output=json_output, used=opened.under_root)
    judged = judge(opened, chosen.items, requests, resources).require_all()
    if draw > len(judged.draws):
        raise UsageError(f"--draw {draw}: {opened.name}/{chosen.items.name} has {len(judged.draws)} draw(s)")
    judgements = judged.draws[draw - 1]
    common.note(f"items: {named}/{chosen.items.name}: {chosen.items.description}")
    for line in judgements.notes:
        common.note(f"  {line}")
    return judgements.items, opened.name


def _intervals(
    table: ScoreTable,
    kept: Mapping[str, CorpusStatistics],
    requests: Sequence[MetricRequest],
    resamples: int,
    seed: int,
) -> dict[ScoreColumn, Interval]:
    """95 % intervals of corpus scores, over images."""
    from capbench.analyses.systems import intervals_of_corpus

    return intervals_of_corpus(table, kept, requests, resamples=resamples, seed=seed, progress=common.progress)


def _summary(table: ScoreTable, intervals: Mapping[ScoreColumn, Interval]) -> list[dict[str, Any]]:
    from capbench.scoring import summary

    return [
        {**row, "interval": asdict(intervals[key])} if key in intervals else row
        for key, row in zip(table.values, summary(table), strict=True)
    ]


def _print(rows: list[dict[str, Any]], table: ScoreTable, name: str, fixed: Sequence[str]) -> None:
    from rich import box
    from rich.table import Table

    from capbench.records import signature_lines

    shown = Table(title=f"{name}: {len(table.items):,} captions", title_justify="left", box=box.SIMPLE_HEAD)
    shown.add_column("metric")
    has_intervals = any("interval" in row for row in rows)
    for head in ("corpus", *(["95 % interval"] if has_intervals else []), "mean", "min", "max"):
        shown.add_column(head, justify="right")
    for row in rows:
        cells = [f"{row[head]:.4f}" for head in ("corpus", "mean", "min", "max")]
        if has_intervals:
            cells.insert(1, f"{row['interval']['low']:.4f} – {row['interval']['high']:.4f}")
        shown.add_row(row["column"], *cells)
    console = common.out()
    console.print(shown)
    if has_intervals:
        drawn = rows[0]["interval"]
        text = f"intervals: {drawn['resamples']:,} resamples of {drawn['units']:,} images, seed {drawn['seed']}"
        text += "".join(f"; {label}'s documents are held fixed" for label in fixed)
        console.print(text, style="dim", markup=False, soft_wrap=True)
    for signature in signature_lines(table.signatures):
        console.print(signature, style="dim", markup=False, soft_wrap=True)

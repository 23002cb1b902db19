"""``capbench score``: run metrics over a data set's candidates or over a user's own captions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from capbench.cli import common
from capbench.cli.commands import NUMBER
from capbench.cli.options import ScoringInputs, SpreadPlace
from capbench.core.arguments import Bootstrap, Categories, Draw, Help, KeepFirst, Restrict, Seed, Split
from capbench.core.errors import UsageError, check_choice

if TYPE_CHECKING:
    from collections.abc import Mapping

    from capbench.api.results import ScoreTable
    from capbench.metrics.metric_request import Row
    from capbench.reports.table import Table


def parse_limits(texts: Sequence[str], rows: Sequence[Row]) -> dict[str, float]:
    """Minimum corpus scores by row of ``--fail-under`` arguments: ``METRIC=VALUE``."""
    names, limits = [row.name for row in rows], dict[str, float]()
    for text in texts:
        name, _, value = text.rpartition("=")
        if not name or not NUMBER.fullmatch(value) or math.isinf(float(value)):
            message = f"--fail-under {text} is not METRIC=VALUE"
            raise UsageError(message, code="wrong-format", value=text, hint="Example: cider=1")
        check_choice("metric of --fail-under", name, names)
        if name in limits:
            message = f"--fail-under {text} is a second limit"
            raise UsageError(message, code="duplicate", value=name, hint="Pass one for each metric")
        limits[name] = float(value)
    return limits


def score(
    *,
    metric: common.MetricsOption = None,
    dataset: Annotated[
        str | None, Help("Data set or file. Default: flickr8k-expert.", ("--dataset", "-d"), "NAME")
    ] = None,
    protocol: Annotated[str | None, Help("dataset/items, or a protocol id.", ("--protocol", "-p"), "ID")] = None,
    draw: Draw = 1,
    candidates: Annotated[
        Path | None, Help("COCO results, {image: caption}, JSONL, CSV, TSV, xlsx.", metavar="FILE")
    ] = None,
    references: common.ReferencesOption | None = None,
    keep_first: KeepFirst = False,
    split: Split | None = None,
    restrict: Restrict = False,
    categories: Categories = False,
    out: Annotated[Path | None, common.output("Write all scores: .csv, .jsonl or .parquet.")] = None,
    fail_under: Annotated[
        list[str] | None,
        Help("Exit code 3 below VALUE; repeatable.", metavar="METRIC=VALUE"),
    ] = None,
    bootstrap: Bootstrap | None = None,
    seed: Annotated[Seed | None, Help("With --bootstrap. Default: 0.")] = None,
    inputs: ScoringInputs,
    place: SpreadPlace,
    json_output: common.JsonOption = False,
) -> None:
    """Score captions with one or more metrics.

    Prints the corpus score and the mean and range over captions; --out writes one line for each caption and column.
    Scores are cached. Without --metric, text metrics that require only references are scored. With --candidates and
    without --references, only reference-free metrics are available. Several captions of an image are an error if more
    than half of the images have one.

    Example: capbench score --candidates results.json --references captions_val2014.json

    Example: capbench score -m tiger -d flickr8k-expert --features features.h5 --model scan.safetensors --out scores.csv
    """
    from capbench.api.scoring import score as compute
    from capbench.core.files import check_writable
    from capbench.metrics.scoring import check_ending, write_scores

    if bootstrap is None:
        common.refuse_options({"seed": seed}, "requires --bootstrap", code="missing-option", hint="Add --bootstrap")
    if out is not None:
        check_ending(out)
    if candidates is None and references is None:
        named = protocol.split("/")[0] if protocol and "/" in protocol else "flickr8k-expert"
        dataset = dataset or named
    limits: dict[str, float] = {}

    def check(rows: Sequence[Row]) -> None:
        limits.update(parse_limits(fail_under or [], rows))
        if out is not None:
            check_writable(out)

    table = compute(
        candidates,
        references,
        metric or (),
        dataset=dataset,
        protocol=protocol,
        draw=draw,
        keep_first=keep_first,
        split=split,
        restrict=restrict,
        bootstrap=bootstrap,
        seed=seed or 0,
        categories=categories,
        progress=replace(common.caller(json_output=json_output), on_rows=check, spread=place.spread),
        **inputs.values(),
    )
    rows, values = table.summary(), {row.name: table.corpus[row.key] for row in table.rows}
    # A row without a score has the value None and does not pass.
    verdict_of = {
        name: {"bar": bar, "value": values.get(name), "passed": name in values and values[name] >= bar}
        for name, bar in limits.items()
    }
    incomplete = {row.name: missing_scores for row, missing_scores in table.incomplete.items()}
    result: dict[str, Any] = {"dataset": table.dataset, "n": len(table), "scores": rows}
    result["signatures"] = dict(table.signatures)
    result["incomplete"] = {column: asdict(entry) for column, entry in incomplete.items()}
    if candidates is not None and references is not None:
        result["missing_captions"] = table.missing_captions
    others: dict[str, Any] = {"categories": table.by_category() if table.categories else None}
    others |= {"domains": list(table.domains), "file_columns": dict(table.file_columns)}
    others["training"] = [asdict(overlap) for overlap in table.training]
    result |= {name: value for name, value in {**others, "fail_under": verdict_of}.items() if value}
    unscored = {column: entry.instead for column, entry in incomplete.items()}
    common.answer(json_output, result, _tables(rows, table, unscored))
    for label, lines in table.cautions.items():
        for line in lines:
            common.warn(f"{label}: {line}")
    if out is not None:
        write_scores(table.with_categories, out)
        common.wrote(out)
    failures = {n: bar for n, bar in verdict_of.items() if bar["value"] is not None and not bar["passed"]}
    for name, failed in failures.items():
        common.note(f"{name}: the corpus score {failed['value']} is below {failed['bar']}")
    common.leave_if_incomplete(incomplete, code=common.BELOW_BAR if failures else 1)
    if failures:
        raise typer.Exit(common.BELOW_BAR)
    if limits and table.missing_captions:
        missing = common.count(table.missing_captions, "caption")
        common.note(f"the result of --fail-under is incomplete: {missing} missing")
        raise typer.Exit(1)


def _tables(rows: list[dict[str, Any]], table: ScoreTable, unscored: Mapping[str, str]) -> Iterator[Table | str]:
    from capbench.core.records import signature_lines
    from capbench.reports.systems import fixed_notes
    from capbench.reports.table import Table

    has_intervals = any("interval" in row for row in rows)
    heads = ["metric", "corpus", *(["95 % interval"] if has_intervals else []), "mean", "min", "max"]
    lines = []
    for row in rows:
        cells = [row["column"], *(f"{row[head]:.4f}" for head in ("corpus", "mean", "min", "max"))]
        if has_intervals:
            cells.insert(2, f"[{row['interval']['low']:.4f}, {row['interval']['high']:.4f}]")
        lines.append(cells)
    yield Table.of(heads, [*lines, *unscored.items()], f"{table.dataset}: {len(table):,} captions")
    if table.categories:
        means = table.by_category().items()
        shown = [(name, "–" if of["mean"] is None else f"{of['mean']:.4f}", f"{of['n']:,}") for name, of in means]
        yield Table.of(["category", "mean F", "captions"], shown, "SPICE by category")
    if table.domains:
        of_domain = [
            [domain["domain"], f"{domain['images']:,}", *(f"{value:.4f}" for value in domain["corpus"].values())]
            for domain in table.domains
        ]
        legend = ("Document frequencies are those of each domain's own references.",)
        heads = ["domain", "images", *(row.title for row in table.rows)]
        yield Table.of(heads, of_domain, "corpus scores by domain", legend=legend)
    if has_intervals:
        drawn = rows[0]["interval"]
        text = f"intervals: {drawn['resamples']:,} resamples of {drawn['units']:,} images, seed {drawn['seed']}"
        yield "; ".join([text, *fixed_notes(table.fixed, {row.name: row.title for row in table.rows})])
    yield from signature_lines(table.signatures)

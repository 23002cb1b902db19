"""Captions on which a metric and human ratings differ most and least (TIGEr, Table 3), as text, Markdown and HTML."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from capbench import __version__
from capbench.datasets.protocol import with_version
from capbench.reports.markup import html
from capbench.reports.table import Cell, Column, Document, Row, Table
from capbench.studies.examples import Examples

_KINDS = {
    "metric-higher": "{} higher than human ratings",
    "human-higher": "human ratings higher than {}",
    "equal": "equal",
}
_AGGREGATES = {"mode": "most frequent rating", "mean": "mean", "median": "median"}


def examples_lines(examples: Examples) -> Iterator[str]:
    """The examples as text."""
    kind = ""
    for example in examples.examples:
        if example.kind != kind:
            kind = example.kind
            yield f"\n{_KINDS[kind].format(examples.metric)}: {examples.counts[kind]:,} of {examples.n:,}"
        score = f"{examples.metric} {example.group:g} ({example.score:.3f})"
        yield f"\n  {example.image}: {example.candidate}  (humans {example.human:g}, {score})"
        yield from (f"    {text}" for text in example.references)


def examples_table(examples: Examples) -> Table:
    """Image, references, candidate, human rating, score group with the score."""
    aggregate = _AGGREGATES.get(examples.aggregation)
    counts = [f"{_KINDS[kind].format(examples.metric)}: {n:,} of {examples.n:,}" for kind, n in examples.counts.items()]
    texts = [Column("kind", text=True), Column("references", text=True, width=0.3)]
    return Table(
        f"{examples.metric} and human ratings on {examples.dataset_title}",
        (*texts, Column("candidate", text=True, width=0.25), Column("human rating"), Column(examples.metric)),
        tuple(
            Row(
                example.image,
                (
                    Cell(_KINDS[example.kind].format(examples.metric)),
                    Cell(" / ".join(example.references) or "none"),
                    Cell(example.candidate),
                    Cell(f"{example.human:g}"),
                    Cell(f"{example.group:g} ({example.score:.3f})"),
                ),
                example.kind,
            )
            for example in examples.examples
        ),
        legend=(
            "last column: the score on the human scale, by rank, and the score itself",
            *counts,
        ),
        notes=(
            *([f"several ratings of a caption are aggregated by their {aggregate}"] if aggregate else []),
            f"{with_version(examples.protocol, examples.version)}; n = {examples.n:,}; seed {examples.seed}; capbench "
            f"{__version__}",
            examples.signature,
        ),
        head="image",
    )


def examples_document(examples: Examples) -> Document:
    """The examples as a document."""
    return Document([examples_table(examples)], "examples", f"capbench {__version__}", sample=examples.sample)


def examples_page(examples: Examples) -> str:
    """The examples as a self-contained HTML page."""
    document = examples_document(examples)
    title = escape(document.tables[0].title)
    head = f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>'
    return f"{head}\n<body>{html(document)}</body></html>\n"

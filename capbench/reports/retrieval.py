"""Retrieval by metrics as a table, with the rows of the published one."""

from __future__ import annotations

from capbench.reports.table import Cell, Column, Row, Table
from capbench.studies.published.tables import load_published
from capbench.studies.retrieval import RetrievalResult

_WAYS = {"text_to_image": "→ image", "image_to_text": "→ caption"}
_HEADS = {"r@1": "R@1", "r@5": "R@5", "r@10": "R@10", "median_rank": "median"}


def retrieval_table(found: RetrievalResult) -> Table:
    """Recalls in percent and median ranks in both directions."""
    rows = []
    for result in found.results:
        numbers = [result[way][name] for way in _WAYS for name in _HEADS]
        texts = [f"{n:g}" if place % 4 == 3 else f"{n:.1f}" for place, n in enumerate(numbers)]
        rows.append(Row(result["title"], tuple(map(Cell, texts))))
    rows += [Row(title, (Cell("missing"), *[Cell()] * 7)) for title in found.missing]
    notes = [found.source]
    if found.published is not None:
        published = load_published(found.published)
        notes += [f"published: {published.source}", *published.notes]
        for row in published.rows:
            cells = []
            for way in _WAYS:
                printed = [published.values.get((f"{way.replace('_', '-')}-{k}", row.key)) for k in (1, 5, 10)]
                cells += [Cell("" if number is None else f"{100 * number.value:.1f}") for number in printed] + [Cell()]
            rows.append(Row(f"{row.title} (paper)", tuple(cells)))
    return Table(
        f"Retrieval on {found.title}",
        tuple(Column(head, group=way) for way in _WAYS.values() for head in _HEADS.values()),
        tuple(rows),
        legend=(notes[0],),
        notes=(*notes[1:], *dict.fromkeys(result["signature"] for result in found.results)),
    )

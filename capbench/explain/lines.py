"""An explanation as lines on a terminal: scores, bars, the first rows of tables, and what words look at."""

from __future__ import annotations

from collections.abc import Iterator

from capbench.explain.composing import score_pieces
from capbench.explanations import Bars, ExplainedCandidate, Explanation, Note, Panel, RegionMaps, Scores, Table, letter

__all__ = ["text_lines"]

_BARS = 8
_ROWS = 10


def text_lines(explanation: Explanation) -> list[str]:
    """All candidates; panels that only a drawing can show are left out."""
    lines = [line for panel in explanation.opening for line in _panel(panel)]
    for i, candidate in enumerate(explanation.candidates):
        lines += [f"{letter(i)}: {candidate.text}", *(f"   {line}" for line in _candidate(candidate))]
    return lines + [line for panel in explanation.comparison for line in _panel(panel)]


def _candidate(candidate: ExplainedCandidate) -> Iterator[str]:
    if candidate.human is not None:
        yield f"people {candidate.human:.2f}"
    for panel in candidate.panels:
        yield from _panel(panel)


def _panel(panel: Panel) -> Iterator[str]:
    if isinstance(panel, Scores):
        title = f"{panel.title}:  " if panel.title else ""
        yield title + "    ".join(" ".join(score_pieces(score)) for score in panel.scores)
    elif isinstance(panel, Bars) and panel.bars:
        bars = (f"{b.name} {b.value:.3f}" + (f" ({b.note})" if b.note else "") for b in panel.bars[:_BARS])
        yield f"{panel.title}: {', '.join(bars)}"
    elif isinstance(panel, Table):
        rows = [panel.heads, *panel.rows[:_ROWS]]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = (cell.ljust(wide) if i == 0 else cell.rjust(wide) for i, (cell, wide) in _placed(row, widths))
            yield "  ".join(cells).rstrip()
    elif isinstance(panel, RegionMaps):
        told = [f"{region_map.title}: {region_map.note}" for region_map in panel.maps if region_map.note]
        if told:
            yield f"{panel.title}: {'; '.join(told)}"
    elif isinstance(panel, Note):
        yield panel.text


def _placed(row: tuple[str, ...], widths: list[int]) -> Iterator[tuple[int, tuple[str, int]]]:
    return enumerate(zip(row, widths, strict=True))

"""The small charts of a report, as SVG without styles of their own: classes get their colours from the page."""

from __future__ import annotations

from collections.abc import Sequence

from capbench.analyses.item_profiles import ScoreLevel
from capbench.explain.drawing import Drawing, line, rect, text_at
from capbench.records import FloatArray

__all__ = ["interval_chart", "levels_chart"]

_WIDTH = 340.0


def interval_chart(value: float, low: float | None, high: float | None, ends: tuple[float, float], label: str) -> str:
    """One value with its interval on a scale, for a table's cell."""
    width, height = 140.0, 14.0

    def at(number: float) -> float:
        return 4 + (width - 8) * (number - ends[0]) / ((ends[1] - ends[0]) or 1.0)

    body = line(0, height / 2, width, height / 2, "scale")
    if ends[0] < 0 < ends[1]:
        body += line(at(0), 1, at(0), height - 1, "zero")
    if low is not None and high is not None:
        body += line(at(low), height / 2, at(high), height / 2, "interval")
    body += f'<circle cx="{at(value):.1f}" cy="{height / 2:.1f}" r="2.6" class="point"/>'
    return Drawing(body, width, height, label).element()


def levels_chart(levels: Sequence[ScoreLevel], edges: FloatArray, label: str, *, pairs: bool = False) -> Drawing:
    """Histograms of scores, one row a rating, with a mark at each mean.

    Args:
        levels: scores by rating, ascending.
        edges: (bins + 1,) edges of the histograms' bins.
        label: what the chart shows, for those who cannot see it.
        pairs: whether scores are differences between two captions: bins below zero are then marked.
    """
    row, left, right, top = 30.0, 48.0, 62.0, 16.0
    inner = _WIDTH - left - right
    low, high = float(edges[0]), float(edges[-1])

    def at(number: float) -> float:
        return left + inner * (number - low) / (high - low)

    body = text_at(left - 8, 10, "pairs" if pairs else "rating", "small", "end")
    body += text_at(_WIDTH - right + 8, 10, "n", "small")
    bottom = top + row * len(levels)
    for place, level in enumerate(reversed(levels)):
        base = top + row * (place + 1)
        tallest = max(level.counts) or 1
        for count, start, end in zip(level.counts, edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            if not count:
                continue
            height = (row - 6) * count / tallest
            kind = "bar wrong" if pairs and (start + end) / 2 < 0 else "bar"
            hint = f"{count:,} of {level.n:,} between {start:.3g} and {end:.3g}"
            body += rect(at(start) + 0.5, base - height, max(inner / len(level.counts) - 1, 0.5), height, kind, hint)
        body += line(left, base, _WIDTH - right, base, "scale")
        body += line(at(level.mean), base - row + 6, at(level.mean), base, "mean")
        if not pairs:
            body += text_at(left - 8, base - 7, f"{level.rating:.3g}", "", "end")
        body += text_at(_WIDTH - right + 8, base - 7, f"{level.n:,}", "small")
    if low < 0 < high:
        body += line(at(0), top, at(0), bottom, "zero")
    body += text_at(left, bottom + 14, _end(low, high - low), "small")
    body += text_at(_WIDTH - right, bottom + 14, _end(high, high - low), "small", "end")
    return Drawing(body, _WIDTH, bottom + 18, label)


def _end(value: float, span: float) -> str:
    """An end of a scale; what is nothing beside the scale's width is 0."""
    return "0" if abs(value) < 1e-4 * span else f"{value:.3g}"

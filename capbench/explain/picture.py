"""Why a metric gave its score, as a PNG: TIGEr's Figures 1 and 6, REO's Figures 3 and 4."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from capbench.explain import page as charts
from capbench.explain.page import GREY, WIDTH_IN, Page
from capbench.explain.reo import ReoCandidate, ReoExplanation, WordShare
from capbench.explain.tiger import GroundedCaption, TigerCandidate, TigerExplanation, letter
from capbench.reports.heatmaps import Scene

__all__ = [
    "BAR_KINDS",
    "TOP_BOXES",
    "TOP_WORDS",
    "attention_span",
    "highlights",
    "numbers_line",
    "reo_lines",
    "reo_png",
    "tiger_png",
]

TOP_BOXES = 3
TOP_WORDS = 10
BAR_KINDS = {name: f"{name}-bar" for name in ("relevance", "extraness", "omission", "people")}
_BAR_COLOURS = dict(zip(BAR_KINDS, (charts.BLUE, charts.ORANGE, charts.GREEN, charts.GREY), strict=True))
_MARKS = {"extra": charts.ORANGE, "missing": charts.GREEN}
_WORDS_A_ROW = 10
_FULL_IN = WIDTH_IN - 0.6
_CHART_IN = 2.6


def tiger_png(explanation: TigerExplanation, scene: Scene, path: Path) -> None:
    """Draw a TIGEr explanation.

    For each candidate: heat maps of the references' mean grounding and of its own, each from its lowest to its highest
    value (it is the order and the shape that count; the levels are in the chart of both vectors), with the boxes of the
    three best regions; the two rankings; what each position gains; both grounding vectors; and where each word gets
    more attention than an equal share. Without boxes there are no heat maps.

    Args:
        explanation: what to draw.
        scene: the picture and its boxes.
        path: the PNG.

    Raises:
        UsageError: the file cannot be written.
    """
    page = Page()
    _head(page, f"TIGEr: {explanation.image}", explanation.notes, explanation.signature)
    for i, candidate in enumerate(explanation.candidates):
        page.space(0.25)
        page.text(f"{letter(i)}: {candidate.caption.text}", size=13, bold=True)
        page.text(numbers_line(candidate), size=10.5)
        page.space(0.72)
        _tiger_panels(page, candidate, scene)
        if scene.boxes is not None:
            _words(page, candidate.caption, scene)
    page.save(path)


def numbers_line(candidate: TigerCandidate) -> str:
    """The scores of a candidate in one line."""
    parts = [f"{name} {value:.4f}" for name, value in candidate.scores.items()]
    parts += [f"KL {candidate.kl:.5f}", f"D_rel {candidate.d_rel:+.4f}"]
    if candidate.human is not None:
        parts.append(f"people {candidate.human:.2f}")
    return "    ".join(parts)


def attention_span(caption: GroundedCaption) -> tuple[float, float]:
    """The scale of a caption's word tiles: from an equal share of attention to the most that a word gets at a region.

    The end is at least twice an equal share, so that small differences look small.
    """
    equal = 1.0 / len(caption.words)
    return equal, max(float(caption.attention.max()), 2 * equal)


def _head(page: Page, title: str, notes: Sequence[str], signature: str) -> None:
    page.text(title, size=16, bold=True)
    for note in notes:
        page.text(note, size=9.5)
    page.text(signature, size=7.5, colour=GREY)


def _tiger_panels(page: Page, candidate: TigerCandidate, scene: Scene) -> None:
    left, height = 0.0, _CHART_IN
    if scene.boxes is not None:
        wide = 2.7 if scene.height <= 1.1 * scene.width else 2.1
        high = wide * scene.height / scene.width
        height = max(height, high - 0.1)
        panels = (
            (f"References, mean of {len(candidate.references)}", candidate.reference, candidate.ideal_order),
            ("Candidate", candidate.caption.grounding, candidate.order),
        )
        for title, weights, order in panels:
            top = order[:TOP_BOXES].tolist()
            _titled(page, left, title, "grounding of each region")
            page.panel(left, wide, high, partial(charts.heat_panel, scene=scene, weights=weights, top=top))
            page.panel(left, wide, 0.1, partial(charts.colour_bar, weights=weights), top=high + 0.06)
            left += wide + 0.2
        left += 0.25
    # Names of regions stand at both sides of the ranking; the other two have ticks at their left.
    rest = _FULL_IN - left - 2 * 0.55
    ranking, chart = rest * 0.36, rest * 0.32
    _titled(page, left, "Regions by grounding", "in brackets: the rank on the other side")
    page.panel(left, ranking, height, partial(charts.ranking_chart, candidate=candidate, names=scene.names))
    left += ranking + 0.55
    dcg, ideal = candidate.gains.sum(), candidate.ideal_gains.sum()
    _titled(page, left, "Gain of each position", f"DCG {dcg:.2f} of {ideal:.2f}: RRS {candidate.scores['rrs']:.3f}")
    page.panel(left, chart, height, partial(charts.gains_chart, candidate=candidate))
    left += chart + 0.55
    _titled(page, left, "Grounding vectors", f"shape and level: WDS {candidate.scores['wds']:.3f}")
    page.panel(left, chart, height, partial(charts.profile_chart, candidate=candidate))
    page.space(height + 0.6)


def _titled(page: Page, left: float, title: str, below: str) -> None:
    page.place(0.3 + left, page.top - 0.62, title, size=9.5, weight="bold")
    page.place(0.3 + left, page.top - 0.44, below, size=9)


def _words(page: Page, caption: GroundedCaption, scene: Scene) -> None:
    if not caption.words:
        return
    span = attention_span(caption)
    title = "Where each word gets more of a region's attention than an equal share"
    page.place(0.3, page.top, title, size=9.5, weight="bold")
    page.space(0.2)
    told = f"yellow from {span[0]:.2f} to {span[1]:.2f}; the box is the region where it is highest"
    page.place(0.3, page.top, told, size=9)
    page.space(0.25)
    gap = 0.1
    wide = (_FULL_IN - (_WORDS_A_ROW - 1) * gap) / _WORDS_A_ROW
    high = wide * scene.height / scene.width
    for start in range(0, len(caption.words), _WORDS_A_ROW):
        for i, word in enumerate(caption.words[start : start + _WORDS_A_ROW]):
            weights = caption.attention[:, start + i]
            left = i * (wide + gap)
            page.place(0.3 + left, page.top, charts.shorten(word, 16), size=9)
            top = [int(np.argmax(weights))] if weights.max() > weights.min() else []
            draw = partial(charts.tile_panel, scene=scene, weights=weights, span=span, top=top)
            page.panel(left, wide, high, draw, top=0.2)
        page.space(high + 0.35)


def reo_png(explanation: ReoExplanation, scene: Scene, path: Path) -> None:
    """Draw a REO explanation.

    For each candidate the words behind its extra content and the reference words behind what it misses, against each
    ground truth; then, for two candidates or more, all scores side by side, each scaled to 0..1 over the candidates.

    Args:
        explanation: what to draw.
        scene: the picture.
        path: the PNG.

    Raises:
        UsageError: the file cannot be written.
    """
    page = Page()
    _head(page, f"REO: {explanation.image}", explanation.notes, explanation.signature)
    page.space(0.2)
    if scene.pictured:
        wide = 3.4 if scene.height <= 1.1 * scene.width else 2.4
        page.panel(0, wide, wide * scene.height / scene.width, partial(charts.picture_panel, scene=scene))
        page.space(wide * scene.height / scene.width + 0.1)
    for i, candidate in enumerate(explanation.candidates):
        page.space(0.2)
        page.text(f"{letter(i)}: {candidate.text}", size=13, bold=True)
        for line in reo_lines(candidate):
            page.text(line, size=10.5)
        page.space(0.05)
        for title, words, kind in highlights(candidate):
            page.marked(title, words, _MARKS[kind])
        page.space(0.35)
        _reo_panels(page, candidate)
    if len(explanation.candidates) > 1:
        _reo_overview(page, explanation)
    page.save(path)


def reo_lines(candidate: ReoCandidate) -> list[str]:
    """The scores of a candidate, one line for each ground truth."""
    lines = []
    for truth, found in candidate.truths.items():
        lines.append(f"{truth}:  " + "    ".join(f"{name} {value:.4f}" for name, value in found.scores.items()))
    if candidate.human is not None:
        lines.append(f"people {candidate.human:.2f}")
    return lines


def highlights(candidate: ReoCandidate) -> list[tuple[str, list[tuple[str, float]], str]]:
    """Words in their order with a strength of 0 to 1: the candidate's for what is extra, the references' for missing.

    The strength is the similarity to what is extra or missing (0 where it is negative), against the image and the
    references together where there are references, else against the image.

    Returns:
        Rows of (title, words, ``extra`` or ``missing``).
    """
    found = list(candidate.truths.values())[-1]
    rows = [("extra", _strengths(found.extra), "extra")]
    for i, words in enumerate(found.references):
        rows.append((f"missing, reference {i + 1}", _strengths(words), "missing"))
    return rows


def _strengths(words: Sequence[WordShare]) -> list[tuple[str, float]]:
    return [(share.word, max(share.similarity, 0.0)) for share in words]


def _reo_panels(page: Page, candidate: ReoCandidate) -> None:
    panels = []
    for truth, found in candidate.truths.items():
        panels.append((f"Extra, against {truth}", found.extra_words, charts.ORANGE, "a⊥"))
        panels.append((f"Missing, against {truth}", found.missing, charts.GREEN, "g⊥"))
    gap = 1.15
    wide = (_FULL_IN - len(panels) * gap) / len(panels)
    height = 0.4 + 0.2 * min(TOP_WORDS, max(len(words) for _, words, *_ in panels))
    for i, (title, words, colour, side) in enumerate(panels):
        left = gap + i * (wide + gap)
        page.place(0.3 + left - 0.9, page.top - 0.22, title, size=9.5, weight="bold")
        if words:
            label = f"similarity to {side}" + (" (part of its length)" if words[0].contribution is not None else "")
            draw = partial(charts.word_bars, words=words, top=TOP_WORDS, colour=colour, label=label)
            page.panel(left, wide, height, draw)
    page.space(height + 0.6)


def _reo_overview(page: Page, explanation: ReoExplanation) -> None:
    page.space(0.1)
    page.text("All candidates", size=13, bold=True)
    page.space(0.55)
    groups = [letter(i) for i in range(len(explanation.candidates))]
    scaled = explanation.scaled()
    gap, height = 0.8, 2.6
    wide = (_FULL_IN - len(scaled) * gap) / len(scaled)
    for i, (truth, columns) in enumerate(scaled.items()):
        left = 0.6 + i * (wide + gap)
        page.place(0.3 + left, page.top - 0.46, f"Against {truth}", size=9.5, weight="bold")
        series = [(name, values, _BAR_COLOURS[name]) for name, values in columns.items()]
        page.panel(left, wide, height, partial(charts.group_bars, groups=groups, series=series))
    page.space(height + 0.4)

"""What a page and a picture of an explanation are made of: the same blocks in the same order, drawn once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from capbench.explain.charts import draw_bars, draw_chart, draw_matching, draw_matrix
from capbench.explain.drawing import Drawing, gradient
from capbench.explain.heatmaps import GLOW_RGB, Scene, colours, hex_colours
from capbench.explain.maps import COLOUR_ID, GREY_ID, draw_map, picture_source
from capbench.explanations import (
    Bars,
    Chart,
    Explanation,
    Matching,
    Matrix,
    Note,
    Panel,
    RegionMaps,
    Regions,
    Score,
    Scores,
    Table,
    WeightedWords,
    letter,
)

__all__ = ["Block", "Composition", "Figure", "Row", "Section", "compose", "score_pieces", "sentence"]


@dataclass(frozen=True)
class Figure:
    """A drawing under its title."""

    title: str
    note: str
    drawing: Drawing


@dataclass(frozen=True)
class Row:
    """Figures side by side, as many as there is room for; with a key where their colour means a range of numbers."""

    figures: tuple[Figure, ...]
    title: str = ""
    key: str = ""
    key_colour: str = ""


Block = Row | Scores | WeightedWords | Table | Note


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it."""

    title: str
    blocks: tuple[Block, ...]
    human: float | None = None
    references: tuple[str, ...] = ()


@dataclass(frozen=True)
class Composition:
    """An explanation, drawn. ``definitions`` is the SVG that its drawings refer to."""

    title: str
    notes: tuple[str, ...]
    signature: str
    sections: tuple[Section, ...]
    definitions: str


def compose(explanation: Explanation, scene: Scene, title: str = "") -> Composition:
    """Draw all panels under a title, by default the metric's and the image's.

    Maps of weights need boxes, and a map without weights a picture: they are left out without.
    """
    regions = explanation.regions
    sections = [Section("", _blocks(explanation.opening, scene, regions))]
    for i, candidate in enumerate(explanation.candidates):
        blocks = _blocks(candidate.panels, scene, regions)
        sections.append(Section(f"{letter(i)}: {candidate.text}", blocks, candidate.human, candidate.references))
    sections.append(Section("All candidates", _blocks(explanation.comparison, scene, regions)))
    kept = tuple(section for section in sections if section.blocks)
    return Composition(
        title or f"{explanation.title}: {explanation.image}",
        explanation.notes,
        explanation.signature,
        kept,
        _definitions(kept, scene),
    )


def score_pieces(score: Score) -> list[str]:
    """A score with its parts in brackets, in pieces between which a line may break.

    >>> score_pieces(Score("f", 0.5, (Score("p", 0.4), Score("r", 0.7))))
    ['f 0.5000', '(p 0.4000,', 'r 0.7000)']
    """
    pieces = [str(score)]
    for i, inner_score in enumerate(score.parts):
        inner = score_pieces(inner_score)
        inner[0] = ("(" if i == 0 else "") + inner[0]
        inner[-1] += ")" if i == len(score.parts) - 1 else ","
        pieces += inner
    return pieces


def sentence(title: str) -> str:
    """A title with a capital at its start."""
    return title[:1].upper() + title[1:]


def _blocks(panels: Sequence[Panel], scene: Scene, regions: Regions | None) -> tuple[Block, ...]:
    blocks: list[Block] = []
    figures: list[Figure] = []
    for panel in panels:
        if isinstance(panel, RegionMaps) and panel.small:
            blocks += [*_flush(figures), *_small_maps(panel, scene, regions)]
        elif isinstance(panel, Scores | WeightedWords | Table | Note):
            blocks += [*_flush(figures), panel]
        else:
            figures += _figures(panel, scene, regions)
    return (*blocks, *_flush(figures))


def _flush(figures: list[Figure]) -> list[Row]:
    row = [Row(tuple(figures))] if figures else []
    figures.clear()
    return row


def _figures(
    panel: RegionMaps | Bars | Chart | Matching | Matrix, scene: Scene, regions: Regions | None
) -> list[Figure]:
    if isinstance(panel, RegionMaps):
        able = [m for m in panel.maps if (scene.boxes is not None if m.weights is not None else scene.pictured)]
        return [Figure(sentence(m.title), m.note, draw_map(panel, m, scene, regions)) for m in able]
    title = sentence(panel.title)
    if isinstance(panel, Bars):
        return [Figure(title, "", draw_bars(panel))] if panel.bars else []
    if isinstance(panel, Chart):
        return [Figure(title, "", draw_chart(panel))]
    if isinstance(panel, Matching):
        return [Figure(title, panel.note, draw_matching(panel))]
    return [Figure(title, "", draw_matrix(panel))]


def _small_maps(maps: RegionMaps, scene: Scene, regions: Regions | None) -> list[Row]:
    figures = [
        Figure(region_map.title, "", draw_map(maps, region_map, scene, regions))
        for region_map in maps.maps
        if region_map.weights is not None and scene.boxes is not None
    ]
    key = f"from {maps.low:.2f} to {maps.high:.2f}; outlined: where it is highest"
    colour = "#{:02x}{:02x}{:02x}".format(*GLOW_RGB)
    return [Row(tuple(figures), sentence(maps.title), key, colour)] if figures else []


def _definitions(sections: Sequence[Section], scene: Scene) -> str:
    figures = [f for s in sections for block in s.blocks if isinstance(block, Row) for f in block.figures]
    bodies = [figure.drawing.body for figure in figures]
    scale = hex_colours(colours(np.linspace(0, 1, 9)[None], 0.0, 1.0))[0]
    definitions = [gradient(scale)] if any("url(#scale)" in body for body in bodies) else []
    for name, pixels in ((GREY_ID, scene.pixels), (COLOUR_ID, scene.colour)):
        if any(f'href="#{name}"' in body for body in bodies):
            definitions.append(picture_source(pixels, name))
    return "".join(definitions)

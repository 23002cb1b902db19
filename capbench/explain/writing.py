"""An explanation as files: one composition, written as a page and as a picture."""

from __future__ import annotations

from pathlib import Path

from capbench import files
from capbench.explain.composing import compose
from capbench.explain.heatmaps import Pixels, make_scene
from capbench.explain.page import page
from capbench.explain.picture import draw
from capbench.explanations import Explanation, Regions

__all__ = ["write_explanation"]


def write_explanation(
    explanation: Explanation,
    picture: Pixels | None,
    html: Path,
    drawn: Path,
    *,
    title: str = "",
    size: tuple[float, float] | None = None,
    font_size: float | None = None,
) -> float:
    """Draw an explanation and write it.

    Args:
        explanation: what to draw.
        picture: uint8 (height, width, 3) RGB, None if it is not at hand.
        html: the page.
        drawn: the picture, which has the same drawings: a PNG, an SVG or a PDF by its ending.
        title: of both; ``""`` for the metric's and the image's.
        size: of the picture in inches; None for as large as is needed.
        font_size: of most of its letters in points; see :func:`capbench.explain.picture.draw`.

    Returns:
        The size that most of its letters got, in points.

    Raises:
        UsageError: a file cannot be written.
    """
    regions = explanation.regions or Regions(())
    scene = make_scene(picture, regions.boxes, regions.size)
    composition = compose(explanation, scene, title)
    files.write_text(html, page(composition))
    made = draw(composition, drawn.suffix.lower().removeprefix("."), size, font_size)
    with files.atomic_write(drawn, "wb") as stream:
        stream.write(made.content)
    return made.points

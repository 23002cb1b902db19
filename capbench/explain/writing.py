"""An explanation as files: one composition, written as a page and as a picture."""

from __future__ import annotations

from pathlib import Path

from capbench import files
from capbench.explain.composing import compose
from capbench.explain.heatmaps import Pixels, make_scene
from capbench.explain.page import page
from capbench.explain.sheet import rasterise, sheet
from capbench.explanations import Explanation, Regions

__all__ = ["write_explanation"]


def write_explanation(explanation: Explanation, picture: Pixels | None, html: Path, png: Path) -> None:
    """Draw an explanation and write it.

    Args:
        explanation: what to draw.
        picture: uint8 (height, width, 3) RGB, None if it is not at hand.
        html: the page.
        png: the picture, which has the same drawings.

    Raises:
        UsageError: a file cannot be written.
    """
    regions = explanation.regions or Regions(())
    scene = make_scene(picture, regions.boxes, regions.size)
    composition = compose(explanation, scene)
    files.write_text(html, page(composition))
    with files.atomic_write(png, "wb") as stream:
        stream.write(rasterise(sheet(composition)))

"""The regions of an image: boxes, labels and confidences on the picture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import FeatureError
from capbench.features.layout import Header
from capbench.features.records import RegionFeatures
from capbench.reports.figures import style

_INCHES, _POINTS = 5.0, 5.5  # length of the longer side, font size


@dataclass(frozen=True)
class DrawnRegion:
    """One drawn region."""

    region: int  # its index in the store
    box: tuple[float, float, float, float]  # x1, y1, x2, y2 in pixels of the image that was drawn on
    label: str  # class, after the attribute if there is one; "" if the store has neither
    confidence: float | None  # of the class; None if the store has none

    def caption(self) -> str:
        """The text at the box."""
        score = "" if self.confidence is None else f" {self.confidence:.2f}"
        return f"{self.label}{score}".strip() or str(self.region)

    def line(self) -> str:
        """One line for the terminal."""
        return f"{self.region:>3}  {self.caption():<30}  {', '.join(f'{value:.0f}' for value in self.box)}"


def top_regions(regions: RegionFeatures, header: Header, width: int, height: int, top: int) -> list[DrawnRegion]:
    """The most confident regions (the first ones without confidences), in pixels of a picture of this size."""
    if regions.boxes is None:
        message = f"image '{regions.image}' has features but no boxes to draw"
        raise FeatureError(message, code="missing-value", value=regions.image)
    scale = np.array([width / regions.width, height / regions.height] * 2, dtype=np.float64)
    scores = regions.class_scores
    order = np.arange(len(regions)) if scores is None else np.argsort(-scores, kind="stable")
    shown = []
    for i in order[:top].tolist():
        x1, y1, x2, y2 = (regions.boxes[i] * scale).tolist()
        confidence = None if scores is None else float(scores[i])
        shown.append(DrawnRegion(i, (x1, y1, x2, y2), _label(regions, header, i), confidence))
    return shown


def _label(regions: RegionFeatures, header: Header, i: int) -> str:
    words = []
    for ids, names in (
        (regions.attribute_ids, header.attribute_names),
        (regions.class_ids, header.class_names),
    ):
        if ids is not None:
            number = int(ids[i])
            words.append(names[number] if names is not None and number < len(names) else f"#{number}")
    return " ".join(words)


def draw(image: NDArray[np.uint8], regions: RegionFeatures, header: Header, path: Path, top: int) -> list[DrawnRegion]:
    """Draw at most ``top`` boxes with captions on an image, uint8 (h, w, 3) RGB, the most confident above the others.

    Writes a figure in the format of the file's suffix.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    style.check_ending(path)
    height, width = image.shape[:2]
    shown = top_regions(regions, header, width, height, top)
    scale = _INCHES / max(height, width)
    look = style.Look(size=(width * scale, height * scale), font_size=_POINTS)
    with style.style(look):
        figure = Figure(figsize=look.size)
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.imshow(image, extent=(0, width, height, 0), aspect="auto", interpolation="nearest")
        axes.set_axis_off()
        for rank, drawn in reversed(list(enumerate(shown))):
            colour, (x1, y1, x2, y2) = style.COLOURS[rank % len(style.COLOURS)], drawn.box
            axes.add_patch(Rectangle((x1, y1), x2 - x1, y2 - y1, fill=False, ec=colour, lw=1.3))
            box = {"facecolor": colour, "edgecolor": "none", "pad": 1}
            axes.text(max(x1, 0), max(y1, 0), drawn.caption(), color="white", va="top", bbox=box, parse_math=False)
        style.fit_fonts(figure)
        style.save(figure, path, look)
    return shown

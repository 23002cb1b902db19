"""The regions of an image: boxes, labels and confidences on the picture, as a PNG or a self-contained HTML page."""

from __future__ import annotations

import base64
import html
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from capbench.core import files
from capbench.core.errors import FeatureError, UsageError
from capbench.features.layout import Header
from capbench.features.records import RegionFeatures
from capbench.reports.figures import style

_INCHES = 8.0  # of the longer side


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
    """Draw at most ``top`` boxes on an image, uint8 (h, w, 3) RGB, and write a PNG or an HTML page, by the suffix."""
    ending = path.suffix.lower()
    if ending not in (".png", ".html"):
        message = "ends neither in .png nor in .html"
        raise UsageError(message, code="wrong-value", value=ending, path=path, hint="Use one of them")
    shown = top_regions(regions, header, image.shape[1], image.shape[0], top)
    data = _png(image, shown)
    with files.atomic_write(path, "wb") as stream:
        stream.write(data if ending == ".png" else _page(data, image, regions, header, shown).encode())
    return shown


def _png(image: NDArray[np.uint8], shown: list[DrawnRegion]) -> bytes:
    """The picture with boxes and captions on it, the most confident on top."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    height, width = image.shape[:2]
    scale = _INCHES / max(height, width)
    with style.style():
        figure = Figure(figsize=(width * scale, height * scale), dpi=100)
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.imshow(image, extent=(0, width, height, 0), aspect="auto", interpolation="nearest")
        axes.set_axis_off()
        for rank, drawn in reversed(list(enumerate(shown))):
            colour, (x1, y1, x2, y2) = style.COLOURS[rank % len(style.COLOURS)], drawn.box
            axes.add_patch(Rectangle((x1, y1), x2 - x1, y2 - y1, fill=False, ec=colour, lw=2))
            box = {"facecolor": colour, "edgecolor": "none", "pad": 1.5}
            axes.text(max(x1, 0), max(y1, 0), drawn.caption(), color="white", va="top", bbox=box, parse_math=False)
        style.fit_fonts(figure)
        stream = io.BytesIO()
        figure.savefig(stream, format="png", metadata={"Software": None})
    return stream.getvalue()


_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 1.5rem; color: #222; }
img { max-width: 100%; height: auto; }
table { border-collapse: collapse; margin-top: 1rem; }
th, td { padding: .15rem .7rem; text-align: right; font-variant-numeric: tabular-nums; }
td:nth-child(2), th:nth-child(2) { text-align: left; }
.note { color: #555; font-size: .9em; overflow-wrap: anywhere; }
"""


def _page(
    picture: bytes, image: NDArray[np.uint8], regions: RegionFeatures, header: Header, shown: list[DrawnRegion]
) -> str:
    """One file that needs no other: the picture with its boxes, and a table of them."""
    height, width = image.shape[:2]
    name = html.escape(regions.image)
    heads = ("region", "label", "confidence", "x1", "y1", "x2", "y2")
    rows = []
    for drawn in shown:
        score = "" if drawn.confidence is None else f"{drawn.confidence:.3f}"
        cells = (str(drawn.region), html.escape(drawn.label), score, *(f"{value:.1f}" for value in drawn.box))
        rows.append(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    lines = [
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Regions of {name}</title>',
        f"<style>{_STYLE}</style></head><body><main>",
        f"<h1>Regions of {name}</h1>",
        f"<p>{len(shown)} of {len(regions)} regions, the most confident first; {width} x {height} pixels.</p>",
        f'<img src="data:image/png;base64,{base64.b64encode(picture).decode()}" alt="{name} with boxes">',
        "<table><thead><tr>" + "".join(f"<th>{head}</th>" for head in heads) + "</tr></thead><tbody>",
        *rows,
        "</tbody></table>",
        f'<p class="note">{html.escape(header.fingerprint.line())}</p></main></body></html>\n',
    ]
    return "\n".join(lines)

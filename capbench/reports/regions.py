"""Drawing the regions of an image: boxes, labels and confidences as a PNG or a self-contained HTML page."""

from __future__ import annotations

import base64
import html
import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from capbench.core import files
from capbench.core.errors import FeatureError, UsageError
from capbench.features.layout import Header
from capbench.features.records import RegionFeatures

if TYPE_CHECKING:
    from PIL import Image
    from PIL.ImageDraw import ImageDraw

# The palette of Okabe and Ito, distinguishable with any kind of colour vision.
_COLOURS = ("#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7")
_SMALLEST_PX = 640


@dataclass(frozen=True)
class DrawnRegion:
    """One drawn region.

    Attributes:
        region: its index in the store.
        box: x1, y1, x2, y2 in pixels of the image that was drawn on.
        label: class, after the attribute if there is one; ``""`` if the store has neither.
        confidence: of the class; None if the store has none.
    """

    region: int
    box: tuple[float, float, float, float]
    label: str
    confidence: float | None

    def caption(self) -> str:
        """The text at the box."""
        score = "" if self.confidence is None else f" {self.confidence:.2f}"
        return f"{self.label}{score}".strip() or str(self.region)

    def line(self) -> str:
        """One line for the terminal."""
        return f"{self.region:>3}  {self.caption():<30}  {', '.join(f'{value:.0f}' for value in self.box)}"


def top_regions(regions: RegionFeatures, header: Header, width: int, height: int, top: int) -> list[DrawnRegion]:
    """The most confident regions (the first ones without confidences), in pixels of a picture of this size.

    Raises:
        FeatureError: the store has no boxes.
    """
    if regions.boxes is None:
        raise FeatureError(
            f"image '{regions.image}' has features but no boxes to draw", code="missing-value", value=regions.image
        )
    scale = np.array([width / regions.width, height / regions.height] * 2, dtype=np.float64)
    scores = regions.class_scores
    order = np.arange(len(regions)) if scores is None else np.argsort(-scores, kind="stable")
    shown = []
    for i in order[:top].tolist():
        box = tuple(float(x) for x in regions.boxes[i] * scale)
        confidence = None if scores is None else float(scores[i])
        shown.append(DrawnRegion(i, box, _label(regions, header, i), confidence))  # type: ignore[arg-type]
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
    """Draw boxes, labels and confidences, and write a PNG or an HTML page, by the suffix of the file.

    Args:
        image: uint8 (h, w, 3) RGB.
        regions: of that image.
        header: header of the store, with the names of classes and attributes.
        path: the file.
        top: maximum number of boxes.

    Raises:
        FeatureError: the store has no boxes.
        UsageError: the suffix is neither ``.png`` nor ``.html``, or the file cannot be written.
    """
    ending = path.suffix.lower()
    if ending not in (".png", ".html"):
        raise UsageError(
            "ends neither in .png nor in .html", code="wrong-value", value=ending, path=path, hint="Use one of them"
        )
    shown = top_regions(regions, header, image.shape[1], image.shape[0], top)
    data = _png(image, shown) if ending == ".png" else _page(image, regions, header, shown).encode()
    with files.atomic_write(path, "wb") as stream:
        stream.write(data)
    return shown


def _png(image: NDArray[np.uint8], shown: list[DrawnRegion]) -> bytes:
    """The picture with boxes on it; small pictures are enlarged."""
    from PIL import Image, ImageDraw, ImageFont

    factor = _factor(image)
    height, width = image.shape[0] * factor, image.shape[1] * factor
    picture = Image.fromarray(image).resize((width, height), Image.Resampling.NEAREST)
    pen = ImageDraw.Draw(picture)
    font = ImageFont.load_default()
    for rank, drawn in reversed(list(enumerate(shown))):  # the most confident on top
        colour = _COLOURS[rank % len(_COLOURS)]
        box = [value * factor for value in drawn.box]
        pen.rectangle(box, outline=colour, width=3)
        _write_label(pen, font, drawn.caption(), (box[0], box[1]), colour, width, height)
    return _encoded(picture)


def _factor(image: NDArray[np.uint8]) -> int:
    return max(1, round(_SMALLEST_PX / int(max(image.shape[:2]))))


def _encoded(picture: Image.Image) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG")
    return buffer.getvalue()


def _write_label(
    pen: ImageDraw, font: object, text: str, corner: tuple[float, float], colour: str, width: int, height: int
) -> None:
    left, top, right, bottom = pen.textbbox((0, 0), text, font=font)  # type: ignore[arg-type]
    wide, high = right - left + 6, bottom - top + 6
    x = min(max(corner[0], 0), max(width - wide, 0))
    y = min(max(corner[1] - high, 0), max(height - high, 0))
    pen.rectangle([x, y, x + wide, y + high], fill=colour)
    pen.text((x + 3 - left, y + 3 - top), text, fill="black", font=font)  # type: ignore[arg-type]


_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 1.5rem; color: #222; }
figure { margin: 0; position: relative; display: inline-block; max-width: 100%; }
figure img { display: block; max-width: 100%; height: auto; image-rendering: pixelated; }
figure svg { position: absolute; inset: 0; width: 100%; height: 100%; }
rect { fill: transparent; stroke-width: 2px; vector-effect: non-scaling-stroke; }
figure text { pointer-events: none; fill: #000; stroke: #fff; stroke-width: .25em; paint-order: stroke; }
rect:hover, rect.lit { fill: currentColor; fill-opacity: .25; stroke-width: 5px; }
table { border-collapse: collapse; margin-top: 1rem; }
th, td { padding: .15rem .7rem; text-align: left; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
tr:hover { background: #eee; }
.key { display: inline-block; width: 1em; height: 1em; vertical-align: -.15em; }
.note { color: #555; font-size: .9em; overflow-wrap: anywhere; }
"""
_SCRIPT = """
for (const row of document.querySelectorAll("tr[data-region]")) {
  const box = document.getElementById("region-" + row.dataset.region);
  row.addEventListener("mouseenter", () => box.classList.add("lit"));
  row.addEventListener("mouseleave", () => box.classList.remove("lit"));
}
"""


def _page(image: NDArray[np.uint8], regions: RegionFeatures, header: Header, shown: list[DrawnRegion]) -> str:
    """One file that needs no other: the picture, its boxes as SVG, and a table whose rows light their box up."""
    from PIL import Image

    height, width = image.shape[:2]
    picture = base64.b64encode(_encoded(Image.fromarray(image))).decode()
    name = html.escape(regions.image)
    boxes, rows = [], []
    size = max(width, height) / 45  # of the letters, in pixels of the picture
    for rank, drawn in enumerate(shown):
        colour = _COLOURS[rank % len(_COLOURS)]
        x1, y1, x2, y2 = drawn.box
        caption, label = html.escape(drawn.caption()), html.escape(drawn.label)
        place = f'id="region-{drawn.region}" x="{x1:.2f}" y="{y1:.2f}" width="{x2 - x1:.2f}" height="{y2 - y1:.2f}"'
        boxes.append(
            f'<rect {place} stroke="{colour}" color="{colour}"><title>{caption}</title></rect>'
            f'<text x="{x1:.2f}" y="{max(y1, size):.2f}" font-size="{size:.2f}">{caption}</text>'
        )
        score = "" if drawn.confidence is None else f"{drawn.confidence:.3f}"
        corners = "".join(f'<td class="number">{value:.1f}</td>' for value in drawn.box)
        rows.append(
            f'<tr data-region="{drawn.region}"><td><span class="key" style="background:{colour}"></span></td>'
            f'<td class="number">{drawn.region}</td><td>{label}</td><td class="number">{score}</td>{corners}</tr>'
        )
    heads = ("", "region", "label", "confidence", "x1", "y1", "x2", "y2")
    shown_width = width * _factor(image)
    lines = [
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Regions of {name}</title>',
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>Regions of {name}</h1>",
        f"<p>{len(shown)} of {len(regions)} regions, the most confident first; {width} x {height} pixels.</p>",
        f'<figure><img src="data:image/png;base64,{picture}" width="{shown_width}" alt="{name}">',
        f'<svg viewBox="0 0 {width} {height}" preserveAspectRatio="none">',
        *reversed(boxes),  # the most confident on top
        "</svg></figure>",
        "<table><thead><tr>" + "".join(f"<th>{head}</th>" for head in heads) + "</tr></thead><tbody>",
        *rows,
        "</tbody></table>",
        f'<p class="note">{html.escape(header.fingerprint.line())}</p>',
        f"<script>{_SCRIPT}</script></body></html>\n",
    ]
    return "\n".join(lines)

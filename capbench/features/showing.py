"""An image with its regions drawn on it."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from capbench import files
from capbench.errors import FeatureError
from capbench.features.layout import Header
from capbench.features.records import RegionFeatures

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

__all__ = ["Shown", "draw"]

# Okabe and Ito's colours, which people of all kinds of colour vision tell apart.
_COLOURS = ("#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7")
_SMALLEST_PX = 640


@dataclass(frozen=True)
class Shown:
    """One drawn region.

    Attributes:
        region: its index in the store.
        box: x1, y1, x2, y2 in pixels of the image that was drawn on.
        label: class, with the attribute before it where there is one; ``""`` if the store has neither.
        confidence: of the class, None if the store has none.
    """

    region: int
    box: tuple[float, float, float, float]
    label: str
    confidence: float | None

    def caption(self) -> str:
        """What stands at the box."""
        score = "" if self.confidence is None else f" {self.confidence:.2f}"
        return f"{self.label}{score}".strip() or str(self.region)

    def line(self) -> str:
        """One line for the terminal."""
        return f"{self.region:>3}  {self.caption():<30}  {', '.join(f'{value:.0f}' for value in self.box)}"


def top_regions(regions: RegionFeatures, header: Header, width: int, height: int, top: int) -> list[Shown]:
    """The most confident regions (the first where there are no confidences), in pixels of a picture of this size.

    Raises:
        FeatureError: the store has no boxes.
    """
    if regions.boxes is None:
        raise FeatureError(f"image '{regions.image}' has features but no boxes to draw")
    scale = np.array([width / regions.width, height / regions.height] * 2, dtype=np.float64)
    scores = regions.class_scores
    order = np.arange(len(regions)) if scores is None else np.argsort(-scores, kind="stable")
    found = []
    for i in order[:top].tolist():
        box = tuple(float(x) for x in regions.boxes[i] * scale)
        confidence = None if scores is None else float(scores[i])
        found.append(Shown(i, box, _label(regions, header, i), confidence))  # type: ignore[arg-type]
    return found


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


def draw(image: NDArray[np.uint8], regions: RegionFeatures, header: Header, path: Path, top: int) -> list[Shown]:
    """Draw boxes, labels and confidences and write a PNG; small pictures are enlarged.

    Args:
        image: uint8 (h, w, 3) RGB.
        regions: of that image.
        header: of the store, for names.
        path: the PNG.
        top: how many boxes.

    Raises:
        FeatureError: the store has no boxes.
        UsageError: the file cannot be written.
    """
    from PIL import Image, ImageDraw, ImageFont

    factor = max(1, round(_SMALLEST_PX / max(image.shape[:2])))
    height, width = image.shape[0] * factor, image.shape[1] * factor
    picture = Image.fromarray(image).resize((width, height), Image.Resampling.NEAREST)
    shown = top_regions(regions, header, image.shape[1], image.shape[0], top)
    pen = ImageDraw.Draw(picture)
    font = ImageFont.load_default()
    for rank, one in reversed(list(enumerate(shown))):  # the most confident on top
        colour = _COLOURS[rank % len(_COLOURS)]
        box = [value * factor for value in one.box]
        pen.rectangle(box, outline=colour, width=3)
        _write_label(pen, font, one.caption(), (box[0], box[1]), colour, width, height)
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG")
    with files.atomic_write(path, "wb") as stream:
        stream.write(buffer.getvalue())
    return shown


def _write_label(
    pen: ImageDraw, font: object, text: str, corner: tuple[float, float], colour: str, width: int, height: int
) -> None:
    left, top, right, bottom = pen.textbbox((0, 0), text, font=font)  # type: ignore[arg-type]
    wide, high = right - left + 6, bottom - top + 6
    x = min(max(corner[0], 0), max(width - wide, 0))
    y = min(max(corner[1] - high, 0), max(height - high, 0))
    pen.rectangle([x, y, x + wide, y + high], fill=colour)
    pen.text((x + 3 - left, y + 3 - top), text, fill="black", font=font)  # type: ignore[arg-type]

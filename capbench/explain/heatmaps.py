"""Weights of regions as heat over a picture."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capbench.records import FloatArray

__all__ = [
    "COLOUR_MAP",
    "GLOW_RGB",
    "HEAT_ALPHA",
    "Pixels",
    "Scene",
    "colours",
    "data_uri",
    "glow",
    "heat",
    "hex_colours",
    "label_places",
    "make_scene",
    "weight_map",
]

COLOUR_MAP = "viridis"
"""Evenly rising in lightness, and read alike with every kind of colour vision."""
HEAT_ALPHA = 0.6
"""How much of the heat covers the picture."""
GLOW_RGB = (255, 221, 30)
GLOW_ALPHA = 0.8
_LONGEST_PX = 420

Pixels = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Scene:
    """A picture at the size that it is shown in, and where its regions are.

    Attributes:
        pixels: uint8 (height, width, 3): the picture in grey, so that colours mean weights only; plain where there is
            no picture.
        colour: the same in its colours.
        boxes: (n, 4) float64 x1, y1, x2, y2 in these pixels, or None.
        pictured: False if there was no picture to show.
    """

    pixels: Pixels
    colour: Pixels
    boxes: FloatArray | None
    pictured: bool

    @property
    def width(self) -> int:
        """In pixels."""
        return int(self.pixels.shape[1])

    @property
    def height(self) -> int:
        """In pixels."""
        return int(self.pixels.shape[0])


def make_scene(
    picture: Pixels | None,
    boxes: NDArray[np.floating] | None,
    size: tuple[int, int] = (0, 0),
    longest: int = _LONGEST_PX,
) -> Scene:
    """Bring a picture and its boxes to the size that they are shown in.

    Args:
        picture: uint8 (h, w, 3) RGB, or None.
        boxes: (n, 4) x1, y1, x2, y2 in units of ``size``, or None.
        size: width and height that the boxes belong to; (0, 0) if they are not known.
        longest: pixels of the longer side.
    """
    from PIL import Image

    if picture is not None:
        wide, high = picture.shape[1], picture.shape[0]
    else:
        # A size of 1 x 1 stands for boxes in fractions of an unknown size.
        wide, high = size if min(size) > 1 else (4, 3)
    factor = longest / max(wide, high)
    width, height = max(1, round(wide * factor)), max(1, round(high * factor))
    if picture is None:
        pixels = colour = np.full((height, width, 3), 200, dtype=np.uint8)
    else:
        how = Image.Resampling.NEAREST if factor > 2 else Image.Resampling.LANCZOS
        shrunk = Image.fromarray(picture).resize((width, height), how)
        colour = np.asarray(shrunk, dtype=np.uint8)
        pixels = np.repeat(np.asarray(shrunk.convert("L"), dtype=np.uint8)[:, :, None], 3, axis=2)
    scaled_boxes = None
    if boxes is not None and min(size) > 0:
        scale = np.array([width / size[0], height / size[1]] * 2)
        scaled_boxes = np.clip(boxes.astype(np.float64) * scale, 0, [width, height] * 2)
    return Scene(pixels, colour, scaled_boxes, picture is not None)


def weight_map(boxes: FloatArray, weights: FloatArray, height: int, width: int) -> FloatArray:
    """A weight for each pixel: the mean over the boxes that cover it, each counted by 1 / its area.

    A large box (the whole scene) covers everything that small ones cover too; counted by the inverse of its area, it
    shows where nothing smaller lies. Boxes that do not overlap, such as a grid's cells, just get their weights.

    Args:
        boxes: (n, 4) x1, y1, x2, y2 in pixels.
        weights: (n,).
        height: of the map in pixels.
        width: of the map in pixels.

    Returns:
        (height, width) float64, NaN where no box is.
    """
    total, count = np.zeros((height, width)), np.zeros((height, width))
    for (left, top, right, bottom), weight in zip(boxes.tolist(), weights.tolist(), strict=True):
        # Each box covers at least a pixel, and a box that only touches a pixel's edge does not cover it.
        x1, y1 = min(round(left), width - 1), min(round(top), height - 1)
        x2, y2 = max(round(right), x1 + 1), max(round(bottom), y1 + 1)
        share = 1.0 / ((x2 - x1) * (y2 - y1))
        total[y1:y2, x1:x2] += share * weight
        count[y1:y2, x1:x2] += share
    covered = count > 0
    return np.divide(total, count, out=np.full_like(total, np.nan), where=covered)


def colours(values: FloatArray, low: float, high: float) -> Pixels:
    """Colours of values on the scale from low to high: uint8 (..., 4); values beyond it get its ends."""
    import matplotlib as mpl

    spread = high - low
    scaled = np.full(values.shape, 0.5) if spread <= 0 else np.clip((values - low) / spread, 0, 1)
    return np.asarray(mpl.colormaps[COLOUR_MAP](scaled, bytes=True), dtype=np.uint8)


def hex_colours(pixels: Pixels) -> list[list[str]]:
    """Colours (r, c, 4) as SVG writes them, without their opacity."""
    return [[f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue, _ in row] for row in pixels.tolist()]


def heat(scene: Scene, weights: FloatArray, low: float, high: float) -> Pixels:
    """Region weights as a layer to lay over a scene: uint8 (height, width, 4) RGBA, transparent where no box is.

    Args:
        scene: with boxes.
        weights: (n,).
        low: weight of the darkest colour.
        high: weight of the brightest colour.
    """
    assert scene.boxes is not None
    spread = weight_map(scene.boxes, weights, scene.height, scene.width)
    covered = np.isfinite(spread)
    layer = colours(np.where(covered, spread, low), low, high)
    layer[..., 3] = np.where(covered, np.floor(255 * HEAT_ALPHA), 0)
    return layer


def glow(scene: Scene, weights: FloatArray, low: float, high: float) -> Pixels:
    """Like :func:`heat`, for small pictures: yellow that is full at ``high`` and leaves the picture bare at ``low``."""
    assert scene.boxes is not None
    spread = np.nan_to_num(weight_map(scene.boxes, weights, scene.height, scene.width), nan=low)
    layer = np.empty((*spread.shape, 4), dtype=np.uint8)
    layer[..., :3] = GLOW_RGB
    layer[..., 3] = np.floor(255 * GLOW_ALPHA * np.clip((spread - low) / (high - low), 0, 1))
    return layer


def label_places(scene: Scene, regions: Sequence[int], size: float) -> list[tuple[float, float]]:
    """Where to write the numbers of regions: at the upper left corner of the box, below others that stand there.

    Args:
        scene: with boxes.
        regions: the most important first.
        size: height of a line in pixels of the scene; a number is taken to be 1.6 times as wide.

    Returns:
        Upper left corners, inside the picture as far as it is large enough.
    """
    assert scene.boxes is not None
    places: list[tuple[float, float]] = []
    for region in regions:
        x = max(0.0, min(scene.boxes[region, 0] + 4, scene.width - 1.6 * size))
        y = max(0.0, min(scene.boxes[region, 1] + 4, scene.height - size))
        while any(abs(x - a) < 1.6 * size and abs(y - b) < size for a, b in places) and y < scene.height:
            y += size
        places.append((float(x), float(y)))
    return places


def data_uri(pixels: Pixels, *, photograph: bool = False) -> str:
    """A picture as the text of a ``data:`` address: a PNG, or of a photograph a JPEG where that is smaller."""
    from PIL import Image

    kinds: dict[str, dict[str, object]] = {"png": {}}
    if photograph:
        kinds["jpeg"] = {"quality": 88}
    files = {}
    for kind, settings in kinds.items():
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, format=kind, optimize=True, **settings)
        files[kind] = buffer.getvalue()
    smallest = min(files, key=lambda kind: len(files[kind]))
    return f"data:image/{smallest};base64,{base64.b64encode(files[smallest]).decode('ascii')}"

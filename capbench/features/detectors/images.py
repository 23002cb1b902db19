"""Preprocessing of an image to a network's input: resizing, means, padding; without PyTorch, for worker processes.

No function uses matrix products, which take all cores in NumPy.

Both published ways of resizing are bilinear interpolation with half-pixel centres and no smoothing; they differ in the
rounding of the size and in the sampling scale.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from capbench.core.errors import DataError

Floats = NDArray[np.float32]

_IMAGENET_MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32)
_IMAGENET_DEVIATION = np.array([0.229, 0.224, 0.225], dtype=np.float32)

BGR_MEAN = (102.9801, 115.9465, 122.7717)
"""Means of the blue, green and red values of ImageNet that Caffe's models subtract."""


@dataclass(frozen=True)
class Prepared:
    """One image, ready for a network."""

    pixels: Floats  # float32 (3, h, w)
    height: int  # of the original image in pixels, as ``width``
    width: int
    scale: float  # the resizing factor that the original code passes to the network


def check_image(image: NDArray[Any]) -> None:
    """Raise DataError unless the array is an image: uint8 (h, w, 3) with at least one pixel."""
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or 0 in image.shape:
        message = f"an image has shape {image.shape} of {image.dtype}, not (height, width, 3) of uint8"
        raise DataError(message, code="wrong-shape", hint="Decode it to RGB first")


def resize_bilinear(
    image: NDArray[Any], height: int, width: int, *, step_y: float | None = None, step_x: float | None = None
) -> Floats:
    """Bilinear interpolation of (h, w, channels) with half-pixel centres, clamped at the edges, without smoothing.

    ``step_y`` and ``step_x`` are source rows and columns per result row and column, by default h / height and
    w / width. Returns float32 (height, width, channels), a view of an array with the channels first.
    """
    top, bottom, down = _taps(image.shape[0], height, step_y)
    left, right, across = _taps(image.shape[1], width, step_x)
    # One channel at a time, in place: processing three channels at once takes five times as long.
    planes = np.empty((image.shape[2], height, width), dtype=np.float32)
    rows, above = (np.empty((height, image.shape[1]), dtype=np.float32) for _ in range(2))
    before = np.empty((height, width), dtype=np.float32)
    for channel, plane in enumerate(planes):
        source = np.ascontiguousarray(image[:, :, channel], dtype=np.float32)
        _between(source, top, bottom, down[:, None], 0, above, rows)
        _between(rows, left, right, across, 1, before, plane)
    result: Floats = planes.transpose(1, 2, 0)
    return result


def _between(
    source: Floats, low: NDArray[np.int64], high: NDArray[np.int64], share: Floats, axis: int, work: Floats, out: Floats
) -> None:
    """``out`` = source[low] + (source[high] - source[low]) * share, along an axis."""
    np.take(source, low, axis=axis, out=work, mode="clip")  # other modes copy first
    np.take(source, high, axis=axis, out=out, mode="clip")
    out -= work
    out *= share
    out += work


def resize_smooth(image: NDArray[Any], height: int, width: int) -> Floats:
    """Resize uint8 (h, w, 3) to float32 (3, height, width) with Pillow's triangle filter on floating-point values."""
    planes = np.empty((3, height, width), dtype=np.float32)
    if image.shape[:2] == (height, width):
        planes[...] = image.transpose(2, 0, 1)
        return planes
    for plane, band in zip(planes, Image.fromarray(image).split(), strict=True):
        plane[...] = np.asarray(band.convert("F").resize((width, height), Image.Resampling.BILINEAR))
    return planes


def _taps(source: int, target: int, step: float | None) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """The two source positions of each target position, and the weight of the second one."""
    # PyTorch computes positions in float32, OpenCV in float64 with later rounding: weights of far columns differ.
    if step is None:
        centres = np.arange(target, dtype=np.float32) + np.float32(0.5)
        at: Floats = centres * np.float32(source / target) - np.float32(0.5)
    else:
        at = ((np.arange(target) + 0.5) * step - 0.5).astype(np.float32)
    at = np.clip(at, np.float32(0.0), np.float32(source - 1))
    low = np.floor(at).astype(np.int64)
    return low, np.minimum(low + 1, source - 1), (at - low).astype(np.float32)


@dataclass(frozen=True)
class ShortestEdge:
    """Resizes so that the shorter side has ``minimum`` pixels, unless the longer one would then exceed ``maximum``."""

    minimum: int = 800  # length of the shorter side
    maximum: int = 1333  # maximum length of the longer side
    # OpenCV and Caffe: subtract the mean first, sample at the exact scale, round the size half to even; otherwise
    # detectron2: sample at the ratio of sizes, round half up, subtract the mean last
    caffe: bool = False

    def __call__(self, image: NDArray[np.uint8]) -> Prepared:
        check_image(image)
        return self.prepare_bgr(image[:, :, ::-1])

    def prepare_bgr(self, image: NDArray[Any]) -> Prepared:
        """Prepare (h, w, 3) of BGR values from 0 to 255."""
        height, width = image.shape[:2]
        mean = np.array(BGR_MEAN, dtype=np.float32)
        new_height, new_width, scale = self.size(height, width)
        if self.caffe:
            values, step = image.astype(np.float32) - mean, 1 / scale
            pixels = resize_bilinear(values, new_height, new_width, step_y=step, step_x=step)
        else:
            pixels = resize_bilinear(image, new_height, new_width)
            pixels -= mean
        chw = np.ascontiguousarray(pixels.transpose(2, 0, 1))
        return Prepared(chw, height, width, scale)

    def size(self, height: int, width: int) -> tuple[int, int, float]:
        """The height and width after resizing, and the factor; a side has at least one pixel."""
        short, long = min(height, width), max(height, width)
        scale = self.minimum / short
        if self.caffe:
            if np.round(scale * long) > self.maximum:
                scale = self.maximum / long
            # OpenCV rounds to the nearest even number at .5, as Python does.
            return max(round(height * scale), 1), max(round(width * scale), 1), scale
        new_height, new_width = (self.minimum, scale * width) if height < width else (scale * height, self.minimum)
        if max(new_height, new_width) > self.maximum:
            shrink = self.maximum / max(new_height, new_width)
            new_height, new_width, scale = new_height * shrink, new_width * shrink, scale * shrink
        return max(int(new_height + 0.5), 1), max(int(new_width + 0.5), 1), scale

    def line(self) -> str:
        """A description for a fingerprint."""
        kind = "opencv" if self.caffe else "half-up"
        means = ",".join(f"{m:.8g}" for m in BGR_MEAN)
        return f"bgr - {means}, bilinear {kind} {self.minimum}/{self.maximum}"


@dataclass(frozen=True)
class TorchvisionPreparation:
    """Torchvision's own transform: ImageNet's means and deviations, then bilinear resizing."""

    shorter: int = 800
    longer: int = 1333

    def __call__(self, image: NDArray[np.uint8]) -> Prepared:
        check_image(image)
        height, width = image.shape[:2]
        scale = min(self.shorter / min(height, width), self.longer / max(height, width))
        new_height, new_width = (max(math.floor(side * scale), 1) for side in (height, width))
        values = (image.astype(np.float32) / np.float32(255.0) - _IMAGENET_MEAN) / _IMAGENET_DEVIATION
        pixels = np.ascontiguousarray(resize_bilinear(values, new_height, new_width).transpose(2, 0, 1))
        return Prepared(pixels, height, width, scale)


@dataclass(frozen=True)
class GridPreparation:
    """Resizes the whole image to a square with smoothing, then applies means and deviations."""

    size: int
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    def __call__(self, image: NDArray[np.uint8]) -> Prepared:
        check_image(image)
        height, width = image.shape[:2]
        pixels = resize_smooth(image, self.size, self.size)
        for plane, mean, deviation in zip(pixels, self.mean, self.deviation, strict=True):
            plane /= np.float32(255.0)
            plane -= np.float32(mean)
            plane /= np.float32(deviation)
        return Prepared(pixels, height, width, self.size / max(height, width))


@dataclass(frozen=True)
class SamplePreparation:
    """Resizes images to 160 pixels on the longer side and scales values to -1 to 1."""

    side: int = 160

    def __call__(self, image: NDArray[np.uint8]) -> Prepared:
        check_image(image)
        height, width = image.shape[:2]
        scale = self.side / max(height, width)
        new_height, new_width = max(round(height * scale), 8), max(round(width * scale), 8)
        pixels = image if scale == 1 else resize_bilinear(image, new_height, new_width)
        chw = np.ascontiguousarray(pixels.astype(np.float32).transpose(2, 0, 1)) / np.float32(127.5) - np.float32(1)
        return Prepared(chw, height, width, scale)


def pad_batch(prepared: Sequence[Prepared], multiple: int = 1, minimum: int = 1) -> Floats:
    """Stack images of several sizes: float32 (n, 3, h, w), padded with zeros; a single image that fits is not copied.

    Sides are multiples of ``multiple`` of at least ``minimum``: thinner images vanish in a network's first layers.
    """
    height = max(minimum, *(p.pixels.shape[1] for p in prepared))
    width = max(minimum, *(p.pixels.shape[2] for p in prepared))
    height, width = (math.ceil(side / multiple) * multiple for side in (height, width))
    if len(prepared) == 1 and prepared[0].pixels.shape[1:] == (height, width):
        return prepared[0].pixels[None]
    batch = np.zeros((len(prepared), 3, height, width), dtype=np.float32)
    for i, entry in enumerate(prepared):
        _, h, w = entry.pixels.shape
        batch[i, :, :h, :w] = entry.pixels
    return batch

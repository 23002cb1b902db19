"""What CLIP sees of a picture: its middle, at the size that the network reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from capbench.errors import ModelError

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["Preprocessing", "stated_preprocessing"]

_MEAN = (0.48145466, 0.4578275, 0.40821073)
_STD = (0.26862954, 0.26130258, 0.27577711)
_BICUBIC = (3, "bicubic")


@dataclass(frozen=True)
class Preprocessing:
    """As the released code does it (``clip.load``; CLIPScore and PAC-S take the same).

    The shorter side is resized to ``size`` (bicubic, on the picture's own mode), the middle is cut out, made RGB,
    scaled to [0, 1] and normalised. What the EXIF data say of the picture's orientation is not looked at.

    Attributes:
        size: pixels of a side.
        mean: of each channel, in [0, 1].
        std: of each channel.
    """

    size: int
    mean: tuple[float, float, float] = _MEAN
    std: tuple[float, float, float] = _STD

    def line(self) -> str:
        """In one phrase, for signatures and fingerprints."""
        numbers = "clip" if (self.mean, self.std) == (_MEAN, _STD) else f"{_short(self.mean)}/{_short(self.std)}"
        return f"bicubic-{self.size}+centre-crop+rgb+mean-std-{numbers}+exif-ignored"

    def __call__(self, image: Image.Image) -> NDArray[np.float32]:
        """(3, size, size) float32 of a picture as Pillow opens it."""
        from PIL import Image

        width, height = image.size
        if width <= height:
            resized = (self.size, int(self.size * height / width))
        else:
            resized = (int(self.size * width / height), self.size)
        image = image.resize(resized, Image.Resampling.BICUBIC)
        left, top = (round((side - self.size) / 2.0) for side in resized)
        image = image.crop((left, top, left + self.size, top + self.size)).convert("RGB")
        pixels = np.asarray(image, dtype=np.float32) / np.float32(255)
        normal = (pixels - np.array(self.mean, np.float32)) / np.array(self.std, np.float32)
        return np.ascontiguousarray(normal.transpose(2, 0, 1), dtype=np.float32)


def stated_preprocessing(facts: dict[str, Any], size: int, path: Path) -> Preprocessing:
    """The preprocessing that a file beside the weights states.

    Args:
        facts: ``preprocessor_config.json`` of ``transformers``, or ``preprocess_cfg`` of ``open_clip_config.json``.
        size: pixels of a side that the network reads.
        path: the file, for messages.

    Raises:
        ModelError: pictures are prepared in another way than by resizing, cutting the middle out and normalising.
    """
    mean = facts.get("image_mean", facts.get("mean"))
    std = facts.get("image_std", facts.get("std"))
    other = [
        name
        for name in ("do_resize", "do_center_crop", "do_rescale", "do_normalize")
        if facts.get(name, True) is not True
    ]
    if facts.get("resample", facts.get("interpolation", "bicubic")) not in _BICUBIC:
        other.append("resample")
    if facts.get("resize_mode", "shortest") != "shortest":
        other.append("resize_mode")
    if other:
        raise ModelError(f"prepares pictures in a way that is not known here ('{other[0]}')", path=path)
    numbers = [
        _three(values, path) if values is not None else default for values, default in ((mean, _MEAN), (std, _STD))
    ]
    if min(numbers[1]) <= 0:
        raise ModelError("states a deviation of 0 or less", path=path)
    return Preprocessing(size, *numbers)


def _three(values: Any, path: Path) -> tuple[float, float, float]:
    try:
        first, second, third = (float(value) for value in values)
    except (TypeError, ValueError) as error:
        raise ModelError("states no three means or deviations of channels", path=path) from error
    if not np.isfinite([first, second, third]).all():
        raise ModelError("states a mean or deviation that is no number", path=path)
    return first, second, third


def _short(values: tuple[float, ...]) -> str:
    return ",".join(f"{value:g}" for value in values)

"""What an extraction will cost, measured on some of its images before it begins."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from capbench.errors import CapbenchError, FeatureError, UsageError
from capbench.features.extract import grouped, parts_of
from capbench.features.images import decode
from capbench.features.layout import DTYPES

if TYPE_CHECKING:
    from capbench.features.detectors.base import Detector
    from capbench.features.images import ImageFile

__all__ = ["Plan", "measure"]

_BYTES_A_REGION = 32  # box, class, scores and offsets, at most
_BYTES_AN_IMAGE = 64


@dataclass(frozen=True)
class Plan:
    """What was measured, and what follows for all images.

    Attributes:
        images: how many there are.
        parts: that workers will be given, of some 16 images each.
        measured: images that were taken through the network for this.
        opening_s: seconds until the detector is open; each worker needs them once.
        image_s: seconds an image, decoding included: the median.
        regions: of an image, the mean.
        disk_bytes: of the finished store.
    """

    images: int
    parts: int
    measured: int
    opening_s: float
    image_s: float
    regions: float
    disk_bytes: int

    def hours(self, workers: int) -> float:
        """Hours with some workers that are as quick as this process: the longest row of parts, and the opening."""
        images_of_one = min(self.images, math.ceil(self.parts / workers) * math.ceil(self.images / self.parts))
        return (self.opening_s + images_of_one * self.image_s) / 3600


def measure(
    images: Sequence[ImageFile],
    opener: Callable[[], Detector],
    *,
    count: int,
    dtype: str = "float32",
    progress: Callable[[int], None] | None = None,
) -> Plan:
    """Take some images through the network, evenly spaced among all, after one that is not counted.

    Args:
        images: all of them.
        opener: opens the detector.
        count: how many to measure.
        dtype: in which features will be stored.
        progress: called with numbers of images done.

    Raises:
        UsageError: there are no images, or no such type.
        FeatureError: none of the measured images could be used.
    """
    if not images:
        raise UsageError("there are no images to plan for", hint="Name some with --images or --dataset")
    if dtype not in DTYPES:
        raise UsageError(f"unknown dtype '{dtype}'", hint=f"Choices: {', '.join(DTYPES)}")
    step = progress or (lambda _: None)
    started = time.perf_counter()
    detector = opener()
    opening_s = time.perf_counter() - started
    groups = grouped(images, detector)
    chosen = [groups[place] for place in np.unique(np.linspace(0, len(groups) - 1, count + 1).round().astype(int))]
    seconds: list[float] = []
    regions: list[int] = []
    failure: CapbenchError | None = None
    for group in chosen:
        started = time.perf_counter()
        try:
            records = detector.detect([_prepared(entry, detector) for entry in group])
        except CapbenchError as error:
            failure = error
            continue
        finally:
            step(len(group))
        seconds.append((time.perf_counter() - started) / len(group))
        regions += [len(record) for record in records]
    if not seconds:
        raise FeatureError(f"none of {len(chosen)} images could be used; the last: {failure}")
    counted = seconds[1:] or seconds
    mean_regions = float(np.mean(regions))
    a_region = detector.feature_size * np.dtype(dtype).itemsize + _BYTES_A_REGION
    disk = len(images) * (mean_regions * a_region + _BYTES_AN_IMAGE)
    parts = len(parts_of(groups))
    return Plan(len(images), parts, len(counted), opening_s, float(np.median(counted)), mean_regions, round(disk))


def _prepared(entry: ImageFile, detector: Detector) -> Any:
    return detector.preprocessor(decode(entry.path))

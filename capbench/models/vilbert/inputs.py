"""What ViLBERT sees of an image: its regions behind their mean, and where each of them lies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capbench.errors import FeatureError
from capbench.features.records import RegionFeatures

__all__ = ["MOST_REGIONS", "ImageRows", "image_rows"]

MOST_REGIONS = 100
"""Regions of an image that are read; the published features have as many."""


@dataclass(frozen=True, eq=False)
class ImageRows:
    """An image as the network reads it.

    Attributes:
        features: (n + 1, d) float32: the mean of all regions, then the regions.
        places: (n + 1, 5) float32: x1, y1, x2, y2 and the area as shares of the image; the mean has all of it.
    """

    features: NDArray[np.float32]
    places: NDArray[np.float32]

    def blanked(self) -> ImageRows:
        """As many rows at the same places, which hold nothing but zeros."""
        return ImageRows(np.zeros_like(self.features), self.places)


def image_rows(regions: RegionFeatures, most: int = MOST_REGIONS) -> ImageRows:
    """The rows of an image, as the released code makes them: the mean is over all regions, then the first are kept.

    Args:
        regions: with boxes.
        most: regions that are kept.

    Raises:
        FeatureError: the boxes are not known.
    """
    if regions.boxes is None:
        raise FeatureError(f"the image '{regions.image}' has no boxes", hint="Use features that have boxes")
    features = regions.features.astype(np.float32)
    boxes = regions.boxes.astype(np.float32)
    width, height = regions.width, regions.height
    places = np.empty((len(boxes) + 1, 5), dtype=np.float32)
    places[0] = (0.0, 0.0, 1.0, 1.0, 1.0)
    places[1:, :4] = boxes / np.array([width, height, width, height], dtype=np.float32)
    places[1:, 4] = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]) / np.float32(width * height)
    rows = np.concatenate((features.mean(axis=0, dtype=np.float64).astype(np.float32)[None], features))
    return ImageRows(rows[: most + 1], places[: most + 1])

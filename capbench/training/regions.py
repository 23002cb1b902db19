"""Region features of a split's images as tensors with equally many regions, in memory or read on request."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from capbench.core.errors import DataError, FeatureError, UsageError
from capbench.features.records import RegionFeatures
from capbench.features.store import FeatureStore, open_store
from capbench.training.captions import Pairs, open_array

__all__ = ["PlaceOf", "Regions", "open_probabilities", "open_regions"]

PlaceOf = Callable[[RegionFeatures], NDArray[np.float32]]
"""Computes the box features that a network reads, (regions, 4), from an image's regions."""


class _Source(Protocol):
    """Source of the regions of a split's images."""

    shape: tuple[int, int, int]
    dtype: np.dtype[Any]

    def read(self, images: Sequence[int], into: NDArray[Any], places: NDArray[np.float32] | None = None) -> None: ...


class _StoreSource:
    def __init__(
        self, store: FeatureStore, images: Sequence[str], regions: int | None, place: PlaceOf | None = None
    ) -> None:
        store.require(images)
        counts = [store.regions(image) for image in images]
        self._store, self._images, self._place = store, images, place
        self.shape = (len(images), _regions(counts, images, regions, store.paths[0]), store.feature_size)
        self.dtype = np.dtype(store.header.dtype)

    def read(self, images: Sequence[int], into: NDArray[Any], places: NDArray[np.float32] | None = None) -> None:
        for row, image in enumerate(images):
            regions = self._store[self._images[image]]
            into[row] = regions.features[: self.shape[1]]
            if places is not None and self._place is not None:
                places[row] = self._place(regions)[: self.shape[1]]


class _ProbabilitySource:
    """The detector's probabilities of background and classes instead of features."""

    def __init__(self, store: FeatureStore, images: Sequence[str], regions: int) -> None:
        self._store, self._images = store, images
        self.shape = (len(images), regions, store.header.probabilities)
        self.dtype = np.dtype(store.header.dtype)

    def read(self, images: Sequence[int], into: NDArray[Any], places: NDArray[np.float32] | None = None) -> None:
        for row, image in enumerate(images):
            probabilities = self._store[self._images[image]].class_probabilities
            assert probabilities is not None
            into[row] = probabilities[: self.shape[1]]


class _ArraySource:
    def __init__(self, pairs: Pairs, regions: int | None) -> None:
        self._arrays = [(open_array(path), path) for path, _ in pairs.arrays]
        self._place = [(number, row) for number, (_, rows) in enumerate(pairs.arrays) for row in rows.tolist()]
        first, path = self._arrays[0]
        sizes = {array.shape[1:] for array, _ in self._arrays}
        if len(sizes) > 1:
            raise DataError(f"the arrays have different shapes: {sorted(sizes)}", code="mismatch", path=path)
        n = _regions([first.shape[1]], ["all"], regions, path)
        self.shape = (len(self._place), n, first.shape[2])
        self.dtype = np.dtype(np.float16 if first.dtype == np.float16 else np.float32)

    def read(self, images: Sequence[int], into: NDArray[Any], places: NDArray[np.float32] | None = None) -> None:
        for row, image in enumerate(images):
            number, place = self._place[image]
            array, path = self._arrays[number]
            features = array[place, : self.shape[1]]
            if not np.isfinite(features).all():
                raise DataError("a feature is NaN or infinite", code="not-a-number", path=path, row=f"image {place}")
            into[row] = features


def _regions(counts: Sequence[int], images: Sequence[str], requested: int | None, path: Path) -> int:
    """Number of regions of each image."""
    low, high = min(counts), max(counts)
    if requested is not None:
        if low < requested:
            raise FeatureError(
                f"image '{images[counts.index(low)]}' has {low} regions, fewer than 'regions' ({requested})",
                code="too-few",
                value=images[counts.index(low)],
                path=path,
                hint="Lower 'regions', or extract the features again with a fixed number of boxes",
            )
        return requested
    if low < high:
        raise FeatureError(
            f"images have {low} to {high} regions; training requires equally many",
            code="mismatch",
            path=path,
            hint=f"Set 'regions: {low}' in the training file to use the first ones, or extract a fixed number",
        )
    return low


class Regions:
    """Region features of a split's images, by index; in memory if they fit.

    Attributes:
        shape: (images, regions, columns).
        in_memory: True if they are read once, False if they are read on request.
    """

    def __init__(self, source: _Source, memory_mb: float, places: bool = False) -> None:
        self.shape = source.shape
        self._with_places = places
        self._source = source
        # The prefetching thread and evaluations both use HDF5.
        self._lock = threading.Lock()
        needed = float(np.prod(source.shape, dtype=np.float64)) * source.dtype.itemsize
        self.in_memory = needed <= memory_mb * 2**20
        self._features: torch.Tensor | None = None
        self._places: torch.Tensor | None = None
        if self.in_memory:
            features = np.empty(source.shape, dtype=source.dtype)
            boxes = self._empty_places(source.shape[0])
            source.read(range(source.shape[0]), features, boxes)
            self._features = torch.from_numpy(features)
            self._places = None if boxes is None else torch.from_numpy(boxes)

    def _empty_places(self, images: int) -> NDArray[np.float32] | None:
        return np.empty((images, self.shape[1], 4), dtype=np.float32) if self._with_places else None

    def take(self, images: Sequence[int] | NDArray[np.int64]) -> torch.Tensor:
        """(b, regions, columns) float32 features of some images."""
        return self.take_placed(images)[0]

    def take_placed(self, images: Sequence[int] | NDArray[np.int64]) -> tuple[torch.Tensor, torch.Tensor | None]:
        """(b, regions, columns) float32 features of some images and their (b, regions, 4) float32 box features, None if
        not used.
        """
        # The result is always in memory allocated by torch, since the rounding of matrix products can depend on
        # alignment.
        if self._features is not None:
            chosen = torch.as_tensor(images)
            places = None if self._places is None else self._places.index_select(0, chosen)
            return self._features.index_select(0, chosen).float(), places
        distinct, inverse = np.unique(np.asarray(images), return_inverse=True)
        block = np.empty((len(distinct), *self.shape[1:]), dtype=np.float32)
        boxes = self._empty_places(len(distinct))
        with self._lock:
            self._source.read(distinct.tolist(), block, boxes)
        order = torch.from_numpy(inverse)
        places = None if boxes is None else torch.from_numpy(boxes).index_select(0, order)
        return torch.from_numpy(block).index_select(0, order), places


def open_regions(
    pairs: Pairs, features: Path | None, regions: int | None, memory_mb: float, place: PlaceOf | None = None
) -> Regions:
    """Open the features of a split's images.

    Args:
        pairs: the split.
        features: a feature store; None for the arrays of SCAN's folder.
        regions: number of regions of each image, the first ones; None: all.
        memory_mb: maximum size of features in memory.
        place: computes box features; None: none.

    Raises:
        UsageError: box features are required but not available in arrays.
        FeatureError: images are missing or damaged, or have different numbers of regions.
        DataError: an array is damaged.
    """
    if features is None:
        if place is not None:
            raise UsageError(
                "SCAN's arrays have no boxes, which this network requires",
                code="wrong-features",
                path=pairs.source,
                hint="Set 'features' to a feature store",
            )
        return Regions(_ArraySource(pairs, regions), memory_mb)
    source = _StoreSource(open_store(features), pairs.images, regions, place)
    return Regions(source, memory_mb, places=place is not None)


def open_probabilities(images: Sequence[str], features: Path, regions: int, memory_mb: float) -> Regions | None:
    """A detector's probabilities of background and classes, (images, regions, 1 + classes).

    Args:
        images: ids in the store (checked by :func:`open_regions`).
        features: the store.
        regions: number of regions of each image, the first ones.
        memory_mb: maximum size in memory.

    Returns:
        None if the store has no probabilities.

    Raises:
        FeatureError: an image is damaged.
    """
    store = open_store(features)
    if not store.header.probabilities:
        return None
    return Regions(_ProbabilitySource(store, images, regions), memory_mb)

"""The region features of a split's images, as tensors of equally many regions; in memory or read when asked for."""

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
"""What a network reads of the places of an image's regions, (regions, 4)."""


class _Source(Protocol):
    """Where the regions of a split's images come from."""

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
    """What the detector gives background and classes, in place of the features."""

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
            raise DataError(f"the arrays have different shapes: {sorted(sizes)}", path=path)
        n = _regions([first.shape[1]], ["all"], regions, path)
        self.shape = (len(self._place), n, first.shape[2])
        self.dtype = np.dtype(np.float16 if first.dtype == np.float16 else np.float32)

    def read(self, images: Sequence[int], into: NDArray[Any], places: NDArray[np.float32] | None = None) -> None:
        for row, image in enumerate(images):
            number, place = self._place[image]
            array, path = self._arrays[number]
            features = array[place, : self.shape[1]]
            if not np.isfinite(features).all():
                raise DataError("a feature is NaN or infinite", path=path, row=f"image {place}")
            into[row] = features


def _regions(counts: Sequence[int], images: Sequence[str], wanted: int | None, path: Path) -> int:
    """How many regions are taken of each image."""
    low, high = min(counts), max(counts)
    if wanted is not None:
        if low < wanted:
            raise FeatureError(
                f"image '{images[counts.index(low)]}' has {low} regions, fewer than 'regions' asks for ({wanted})",
                path=path,
                hint="Ask for fewer, or extract again with a fixed number of boxes",
            )
        return wanted
    if low < high:
        raise FeatureError(
            f"images have {low} to {high} regions, and training takes equally many of each",
            path=path,
            hint=f"Take the first of each with 'regions: {low}' in the training file, or extract with a fixed number",
        )
    return low


class Regions:
    """The region features of a split's images, by their place in it; in memory where they fit.

    Attributes:
        shape: (images, regions, columns).
        in_memory: whether they are read once, or whenever asked for.
    """

    def __init__(self, source: _Source, memory_mb: float, places: bool = False) -> None:
        self.shape = source.shape
        self._with_places = places
        self._source = source
        # HDF5 is used by the thread that prefetches and by evaluation.
        self._lock = threading.Lock()
        needed = float(np.prod(source.shape, dtype=np.float64)) * source.dtype.itemsize
        self.in_memory = needed <= memory_mb * 2**20
        self._features: torch.Tensor | None = None
        self._places: torch.Tensor | None = None
        if self.in_memory:
            features = np.empty(source.shape, dtype=source.dtype)
            held = self._empty_places(source.shape[0])
            source.read(range(source.shape[0]), features, held)
            self._features = torch.from_numpy(features)
            self._places = None if held is None else torch.from_numpy(held)

    def _empty_places(self, images: int) -> NDArray[np.float32] | None:
        return np.empty((images, self.shape[1], 4), dtype=np.float32) if self._with_places else None

    def take(self, images: Sequence[int] | NDArray[np.int64]) -> torch.Tensor:
        """(b, regions, columns) float32 of some images."""
        return self.take_placed(images)[0]

    def take_placed(self, images: Sequence[int] | NDArray[np.int64]) -> tuple[torch.Tensor, torch.Tensor | None]:
        """(b, regions, columns) float32 of some images, and (b, regions, 4) float32 of the places of their regions,
        None unless these were asked for."""
        # The result is always of torch's own memory: matrix products may round otherwise where it is aligned otherwise.
        if self._features is not None:
            chosen = torch.as_tensor(images)
            places = None if self._places is None else self._places.index_select(0, chosen)
            return self._features.index_select(0, chosen).float(), places
        distinct, inverse = np.unique(np.asarray(images), return_inverse=True)
        block = np.empty((len(distinct), *self.shape[1:]), dtype=np.float32)
        held = self._empty_places(len(distinct))
        with self._lock:
            self._source.read(distinct.tolist(), block, held)
        order = torch.from_numpy(inverse)
        places = None if held is None else torch.from_numpy(held).index_select(0, order)
        return torch.from_numpy(block).index_select(0, order), places


def open_regions(
    pairs: Pairs, features: Path | None, regions: int | None, memory_mb: float, place: PlaceOf | None = None
) -> Regions:
    """The features of a split's images.

    Args:
        pairs: the split.
        features: a feature store; None takes the arrays of SCAN's folder.
        regions: the first so many of each image; None: all.
        memory_mb: up to this size they are kept in memory.
        place: what the network reads of the places of regions; None: nothing.

    Raises:
        UsageError: places are asked for, of which arrays hold none.
        FeatureError: images are missing or damaged, or have different numbers of regions.
        DataError: an array is damaged.
    """
    if features is None:
        if place is not None:
            raise UsageError(
                "SCAN's arrays have no boxes, which this network reads", path=pairs.source, hint="Name a feature store"
            )
        return Regions(_ArraySource(pairs, regions), memory_mb)
    source = _StoreSource(open_store(features), pairs.images, regions, place)
    return Regions(source, memory_mb, places=place is not None)


def open_probabilities(images: Sequence[str], features: Path, regions: int, memory_mb: float) -> Regions | None:
    """What a detector gave the background and each class, (images, regions, 1 + classes).

    Args:
        images: ids; a store that has them (:func:`open_regions` saw to it).
        features: the store.
        regions: the first so many of each image.
        memory_mb: up to this size they are kept in memory.

    Returns:
        None if the store has none.

    Raises:
        FeatureError: an image is damaged.
    """
    store = open_store(features)
    if not store.header.probabilities:
        return None
    return Regions(_ProbabilitySource(store, images, regions), memory_mb)

"""Region features of a split's images as tensors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from capbench.core.errors import FeatureError
from capbench.datasets.root import DataRoot
from capbench.features.records import RegionFeatures
from capbench.features.store import open_store
from capbench.training.data import CaptionTraining, Pairs, locate

More = Callable[[RegionFeatures], Sequence[NDArray[Any]]]
"""What a network reads of an image besides features, such as boxes: arrays of equal shapes for all images."""


class Regions:
    """Arrays of images by index, features first, in memory if they fit, otherwise read on request."""

    def __init__(self, images: int, read: Callable[[int], Sequence[NDArray[Any]]], memory_mb: float) -> None:
        self._read = read  # returns the arrays of an image
        self._lock = threading.Lock()  # the prefetching thread and evaluations both use HDF5
        first = read(0)
        self.shape = (images, *first[0].shape)  # (images, regions, columns)
        self.in_memory = images * sum(array.nbytes for array in first) <= memory_mb * 2**20
        self._held: list[Tensor] = []
        if self.in_memory:
            self._held = [torch.from_numpy(np.empty((images, *array.shape), array.dtype)) for array in first]
            for image in range(images):
                for held, array in zip(self._held, read(image), strict=True):
                    held[image] = torch.from_numpy(array)

    def take(self, images: Sequence[int] | NDArray[np.int64]) -> list[Tensor]:
        """(b, regions, columns) float32 features of some images, and what else the network reads of them."""
        if self.in_memory:
            return [held.index_select(0, torch.as_tensor(images)).float() for held in self._held]
        distinct, places = np.unique(np.asarray(images), return_inverse=True)
        with self._lock:
            read = list(zip(*(self._read(image) for image in distinct.tolist()), strict=True))
        # A copy by torch, since the rounding of matrix products can depend on alignment.
        return [torch.from_numpy(np.stack(part)).float().index_select(0, torch.from_numpy(places)) for part in read]

    def mean(self) -> NDArray[np.float32]:
        """(columns,) the mean over images and regions."""
        blocks = np.array_split(np.arange(self.shape[0]), -(-self.shape[0] // 256))
        total = sum(self.take(block)[0].numpy().sum(axis=(0, 1), dtype=np.float64) for block in blocks)
        return np.asarray(total / (self.shape[0] * self.shape[1]), dtype=np.float32)


def open_regions(
    config: CaptionTraining, root: DataRoot | None, pairs: Pairs, more: More | None = None
) -> tuple[Regions, str, str]:
    """The features of a split's images, their kind, and a line that identifies them."""
    store = open_store(locate(config.features, root, "features"))
    store.require(pairs.images)
    counts = [store.regions(image) for image in pairs.images]
    low, n, dtype = min(counts), config.regions or max(counts), np.dtype(store.header.dtype)
    if low < n:
        image = pairs.images[counts.index(low)]
        message = f"image '{image}' has {low} regions, but training requires {n} of every image"
        hint = f"Set 'regions: {low}' in the training file to use the first ones, or extract a fixed number"
        raise FeatureError(message, code="too-few", value=image, path=store.paths[0], hint=hint)

    def read(image: int) -> list[NDArray[Any]]:
        regions = store[pairs.images[image]]
        return [regions.features[:n].astype(dtype), *(part[:n] for part in (more(regions) if more else ()))]

    return Regions(len(counts), read, config.memory_mb), store.fingerprint.kind, store.signature()

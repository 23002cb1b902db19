"""The base of metrics that look at the image: a feature store, and items worked on image by image.

Scoring hands such a metric all items of an image together, so an image's features are read and encoded once and all
captions of it compared at once.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from capbench.errors import FeatureError, MetricError, ModelError
from capbench.metrics.base import Metric, Progress
from capbench.metrics.needs import Features, Need, References
from capbench.records import FloatArray, Item

if TYPE_CHECKING:
    from capbench.features.store import FeatureStore

__all__ = ["ImageMetric", "check_features"]


class ImageMetric(Metric):
    """A metric of captions over the regions of their images.

    A subclass gives :meth:`image_statistics`, and :meth:`encode` if captions are encoded by a network, which is done
    for the captions of many images at once.
    """

    needs: ClassVar[tuple[Need, ...]] = (References(), Features())
    by_image: ClassVar[bool] = True
    texts_at_once: int = 2048
    """Captions that :meth:`encode` gets at most, unless a single image has more."""

    @cached_property
    def store(self) -> FeatureStore:
        """The region features. Raises FeatureError if they cannot be read."""
        from capbench.features.store import open_store

        if self.resources.features is None:
            raise MetricError(f"{self.name} has no region features", hint="Give --features STORE")
        return open_store(self.resources.features)

    def prepare(self, items: Sequence[Item]) -> None:
        """Look whether features are there. Raises FeatureError if the store lacks some images; they are counted."""
        super().prepare(items)
        self.store.require([item.image for item in items])

    def cache_key(self, item: Item) -> bytes:
        """The item's key with the checksum of its image's features: stores of one fingerprint may hold different ones,
        since an imported file does not tell what computed it."""
        checksum = self.store.checksum(item.image)
        return item.key if checksum is None else item.key + checksum.to_bytes(4, "little")

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """(n, k) statistics, image by image in the order of the images' ids."""
        places: dict[str, list[int]] = {}
        for place, item in enumerate(items):
            places.setdefault(item.image, []).append(place)
        statistics: FloatArray | None = None
        for image, of_image, encodings in self.images({n: [items[p] for p in ps] for n, ps in places.items()}):
            rows = np.asarray(self.image_statistics(image, of_image, encodings), dtype=np.float64)
            if rows.ndim != 2 or len(rows) != len(of_image):
                raise MetricError(f"{self.name} gave statistics of shape {rows.shape} for {len(of_image)} items")
            if statistics is None:
                statistics = np.empty((len(items), rows.shape[1]))
            statistics[places[image]] = rows
            progress(len(of_image))
        if statistics is None:
            raise MetricError(f"{self.name} was given no items")
        return statistics

    def images(self, items: Mapping[str, Sequence[Item]]) -> Iterator[tuple[str, Sequence[Item], Mapping[str, Any]]]:
        """Images in the order of their ids, each with its items and the encodings of their captions.

        Captions of many images are encoded at once, but of no more than :attr:`texts_at_once`.
        """
        texts = {
            name: {text for i in of_image for text in (i.candidate, *i.references)} for name, of_image in items.items()
        }
        batch: list[str] = []
        texts_in_batch = 0
        for name in [*sorted(items), ""]:
            if batch and (not name or texts_in_batch + len(texts[name]) > self.texts_at_once):
                encodings = self.encode(sorted(set[str]().union(*(texts[image] for image in batch))))
                for image in batch:
                    yield image, items[image], encodings
                batch, texts_in_batch = [], 0
            if name:
                batch.append(name)
                texts_in_batch += len(texts[name])

    def encode(self, texts: Iterable[str]) -> Mapping[str, Any]:
        """Encodings of distinct captions, by caption; by default none."""
        return {}

    @abc.abstractmethod
    def image_statistics(self, image: str, items: Sequence[Item], encodings: Mapping[str, Any]) -> FloatArray:
        """Statistics (items, k) of items of one image.

        Args:
            image: its id; its features are ``self.store[image].features``, (regions, D) float32.
            items: items of this image.
            encodings: what :meth:`encode` gave for their captions, and perhaps for others.
        """


def check_features(model: Path, size: int, trained: str | None, store: FeatureStore, any_features: bool) -> None:
    """See to it that a store holds features of the size and the kind that a model reads.

    Args:
        model: the file of its weights.
        size: columns that it reads.
        trained: id of the fingerprint, or of its kind, of the features that it was trained on; None if unknown.
        store: the features.
        any_features: whether features of another kind are taken.

    Raises:
        ModelError: they are of another size.
        FeatureError: they are of another kind.
    """
    if store.feature_size != size:
        raise ModelError(
            f"reads features of {size} columns, and {store.paths[0]} holds features of {store.feature_size}",
            path=model,
            hint="Give the features that it was trained on, or a model for these",
        )
    fingerprint = store.fingerprint
    if trained is not None and trained not in (fingerprint.kind, fingerprint.digest) and not any_features:
        raise FeatureError(
            f"holds features of the kind {fingerprint.kind} ({fingerprint.detector}, {fingerprint.mode}), and "
            f"{model} was trained on features of the kind {trained}",
            path=store.paths[0],
            hint="Give the store of the kind it was trained on, or say any_features=true (it then stands in the "
            "signature)",
        )

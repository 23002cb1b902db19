"""The base of metrics that look at the image: a feature store, and items worked on image by image.

Scoring hands such a metric all items of an image together, so an image's features are read and encoded once and all
captions of it compared at once.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from capbench.core.errors import FeatureError, MetricError, ModelError
from capbench.core.files import sha256_file
from capbench.core.records import FloatArray, Item
from capbench.metrics.base import Metric, Progress
from capbench.metrics.needs import Features, Need, References
from capbench.text.vocabulary import Vocabulary, tokenize_caption
from capbench.weights.ensembles import read_ensemble
from capbench.weights.registry import locate

if TYPE_CHECKING:
    from capbench.features.store import FeatureStore

__all__ = [
    "ImageMetric",
    "NetworkFiles",
    "TrainedModel",
    "check_features",
    "opened_networks",
    "signed_together",
    "store_key",
    "unknown_words",
]


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


# What metrics over trained networks share: one network or an ensemble, beside the feature store that it looks at.


class TrainedModel(Protocol):
    """A loaded network that looks at region features."""

    @property
    def path(self) -> Path:
        """The file of its weights."""

    @property
    def features(self) -> str | None:
        """Id of the fingerprint of the features that it was trained on, None if unknown."""

    def signature_parts(self) -> Mapping[str, str]:
        """What of it can change a score, ``model`` first."""


@dataclass(frozen=True)
class NetworkFiles:
    """The files of weights behind what ``--model`` names.

    Attributes:
        paths: of the networks, in the order in which they are used.
        sha256: of each.
        ensemble: the ensemble's file; None for a single network.
    """

    paths: tuple[Path, ...]
    sha256: tuple[str, ...]
    ensemble: Path | None


def opened_networks(model: str, metric: str = "tiger") -> NetworkFiles:
    """The files of one network or of an ensemble's.

    Args:
        model: a path or a name, as :func:`capbench.weights.registry.locate` takes them.
        metric: for which it is.

    Raises:
        ModelError: there is none, or a part of an ensemble is not there or is another file than it was.
    """
    file = locate(model, metric)
    ensemble = read_ensemble(file)
    if ensemble is None:
        return NetworkFiles((file,), (sha256_file(file),), None)
    ensemble.verify()
    parts = ensemble.parts
    return NetworkFiles(tuple(part.path for part in parts), tuple(part.sha256 for part in parts), ensemble.path)


def store_key(store: FeatureStore) -> tuple[object, ...]:
    """What tells a store from others in this process: two of one signature may hold different images."""
    places = tuple((str(path.resolve()), path.stat().st_mtime_ns, path.stat().st_size) for path in store.paths)
    return (store.signature(), places)


def signed_together(models: Sequence[TrainedModel]) -> dict[str, object]:
    """What of networks can change a score. An ensemble names them all; of other facts one, if all have the same."""
    signed = [model.signature_parts() for model in models]
    parts: dict[str, object] = {}
    for key in signed[0]:
        values = [of_model[key] for of_model in signed]
        parts[key] = values[0] if len(set(values)) == 1 else ",".join(values)
    if len(signed) > 1:
        parts["model"] = "+".join([f"mean-of-{len(signed)}", *(of_model["model"] for of_model in signed)])
    return parts


def check_features(model: TrainedModel, store: FeatureStore, size: int, any_features: bool) -> None:
    """Check that a store holds the features that a network was trained on.

    Args:
        model: the network.
        store: the features.
        size: columns that the network reads.
        any_features: whether features of another fingerprint than the training's are taken.

    Raises:
        ModelError: its image layer is for features of another size.
        FeatureError: the store holds features of another fingerprint than the network saw.
    """
    if store.feature_size != size:
        raise ModelError(
            f"reads features of {size} columns, and {store.paths[0]} holds features of {store.feature_size}",
            path=model.path,
            hint="Give the features that it was trained on, or a model for these",
        )
    trained, fingerprint = model.features, store.fingerprint
    if trained is not None and trained not in (fingerprint.kind, fingerprint.digest) and not any_features:
        raise FeatureError(
            f"holds features of the kind {fingerprint.kind} ({fingerprint.detector}, {fingerprint.mode}), and "
            f"{model.path} was trained on features of the kind {trained}",
            path=store.paths[0],
            hint="Give the store of the kind it was trained on, or say any_features=true (it then stands in the "
            "signature)",
        )


def unknown_words(known: Sequence[Vocabulary], texts: Sequence[str]) -> list[str]:
    """One note that names the words of texts which a network does not know, or none."""
    distinct = dict.fromkeys(word for text in texts for word in tokenize_caption(text))
    words = [word for word in distinct if any(word not in vocabulary for vocabulary in known)]
    whose = "the model's vocabulary" if len(known) == 1 else "the vocabularies of all networks"
    return [f"not in {whose}, read as <unk>: {', '.join(words)}"] if words else []

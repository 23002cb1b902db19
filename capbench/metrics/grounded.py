"""What TIGEr and REO share: one grounding model, one feature store, and each image and caption encoded once.

Items are worked on image by image, whatever their order: an image's features are read and encoded once and all captions
of it compared together. Encoded captions and images are kept up to a limit of memory, in one place for both metrics.
"""

from __future__ import annotations

import abc
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from capbench import files
from capbench.errors import FeatureError, MetricError, ModelError, UsageError
from capbench.features.store import FeatureStore, open_store
from capbench.metrics.base import Metric, Progress, Resources
from capbench.metrics.grounding import Attention
from capbench.models.registry import locate
from capbench.records import FloatArray, Item
from capbench.text.vocabulary import UNKNOWN

if TYPE_CHECKING:
    from capbench.models.scan_files import GroundingModel

__all__ = ["GroundedMetric", "GroundingSource", "open_source"]

_CAPTION_BYTES = 512 << 20
_IMAGE_BYTES = 256 << 20
_SOURCES = 2
_CAPTIONS_AT_ONCE = 128
_STEP = 4
_TEXTS_AT_ONCE = 2048

K = TypeVar("K")


class Bounded(Generic[K]):
    """Arrays by key, the longest unused thrown away first once they take too many bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._bytes = 0
        self._held: OrderedDict[K, NDArray[Any]] = OrderedDict()

    def get(self, key: K) -> NDArray[Any] | None:
        """The array, or None."""
        found = self._held.get(key)
        if found is not None:
            self._held.move_to_end(key)
        return found

    def put(self, key: K, value: NDArray[Any]) -> None:
        """Keep an array."""
        if key not in self._held:
            self._bytes += value.nbytes
            self._held[key] = value
        while self._bytes > self._limit and len(self._held) > 1:
            self._bytes -= self._held.popitem(last=False)[1].nbytes


class GroundingSource:
    """A grounding model and the features it looks at; made by :func:`open_source`.

    Attributes:
        model: the trained network with its vocabulary.
        store: the region features.
        encoded_captions: captions encoded so far, for tests and benchmarks.
        encoded_images: images encoded so far.
    """

    def __init__(self, model: GroundingModel, store: FeatureStore) -> None:
        self.model = model
        self.store = store
        self.encoded_captions = 0
        self.encoded_images = 0
        self._words: Bounded[tuple[int, ...]] = Bounded(_CAPTION_BYTES)
        self._regions: Bounded[str] = Bounded(_IMAGE_BYTES)

    def signature_parts(self) -> dict[str, object]:
        """Model, vocabulary and attention as trained, and what computed the features."""
        return {**self.model.signature_parts(), "features": self.store.signature()}

    def captions(self, texts: Iterable[str]) -> dict[str, NDArray[np.float32]]:
        """Word vectors (m, D) of each text, ``<start>`` and ``<end>`` included.

        Texts of the same words are encoded once, with others of their length in batches of a multiple of four, filled
        up with unknown words. Such batches were seen to give a caption the same bits whatever stands beside it; others
        differ in the eighth digit, since other kernels do the sums.
        """
        keys = {text: tuple(self.model.vocabulary.encode(text)) for text in dict.fromkeys(texts)}
        found: dict[tuple[int, ...], NDArray[np.float32]] = {}
        by_length: dict[int, list[tuple[int, ...]]] = {}
        for key in dict.fromkeys(keys.values()):
            held = self._words.get(key)
            if held is not None:
                found[key] = held
            else:
                by_length.setdefault(len(key), []).append(key)
        for _, waiting in sorted(by_length.items()):
            for start in range(0, len(waiting), _CAPTIONS_AT_ONCE):
                part = waiting[start : start + _CAPTIONS_AT_ONCE]
                for key, words in zip(part, self._encode(part), strict=True):
                    found[key] = words
                    self._words.put(key, words)
        return {text: found[key] for text, key in keys.items()}

    def _encode(self, captions: Sequence[tuple[int, ...]]) -> list[NDArray[np.float32]]:
        import torch

        filling = (UNKNOWN,) * len(captions[0])
        rows = [*captions, *[filling] * (-len(captions) % _STEP)]
        with torch.inference_mode():
            ids = torch.tensor(rows, dtype=torch.int64, device=self.model.device)
            lengths = torch.full((len(rows),), ids.shape[1], dtype=torch.int64)
            encoded = self.model.network.encode_captions(ids, lengths).float().cpu().numpy()
        self.encoded_captions += len(captions)
        return [row.copy() for row in encoded[: len(captions)]]  # a view would keep the whole batch

    def regions(self, image: str) -> FloatArray:
        """Region vectors (n, D) float64 of an image. Raises FeatureError if the store lacks it."""
        held = self._regions.get(image)
        if held is None:
            (held,) = self.model.encode_images([self.store[image].features])
            self.encoded_images += 1
            self._regions.put(image, held)
        return held.astype(np.float64)


_open: OrderedDict[tuple[object, ...], GroundingSource] = OrderedDict()


def open_source(
    features: str, model: str, *, vocabulary: str | None = None, any_features: bool = False
) -> GroundingSource:
    """A model with a store, from memory if these files were opened before in this process.

    Args:
        features: path of a feature store.
        model: path of a grounding model (:func:`capbench.models.scan_files.load_scan`).
        vocabulary: path of the vocabulary JSON, for a released checkpoint that it does not lie beside.
        any_features: whether features of another fingerprint than the training's are taken.

    Raises:
        FeatureError: the store cannot be read, or holds features of another fingerprint than the model saw.
        ModelError: the model cannot be read, or its image layer is for features of another size.
    """
    file = locate(model)
    store = open_store(features)
    given = None if vocabulary is None else files.sha256_file(vocabulary)
    # The store's place is part of the key, since two stores of one signature may hold different images.
    places = tuple((str(path.resolve()), path.stat().st_mtime_ns, path.stat().st_size) for path in store.paths)
    key = (files.sha256_file(file), given, store.signature(), places)
    if key not in _open:
        from capbench.models.scan_files import load_scan

        loaded = load_scan(file, vocabulary)
        _open[key] = GroundingSource(loaded, store)
        while len(_open) > _SOURCES:
            _open.popitem(last=False)
    _open.move_to_end(key)
    source = _open[key]
    _check(source.model, source.store, any_features)
    return source


def _check(model: GroundingModel, store: FeatureStore, any_features: bool) -> None:
    size = model.options.image_dim
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


def one_thread() -> AbstractContextManager[object]:
    """NumPy's products in one thread: those of one image are small, and threads would wait for each other."""
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[object] = threadpool_limits(1, user_api="blas")
    return limits


class GroundedMetric(Metric):
    """A metric of captions over the regions of their images.

    Args:
        resources: ``features`` and ``model`` must be given.
        attention: λ, norm, clip and whether ends count; None for λ or the norm takes the model's own.
        vocabulary: path of the vocabulary JSON of a released checkpoint.
        any_features: see :func:`open_source`.
        options: options that decide what must be given.

    Raises:
        MetricError: features or model are not given.
        UsageError: an option's value does not fit.
        FeatureError, ModelError: see :func:`open_source`.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"references", "features", "weights"})

    def __init__(
        self,
        resources: Resources | None,
        attention: Mapping[str, Any],
        vocabulary: str | None,
        any_features: bool,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(resources)
        lacking = self.lacks(self.resources, options)
        if lacking:
            raise MetricError(f"{self.name} waits for {lacking}")
        assert self.resources.features is not None
        assert self.resources.model is not None
        if not isinstance(any_features, bool):
            raise UsageError(f"{self.name}.any_features={any_features}: not true or false", hint="Write true or false")
        self.attention = Attention(**{k: v for k, v in attention.items() if v is not None})
        self.source = open_source(
            self.resources.features, self.resources.model, vocabulary=vocabulary, any_features=any_features
        )
        own = self.source.model.options
        defaults = {"smoothing": own.lambda_softmax, "norm": own.feature_norm}
        self.attention = Attention(**{**attention, **{k: v for k, v in defaults.items() if attention[k] is None}})
        self._any_features = any_features
        self._waiting: dict[str, dict[bytes, Item]] = {}
        self._rows: dict[bytes, FloatArray] = {}

    @classmethod
    def lacks(cls, resources: Resources, options: Mapping[str, Any] | None = None) -> str | None:
        """Region features, a grounding model, or both, with how to give and to make them."""
        parts = []
        if not resources.features:
            parts.append("region features (--features STORE, made by 'capbench extract-features')")
        elif not Path(resources.features).exists():
            parts.append(
                f"region features: there is no {resources.features} (make it with 'capbench extract-features')"
            )
        if not resources.model:
            parts.append(f"a grounding model (--model {cls.name}=FILE, made by 'capbench train scan')")
        return " and ".join(parts) or None

    def signature_parts(self) -> Mapping[str, object]:
        """Model, vocabulary, the attention that was trained, features, and the attention that is used here."""
        used = self.attention
        parts: dict[str, object] = {**self.source.signature_parts(), "lambda": f"{used.smoothing:g}"}
        parts |= {"norm": used.norm, "clip": used.clip, "ends": "counted" if used.count_ends else "left-out"}
        if self._any_features:
            parts["any_features"] = "true"
        return parts

    def open(self, items: Sequence[Item]) -> None:
        """Sort items by image. Raises FeatureError if the store lacks some of their images; they are counted."""
        self.source.store.require([item.image for item in items])
        for item in items:
            self._waiting.setdefault(item.image, {})[item.key] = item

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """Statistics image by image: those of an image's other items that :meth:`open` saw are kept for later."""
        new = [item for item in items if item.key not in self._rows]
        if any(item.key not in self._waiting.get(item.image, ()) for item in new):
            self.open(new)
        asked = Counter(item.image for item in new)
        progress(len(items) - len(new))
        with one_thread():
            for image, waiting, words in self.by_image({name: list(self._waiting[name].values()) for name in asked}):
                rows = self.image_statistics(image, waiting, words)
                self._rows.update(zip((item.key for item in waiting), rows, strict=True))
                del self._waiting[image]
                progress(asked[image])
        found = np.array([self._rows[item.key] for item in items])
        for item in items:
            self._rows.pop(item.key, None)
        return found

    def by_image(
        self, items: Mapping[str, Sequence[Item]]
    ) -> Iterator[tuple[str, Sequence[Item], Mapping[str, NDArray[np.float32]]]]:
        """Images in the order of their ids, each with its items and the word vectors of their captions.

        Captions of many images are encoded at once, but of no more than some thousand captions.
        """
        texts = {name: {text for i in own for text in (i.candidate, *i.references)} for name, own in items.items()}
        part: list[str] = []
        held = 0
        for name in [*sorted(items), ""]:
            if part and (not name or held + len(texts[name]) > _TEXTS_AT_ONCE):
                words = self.encode(set[str]().union(*(texts[image] for image in part)))
                for image in part:
                    yield image, items[image], words
                part, held = [], 0
            if name:
                part.append(name)
                held += len(texts[name])

    def encode(self, texts: Iterable[str]) -> dict[str, NDArray[np.float32]]:
        """Word vectors of texts; how they are batched does not depend on the order of items."""
        return self.source.captions(sorted(texts))

    @abc.abstractmethod
    def image_statistics(
        self, image: str, items: Sequence[Item], words: Mapping[str, NDArray[np.float32]]
    ) -> FloatArray:
        """Statistics (items, k) of items of one image, given the word vectors of all their captions."""

"""What TIGEr and REO share: a grounding model, a feature store, and items worked on image by image.

Whatever the items' order, an image's features are read and encoded once and all captions of it compared together.
"""

from __future__ import annotations

import abc
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from capbench.errors import MetricError, ModelError, UsageError
from capbench.metrics.base import Metric, Progress, Resources
from capbench.metrics.grounding.source import open_source
from capbench.metrics.grounding.vectors import Attention
from capbench.records import FloatArray, Item

__all__ = ["GroundedMetric", "one_thread"]

_TEXTS_AT_ONCE = 2048


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
        own = {key: self._trained(key) for key in ("smoothing", "norm") if attention[key] is None}
        self.attention = Attention(**{**attention, **own})
        self._any_features = any_features
        self._waiting: dict[str, dict[bytes, Item]] = {}
        self._rows: dict[bytes, FloatArray] = {}

    def _trained(self, key: str) -> Any:
        """λ or the norm with which the model, or all networks of an ensemble, were trained."""
        option, name = {"smoothing": ("lambda_softmax", "lambda_softmax"), "norm": ("norm", "feature_norm")}[key]
        models = self.source.models
        values = [getattr(model.options, name) for model in models]
        for model, value in zip(models, values, strict=True):
            if value != values[0]:
                raise ModelError(
                    f"was trained with {name}={value}, and {models[0].path} of the same ensemble with {values[0]}",
                    path=model.path,
                    hint=f"Say which to take: {self.name}.{option}={values[0]}",
                )
        return values[0]

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

    def cache_key(self, item: Item) -> bytes:
        """The item's key with the checksum of its image's features: stores of one fingerprint may hold different ones,
        since an imported file does not tell what computed it."""
        checksum = self.source.store.checksum(item.image)
        return item.key if checksum is None else item.key + checksum.to_bytes(4, "little")

    def prepare(self, items: Sequence[Item]) -> None:
        """Look whether features are there. Raises FeatureError if the store lacks some images; they are counted."""
        super().prepare(items)
        self.source.store.require([item.image for item in items])

    def open(self, items: Sequence[Item]) -> None:
        """Sort items by image."""
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
        limit = _TEXTS_AT_ONCE // len(self.source.models)
        part: list[str] = []
        held = 0
        for name in [*sorted(items), ""]:
            if part and (not name or held + len(texts[name]) > limit):
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

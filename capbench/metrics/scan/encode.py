"""A grounding model or ensemble with its features, and the base of TIGEr and REO.

Their attention has regions as queries (``i2t``): the context of a region is a weighted sum of a caption's words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import ModelError
from capbench.core.options import Choice, File, Flag, Positive, option
from capbench.core.records import FloatArray
from capbench.features.store import FeatureStore
from capbench.metrics.image_metric import (
    ImageMetric,
    ImageOptions,
    check_features,
    loaded_networks,
    signed_together,
)
from capbench.metrics.needs import Features, Need, References, Resources, Weights
from capbench.metrics.pair_metric import PairMetric
from capbench.weights.encodings import Encodings

if TYPE_CHECKING:
    from torch import Tensor

    from capbench.metrics.scan.files import GroundingModel
    from capbench.metrics.scan.network import Attention


class GroundingSource:
    """Networks with their features; word vectors stay in memory with the networks, up to a limit.

    Under an ensemble, vectors of words and regions are the networks' concatenated vectors, which :meth:`parts` splits.
    """

    def __init__(self, models: Sequence[GroundingModel], store: FeatureStore) -> None:
        self.models, self.store = models, store
        self._ends = np.cumsum([model.options.embed_dim for model in models])[:-1]
        self._regions = Encodings()

    @property
    def model(self) -> GroundingModel:
        """The network, which must be a single one."""
        if len(self.models) > 1:
            message, hint = f"is one of {len(self.models)} networks of an ensemble: one is required", "Use it alone"
            raise ModelError(message, code="unsupported", value=len(self.models), path=self.models[0].path, hint=hint)
        return self.models[0]

    def captions(self, texts: Iterable[str]) -> dict[str, NDArray[np.float32]]:
        """Word vectors (m, D) of each distinct text, with ``<start>`` and ``<end>``."""
        distinct = list(dict.fromkeys(texts))
        encoded = [model.encode_captions(distinct) for model in self.models]
        return {text: np.concatenate([vectors[text] for vectors in encoded], axis=1) for text in distinct}

    def regions(self, image: str) -> FloatArray:
        """Region vectors (n, D) float64 of an image."""

        def encode(images: Sequence[str]) -> Iterator[NDArray[np.float32]]:
            features = self.store[images[0]].features
            yield np.concatenate([model.encode_image(features) for model in self.models], axis=1)

        return self._regions.of([image], encode, 1)[image].astype(np.float64)

    def parts(self, vectors: NDArray[Any]) -> list[NDArray[Any]]:
        """Views (…, D_i) of vectors (…, D) of words or regions, one per network."""
        return np.split(vectors, self._ends, axis=-1)


def open_source(
    store: FeatureStore, model: str, *, vocabulary: str | None = None, any_features: bool = False
) -> GroundingSource:
    """A grounding model or an ensemble, from memory if this process has read it before, with region features."""
    from capbench.metrics.scan.files import load_scan

    models = loaded_networks(model, "tiger", load_scan, vocabulary)
    for network in models:
        check_features(network, store, network.options.image_dim, any_features)
    return GroundingSource(models, store)


T = TypeVar("T")
NORMS = ("clipped_l2norm", "l2norm", "clipped", "softmax", "no_norm")
_LEAKS = {"leaky": 0.1, "relu": 0.0}


@dataclass(frozen=True)
class GroundingOptions(ImageOptions):
    """Options of metrics over a grounding model."""

    lambda_softmax: float | None = option(
        None, Positive(), "λ of the attention; by default as in training", sign_as="lambda"
    )
    norm: str | None = option(
        None, Choice(*NORMS), "normalisation of products before the attention; by default as in training"
    )
    clip: str = option("leaky", Choice(*_LEAKS), "LeakyReLU 0.1 as in SCAN's training, or max(0, ·) as in the paper")
    count_ends: bool = option(True, Flag(("left-out", "counted")), "count <start> and <end> as words", sign_as="ends")
    vocabulary: str | None = option(
        None, File("a vocabulary"), "the vocabulary of a released checkpoint, if it is not next to it", sign_as=""
    )
    any_features: bool = option(False, Flag(), "accept features of another fingerprint than in training", quiet=True)

    def attention(self, metric: str, models: Sequence[GroundingModel]) -> Attention:
        """The attention with the λ and norm of the training, unless they are set."""
        from capbench.metrics.scan.network import Attention

        chosen = {}
        for name, trained in (("norm", "feature_norm"), ("lambda_softmax", "lambda_softmax")):
            first, *others = (getattr(model.options, trained) for model in models)
            chosen[name] = first if getattr(self, name) is None else getattr(self, name)
            for model, value in zip(models[1:], others, strict=True):
                if value != first and getattr(self, name) is None:
                    message = f"was trained with {trained}={value}, but {models[0].path} of the ensemble with {first}"
                    hint = f"Set the value to use: {metric}.{name}={first}"
                    raise ModelError(message, code="mismatch", value=value, path=model.path, hint=hint)
        return Attention("i2t", chosen["norm"], chosen["lambda_softmax"], _LEAKS[self.clip])

    def padded(self, captions: Sequence[NDArray[Any]]) -> tuple[Tensor, Tensor]:
        """Words (m_i, D) of k captions, with ``<start>`` and ``<end>`` if these count: (k, m, D) float64, lengths."""
        import torch

        counted = [torch.tensor(words if self.count_ends else words[1:-1], dtype=torch.float64) for words in captions]
        lengths = torch.tensor([len(words) for words in counted])
        return torch.nn.utils.rnn.pad_sequence(counted, batch_first=True), lengths

    def words(self, text: str) -> tuple[str, ...]:
        """A caption's words, one for each vector that counts."""
        from capbench.text.vocabulary import END, SPECIAL, START, tokenize_caption

        tokens = tokenize_caption(text)
        return (SPECIAL[START], *tokens, SPECIAL[END]) if self.count_ends else tuple(tokens)


class GroundedMetric(PairMetric, ImageMetric):
    """A metric over a grounding model, which encodes regions and words into one space."""

    packages = ("torch", "nltk")
    needs: ClassVar[tuple[Need, ...]] = (
        References(),
        Features(),
        Weights("a grounding model", "capbench train scan", "tiger"),
    )
    against_image = True
    options: GroundingOptions

    def __init__(self, resources: Resources | None = None, **options: Any) -> None:
        super().__init__(resources, **options)
        chosen = self.options
        self.source = open_source(
            self.store, str(self.resources.model), vocabulary=chosen.vocabulary, any_features=chosen.any_features
        )
        self.texts_at_once = PairMetric.texts_at_once // len(self.source.models)
        self.attention = chosen.attention(self.name, self.source.models)

    def facts(self) -> Mapping[str, object]:
        return {
            **signed_together(self.source.models),
            "features": self.source.store.signature(),
            "lambda": Positive().sign(self.attention.smoothing),
            "norm": self.attention.norm,
            "refs": "mean",
        }

    def encode(self, texts: Sequence[str]) -> Mapping[str, Any]:
        """Word vectors (m, D) of texts."""
        return self.source.captions(texts)


def chunks(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Successive parts of at most ``size`` values."""
    return (values[start : start + size] for start in range(0, len(values), size))

"""What TIGEr and REO share: a grounding model beside the feature store, and the attention between words and regions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from capbench.errors import ModelError
from capbench.metrics.base import Progress, Resources
from capbench.metrics.grounding.source import open_source
from capbench.metrics.grounding.vectors import CLIPS, NORMS, Attention
from capbench.metrics.image_metric import ImageMetric
from capbench.metrics.needs import Features, Need, References, Weights
from capbench.options import Choice, File, Flag, Options, Positive, option
from capbench.records import FloatArray, Item

__all__ = ["GroundedMetric", "GroundingOptions", "one_thread"]

_TRAINED = {"lambda_softmax": "lambda_softmax", "norm": "feature_norm"}
"""Options that a model was trained with, by the model's name for them."""


def one_thread() -> AbstractContextManager[object]:
    """NumPy's products in one thread: those of one image are small, and threads would wait for each other."""
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[object] = threadpool_limits(1, user_api="blas")
    return limits


@dataclass(frozen=True)
class GroundingOptions(Options):
    """Options of metrics over a grounding model."""

    lambda_softmax: float | None = option(
        None, Positive(), "λ of the attention; the model's own by default", sign_as="lambda"
    )
    norm: str | None = option(
        None, Choice(*NORMS), "how products are normalised before the attention; the model's own by default"
    )
    clip: str = option("leaky", Choice(*CLIPS), "LeakyReLU 0.1 as SCAN is trained, or max(0, ·) as printed")
    count_ends: bool = option(
        True, Flag(("left-out", "counted")), "whether <start> and <end> count as words", sign_as="ends"
    )
    vocabulary: str | None = option(
        None, File("a vocabulary"), "the vocabulary of a released checkpoint that it does not lie beside", sign_as=""
    )
    any_features: bool = option(
        False, Flag(), "take features of another fingerprint than the model was trained on", quiet=True
    )


class GroundedMetric(ImageMetric):
    """A metric over a grounding model, which encodes regions and words into one space.

    Raises:
        MetricError: features or model are not given.
        UsageError: an option's value does not fit.
        FeatureError, ModelError: see :func:`open_source`.
    """

    needs: ClassVar[tuple[Need, ...]] = (
        References(),
        Features(),
        Weights("a grounding model", "capbench train scan"),
    )
    options: GroundingOptions

    def __init__(self, resources: Resources | None = None, **options: Any) -> None:
        super().__init__(resources, **options)
        chosen = self.options
        assert self.resources.features is not None
        assert self.resources.model is not None
        self.source = open_source(
            self.resources.features,
            self.resources.model,
            vocabulary=chosen.vocabulary,
            any_features=chosen.any_features,
        )
        self.store = self.source.store
        self.texts_at_once = ImageMetric.texts_at_once // len(self.source.models)
        smoothing = self._trained("lambda_softmax") if chosen.lambda_softmax is None else chosen.lambda_softmax
        norm = self._trained("norm") if chosen.norm is None else chosen.norm
        self.attention = Attention(smoothing=smoothing, norm=norm, clip=chosen.clip, count_ends=chosen.count_ends)

    def _trained(self, option_name: str) -> Any:
        """λ or the norm with which the model, or all networks of an ensemble, were trained."""
        trained_name = _TRAINED[option_name]
        models = self.source.models
        values = [getattr(model.options, trained_name) for model in models]
        for model, value in zip(models, values, strict=True):
            if value != values[0]:
                raise ModelError(
                    f"was trained with {trained_name}={value}, and {models[0].path} of the same ensemble with "
                    f"{values[0]}",
                    path=model.path,
                    hint=f"Say which to take: {self.name}.{option_name}={values[0]}",
                )
        return values[0]

    def facts(self) -> Mapping[str, object]:
        """Model, vocabulary, the attention that was trained, features, and λ and the norm that are used here."""
        attention = self.attention
        return {**self.source.signature_parts(), "lambda": Positive().sign(attention.smoothing), "norm": attention.norm}

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """(n, k) statistics, image by image."""
        with one_thread():
            return super().statistics(items, progress)

    def encode(self, texts: Iterable[str]) -> dict[str, NDArray[np.float32]]:
        """Word vectors of texts; how they are batched does not depend on the order of items."""
        return self.source.captions(sorted(texts))

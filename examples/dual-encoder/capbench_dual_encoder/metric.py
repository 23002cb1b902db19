"""The metric: CLIPScore's formulas over a dual encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from capbench import (
    ContrastiveMetric,
    ContrastiveOptions,
    Features,
    Flag,
    FloatArray,
    Item,
    References,
    Resources,
    Weights,
    option,
)
from capbench.metrics.image_metric import ImageOptions
from capbench.weights.encodings import Encodings

if TYPE_CHECKING:
    from capbench_dual_encoder.files import DualEncoderModel

__all__ = ["DualEncoderMetric"]

_IMAGES = 256


@dataclass(frozen=True)
class DualEncoderMetricOptions(ContrastiveOptions, ImageOptions):
    """Options of the dual encoder."""

    any_features: bool = option(
        False, Flag(), "accept features of another fingerprint than the model was trained on", quiet=True
    )


class DualEncoderMetric(ContrastiveMetric):
    """CLIPScore's two formulas over a small dual encoder that 'capbench train clip' trains on region features.

    It is neither CLIP nor a published metric, so its columns have separate names: ``dual-encoder`` is w ·
    max(cos(image, candidate), 0), and ``ref-dual-encoder`` its harmonic mean with the maximum cosine of the candidate
    and a reference. The first requires no references. With an ensemble, a cosine is the mean over the networks.

    Raises:
        ModelError: the weights cannot be read, or require features of another size.
        FeatureError: the store cannot be read, or contains features of another fingerprint than the training's.
    """

    name: ClassVar[str] = "dual-encoder"
    columns: ClassVar[tuple[str, ...]] = ("dual-encoder", "ref-dual-encoder")
    titles: ClassVar[Mapping[str, str]] = {"dual-encoder": "Dual encoder", "ref-dual-encoder": "Ref dual encoder"}
    citation: ClassVar[str] = (
        "ours; the formulas of Hessel et al., CLIPScore: a reference-free evaluation metric for image captioning, "
        "EMNLP 2021"
    )
    needs = (References(), Features(), Weights("a dual encoder", "capbench train clip", "dual-encoder"))
    batch_size: int = 4096

    option_type = DualEncoderMetricOptions
    options: DualEncoderMetricOptions

    def __init__(self, resources: Resources | None = None, **options: Any) -> None:
        from capbench.metrics.image_metric import check_features, loaded_networks, shown_store
        from capbench_dual_encoder.files import load_dual_encoder

        super().__init__(resources, **options)
        assert self.resources.model is not None
        self.models: Sequence[DualEncoderModel] = loaded_networks(self.resources.model, self.name, load_dual_encoder)
        self.store = shown_store(self.name, self.resources, self.options)
        for model in self.models:
            check_features(model, self.store, model.options.image_dim, self.options.any_features)

    @cached_property
    def _images(self) -> Encodings:
        return Encodings()

    def facts(self) -> Mapping[str, object]:
        """The networks, their vocabularies, and the origin of the features."""
        from capbench.metrics.image_metric import signed_together

        return {**signed_together(self.models), "features": self.store.signature()}

    def prepare(self, items: Sequence[Item]) -> None:
        """Check that the images have features. Raises FeatureError with the number of missing images."""
        super().prepare(items)
        self.store.require([item.image for item in items])

    def cache_key(self, item: Item) -> bytes:
        """The item's key with the checksum of its image's features."""
        checksum = self.store.checksum(item.image)
        return item.key if checksum is None else item.key + checksum.to_bytes(4, "little")

    def image_vectors(self, images: Sequence[str]) -> FloatArray:
        """(images, D) concatenated vectors of the networks: their cosine is the mean of the networks' cosines."""
        rows = {image: vector for image in images if (vector := self._images.get(image)) is not None}
        left = [image for image in dict.fromkeys(images) if image not in rows]
        for start in range(0, len(left), _IMAGES):
            block = left[start : start + _IMAGES]
            regions = [self.store[image].features for image in block]
            vectors = np.concatenate([model.encode_images(regions) for model in self.models], axis=1)
            for image, vector in zip(block, vectors, strict=True):
                rows[image] = vector.copy()
                self._images.put(image, rows[image])
        return np.stack([rows[image] for image in images]).astype(np.float64)

    def text_vectors(self, texts: Sequence[str]) -> FloatArray:
        """(texts, D) concatenated vectors of the networks."""
        encoded = [model.encode_captions(texts) for model in self.models]
        vectors = [np.concatenate([of_model[text] for of_model in encoded]) for text in texts]
        return np.stack(vectors).astype(np.float64)

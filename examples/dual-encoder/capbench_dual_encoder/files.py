"""Weight files of dual encoders, and loaded models that encode images and captions."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from capbench import ModelError, tokenizer_version
from capbench.weights.files import TrainedModel
from capbench_dual_encoder.network import DualEncoder, DualEncoderOptions

__all__ = ["DualEncoderModel", "load_dual_encoder"]

_IMAGES = 64
_CAPTIONS = 128


@dataclass(frozen=True, eq=False)
class DualEncoderModel(TrainedModel[DualEncoder, DualEncoderOptions]):
    """A trained dual encoder with its vocabulary."""

    title, trainer, network_type, option_type = "dual-encoder", "clip", DualEncoder, DualEncoderOptions

    def summary(self) -> dict[str, object]:
        """Properties of the model for lists."""
        shape = {"pooling": self.options.pooling, "text": self.options.text, "metric": "dual-encoder"}
        return {**super().summary(), **shape}

    def signature_parts(self) -> dict[str, str]:
        """All properties of the model that can change a score, for a metric's signature."""
        return {
            "model": f"dual-encoder-{self.sha256[:16]}",
            "tok": tokenizer_version(),
            "vocab": f"{len(self.vocabulary)}-{self.vocabulary.sha256[:8]}",
        }

    @torch.inference_mode()
    def encode_images(self, images: Sequence[NDArray[Any]]) -> NDArray[np.float32]:
        """Region features (n_i, image_dim) → (images, D), l2-normalised. Images may have different numbers of regions.

        Raises:
            ModelError: an image has features of another width, or the network returns NaN or infinity.
        """
        width = self.options.image_dim
        vectors = np.empty((len(images), self.options.embed_dim), dtype=np.float32)
        by_count: dict[int, list[int]] = {}
        for place, image in enumerate(images):
            if image.ndim != 2 or image.shape[1] != width or not len(image):
                raise ModelError(
                    f"requires regions of {width} columns, not an array of shape {image.shape}",
                    code="wrong-shape",
                    value=image.shape,
                    path=self.path,
                )
            by_count.setdefault(len(image), []).append(place)
        for _, places in sorted(by_count.items()):
            for start in range(0, len(places), _IMAGES):
                block = places[start : start + _IMAGES]
                regions = np.stack([np.asarray(images[place], dtype=np.float32) for place in block])
                vectors[block] = self.network.encode_images(torch.from_numpy(regions).to(self.device)).cpu().numpy()
        if not np.isfinite(vectors).all():
            raise ModelError("returns vectors with NaN or infinity", code="not-a-number", path=self.path)
        return vectors

    def encode_captions(self, captions: Iterable[str]) -> dict[str, NDArray[np.float32]]:
        """The vector (D), l2-normalised, of each caption; vectors of earlier captions are cached.

        Raises:
            ModelError: the network returns NaN or infinity.
        """
        keys = {text: tuple(self.vocabulary.encode(text)) for text in captions}
        vectors = {key: known for key in keys.values() if (known := self.encodings.get(key)) is not None}
        new = sorted(set(keys.values()).difference(vectors), key=lambda key: (len(key), key))
        for _, group in itertools.groupby(new, key=len):  # captions of one length together, without padding
            same = list(group)
            for batch in (same[start : start + _CAPTIONS] for start in range(0, len(same), _CAPTIONS)):
                for key, vector in zip(batch, self._encode_ids(batch), strict=True):
                    vectors[key] = vector.copy()  # a view would keep the whole batch alive
                    self.encodings.put(key, vectors[key])
        return {text: vectors[key] for text, key in keys.items()}

    @torch.inference_mode()
    def _encode_ids(self, rows: Sequence[tuple[int, ...]]) -> NDArray[np.float32]:
        ids = torch.tensor(rows, dtype=torch.int64, device=self.device)
        lengths = torch.full((len(rows),), ids.shape[1], dtype=torch.int64)
        vectors: NDArray[np.float32] = self.network.encode_captions(ids, lengths).cpu().numpy()
        if not np.isfinite(vectors).all():
            raise ModelError("returns vectors with NaN or infinity", code="not-a-number", path=self.path)
        return vectors


load_dual_encoder = DualEncoderModel.load

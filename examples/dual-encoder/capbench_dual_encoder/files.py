"""Dual encoders as files, and a loaded one that encodes images and captions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from capbench import ModelError, Vocabulary, tokenizer_version
from capbench.weights.encodings import Encodings, encode_by_length
from capbench.weights.files import Family, TrainedModel, load_trained, write_trained
from capbench_dual_encoder.network import DualEncoder, DualEncoderOptions
from capbench_dual_encoder.trainer import DualEncoderTrainer

__all__ = ["DualEncoderModel", "load_dual_encoder", "save_dual_encoder"]

_FAMILY = Family(DualEncoderTrainer.kind, "dual encoder", "dual encoder", "capbench train clip")
_IMAGES = 64


@dataclass(frozen=True, eq=False)
class DualEncoderModel(TrainedModel[DualEncoder, DualEncoderOptions]):
    """A trained dual encoder with its vocabulary."""

    _kept: Encodings = field(default_factory=Encodings, repr=False)

    @property
    def alike(self) -> tuple[str, ...]:
        """What networks of an ensemble are."""
        return ("is a dual encoder",)

    def summary(self) -> dict[str, object]:
        """What is told of it in lists."""
        options = self.options
        shape = {"pooling": options.pooling, "text": options.text, "metric": "dual-encoder"}
        return {"words": len(self.vocabulary), "embed_dim": options.embed_dim, "features": self.features, **shape}

    def signature_parts(self) -> dict[str, str]:
        """Everything of the model that can change a score, for a metric's signature."""
        return {
            "model": f"dual-encoder-{self.sha256[:16]}",
            "tok": tokenizer_version(),
            "vocab": f"{len(self.vocabulary)}-{self.vocabulary.sha256[:8]}",
        }

    @torch.inference_mode()
    def encode_images(self, images: Sequence[NDArray[Any]]) -> NDArray[np.float32]:
        """Region features (n_i, image_dim) → (images, D), l2-normed. Images may have different numbers of regions.

        Raises:
            ModelError: an image has features of another width, or the network gives no numbers.
        """
        width = self.options.image_dim
        vectors = np.empty((len(images), self.options.embed_dim), dtype=np.float32)
        by_count: dict[int, list[int]] = {}
        for place, image in enumerate(images):
            if image.ndim != 2 or image.shape[1] != width or not len(image):
                raise ModelError(f"reads regions of {width} columns, and not of shape {image.shape}", path=self.path)
            by_count.setdefault(len(image), []).append(place)
        for _, places in sorted(by_count.items()):
            for start in range(0, len(places), _IMAGES):
                block = places[start : start + _IMAGES]
                regions = np.stack([np.asarray(images[place], dtype=np.float32) for place in block])
                vectors[block] = self.network.encode_images(torch.from_numpy(regions).to(self.device)).cpu().numpy()
        if not np.isfinite(vectors).all():
            raise ModelError("gives vectors that are no numbers", path=self.path)
        return vectors

    def encode_captions(self, captions: Iterable[str]) -> dict[str, NDArray[np.float32]]:
        """The vector (D), l2-normed, of each caption; those that were encoded before come from memory.

        Raises:
            ModelError: the network gives no numbers.
        """
        keys = {text: tuple(self.vocabulary.encode(text)) for text in captions}
        vectors, _ = encode_by_length(keys.values(), self._kept, self._encode_ids, filling=0)
        return {text: vectors[key] for text, key in keys.items()}

    @torch.inference_mode()
    def _encode_ids(self, rows: Sequence[tuple[int, ...]]) -> NDArray[np.float32]:
        ids = torch.tensor(rows, dtype=torch.int64, device=self.device)
        lengths = torch.full((len(rows),), ids.shape[1], dtype=torch.int64)
        vectors: NDArray[np.float32] = self.network.encode_captions(ids, lengths).cpu().numpy()
        if not np.isfinite(vectors).all():
            raise ModelError("gives vectors that are no numbers", path=self.path)
        return vectors


def save_dual_encoder(
    path: str | os.PathLike[str], network: DualEncoder, vocabulary: Vocabulary, training: Mapping[str, Any]
) -> None:
    """Write one self-contained ``.safetensors``.

    Args:
        path: the file; written atomically.
        network: its options and weights.
        vocabulary: as many words as the network has.
        training: facts worth keeping, JSON values; ``features`` is the kind of the features.

    Raises:
        ModelError: the vocabulary is of another size, or a weight is no number.
    """
    write_trained(path, _FAMILY.kind, network, network.options, vocabulary, training)


def load_dual_encoder(path: str | os.PathLike[str], device: str = "cpu") -> DualEncoderModel:
    """Read what :func:`save_dual_encoder` wrote.

    Raises:
        MissingFileError: there is no such file.
        ModelError: it is something else, an ensemble of some among them, or is damaged.
    """
    return load_trained(path, _FAMILY, DualEncoderOptions, DualEncoder, DualEncoderModel, device)

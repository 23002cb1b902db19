"""SCAN's weight files, and a loaded model that encodes images and captions.

Two formats are read: capbench's ``.safetensors``, and checkpoints of the released training code
(``model_best.pth.tar``), two state dicts and options, which require the vocabulary JSON of their training.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from capbench.core.errors import ModelError, UsageError
from capbench.metrics.scan.network import Scan, ScanOptions
from capbench.text.vocabulary import Vocabulary, pad_rows, read_vocabulary
from capbench.weights.checkpoints import read_torch, tensors_of
from capbench.weights.files import Stored, TrainedModel

# Options of the released code by our names; "no_*" are negated. The others follow from the weights' shapes.
_RELEASED = {
    "cross_attention": "cross_attn",
    "feature_norm": "raw_feature_norm",
    "aggregation": "agg_func",
    "lambda_softmax": "lambda_softmax",
    "lambda_lse": "lambda_lse",
    "normalise_images": "no_imgnorm",
    "normalise_captions": "no_txtnorm",
}
# Older and newer of PyTorch's names for the parts of a weight-normed matrix.
_RENAMED = {"parametrizations.weight.original0": "weight_g", "parametrizations.weight.original1": "weight_v"}


def read_released(file: Path) -> tuple[dict[str, Tensor], ScanOptions, str | None]:
    """State, options and the vocabulary's name in a checkpoint of the released code."""
    checkpoint = read_torch(file)
    try:
        image, text = checkpoint["model"]
        settings = checkpoint["opt"] if isinstance(checkpoint["opt"], dict) else vars(checkpoint["opt"])
        state = {f"image.{name}": tensor for name, tensor in tensors_of(image, file).items()}
        state |= {f"text.{name}": tensor for name, tensor in tensors_of(text, file).items()}
        for theirs, ours in _RENAMED.items():
            state = {name.replace(theirs, ours): tensor for name, tensor in state.items()}
        if "image.fc.weight_g" in state:
            state["image.fc.weight_g"] = state["image.fc.weight_g"].reshape(())
        weight_norm = "image.fc.weight_v" in state
        matrix, words = state[f"image.fc.weight{'_v' * weight_norm}"], state["text.embed.weight"]
        sizes = ("vocabulary_size", "word_dim", "embed_dim", "image_dim")
        chosen: dict[str, Any] = dict(zip(sizes, (*words.shape, *matrix.shape), strict=True))
        chosen["layers"] = sum(re.fullmatch(r"text\.rnn\.weight_hh_l\d+", name) is not None for name in state)
        chosen |= {"bidirectional": "text.rnn.weight_hh_l0_reverse" in state, "weight_norm": weight_norm}
        for ours, theirs in _RELEASED.items():
            if theirs in settings:
                value = settings[theirs]
                value = value.item() if hasattr(value, "item") else value  # a NumPy or PyTorch scalar
                chosen[ours] = not value if theirs.startswith("no_") else value
        name, options = settings.get("data_name"), ScanOptions(**chosen)
    except (KeyError, IndexError, TypeError, ValueError, RuntimeError, UsageError) as error:
        hint = "Use a checkpoint of SCAN's training code, or model.safetensors of a training by capbench"
        message = f"is not a checkpoint of SCAN ({type(error).__name__}: {str(error)[:60]})"
        raise ModelError(message, code="wrong-weights", path=file, hint=hint) from error
    return state, options, name if isinstance(name, str) else None


_BATCH = 128  # captions encoded at once


class GroundingModel(TrainedModel[Scan, ScanOptions]):
    """A trained SCAN with its vocabulary."""

    title, network_type, option_type = "SCAN", Scan, ScanOptions

    def signature_parts(self) -> dict[str, str]:
        options = self.options
        attention = f"{options.cross_attention}+{options.feature_norm}+lambda{options.lambda_softmax:g}"
        attention += "" if options.normalise_images else "+raw-images"
        attention += "" if options.normalise_captions else "+raw-captions"
        return {**super().signature_parts(), "attention": attention}

    def summary(self) -> dict[str, object]:
        trained = {"lambda_softmax": self.options.lambda_softmax, "feature_norm": self.options.feature_norm}
        return {**super().summary(), **trained}

    @torch.inference_mode()
    def encode_image(self, features: NDArray[Any]) -> NDArray[np.float32]:
        """Region features (n, image_dim) → (n, D) float32, l2-normed unless the model was trained without."""
        rows = np.asarray(features, dtype=np.float32)
        # Equal regions get equal vectors: rounding would otherwise rank the regions of an image of one colour.
        first: dict[bytes, int] = {}
        same = [first.setdefault(row.tobytes(), place) for place, row in enumerate(rows)]
        encoded: NDArray[np.float32] = self.network.encode_images(torch.from_numpy(rows).to(self.device)).cpu().numpy()
        return encoded[same]

    def encode_captions(self, captions: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """Each distinct caption with its word vectors (m, D) float32; m includes ``<start>`` and ``<end>``."""
        keys = {text: tuple(self.vocabulary.encode(text)) for text in captions}
        vectors = self.encodings.of(keys.values(), self._encode, _BATCH)
        return {text: vectors[key] for text, key in keys.items()}

    @torch.inference_mode()
    def _encode(self, keys: Sequence[tuple[int, ...]]) -> list[NDArray[np.float32]]:
        ids, lengths = pad_rows(keys)
        encoded = self.network.encode_captions(ids.to(self.device), lengths).cpu().numpy()
        return [rows[: len(key)].copy() for key, rows in zip(keys, encoded, strict=True)]


def read_tensors(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The weights of a file in either format by the network's names, without a vocabulary."""
    stored = GroundingModel.stored(Path(path))
    return read_released(Path(path))[0] if stored is None else stored.tensors


def load_scan(
    path: str | os.PathLike[str], vocabulary: str | os.PathLike[str] | None = None, device: str = "cpu"
) -> GroundingModel:
    """Load a model from a file of capbench or a released checkpoint.

    ``vocabulary``: the vocabulary JSON, required for a released checkpoint unless it is next to it.
    """
    chosen = None if vocabulary is None else read_vocabulary(vocabulary)

    def released(file: Path) -> Stored:
        state, options, name = read_released(file)
        return Stored(state, options, chosen or _vocabulary_beside(file, name), {"source": "released"})

    model = GroundingModel.load(path, device, released)
    if chosen is not None and chosen.words != model.vocabulary.words:
        message = "contains another vocabulary than the given one"
        raise ModelError(message, code="mismatch", path=path, hint="Remove the vocabulary argument")
    return model


def _vocabulary_beside(file: Path, name: str | None) -> Vocabulary:
    names = [*([f"{name}_vocab.json"] if name and re.fullmatch(r"[\w.-]+", name) else []), "vocab.json"]
    for path in (file.parent / each for each in names):
        if path.is_file():
            return read_vocabulary(path)
    message = "there is no vocabulary next to it"
    hint = f"Copy {' or '.join(names)} to its folder, or set the option 'vocabulary' to its path"
    raise ModelError(message, code="missing-file", path=file, hint=hint)

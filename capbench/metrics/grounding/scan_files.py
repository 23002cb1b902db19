"""SCAN's weight files, and a loaded model that encodes images and captions.

Two formats are read: that of capbench (one ``.safetensors`` with options, vocabulary and training facts in its
metadata), and checkpoints of the released training code (``model_best.pth.tar``) with two state dicts and the options,
which require the vocabulary JSON of their training.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from capbench.core.errors import MissingFileError, ModelError, UsageError, suggest
from capbench.core.files import sha256_file
from capbench.metrics.grounding.scan import FastScan, Scan, ScanOptions
from capbench.text.vocabulary import Vocabulary, read_vocabulary
from capbench.weights.checkpoints import read_torch, tensors_of
from capbench.weights.files import TrainedModel, check_size, read_trained, refuse_ensemble, with_weights, write_trained

# Checkpoints of SCAN's released training code (``model_best.pth.tar``): two state dicts and the options.

# Names of options in the released code; "no_*" are negated.
_RELEASED = {
    "cross_attn": "cross_attention",
    "raw_feature_norm": "feature_norm",
    "agg_func": "aggregation",
    "lambda_softmax": "lambda_softmax",
    "lambda_lse": "lambda_lse",
    "no_imgnorm": "normalise_images",
    "no_txtnorm": "normalise_captions",
}
_RELEASED_SHAPES = {
    "vocab_size": "vocabulary_size",
    "word_dim": "word_dim",
    "embed_size": "embed_dim",
    "img_dim": "image_dim",
    "num_layers": "layers",
    "bi_gru": "bidirectional",
}


def read_released(file: Path) -> tuple[dict[str, Tensor], ScanOptions, dict[str, Any], str | None]:
    """State, options, training facts and the vocabulary's name in a checkpoint of the released code.

    Raises:
        MissingFileError: there is no such file.
        ModelError: not such a checkpoint, a damaged file, or parts that do not fit each other.
        UsageError: an option with an invalid value.
    """
    checkpoint = read_torch(file)
    if isinstance(checkpoint, dict) and {"format", "log_bytes"} <= checkpoint.keys():
        raise ModelError(
            "is the checkpoint of a training by capbench, from which only that training can resume",
            code="wrong-weights",
            path=file,
            hint="Use model.safetensors of its folder, which exists after the training",
        )
    hint = "Use a checkpoint of SCAN's training code: a dictionary with 'model' = [image, text] and 'opt'"
    for key in ("model", "opt"):
        if not isinstance(checkpoint, dict) or key not in checkpoint:
            raise ModelError(f"has no '{key}'", code="missing-key", value=key, path=file, hint=hint)
    states = checkpoint["model"]
    if (
        not isinstance(states, list | tuple)
        or len(states) != 2
        or not all(isinstance(tensors, dict) for tensors in states)
    ):
        message = "'model' is not a list of two state dicts"
        raise ModelError(message, code="wrong-type", value="model", path=file, hint=hint)
    settings = (
        checkpoint["opt"] if isinstance(checkpoint["opt"], dict) else getattr(checkpoint["opt"], "__dict__", None)
    )
    if settings is None:
        raise ModelError("'opt' has no options", code="wrong-type", value="opt", path=file, hint=hint)
    state: dict[str, Tensor] = {}
    for side, tensors in zip(("image", "text"), states, strict=True):
        state |= {f"{side}.{_modern(name)}": tensor for name, tensor in tensors_of(tensors, file).items()}
    if "image.fc.weight_g" in state and state["image.fc.weight_g"].numel() == 1:
        state["image.fc.weight_g"] = state["image.fc.weight_g"].reshape(())
    chosen: dict[str, Any] = _shapes(state, file)
    settings = {name: _plain(value) for name, value in settings.items()}
    for theirs, ours in _RELEASED_SHAPES.items():
        if theirs in settings and not (isinstance(settings[theirs], int | float) and settings[theirs] == chosen[ours]):
            raise ModelError(
                f"its option '{theirs}' is {_shown(settings[theirs])} but its weights have {chosen[ours]}",
                code="mismatch",
                value=theirs,
                path=file,
                hint="Download the checkpoint again",
            )
    for theirs, ours in _RELEASED.items():
        if theirs not in settings:
            continue
        value = settings[theirs]
        if not isinstance(value, int | float if theirs.startswith(("no_", "lambda_")) else str):
            message = f"its option '{theirs}' is {_shown(value)}"
            raise ModelError(message, code="wrong-type", value=theirs, path=file, hint=hint)
        chosen[ours] = not value if theirs.startswith("no_") else value
    facts = (("epoch", "epoch"), ("best_rsum", "best_recall_sum"), ("Eiters", "steps"))
    training: dict[str, Any] = {"source": "released"}
    for theirs, ours in facts:
        fact = _plain(checkpoint.get(theirs))
        if isinstance(fact, str | int) or (isinstance(fact, float) and math.isfinite(fact)):
            training[ours] = fact
    name = settings.get("data_name")
    return state, ScanOptions(**chosen), training, name if isinstance(name, str) else None


def _modern(name: str) -> str:
    """A weight name with the older of PyTorch's names for the parts of a weight-normed matrix."""
    name = name.replace("parametrizations.weight.original0", "weight_g")
    return name.replace("parametrizations.weight.original1", "weight_v")


def _plain(value: Any) -> Any:
    """The Python value of a NumPy or PyTorch scalar; other values unchanged."""
    if isinstance(value, Tensor):
        return value.item() if value.numel() == 1 and value.device.type == "cpu" else value
    return value.item() if isinstance(value, np.generic | np.ndarray) and value.size == 1 else value


def _shown(value: Any) -> str:
    """A value for a message of one line; only the type of objects, which may have any size."""
    return repr(value)[:60] if value is None or isinstance(value, str | int | float) else f"a {type(value).__name__}"


def _shapes(state: Mapping[str, Tensor], file: Path) -> dict[str, Any]:
    """The options that follow from the tensors' shapes."""
    weight_norm = "image.fc.weight_v" in state
    hint = "Use an unchanged checkpoint of a SCAN model"
    needed = ["image.fc.weight_v" if weight_norm else "image.fc.weight", "text.embed.weight", "text.rnn.weight_hh_l0"]
    for name in needed:
        if name not in state:
            raise ModelError(f"has no '{name}'", code="wrong-weights", value=name, path=file, hint=hint)
        if state[name].ndim != 2:
            raise ModelError(f"'{name}' is not a matrix", code="wrong-shape", value=name, path=file, hint=hint)
    matrix, words = state[needed[0]], state["text.embed.weight"]
    layers = [int(match[1]) for name in state if (match := re.fullmatch(r"text\.rnn\.weight_hh_l(\d+)", name))]
    return {
        "vocabulary_size": words.shape[0],
        "word_dim": words.shape[1],
        "embed_dim": matrix.shape[0],
        "image_dim": matrix.shape[1],
        "layers": max(layers) + 1,
        "bidirectional": "text.rnn.weight_hh_l0_reverse" in state,
        "weight_norm": weight_norm,
    }


FloatArray32 = NDArray[np.float32]

KIND = "capbench.scan/1"
# Options that may be changed for trained weights; all others are fixed by the tensors' shapes or the training.
_FREE = (
    "cross_attention",
    "feature_norm",
    "aggregation",
    "lambda_softmax",
    "lambda_lse",
    "normalise_images",
    "normalise_captions",
)
_BATCH = 128  # captions encoded at once
_ROWS = 8192  # regions encoded at once


class GroundingModel(TrainedModel[FastScan, ScanOptions]):
    """A trained SCAN with its vocabulary; for released checkpoints, ``training`` contains epoch and scores."""

    @property
    def alike(self) -> tuple[str, ...]:
        """Properties that networks of an ensemble share; attention may differ."""
        return ("is a SCAN network",)

    def signature_parts(self) -> dict[str, str]:
        """Properties that can change a score, for signatures."""
        options = self.options
        attention = f"{options.cross_attention}+{options.feature_norm}+lambda{options.lambda_softmax:g}"
        if not options.normalise_images:
            attention += "+raw-images"
        if not options.normalise_captions:
            attention += "+raw-captions"
        return {
            "model": f"scan-{self.sha256[:16]}",
            "vocabulary": self.words_signature,
            "attention": attention,
        }

    def summary(self) -> dict[str, object]:
        """Facts for lists of models."""
        options = self.options
        trained = {"lambda_softmax": options.lambda_softmax, "feature_norm": options.feature_norm}
        return {"words": len(self.vocabulary), "embed_dim": options.embed_dim, "features": self.features, **trained}

    @torch.inference_mode()
    def encode_images(self, images: Sequence[NDArray[Any]]) -> list[FloatArray32]:
        """Region features (n_i, image_dim) → (n_i, D) float32 each, l2-normed unless the model was trained without.

        Equal regions of an image get identical vectors.

        Raises:
            ModelError: an image has no regions, features of another size, or values that are not finite.
        """
        width = self.options.image_dim
        arrays = [np.asarray(image, dtype=np.float32) for image in images]
        for place, array in enumerate(arrays):
            if array.ndim != 2 or array.shape[1] != width or not len(array):
                raise ModelError(
                    f"the features of image {place} have the shape {array.shape}; the model reads (regions, {width})",
                    code="wrong-features",
                    value=array.shape,
                    path=self.path,
                    hint="Use the kind of features that the model was trained on",
                )
            if not np.isfinite(array).all():
                message = f"the features of image {place} have NaN or infinity"
                raise ModelError(message, code="not-a-number", value=place, hint="Extract them again")
        out: list[FloatArray32] = []
        for batch in _batches(arrays, _ROWS):
            rows = torch.from_numpy(np.concatenate(batch)).to(self.device)
            encoded = self.network.encode_images(rows).cpu().numpy()
            out += np.split(encoded, np.cumsum([len(array) for array in batch])[:-1])
        for array, rows_of in zip(arrays, out, strict=True):
            _same_for_same(array, rows_of)
        return out

    def encode_captions(self, captions: Sequence[str]) -> list[FloatArray32]:
        """Captions → (m_i, D) float32 each; m_i includes ``<start>`` and ``<end>``. Equal texts share one array."""
        texts = list(dict.fromkeys(captions))
        encoded = self.encode_ids([self.vocabulary.encode(text) for text in texts])
        vectors = dict(zip(texts, encoded, strict=True))
        return [vectors[text] for text in captions]

    @torch.inference_mode()
    def encode_ids(self, captions: Sequence[Sequence[int]]) -> list[FloatArray32]:
        """Word ids of captions → (m_i, D) float32 each.

        Each distinct caption is encoded once, together with others of similar length, independently of the order of the
        captions: the same set of captions gives identical vectors.

        Raises:
            ModelError: a caption is empty or has an id outside the vocabulary.
        """
        keys = [tuple(caption) for caption in captions]
        distinct = sorted(set(keys), key=lambda key: (len(key), key))
        size = self.options.vocabulary_size
        for key in distinct:
            if not key or min(key) < 0 or max(key) >= size:
                wrong = max(key, key=abs) if key else None
                what = "no words" if wrong is None else f"the word id {wrong}"
                message = f"a caption has {what}; ids of the model are 0 to {size - 1}"
                raise ModelError(message, code="out-of-range", value=wrong, path=self.path)
        vectors: dict[tuple[int, ...], FloatArray32] = {}
        for begin in range(0, len(distinct), _BATCH):
            batch = distinct[begin : begin + _BATCH]
            ids = np.zeros((len(batch), len(batch[-1])), dtype=np.int64)
            for row, key in enumerate(batch):
                ids[row, : len(key)] = key
            lengths = torch.tensor([len(key) for key in batch])
            encoded = self.network.encode_captions(torch.from_numpy(ids).to(self.device), lengths).cpu().numpy()
            vectors.update((key, encoded[row, : len(key)].copy()) for row, key in enumerate(batch))
        return [vectors[key] for key in keys]


def _same_for_same(regions: FloatArray32, encoded: FloatArray32) -> None:
    """Copy the vector of the first of several equal regions to the others.

    Rounding in a matrix product depends on the row. Without this, an image of one colour, whose regions are all equal,
    would have a grounding vector that is constant except for rounding errors, which would determine the ranking.
    """
    first: dict[bytes, int] = {}
    places = [first.setdefault(row.tobytes(), place) for place, row in enumerate(regions)]
    if len(first) < len(places):
        encoded[:] = encoded[places]


def _batches(arrays: Iterable[FloatArray32], rows: int) -> Iterable[list[FloatArray32]]:
    batch: list[FloatArray32] = []
    rows_in_batch = 0
    for array in arrays:
        if batch and rows_in_batch + len(array) > rows:
            yield batch
            batch, rows_in_batch = [], 0
        batch.append(array)
        rows_in_batch += len(array)
    if batch:
        yield batch


def save_scan(
    path: str | os.PathLike[str],
    network: Scan,
    vocabulary: Vocabulary,
    training: Mapping[str, Any],
) -> None:
    """Write one self-contained ``.safetensors``.

    Args:
        path: the file; written atomically.
        network: its options and weights.
        vocabulary: the vocabulary, with the network's number of words.
        training: facts of the training, JSON values; ``features`` is the fingerprint id of the features.

    Raises:
        ModelError: the vocabulary has another size, or a weight is not finite.
    """
    write_trained(path, KIND, network, network.options, vocabulary, training)


def read_tensors(path: str | os.PathLike[str]) -> dict[str, torch.Tensor]:
    """The weights of a file in either format by the network's names, without a vocabulary.

    Raises:
        MissingFileError: there is no such file.
        ModelError: not a SCAN model, or a damaged file.
    """
    file = Path(path)
    try:
        stored = read_trained(file, KIND, "SCAN", "capbench train scan", ScanOptions)
        return read_released(file)[0] if stored is None else stored.tensors
    except UsageError as error:  # an option of the file that ScanOptions rejects
        raise ModelError(error.message, code=error.code, value=error.value, path=file, hint=error.hint) from error


def load_scan(
    path: str | os.PathLike[str],
    vocabulary: str | os.PathLike[str] | None = None,
    device: str = "cpu",
    **overrides: Any,
) -> GroundingModel:
    """Load a model from a file of capbench or a released checkpoint.

    Args:
        path: ``.safetensors`` written by :func:`save_scan`, or a checkpoint of the released code with any name.
        vocabulary: the vocabulary JSON; required for a released checkpoint unless it is next to it.
        device: ``cpu`` or ``cuda``.
        **overrides: attention options of :class:`ScanOptions` that replace those of the training.

    Raises:
        MissingFileError: there is no such file.
        ModelError: not a SCAN model (for example, an ensemble), a damaged file, or parts that do not fit each other.
        UsageError: an unknown override, or one that the weights fix.
    """
    file = Path(path)
    digest = sha256_file(file)
    refuse_ensemble(file)
    stored = read_trained(file, KIND, "SCAN", "capbench train scan", ScanOptions)
    try:
        if stored is not None:
            state, options, words = stored.tensors, stored.options, stored.vocabulary
            training: Mapping[str, Any] = stored.training
            if vocabulary is not None and read_vocabulary(vocabulary).words != words.words:
                message = "contains another vocabulary than the given one"
                raise ModelError(message, code="mismatch", path=file, hint="Remove the vocabulary argument")
        else:
            state, options, training, name = read_released(file)
            words = _find_vocabulary(file, vocabulary, name)
    except UsageError as error:  # an option of the file that ScanOptions rejects
        raise ModelError(error.message, code=error.code, value=error.value, path=file, hint=error.hint) from error
    known = [f.name for f in dataclasses.fields(ScanOptions)]
    for key, value in overrides.items():
        if key not in known:
            hint = suggest(key, list(_FREE))
            raise UsageError(f"SCAN has no option '{key}'", code="unknown-option", value=key, hint=hint)
        if key not in _FREE and value != getattr(options, key):
            message = f"{key} is {getattr(options, key)} in {file} and cannot be {value}"
            raise UsageError(message, code="conflict", value=value)
    options = dataclasses.replace(options, **overrides)
    check_size(words, options.vocabulary_size, file)
    network = with_weights(lambda: FastScan(options), state, file)
    return GroundingModel(network.to(device), words, digest, file, training, device)


def _find_vocabulary(file: Path, chosen: str | os.PathLike[str] | None, name: str | None) -> Vocabulary:
    if chosen is not None:
        return read_vocabulary(chosen)
    names = [*([f"{name}_vocab.json"] if name and re.fullmatch(r"[\w.-]+", name) else []), "vocab.json"]
    for candidate in names:
        try:
            return read_vocabulary(file.parent / candidate)
        except MissingFileError:
            continue
    raise ModelError(
        "there is no vocabulary next to it",
        code="missing-file",
        path=file,
        hint=f"Copy {' or '.join(names)} to its folder, or set the option 'vocabulary' to its path",
    )

"""SCAN's weights as files, and a loaded model that encodes images and captions.

Two forms are read: capbench's own (one ``.safetensors`` with options, vocabulary and training facts in its metadata),
and the checkpoints of the released training code (``model_best.pth.tar``), which keep two state dicts and the
options, and need the vocabulary JSON they were trained with.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

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

__all__ = ["GroundingModel", "load_scan", "merge_scan", "merged_facts", "read_released", "read_tensors", "save_scan"]


# Checkpoints of SCAN's released training code (``model_best.pth.tar``): two state dicts and the options.

# The released code's names of options; "no_*" are negated.
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
        ModelError: it is no such checkpoint, is damaged, or its parts do not fit one another.
        UsageError: one of its options is none that SCAN has.
    """
    checkpoint = read_torch(file)
    if isinstance(checkpoint, dict) and {"format", "log_bytes"} <= checkpoint.keys():
        raise ModelError(
            "is the checkpoint of a training by capbench, from which only that training can go on",
            path=file,
            hint="Give model.safetensors of its folder, which is there once training has ended",
        )
    hint = "Give a checkpoint of SCAN's training code: a dictionary with 'model' = [image, text] and 'opt'"
    for key in ("model", "opt"):
        if not isinstance(checkpoint, dict) or key not in checkpoint:
            raise ModelError(f"has no '{key}'", path=file, hint=hint)
    states = checkpoint["model"]
    if (
        not isinstance(states, list | tuple)
        or len(states) != 2
        or not all(isinstance(tensors, dict) for tensors in states)
    ):
        raise ModelError("'model' is no list of two state dicts", path=file, hint=hint)
    settings = (
        checkpoint["opt"] if isinstance(checkpoint["opt"], dict) else getattr(checkpoint["opt"], "__dict__", None)
    )
    if settings is None:
        raise ModelError("'opt' holds no options", path=file, hint=hint)
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
                path=file,
                hint="The checkpoint was changed: get it again",
            )
    for theirs, ours in _RELEASED.items():
        if theirs not in settings:
            continue
        value = settings[theirs]
        if not isinstance(value, int | float if theirs.startswith(("no_", "lambda_")) else str):
            raise ModelError(f"its option '{theirs}' is {_shown(value)}", path=file, hint=hint)
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
    """PyTorch's two names for the two halves of a weight-normed matrix."""
    name = name.replace("parametrizations.weight.original0", "weight_g")
    return name.replace("parametrizations.weight.original1", "weight_v")


def _plain(value: Any) -> Any:
    """Python's own value of a NumPy or PyTorch scalar; anything else as it is."""
    if isinstance(value, Tensor):
        return value.item() if value.numel() == 1 and value.device.type == "cpu" else value
    return value.item() if isinstance(value, np.generic | np.ndarray) and value.size == 1 else value


def _shown(value: Any) -> str:
    """For a message of one line: what is no single value may be of any size and depth, and only its type is told."""
    return repr(value)[:60] if value is None or isinstance(value, str | int | float) else f"a {type(value).__name__}"


def _shapes(state: Mapping[str, Tensor], file: Path) -> dict[str, Any]:
    """The options that the tensors' shapes tell."""
    weight_norm = "image.fc.weight_v" in state
    needed = ["image.fc.weight_v" if weight_norm else "image.fc.weight", "text.embed.weight", "text.rnn.weight_hh_l0"]
    for name in needed:
        if name not in state:
            raise ModelError(f"lacks '{name}'", path=file, hint="Its model is no SCAN, or the file was changed")
        if state[name].ndim != 2:
            raise ModelError(f"'{name}' is no matrix", path=file, hint="Its model is no SCAN, or the file was changed")
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
# What may be chosen anew for trained weights; all else is fixed by the tensors' shapes or by how they were trained.
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
    """A trained SCAN with its vocabulary, ready to encode; of released checkpoints ``training`` is epoch and scores."""

    @property
    def alike(self) -> tuple[str, ...]:
        """What networks of an ensemble are; attention may differ."""
        return ("is a SCAN network",)

    def signature_parts(self) -> dict[str, str]:
        """Everything of the model that can change a score, for a metric's signature."""
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
        """What is told of it in lists."""
        options = self.options
        trained = {"lambda_softmax": options.lambda_softmax, "feature_norm": options.feature_norm}
        return {"words": len(self.vocabulary), "embed_dim": options.embed_dim, "features": self.features, **trained}

    @torch.inference_mode()
    def encode_images(self, images: Sequence[NDArray[Any]]) -> list[FloatArray32]:
        """Region features (n_i, image_dim) → (n_i, D) float32 each, l2-normed unless the model was trained without.

        Equal regions of an image get equal vectors, bit for bit.

        Raises:
            ModelError: an image has no regions, features of another width, or values that are no numbers.
        """
        width = self.options.image_dim
        arrays = [np.asarray(image, dtype=np.float32) for image in images]
        for place, array in enumerate(arrays):
            if array.ndim != 2 or array.shape[1] != width or not len(array):
                raise ModelError(
                    f"the features of image {place} have shape {array.shape}, the model reads (regions, {width})",
                    path=self.path,
                    hint="Use the kind of features that the model was trained on",
                )
            if not np.isfinite(array).all():
                raise ModelError(f"the features of image {place} hold NaN or infinity", hint="Extract them again")
        out: list[FloatArray32] = []
        for batch in _batches(arrays, _ROWS):
            rows = torch.from_numpy(np.concatenate(batch)).to(self.device)
            encoded = self.network.encode_images(rows).cpu().numpy()
            out += np.split(encoded, np.cumsum([len(array) for array in batch])[:-1])
        for array, rows_of in zip(arrays, out, strict=True):
            _same_for_same(array, rows_of)
        return out

    def encode_captions(self, captions: Sequence[str]) -> list[FloatArray32]:
        """Captions → (m_i, D) float32 each; m_i counts ``<start>`` and ``<end>``. Equal texts share one array."""
        texts = list(dict.fromkeys(captions))
        encoded = self.encode_ids([self.vocabulary.encode(text) for text in texts])
        vectors = dict(zip(texts, encoded, strict=True))
        return [vectors[text] for text in captions]

    @torch.inference_mode()
    def encode_ids(self, captions: Sequence[Sequence[int]]) -> list[FloatArray32]:
        """Word numbers of captions → (m_i, D) float32 each.

        Each distinct caption is encoded once, together with others of about its length, the order of the captions
        notwithstanding: the same set of captions gives the same numbers, bit for bit.

        Raises:
            ModelError: a caption is empty or has a number outside the vocabulary.
        """
        keys = [tuple(caption) for caption in captions]
        distinct = sorted(set(keys), key=lambda key: (len(key), key))
        size = self.options.vocabulary_size
        for key in distinct:
            if not key or min(key) < 0 or max(key) >= size:
                what = f"the word number {max(key, key=abs)}" if key else "no words"
                raise ModelError(f"a caption has {what}; the model knows 0 to {size - 1}", path=self.path)
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
    """Give equal regions the vector of the first of them.

    A matrix product rounds its rows differently, by their place. An image of one colour, whose regions are all the
    same, would then have a grounding vector that is constant but for that, and a ranking made of rounding.
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
    precision: Literal["float32", "float16"] = "float32",
) -> None:
    """Write one self-contained ``.safetensors``.

    Args:
        path: the file; written atomically.
        network: its options and weights.
        vocabulary: as many words as the network has.
        training: facts worth keeping, JSON values; ``features`` is the fingerprint id of the features.
        precision: ``float16`` halves the file; reading widens it to float32 again.

    Raises:
        ModelError: the vocabulary is of another size, or a weight is no number.
    """
    write_trained(path, KIND, network, network.options, vocabulary, training, precision)


def read_tensors(path: str | os.PathLike[str]) -> dict[str, torch.Tensor]:
    """The weights of a file of either form by the network's names, without a vocabulary.

    Raises:
        MissingFileError: there is no such file.
        ModelError: it is no SCAN model, or is damaged.
    """
    file = Path(path)
    try:
        stored = read_trained(file, KIND, "SCAN", "capbench train scan", ScanOptions)
        return read_released(file)[0] if stored is None else stored.tensors
    except UsageError as error:  # an option of the file that ScanOptions refuses
        raise ModelError(error.message, path=file, hint=error.hint) from error


def load_scan(
    path: str | os.PathLike[str],
    vocabulary: str | os.PathLike[str] | None = None,
    device: str = "cpu",
    **overrides: Any,
) -> GroundingModel:
    """Load a model from capbench's own file or a released checkpoint.

    Args:
        path: ``.safetensors`` written by :func:`save_scan`, or a checkpoint of the released code, which is read
            whatever its name.
        vocabulary: the vocabulary JSON; needed for a released checkpoint unless it lies beside it.
        device: ``cpu`` or ``cuda``.
        **overrides: attention options of :class:`ScanOptions` other than those it was trained with.

    Raises:
        MissingFileError: there is no such file.
        ModelError: it is no SCAN model but, for example, an ensemble of some, is damaged, or its parts do not fit one
            another.
        UsageError: an override that does not exist, or that the weights fix.
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
                raise ModelError("its own vocabulary is another than the one given", path=file, hint="Give none")
        else:
            state, options, training, name = read_released(file)
            words = _find_vocabulary(file, vocabulary, name)
    except UsageError as error:  # an option of the file that ScanOptions refuses
        raise ModelError(error.message, path=file, hint=error.hint) from error
    known = [f.name for f in dataclasses.fields(ScanOptions)]
    for key, value in overrides.items():
        if key not in known:
            raise UsageError(f"SCAN has no option '{key}'", hint=suggest(key, list(_FREE)))
        if key not in _FREE and value != getattr(options, key):
            raise UsageError(f"{key} is {getattr(options, key)} in {file} and cannot be {value}")
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
        "has no vocabulary beside it",
        path=file,
        hint=f"Put {' or '.join(names)} into its folder, or give the vocabulary JSON",
    )


# Several SCAN networks merged into one that is a network itself, so that everything can use it.
#
# The merged network's vectors are the single ones' vectors side by side. A cosine of such vectors is the mean of the
# single cosines, each weighed by its two vectors' lengths before they were normed, so that averaging happens before the
# attention; an ensemble (:mod:`capbench.weights.ensembles`) averages after it. The GRU holds the single GRUs as blocks
# of its matrices, with zeros between them: networks that were trained with other seeds stay apart inside.

_SUMMED = ("word_dim", "embed_dim")
_APART = "An ensemble may keep them apart: capbench models ensemble"


def merge_scan(models: Sequence[GroundingModel]) -> Scan:
    """One network of the summed sizes from several of one vocabulary, one feature fingerprint and one set of options.

    Args:
        models: two or more, of one GRU layer, without weight norm, whose vectors are normed.

    Raises:
        ModelError: they do not go together, or cannot be merged.
    """
    if len(models) < 2:
        raise ModelError("merging needs two grounding models or more", hint="Name another one")
    first = models[0]
    for model in models:
        options = model.options
        if options.layers != 1 or options.weight_norm or not (options.normalise_images and options.normalise_captions):
            raise ModelError(
                "cannot be merged: only networks of one layer, without weight norm, whose vectors are normed, can be",
                path=model.path,
                hint=_APART,
            )
        if model.vocabulary.words != first.vocabulary.words:
            raise ModelError(f"has another vocabulary than {first.path}", path=model.path, hint=_APART)
        if model.features != first.features:
            raise ModelError(
                f"was trained on other features than {first.path}",
                path=model.path,
                hint="Take networks that were trained on the same features",
            )
        kept, wanted = _kept(options), _kept(first.options)
        if kept != wanted:
            name = next(name for name in kept if kept[name] != wanted[name])
            raise ModelError(
                f"has other options than {first.path}: {name} is {kept[name]}, not {wanted[name]}",
                path=model.path,
                hint=_APART,
            )
    sizes = {name: sum(getattr(model.options, name) for model in models) for name in _SUMMED}
    merged = Scan(ScanOptions(**(_kept(first.options) | sizes)))
    states = [model.network.state_dict() for model in models]
    merged.load_state_dict({name: _joined(name, [state[name].cpu() for state in states]) for name in states[0]})
    return merged.eval()


def merged_facts(models: Sequence[GroundingModel]) -> dict[str, Any]:
    """What to keep of the parts in the merged file: their features, and as ``merged`` the SHA-256 of each."""
    return {"features": models[0].features, "merged": [model.sha256 for model in models]}


def _kept(options: ScanOptions) -> dict[str, Any]:
    return {name: value for name, value in vars(options).items() if name not in _SUMMED}


def _joined(name: str, parts: Sequence[Tensor]) -> Tensor:
    if name == "text.embed.weight":
        return torch.cat(list(parts), dim=1)
    if not name.startswith("text.rnn."):
        return torch.cat(list(parts), dim=0)  # the image layer: its rows and biases are the vectors' components
    # A GRU's rows are three gates of D each; each gate is joined by itself.
    gates = zip(*(tensor.chunk(3, dim=0) for tensor in parts), strict=True)
    if ".bias" in name:
        return torch.cat([torch.cat(list(gate)) for gate in gates])
    return torch.cat([torch.block_diag(*gate) for gate in gates])  # type: ignore[no-untyped-call]

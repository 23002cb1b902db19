"""SCAN's weights as files, and a loaded model that encodes images and captions.

Two forms are read: capbench's own (one ``.safetensors`` with options, vocabulary and training facts in its metadata),
and the checkpoints of the released training code (``model_best.pth.tar``), which keep two state dicts and the
options, and need the vocabulary JSON they were trained with.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from capbench.errors import MissingFileError, ModelError, UsageError, suggest
from capbench.files import sha256_file
from capbench.models.scan.fast import FastScan
from capbench.models.scan.network import Scan, ScanOptions
from capbench.models.scan.released import read_released
from capbench.models.trained import (
    TrainedModel,
    check_size,
    read_trained,
    refuse_ensemble,
    with_weights,
    write_trained,
)
from capbench.text.vocabulary import Vocabulary, read_vocabulary

__all__ = ["GroundingModel", "load_scan", "save_scan"]

FloatArray32 = NDArray[np.float32]

_KIND = "capbench.scan/1"
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
    write_trained(path, _KIND, network, network.options, vocabulary, training, precision)


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
    stored = read_trained(file, _KIND, "SCAN", "capbench train scan", ScanOptions)
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

"""Checkpoints of SCAN's released training code (``model_best.pth.tar``): two state dicts and the options."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from capbench.errors import ModelError
from capbench.models.checkpoints import read_torch, tensors_of
from capbench.models.scan.network import ScanOptions

__all__ = ["read_released"]

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

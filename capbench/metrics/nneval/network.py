"""NNEval's network (Sharif et al., ECCV 2018, section 3.3): 8 scores → 72 → 72 → machine or human.

Two kinds of files are read: the six arrays of the released network as ``.npz`` (converted as in docs/nneval.md), and
those of ``capbench train nneval``, with the range of every score in training (``minimum``, ``maximum``: (8) each).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import numpy as np

from capbench.core.errors import ModelError
from capbench.core.records import FloatArray
from capbench.weights.arrays import read_arrays

INPUTS: Final = ("meteor", "wmd", "bleu-1", "bleu-2", "bleu-3", "bleu-4", "spice", "cider")
"""Inputs of the network in the released order; CIDEr is divided by ten."""
Shapes = Mapping[str, tuple[int, ...]]
SHAPES: Shapes = {"W1": (8, 72), "b1": (72,), "W2": (72, 72), "b2": (72,), "W_out": (72, 2), "b_out": (2,)}
"""The arrays of the network; class 0 is machine, class 1 human."""
Mapped = Literal["min-max", "unit"]  # Mapping of scores to [-1, 1]: from their range in training, or from [0, 1]

_KIND = "capbench.nneval/1"
A = TypeVar("A", bound=Any)
_HINT = "Use a file of 'capbench train nneval', or the released checkpoint as .npz (docs/nneval.md has the conversion)"


def map_inputs(inputs: FloatArray, minimum: FloatArray | None = None, maximum: FloatArray | None = None) -> FloatArray:
    """(n, 8) scores in [-1, 1] (eq. 1): 2 (x - minimum) / (maximum - minimum) - 1, or 2x - 1 without a range (8).

    Values outside the range of the training are not clipped; an input that was constant in training becomes 0.
    """
    if minimum is None or maximum is None:
        return 2.0 * inputs - 1.0
    width = maximum - minimum
    constant = width == 0
    mapped: FloatArray = 2.0 * (inputs - minimum) / np.where(constant, 1.0, width) - 1.0
    mapped[:, constant] = 0.0
    return mapped


def class_scores(inputs: A, weights: Mapping[str, A]) -> A:
    """(n, 8) inputs in [-1, 1] → (n, 2) class scores, machine and human (eq. 2 to 4), of arrays or tensors; with a ReLU
    after each of the two hidden layers."""
    hidden = inputs @ weights["W1"] + weights["b1"]
    hidden = (hidden * (hidden > 0)) @ weights["W2"] + weights["b2"]
    scores: A = (hidden * (hidden > 0)) @ weights["W_out"] + weights["b_out"]
    return scores


@dataclass(frozen=True, eq=False)
class NNEvalNetwork:
    """A trained network."""

    weights: Mapping[str, FloatArray] = field(repr=False)  # float64, by the names of :data:`SHAPES`
    minimum: FloatArray | None  # (8) of the inputs in training, if known
    maximum: FloatArray | None
    path: Path
    training: Mapping[str, Any] = field(repr=False)  # facts; empty for released weights

    @property
    def mapped(self) -> Mapped:
        """Mapping of inputs in training; ``unit`` for released weights, which have no range."""
        return "unit" if self.minimum is None else "min-max"

    def probabilities(self, inputs: FloatArray, mapped: Mapped | None = None) -> FloatArray:
        """(n) probabilities that captions are human-written (eq. 5 and 6), of (n, 8) scores in the order of
        :data:`INPUTS`; equal rows get equal values."""
        ranges = (self.minimum, self.maximum) if (mapped or self.mapped) == "min-max" else ()
        rows, place = np.unique(map_inputs(inputs, *ranges), axis=0, return_inverse=True)
        machine, human = class_scores(rows, self.weights).T
        # exp(human) / (exp(machine) + exp(human)), without overflow.
        probabilities: FloatArray = np.exp(-np.logaddexp(0.0, machine - human))
        return probabilities[place.reshape(-1)]


def read_nneval(path: str | os.PathLike[str]) -> NNEvalNetwork:
    """Read the weights from ``.npz`` or safetensors."""
    read = read_arrays(path, _HINT)
    shapes = dict(SHAPES)
    if {"minimum", "maximum"} & set(read.arrays):
        shapes |= dict.fromkeys(("minimum", "maximum"), (len(INPUTS),))
    found = {name: array.shape for name, array in read.arrays.items()}
    wrong = [name for name in {**shapes, **found} if shapes.get(name) != found.get(name)]
    kind = read.metadata.get("kind", _KIND)
    if wrong or kind != _KIND:
        value = wrong[0] if kind == _KIND else kind
        message = f"is not an NNEval network: {value[:80]!r}"
        raise ModelError(message, code="wrong-weights", value=value, path=read.path, hint=_HINT)
    arrays = {name: read.arrays[name].astype(np.float64) for name in shapes}
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            message, hint = f"'{name}' has NaN or infinity", "Download or train the network again"
            raise ModelError(message, code="not-a-number", value=name, path=read.path, hint=hint)
    training = json.loads(read.metadata.get("training", "{}"))
    return NNEvalNetwork(arrays, arrays.pop("minimum", None), arrays.pop("maximum", None), read.path, training)


def write_nneval(
    path: str | os.PathLike[str],
    weights: Mapping[str, Any],
    minimum: FloatArray,
    maximum: FloatArray,
    training: Mapping[str, Any],
) -> None:
    """Write a safetensors file of the weights by name, the inputs' range, and facts (JSON values)."""
    import torch

    from capbench.weights.files import write_safetensors

    tensors = {name: weights[name] for name in SHAPES}
    tensors |= {"minimum": torch.from_numpy(minimum), "maximum": torch.from_numpy(maximum)}
    facts = json.dumps(dict(training), ensure_ascii=False, sort_keys=True)
    write_safetensors(path, tensors, {"format": "pt", "kind": _KIND, "training": facts})

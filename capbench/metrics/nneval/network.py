"""NNEval's network (Sharif et al., ECCV 2018, section 3.3): 8 scores → 72 → 72 → machine or human.

Two kinds of files are read: the six arrays of the released network, which is published as a TensorFlow checkpoint
(docs/nneval.md converts it to ``.npz``), and the output of ``capbench train nneval``, which also contains the range of
every score in training and facts of the training.

The arrays are ``W1`` (8, 72), ``b1`` (72), ``W2`` (72, 72), ``b2`` (72), ``W_out`` (72, 2), ``b_out`` (2), and, if
known, ``minimum`` (8) and ``maximum`` (8). A layer computes x W + b for a row x of inputs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import ModelError
from capbench.core.records import FloatArray
from capbench.weights.arrays import Arrays, read_arrays

INPUTS: Final = ("meteor", "wmd", "bleu-1", "bleu-2", "bleu-3", "bleu-4", "spice", "cider")
"""Inputs of the network in the released order; CIDEr is divided by ten."""
HIDDEN: Final = 72
SHAPES: Final[Mapping[str, tuple[int, ...]]] = {
    "W1": (len(INPUTS), HIDDEN),
    "b1": (HIDDEN,),
    "W2": (HIDDEN, HIDDEN),
    "b2": (HIDDEN,),
    "W_out": (HIDDEN, 2),
    "b_out": (2,),
}
"""The arrays of the network; class 0 is machine, class 1 human."""
Mapped = Literal["min-max", "unit"]
"""Mapping of scores to [-1, 1]: from their range in training, or from [0, 1]."""

_RANGE = ("minimum", "maximum")
_KIND = "capbench.nneval/1"
_MADE_BY = (
    "Use the output of 'capbench train nneval', or the released checkpoint as .npz (docs/nneval.md has the conversion)"
)
_ROWS = 512  # rows whose values of a layer fit in the processor's cache


def map_inputs(inputs: FloatArray, minimum: FloatArray | None = None, maximum: FloatArray | None = None) -> FloatArray:
    """Scores in [-1, 1]: 2 (x - minimum) / (maximum - minimum) - 1, or 2x - 1 without a range.

    Values outside the range of the training are not clipped; an input that was constant in training becomes 0.

    Args:
        inputs: (n, 8) in the order of :data:`INPUTS`.
        minimum: (8) minimum of each input in training.
        maximum: (8) maximum of each input in training.
    """
    if minimum is None or maximum is None:
        return 2.0 * inputs - 1.0
    width = maximum - minimum
    constant = width == 0
    mapped: FloatArray = 2.0 * (inputs - minimum) / np.where(constant, 1.0, width) - 1.0
    mapped[:, constant] = 0.0
    return mapped


@dataclass(frozen=True, eq=False)
class NNEvalNetwork:
    """A trained network.

    Attributes:
        weights: float64 by the names of :data:`SHAPES`.
        minimum: (8) minima of the inputs in training; None if unknown.
        maximum: (8) maxima of the inputs in training; None if unknown.
        path: the file.
        sha256: SHA-256 of the file, 64 hex digits.
        training: stored facts of the training; empty for released weights.
    """

    weights: Mapping[str, FloatArray] = field(repr=False)
    minimum: FloatArray | None
    maximum: FloatArray | None
    path: Path
    sha256: str
    training: Mapping[str, Any] = field(repr=False)

    @property
    def mapped(self) -> Mapped:
        """Mapping of inputs in training; ``unit`` for released weights, which have no range."""
        return "unit" if self.minimum is None else "min-max"

    @property
    def shared(self) -> tuple[str, ...]:
        """Properties that networks of an ensemble share."""
        return "is an NNEval network", f"reads {len(INPUTS)} scores"

    def probabilities(self, inputs: FloatArray, mapped: Mapped | None = None) -> FloatArray:
        """(n) probabilities that captions are human-written (eq. 6). Equal rows get equal values in any batch.

        Args:
            inputs: (n, 8) finite scores in the order of :data:`INPUTS`, CIDEr divided by ten.
            mapped: mapping to [-1, 1]; by default as in training.

        Raises:
            ModelError: the inputs have another shape, or their range in training is required but unknown.
        """
        rows = np.asarray(inputs, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != len(INPUTS):
            message = f"reads {len(INPUTS)} scores per caption, not an array of the shape {rows.shape}"
            raise ModelError(message, code="wrong-shape", value=rows.shape, path=self.path)
        if (mapped or self.mapped) == "min-max":
            if self.minimum is None:
                raise ModelError(
                    "does not contain the range of the scores in training",
                    code="missing-key",
                    value="minimum",
                    path=self.path,
                    hint="Use mapping=unit",
                )
            rows = map_inputs(rows, self.minimum, self.maximum)
        else:
            rows = map_inputs(rows)
        out = np.empty(len(rows))
        weights = self.weights
        for begin in range(0, len(rows), _ROWS):
            block = slice(begin, begin + _ROWS)
            hidden = np.maximum(_layer(rows[block], weights["W1"], weights["b1"]), 0.0)
            hidden = np.maximum(_layer(hidden, weights["W2"], weights["b2"]), 0.0)
            machine, human = _layer(hidden, weights["W_out"], weights["b_out"]).T
            # exp(human) / (exp(machine) + exp(human)), without overflow.
            out[block] = np.exp(-np.logaddexp(0.0, machine - human))
        return out


def _layer(rows: FloatArray, weights: FloatArray, bias: FloatArray) -> FloatArray:
    """rows @ weights + bias, input by input: a matrix product may round equal rows differently and break ties."""
    out = np.tile(bias, (len(rows), 1))
    term = np.empty_like(out)
    for place, of_input in enumerate(weights):
        np.multiply(rows[:, place, None], of_input, out=term)
        out += term
    return out


def read_nneval(path: str | os.PathLike[str]) -> NNEvalNetwork:
    """Read the weights from ``.npz`` or safetensors.

    Raises:
        MissingFileError: the file does not exist.
        ModelError: another format, a damaged file, or another network.
    """
    read = read_arrays(path, _MADE_BY)
    names = [*SHAPES, *(_RANGE if any(name in read.arrays for name in _RANGE) else ())]
    for what, odd in (
        ("has no array", [name for name in names if name not in read.arrays]),
        ("has an unknown array", [name for name in read.arrays if name not in names]),
    ):
        if odd:
            more = f" and {len(odd) - 1} more" if len(odd) > 1 else ""
            message = f"is not an NNEval network: it {what} '{odd[0][:80]}'{more}"
            raise ModelError(message, code="wrong-weights", value=odd[0], path=read.path, hint=_MADE_BY)
    shapes = {**SHAPES, **{name: (len(INPUTS),) for name in _RANGE}}
    arrays = {name: _checked(read, name, shapes[name]) for name in names}
    minimum, maximum = arrays.pop("minimum", None), arrays.pop("maximum", None)
    if minimum is not None and maximum is not None and bool((minimum > maximum).any()):
        place = int(np.flatnonzero(minimum > maximum)[0])
        raise ModelError(
            f"'minimum' of {INPUTS[place]} is greater than its 'maximum'",
            code="out-of-range",
            value=INPUTS[place],
            path=read.path,
            hint="Download or train the network again",
        )
    return NNEvalNetwork(arrays, minimum, maximum, read.path, read.sha256, _facts(read))


def _checked(read: Arrays, name: str, shape: tuple[int, ...]) -> FloatArray:
    array: NDArray[Any] = read.arrays[name]
    if array.dtype.kind not in "fiu":
        message = f"'{name}' has the type {array.dtype} instead of numbers"
        raise ModelError(message, code="wrong-type", value=name, path=read.path, hint=_MADE_BY)
    if array.shape != shape:
        raise ModelError(
            f"'{name}' has the shape {array.shape} instead of {shape}",
            code="wrong-shape",
            value=name,
            path=read.path,
            hint="Use weights of this architecture",
        )
    values = array.astype(np.float64)
    if not np.isfinite(values).all():
        hint = "Download or train the network again"
        raise ModelError(f"'{name}' has NaN or infinity", code="not-a-number", value=name, path=read.path, hint=hint)
    return values


def _facts(read: Arrays) -> dict[str, Any]:
    if "kind" not in read.metadata:
        return {}
    if read.metadata["kind"] != _KIND:
        message = "is not an NNEval network of capbench"
        raise ModelError(message, code="wrong-weights", value=read.metadata["kind"], path=read.path, hint=_MADE_BY)
    hint = "Download or train the network again"
    try:
        facts = json.loads(read.metadata["training"])
    except (KeyError, ValueError) as error:
        message = f"its metadata cannot be read ({error})"
        raise ModelError(message, code="wrong-format", path=read.path, hint=hint) from error
    if not isinstance(facts, dict):
        raise ModelError("its metadata has no facts of a training", code="wrong-format", path=read.path, hint=hint)
    return facts


def write_nneval(
    path: str | os.PathLike[str],
    weights: Mapping[str, Any],
    minimum: FloatArray,
    maximum: FloatArray,
    training: Mapping[str, Any],
) -> None:
    """Write a safetensors file atomically; requires PyTorch.

    Args:
        path: the file.
        weights: tensors by the names of :data:`SHAPES`.
        minimum: (8) smallest inputs of the training.
        maximum: (8) largest inputs of the training.
        training: facts of the training, JSON values.

    Raises:
        ModelError: a weight is not finite.
    """
    import torch

    from capbench.weights.files import write_safetensors

    tensors = {name: weights[name] for name in SHAPES}
    tensors |= {"minimum": torch.from_numpy(minimum), "maximum": torch.from_numpy(maximum)}
    facts = json.dumps(dict(training), ensure_ascii=False, sort_keys=True)
    write_safetensors(path, tensors, {"format": "pt", "kind": _KIND, "training": facts})

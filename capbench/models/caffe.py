"""Reading ``.caffemodel`` files without Caffe: a reader of the few protocol-buffer fields that hold weights.

The fields are those of Caffe's ``caffe.proto``: a net's layers (field 100, or 2 in old files) with name (1; 4 in old
files) and blobs (7; 6 in old files); a blob's data (5), shape (7) or old shape (1 to 4).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from capbench.errors import ModelError

__all__ = ["bottom_up_names", "is_bottom_up", "read_caffemodel"]


def read_caffemodel(path: str | os.PathLike[str]) -> dict[str, NDArray[np.float32]]:
    """The blobs of a net: ``LAYER.0``, ``LAYER.1`` ... in the layer's order.

    Raises:
        ModelError: it is no such file, or is cut off.
    """
    data = memoryview(Path(path).read_bytes())
    blobs_by_name: dict[str, NDArray[np.float32]] = {}
    try:
        for number, layer in _fields(data):
            if number in (2, 100) and isinstance(layer, memoryview):
                old = number == 2
                fields = list(_fields(layer))
                names = [v for n, v in fields if n == (4 if old else 1) and isinstance(v, memoryview)]
                blobs = [v for n, v in fields if n == (6 if old else 7) and isinstance(v, memoryview)]
                for i, blob in enumerate(blobs):
                    blobs_by_name[f"{bytes(names[0]).decode('utf-8')}.{i}"] = _blob(blob)
    except (IndexError, ValueError) as error:
        hint = "The file is damaged or no .caffemodel: get it again"
        raise ModelError(f"cannot be read as a Caffe net ({error})", path=path, hint=hint) from error
    if not blobs_by_name:
        raise ModelError("holds no layers with weights", path=path, hint="Give the .caffemodel, not the .prototxt")
    return blobs_by_name


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number has too many digits")


def _fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Number and value of each field: a whole number, or the bytes of anything else."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield tag >> 3, value
            continue
        if kind == 2:
            size, at = _varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"a field has the unknown kind {kind}")
        if at + size > len(data):
            raise ValueError("it is cut off")
        yield tag >> 3, data[at : at + size]
        at += size


def _blob(blob: memoryview) -> NDArray[np.float32]:
    chunks: list[bytes] = []
    shape: list[int] = []
    old = {}
    for number, value in _fields(blob):
        if number == 5 and isinstance(value, memoryview):
            chunks.append(bytes(value))
        elif number == 7 and isinstance(value, memoryview):
            shape = [n for _, dims in _fields(value) for n in _numbers(dims)]
        elif number in (1, 2, 3, 4) and isinstance(value, int):
            old[number] = value
    values = np.frombuffer(b"".join(chunks), dtype="<f4").astype(np.float32)
    if not shape and old:
        shape = [old.get(i, 1) for i in (1, 2, 3, 4)]
    result: NDArray[np.float32] = values.reshape(shape)
    return result


def _numbers(dims: int | memoryview) -> list[int]:
    if isinstance(dims, int):
        return [dims]
    numbers, at = [], 0
    while at < len(dims):
        value, at = _varint(dims, at)
        numbers.append(value)
    return numbers


_LINEAR = {"cls_score": "cls_score", "bbox_pred": "bbox_pred", "fc_attr": "fc_attr", "attr_score": "attr_score"}
_RPN = {"rpn_conv/3x3": "conv", "rpn_cls_score": "objectness_logits", "rpn_bbox_pred": "anchor_deltas"}
_BRANCHES = {"1": "shortcut", "2a": "conv1", "2b": "conv2", "2c": "conv3"}


def bottom_up_names(blobs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The bottom-up attention net's blobs under the names that :class:`~capbench.models.bottom_up.BottomUp` has.

    Caffe's ``BatchNorm`` keeps sums of means and variances and the factor to divide them by; its ``Scale`` layer keeps
    what follows.

    Raises:
        ModelError: a normalisation lacks one of its blobs.
    """
    renamed: dict[str, Tensor] = {}
    for name, tensor in blobs.items():
        layer, _, index = name.rpartition(".")
        if layer in _LINEAR or layer == "cls_embedding":
            end = "weight" if index == "0" else "bias"
            renamed[f"roi_heads.box_predictor.{layer}.{end}"] = (
                _matrix(tensor) if end == "weight" else tensor.reshape(-1)
            )
        elif layer in _RPN:
            end = "weight" if index == "0" else "bias"
            renamed[f"proposal_generator.rpn_head.{_RPN[layer]}.{end}"] = (
                tensor if end == "weight" else tensor.reshape(-1)
            )
        elif (place := _place(layer)) is not None:
            kind, where = place
            if kind == "res":
                renamed[f"{where}.weight"] = tensor
            elif kind == "scale":
                renamed[f"{where}.norm.{'weight' if index == '0' else 'bias'}"] = tensor.reshape(-1)
            elif index in ("0", "1"):
                factor = blobs.get(f"{layer}.2")
                if factor is None:
                    raise ModelError(f"the normalisation '{layer}' lacks its third blob")
                if factor.numel() != 1:
                    raise ModelError(f"'{layer}.2' has shape {tuple(factor.shape)}, the network needs (1,)")
                scale = float(factor)
                values = tensor.reshape(-1) * (0.0 if scale == 0 else 1.0 / scale)
                renamed[f"{where}.norm.{'running_mean' if index == '0' else 'running_var'}"] = values
    return renamed


def _matrix(tensor: Tensor) -> Tensor:
    """Without the leading ones that old files give every matrix."""
    while tensor.ndim > 2 and tensor.shape[0] == 1:
        tensor = tensor[0]
    return tensor


def _place(layer: str) -> tuple[str, str] | None:
    """What a layer of the ResNet is (``res``, ``bn``, ``scale``) and the convolution that it belongs to."""
    if layer in ("conv1", "bn_conv1", "scale_conv1"):
        return {"c": "res", "b": "bn", "s": "scale"}[layer[0]], "backbone.stem.conv1"
    match: Any = re.fullmatch(r"(res|bn|scale)([2-5])([a-z])(\d*)_branch(1|2[abc])", layer)
    if match is None:
        return None
    kind, stage, letter, number, branch = match.groups()
    # Blocks are a, b, c, or a, b1, b2 ...
    block = int(number) if number else ord(letter) - ord("a")
    room = "roi_heads" if stage == "5" else "backbone"
    return kind, f"{room}.res{stage}.{block}.{_BRANCHES[branch]}"


def is_bottom_up(names: Mapping[str, Tensor]) -> bool:
    """Whether these are blobs of a Caffe ResNet with a proposal network."""
    return "bn_conv1.0" in names and "rpn_cls_score.0" in names

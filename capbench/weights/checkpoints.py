"""Readers for third-party weight files, which never execute code from them.

Supported are PyTorch files (:mod:`capbench.weights.torch_files`), pickled dictionaries of arrays from Detectron and
detectron2 (with the restricted unpickler), ``.npz`` and safetensors, all recognised by content, and ``.caffemodel``.
The result is always a flat dictionary from tensor names to tensors. :func:`fit_state` loads them into a network.
"""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from capbench.core.errors import ModelError
from capbench.core.files import sha256_file
from capbench.core.pickles import load_npz, load_pickle
from capbench.weights.arrays import damage_reported, head_of, is_npz, is_safetensors, refuse_other_kinds
from capbench.weights.torch_files import LEGACY_MAGIC, load_torch

# Keys of the tensors in training checkpoints, in order of trial.
_INSIDE = ("model", "state_dict", "model_state_dict", "weights", "blobs")
_PREFIXES = ("module.", "_orig_mod.")
_COUNTER = "num_batches_tracked"


@dataclass(frozen=True)
class Checkpoint:
    """The tensors of one file."""

    path: Path  # the file
    sha256: str  # SHA-256 of the file, 64 hex digits
    tensors: dict[str, torch.Tensor]  # by name; half precision is converted to float32


def read_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Read a PyTorch file, a pickle of arrays, ``.npz``, ``.safetensors`` or ``.caffemodel``."""
    from safetensors.torch import load_file

    file = Path(path)
    digest = sha256_file(file)  # raises the error for a missing or unreadable file
    refuse_other_kinds(file)
    with damage_reported(file):
        if is_npz(file):
            content: Any = load_npz(file)
        elif is_safetensors(file):
            content = load_file(file)
        elif file.suffix == ".caffemodel":
            content = read_caffemodel(file)
        elif zipfile.is_zipfile(file) or LEGACY_MAGIC in head_of(file):
            content = load_torch(file)
        else:
            content = load_pickle(file)
    return Checkpoint(file, digest, tensors_of(content, file))


def read_torch(path: str | os.PathLike[str]) -> Any:
    """Read the whole content of a PyTorch file of either format, as saved by a training script."""
    file = Path(path)
    with damage_reported(file):
        refuse_other_kinds(file)
        return load_torch(file)


def tensors_of(content: Any, file: Path) -> dict[str, torch.Tensor]:
    """The tensors of a state dict, alone or in a training checkpoint, as float32 and without wrappers' prefixes."""
    for key in _INSIDE:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
            break
    if not isinstance(content, Mapping):
        message = f"contains a {type(content).__name__} instead of a dictionary of tensors"
        raise ModelError(message, code="wrong-type", path=file)
    result: dict[str, torch.Tensor] = {}
    for key, value in content.items():
        if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
            # ascontiguousarray turns a scalar into a vector.
            native = np.ascontiguousarray(value.astype(value.dtype.newbyteorder("="), copy=False)).reshape(value.shape)
            value = torch.from_numpy(native)
        if not isinstance(key, str) or not isinstance(value, torch.Tensor):
            continue  # epochs, options, names of classes
        name = key
        while name.startswith(_PREFIXES):  # wrappers may be nested
            name = name.partition(".")[2]
        if name in result:
            raise ModelError(
                f"two tensors stand for '{name}', one of them '{key}'", code="duplicate", value=name, path=file
            )
        halves_and_doubles = (torch.float16, torch.bfloat16, torch.float64)
        result[name] = (value.float() if value.dtype in halves_and_doubles else value).detach()
    if not result:
        message = "contains no tensors with names, as the weights of this network have"
        hint = "Pass the file of the model's weights; SCAN's, for one, are lists of tensors"
        raise ModelError(message, code="wrong-format", path=file, hint=hint)
    for name, tensor in result.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            message, hint = f"'{name}' contains NaN or infinity", "The file is damaged: download it again"
            raise ModelError(message, code="not-a-number", value=name, path=file, hint=hint)
    return result


class Sizes(NamedTuple):
    """The tensors of a file, from whose shapes the sizes of a network are derived."""

    tensors: Mapping[str, torch.Tensor]
    path: str | os.PathLike[str]
    hint: str  # for a tensor that is missing

    def shape(self, name: str, axes: int) -> torch.Size:
        """The shape of a tensor with so many axes, none of them empty."""
        if name not in self.tensors:
            raise ModelError(f"lacks '{name}'", code="missing-key", value=name, path=self.path, hint=self.hint)
        shape = self.tensors[name].shape
        if len(shape) != axes or 0 in shape:
            message = f"'{name}' has shape {tuple(shape)}, the network needs one of length {axes} without zeros"
            raise ModelError(message, code="wrong-shape", value=name, path=self.path)
        return shape

    def width(self, name: str, multiple: int = 1) -> int:
        """A width, from a bias or a normalisation, so that the error is attributed to a matrix of another width."""
        size = self.shape(name, 1)[0]
        if size % multiple:
            message = f"'{name}' has shape ({size},), the network needs a multiple of {multiple}"
            raise ModelError(message, code="wrong-shape", value=name, path=self.path)
        return size // multiple

    def blocks(self, stage: str) -> int:
        """Number of blocks of a stage of a ResNet. Raises ModelError if it has no blocks or lacks one."""
        pattern = re.compile(rf"{re.escape(stage)}\.(\d+)\.")
        numbers = {int(match[1]) for name in self.tensors if (match := pattern.match(name))}
        if not numbers or numbers != set(range(len(numbers))):
            name = f"{stage}.{min(set(range(len(numbers) + 1)) - numbers)}.conv1.weight"
            raise ModelError(f"lacks '{name}'", code="missing-key", value=name, path=self.path, hint=self.hint)
        return len(numbers)


class _Undrawn(TorchFunctionMode):
    """First weights are not drawn, which on "meta" would import TorchDynamo (a second)."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__ in ("normal_", "uniform_", "kaiming_uniform_"):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


@contextmanager
def shapes_only() -> Iterator[None]:
    """Networks that are made here have the shapes of their weights, but no values and no memory."""
    with torch.device("meta"), _Undrawn():
        yield


def fit_state(
    module: nn.Module,
    tensors: Mapping[str, torch.Tensor],
    path: str | os.PathLike[str],
    *,
    rename: Callable[[str], str | None] = lambda name: name,
    optional: Collection[str] = (),
) -> None:
    """Load :func:`fitting_tensors` into a network in evaluation mode."""
    module.load_state_dict(fitting_tensors(module, tensors, path, rename=rename, optional=optional), strict=False)
    module.eval()


def fitting_tensors(
    module: nn.Module,
    tensors: Mapping[str, torch.Tensor],
    path: str | os.PathLike[str],
    *,
    # the network's name for a file's name, or None for a tensor that inference does not use
    rename: Callable[[str], str | None] = lambda name: name,
    # suffixes of names that may be missing, in addition to ``num_batches_tracked``, which inference never reads
    optional: Collection[str] = (),
) -> dict[str, torch.Tensor]:
    """Tensors by a network's names; every parameter must exist with its shape, without surplus tensors."""
    hint = "These weights are of another architecture"
    state = module.state_dict()
    fitting: dict[str, torch.Tensor] = {}
    surplus: list[str] = []
    for name, tensor in tensors.items():
        parameter = rename(name)
        if parameter is None:
            continue
        if parameter not in state:
            surplus.append(name)
            continue
        if parameter in fitting:
            message = f"two tensors stand for '{parameter}', one of them '{name}'"
            raise ModelError(message, code="duplicate", value=parameter, path=path)
        if (needed := state[parameter].shape) != tensor.shape:
            if parameter.endswith(_COUNTER):
                continue  # NumPy turns it into a vector
            message = f"'{name}' has shape {tuple(tensor.shape)}, the network needs {tuple(needed)}"
            raise ModelError(message, code="wrong-shape", value=name, path=path, hint=hint)
        fitting[parameter] = tensor
    endings = (*optional, _COUNTER)
    missing = [name for name in state if name not in fitting and not name.endswith(endings)]
    for names, code, problem in (
        (missing, "missing-key", "lacks"),
        (surplus, "unknown-key", "contains tensors that the network does not know:"),
    ):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise ModelError(f"{problem} '{names[0]}'{more}", code=code, value=names[0], path=path, hint=hint)
    return fitting


# A reader for ``.caffemodel`` files. It uses these fields of ``caffe.proto``: a net's layers (field 100, or 2 in old
# files) with name (1; 4 in old files) and blobs (7; 6 in old files); a blob's data (5), shape (7) or old shape (1-4).


def read_caffemodel(path: str | os.PathLike[str]) -> dict[str, NDArray[np.float32]]:
    """The blobs of a Caffe net: ``LAYER.0``, ``LAYER.1`` ... in the layer's order."""
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
        message = f"cannot be read as a Caffe net ({error})"
        hint = "The file is damaged or not a .caffemodel: download it again"
        raise ModelError(message, code="damaged", path=path, hint=hint) from error
    if not blobs_by_name:
        message, hint = "contains no layers with weights", "Pass the .caffemodel, not the .prototxt"
        raise ModelError(message, code="wrong-format", path=path, hint=hint)
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


def _fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Number and value of each field: an integer, or the bytes of any other type."""
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
            raise ValueError("it is truncated")
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
            shape = [n for _, dims in _fields(value) if isinstance(dims, memoryview) for n in _numbers(dims)]
        elif number in (1, 2, 3, 4) and isinstance(value, int):
            old[number] = value
    values = np.frombuffer(b"".join(chunks), dtype="<f4").astype(np.float32)
    if not shape and old:
        shape = [old.get(i, 1) for i in (1, 2, 3, 4)]
    result: NDArray[np.float32] = values.reshape(shape)
    return result


def _numbers(dims: memoryview) -> list[int]:
    numbers, at = [], 0
    while at < len(dims):
        value, at = _varint(dims, at)
        numbers.append(value)
    return numbers


_PREDICTOR, _RPN = "roi_heads.box_predictor.", "proposal_generator.rpn_head."
_HEADS = {
    **{name: _PREDICTOR + name for name in ("cls_score", "bbox_pred", "fc_attr", "attr_score", "cls_embedding")},
    "rpn_conv/3x3": f"{_RPN}conv",
    "rpn_cls_score": f"{_RPN}objectness_logits",
    "rpn_bbox_pred": f"{_RPN}anchor_deltas",
}
_BRANCHES = {"1": "shortcut", "2a": "conv1", "2b": "conv2", "2c": "conv3"}


def bottom_up_names(blobs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The blobs of the bottom-up attention net by the names of :mod:`capbench.features.detectors.bottom_up_network`.

    Caffe's ``BatchNorm`` stores sums of means and variances and their divisor; ``Scale`` stores scale and bias.
    """
    renamed: dict[str, Tensor] = {}
    for name, tensor in blobs.items():
        layer, _, index = name.rpartition(".")
        end = "weight" if index == "0" else "bias"
        if layer in _HEADS:
            renamed[f"{_HEADS[layer]}.{end}"] = _matrix(tensor) if index == "0" else tensor.reshape(-1)
        elif (place := _place(layer)) is not None:
            kind, where = place
            if kind == "res":
                renamed[f"{where}.weight"] = tensor
            elif kind == "scale":
                renamed[f"{where}.norm.{end}"] = tensor.reshape(-1)
            elif index in ("0", "1"):
                divisor = f"{layer}.2"
                if (factor := blobs.get(divisor)) is None or factor.numel() != 1:
                    message = f"the normalisation '{layer}' has no number as its third blob"
                    raise ModelError(message, code="missing-key", value=divisor)
                scale = float(factor)
                values = tensor.reshape(-1) * (0.0 if scale == 0 else 1.0 / scale)
                renamed[f"{where}.norm.{'running_mean' if index == '0' else 'running_var'}"] = values
    return renamed


def _matrix(tensor: Tensor) -> Tensor:
    """A weight without the leading axes of size 1 in old files."""
    while tensor.ndim > 2 and tensor.shape[0] == 1:
        tensor = tensor[0]
    return tensor


def _place(layer: str) -> tuple[str, str] | None:
    """Kind of a layer of the ResNet (``res``, ``bn``, ``scale``) and the convolution that it belongs to."""
    if layer in ("conv1", "bn_conv1", "scale_conv1"):
        return {"c": "res", "b": "bn", "s": "scale"}[layer[0]], "backbone.stem.conv1"
    match: Any = re.fullmatch(r"(res|bn|scale)([2-5])([a-z])(\d*)_branch(1|2[abc])", layer)
    if match is None:
        return None
    kind, stage, letter, number, branch = match.groups()
    # Blocks are a, b, c, or a, b1, b2 ...
    block = int(number) if number else ord(letter) - ord("a")
    module = "roi_heads" if stage == "5" else "backbone"
    return kind, f"{module}.res{stage}.{block}.{_BRANCHES[branch]}"


def is_bottom_up(names: Mapping[str, Tensor]) -> bool:
    """True for the blobs of a Caffe ResNet with a proposal network."""
    return "bn_conv1.0" in names and "rpn_cls_score.0" in names

"""Writing safetensors files: a JSON header with free text beside the tensors, then the numbers; nothing can run."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from capbench.errors import ModelError
from capbench.files import atomic_write, check_readable
from capbench.models.arrays import LONGEST_HEADER, read_metadata

__all__ = ["map_safetensors", "read_metadata", "to_bytes", "write_safetensors"]

_TYPES = {torch.float32: "F32", torch.float16: "F16", torch.int64: "I64"}


def to_bytes(
    tensors: Mapping[str, Tensor],
    metadata: Mapping[str, str],
    precision: Literal["float32", "float16"] = "float32",
) -> bytes:
    """A file of tensors by name, in the order of names: the same content gives the same bytes.

    Args:
        tensors: floating point (stored in ``precision``) or int64.
        metadata: texts by name.
        precision: of floating point numbers in the file.

    Raises:
        ModelError: a tensor holds NaN or infinity, or ``precision`` cannot hold it.
    """
    return b"".join(_pieces(tensors, metadata, precision))


def _pieces(
    tensors: Mapping[str, Tensor], metadata: Mapping[str, str], precision: Literal["float32", "float16"]
) -> Iterator[bytes]:
    """The header, and tensor by tensor what follows, so that a large file is never in memory twice."""
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    at = 0
    for name in sorted(tensors):
        tensor = tensors[name]
        dtype = getattr(torch, precision) if tensor.is_floating_point() else tensor.dtype
        end = at + tensor.numel() * dtype.itemsize
        header[name] = {"dtype": _TYPES[dtype], "shape": list(tensor.shape), "data_offsets": [at, end]}
        at = end
    yield _head(header)
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu()
        if tensor.is_floating_point():
            tensor = tensor.to(getattr(torch, precision))
            if not bool(torch.isfinite(tensor).all()):
                raise ModelError(f"'{name}' holds NaN or infinity in {precision}", hint="Nothing is written")
        yield tensor.contiguous().numpy().tobytes()


def _head(header: Mapping[str, object]) -> bytes:
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def write_safetensors(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Tensor],
    metadata: Mapping[str, str],
    precision: Literal["float32", "float16"] = "float32",
) -> None:
    """Write what :func:`to_bytes` gives, atomically.

    Raises:
        ModelError: see :func:`to_bytes`.
    """
    try:
        with atomic_write(path, "wb") as stream:
            for piece in _pieces(tensors, metadata, precision):
                stream.write(piece)
    except ModelError as error:
        raise ModelError(error.message, path=path, hint=error.hint) from error


def map_safetensors(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The float32 tensors of a file by name, mapped into memory: what is never read is never loaded.

    Processes that map one file share its memory. Changing a tensor changes this process's copy and not the file.

    Raises:
        MissingFileError: there is no such file.
        ModelError: it is no safetensors file, is cut off, or holds other numbers than float32.
    """
    file = Path(path)
    check_readable(file)
    damaged = ModelError("is no whole safetensors file", path=file, hint="Get or make the file again")
    with open(file, "rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        text = stream.read(length) if 2 <= length <= LONGEST_HEADER else b""
    try:
        header = json.loads(text)
        places = {name: entry for name, entry in header.items() if name != "__metadata__"}
        size = file.stat().st_size - 8 - length
        ends = [tuple(entry["data_offsets"]) for entry in places.values()]
        if not places or not all(0 <= begin <= end <= size for begin, end in ends):
            raise damaged
        whole = np.memmap(file, np.uint8, "c", offset=8 + length)
        tensors = {}
        for name, entry in places.items():
            if entry["dtype"] != "F32":
                raise ModelError(f"'{name}' is of the type {entry['dtype']} and not F32", path=file)
            begin, end = entry["data_offsets"]
            tensors[name] = torch.from_numpy(whole[begin:end].view(np.float32).reshape(entry["shape"]))
    except ModelError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise damaged from error
    return tensors

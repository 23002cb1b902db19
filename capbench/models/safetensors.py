"""Writing safetensors files: a JSON header with free text beside the tensors, then the numbers; nothing can run."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from capbench.errors import ModelError
from capbench.files import atomic_write
from capbench.models.arrays import read_metadata

__all__ = ["read_metadata", "to_bytes", "write_safetensors"]

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
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    body: list[bytes] = []
    at = 0
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu()
        if tensor.is_floating_point():
            tensor = tensor.to(getattr(torch, precision))
            if not bool(torch.isfinite(tensor).all()):
                raise ModelError(f"'{name}' holds NaN or infinity in {precision}", hint="Nothing is written")
        raw = tensor.contiguous().numpy().tobytes()
        header[name] = {
            "dtype": _TYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [at, at + len(raw)],
        }
        body.append(raw)
        at += len(raw)
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(body)


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
        content = to_bytes(tensors, metadata, precision)
    except ModelError as error:
        raise ModelError(error.message, path=path, hint=error.hint) from error
    with atomic_write(path, "wb") as stream:
        stream.write(content)

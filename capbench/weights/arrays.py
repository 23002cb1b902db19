"""Weights as NumPy arrays, for networks without PyTorch: ``.npz`` and safetensors, recognised by content."""

from __future__ import annotations

import contextlib
import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import DataError, MissingFileError, ModelError
from capbench.core.files import check_readable, sha256_file
from capbench.core.pickles import load_npz

LONGEST_HEADER = 100_000_000
_SAFETENSORS = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U8": np.uint8,
    "BOOL": np.bool_,
}


@dataclass(frozen=True)
class Arrays:
    """The arrays of one file.

    Attributes:
        path: the file.
        sha256: of the whole file, 64 hex digits.
        arrays: by name, unchanged.
        metadata: texts of the file; empty for ``.npz``.
    """

    path: Path
    sha256: str
    arrays: dict[str, NDArray[Any]]
    metadata: Mapping[str, str]


def read_arrays(path: str | os.PathLike[str], hint: str) -> Arrays:
    """Read an ``.npz`` or safetensors file of numbers.

    Args:
        path: the file.
        hint: remedy for files of other formats, for messages.

    Raises:
        MissingFileError: there is no such file.
        ModelError: it has another format, or is damaged.
    """
    file = Path(path)
    digest = sha256_file(file)  # raises the error for a missing or unreadable file
    with open(file, "rb") as stream:
        head = stream.read(64)
    refuse_other_kinds(head, file)
    with damage_reported(file):
        if is_safetensors(head, file.stat().st_size):
            return Arrays(file, digest, read_safetensors(file), read_metadata(file) or {})
        if head[:4] == b"PK\x03\x04":
            with zipfile.ZipFile(file) as archive:
                if all(name.endswith(".npy") for name in archive.namelist()):
                    return Arrays(file, digest, load_npz(file), {})
    raise ModelError("is neither .npz nor safetensors", code="wrong-format", path=file, hint=hint)


@contextlib.contextmanager
def damage_reported(file: Path) -> Iterator[None]:
    """While a file of weights is read: raises ModelError for it in place of any error of a damaged file."""
    try:
        yield
    except FileNotFoundError as error:
        raise MissingFileError("there is no such file", path=file) from error
    except (MissingFileError, ModelError, MemoryError):
        raise
    except DataError as error:
        hint = error.hint or "Download the file again"
        raise ModelError(error.message, code=error.code, value=error.value, path=file, hint=hint) from error
    except Exception as error:  # zip, torch and NumPy raise many kinds on a damaged file
        raise unreadable(file, error) from error


# First bytes of files that users pass instead of weights → name of the format.
_OTHER_KINDS = (
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file, such as a store of region features,"),
    (b"\x89PNG", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
    (b"%PDF", "a PDF"),
    (b"<!DOCTYPE", "a web page"),
    (b"<html", "a web page"),
    (b"version https://git-lfs", "a pointer of Git LFS"),
    (b"\x1f\x8b", "a gzip archive"),
)


def refuse_other_kinds(head: bytes, file: Path) -> None:
    """Raise ModelError if the first bytes of a file are those of another format."""
    hint = "Pass the file of the model's weights"
    if not head:
        raise ModelError("is empty", code="damaged", path=file, hint="Download the file again")
    for start, kind in _OTHER_KINDS:
        if head.startswith(start):
            raise ModelError(f"is {kind} and not weights", code="wrong-format", path=file, hint=hint)
    if head.lstrip()[:1] in (b"{", b"[") and b"\0" not in head:
        raise ModelError("is JSON and not weights", code="wrong-format", path=file, hint=hint)


def unreadable(file: Path, error: Exception) -> ModelError:
    """The error for a file that cannot be read as weights."""
    line = (str(error).strip() or type(error).__name__).splitlines()[0][:160]
    message = f"cannot be read as weights ({line})"
    return ModelError(message, code="unreadable", path=file, hint="Download the file again")


def is_safetensors(head: bytes, size: int) -> bool:
    """True if the first bytes and the size of a file are those of safetensors."""
    return len(head) > 9 and head[8:9] == b"{" and 8 + int.from_bytes(head[:8], "little") <= size


def read_safetensors(file: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a safetensors file. Raises ModelError; a damaged header may raise other exceptions."""
    with open(file, "rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(length))
        body = stream.read()
    arrays: dict[str, NDArray[Any]] = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        raw = body[begin:end]
        if len(raw) != end - begin:
            message = f"'{name}' is truncated"
            raise ModelError(message, code="damaged", value=name, path=file, hint="Download the file again")
        if entry["dtype"] == "BF16":
            # The upper half of a float32.
            values = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
        elif entry["dtype"] in _SAFETENSORS:
            values = np.frombuffer(raw, _SAFETENSORS[entry["dtype"]]).copy()
        else:
            message = f"'{name}' has the unknown type {entry['dtype']}"
            raise ModelError(message, code="wrong-type", value=name, path=file)
        arrays[name] = values.reshape(entry["shape"])
    return arrays


def read_metadata(path: str | os.PathLike[str]) -> dict[str, str] | None:
    """The metadata of a safetensors file, or None if the file has another format."""
    try:
        check_readable(path)
        with open(path, "rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if not 2 <= length <= LONGEST_HEADER:
                return None
            text = stream.read(length)
        header = json.loads(text) if text[:1] == b"{" and len(text) == length else None
    except (OSError, ValueError, DataError):
        return None
    if not isinstance(header, dict):
        return None
    metadata = header.get("__metadata__", {})
    return {str(k): v for k, v in metadata.items() if isinstance(v, str)} if isinstance(metadata, dict) else {}

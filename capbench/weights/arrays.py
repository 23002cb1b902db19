"""Weights as NumPy arrays, for networks without PyTorch: ``.npz`` and safetensors, recognised by content."""

from __future__ import annotations

import contextlib
import os
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from capbench.core.errors import DataError, MissingFileError, ModelError
from capbench.core.files import sha256_file
from capbench.core.pickles import load_npz


@dataclass(frozen=True)
class Arrays:
    """The arrays of one file."""

    path: Path  # the file
    sha256: str  # of the whole file, 64 hex digits
    arrays: dict[str, NDArray[Any]]  # by name, unchanged
    metadata: Mapping[str, str]  # texts of the file; empty for ``.npz``


def read_arrays(path: str | os.PathLike[str], hint: str) -> Arrays:
    """Read an ``.npz`` or safetensors file of numbers; ``hint`` is the remedy for files of other formats."""
    from safetensors.numpy import load_file

    file = Path(path)
    digest = sha256_file(file)  # raises the error for a missing or unreadable file
    refuse_other_kinds(file)
    with damage_reported(file):
        if is_safetensors(file):
            return Arrays(file, digest, load_file(file), read_metadata(file) or {})
        if is_npz(file):
            return Arrays(file, digest, load_npz(file), {})
    raise ModelError("is neither .npz nor safetensors", code="wrong-format", path=file, hint=hint)


def is_npz(file: Path) -> bool:
    """True for a zip archive of ``.npy`` files only."""
    if not head_of(file).startswith(b"PK\x03\x04"):
        return False
    with zipfile.ZipFile(file) as archive:
        return all(name.endswith(".npy") for name in archive.namelist())


def head_of(file: Path) -> bytes:
    """The first bytes of a file."""
    with open(file, "rb") as stream:
        return stream.read(64)


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
        raise error.placed(ModelError, file, hint=error.hint or "Download the file again") from error
    except Exception as error:  # zip, safetensors, torch and NumPy raise many kinds on a damaged file
        line = (str(error).strip() or type(error).__name__).splitlines()[0][:160]
        message = f"cannot be read as weights ({line})"
        raise ModelError(message, code="unreadable", path=file, hint="Download the file again") from error


# First bytes of files that users pass instead of weights → name of the format.
_OTHER_KINDS = (
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file, such as a store of region features,"),
    (b"<!DOCTYPE", "a web page"),
    (b"<html", "a web page"),
    (b"version https://git-lfs", "a pointer of Git LFS"),
    (b"\x1f\x8b", "a gzip archive"),
)


def refuse_other_kinds(file: Path) -> None:
    """Raise ModelError if the first bytes of a file are those of another format."""
    head = head_of(file)
    if not head:
        raise ModelError("is empty", code="damaged", path=file, hint="Download the file again")
    kind = next((kind for start, kind in _OTHER_KINDS if head.startswith(start)), None)
    if head.lstrip()[:1] in (b"{", b"[") and b"\0" not in head:
        kind = "JSON"
    if kind is not None:
        hint = "Pass the file of the model's weights"
        raise ModelError(f"is {kind} and not weights", code="wrong-format", path=file, hint=hint)


def is_safetensors(file: Path) -> bool:
    """True if the first bytes and the size of a file are those of safetensors."""
    head = head_of(file)
    return head[8:9] == b"{" and 8 + int.from_bytes(head[:8], "little") <= file.stat().st_size


def read_metadata(path: str | os.PathLike[str]) -> dict[str, str] | None:
    """The metadata of a safetensors file, or None if there is no such file or it has another format."""
    from safetensors import safe_open

    file = Path(path)
    if not file.is_file() or not is_safetensors(file):
        return None
    with damage_reported(file), safe_open(file, "np") as opened:
        return dict(opened.metadata() or {})

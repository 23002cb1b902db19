"""What importers share: an image with the place that it was read from, and checks of single values."""

from __future__ import annotations

import binascii
import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import DataError, MissingFileError
from capbench.features.records import RegionFeatures

__all__ = [
    "MAX_RECORD_BYTES",
    "ImportedImage",
    "base64_array",
    "demand",
    "flat_field",
    "float_matrix",
    "single_number",
    "too_large",
    "unreadable",
    "whole_number",
]

MAX_RECORD_BYTES = 256_000_000
"""What one image may take, and an array that is read as a whole: more than 30,000 regions of 2,048 numbers."""


@dataclass(frozen=True, eq=False)
class ImportedImage:
    """One image as read.

    Attributes:
        regions: its regions, not checked yet.
        path: the file.
        row: where in the file, for messages.
    """

    regions: RegionFeatures
    path: Path
    row: int | str | None = None


def base64_array(text: bytes | str, dtype: str, what: str) -> NDArray[Any]:
    """Decode base64 of little-endian numbers. Raises ValueError that says what is wrong with ``what``."""
    try:
        raw = binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{what} is not base64 ({str(error).lower()})") from None
    kind = np.dtype(dtype).newbyteorder("<")
    if len(raw) % kind.itemsize:
        raise ValueError(f"{what} has {len(raw)} bytes, no multiple of {kind.itemsize} ({dtype})")
    return np.frombuffer(raw, dtype=kind)


def float_matrix(array: Any, rows: int, columns: int | None, what: str) -> NDArray[np.float32]:
    """``(rows, columns)`` float32 of an array of any shape with as many numbers. Raises ValueError."""
    array = np.asarray(array)
    if array.dtype.kind != "f":
        raise ValueError(f"{what} is of {array.dtype}, not of floating-point numbers")
    if rows < 1:
        raise ValueError(f"there are {rows} boxes")
    width, rest = divmod(array.size, rows)
    if rest or width == 0 or (columns is not None and width != columns):
        needed = f"{rows} x {columns}" if columns else f"a multiple of {rows}"
        raise ValueError(f"{what} has {array.size} numbers where {rows} boxes need {needed}")
    if array.ndim > 1 and array.shape != (rows, width):
        raise ValueError(f"{what} has shape {array.shape}, not ({rows}, {width})")
    return np.asarray(array.reshape(rows, width), dtype=np.float32)


def flat_field(array: Any, rows: int, name: str) -> NDArray[Any]:
    """``(rows,)`` int32 for ids, float32 for scores. Raises ValueError."""
    array = np.asarray(array)
    ids = name.endswith("ids")
    if array.size != rows or array.dtype.kind not in ("iu" if ids else "f"):
        raise ValueError(f"{name} has {array.size} values of {array.dtype} for {rows} boxes")
    if ids and array.size and int(array.max()) > np.iinfo(np.int32).max:
        raise ValueError(f"{name} holds an index beyond 32 bits")
    return np.asarray(array.reshape(rows), dtype=np.int32 if ids else np.float32)


def single_number(value: Any) -> Any:
    """The number that an array of one holds; anything else as it is."""
    return value.item() if isinstance(value, np.ndarray | np.generic) and np.size(value) == 1 else value


def whole_number(value: Any, what: str) -> int:
    """A non-negative whole number written in any usual way. Raises ValueError."""
    text = value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)
    if not text.strip().isdecimal() or len(text) > 12:
        raise ValueError(f"{what} is '{text[:40]}', not a whole number")
    return int(text)


def demand(names: Collection[str], needed: tuple[str, ...], path: Path) -> None:
    """Raise DataError, with what is there, if an array that is needed is not."""
    missing = [name for name in needed if name not in names]
    if missing:
        listed = ", ".join(list(names)[:12]) or "nothing"
        raise DataError(
            f"lacks '{missing[0]}' (it has {listed})", path=path, hint="Is it of another format? See --format"
        )


def too_large(size: int, path: str | os.PathLike[str], row: int | str | None = None) -> None:
    """Raise DataError if an image, or an array that is read as a whole, has more than :data:`MAX_RECORD_BYTES`."""
    if size > MAX_RECORD_BYTES:
        raise DataError(
            f"has {size / 1e6:,.0f} MB, more than the {MAX_RECORD_BYTES / 1e6:,.0f} MB that one image may take",
            path=path,
            row=row,
            hint="Split it, or get the file again",
        )


def unreadable(path: str | os.PathLike[str], error: OSError) -> DataError:
    """The error for a file that cannot be read."""
    if isinstance(error, FileNotFoundError):
        return MissingFileError("there is no such file", path=path)
    return DataError(f"cannot be read ({error.strerror or error})", path=path, hint="Check its permissions")

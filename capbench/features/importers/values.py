"""Common parts of the importers: an image with its place in a file, and checks of single values."""

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
    "FieldError",
    "ImportedImage",
    "base64_array",
    "demand",
    "flat_field",
    "float_matrix",
    "invalid_field",
    "single_number",
    "too_large",
    "unreadable",
    "whole_number",
]

MAX_RECORD_BYTES = 256_000_000
"""Maximum size of one image, and of an array that is read as a whole: more than 30,000 regions of 2,048 numbers."""


@dataclass(frozen=True, eq=False)
class ImportedImage:
    """One image of an imported file.

    Attributes:
        regions: its regions, not checked yet.
        path: the file.
        row: its place in the file, for error messages.
    """

    regions: RegionFeatures
    path: Path
    row: int | str | None = None


class FieldError(ValueError):
    """A field of an image with an invalid value; :func:`invalid_field` adds the place in the file.

    Args:
        field: name of the array or number.
        problem: the problem, a predicate of the field.
        code: one of :data:`capbench.core.errors.ERROR_CODES`.
        hint: the remedy; None for the importer's.
    """

    def __init__(self, field: str, problem: str, code: str, hint: str | None = None) -> None:
        super().__init__(f"{field} {problem}")
        self.field = field
        self.code = code
        self.hint = hint


def invalid_field(
    error: ValueError | TypeError, path: Path, row: int | str | None = None, hint: str | None = None
) -> DataError:
    """The error for an invalid field, with its place in a file."""
    if isinstance(error, FieldError):
        return DataError(str(error), code=error.code, value=error.field, path=path, row=row, hint=error.hint or hint)
    return DataError(str(error), code="wrong-value", path=path, row=row, hint=hint)


def base64_array(text: bytes | str, dtype: str, field: str) -> NDArray[Any]:
    """Decode base64 of little-endian numbers. Raises FieldError."""
    try:
        raw = binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError) as error:
        raise FieldError(field, f"is not base64 ({str(error).lower()})", "wrong-format") from None
    kind = np.dtype(dtype).newbyteorder("<")
    if len(raw) % kind.itemsize:
        raise FieldError(field, f"has {len(raw)} bytes, not a multiple of {kind.itemsize} ({dtype})", "wrong-shape")
    return np.frombuffer(raw, dtype=kind)


def float_matrix(array: Any, rows: int, columns: int | None, field: str) -> NDArray[np.float32]:
    """``(rows, columns)`` float32 of an array of any shape with the same number of values. Raises FieldError."""
    array = np.asarray(array)
    if array.dtype.kind != "f":
        raise FieldError(field, f"is of {array.dtype}, not of floating-point numbers", "wrong-type")
    if rows < 1:
        raise FieldError("num_boxes", f"is {rows}, but an image requires at least one box", "out-of-range")
    width, rest = divmod(array.size, rows)
    if rest or width == 0 or (columns is not None and width != columns):
        expected = f"{rows} x {columns}" if columns else f"a multiple of {rows}"
        raise FieldError(field, f"has {array.size} numbers for {rows} boxes, not {expected}", "wrong-shape")
    if array.ndim > 1 and array.shape != (rows, width):
        raise FieldError(field, f"has shape {array.shape}, not ({rows}, {width})", "wrong-shape")
    return np.asarray(array.reshape(rows, width), dtype=np.float32)


def flat_field(array: Any, rows: int, name: str) -> NDArray[Any]:
    """``(rows,)`` int32 for ids, float32 for scores. Raises FieldError."""
    array = np.asarray(array)
    ids = name.endswith("ids")
    if array.dtype.kind not in ("iu" if ids else "f"):
        raise FieldError(name, f"is of {array.dtype}, not of {'integers' if ids else 'floats'}", "wrong-type")
    if array.size != rows:
        raise FieldError(name, f"has {array.size} values for {rows} boxes", "wrong-shape")
    if ids and array.size and int(array.max()) > np.iinfo(np.int32).max:
        raise FieldError(name, "contains an index above 32 bits", "out-of-range")
    return np.asarray(array.reshape(rows), dtype=np.int32 if ids else np.float32)


def single_number(value: Any) -> Any:
    """The number in an array of one element; any other value unchanged."""
    return value.item() if isinstance(value, np.ndarray | np.generic) and np.size(value) == 1 else value


def whole_number(value: Any, field: str) -> int:
    """A non-negative integer in any usual notation. Raises FieldError."""
    text = value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)
    if not text.strip().isdecimal() or len(text) > 12:
        raise FieldError(field, f"is '{text[:40]}', not a whole number", "wrong-value")
    return int(text)


def demand(names: Collection[str], needed: tuple[str, ...], path: Path) -> None:
    """Raise DataError, with the present names, if a required array is missing."""
    missing = [name for name in needed if name not in names]
    if missing:
        listed = ", ".join(list(names)[:12]) or "nothing"
        raise DataError(
            f"has no '{missing[0]}' (it has {listed})",
            code="missing-key",
            value=missing[0],
            path=path,
            hint="If it has another format, select that with --format",
        )


def too_large(size: int, path: str | os.PathLike[str], row: int | str | None = None) -> None:
    """Raise DataError if an image, or an array that is read as a whole, has more than :data:`MAX_RECORD_BYTES`."""
    if size > MAX_RECORD_BYTES:
        raise DataError(
            f"has {size / 1e6:,.0f} MB, more than the maximum of {MAX_RECORD_BYTES / 1e6:,.0f} MB for one image",
            code="too-large",
            path=path,
            row=row,
            hint="Split it, or get the file again",
        )


def unreadable(path: str | os.PathLike[str], error: OSError) -> DataError:
    """The error for a file that cannot be read."""
    if isinstance(error, FileNotFoundError):
        return MissingFileError("there is no such file", path=path)
    return DataError(
        f"cannot be read ({error.strerror or error})", code="unreadable", path=path, hint="Check its permissions"
    )

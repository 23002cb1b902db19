"""LMDB databases of ViLBERT: a pickled dictionary under each image id, and the list of ids under ``keys``."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from capbench import files
from capbench.errors import DataError, ToolError
from capbench.features.importers.values import ImportedImage, too_large, unreadable
from capbench.features.importers.vilbert import parse_vilbert
from capbench.installing import install_command
from capbench.safe_pickle import load_pickle

__all__ = ["read_lmdb"]

# The meta page: magic number, version, address and size of the map, two trees of which the first keeps the page's
# size, last page, transaction. Two such pages begin a file; the later transaction's holds.
_META = struct.Struct("<16xII16xI92xQQ")
_MAGIC = 0xBEEFC0DE


def read_lmdb(path: Path, *, probabilities: bool = False) -> Iterator[ImportedImage]:
    """All images of a database (a folder with ``data.mdb``, or one file); pickles through a restricted unpickler.

    Args:
        path: the folder or file.
        probabilities: keep ``cls_prob`` as it is (:func:`~capbench.features.importers.vilbert.parse_vilbert`).

    Raises:
        ToolError: the package ``lmdb`` is not installed.
        DataError: it is no LMDB database, is cut off, or a record cannot be read or lacks probabilities that shall be
            kept; its key is named.
    """
    try:
        import lmdb
    except ImportError as error:
        raise ToolError(
            "reading LMDB needs the package 'lmdb'", path=path, hint=f"Install it with {install_command('lmdb')}"
        ) from error
    _check_whole(path / "data.mdb" if path.is_dir() else path)
    try:
        base = lmdb.open(str(path), subdir=path.is_dir(), readonly=True, lock=False, readahead=False, create=False)
    except lmdb.Error as error:
        raise DataError(f"is no LMDB database ({error})", path=path, hint="Get it again") from error
    try:
        with base, base.begin(buffers=False) as transaction:
            for key, value in transaction.cursor():
                if key == b"keys":
                    continue
                name = key.decode("utf-8", "replace")
                place = f"key {name[:60]!r}"  # which may hold anything, a line end too
                too_large(len(value), path, place)
                record = load_pickle(bytes(value), name=f"{path}, {place}")
                regions = parse_vilbert(record, path, place, default_id=name, probabilities=probabilities)
                yield ImportedImage(regions, path, place)
    except lmdb.Error as error:
        raise DataError(f"cannot be read as LMDB ({error})", path=path, hint="Get it again") from error


def _check_whole(file: Path) -> None:
    """Raise DataError if the file ends before its last page: LMDB maps files, and the system kills who reads beyond."""
    files.check_readable(file)
    try:
        size = file.stat().st_size
        with open(file, "rb") as stream:
            magic, _, page_bytes, last_page, transaction = _META.unpack(stream.read(_META.size))
            if magic != _MAGIC:
                return  # something else, as LMDB itself will say
            stream.seek(page_bytes)
            magic, _, _, second_last_page, second_transaction = _META.unpack(stream.read(_META.size))
    except OSError as error:
        raise unreadable(file, error) from error
    except struct.error:  # too short for both pages
        raise DataError("is no LMDB database (it is cut off)", path=file, hint="Get it again") from None
    pages = 1 + (second_last_page if magic == _MAGIC and second_transaction > transaction else last_page)
    if pages * page_bytes > size:
        raise DataError(f"is cut off: it has {size:,} of {pages * page_bytes:,} bytes", path=file, hint="Get it again")

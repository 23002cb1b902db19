"""LMDB databases of ViLBERT: a pickled dictionary under each image id, and the list of ids under ``keys``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from capbench.errors import DataError, ToolError
from capbench.features.importers.values import ImportedImage, too_large
from capbench.features.importers.vilbert import parse_vilbert
from capbench.safe_pickle import load_pickle

__all__ = ["read_lmdb"]


def read_lmdb(path: Path) -> Iterator[ImportedImage]:
    """All images of a database (a folder with ``data.mdb``, or one file); pickles through a restricted unpickler.

    Raises:
        ToolError: the package ``lmdb`` is not installed.
        DataError: it is no LMDB database, or a record cannot be read; its key is named.
    """
    try:
        import lmdb
    except ImportError as error:
        raise ToolError(
            "reading LMDB needs the package 'lmdb'", path=path, hint="Install it with: pip install 'capbench[lmdb]'"
        ) from error
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
                place = f"key '{name[:60]}'"
                too_large(len(value), path, place)
                record = load_pickle(bytes(value), name=f"{path}, {place}")
                yield ImportedImage(parse_vilbert(record, path, place, default_id=name), path, place)
    except lmdb.Error as error:
        raise DataError(f"cannot be read as LMDB ({error})", path=path, hint="Get it again") from error

"""What networks have encoded, kept on disk in the cache folder, so that a later run need not encode it again.

Arrays of float32 stand there as they are, so that scores are the same bytes wherever an array comes from. Which network
made them, and everything else that decides them, is in the name of their space; a key says what was encoded. One file
holds the arrays of all networks, up to a limit (:mod:`capbench.bounded_cache`).
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
from collections.abc import Mapping, Sequence
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from capbench.bounded_cache import BoundedCache

__all__ = ["DEFAULT_MB", "StoredEncodings", "key_of", "place_of", "space_of"]

DEFAULT_MB = 2048
"""Megabytes (of 2**20 bytes) that are kept, for all networks together."""

_FILE = "encodings"
_TYPE = np.dtype("<f4")


class StoredEncodings:
    """Arrays by space and key. To be closed, or used as a context manager; it must not be shared by processes.

    Args:
        limit_mb: what the file may hold; 0 keeps nothing and opens no file.
    """

    def __init__(self, limit_mb: int = DEFAULT_MB) -> None:
        self._cache = BoundedCache(_FILE, limit_mb << 20)

    def get(self, space: str, shapes: Mapping[bytes, tuple[int, ...]]) -> dict[bytes, NDArray[np.float32]]:
        """Those arrays that are there.

        Args:
            space: from :func:`space_of`.
            shapes: of what is asked for, by key.
        """
        arrays = {}
        for key, value in self._cache.get(space, list(shapes)).items():
            if len(value) == int(np.prod(shapes[key])) * _TYPE.itemsize:
                arrays[key] = np.frombuffer(value, _TYPE).reshape(shapes[key]).astype(np.float32, copy=False)
        return arrays

    def put(self, space: str, arrays: Mapping[bytes, NDArray[np.float32]]) -> None:
        """Keep arrays, as far as there is room."""
        self._cache.put(space, [(key, array.astype(_TYPE).tobytes()) for key, array in arrays.items()])

    def close(self) -> None:
        """Close the file."""
        self._cache.close()

    def __enter__(self) -> StoredEncodings:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def space_of(network: str, packages: Sequence[str], **facts: object) -> str:
    """The name of a space.

    Args:
        network: its kind, and the version of the code that encodes.
        packages: libraries whose versions decide arrays, too.
        facts: everything else that does: weights, layer, precision, :func:`place_of`.
    """
    versions = {name: _version(name) for name in packages}
    return "|".join((network, *(f"{name}:{value}" for name, value in {**facts, **versions}.items())))


def place_of(device: str) -> str:
    """Where a network runs, as far as it decides the last digits: a CPU rounds in another order with other threads."""
    import torch

    return f"{device}-{torch.get_num_threads()}-threads" if device == "cpu" else device


def key_of(*parts: bytes) -> bytes:
    """A key of 16 bytes of what decides an array within its space."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


@functools.cache
def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"

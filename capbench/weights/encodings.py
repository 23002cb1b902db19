"""Encodings of captions and images by networks, cached in memory and on disk.

:class:`Encodings` caches arrays in memory, up to one limit for all networks. :class:`StoredEncodings` caches float32
arrays in one file of the cache folder, unchanged, so that scores do not depend on the source of an array. The name of a
space contains the network and everything else that determines its arrays; the key identifies the encoded text or image.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from capbench.core.cache import BoundedCache
from capbench.core.version import code_digest

LIMIT_BYTES = 768 << 20

Key = tuple[int, ...]
"""A text as word numbers."""

_MAX_TEXTS = 128  # of a batch
_MAX_WORDS = 128 * 128  # of a batch
_STEP = 4
_MIN_TOKENS = 24
_Text = TypeVar("_Text")


class _Store:
    """Arrays by key up to a total size; evicts the least recently used ones."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.bytes = 0
        self.arrays: OrderedDict[tuple[object, object], NDArray[Any]] = OrderedDict()


class Encodings:
    """In-memory cache of one network's arrays of captions or images; all networks share the limit.

    Args:
        store: the shared store of several networks; by default that of the process.
    """

    def __init__(self, store: _Store | None = None) -> None:
        self._store = store or _PROCESS
        self._owner = object()  # identifies the network; unique as long as a key refers to it

    def get(self, key: object) -> NDArray[Any] | None:
        """The array, or None if it was not stored or is evicted."""
        array = self._store.arrays.get((self._owner, key))
        if array is not None:
            self._store.arrays.move_to_end((self._owner, key))
        return array

    def put(self, key: object, array: NDArray[Any]) -> None:
        """Store an array. It should own its memory, since a view keeps its whole base alive."""
        store, place = self._store, (self._owner, key)
        if place not in store.arrays:
            store.bytes += array.nbytes
            store.arrays[place] = array
        while store.bytes > store.limit and len(store.arrays) > 1:
            store.bytes -= store.arrays.popitem(last=False)[1].nbytes


_PROCESS = _Store(LIMIT_BYTES)


def encode_by_length(
    keys: Iterable[Key],
    kept: Encodings,
    encode: Callable[[Sequence[Key]], NDArray[Any]],
    filling: int,
    place: Callable[[Key], object] = lambda key: key,
) -> tuple[dict[Key, NDArray[Any]], int]:
    """Encode texts with a network that processes texts of equal length together, using cached encodings.

    Texts of equal length form batches, padded to a multiple of four. In such batches the encoding of a text was
    observed to be bitwise independent of the other texts; in other batches it differs in the eighth digit, since other
    kernels compute the sums.

    Args:
        keys: texts, none of them empty.
        kept: cache of the encodings.
        encode: texts of equal length → arrays (texts, …).
        filling: the word number for padding.
        place: text → its key in the cache.

    Returns:
        The encodings, and the number of texts that were encoded.
    """
    vectors: dict[Key, NDArray[Any]] = {}
    by_length: dict[int, list[Key]] = {}
    for key in dict.fromkeys(keys):
        known = kept.get(place(key))
        if known is not None:
            vectors[key] = known
        else:
            by_length.setdefault(len(key), []).append(key)
    for length, texts in sorted(by_length.items()):
        # Smaller batches of long texts, since memory grows with the number of words.
        number = min(_MAX_TEXTS, max(_STEP, _MAX_WORDS // length // _STEP * _STEP))
        for start in range(0, len(texts), number):
            batch = texts[start : start + number]
            rows = [*batch, *[(filling,) * length] * (-len(batch) % _STEP)]
            for key, encoded in zip(batch, encode(rows), strict=False):
                vectors[key] = encoded.copy()  # a view would keep the whole batch alive
                kept.put(place(key), vectors[key])
    return vectors, sum(map(len, by_length.values()))


def filled(batch: Sequence[_Text], length: int) -> list[_Text]:
    """A batch of texts of equal length for a transformer, with its last text repeated if it has few tokens.

    In batches of 24 tokens or more the encoding of a text was observed to be bitwise independent of the other texts; in
    smaller ones it differs in the seventh digit, since other kernels compute the sums.
    """
    return [*batch, *[batch[-1]] * (-(-_MIN_TOKENS // length) - len(batch))]


# Encodings on disk.

DEFAULT_MB = 2048
"""Maximum size of the file in megabytes (2**20 bytes), for all networks together."""

_FILE = "encodings"
_TYPE = np.dtype("<f4")


class StoredEncodings:
    """On-disk cache of arrays by space and key. A context manager; an instance must not be shared by processes.

    Args:
        limit_mb: maximum size of the content; 0 disables the cache and opens no file.
    """

    def __init__(self, limit_mb: int = DEFAULT_MB) -> None:
        self._cache = BoundedCache(_FILE, limit_mb << 20)

    def get(self, space: str, shapes: Mapping[bytes, tuple[int, ...]]) -> dict[bytes, NDArray[np.float32]]:
        """The cached arrays among the requested ones.

        Args:
            space: from :func:`space_of`.
            shapes: key → shape of the requested arrays.
        """
        arrays = {}
        for key, value in self._cache.get(space, list(shapes)).items():
            if len(value) == int(np.prod(shapes[key])) * _TYPE.itemsize:
                arrays[key] = np.frombuffer(value, _TYPE).reshape(shapes[key]).astype(np.float32, copy=False)
        return arrays

    def put(self, space: str, arrays: Mapping[bytes, NDArray[np.float32]]) -> None:
        """Store arrays, as long as there is space."""
        self._cache.put(space, [(key, array.astype(_TYPE).tobytes()) for key, array in arrays.items()])

    def close(self) -> None:
        """Close the file."""
        self._cache.close()

    def __enter__(self) -> StoredEncodings:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def space_of(module: str, network: str, packages: Sequence[str], **facts: object) -> str:
    """The name of a space.

    Args:
        module: the module that encodes.
        network: its kind, and the version of the code that encodes.
        packages: libraries whose versions affect the arrays.
        facts: everything else that affects them: weights, layer, precision, :func:`place_of`.
    """
    versions = {name: _version(name) for name in packages}
    code = code_digest(module)
    parts = {**facts, **versions, **({"code": code} if code else {})}
    return "|".join((network, *(f"{name}:{value}" for name, value in parts.items())))


def place_of(device: str) -> str:
    """The device, and for a CPU the number of threads, which affects the last digits."""
    import torch

    return f"{device}-{torch.get_num_threads()}-threads" if device == "cpu" else device


def key_of(*parts: bytes) -> bytes:
    """A key of 16 bytes from everything that determines an array within its space."""
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

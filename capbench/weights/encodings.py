"""What networks have encoded, kept in memory up to one limit for all of them."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from capbench.core.cache import BoundedCache

__all__ = [
    "DEFAULT_MB",
    "LIMIT_BYTES",
    "Encodings",
    "Key",
    "StoredEncodings",
    "encode_by_length",
    "filled",
    "key_of",
    "place_of",
    "space_of",
]


LIMIT_BYTES = 768 << 20

Key = tuple[int, ...]
"""A text as word numbers."""

_TEXTS_AT_ONCE = 128
_WORDS_AT_ONCE = 128 * 128
_STEP = 4
_FEWEST_TOKENS = 24
_Text = TypeVar("_Text")


class _Kept:
    """Arrays by key; the longest unused are thrown away first once all take more than the limit."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.bytes = 0
        self.arrays: OrderedDict[tuple[object, object], NDArray[Any]] = OrderedDict()


class Encodings:
    """Arrays that one network made of captions or images; all networks share the limit.

    Args:
        kept: where arrays of several networks are kept together; by default the process's own place.
    """

    def __init__(self, kept: _Kept | None = None) -> None:
        self._kept = kept or _PROCESS
        self._owner = object()  # keeps networks apart, and cannot be another one's while a key holds it

    def get(self, key: object) -> NDArray[Any] | None:
        """The array, or None if it was never put or is thrown away."""
        array = self._kept.arrays.get((self._owner, key))
        if array is not None:
            self._kept.arrays.move_to_end((self._owner, key))
        return array

    def put(self, key: object, array: NDArray[Any]) -> None:
        """Keep an array. It should own its memory: a view keeps all that it looks at."""
        kept, place = self._kept, (self._owner, key)
        if place not in kept.arrays:
            kept.bytes += array.nbytes
            kept.arrays[place] = array
        while kept.bytes > kept.limit and len(kept.arrays) > 1:
            kept.bytes -= kept.arrays.popitem(last=False)[1].nbytes


_PROCESS = _Kept(LIMIT_BYTES)


def encode_by_length(
    keys: Iterable[Key],
    kept: Encodings,
    encode: Callable[[Sequence[Key]], NDArray[Any]],
    filling: int,
    place: Callable[[Key], object] = lambda key: key,
) -> tuple[dict[Key, NDArray[Any]], int]:
    """Encode texts by a network that reads texts of one length together; what was encoded before is taken from memory.

    Each text goes with others of its length, in batches of a multiple of four that are filled up. Such batches were
    seen to give a text the same bits whatever stands beside it; others differ in the eighth digit, since other kernels
    do the sums.

    Args:
        keys: texts, none of them empty.
        kept: where encodings are kept.
        encode: texts of one length → arrays (texts, …).
        filling: the word that fills batches up.
        place: under what a text's encoding is kept.

    Returns:
        The encodings, and how many texts were encoded.
    """
    vectors: dict[Key, NDArray[Any]] = {}
    by_length: dict[int, list[Key]] = {}
    for key in dict.fromkeys(keys):
        known = kept.get(place(key))
        if known is not None:
            vectors[key] = known
        else:
            by_length.setdefault(len(key), []).append(key)
    for length, waiting in sorted(by_length.items()):
        # Fewer of long ones: what the network remembers of a batch grows with its words.
        number = min(_TEXTS_AT_ONCE, max(_STEP, _WORDS_AT_ONCE // length // _STEP * _STEP))
        for start in range(0, len(waiting), number):
            batch = waiting[start : start + number]
            rows = [*batch, *[(filling,) * length] * (-len(batch) % _STEP)]
            for key, encoded in zip(batch, encode(rows), strict=False):
                vectors[key] = encoded.copy()  # a view would keep the whole batch
                kept.put(place(key), vectors[key])
    return vectors, sum(map(len, by_length.values()))


def filled(batch: Sequence[_Text], length: int) -> list[_Text]:
    """A batch of texts of one length for a transformer, with its last one repeated if it has few tokens.

    Batches of 24 tokens and more were seen to give a text the same bits whatever stands beside it; others differ in the
    seventh digit, since other kernels do the sums.
    """
    return [*batch, *[batch[-1]] * (-(-_FEWEST_TOKENS // length) - len(batch))]


# What networks have encoded, kept on disk in the cache folder, so that a later run need not encode it again.
#
# Arrays of float32 stand there as they are, so that scores are the same bytes wherever an array comes from. Which
# network made them, and everything else that decides them, is in the name of their space; a key says what was encoded.
# One file holds the arrays of all networks, up to a limit (:mod:`capbench.core.cache`).

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

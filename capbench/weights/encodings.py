"""Encodings of captions and images by networks, cached in memory up to one limit for all networks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from numpy.typing import NDArray

LIMIT_BYTES = 768 << 20

Key = tuple[int, ...]
"""A text as word numbers."""

_MAX_TEXTS = 128  # of a batch
_MAX_WORDS = 128 * 128  # of a batch
_STEP = 4


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

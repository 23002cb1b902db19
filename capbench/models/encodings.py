"""What networks have encoded, kept in memory up to one limit for all of them."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from numpy.typing import NDArray

__all__ = ["LIMIT_BYTES", "Encodings", "shared"]

LIMIT_BYTES = 768 << 20


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


def shared(limit: int) -> _Kept:
    """A place of its own with another limit, for tests and benchmarks."""
    return _Kept(limit)

"""Encodings of captions and images by networks, cached in memory up to one limit for all networks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from numpy.typing import NDArray

LIMIT_BYTES = 768 << 20
K = TypeVar("K", bound=Any)

_arrays: OrderedDict[tuple[object, object], NDArray[Any]] = OrderedDict()


class Encodings:
    """One network's arrays of captions or images; the least recently used ones of all networks are evicted."""

    _bytes = 0  # of all networks

    def __init__(self) -> None:
        self._owner = object()  # identifies the network; unique as long as a key refers to it

    def get(self, key: object) -> NDArray[Any] | None:
        """The array, or None if it was not stored or is evicted."""
        array = _arrays.get((self._owner, key))
        if array is not None:
            _arrays.move_to_end((self._owner, key))
        return array

    def put(self, key: object, array: NDArray[Any]) -> None:
        """Store an array. It should own its memory, since a view keeps its whole base alive."""
        if (self._owner, key) not in _arrays:
            Encodings._bytes += array.nbytes
            _arrays[self._owner, key] = array
        while Encodings._bytes > LIMIT_BYTES and len(_arrays) > 1:
            Encodings._bytes -= _arrays.popitem(last=False)[1].nbytes

    def of(
        self,
        keys: Iterable[K],
        encode: Callable[[Sequence[K]], Iterable[NDArray[Any]]],  # the arrays of keys whose array is not stored
        batch: int,  # number of keys that are encoded at once, those of similar lengths together
        length: Callable[[K], int] = len,
    ) -> dict[K, NDArray[Any]]:
        """The arrays of keys, each computed once."""
        arrays: dict[K, Any] = {key: self.get(key) for key in dict.fromkeys(keys)}
        new = sorted((key for key, array in arrays.items() if array is None), key=lambda key: (length(key), key))
        for start in range(0, len(new), batch):
            some = new[start : start + batch]
            for key, array in zip(some, encode(some), strict=True):
                arrays[key] = array
                self.put(key, array)
        return arrays

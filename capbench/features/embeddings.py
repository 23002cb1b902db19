"""Vectors of texts and images in the layout of feature stores, so that each is computed once.

A vector stands under its key as the one region of an "image". The file's fingerprint says what computed it: vectors of
two fingerprints never lie in one file. What an interrupted run computed is kept in the journal beside the file
(:mod:`capbench.features.writing`), and the next run goes on behind it. Runs that want one file wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from capbench import files
from capbench.errors import FeatureError
from capbench.features.records import Fingerprint, RegionFeatures
from capbench.features.store import open_store
from capbench.features.writing import StoreWriter

__all__ = ["Embeddings"]

_WAIT_S = 24 * 3600.0  # for another run, which shows its own progress and may encode all images of a data set

Encode = Callable[[Sequence[str]], NDArray[np.float32]]
"""Keys → (keys, D) vectors."""


class Embeddings:
    """Vectors by key, in memory and, if there is a file, on disk.

    Args:
        path: the file; None keeps them in memory alone.
        fingerprint: of what computes them.

    Attributes:
        path: the file.
        fingerprint: of what computes them.
    """

    def __init__(self, path: Path | None, fingerprint: Fingerprint) -> None:
        self.path, self.fingerprint = path, fingerprint
        self._vectors: dict[str, NDArray[np.float32]] = {}

    def missing(self, keys: Iterable[str]) -> list[str]:
        """Those of some keys, each once, whose vectors must still be computed.

        Raises:
            FeatureError: the file is damaged, or holds what something else computed.
        """
        left = [key for key in dict.fromkeys(keys) if key not in self._vectors]
        if left and self.path is not None and self.path.exists():
            self._read(left)
            left = [key for key in left if key not in self._vectors]
        return left

    def take(self, keys: Sequence[str]) -> NDArray[np.float32]:
        """(keys, D) vectors, which are there. Raises KeyError otherwise."""
        return np.stack([self._vectors[key] for key in keys])

    def fill(
        self, keys: Iterable[str], encode: Encode, at_once: int, progress: Callable[[int], None] = lambda _: None
    ) -> None:
        """Compute what is missing, batch by batch; each batch is kept as soon as it is done.

        Args:
            keys: what is wanted; repeats are computed once.
            encode: computes vectors.
            at_once: keys that it gets at most.
            progress: called with numbers of keys done, those included that another run did meanwhile.

        Raises:
            FeatureError: as :meth:`missing`; or a vector is no number.
            UsageError: the file cannot be written.
            CapbenchError: what ``encode`` raises; what was done before is kept.
        """
        left = self.missing(keys)
        if not left:
            return
        if self.path is None:
            self._encode(left, encode, at_once, lambda _key, _vector: None, progress)
            return
        # A store's own lock is held for seconds only where another run holds it: this one is for the queue.
        with files.lock(Path(f"{self.path}.queue"), _WAIT_S):
            still = self.missing(left)
            progress(len(left) - len(still))
            with StoreWriter(self.path, self.fingerprint) as writer:

                def add(key: str, vector: NDArray[np.float32]) -> None:
                    writer.add(RegionFeatures(key, 0, 0, None, vector[None, :]))

                unfinished = [key for key in still if key not in writer]
                progress(len(still) - len(unfinished))
                if unfinished:
                    self._encode(unfinished, encode, at_once, add, progress)
                writer.finish().close()
            self._read(still)

    def _encode(
        self,
        keys: Sequence[str],
        encode: Encode,
        at_once: int,
        add: Callable[[str, NDArray[np.float32]], None],
        progress: Callable[[int], None],
    ) -> None:
        for start in range(0, len(keys), at_once):
            batch = keys[start : start + at_once]
            for key, vector in zip(batch, encode(batch), strict=True):
                kept = np.array(vector, dtype=np.float32)  # a view would keep the whole batch
                if not np.isfinite(kept).all():
                    raise FeatureError("an embedding is NaN or infinite", hint="Take precision=float32")
                add(key, kept)
                self._vectors[key] = kept
            progress(len(batch))

    def _read(self, keys: Iterable[str]) -> None:
        assert self.path is not None
        try:
            with open_store(self.path) as store:
                if store.fingerprint != self.fingerprint:
                    differences = self.fingerprint.differences(store.fingerprint)
                    raise FeatureError(f"holds other embeddings: {differences}", path=self.path)
                for key in sorted(keys):
                    if key in store:
                        self._vectors[key] = store[key].features[0].astype(np.float32)
        except FeatureError as error:
            raise FeatureError(
                error.message, path=error.path or self.path, hint="Remove the file: embeddings are then made again"
            ) from error

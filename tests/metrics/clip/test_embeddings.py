"""Vectors that are kept: once computed, resumed after an interruption, not mixed, and safe with two runs at once."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from capbench.core.errors import FeatureError
from capbench.features.records import Fingerprint
from capbench.features.store import open_store
from capbench.metrics.clip.metric import Embeddings
from tests.errors import raises

PRINT = Fingerprint("clip-texts", "0" * 64, "made up", "vectors")
KEYS = [f"key{n:03}" for n in range(50)]


def vector(key: str) -> NDArray[np.float32]:
    return np.array([int(key[3:]), 1, 2], dtype=np.float32)


class Encoder:
    def __init__(self, fail_after: int = 10**6) -> None:
        self.seen: list[str] = []
        self._left = fail_after

    def __call__(self, keys: Sequence[str]) -> NDArray[np.float32]:
        if len(self.seen) >= self._left:
            raise KeyboardInterrupt
        self.seen += keys
        return np.stack([vector(key) for key in keys])


@pytest.mark.parametrize("on_disk", [True, False])
def test_each_is_computed_once(tmp_path: Path, on_disk: bool) -> None:
    kept = Embeddings(tmp_path / "a" / "e.h5" if on_disk else None, PRINT)
    encode, done = Encoder(), [0]
    kept.fill([*KEYS[:20], *KEYS[:5]], encode, 8, lambda n: done.__setitem__(0, done[0] + n))
    kept.fill(KEYS[10:30], encode, 8)
    assert encode.seen == KEYS[:30]
    assert done == [20]
    np.testing.assert_array_equal(kept.take(["key007", "key029"]), [[7, 1, 2], [29, 1, 2]])
    if on_disk:
        fresh, silent = Embeddings(kept.path, PRINT), Encoder()
        assert fresh.missing(KEYS) == KEYS[30:]
        fresh.fill(KEYS[:30], silent, 8)
        assert silent.seen == []
        np.testing.assert_array_equal(fresh.take(KEYS[:30]), kept.take(KEYS[:30]))
        assert kept.path is not None
        assert open_store(kept.path).ids == KEYS[:30]


def test_an_interrupted_run_is_taken_up(tmp_path: Path) -> None:
    path = tmp_path / "e.h5"
    with pytest.raises(KeyboardInterrupt):
        Embeddings(path, PRINT).fill(KEYS, Encoder(fail_after=24), 8)
    assert not path.exists()
    encode, done = Encoder(), [0]
    kept = Embeddings(path, PRINT)
    kept.fill(KEYS, encode, 8, lambda n: done.__setitem__(0, done[0] + n))
    assert encode.seen == KEYS[24:]
    assert done == [50]
    np.testing.assert_array_equal(kept.take(KEYS), [vector(key) for key in KEYS])


def test_other_weights_never_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "e.h5"
    Embeddings(path, PRINT).fill(KEYS, Encoder(), 8)
    with raises(FeatureError, "wrong-features", path=path) as caught:
        Embeddings(path, replace(PRINT, weights_sha256="1" * 64)).missing(KEYS)
    assert "weights_sha256" in caught.value.message
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(FeatureError) as damaged:
        Embeddings(path, PRINT).missing(KEYS)
    assert (damaged.value.path, damaged.value.hint) == (str(path), caught.value.hint)


def test_vectors_that_are_not_finite_are_rejected(tmp_path: Path) -> None:
    with raises(FeatureError, "not-a-number", value="a"):
        Embeddings(None, PRINT).fill(["a"], lambda keys: np.full((1, 3), np.nan, dtype=np.float32), 8)


def _fill(path: Path, keys: list[str]) -> None:
    Embeddings(path, PRINT).fill(keys, Encoder(), 4)


def test_two_runs_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "e.h5"
    context = multiprocessing.get_context("fork")
    runs = [context.Process(target=_fill, args=(path, keys)) for keys in (KEYS[:35], KEYS[15:])]
    for run in runs:
        run.start()
    for run in runs:
        run.join(120)
    assert [run.exitcode for run in runs] == [0, 0]
    kept = Embeddings(path, PRINT)
    assert kept.missing(KEYS) == []
    np.testing.assert_array_equal(kept.take(KEYS), [vector(key) for key in KEYS])

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from capbench.training.captions import Pairs
from capbench.training.matching_task import batches
from capbench.training.prepare import Regions, pad


def _regions(n: int) -> Regions:
    class Source:
        shape = (n, 1, 2)
        dtype = np.dtype(np.float32)

        def read(self, images: object, into: NDArray[Any], places: object = None) -> None:
            into[:] = 1

    return Regions(Source(), 1)


def test_dropped_words_are_unknown_and_ends_are_never_dropped() -> None:
    captions = [[1, 10, 11, 12, 13, 2], [1, 14, 2]] * 50
    pairs = Pairs(("a",), ("x",) * 100, np.zeros(100, dtype=np.int64), Path())

    def made(rate: float, step: int) -> torch.Tensor:
        (batch,) = batches(
            [np.arange(100)], pairs, captions, _regions(1), word_dropout=rate, seed=1, first_step=step, pin=False
        )
        return batch.ids

    whole, dropped = made(0.0, 4), made(0.5, 4)
    assert torch.equal(whole, pad(captions)[0])
    changed = dropped != whole
    assert set(dropped[changed].tolist()) == {3}
    assert not changed[whole <= 2].any()  # <pad>, <start>, <end>
    assert 0.35 < changed.sum() / (whole > 2).sum() < 0.65
    assert torch.equal(dropped, made(0.5, 4))
    assert not torch.equal(dropped, made(0.5, 5))


def test_padding_stands_behind() -> None:
    ids, lengths = pad([[1, 5, 2], [1, 2]])
    assert ids.tolist() == [[1, 5, 2], [1, 2, 0]]
    assert lengths.tolist() == [3, 2]

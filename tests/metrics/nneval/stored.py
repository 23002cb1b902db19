from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capbench.metrics.nneval.network import SHAPES
from capbench.text.spice import scene_graph
from capbench.text.word_vectors import write_word2vec

WORDS = ("dog", "cat", "runs", "sits", "grass", "red", "ball", "man", "boat", "lake", "kite", "woman")


def without_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    def tuples(tokens: Sequence[str], **_: Any) -> Iterator[scene_graph.Tuples]:
        return (tuple((word,) for word in dict.fromkeys(caption.split())) for caption in tokens)

    monkeypatch.setattr(scene_graph, "tuples", tuples)
    monkeypatch.setattr(scene_graph, "missing", lambda tokens, **_: [])


def write_vectors(path: Path, seed: int = 1, dimension: int = 12) -> Path:
    matrix = np.random.default_rng(seed).normal(size=(len(WORDS), dimension)).astype(np.float32)
    write_word2vec(path, WORDS, matrix)
    return path


def write_weights(path: Path, seed: int = 1) -> Path:
    rng = np.random.default_rng(seed)
    arrays = {name: rng.normal(scale=0.3, size=shape).astype(np.float32) for name, shape in SHAPES.items()}
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path

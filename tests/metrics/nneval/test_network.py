from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from capbench.core.errors import ModelError
from capbench.metrics.nneval.network import INPUTS, SHAPES, read_nneval
from tests.errors import raises

Arrays = dict[str, NDArray[Any]]
RELEASED = "nneval/nneval_public_checkpoint156.npz"


def plain_forward(weights: Arrays, mapped: list[float]) -> float:
    def layer(inputs: list[float], matrix: NDArray[Any], bias: NDArray[Any]) -> list[float]:
        outputs = []
        for column in range(matrix.shape[1]):
            total = float(bias[column])
            for row, value in enumerate(inputs):
                total += value * float(matrix[row, column])
            outputs.append(total)
        return outputs

    first = [max(value, 0.0) for value in layer(mapped, weights["W1"], weights["b1"])]
    second = [max(value, 0.0) for value in layer(first, weights["W2"], weights["b2"])]
    machine, human = layer(second, weights["W_out"], weights["b_out"])
    return float(np.exp(human) / (np.exp(machine) + np.exp(human)))


def drawn(seed: int = 1) -> Arrays:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(scale=0.3, size=shape).astype(np.float32) for name, shape in SHAPES.items()}


def saved(path: Path, arrays: Arrays) -> Path:
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


SCORES = np.random.default_rng(2).random((700, len(INPUTS)))


def test_equals_a_plain_forward_pass(tmp_path: Path) -> None:
    weights = drawn()
    network = read_nneval(saved(tmp_path / "w.npz", weights))
    assert network.mapped == "unit"
    plain = [plain_forward(weights, [2 * value - 1 for value in row]) for row in SCORES[::100].tolist()]
    assert network.probabilities(SCORES)[::100] == pytest.approx(plain, abs=1e-12)
    minimum, maximum = np.linspace(0, 0.1, 8), np.linspace(0.5, 1.2, 8)
    network = read_nneval(saved(tmp_path / "w.npz", {**weights, "minimum": minimum, "maximum": maximum}))
    assert network.mapped == "min-max"
    plain = [
        plain_forward(weights, [2 * (x - a) / (b - a) - 1 for x, a, b in zip(row, minimum, maximum, strict=True)])
        for row in SCORES[::100].tolist()
    ]
    assert network.probabilities(SCORES)[::100] == pytest.approx(plain, abs=1e-12)
    assert network.probabilities(SCORES, "unit")[::100] != pytest.approx(plain, abs=1e-3)


@pytest.mark.real_data
def test_the_released_weights_equal_a_plain_forward_pass_and_rank_rightly(real_data: Path) -> None:
    network = read_nneval(real_data / RELEASED)
    with np.load(real_data / RELEASED) as stored:
        weights = {name: stored[name].astype(np.float64) for name in stored}
    plain = [plain_forward(weights, [2 * value - 1 for value in row]) for row in SCORES[::50].tolist()]
    assert network.probabilities(SCORES)[::50] == pytest.approx(plain, abs=1e-12)
    # METEOR, WMD, BLEU-1..4, SPICE, CIDEr/10 of a good, a middling and a wrong caption.
    good = [0.45, 0.75, 1.0, 0.9, 0.75, 0.6, 0.5, 0.25]
    middling = [0.25, 0.5, 0.7, 0.4, 0.2, 0.1, 0.2, 0.1]
    wrong = [0.08, 0.3, 0.2, 0.0, 0.0, 0.0, 0.0, 0.002]
    scores = network.probabilities(np.array([good, middling, wrong])).tolist()
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(
    ("arrays", "code", "value"),
    [
        ({"W1": drawn()["W1"], "b1": drawn()["b1"]}, "wrong-weights", "W2"),
        ({**drawn(), "W1/Adam": np.zeros((8, 72))}, "wrong-weights", "W1/Adam"),
        ({**drawn(), "W1": np.zeros((72, 8))}, "wrong-weights", "W1"),
        ({**drawn(), "b1": np.full(72, np.nan)}, "not-a-number", "b1"),
        ({**drawn(), "minimum": np.zeros(8)}, "wrong-weights", "maximum"),
    ],
)
def test_other_arrays_are_rejected(tmp_path: Path, arrays: Arrays, code: str, value: str) -> None:
    path = saved(tmp_path / "w.npz", arrays)
    with raises(ModelError, code, path=path, value=value):
        read_nneval(path)

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from capbench.core.errors import MetricError, ModelError
from capbench.core.records import Item, ScoreColumn, ScoreTable
from capbench.core.training_record import training_overlap
from capbench.metrics.metric_request import MetricRequest
from capbench.metrics.needs import Resources
from capbench.metrics.nneval.network import INPUTS, SHAPES, read_nneval
from capbench.metrics.requests import resolve_metrics
from capbench.metrics.scoring import score
from tests.errors import raises
from tests.metrics.nneval.stored import without_parser, write_vectors, write_weights

CAPTIONS = {
    "1": ["a dog runs on the grass", "the dog sits on grass", "a red ball and a dog"],
    "2": ["a man in a boat", "a boat on the lake", "a woman sits in a boat on a lake"],
}
ITEMS = [
    Item(image, text, tuple(CAPTIONS[image]))
    for image, text in [
        ("1", "a dog runs"),
        ("1", "a cat sits on a lake"),
        ("2", "a man sits in a boat"),
        ("2", "a red kite"),
        ("2", "zebra"),
    ]
]


def old_mark(image: str) -> str:
    return hashlib.blake2b(image.encode(), digest_size=5).hexdigest()


@pytest.fixture
def resources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Resources:
    monkeypatch.setenv("CAPBENCH_CACHE", str(tmp_path / "cache"))
    without_parser(monkeypatch)
    (tmp_path / "df.json").write_text(json.dumps({f"{image}.jpg": texts for image, texts in CAPTIONS.items()}))
    write_vectors(tmp_path / "v.bin")
    return Resources(models={"nneval": str(write_weights(tmp_path / "w.npz"))})


def requests(tmp_path: Path, *names: str, **options: object) -> tuple[MetricRequest, ...]:
    chosen = {"vectors": str(tmp_path / "v.bin"), "df": str(tmp_path / "df.json")}
    by_metric: dict[str, dict[str, object]] = {
        "nneval": {**chosen, **options},
        "wmd": {"vectors": chosen["vectors"]},
        "cider": {"df": chosen["df"]},
    }
    asked = ("nneval", *names)
    return resolve_metrics(asked, {name: values for name, values in by_metric.items() if name in asked})


def scored(tmp_path: Path, resources: Resources, *names: str, **options: object) -> ScoreTable:
    return score(ITEMS, requests(tmp_path, *names, **options), resources, dataset="mine", cache=False)


def test_it_is_the_network_over_the_columns_of_other_metrics(tmp_path: Path, resources: Resources) -> None:
    others = ("meteor", "wmd", "bleu", "spice", "cider")
    table = scored(tmp_path, resources, *others)
    of_column = {key.column: values for key, values in table.values.items()}
    columns = [of_column[name] / 10 if name == "cider" else of_column[name] for name in INPUTS]
    network = read_nneval(tmp_path / "w.npz")
    assert table.values[ScoreColumn("nneval", "nneval")] == pytest.approx(
        network.probabilities(np.column_stack(columns)), abs=0
    )
    assert np.ptp(of_column["nneval"]) > 0


def test_min_max_needs_the_range_of_the_training(tmp_path: Path, resources: Resources) -> None:
    with raises(MetricError, "missing-key", path=tmp_path / "w.npz", value="min-max"):
        scored(tmp_path, resources, mapping="min-max")
    with np.load(tmp_path / "w.npz") as stored:
        arrays = {name: stored[name] for name in SHAPES}
    unit = scored(tmp_path, resources).values[ScoreColumn("nneval", "nneval")]
    np.savez(tmp_path / "w.npz", **arrays, minimum=np.zeros(8), maximum=np.ones(8))
    trained = scored(tmp_path, resources)
    # The range from 0 to 1 is what 2x - 1 takes.
    assert trained.values[ScoreColumn("nneval", "nneval")] == pytest.approx(unit, abs=1e-12)
    assert trained.signatures["nneval"].endswith("|mapping:min-max")
    np.savez(tmp_path / "w.npz", **arrays, minimum=np.zeros(8), maximum=np.full(8, 0.5))
    assert scored(tmp_path, resources).values[ScoreColumn("nneval", "nneval")] != pytest.approx(unit, abs=1e-3)
    again = scored(tmp_path, resources, mapping="unit")
    assert again.values[ScoreColumn("nneval", "nneval")] == pytest.approx(unit, abs=0)


def test_trained_weights_reject_other_word_vectors_and_know_their_images(tmp_path: Path, resources: Resources) -> None:
    torch = pytest.importorskip("torch")
    from capbench.metrics.nneval.network import write_nneval

    with np.load(tmp_path / "w.npz") as stored:
        tensors = {name: torch.from_numpy(stored[name]) for name in SHAPES}
    facts = {
        "word_vectors": "ab" * 32,
        "about": "were trained on 12 captions",
        "chosen_by": "mine:1/all/tau-b",
        "images": {"trained": [old_mark("1")], "chosen": [old_mark("2")]},  # as earlier versions wrote it
    }
    write_nneval(tmp_path / "m.safetensors", tensors, np.zeros(8), np.ones(8), facts)
    trained = Resources(model=str(tmp_path / "m.safetensors"))
    with raises(MetricError, "mismatch", path=tmp_path / "m.safetensors") as caught:
        scored(tmp_path, trained)
    assert "abababab" in caught.value.message
    table = scored(tmp_path, trained, any_vectors=True)
    assert table.cautions["nneval"][1:] == ("weights were trained on 12 captions",)
    items = [replace(item, image="2_0123456789") if item.image == "2" else item for item in ITEMS]
    overlap = training_overlap("nneval", table.trained_on["nneval"], items)
    assert (overlap.photographs, overlap.trained, overlap.selected, overlap.has_read) == (2, 1, 1, True)
    assert overlap.selected_by == "judgements (mine:1/all/tau-b)"
    assert (overlap.files, overlap.unrecorded) == (("m.safetensors", "v.bin"), ("v.bin",))


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

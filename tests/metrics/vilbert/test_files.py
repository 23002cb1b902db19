from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from capbench.core.errors import ModelError
from capbench.metrics.vilbert.encode import ImageRows, states
from capbench.metrics.vilbert.files import load_vilbert, save_vilbert
from capbench.metrics.vilbert.network import Vilbert, VilbertOptions
from capbench.text.word_pieces import WordPieces
from tests.errors import raises
from tests.metrics.vilbert.plain import TINY, arrays, forward, random_state

pytestmark = pytest.mark.usefixtures("one_thread")

PIECES = WordPieces(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(55))))
SMALL = VilbertOptions(
    vocabulary_size=60, positions=40, tasks=0, text_dim=8, text_layers=2, text_heads=2, text_inner=8, feature_dim=4,
    image_dim=8, image_layers=1, image_heads=2, image_inner=8, common_dim=8, common_heads=2, connections=1,
    region_outputs=4,
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CAPBENCH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES.pieces) + "\n")
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    return tmp_path


def _released(folder: Path, state: dict[str, torch.Tensor] | None = None) -> Path:
    path = folder / "multi_task_model.bin"
    torch.save(random_state(TINY) if state is None else state, path)
    return path


@pytest.mark.parametrize("tasks", [20, 0])
def test_a_released_file_is_read(folder: Path, tasks: int) -> None:
    state = random_state(TINY, tasks)
    model = load_vilbert(_released(folder, state))
    assert model.is_released
    assert model.options.tasks == tasks
    assert model.network.heads is None
    assert not any(parameter.requires_grad for parameter in model.network.parameters())
    rng = np.random.default_rng(0)
    features, places = rng.normal(size=(4, 20)).astype(np.float32), rng.random((4, 5)).astype(np.float32)
    task = 7 if tasks else None
    expected = forward(arrays(state), TINY, [2, 9, 8, 3], features.astype(float), places.astype(float), task=task)
    actual = states(model.network, task, (3,), {"a": ImageRows(features, places)}, [("a", (2, 9, 8, 3))])
    np.testing.assert_allclose(actual["a", (2, 9, 8, 3)][0], expected["text"][-1], atol=1e-5)


def test_old_names_of_normalisations_and_wrappers_are_read(folder: Path) -> None:
    state = random_state(TINY)
    renamed = {
        "module." + name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): v
        for name, v in state.items()
    }
    model = load_vilbert(_released(folder, renamed))
    expected = state["bert.v_embeddings.LayerNorm.bias"]
    assert torch.equal(model.network.image_embedding.get_submodule("norm").get_parameter("bias"), expected)


def test_a_model_of_ones_own_holds_its_word_pieces(folder: Path) -> None:
    network = Vilbert(SMALL, torch.Generator().manual_seed(1), heads=True)
    path = folder / "model.safetensors"
    save_vilbert(path, network, PIECES, {"features": "0123456789abcdef", "epochs": 3})
    model = load_vilbert(path)
    assert model.pieces == PIECES
    assert model.options == SMALL
    assert model.features == "0123456789abcdef"
    assert not model.is_released
    assert model.network.heads is None
    read = model.network.state_dict()
    assert {name: tensor.tolist() for name, tensor in read.items()} == {
        name: tensor.tolist() for name, tensor in network.state_dict().items() if not name.startswith("heads.")
    }
    first = path.read_bytes()
    save_vilbert(path, network, PIECES, {"epochs": 3, "features": "0123456789abcdef"})
    assert path.read_bytes() == first


QUERY = "bert.encoder.layer.1.attention.self.query.weight"


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (None, "wrong-format"),
        ({"conv1.weight": torch.ones(3)}, "wrong-weights"),
        (lambda state: {QUERY: state[QUERY] * float("nan")}, "not-a-number"),
        (lambda _: {QUERY: None}, "missing-key"),
        (lambda _: {"bert.more.weight": torch.ones(3)}, "unknown-key"),
        (lambda state: {QUERY: state[QUERY][:5]}, "wrong-shape"),
    ],
)
def test_a_bad_file_is_rejected_in_one_line(folder: Path, state: Any, code: str) -> None:
    if callable(state):
        whole = random_state(TINY)
        whole.update(state(whole))
        state = {name: tensor for name, tensor in whole.items() if tensor is not None}
    path = _released(folder, state or {})
    if state is None:
        path.write_bytes(b"<!DOCTYPE html><p>404")
    with raises(ModelError, code, path=path) as error:
        load_vilbert(path)
    assert "\n" not in str(error.value)


def test_weights_without_a_vocabulary_name_the_missing_file(folder: Path) -> None:
    path = _released(folder)
    (folder / "vocab.txt").unlink()
    with raises(ModelError, "missing-file", path=path, value="vocab.txt"):
        load_vilbert(path)

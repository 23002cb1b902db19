from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from capbench.core.errors import FeatureError, ModelError
from capbench.features.store import open_store
from capbench.features.writing import StoreWriter
from capbench.metrics.vilbert import train as vilbert_train
from capbench.metrics.vilbert.encode import states
from capbench.metrics.vilbert.files import load_vilbert, save_vilbert
from capbench.metrics.vilbert.network import Vilbert, VilbertOptions
from capbench.metrics.vilbert.train import (
    IGNORED,
    Batch,
    VilbertTask,
    VilbertTraining,
    draw_trials,
    make_batch,
    mask_words,
    ordinary_pieces,
)
from capbench.text.word_pieces import WordPieces
from tests.errors import raises
from tests.metrics.vilbert.plain import TINY, arrays, forward, random_state
from tests.metrics.vilbert.world import settings
from tests.training.world import StopAfter, make_world

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
    actual = states(model.network, task, (3,), {"a": (features, places)}, [("a", (2, 9, 8, 3))])
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
    assert model.vocabulary == PIECES
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


FIFTY_WORDS = WordPieces(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(50))))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("world"), boxes=True)


def prepare(config: VilbertTraining) -> VilbertTask:
    return VilbertTask(config, None, torch.device("cpu"), StopAfter())


@pytest.fixture(scope="module")
def data(world: Path) -> VilbertTask:
    return prepare(settings(world))


def test_words_are_masked_in_the_published_shares() -> None:
    rng = np.random.default_rng(0)
    mask = FIFTY_WORDS.places["[MASK]"]
    ids = rng.integers(5, 55, (400, 40))
    ids[:, 0], ids[:, 30], ids[:, 31:] = (FIFTY_WORDS.places[name] for name in ("[CLS]", "[SEP]", "[PAD]"))
    masked, words = mask_words(ids, ordinary_pieces(FIFTY_WORDS), mask, rng)
    chosen = words != IGNORED
    assert (words[chosen] == ids[chosen]).all()
    assert (masked[~chosen] == ids[~chosen]).all()
    assert not chosen[:, [0, *range(30, 40)]].any()
    assert chosen[:, 1:30].mean() == pytest.approx(0.15, abs=0.01)
    assert (masked[chosen] == mask).mean() == pytest.approx(0.8, abs=0.03)
    other = chosen & (masked != mask) & (masked != ids)
    assert other[chosen].mean() == pytest.approx(0.1 * 49 / 50, abs=0.025)


def test_only_words_count_in_losses_and_accuracies(data: VilbertTask) -> None:
    kinds = [data._pieces.places[name] for name in ("[CLS]", "[MASK]", "[SEP]", "[PAD]")]
    words = data._split.captions[0][1:-1]
    counted = data._counted(torch.tensor([*kinds, *words]))
    assert counted.tolist() == [False] * 4 + [True] * len(words)


def _all(data: VilbertTask) -> list[Batch]:
    split, ordinary = data._split, ordinary_pieces(data._pieces)
    orders = [np.arange(len(split.captions))[start : start + 8] for start in range(0, len(split.captions), 8)]
    return [make_batch(split, ordinary, chosen, np.random.default_rng(step)) for step, chosen in enumerate(orders)]


def test_the_second_caption_is_another_one_of_the_same_image(
    data: VilbertTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vilbert_train, "_SELECTED", 0.0)
    split, first = data._split, 0
    for batch in _all(data):
        half = len(batch.image_of)
        for row in range(half):
            own = split.captions[first + row]
            ids = batch.ids[half + row][batch.present[half + row]].tolist()
            of_image = [split.captions[k] for k in np.flatnonzero(split.pairs.image_of == batch.image_of[row].item())]
            assert ids in of_image
            assert ids != own or of_image.count(own) > 1
            assert batch.ids[row][batch.present[row]].tolist() == own
        first += half


def test_masked_regions_are_mostly_zeros_and_never_the_mean(data: VilbertTask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vilbert_train, "_SELECTED", 0.6)
    hidden, zeros = [], []
    for batch in _all(data):
        assert not batch.hidden[:, 0].any()
        zero = (batch.features == 0).all(dim=2)
        assert not (zero & ~batch.hidden).any()
        hidden.append(batch.hidden[:, 1:])
        zeros.append(zero[:, 1:])
    share = torch.cat(hidden).double().mean()
    assert float(share) == pytest.approx(0.6, abs=0.12)
    assert 0.75 < float(torch.cat(zeros).double().mean() / share) < 1


def test_whole_probabilities_are_told_where_the_store_holds_them(world: Path, tmp_path: Path) -> None:
    given = {}
    with open_store(world / "world.h5") as store:
        writer = StoreWriter(tmp_path / "shares.h5", store.fingerprint, dtype="float16")
        for regions in store:
            weights = np.random.default_rng(list(regions.image.encode())).random((len(regions), 5))
            given[regions.image] = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float16)
            writer.add(dataclasses.replace(regions, class_probabilities=given[regions.image]))
    with writer:
        writer.finish().close()
    changes = {"features": str(tmp_path / "shares.h5"), "loss": {"region_target": "classes"}}
    for memory_mb in (100, 0):
        data = prepare(settings(world, **changes, memory_mb=memory_mb))
        assert data.model.network.options.region_outputs == 5
        _, _, targets = vilbert_train.shown(data._split.regions, np.array([3, 0]))
        for row, place in enumerate((3, 0)):
            expected = given[data._split.pairs.images[place]].astype(np.float64)
            expected /= expected.sum(axis=1, keepdims=True)
            assert targets[row, 1:].numpy() == pytest.approx(expected, abs=1e-6)
            assert not targets[row, 0].any()
        assert data.data["region targets"] == "probabilities of 5 classes, background included"
    assert "region targets" not in prepare(settings(world)).data
    with raises(FeatureError, "wrong-features"):
        prepare(settings(world, loss={"region_target": "classes"}))


def test_trials_ask_for_captions_of_other_images(data: VilbertTask) -> None:
    pairs = data.dev.pairs
    image, reference, own, foreign = draw_trials(pairs)
    assert (pairs.image_of[reference] == image).all()
    assert (pairs.image_of[own] == image).all()
    assert (own != reference).all()
    assert (pairs.image_of[foreign] != image).all()

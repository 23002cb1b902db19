from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from capbench.core.errors import FeatureError, MetricError, ModelError
from capbench.core.records import FloatArray, Item
from capbench.core.training_record import training_overlap
from capbench.features.store import open_store
from capbench.metrics.leic.metric import Leic
from capbench.metrics.leic.network import Leic as Network
from capbench.metrics.leic.network import LeicModel, LeicOptions, encode_words, load_leic
from capbench.metrics.needs import Resources
from capbench.metrics.registry import load_network
from capbench.text.vocabulary import END, SPECIAL, UNKNOWN, Vocabulary
from capbench.weights.ensembles import write_ensemble
from capbench.weights.files import write_trained
from tests.errors import raises
from tests.metrics.leic.world import make_world

WORDS = Vocabulary((*SPECIAL, "a", "red", "kite", "boat", "and", "the", "is", "beside"))
ITEMS = (
    Item("test00", "a red kite and a boat", ("the kite is red", "a boat beside a kite", "a zebra.")),
    Item("test00", "a boat", ("the kite is red",)),
    Item("test01", "a boat", ("the kite is red", "a boat beside a kite")),
    Item("test01", "", ("the kite is red", "a boat " * 20)),
)


def old_mark(image: str) -> str:
    return hashlib.blake2b(image.encode(), digest_size=5).hexdigest()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("leic"))


def write_model(
    path: Path, seed: int = 1, *, features: str | None = None, dim: int = 8, seen: tuple[str, ...] = ()
) -> Path:
    options = LeicOptions(len(WORDS), image_dim=dim, word_dim=5, state_dim=6, hidden_dim=7, steps=6, image_scale=0.5)
    network = Network(options, torch.Generator().manual_seed(seed))
    with torch.no_grad():
        for weight in network.parameters():
            weight.mul_(2)  # so that scores differ
    facts = {"features": features, "about": f"of seed {seed}", "images": {"trained": [old_mark(one) for one in seen]}}
    write_trained(path, network, WORDS, facts)
    return path


def kind_of(world: Path) -> str:
    with open_store(world / "world.h5") as store:
        return store.fingerprint.kind


@pytest.fixture
def model(world: Path, tmp_path: Path) -> Path:
    return write_model(tmp_path / "m.safetensors", features=kind_of(world))


def made(world: Path, model: Path, **options: Any) -> Leic:
    return Leic(Resources(features=str(world / "world.h5"), model=str(model)), **options)


def scored(metric: Leic, items: tuple[Item, ...] = ITEMS) -> FloatArray:
    metric.prepare(items)
    return metric.scores(metric.statistics(items, lambda _: None))["leic"]


def plain(model: LeicModel, vector: FloatArray, reference: str, candidate: str) -> float:
    weights = {name: value.double().numpy() for name, value in model.network.state_dict().items()}

    def sigmoid(x: FloatArray) -> FloatArray:
        return np.asarray(1 / (1 + np.exp(-x)))

    def state(text: str) -> FloatArray:
        words = [word for word in text.lower().replace(".", " ").split() if word]
        numbers = [WORDS.words.index(word) if word in WORDS.words else UNKNOWN for word in words][:5]
        h, c = np.zeros(6), np.zeros(6)
        for number in [*numbers, END]:
            x = weights["words.weight"][number]
            gates = weights["lstm.weight_ih_l0"] @ x + weights["lstm.bias_ih_l0"]
            gates = gates + weights["lstm.weight_hh_l0"] @ h + weights["lstm.bias_hh_l0"]
            i, f, g, o = np.split(gates, 4)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        return h

    seen = weights["image.weight"] @ (0.5 * vector) + weights["image.bias"]
    joined = np.concatenate([seen, state(reference), state(candidate)])
    hidden = np.maximum(weights["hidden.weight"] @ joined + weights["hidden.bias"], 0)
    scores = weights["classes.weight"] @ hidden + weights["classes.bias"]
    return float(np.exp(scores[0]) / np.exp(scores).sum())


def test_equals_plain_code(world: Path, model: Path) -> None:
    loaded = load_leic(model)
    with open_store(world / "world.h5") as store:
        vectors = {image: store[image].features.astype(np.float64).mean(axis=0) for image in ("test00", "test01")}
    each = [[plain(loaded, vectors[i.image], text, i.candidate) for text in i.references] for i in ITEMS]
    mean, largest = scored(made(world, model)), scored(made(world, model, references="max"))
    np.testing.assert_allclose(mean, [np.mean(scores) for scores in each], atol=1e-5)
    np.testing.assert_allclose(largest, [max(scores) for scores in each], atol=1e-5)
    assert len(set(np.round(mean, 6).tolist())) == len(ITEMS)


def test_captions_are_cut_and_still_end() -> None:
    assert encode_words("A red kite!", WORDS, 15) == [*map(WORDS.number, ("a", "red", "kite")), END]
    assert encode_words("a zebra, a boat", WORDS, 4) == [WORDS.number("a"), UNKNOWN, WORDS.number("a"), END]
    assert encode_words("...", WORDS, 4) == [UNKNOWN, END]  # a token of several marks
    assert encode_words("", WORDS, 4) == [END]


def test_an_ensemble_scores_the_mean_and_folds_leave_out_what_saw_the_image(world: Path, tmp_path: Path) -> None:
    kind = kind_of(world)
    paths = {
        name: write_model(tmp_path / f"{name}.safetensors", seed, features=kind, seen=seen)
        for name, seed, seen in (("a", 1, ("test00",)), ("b", 2, ("test01",)), ("c", 3, ("test00", "test01")))
    }
    single = {name: scored(made(world, path)) for name, path in paths.items()}
    write_ensemble(tmp_path / "ab.json", [load_network(paths[name]) for name in "ab"])
    folds = made(world, tmp_path / "ab.json")
    of_image = np.array([item.image for item in ITEMS])
    np.testing.assert_allclose(scored(folds), np.where(of_image == "test00", single["b"], single["a"]), atol=1e-7)
    assert training_overlap("leic", folds.training_records(), ITEMS).trained == 0
    write_ensemble(tmp_path / "ac.json", [load_network(paths[name]) for name in "ac"])
    both = made(world, tmp_path / "ac.json")
    expected = np.where(of_image == "test00", (single["a"] + single["c"]) / 2, single["a"])
    np.testing.assert_allclose(scored(both), expected, atol=1e-7)
    overlap = training_overlap("leic", both.training_records(), ITEMS)
    assert (overlap.trained, overlap.photographs, overlap.files) == (1, 2, ("ac.json",))


def test_items_and_files_that_cannot_be_used(world: Path, model: Path, tmp_path: Path) -> None:
    with raises(MetricError, "missing-references", value="test00"):
        scored(made(world, model), (Item("test00", "a kite", (), candidate_id="c7"),))
    with raises(ModelError, "wrong-features", path=tmp_path / "dim.safetensors"):
        made(world, write_model(tmp_path / "dim.safetensors", dim=4))
    with raises(FeatureError, "wrong-features"):
        made(world, write_model(tmp_path / "kind.safetensors", features="0123456789abcdef"))

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from capbench.core.errors import DataError, FeatureError, MetricError, ModelError
from capbench.core.records import FloatArray, Item
from capbench.core.training_record import training_overlap
from capbench.features.store import open_store
from capbench.metrics.leic.metric import Leic
from capbench.metrics.leic.network import Leic as Network
from capbench.metrics.leic.network import LeicModel, LeicOptions, encode_words
from capbench.metrics.leic.training import (
    NEGATIVES,
    LeicTask,
    corrupted,
    parts_of,
)
from capbench.metrics.needs import Resources
from capbench.metrics.registry import load_network
from capbench.text.vocabulary import END, SPECIAL, UNKNOWN, Vocabulary
from capbench.training.trainer import train
from capbench.weights.ensembles import write_ensemble
from capbench.weights.files import write_trained
from capbench.weights.training_files import read_training_record
from tests.errors import raises
from tests.metrics.leic.world import make_world, settings, system_files
from tests.training.interruptions import check_stopped
from tests.training.world import StopAfter

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
    loaded = LeicModel.load(model)
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


def task_of(world: Path, **changes: Any) -> LeicTask:
    return LeicTask(settings(world, **changes), None, torch.device("cpu"), StopAfter())


def test_people_are_told_from_ruined_captions(world: Path, tmp_path: Path) -> None:
    config = settings(
        world, epochs=30, dropout=0.0, negatives=["replaced-words"], optimiser={"lr": 0.03, "lr_decay": 1}
    )
    result = train(LeicTask, config, tmp_path / "run")
    assert result.chosen["accuracy"] > 0.8
    assert result.chosen["p human"] > 0.5 > result.chosen["p replaced-words"]
    assert result.model is not None
    model = LeicModel.load(result.model)
    record = read_training_record(result.model)
    assert record.photographs is not None
    assert record.selected is not None
    assert record.photographs.has_photographs([f"train{n:02d}" for n in range(18)]).all()
    assert (len(record.photographs), len(record.selected), record.unrecorded) == (18, 6, ())
    assert str(model.training["about"]).endswith("captions of 18 images against replaced-words")
    assert model.features == open_store(world / "world.h5").fingerprint.kind


@pytest.mark.parametrize("machine", [False, True])
def test_a_training_interrupted_anywhere_ends_with_the_same_file(world: Path, tmp_path: Path, machine: bool) -> None:
    changes = {"machine": system_files(world), "folds": {"of": 3}} if machine else {}
    config = settings(world, **changes)
    whole = check_stopped(LeicTask, config, tmp_path, (5,))
    assert train(LeicTask, settings(world, **changes, seed=2), tmp_path / "c").sha256 != whole.sha256


def test_words_of_captions_are_replaced_or_permuted() -> None:
    caption = [*range(10, 20), END]
    changed: set[int] = set()
    for seed in range(200):
        rng = np.random.default_rng(seed)
        other = corrupted(caption, "replaced-words", 500, rng)
        assert other[-1] == END
        assert len(other) == len(caption)
        places = [place for place, (old, new) in enumerate(zip(caption, other, strict=True)) if old != new]
        changed.add(len(places))
        assert all(other[place] >= len(SPECIAL) for place in places)
        moved = corrupted(caption, "permuted", 500, rng)
        assert sorted(moved) == sorted(caption)
        assert moved[-1] == END
        assert sum(old != new for old, new in zip(caption, moved, strict=True)) <= 9
    assert changed <= set(range(10))  # a word may be replaced by itself
    assert {2, 5, 8} <= changed
    rng = np.random.default_rng(1)
    assert corrupted([7, END], "permuted", 500, rng) == [7, END]
    assert corrupted([END], "replaced-words", 500, rng) == [END]
    assert corrupted([7, END], "replaced-words", 500, rng)[0] != 7
    drawn = {tuple(corrupted([7, 8, END], "permuted", 500, np.random.default_rng(n))) for n in range(9)}
    assert drawn == {(7, 8, END), (8, 7, END)}


def test_a_batch_has_as_many_right_as_wrong_captions_beside_the_same_references(world: Path) -> None:
    task = task_of(world, machine=system_files(world), splits={"train": ["train", "val", "test"]}, folds={"of": 3})
    kinds: dict[str, int] = {}
    for epoch in range(20):
        seen = []
        for batch in task.batches(epoch, 0):
            for right, wrong in zip(batch[::2], batch[1::2], strict=True):
                assert right.kind == "human"
                assert right.reference == wrong.reference
                assert right.reference != right.candidate
                of_image = task.images[0].human[right.image]
                assert list(right.candidate) in map(list, of_image)
                if wrong.kind == "machine":
                    assert wrong.candidate in task.images[0].machine[right.image]
                kinds[wrong.kind] = kinds.get(wrong.kind, 0) + 1
                seen.append(right.image)
        assert sorted(seen) == list(range(len(task.images[0].human)))
    assert kinds["machine"] == pytest.approx(200, abs=50)
    assert set(kinds) == {"machine", *NEGATIVES}
    whole = [batch for epoch in range(2) for batch in task.batches(epoch, 0)]
    assert [*task.batches(1, 2)] == whole[task.steps_per_epoch + 2 :]


def test_folds_leave_images_out_and_measure_on_them(world: Path, tmp_path: Path) -> None:
    every = [f"train{n:02d}" for n in range(18)]
    left_out: list[str] = []
    for out in (1, 2, 3):
        task = task_of(world, machine=system_files(world), folds={"of": 3, "out": out}, epochs=1)
        record = task.record
        assert record.photographs is not None
        assert record.selected is not None
        assert (len(record.photographs), len(record.selected)) == (12, 6)
        trained = record.photographs.has_photographs(every)
        np.testing.assert_array_equal(trained, ~record.selected.has_photographs(every))
        left_out += [image for image, inside in zip(every, trained, strict=True) if not inside]
        assert task.facts()["about"].endswith(
            f"(all but part {out} of 3) against other-image, replaced-words, permuted, captions of 2 systems"
        )
    assert sorted(left_out) == every
    assert {"p human", "p machine", "p permuted"} < set(task.validate(task.model, lambda: None))
    images = [f"im{n}" for n in range(10)]
    assert parts_of(images, 4).tolist() == parts_of(images[::-1], 4).tolist()[::-1]
    assert sorted(parts_of(images, 4)) == [1, 1, 1, 2, 2, 2, 3, 3, 4, 4]


def test_the_measured_numbers_are_those_of_plain_code(world: Path) -> None:
    task = task_of(world, negatives=["other-image"])
    numbers = task.validate(task.model, lambda: None)
    model = task.model.eval()
    right: list[float] = []
    wrong: list[float] = []
    with torch.inference_mode():
        for pair in task._dev_pairs:
            states = []
            for caption in (pair.reference, pair.candidate):
                outputs, _ = model.lstm(model.words(torch.tensor([list(caption)])))
                states.append(outputs[0, -1])
            seen = model.image(torch.from_numpy(task.images[1].vectors[pair.image]))
            hidden = torch.relu(model.hidden(torch.cat([seen, *states])))
            human = float(torch.softmax(model.classes(hidden), 0)[0])
            (right if pair.kind == "human" else wrong).append(human)
    assert numbers["p human"] == pytest.approx(np.mean(right), abs=1e-5)
    assert numbers["p other-image"] == pytest.approx(np.mean(wrong), abs=1e-5)
    likelihood = (np.log(right).mean() + np.log1p(-np.array(wrong)).mean()) / 2
    assert numbers["log_likelihood"] == pytest.approx(likelihood, abs=1e-5)
    correct = ((np.array(right) > 0.5).mean() + (np.array(wrong) <= 0.5).mean()) / 2
    assert numbers["accuracy"] == pytest.approx(correct)


def test_invalid_settings_and_data_are_named(world: Path, tmp_path: Path) -> None:
    for change in ({"negatives": None}, {"folds": {"out": 2}}):
        with pytest.raises(ValidationError):
            settings(world, **change)
    with raises(DataError, "too-few"):
        task_of(world, folds={"of": 99})
    few = json.loads((world / "one.json").read_text())[:20]
    (tmp_path / "few.json").write_text(json.dumps(few))
    with raises(DataError, "missing-caption", value="val02"):
        task_of(world, machine=[str(tmp_path / "few.json")])

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from capbench.core.errors import MissingFileError, ModelError
from capbench.metrics.vilbert import train as vilbert_train
from capbench.metrics.vilbert.files import load_vilbert
from capbench.metrics.vilbert.train import VilbertTask, VilbertTraining
from capbench.training.trainer import train
from capbench.weights.training_files import read_training_record
from tests.errors import raises
from tests.metrics.tiny_bert import make_bert
from tests.metrics.vilbert.world import NETWORK, settings
from tests.training.interruptions import check_stopped
from tests.training.world import StopAfter, log_of, make_world

ALONE = {"words": 0.0, "regions": 0.0, "alignment": 0.0}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("world"), boxes=True)


def task_of(config: VilbertTraining, watcher: StopAfter | None = None) -> VilbertTask:
    return VilbertTask(config, None, torch.device("cpu"), watcher or StopAfter())


def test_training_learns_which_caption_is_of_an_image(world: Path, tmp_path: Path) -> None:
    learning = {"epochs": 15, "optimiser": {"lr": 0.02}, "evaluation": {"every": 100}}
    config = settings(world, network={**NETWORK, "dropout": 0.0}, **learning)
    result = train(VilbertTask, config, tmp_path / "run")
    assert result.chosen["matching"] >= 75
    losses = [line["loss"] for line in log_of(tmp_path / "run") if line["kind"] == "step"]
    assert np.mean(losses[-5:]) < 0.7 * np.mean(losses[:5])
    model = load_vilbert(result.model or "")
    assert model.training["dev"] == result.chosen
    assert result.sha256 == model.sha256
    assert model.features is not None
    record = read_training_record(result.model or "")
    assert [None if one is None else len(one) for one in (record.photographs, record.selected)] == [18, 6]


def test_an_interrupted_training_ends_with_the_same_file(world: Path, tmp_path: Path) -> None:
    check_stopped(VilbertTask, settings(world, epochs=2), tmp_path, (4,))


@pytest.mark.parametrize("loss", ["words", "regions", "alignment", "contrast", "matching", "fit"])
def test_every_loss_can_be_learned_alone(world: Path, loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vilbert_train, "_SELECTED", 0.5)
    config = settings(world, loss={**ALONE, loss: 1.0}, network={**NETWORK, "dropout": 0.0})
    task = task_of(config)
    batch = next(task.batches(0, 0))
    for group in task.optimiser.param_groups:
        group["lr"] = 0.02
    values = []
    for _ in range(20):
        torch.manual_seed(0)
        value = task.loss(batch, 0)
        task.optimiser.zero_grad()
        value.backward()  # type: ignore[no-untyped-call]
        task.optimiser.step()
        values.append(float(value.detach()))
    assert values[-1] < 0.8 * values[0]


def test_word_vectors_of_the_captions_are_what_embeddings_begin_with(world: Path) -> None:
    config = settings(world, word_start={"epochs": 20})
    tasks = [task_of(one) for one in (config, settings(world))]
    weights = [task.model.network.text_embedding.words.weight.detach() for task in tasks]
    places = tasks[0]._pieces.places
    assert not torch.equal(weights[0], weights[1])
    # Pieces that no caption holds begin at random, as all do otherwise.
    assert torch.equal(weights[0][places["[MASK]"]], weights[1][places["[MASK]"]])
    held = sorted({number for caption in tasks[0]._split.captions for number in caption[1:-1]})
    assert float(weights[0][held].square().mean().sqrt()) == pytest.approx(config.initial, rel=0.2)


BERT_SIZES = {**NETWORK, "positions": 40, "text_dim": 16, "text_inner": 32}


def _from_bert(world: Path, folder: Path, **changes: object) -> VilbertTraining:
    start = {"folder": str(folder)}
    return settings(world, **{"text_start": start, "network": BERT_SIZES, "pieces": {"longest": 20}, **changes})


@pytest.mark.parametrize("prefixed", [False, True])
def test_the_text_stream_begins_as_a_bert_and_gives_its_states(world: Path, tmp_path: Path, prefixed: bool) -> None:
    transformers = pytest.importorskip("transformers")
    folder = make_bert(tmp_path / "bert")  # three layers, of which one precedes the first connection
    original = transformers.BertModel.from_pretrained(folder).eval()
    if prefixed:  # a file with the head of masked words, in PyTorch's format
        torch.manual_seed(1)
        whole = transformers.BertForMaskedLM(original.config)
        whole.bert.load_state_dict(original.state_dict(), strict=False)
        (folder / "model.safetensors").unlink()
        torch.save(whole.state_dict(), folder / "pytorch_model.bin")
    task = task_of(_from_bert(world, folder))
    assert len(task._pieces) == original.config.vocab_size
    network = task.model.network.eval()
    ids = torch.tensor([task._pieces.sequence("a dog sits on the red grass .", 20)])
    with torch.no_grad():
        states = original(ids, output_hidden_states=True).hidden_states
        torch.testing.assert_close(network.read_text(ids), states[1], atol=1e-5, rtol=1e-5)
        later = network.text_layers[2](network.text_layers[1](states[1]))
        torch.testing.assert_close(later, states[3], atol=1e-5, rtol=1e-5)
        if prefixed:
            expected = whole.cls(states[3])
            assert network.heads is not None
            logits = network.heads.words(states[3], network.text_embedding.words.weight)
            torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)


NAME = "encoder.layer.1.output.dense.weight"


@pytest.mark.parametrize(
    ("config", "tensor", "code"),
    [
        ({"num_attention_heads": 4}, lambda tensor: tensor, "mismatch"),
        ({}, lambda tensor: tensor * float("nan"), "not-a-number"),
        ({}, lambda _: None, "missing-key"),
    ],
)
def test_a_bert_that_does_not_fit_the_network_is_rejected(
    world: Path, tmp_path: Path, config: dict[str, object], tensor: Callable[[Any], Any], code: str
) -> None:
    pytest.importorskip("transformers")
    from safetensors.torch import load_file, save_file

    folder = make_bert(tmp_path / "bert")
    (folder / "config.json").write_text(json.dumps({**json.loads((folder / "config.json").read_text()), **config}))
    tensors = load_file(folder / "model.safetensors")
    changed = {**tensors, NAME: tensor(tensors[NAME])}
    save_file({name: value for name, value in changed.items() if value is not None}, folder / "model.safetensors")
    with raises(ModelError, code, path=folder / ("config.json" if config else "model.safetensors")):
        train(VilbertTask, _from_bert(world, folder), tmp_path / "run")
    (folder / "model.safetensors").unlink()
    if not config:
        with raises(MissingFileError, "missing-file", path=folder):
            train(VilbertTask, _from_bert(world, folder), tmp_path / "run")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"loss": {"negatives": "hard"}}, "'loss.contrast'"),
        ({"loss": ALONE}, "'loss'"),
        ({"text_start": {"folder": "bert"}}, "'pieces.size'"),
        ({"text_start": {"folder": "bert"}, "word_start": {"epochs": 1}}, "'word_start.epochs'"),
    ],
)
def test_invalid_settings_are_rejected(world: Path, changes: dict[str, object], named: str) -> None:
    with pytest.raises(ValidationError) as caught:
        settings(world, **changes)
    assert named in str(caught.value)

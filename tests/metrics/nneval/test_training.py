from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from capbench.core.errors import UsageError
from capbench.datasets.root import DataRoot, sample_dir
from capbench.metrics.nneval.network import INPUTS, read_nneval, write_nneval
from capbench.metrics.nneval.training import Examples, NetworkOptions, NNEvalModule, NNEvalTask
from capbench.training.trainer import Trained, train
from capbench.weights.training_files import read_training_record
from tests.errors import raises
from tests.metrics.nneval.stored import without_parser
from tests.metrics.nneval.world import make_world, settings
from tests.training.interruptions import check_stopped
from tests.training.world import StopAfter

ROOT = DataRoot(sample_dir(), True, "sample")
CPU = torch.device("cpu")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CAPBENCH_CACHE", str(tmp_path / "cache"))
    without_parser(monkeypatch)
    return make_world(tmp_path / "world")


def trained(world: Path, run: Path, watcher: StopAfter | None = None, **changes: Any) -> Trained:
    return train(NNEvalTask, settings(world, **changes), run, ROOT, watcher=watcher)


def test_people_are_told_from_machines_on_held_out_images(world: Path, tmp_path: Path) -> None:
    watcher = StopAfter()
    result = trained(world, tmp_path / "run", watcher, epochs=30)
    assert result.chosen["accuracy"] == 1.0
    assert "results-2 is left out as human: 100% of its captions are references" in watcher.said
    assert any("14 images with captions of systems, 0 images left out as judged" in line for line in watcher.said)
    assert "held out: 6 captions; training: 78" in watcher.said
    assert result.model is not None
    facts = read_nneval(result.model).training
    assert facts["chosen_by"] is None
    record = read_training_record(result.model)
    assert record.photographs is not None
    assert (len(record.photographs), record.selected, record.unrecorded) == (14, None, ())
    assert facts["counts"]["images"] == 14
    assert facts["about"].startswith("were trained on 84 captions of 14 images, those of machines by 4 systems")
    assert set(facts["inputs"]) == {"meteor", "wmd", "bleu", "spice", "cider"}


def test_an_interrupted_training_ends_with_the_same_bytes(world: Path, tmp_path: Path) -> None:
    whole = check_stopped(NNEvalTask, settings(world), tmp_path, (9,), ROOT)
    assert trained(world, tmp_path / "c", seed=2).sha256 != whole.sha256


def rated(seed: int = 4, n: int = 60) -> Examples:
    rng = np.random.default_rng(seed)
    inputs = rng.random((n, 8))
    return Examples(inputs, np.repeat(np.round(4 * inputs[:, 0]), 2), np.repeat(np.arange(n), 2), "tau-b")


def examples(seed: int = 5, n: int = 120) -> Examples:
    rng = np.random.default_rng(seed)
    human = 1 - np.arange(n) % 2
    return Examples(rng.random((n, 8)) * 0.5 + 0.5 * human[:, None], human)


def task(dev: Examples, **changes: Any) -> NNEvalTask:
    made = NNEvalTask.__new__(NNEvalTask)
    made.config = settings(Path("nowhere"), **changes)
    made.learn(examples(), dev, CPU)
    return made


def test_weights_are_chosen_by_agreement_as_scipy_counts_it() -> None:
    stats = pytest.importorskip("scipy.stats")
    dev = rated()
    made = task(dev)
    found = made.validate(made.model, lambda: None)
    train = examples()
    lowest, highest = train.inputs.min(axis=0), train.inputs.max(axis=0)
    mapped = torch.from_numpy(2 * (dev.inputs - lowest) / (highest - lowest) - 1).float()
    human = torch.softmax(made.model(mapped), dim=1)[:, 1].detach().numpy()
    assert found["tau"] == pytest.approx(stats.kendalltau(human[dev.item], dev.value).statistic, abs=1e-5)


def test_the_penalty_is_that_of_the_loss_and_spares_biases() -> None:
    penalty = 0.5
    made = task(rated(), optimiser={"lr": 0.001, "weight_decay": penalty})
    other = task(rated(), optimiser={"lr": 0.001, "weight_decay": 0.0})
    batch = next(iter(made.batches(0, 0)))
    made.loss(batch, 0).backward()  # type: ignore[no-untyped-call]
    made.optimiser.step()
    loss = other.loss(batch, 0)
    weights = dict(other.model.named_parameters())
    loss = loss + penalty * sum(weights[name].square().sum() for name in ("W1", "W2", "W_out")) / 2
    loss.backward()  # type: ignore[no-untyped-call]
    other.optimiser.step()
    for name, weight in made.model.named_parameters():
        assert torch.allclose(weight, weights[name], atol=1e-7), name


@pytest.mark.parametrize("monotone", [True, False])
def test_no_input_lowers_the_score_of_a_monotone_network_which_scores_as_in_training(
    world: Path, tmp_path: Path, monotone: bool
) -> None:
    model = trained(world, tmp_path / "run", network={"monotone": monotone}, epochs=12).model
    network = read_nneval(model or "")
    inputs = np.random.default_rng(0).uniform(0, 0.6, (200, len(INPUTS)))
    before = network.probabilities(inputs)
    more = [network.probabilities(inputs + 0.2 * unit) for unit in np.eye(len(INPUTS))]
    assert any((after < before - 1e-12).any() for after in more) is not monotone
    assert ("no input of theirs may lower the score" in network.training["about"]) is monotone
    module = NNEvalModule(NetworkOptions(monotone=monotone), torch.Generator().manual_seed(1))
    weights = {name: tensor.detach() for name, tensor in module.effective().items()}
    write_nneval(tmp_path / "model.safetensors", weights, np.zeros(len(INPUTS)), np.ones(len(INPUTS)), {})
    with torch.no_grad():
        scores = torch.softmax(module(torch.from_numpy(2 * inputs - 1)), dim=1)[:, 1].numpy()
    network = read_nneval(tmp_path / "model.safetensors")
    np.testing.assert_allclose(network.probabilities(inputs), scores, atol=1e-12)


def test_the_protocol_that_weights_are_chosen_by_is_noted_and_its_images_are_left_out(
    world: Path, tmp_path: Path
) -> None:
    watcher = StopAfter()
    result = trained(
        world, tmp_path / "run", watcher, stopping={"protocol": "flickr8k-expert/all-pairs/mode-tau-b"}, epochs=2
    )
    assert result.model is not None
    facts = read_nneval(result.model).training
    assert facts["chosen_by"] == "flickr8k-expert:1/all-pairs/mode-tau-b"
    record = read_training_record(result.model)
    assert record.selected is not None
    assert len(record.selected) == 50
    assert record.selected_by == "judgements (flickr8k-expert:1/all-pairs/mode-tau-b)"
    assert "tau" in facts["dev"]
    assert any(line.startswith("flickr8k-expert: its ") for line in watcher.said)


def test_a_protocol_of_another_kind_and_captions_without_systems_are_refused(world: Path, tmp_path: Path) -> None:
    with raises(UsageError, "unsupported", value="pascal-50s"):
        trained(world, tmp_path / "a", stopping={"protocol": "pascal-50s"})

"""The dual encoder: its network against plain sums, its training, its files, and the metric over it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from capbench.core.errors import FeatureError, ModelError
from capbench.core.records import Item
from capbench.features.store import open_store
from capbench.metrics.needs import Resources
from capbench.metrics.scan.files import load_scan
from capbench.metrics.scan.train import ScanTask
from capbench.training.trainer import Measurement, Trained, train
from capbench.weights.ensembles import write_ensemble
from capbench.weights.files import write_trained
from capbench_dual_encoder.files import load_dual_encoder
from capbench_dual_encoder.metric import DualEncoderMetric
from capbench_dual_encoder.network import DualEncoder, DualEncoderOptions
from capbench_dual_encoder.training import DualEncoderTask, DualEncoderTraining
from tests.errors import raises
from tests.training import world as scan_world
from tests.training.interruptions import check_stopped
from tests.training.world import make_world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("world"))


def settings(world: Path, **changes: Any) -> DualEncoderTraining:
    raw: dict[str, Any] = {
        "schema": 1,
        "name": "tiny",
        "captions": str(world / "world.json"),
        "features": str(world / "world.h5"),
        "network": {"embed_dim": 8, "word_dim": 6, "hidden_dim": 10},
        "vocabulary": {"min_count": 1},
        "optimiser": {"lr": 0.02},
        "dropout": {"regions": 0.1, "words": 0.1, "embedding": 0.1},
        "evaluation": {"every": 5},
        "batch": 8,
        "epochs": 4,
        "ema": 0.9,
        "threads": 1,
        "device": "cpu",
        "log_every": 2,
    }
    return DualEncoderTraining.model_validate({**raw, **changes})


def trained(world: Path, run: Path, **changes: Any) -> Trained:
    return train(DualEncoderTask, settings(world, **changes), run)


@pytest.fixture(scope="module")
def models(world: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("models")
    runs = [trained(world, folder / str(seed), seed=seed) for seed in (1, 2)]
    return [run.model for run in runs if run.model is not None]


@pytest.mark.parametrize("text", ["gru", "bag"])
@pytest.mark.parametrize("pooling", ["attention", "mean"])
def test_vectors_are_those_of_plain_sums(text: Any, pooling: Any) -> None:
    options = DualEncoderOptions(9, 5, word_dim=4, hidden_dim=6, embed_dim=3, pooling=pooling, text=text)
    network = DualEncoder(options, torch.Generator().manual_seed(3)).eval()
    state = {name: tensor.double().numpy() for name, tensor in network.state_dict().items()}
    rng = np.random.default_rng(4)
    regions = rng.normal(size=(2, 7, 5)) * 30

    def gelu(x: Any) -> Any:
        return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))

    def unit(x: Any) -> Any:
        return x / np.linalg.norm(x, axis=-1, keepdims=True)

    hidden = gelu(unit(regions) * math.sqrt(5) @ state["region.weight"].T + state["region.bias"])
    weights = np.full((2, 7), 1 / 7)
    if pooling == "attention":
        fit = np.exp(hidden @ state["attention.weight"][0] + state["attention.bias"][0])
        weights = fit / fit.sum(axis=1, keepdims=True)
    pooled = (weights[..., None] * hidden).sum(axis=1)
    wanted = unit(pooled @ state["image_out.weight"].T + state["image_out.bias"])
    ours = network.encode_images(torch.from_numpy(regions).float()).detach().numpy()
    np.testing.assert_allclose(ours, wanted, atol=1e-5)

    captions = [[1, 5, 6, 2], [1, 8, 2]]
    vectors = []
    for caption in captions:
        words = torch.from_numpy(state["word.weight"][caption])
        if text == "gru":
            plain = torch.nn.GRU(4, 6, batch_first=True, bidirectional=True).double()
            plain.load_state_dict({k.removeprefix("gru."): torch.from_numpy(v) for k, v in state.items() if "gru" in k})
            both = plain(words[None])[0][0]
            words = (both[:, :6] + both[:, 6:]) / 2
        mean = words.mean(dim=0).detach().numpy()
        inner = gelu(mean @ state["text_hidden.weight"].T + state["text_hidden.bias"])
        vectors.append(unit(inner @ state["text_out.weight"].T + state["text_out.bias"]))
    ids = torch.tensor([captions[0], [*captions[1], 0]])
    ours = network.encode_captions(ids, torch.tensor([4, 3])).detach().numpy()
    np.testing.assert_allclose(ours, vectors, atol=1e-5)


def test_training_finds_images_for_captions_and_learns_the_temperature(world: Path, tmp_path: Path) -> None:
    config = settings(world, epochs=15, evaluation={"every": 50})
    result = train(DualEncoderTask, config, tmp_path / "run")
    assert result.chosen["image_to_text"]["r@5"] > 80
    assert result.chosen["temperature"] != pytest.approx(0.07, abs=1e-4)
    kept = trained(world, tmp_path / "kept", loss={"learned": False, "temperature": 0.1})
    assert kept.chosen["temperature"] == pytest.approx(0.1, abs=1e-4)
    assert result.model is not None
    measured = DualEncoderTask.measure(config, result.model, Measurement("dev"))
    assert measured["recall_sum"] == result.chosen["recall_sum"]
    assert trained(world, tmp_path / "hinge", loss={"kind": "hinge"}).ended == "epochs"
    saved = load_dual_encoder(result.model)
    write_trained(tmp_path / "again.safetensors", saved.network, saved.vocabulary, {})
    again = load_dual_encoder(tmp_path / "again.safetensors").network.state_dict()
    assert all(torch.equal(again[name], weight) for name, weight in saved.network.state_dict().items())


@pytest.mark.parametrize("network", [{"text": "gru"}, {"text": "bag", "pooling": "mean"}])
def test_an_interrupted_training_ends_with_the_same_bytes(world: Path, tmp_path: Path, network: Any) -> None:
    config = settings(world, epochs=2, order="rounds", network={"embed_dim": 8, "hidden_dim": 10, **network})
    whole = check_stopped(DualEncoderTask, config, tmp_path, (4,))
    assert trained(world, tmp_path / "other", epochs=2, seed=9).sha256 != whole.sha256


def test_the_metric_gives_clipscores_formulas(world: Path, models: list[Path]) -> None:
    features = world / "world.h5"
    items = [
        Item("test00", "a red kite and a blue lamp", ("there is a boat", "a green drum")),
        Item("test01", "the sofa is green", ("a red fern beside a boat", "a blue kite")),
    ]
    cosines = []
    for path in models:
        model = load_dual_encoder(path)
        with open_store(features) as store:
            images = model.encode_images([store[item.image].features for item in items])
        texts = model.encode_captions({text for item in items for text in (item.candidate, *item.references)})
        cosines.append(
            [
                (float(image @ texts[i.candidate]), max(float(texts[i.candidate] @ texts[r]) for r in i.references))
                for image, i in zip(images, items, strict=True)
            ]
        )
    together = models[0].parent.parent / "both.json"
    write_ensemble(together, [load_dual_encoder(path) for path in models])
    resources = Resources(features=str(features), model=str(models[0]))
    metric = DualEncoderMetric(resources, scale=3.0)
    metric.prepare(items)
    columns = metric.scores(metric.statistics(items, lambda _: None))
    for row, (image, text) in enumerate(cosines[0]):
        scaled, largest = 3.0 * max(image, 0), max(text, 0)
        assert columns["dual-encoder"][row] == pytest.approx(scaled, abs=1e-6)
        mean = 2 * scaled * largest / (scaled + largest) if scaled + largest else 0
        assert columns["ref-dual-encoder"][row] == pytest.approx(mean, abs=1e-6)
    joined = DualEncoderMetric(Resources(features=str(features), model=str(together)))
    statistics = joined.statistics(items, lambda _: None)
    np.testing.assert_allclose(statistics[:, 1], np.mean(cosines, axis=0)[:, 0], atol=1e-6)
    assert "model:mean-of-2+dual-encoder-" in joined.signature()
    assert "features:drawn" in joined.signature()


def test_other_weights_and_other_features_are_refused(world: Path, models: list[Path], tmp_path: Path) -> None:
    scan = train(ScanTask, scan_world.settings(world, epochs=1), tmp_path / "scan").model
    features, cut = str(world / "world.h5"), tmp_path / "cut.safetensors"
    with raises(ModelError, "wrong-weights", path=scan):
        DualEncoderMetric(Resources(features=features, model=str(scan)))
    with pytest.raises(ModelError, match="SCAN network"):
        load_scan(models[0])
    cut.write_bytes(models[0].read_bytes()[:-100])
    with raises(ModelError, "unreadable", path=cut):
        load_dual_encoder(cut)
    metric = DualEncoderMetric(Resources(features=features, model=str(models[0])))
    with raises(FeatureError, "missing-features"):
        metric.prepare([Item("nowhere", "a", ())])

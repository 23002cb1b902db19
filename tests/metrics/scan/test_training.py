from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from capbench.core.errors import ModelError, UsageError
from capbench.core.records import FloatArray, Item
from capbench.core.training_record import training_overlap
from capbench.features.records import Fingerprint, RegionFeatures
from capbench.features.store import open_store
from capbench.features.writing import StoreWriter
from capbench.metrics.needs import Resources
from capbench.metrics.reo import Reo, default_path, fit_covariance, write_covariance
from capbench.metrics.scan import encode
from capbench.metrics.scan import train as scan_train
from capbench.metrics.scan.encode import GroundingOptions
from capbench.metrics.scan.files import load_scan
from capbench.metrics.scan.network import Scan, ScanOptions
from capbench.metrics.scan.train import ScanTask
from capbench.metrics.tiger import Tiger, rrs, wds
from capbench.stats.retrieval import retrieval
from capbench.text.vocabulary import Vocabulary
from capbench.training import matching
from capbench.training.trainer import Measurement, Trained, train
from capbench.weights.ensembles import write_ensemble
from capbench.weights.files import write_trained
from capbench.weights.training_files import read_training_record
from tests.errors import raises
from tests.metrics.scan.models import DIMENSION, FINGERPRINT, make_items, write_features
from tests.training.interruptions import check_stopped, stopped
from tests.training.world import StopAfter, log_of, make_world, settings


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("world"))


def trained(world: Path, run: Path, **changes: Any) -> Trained:
    return train(ScanTask, settings(world, **changes), run)


def test_training_finds_images_for_captions(world: Path, tmp_path: Path) -> None:
    result = trained(world, tmp_path / "run", epochs=10, optimiser={"lr": 0.03}, evaluation={"every": 50})
    assert result.ended == "epochs"
    assert result.chosen["image_to_text"]["r@5"] > 80
    losses = [line["loss"] for line in log_of(tmp_path / "run") if line["kind"] == "step"]
    assert np.mean(losses[-5:]) < 0.7 * np.mean(losses[:5])
    model = load_scan(result.model or "")
    assert model.features is not None
    assert model.training["dev"] == result.chosen
    assert result.sha256 == model.sha256
    images = json.loads((world / "world.json").read_text())["images"]
    texts = {s["raw"] for i in images if i["split"] == "train" for s in i["sentences"]}
    items = [Item(i["filename"][:-4], i["sentences"][0]["raw"], ()) for i in images]
    overlap = training_overlap("tiger", [read_training_record(result.model or "")], items)
    assert (overlap.trained, overlap.selected, overlap.photographs, overlap.unrecorded) == (18, 6, 30, ())
    assert overlap.read_candidates == len({item.candidate for item in items} & texts)


@pytest.mark.parametrize(("order", "parts"), [("captions", (1, 4)), ("rounds", (5,))])
def test_a_training_interrupted_anywhere_ends_with_the_same_file(
    world: Path, tmp_path: Path, order: str, parts: tuple[int, ...]
) -> None:
    whole = check_stopped(ScanTask, settings(world, order=order, epochs=2), tmp_path, parts)
    streamed = trained(world, tmp_path / "streamed", order=order, epochs=2, memory_mb=0)
    assert streamed.sha256 == whole.sha256
    assert trained(world, tmp_path / "other", order=order, epochs=2, seed=2).sha256 != whole.sha256


def test_a_killed_training_ends_with_the_same_weights_and_ctrl_c_exits_with_130(world: Path, tmp_path: Path) -> None:
    config, run = settings(world, epochs=7, evaluation={"every": 30}, checkpoint_seconds=0.001), tmp_path / "killed"
    ended = stopped(config, tmp_path, run)
    assert ended.returncode == 130, ended.stderr
    assert "run the same command again" in ended.stderr
    assert "10 already done" in ended.stderr
    assert not (run / "model.safetensors").exists()
    assert train(ScanTask, config, run).sha256 == train(ScanTask, config, tmp_path / "whole").sha256
    assert log_of(run) == log_of(tmp_path / "whole")


def test_a_model_is_measured_as_in_its_training(world: Path, tmp_path: Path) -> None:
    result = trained(world, tmp_path / "run", epochs=6)
    assert result.model is not None
    measured = ScanTask.measure(settings(world), result.model, Measurement("dev"))
    assert {
        key: measured[key] for key in result.chosen if key not in ("step", "epoch")
    }.items() <= result.chosen.items()
    four, halves = (ScanTask.measure(settings(world), result.model, Measurement("dev", None, 4, n)) for n in (1, 2))
    assert four["images"] == halves["images"] == 4
    assert halves["text_to_image"]["mean_rank"] < four["text_to_image"]["mean_rank"]
    with raises(UsageError, "wrong-value", value=4):
        ScanTask.measure(settings(world), result.model, Measurement("dev", folds=4))
    with StoreWriter(tmp_path / "other.h5", Fingerprint("other", "unknown", "unknown", "unknown")) as writer:
        for i in range(6):
            writer.add(RegionFeatures(f"test{i:02d}", 0, 0, None, np.ones((3, 8), dtype=np.float32)))
        writer.finish()
    with raises(ModelError, "wrong-features", path=result.model):
        ScanTask.measure(settings(world, features=str(tmp_path / "other.h5")), result.model, Measurement("test"))


def test_similarities_block_by_block_are_those_one_by_one(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matching, "IMAGES", 4)
    monkeypatch.setattr(matching, "CAPTIONS", 5)
    task = ScanTask(settings(world), None, torch.device("cpu"), StopAfter())
    found: list[Any] = []

    def kept(matrix: Any, *rest: Any) -> dict[str, Any]:
        found.append(matrix)
        return retrieval(matrix, *rest)

    monkeypatch.setattr(scan_train, "retrieval", kept)
    paused: list[int] = []
    task.validate(task.model, lambda: paused.append(1))
    assert len(paused) == 3
    task.model.eval()
    with torch.inference_mode():
        for i in range(len(task.dev.pairs.images)):
            image = task.model.encode_images(task.dev.regions.take([i])[0])
            for j, caption in enumerate(task.dev.captions):
                length = torch.tensor([len(caption)])
                words = task.model.encode_captions(torch.tensor([caption]), length)
                assert found[0][i, j] == pytest.approx(float(task.model.similarities(image, words, length)), abs=1e-5)


@pytest.mark.gpu
def test_training_on_a_gpu_learns_and_goes_on(world: Path, tmp_path: Path) -> None:
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    config, run = settings(world, device="cuda", epochs=25, evaluation={"every": 50}), tmp_path / "run"
    assert train(ScanTask, config, run, watcher=StopAfter(30)).ended == "interrupted"
    result = train(ScanTask, config, run)
    assert result.chosen["image_to_text"]["r@5"] > 80
    on_cpu = ScanTask.measure(settings(world), run / "model.safetensors", Measurement("dev"))
    assert on_cpu["recall_sum"] == pytest.approx(result.chosen["recall_sum"], abs=40)


ITEMS = make_items(30, 5)
CAPTIONS = {item.image: (item.candidate, *item.references) for item in ITEMS}
# The second network knows other words than the first, and has other sizes.
TEXTS = {"a": "a the red blue small dog cat ball man", "b": "a dog woman house runs sits on under near with two"}


def network(
    path: Path, seed: int, text: str = TEXTS["a"], trained_on: str = FINGERPRINT.kind, **options: object
) -> Path:
    torch.set_num_threads(1)
    words = Vocabulary.build([text] * 4)
    sizes = {"vocabulary_size": len(words), "word_dim": 10, "embed_dim": 16, "image_dim": DIMENSION}
    shape = ScanOptions(**{**sizes, **options})  # type: ignore[arg-type]
    write_trained(path, Scan(shape, torch.Generator().manual_seed(seed)), words, {"features": trained_on})
    return path


def joined(path: Path, *models: Path) -> Path:
    write_ensemble(path, [load_scan(model) for model in models])
    return path


class Folder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.features = path / "features.h5"
        write_features(self.features, list(CAPTIONS))
        self.a = network(path / "a.safetensors", 1)
        self.b = network(path / "b.safetensors", 2, TEXTS["b"], embed_dim=20, word_dim=7)
        for model in (self.a, self.b):
            source = encode.open_source(open_store(self.features), str(model))
            write_covariance(
                default_path(model), fit_covariance(source, CAPTIONS, GroundingOptions(), corpus="invented")
            )
        self.both = joined(path / "both.json", self.a, self.b)

    def given(self, model: Path) -> Resources:
        return Resources(features=str(self.features), model=str(model))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return Folder(tmp_path_factory.mktemp("ensembles"))


def columns(metric: Tiger | Reo) -> dict[str, FloatArray]:
    return metric.scores(metric.statistics(ITEMS, lambda _: None))


def test_every_tiger_column_follows_from_the_mean_vectors(folder: Folder) -> None:
    parts = [Tiger(folder.given(model)) for model in (folder.a, folder.b)]
    found = columns(Tiger(folder.given(folder.both)))
    assert not np.allclose(found["tiger"], columns(parts[0])["tiger"], atol=1e-3)
    for i in (0, 7, 13, 29):
        item = ITEMS[i]
        texts = [item.candidate, *item.references]
        single = [part.grounding(item.image, texts, part.encode(texts)) for part in parts]
        mean = {text: (single[0][text] + single[1][text]) / 2 for text in texts}
        candidate, reference = mean[item.candidate], np.mean([mean[text] for text in item.references], axis=0)
        wanted = {"rrs": rrs(candidate, reference), "wds": wds(candidate, reference), "grounding": candidate.mean()}
        for column, value in wanted.items():
            assert found[column][i] == pytest.approx(value, abs=1e-6), column


@pytest.mark.parametrize("options", [{}, {"covariance": "identity", "count_ends": False}])
def test_reo_is_the_mean_of_the_networks_scores(options: dict[str, object], folder: Folder) -> None:
    models = (folder.a, folder.b, folder.both)
    a, b, both = (columns(Reo(folder.given(model), **options)) for model in models)
    for column, values in both.items():
        np.testing.assert_allclose(values, (a[column] + b[column]) / 2, rtol=1e-12, err_msg=column)


def test_attention_that_differs_must_be_given(folder: Folder) -> None:
    other = network(folder.path / "other.safetensors", 3, lambda_softmax=4.0)
    mixed = folder.given(joined(folder.path / "mixed.json", folder.a, other))
    with raises(ModelError, "mismatch"):
        Tiger(mixed)
    assert "|lambda:9|" in Tiger(mixed, lambda_softmax=9).signature()

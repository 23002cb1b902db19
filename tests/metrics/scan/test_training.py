from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from capbench.core.errors import ModelError, UsageError
from capbench.core.records import Item
from capbench.core.training_record import training_overlap
from capbench.features.records import Fingerprint, RegionFeatures
from capbench.features.writing import StoreWriter
from capbench.metrics.scan.files import load_scan
from capbench.metrics.scan.train import ScanTask
from capbench.training import matching
from capbench.training.trainer import Measurement, Trained, train
from capbench.weights.training_files import read_training_record
from tests.errors import raises
from tests.training.interruptions import check_stopped, signal_at, train_command
from tests.training.world import StopAfter, log_of, make_world, settings


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("world"))


def trained(world: Path, run: Path, **changes: Any) -> Trained:
    return train(ScanTask, settings(world, **changes), run)


def test_training_finds_images_for_captions(world: Path, tmp_path: Path) -> None:
    result = trained(world, tmp_path / "run", epochs=25, evaluation={"every": 50})
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


@pytest.mark.parametrize(("order", "parts"), [("captions", (1, 4)), ("rounds", (5, 7))])
def test_a_training_interrupted_anywhere_ends_with_the_same_file(
    world: Path, tmp_path: Path, order: str, parts: tuple[int, ...]
) -> None:
    whole = check_stopped(ScanTask, settings(world, order=order, epochs=3), tmp_path, parts)
    streamed = trained(world, tmp_path / "streamed", order=order, epochs=3, memory_mb=0)
    assert streamed.sha256 == whole.sha256
    assert trained(world, tmp_path / "other", order=order, epochs=3, seed=2).sha256 != whole.sha256


def test_a_killed_training_ends_with_the_same_weights_and_ctrl_c_exits_with_130(world: Path, tmp_path: Path) -> None:
    config = settings(world, epochs=30, evaluation={"every": 30}, checkpoint_seconds=0.001)
    run, command = tmp_path / "killed", train_command("scan", config, tmp_path / "tiny.yaml", tmp_path / "killed")
    assert signal_at(command, run, 10)[0] == -signal.SIGKILL
    code, err = signal_at(command, run, 25, signal.SIGINT)
    assert code == 130
    assert "run the same command again" in err
    assert "already done" in err
    assert train(ScanTask, config, run).sha256 == train(ScanTask, config, tmp_path / "whole").sha256
    assert log_of(run) == log_of(tmp_path / "whole")


def test_a_model_is_measured_as_in_its_training(world: Path, tmp_path: Path) -> None:
    result = trained(world, tmp_path / "run", epochs=6)
    assert result.model is not None
    measured = ScanTask.measure(settings(world), result.model, Measurement("dev"))
    assert {
        key: measured[key] for key in result.chosen if key not in ("step", "epoch")
    }.items() <= result.chosen.items()
    assert ScanTask.measure(settings(world), result.model, Measurement("dev", images=4, folds=2))["images"] == 4
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
    monkeypatch.setattr(matching, "retrieval", lambda matrix, *_: found.append(matrix))
    paused: list[int] = []
    matching.recalls(task.model, task.dev, torch.device("cpu"), 1, paused.append)
    assert paused == [5, 5, 4]
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

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from capbench.core.errors import ModelError, UsageError
from capbench.core.records import Item
from capbench.core.training_record import training_overlap
from capbench.metrics.scan.files import load_scan
from capbench.metrics.scan.train import train_scan
from capbench.training import matching_task
from capbench.training.captions import SplitOptions, open_captions
from capbench.training.loop import WeightAverage
from capbench.training.matching_task import evaluate_words, hinge_loss, info_nce, similarity_matrix_of_words
from capbench.training.prepare import open_regions
from capbench.weights.training_files import read_training_record
from tests.errors import raises
from tests.training.world import StopAfter, log_of, make_world, settings


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("world"))


def _weights(run: Path) -> dict[str, torch.Tensor]:
    return dict(load_scan(run / "model.safetensors").network.state_dict())


def test_training_finds_images_for_captions(world: Path, tmp_path: Path) -> None:
    result = train_scan(settings(world, epochs=25, evaluation={"every": 50}), tmp_path / "run")
    assert result.ended == "epochs"
    assert result.chosen is not None
    assert result.chosen["image_to_text"]["r@5"] > 80
    evaluations = [line for line in log_of(tmp_path / "run") if line["kind"] == "evaluation"]
    assert evaluations[-1]["recall_sum"] > evaluations[0]["recall_sum"]
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


def test_two_trainings_are_the_same_file_and_another_seed_is_not(world: Path, tmp_path: Path) -> None:
    first, second = (train_scan(settings(world), tmp_path / name) for name in ("a", "b"))
    assert first.sha256 == second.sha256
    assert log_of(tmp_path / "a") == log_of(tmp_path / "b")
    assert train_scan(settings(world, seed=2), tmp_path / "c").sha256 != first.sha256


def test_features_read_from_disk_give_the_same_model(world: Path, tmp_path: Path) -> None:
    held = train_scan(settings(world), tmp_path / "held")
    assert train_scan(settings(world, memory_mb=0), tmp_path / "streamed").sha256 == held.sha256


def test_a_loss_that_is_no_number_stops_and_writes_nothing(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = info_nce, [0]

    def diverges(scores: torch.Tensor, temperature: float) -> torch.Tensor:
        calls[0] += 1
        return real(scores, temperature) * (math.nan if calls[0] == 8 else 1.0)

    monkeypatch.setattr(matching_task, "info_nce", diverges)
    with raises(ModelError, "not-converged", path=tmp_path / "run") as caught:
        train_scan(settings(world), tmp_path / "run")
    assert "step 8" in str(caught.value)
    assert not (tmp_path / "run/model.safetensors").exists()
    assert torch.load(tmp_path / "run/checkpoint.pt", weights_only=True)["step"] == 5
    monkeypatch.setattr(matching_task, "info_nce", real)
    resumed = train_scan(settings(world), tmp_path / "run")
    assert resumed.sha256 == train_scan(settings(world), tmp_path / "whole").sha256


def test_a_gradient_that_is_no_number_never_reaches_the_weights(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = info_nce, [0]

    def breaks(scores: torch.Tensor, temperature: float) -> torch.Tensor:
        calls[0] += 1
        # The square root of zero: a value with an infinite slope.
        extra = (scores * 0).sum().sqrt() if calls[0] == 3 else 0
        return real(scores, temperature) + extra

    monkeypatch.setattr(matching_task, "info_nce", breaks)
    with raises(ModelError, "not-converged", path=tmp_path / "run") as caught:
        train_scan(settings(world, optimiser={"clip": None}), tmp_path / "run")
    assert "step 3" in str(caught.value)
    assert not (tmp_path / "run/model.safetensors").exists()


def test_training_stops_when_recall_no_longer_rises(world: Path, tmp_path: Path) -> None:
    config = settings(world, epochs=500, evaluation={"every": 5, "patience": 2}, optimiser={"lr": 1e-9})
    result = train_scan(config, tmp_path / "run")
    assert result.ended == "patience"
    evaluations = [line for line in log_of(tmp_path / "run") if line["kind"] == "evaluation"]
    sums = [line["recall_sum"] for line in evaluations]
    best = sums.index(max(sums))
    assert len(sums) == best + 3
    assert result.chosen is not None
    assert result.chosen["step"] == evaluations[best]["step"]


def test_best_and_last_weights(world: Path, tmp_path: Path) -> None:
    config = settings(world, epochs=6)
    best = train_scan(config, tmp_path / "best")
    last = train_scan(settings(world, epochs=6, select="last"), tmp_path / "last")
    evaluations = [line for line in log_of(tmp_path / "best") if line["kind"] == "evaluation"]
    top = max(evaluations, key=lambda line: line["recall_sum"])
    assert best.chosen is not None
    assert last.chosen is not None
    assert (best.chosen["step"], last.chosen["step"]) == (top["step"], last.step)
    for result in (best, last):
        assert result.model is not None
        assert result.chosen is not None
        measured = evaluate_words(config, load_scan(result.model), "dev")
        assert measured.to_dict().items() <= result.chosen.items()


def test_averaged_weights_are_the_running_average(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, torch.Tensor]] = []
    real = WeightAverage.update

    def spy(self: WeightAverage[Any], network: torch.nn.Module, step: int) -> None:
        if not seen:
            seen.append({k: v.clone() for k, v in self.network.state_dict().items()})
        seen.append({k: v.clone() for k, v in network.state_dict().items()})
        real(self, network, step)

    monkeypatch.setattr(WeightAverage, "update", spy)
    for warmup in (False, True, "unbiased"):
        seen.clear()
        config = settings(world, ema=0.9, ema_warmup=warmup, max_steps=5, select="last")
        train_scan(config, tmp_path / f"run{warmup}")
        wanted = {k: v.double() for k, v in seen[0].items()}
        for step, weights in enumerate(seen[1:]):
            decay = min(0.9, (1 + step) / (10 + step)) if warmup is True else 0.9
            if warmup == "unbiased":  # 0.9^age, and nothing of the weights before the first step
                decay = sum(0.9**age for age in range(1, step + 1)) / sum(0.9**age for age in range(step + 1))
            wanted = {k: decay * v + (1 - decay) * weights[k].double() for k, v in wanted.items()}
        for name, tensor in _weights(tmp_path / f"run{warmup}").items():
            torch.testing.assert_close(tensor.double(), wanted[name], rtol=1e-5, atol=1e-6)


def test_learning_rate_falls_by_epoch_and_rises_at_the_start(world: Path, tmp_path: Path) -> None:
    config = settings(world, epochs=4, log_every=1, optimiser={"lr": 0.01, "lr_update": 2, "warmup": 4})
    train_scan(config, tmp_path / "run")
    rates = [line["lr"] for line in log_of(tmp_path / "run") if line["kind"] == "step"]
    half = len(rates) // 2
    assert rates == pytest.approx([0.0025, 0.005, 0.0075, 0.01, *[0.01] * (half - 4), *[0.001] * half])


def test_a_hinge_turns_to_hardest_negatives_when_asked(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, seen = hinge_loss, []

    def spy(scores: torch.Tensor, margin: float, hardest: bool, reduction: Any) -> torch.Tensor:
        seen.append((margin, hardest, reduction))
        return real(scores, margin, hardest, reduction)

    monkeypatch.setattr(matching_task, "hinge_loss", spy)
    loss = {"kind": "hinge", "margin": 0.3, "hardest": True, "hardest_after": 2, "reduction": "mean"}
    train_scan(settings(world, loss=loss, max_steps=4), tmp_path / "run")
    assert seen == [(0.3, False, "mean")] * 2 + [(0.3, True, "mean")] * 2


def test_the_users_random_numbers_and_threads_are_left_alone(world: Path, tmp_path: Path) -> None:
    torch.manual_seed(3)
    wanted = torch.rand(2)
    torch.manual_seed(3)
    threads = torch.get_num_threads()
    train_scan(settings(world, threads=threads + 1, epochs=1), tmp_path / "run")
    assert torch.equal(torch.rand(2), wanted)
    assert torch.get_num_threads() == threads


def test_similarities_block_by_block_are_those_one_by_one(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matching_task, "IMAGES", 4)
    monkeypatch.setattr(matching_task, "CAPTIONS", 5)
    train_scan(settings(world, epochs=1), tmp_path / "run")
    model = load_scan(tmp_path / "run/model.safetensors")
    pairs = open_captions(str(world / "world.json"), SplitOptions(), "world.h5", None).pairs("dev")
    regions = open_regions(pairs, world / "world.h5", None, 10)
    ids = [model.vocabulary.encode(text) for text in pairs.captions]
    done: list[int] = []
    found = similarity_matrix_of_words(model.network, regions, ids, progress=done.append)
    assert sum(done) == len(ids)
    with torch.inference_mode():
        for i in range(len(pairs.images)):
            image = model.network.encode_images(regions.take([i]))
            for j, caption in enumerate(ids):
                length = torch.tensor([len(caption)])
                words = model.network.encode_captions(torch.tensor([caption]), length)
                assert found[i, j] == pytest.approx(float(model.network.similarities(image, words, length)), abs=1e-5)


def test_features_of_another_fingerprint_are_refused_for_evaluation(world: Path, tmp_path: Path) -> None:
    train_scan(settings(world, epochs=1), tmp_path / "run")
    from capbench.features.records import Fingerprint, RegionFeatures
    from capbench.features.writing import StoreWriter

    with StoreWriter(tmp_path / "other.h5", Fingerprint("other", "unknown", "unknown", "unknown")) as writer:
        for i in range(6):
            writer.add(RegionFeatures(f"test{i:02d}", 0, 0, None, np.ones((3, 8), dtype=np.float32)))
        writer.finish()
    config = settings(world, features=str(tmp_path / "other.h5"))
    with raises(ModelError, "wrong-features", path=tmp_path / "run/model.safetensors"):
        evaluate_words(config, load_scan(tmp_path / "run/model.safetensors"), "test")


def test_captions_and_arrays_of_the_original_code_train_too(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for split, n in (("train", 6), ("dev", 4)):
        texts = [f"a thing {i} of kind {i % 3}" for i in range(5 * n)]
        (tmp_path / f"{split}_caps.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
        np.save(tmp_path / f"{split}_ims.npy", rng.normal(size=(n, 3, 7)).astype(np.float32))
    config = settings(tmp_path, captions=str(tmp_path), features="ims", epochs=1)
    result = train_scan(config, tmp_path / "run")
    assert result.chosen is not None
    assert (result.chosen["images"], result.chosen["captions"]) == (4, 20)
    model = load_scan(result.model or "")
    assert (model.options.image_dim, model.features) == (7, None)
    dev = np.load(tmp_path / "dev_ims.npy")
    np.save(tmp_path / "train_ims.npy", rng.normal(size=(6, 3, 7)).astype(np.float32))
    assert len(dev) == 4
    with raises(UsageError, "conflict", path=tmp_path / "run", value="features"):
        train_scan(config, tmp_path / "run")


@pytest.mark.gpu
def test_training_on_a_gpu_learns_and_goes_on(world: Path, tmp_path: Path) -> None:
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    for precision in ("float32", "bfloat16", "amp-bfloat16"):
        config = settings(world, device="cuda", precision=precision, epochs=25, evaluation={"every": 50})
        stop = StopAfter(30)
        run = tmp_path / precision
        assert train_scan(config, run, stop=stop, watcher=stop.watcher).ended == "interrupted"
        result = train_scan(config, run)
        assert result.chosen is not None
        assert result.chosen["image_to_text"]["r@5"] > 80
        on_cpu = evaluate_words(config, load_scan(run / "model.safetensors"), "dev")
        assert on_cpu.recall_sum == pytest.approx(result.chosen["recall_sum"], abs=40)


def test_mixed_precision_needs_a_gpu(world: Path, tmp_path: Path) -> None:
    with raises(ModelError, "unsupported", value="amp-bfloat16"):
        train_scan(settings(world, precision="amp-bfloat16"), tmp_path / "run")

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from capbench.core import files
from capbench.core.errors import DataError, ModelError, UsageError
from capbench.training.trainer import average_of, prefetch, train, update_average
from capbench.weights.checkpoints import read_checkpoint
from tests.errors import raises
from tests.training.interruptions import check_stopped
from tests.training.toy import Points, Toy, settings
from tests.training.world import log_of


@pytest.mark.parametrize(("width", "select"), [(4, "last"), (5, "best")])  # 5: batches are made by a thread
def test_a_training_interrupted_anywhere_ends_with_the_same_file(tmp_path: Path, width: int, select: str) -> None:
    chosen = settings(width=width, select=select, evaluation={"every": 3})
    whole = check_stopped(Toy, chosen, tmp_path, (1, 3, 7))
    assert (whole.ended, whole.step, whole.epoch) == ("epochs", 20, 4)


@pytest.mark.parametrize("kept", [0, 13])  # checkpoints after every step, or at the last evaluation
def test_a_killed_run_goes_on_from_its_last_checkpoint(tmp_path: Path, kept: int) -> None:
    class Killed(Toy):
        def loss(self, batch: Points, step: int) -> Tensor:
            if step == 13:
                raise KeyboardInterrupt
            return super().loss(batch, step)

    chosen = settings(checkpoint_seconds=300 if kept else 1e-9)
    with pytest.raises(KeyboardInterrupt):
        train(Killed, chosen, tmp_path / "run")
    assert torch.load(tmp_path / "run/checkpoint.pt", weights_only=True)["step"] == (10 if kept else 13)
    with open(tmp_path / "run/log.jsonl", "a") as log:
        log.write('{"kind": "step", "step": 14}\n{"kind": "st')
    (tmp_path / "run/.model.safetensors.77.part").touch()
    assert train(Toy, chosen, tmp_path / "run").sha256 == train(Toy, chosen, tmp_path / "whole").sha256
    assert log_of(tmp_path / "run") == log_of(tmp_path / "whole")
    assert not list((tmp_path / "run").glob(".*.part"))


def test_the_best_weights_by_the_tasks_own_score_are_saved(tmp_path: Path) -> None:
    scores, seen = [0.2, 0.7, 0.7, 0.1], []

    class Scored(Toy):
        def validate(self, model: nn.Sequential, pause: Any) -> dict[str, Any]:
            seen.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
            return {"accuracy": scores[len(seen) - 1]}

    result = train(Scored, settings(), tmp_path / "run")
    assert result.chosen == {"step": 10, "epoch": 2, "accuracy": 0.7}
    for name, tensor in read_checkpoint(result.model or "").tensors.items():
        assert torch.equal(tensor, seen[1][name])


def test_patience_counts_evaluations_without_a_better_score(tmp_path: Path) -> None:
    class Level(Toy):
        def validate(self, model: nn.Sequential, pause: Any) -> dict[str, Any]:
            return {"accuracy": 0.5}

    result = train(Level, settings(evaluation={"every": 2, "patience": 3}), tmp_path / "run")
    assert (result.ended, result.step) == ("patience", 8)


@pytest.mark.parametrize("broken", ["loss", "gradient", "score"])
def test_what_is_no_number_stops_the_run_and_never_reaches_the_weights(tmp_path: Path, broken: str) -> None:
    class Diverging(Toy):
        def loss(self, batch: Points, step: int) -> Tensor:
            loss = super().loss(batch, step)
            if step != 7 or broken == "score":
                return loss
            return loss * float("nan") if broken == "loss" else loss + (loss * 0).sqrt()  # an infinite slope

        def validate(self, model: nn.Sequential, pause: Any) -> dict[str, Any]:
            return {"accuracy": float("nan")} if broken == "score" else super().validate(model, pause)

    chosen = settings(optimiser={"clip": None}, evaluation={"every": 8})
    with raises(ModelError, "not-converged", path=tmp_path / "run") as caught:
        train(Diverging, chosen, tmp_path / "run")
    assert "step 8" in caught.value.message
    assert not (tmp_path / "run/model.safetensors").exists()
    assert train(Toy, chosen, tmp_path / "run").sha256 == train(Toy, chosen, tmp_path / "whole").sha256


def test_gradients_are_clipped_and_the_learning_rate_is_the_schedules(tmp_path: Path) -> None:
    norms: list[float] = []
    rates: list[float] = []

    class Steep(Toy):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            real = self.optimiser.step

            def step(*arguments: Any) -> Any:
                gradients = [weight.grad.flatten() for weight in self.model.parameters() if weight.grad is not None]
                norms.append(float(torch.cat(gradients).norm()))
                rates.extend(group["lr"] for group in self.optimiser.param_groups)
                return real(*arguments)

            self.optimiser.step = step  # type: ignore[method-assign, assignment]

        def loss(self, batch: Points, step: int) -> Tensor:
            return 100 * super().loss(batch, step)

    chosen = settings(optimiser={"lr": 0.02, "lr_update": 2, "warmup": 4, "clip": 0.5}, log_every=1)
    train(Steep, chosen, tmp_path / "run")
    assert norms == pytest.approx([0.5] * 20, rel=1e-4)
    wanted = [0.005, 0.01, 0.015, *[0.02] * 7, *[0.002] * 10]
    assert rates == pytest.approx(wanted)
    assert [line["lr"] for line in log_of(tmp_path / "run") if line["kind"] == "step"] == pytest.approx(wanted)


def test_the_average_weights_steps_by_age_and_copies_buffers() -> None:
    network = nn.Sequential(nn.Linear(33, 17), nn.BatchNorm1d(17), nn.Linear(17, 1))
    average, steps = average_of(network), []
    for step in range(5):
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.normal_()
        network[1].running_mean.fill_(step)  # type: ignore[operator]
        steps.append([parameter.detach().clone().double() for parameter in network.parameters()])
        update_average(average, network, 0.9, step)
    ages = [0.9**age for age in range(5)]
    for place, found in enumerate(average.parameters()):
        wanted = sum(weight * steps[4 - age][place] for age, weight in enumerate(ages)) / sum(ages)
        torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-6)
        assert not found.requires_grad
    assert average.state_dict()["1.running_mean"].unique().item() == 4


def test_a_folder_is_for_one_run_of_one_setting_and_one_data_set(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(Toy, settings(), run)
    with raises(UsageError, "conflict", path=run, value="width"):
        train(Toy, settings(width=6), run)

    class Moved(Toy):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.data = {"points": "others"}

    with raises(UsageError, "conflict", path=run, value="points"):
        train(Moved, settings(), run)
    assert train(Toy, settings(width=6), run, restart=True).ended == "epochs"
    assert train(Toy, settings(width=6, log_every=7, name="renamed"), run).ended == "epochs"
    with files.lock(run / "run"), raises(UsageError, "in-use"):
        train(Toy, settings(width=6), run)


@pytest.mark.parametrize("content", [b"torn", None, {"step": 3, "format": 1}])
def test_a_checkpoint_that_cannot_be_used_is_an_error(tmp_path: Path, content: Any) -> None:
    train(Toy, settings(), tmp_path)
    checkpoint = tmp_path / "checkpoint.pt"
    checkpoint.unlink()
    if isinstance(content, dict):
        torch.save(content, checkpoint)
    elif content is not None:
        checkpoint.write_bytes(content)
    with raises(ModelError, "damaged", path=checkpoint):
        train(Toy, settings(), tmp_path)


def test_prefetching_changes_nothing_hands_errors_on_and_ends_with_its_reader() -> None:
    assert list(prefetch(iter(range(1, 50)))) == list(range(1, 50))

    def broken() -> Iterator[int]:
        yield 1
        raise DataError("cannot be read", code="unreadable", path="captions.txt")

    items = prefetch(broken())
    assert next(items) == 1
    with raises(DataError, "unreadable", path="captions.txt"):
        next(items)
    before, endless = threading.active_count(), prefetch(iter(range(1, 10**9)))
    assert next(endless) == 1
    endless.close()
    assert threading.active_count() == before

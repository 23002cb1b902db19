"""The training loop with a small network: interruption, selection, averaging and errors."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from capbench.core.errors import ModelError, StudyError, UsageError
from capbench.training.loop import WeightAverage, learning_rate, stop_on_signal
from capbench.weights.arrays import read_metadata
from capbench.weights.checkpoints import read_checkpoint
from tests.errors import raises
from tests.training.interruptions import check_stopped
from tests.training.toy import Points, Toy, ToyTraining, settings, train_toy
from tests.training.world import log_of


@pytest.mark.parametrize(
    ("width", "select"),  # 5: batches are made by a thread
    [
        (4, "last"),
        (5, "best"),
        pytest.param(4, "best", marks=pytest.mark.slow),
        pytest.param(5, "last", marks=pytest.mark.slow),
    ],
)
def test_a_training_interrupted_anywhere_ends_with_the_same_file(tmp_path: Path, width: int, select: str) -> None:
    chosen = settings(width=width, select=select, evaluation={"every": 3})
    whole = check_stopped(train_toy, chosen, tmp_path, (1, 3, 7))
    assert (whole.ended, whole.step, whole.epoch) == ("epochs", 20, 4)


def test_a_killed_run_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    class KilledToy(Toy):
        def loss(self, batch: Points, step: int) -> Tensor:
            if step == 13:
                raise Killed
            return super().loss(batch, step)

    chosen = settings(checkpoint_every=4)
    with pytest.raises(Killed):
        train_toy(chosen, tmp_path / "run", task=KilledToy)
    assert torch.load(tmp_path / "run/checkpoint.pt", weights_only=True)["step"] == 12
    assert train_toy(chosen, tmp_path / "run").sha256 == train_toy(chosen, tmp_path / "whole").sha256
    assert log_of(tmp_path / "run") == log_of(tmp_path / "whole")


def test_the_model_holds_facts_of_its_training_and_no_times(tmp_path: Path) -> None:
    result = train_toy(settings(), tmp_path / "run")
    assert result.model is not None
    facts = json.loads((read_metadata(result.model) or {})["training"])
    assert facts.keys() == {"config", "data", "dev", "steps", "ended", "versions", "kind"}
    assert facts["config"]["width"] == 4
    assert facts["config"].keys().isdisjoint(ToyTraining.undeciding)
    assert facts["dev"] == result.chosen


def test_the_best_weights_by_the_tasks_own_score_are_saved(tmp_path: Path) -> None:
    scores = [0.2, 0.7, 0.7, 0.1]

    class Scored(Toy):
        def validate(self, model: nn.Sequential, pause: Any) -> dict[str, Any]:
            seen.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
            return {"accuracy": scores[len(seen) - 1]}

    seen: list[dict[str, Tensor]] = []
    result = train_toy(settings(), tmp_path / "run", task=Scored)
    assert result.chosen == {"step": 10, "epoch": 2, "accuracy": 0.7}
    assert result.model is not None
    for name, tensor in read_checkpoint(result.model).tensors.items():
        assert torch.equal(tensor, seen[1][name])


def test_patience_counts_evaluations_without_a_better_score(tmp_path: Path) -> None:
    class Level(Toy):
        def validate(self, model: nn.Sequential, pause: Any) -> dict[str, Any]:
            return {"accuracy": 0.5}

    result = train_toy(settings(evaluation={"every": 2, "patience": 3}), tmp_path / "run", task=Level)
    assert (result.ended, result.step) == ("patience", 8)


def test_a_nan_score_stops_the_run(tmp_path: Path) -> None:
    class Nameless(Toy):
        def validate(self, model: nn.Sequential, pause: Any) -> dict[str, Any]:
            return {"accuracy": float("nan")}

    with raises(ModelError, "not-converged", path=tmp_path / "run") as caught:
        train_toy(settings(), tmp_path / "run", task=Nameless)
    assert str(caught.value.value) == "nan"
    assert "step 5" in caught.value.message


def test_gradients_are_clipped_and_the_learning_rate_is_the_schedules(tmp_path: Path) -> None:
    norms: list[float] = []
    rates: list[float] = []

    class Steep(Toy):
        def __init__(self, chosen: ToyTraining) -> None:
            super().__init__(chosen)
            real = self.optimiser.step

            def step(*arguments: Any) -> Any:
                gradients = [weight.grad.flatten() for weight in self.model.parameters() if weight.grad is not None]
                norms.append(float(torch.cat(gradients).norm()))
                rates.extend(group["lr"] for group in self.optimiser.param_groups)
                return real(*arguments)

            self.optimiser.step = step  # type: ignore[method-assign, assignment]

        def loss(self, batch: Points, step: int) -> Tensor:
            return 100 * super().loss(batch, step)

    chosen = settings(optimiser={"lr": 0.02, "lr_update": 2, "warmup": 4, "clip": 0.5})
    train_toy(chosen, tmp_path / "run", task=Steep)
    assert norms == pytest.approx([0.5] * 20, rel=1e-4)
    wanted = [0.005, 0.01, 0.015, *[0.02] * 7, *[0.002] * 10]
    assert rates == pytest.approx(wanted)
    assert [learning_rate(chosen, 5, step) for step in range(20)] == pytest.approx(wanted)


def test_an_average_takes_weights_by_decay_and_copies_the_rest() -> None:
    network = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1))
    average = WeightAverage(network, 0.75, warmup=False)
    first = network.state_dict()["0.weight"].clone()
    with torch.no_grad():
        network.state_dict()["0.weight"].add_(4)
        network.state_dict()["1.running_mean"].fill_(3)
    average.update(network, 0)
    state = average.network.state_dict()
    torch.testing.assert_close(state["0.weight"], first + 1)
    assert state["1.running_mean"].item() == 3
    assert not any(weight.requires_grad for weight in average.network.parameters())


def test_recurrent_weights_of_an_average_are_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    compacted: list[torch.nn.RNNBase] = []
    network = torch.nn.Sequential(torch.nn.GRU(2, 3), torch.nn.LSTM(3, 1))
    monkeypatch.setattr(torch.nn.RNNBase, "flatten_parameters", lambda layer: compacted.append(layer))
    average = WeightAverage(network, 0.75, warmup=False)
    assert compacted == list(average.network)


def test_a_folder_is_for_one_run_of_one_setting_and_one_data_set(tmp_path: Path) -> None:
    train_toy(settings(), tmp_path / "run")
    with raises(UsageError, "conflict", path=tmp_path / "run", value="width") as caught:
        train_toy(settings(width=6), tmp_path / "run")
    assert "--restart" in str(caught.value.hint)

    class Moved(Toy):
        def __init__(self, chosen: ToyTraining) -> None:
            super().__init__(chosen)
            self.data = {"points": "others"}

    with raises(UsageError, "conflict", path=tmp_path / "run", value="points"):
        train_toy(settings(), tmp_path / "run", task=Moved)
    assert train_toy(settings(width=6), tmp_path / "run", restart=True).ended == "epochs"
    assert train_toy(settings(width=6, log_every=7, name="renamed"), tmp_path / "run").ended == "epochs"


def test_memory_that_runs_out_names_what_to_lower(tmp_path: Path) -> None:
    class Large(Toy):
        def loss(self, batch: Points, step: int) -> Tensor:
            raise MemoryError

    with raises(UsageError, "out-of-memory", path=tmp_path / "run") as caught:
        train_toy(settings(), tmp_path / "run", task=Large)
    assert "'batch'" in str(caught.value.hint)


def test_settings_of_any_trainer_are_checked_in_one_style() -> None:
    with raises(StudyError, "wrong-value") as caught:
        settings(width=0, wdith=3, optimiser={"lr": "0.1", "kind": "sgd"}, ema_warmup="biased", threads=0)
    message = str(caught.value)
    for problem in (
        "width=0",
        "'wdith'",
        "optimiser.lr is the text '0.1'",
        "optimiser.kind=sgd",
        "ema_warmup=biased",
        "threads=0",
    ):
        assert problem in message
    assert settings(optimiser={"warmup": 3}).optimiser.lr == 0.05


def test_the_first_signal_asks_and_the_second_interrupts() -> None:
    said: list[str] = []
    before = signal.getsignal(signal.SIGINT)
    with stop_on_signal(said.append) as stop:
        assert not stop()
        os.kill(os.getpid(), signal.SIGINT)
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert len(said) == 1
    assert signal.getsignal(signal.SIGINT) is before


def test_outside_of_the_main_thread_signals_are_left_alone() -> None:
    asked: list[bool] = []

    def work() -> None:
        with stop_on_signal(lambda _text: None) as stop:
            asked.append(stop())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert asked == [False]

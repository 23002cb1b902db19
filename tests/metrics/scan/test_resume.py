from __future__ import annotations

import contextlib
import errno
import io
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from capbench.core import files
from capbench.core.errors import ModelError, UsageError
from capbench.metrics.scan.files import load_scan
from capbench.metrics.scan.train import train_scan
from capbench.training.loop import Watcher
from tests.errors import raises
from tests.training.interruptions import check_stopped, end, kill_at, train_command
from tests.training.world import StopAfter, log_of, make_world, settings


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.mark.parametrize(
    ("order", "parts"),
    [
        ("captions", (1, 4, 5, 7)),
        ("rounds", (4, 5)),
        pytest.param("rounds", (1, 7), marks=pytest.mark.slow),
    ],
)
def test_a_training_interrupted_anywhere_ends_with_the_same_file(
    world: Path, tmp_path: Path, order: str, parts: tuple[int, ...]
) -> None:
    config = settings(world, order=order, epochs=3)
    check_stopped(train_scan, config, tmp_path, parts)


def test_an_evaluation_that_was_interrupted_is_done_again(world: Path, tmp_path: Path) -> None:
    config = settings(world)
    whole = train_scan(config, tmp_path / "whole")

    class InEvaluation(Watcher):
        asked = 0

        def step(self) -> None:
            self.asked = 0

    watcher = InEvaluation()

    def stop() -> bool:
        # Once before each step; a second time only from within the evaluation after it.
        watcher.asked += 1
        return watcher.asked == 1 and len(log_of(tmp_path / "cut")) == 2  # steps 2 and 4 are logged, step 5 is done

    result = train_scan(config, tmp_path / "cut", stop=stop, watcher=watcher)
    assert result.ended == "interrupted"
    assert train_scan(config, tmp_path / "cut").sha256 == whole.sha256


def test_what_was_logged_after_the_checkpoint_is_cut_off(world: Path, tmp_path: Path) -> None:
    config = settings(world)
    whole = train_scan(config, tmp_path / "whole")
    stop = StopAfter(7)
    train_scan(config, tmp_path / "cut", stop=stop, watcher=stop.watcher)
    with open(tmp_path / "cut/log.jsonl", "a") as log:
        log.write('{"kind": "step", "step": 8}\n{"kind": "st')
    assert train_scan(config, tmp_path / "cut").sha256 == whole.sha256
    assert log_of(tmp_path / "cut") == log_of(tmp_path / "whole")


def test_a_killed_training_ends_with_the_same_weights(world: Path, tmp_path: Path) -> None:
    config = settings(world, epochs=60, evaluation={"every": 60}, checkpoint_every=7)
    whole = train_scan(config, tmp_path / "whole")
    rng = np.random.default_rng(int.from_bytes(os.urandom(4), "little"))
    run, kills = tmp_path / "killed", []
    command = train_command("scan", config, tmp_path / "tiny.yaml", run)
    for part in range(2):
        kill_at(command, run, int(rng.integers(10 + 60 * part, 60 + 60 * part)))  # at a random step of each half
        kills.append(len(log_of(run)))
    sha256, said = end(command)
    assert sha256 == whole.sha256, kills
    assert "already done" in said
    assert not list(run.glob(".*.part"))
    assert log_of(run) == log_of(tmp_path / "whole")


def test_ctrl_c_saves_a_checkpoint_and_says_how_to_go_on(world: Path, tmp_path: Path) -> None:
    config = settings(world, epochs=5000, evaluation={"every": 100000})
    run = tmp_path / "run"
    command = train_command("scan", config, tmp_path / "tiny.yaml", run)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + 240
        while not (run / "log.jsonl").exists() or not (run / "log.jsonl").stat().st_size:
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130
    assert out == ""
    assert "interrupted at step" in err
    assert "run the same command again" in err
    assert torch.load(run / "checkpoint.pt", weights_only=True)["step"] > 0


def test_a_finished_training_is_not_done_again(world: Path, tmp_path: Path) -> None:
    first = train_scan(settings(world), tmp_path / "run")
    before = (tmp_path / "run/model.safetensors").stat().st_mtime_ns
    again = train_scan(settings(world), tmp_path / "run")
    assert (again.sha256, again.step, again.chosen) == (first.sha256, first.step, first.chosen)
    assert (tmp_path / "run/model.safetensors").stat().st_mtime_ns == before
    (tmp_path / "run/model.safetensors").unlink()
    assert train_scan(settings(world), tmp_path / "run").sha256 == first.sha256


def test_a_folder_of_another_run_is_refused_and_keys_are_named(world: Path, tmp_path: Path) -> None:
    train_scan(settings(world, epochs=1), tmp_path / "run")
    kept = (tmp_path / "run/model.safetensors").read_bytes()
    other = settings(world, epochs=2, network={"embed_dim": 9, "word_dim": 6})
    with raises(UsageError, "conflict", path=tmp_path / "run", value="epochs") as caught:
        train_scan(other, tmp_path / "run")
    assert "epochs (1" in str(caught.value)
    assert "network.embed_dim (8" in str(caught.value)
    assert "--restart" in str(caught.value)
    assert (tmp_path / "run/model.safetensors").read_bytes() == kept
    train_scan(other, tmp_path / "run", restart=True)
    assert load_scan(tmp_path / "run/model.safetensors").options.embed_dim == 9


def test_a_folder_of_a_run_on_other_data_is_refused(world: Path, tmp_path: Path) -> None:
    train_scan(settings(world, epochs=1), tmp_path / "run")
    other = make_world(tmp_path / "other", seed=6)
    with raises(UsageError, "conflict", path=tmp_path / "run", value="captions") as caught:
        train_scan(settings(other, epochs=1), tmp_path / "run")
    assert "captions, dev captions, vocabulary" in str(caught.value)
    moved = make_world(tmp_path / "moved")
    assert train_scan(settings(moved, epochs=1), tmp_path / "run").ended == "epochs"


def test_a_second_run_in_a_folder_is_refused(world: Path, tmp_path: Path) -> None:
    with (
        files.lock(tmp_path / "run" / "run"),
        raises(UsageError, "in-use", path=tmp_path / "run"),
    ):
        train_scan(settings(world), tmp_path / "run")


def test_a_full_disk_keeps_the_checkpoint_before(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = StopAfter(3)
    train_scan(settings(world), tmp_path / "run", stop=stop, watcher=stop.watcher)
    before = (tmp_path / "run/checkpoint.pt").read_bytes()
    real = files.atomic_write

    @contextlib.contextmanager
    def full(path: Path, mode: str = "w") -> Iterator[Any]:
        with real(path, mode) as stream:

            class Full(io.RawIOBase):
                def writable(self) -> bool:
                    return True

                def write(self, data: Any) -> int:
                    if stream.tell() > 2000:
                        raise OSError(errno.ENOSPC, "No space left on device")
                    return int(stream.write(data))

            yield Full()

    monkeypatch.setattr(files, "atomic_write", full)
    with raises(UsageError, "unwritable", path=tmp_path / "run/checkpoint.pt"):
        train_scan(settings(world), tmp_path / "run")
    monkeypatch.undo()
    assert (tmp_path / "run/checkpoint.pt").read_bytes() == before
    resumed = train_scan(settings(world), tmp_path / "run")
    assert resumed.sha256 == train_scan(settings(world), tmp_path / "whole").sha256


def test_a_damaged_checkpoint_is_refused(world: Path, tmp_path: Path) -> None:
    stop = StopAfter(3)
    train_scan(settings(world), tmp_path / "run", stop=stop, watcher=stop.watcher)
    checkpoint = tmp_path / "run/checkpoint.pt"
    checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
    with raises(ModelError, "damaged", path=checkpoint) as caught:
        train_scan(settings(world), tmp_path / "run")
    assert "--restart" in str(caught.value)
    (tmp_path / "run/run.json").unlink()
    with raises(ModelError, "missing-file", path=tmp_path / "run", value="checkpoint.pt"):
        train_scan(settings(world), tmp_path / "run")

"""Trainings that are stopped or killed and resumed: the result equals that of an uninterrupted one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from capbench.training.loop import TrainingResult
from capbench.training.settings import Training
from tests.training.world import StopAfter, log_of

__all__ = ["check_stopped", "end", "kill_at", "train_command"]


def check_stopped(
    train: Callable[..., TrainingResult], config: Any, folder: Path, every: Sequence[int]
) -> TrainingResult:
    """A training that stops every so many steps ends with the file and the log of an uninterrupted one.

    Returns the result of the latter, which is in the folder ``whole``.
    """
    whole = train(config, folder / "whole")
    for steps in every:
        run, parts = folder / f"by{steps}", 0
        while True:
            stop = StopAfter(steps)
            result = train(config, run, stop=stop, watcher=stop.watcher)
            parts += 1
            if result.model is not None:
                break
            assert not (run / "model.safetensors").exists()
        assert parts >= whole.step // steps
        assert (run / "model.safetensors").read_bytes() == (folder / "whole/model.safetensors").read_bytes()
        assert log_of(run) == log_of(folder / "whole")
    return whole


def train_command(network: str, config: Training, file: Path, run: Path) -> list[str]:
    """The command that trains a network with a training file, which is written first."""
    file.write_text(yaml.safe_dump(config.to_dict()), encoding="utf-8")
    return [sys.executable, "-m", "capbench", "train", network, str(file), "--out", str(run), "--json"]


def kill_at(command: list[str], run: Path, lines: int) -> None:
    """Start or resume a training, and kill it when its log has the given number of lines."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    log = run / "log.jsonl"
    try:
        until = time.monotonic() + 240
        while process.poll() is None and time.monotonic() < until:
            if log.exists() and log.read_bytes().count(b"\n") >= lines:
                break
            time.sleep(0.001)
        assert process.poll() is None, process.stderr.read().decode() if process.stderr else ""
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert not (run / "model.safetensors").exists()


def end(command: list[str]) -> tuple[str, str]:
    """Let a training finish. Returns the SHA-256 of its model, and its stderr."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    sha256: str = json.loads(done.stdout)["sha256"]
    return sha256, done.stderr

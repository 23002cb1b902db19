from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from capbench.datasets.root import DataRoot
from capbench.training.settings import Training
from capbench.training.trainer import Task, Trained, train
from tests.training.world import StopAfter, log_of


def check_stopped(
    task: type[Task[Any, Any]], config: Training, folder: Path, every: Sequence[int], root: DataRoot | None = None
) -> Trained:
    whole = train(task, config, folder / "whole", root)
    for steps in every:
        run, parts = folder / f"by{steps}", 1
        while train(task, config, run, root, watcher=StopAfter(steps)).model is None:
            parts += 1
            assert not (run / "model.safetensors").exists()
        assert parts >= whole.step // steps
        assert (run / "model.safetensors").read_bytes() == (folder / "whole/model.safetensors").read_bytes()
        assert log_of(run) == log_of(folder / "whole")
    return whole


def train_command(network: str, config: Training, file: Path, run: Path) -> list[str]:
    file.write_text(yaml.safe_dump(config.to_dict()), encoding="utf-8")
    return [sys.executable, "-m", "capbench", "train", network, str(file), "--out", str(run), "--json"]


def signal_at(command: list[str], run: Path, lines: int, number: signal.Signals = signal.SIGKILL) -> tuple[int, str]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    log = run / "log.jsonl"
    until = time.monotonic() + 240
    while process.poll() is None and time.monotonic() < until:
        if log.exists() and log.read_bytes().count(b"\n") >= lines:
            break
        time.sleep(0.001)
    process.send_signal(number)
    _, err = process.communicate(timeout=120)
    assert not (run / "model.safetensors").exists(), err
    return process.returncode, err

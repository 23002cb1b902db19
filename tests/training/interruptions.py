from __future__ import annotations

import subprocess
import sys
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


# A training that kills itself, and goes on in the process that started it; both use the same imports.
STOPPED = """
import os, signal, sys
import nltk
import torch._dynamo  # which the first optimiser imports
from capbench.cli.app import main
from capbench.metrics.scan.train import ScanTask

child, loss = os.fork(), ScanTask.loss
number, at = (signal.SIGINT, 25) if child else (signal.SIGKILL, 10)

def stopped(self, batch, step):
    if step == at:
        os.kill(os.getpid(), number)
    return loss(self, batch, step)

ScanTask.loss = stopped
if child:
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
main()
"""


def stopped(config: Training, folder: Path, run: Path) -> subprocess.CompletedProcess[str]:
    """``capbench train scan``, killed at step 10 and started again, and interrupted at step 25."""
    (folder / "tiny.yaml").write_text(yaml.safe_dump(config.to_dict()), encoding="utf-8")
    command = [sys.executable, "-c", STOPPED, "train", "scan", str(folder / "tiny.yaml"), "--out", str(run)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)

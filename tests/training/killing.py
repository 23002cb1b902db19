"""Trainings at the command line that are killed, and go on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import yaml

from capbench.training.settings import Training

__all__ = ["end", "kill_at", "train_command"]


def train_command(network: str, config: Training, file: Path, run: Path) -> list[str]:
    """The command that trains a network, by a training file that is written first."""
    file.write_text(yaml.safe_dump(config.to_dict()), encoding="utf-8")
    return [sys.executable, "-m", "capbench", "train", network, str(file), "--out", str(run), "--json"]


def kill_at(command: list[str], run: Path, lines: int) -> None:
    """Begin a training, or go on, and kill it once its log has so many lines."""
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
    """Let a training end. Returns the SHA-256 of its model, and what it said."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    sha256: str = json.loads(done.stdout)["sha256"]
    return sha256, done.stderr

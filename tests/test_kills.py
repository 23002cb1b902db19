"""What is killed at any moment leaves nothing half-written that is taken for whole, and the same command ends it.

Two runs of one command on the same files both end well, or the second says in one line why not.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from capbench.features.maintenance import verify_store
from capbench.features.store import open_store
from tests.features.fakes import pictures

# Runs 'capbench doctor --install spice' on other files than the published ones, which have 380 MB.
SETUP = """
import hashlib, sys
from pathlib import Path
from capbench.cli.app import main
from capbench.text.spice import parser as files

source = Path(sys.argv[1])
files.SPICE_FILES = tuple(
    files.PinnedFile(f"org/example/{name}", (source / name).stat().st_size, files.sha256_file(source / name))
    for name in ("a-1.jar", "a-1-models.jar", "b-1.jar")
)
sys.argv = ["capbench", "doctor", "--install", "spice", "--from", str(source)]
print("ready", flush=True)
main()
"""
SIZES = {"a-1.jar": 3_000_000, "a-1-models.jar": 20_000_000, "b-1.jar": 500_000}


def _kill_at(arguments: Sequence[str], begun: Callable[[], bool], wait_s: float) -> int:
    """Start a command, kill it some time after its work has begun; gives its exit code (negative: killed)."""
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + 300
        while process.poll() is None and not begun() and time.monotonic() < until:
            time.sleep(0.001)
        time.sleep(wait_s)
    finally:
        process.kill()
        _, errors = process.communicate()
    assert "Traceback" not in errors, errors
    return process.returncode


def test_kills_of_setup_leave_no_half_file(tmp_path: Path) -> None:
    source, cache = tmp_path / "stick", Path(os.environ["CAPBENCH_CACHE"])
    source.mkdir()
    rng = np.random.default_rng(int.from_bytes(os.urandom(4), "little"))
    contents = {name: rng.bytes(size) for name, size in SIZES.items()}
    for name, content in contents.items():
        (source / name).write_bytes(content)
    arguments = [sys.executable, "-c", SETUP, str(source)]
    folder = cache / "spice-parser"
    begin = time.monotonic()
    calm = subprocess.run(arguments, capture_output=True, text=True, check=True)
    length = time.monotonic() - begin
    assert "added a-1.jar\nadded a-1-models.jar\nadded b-1.jar\n" in calm.stdout
    shutil.rmtree(folder)
    killed = []
    for kill in range(4):
        # Every other time at any moment of the whole run, else of the part in which files are written.
        begun = (lambda: True) if kill % 2 else lambda: any(folder.glob("*.part"))
        # The first one at once, so that one at least meets a run under way, however quick the machine is.
        longest = 0.0 if kill == 0 else length if kill % 2 else length / 4
        killed.append(_kill_at(arguments, begun, float(rng.uniform(0, longest))) < 0)
        there = {path.name for path in folder.glob("*.jar")}
        for name in there:  # whatever has its name is whole
            assert (folder / name).read_bytes() == contents[name]
        if there == set(contents):
            shutil.rmtree(folder)
    assert any(killed), "no kill met a run that was under way"
    again = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert "SPICE's parser is ready" in again.stdout
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".lock"} == contents


@pytest.mark.slow
@pytest.mark.timeout(3600)  # most of it is the start of PyTorch
def test_kills_of_a_training_change_no_byte(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    pytest.importorskip("torch")
    from capbench.metrics.scan.train import ScanTask
    from capbench.training.trainer import train
    from tests.training.world import log_of, make_world, settings

    config = settings(make_world(tmp_path / "world"), epochs=40, evaluation={"every": 40}, checkpoint_seconds=0.01)
    calm = train(ScanTask, config, tmp_path / "calm")
    file, run = tmp_path / "tiny.yaml", tmp_path / "killed"
    file.write_text(yaml.safe_dump(config.to_dict()))
    arguments = [sys.executable, "-m", "capbench", "train", "scan", str(file), "--out", str(run)]
    rng = np.random.default_rng(int.from_bytes(os.urandom(4), "little"))
    steps = []
    for kill in range(20):
        log = run / "log.jsonl"
        before = log.stat().st_size if log.exists() else 0

        def training(before: int = before, log: Path = log) -> bool:
            return log.exists() and log.stat().st_size != before

        # Three of four times while it trains, else at any moment, most of which is the start of PyTorch.
        begun, longest = ((lambda: True), 6.0) if kill % 4 == 3 else (training, 0.3)
        _kill_at(arguments, begun, float(rng.uniform(0, longest)))
        if (run / "model.safetensors").exists():  # whatever has its name is whole
            assert (run / "model.safetensors").read_bytes() == (tmp_path / "calm/model.safetensors").read_bytes()
            shutil.rmtree(run)
        steps.append(len(log_of(run)) if log.exists() and log.read_bytes().endswith(b"\n") else 0)
    done = subprocess.run([*arguments, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["sha256"] == calm.sha256
    assert (run / "model.safetensors").read_bytes() == (tmp_path / "calm/model.safetensors").read_bytes()
    assert log_of(run) == log_of(tmp_path / "calm")
    assert sorted(path.name for path in run.iterdir() if not path.name.endswith(".lock")) == [
        "checkpoint.pt",
        "log.jsonl",
        "model.safetensors",
    ]
    assert len(set(steps)) > 1, "no kill met a training that was under way"


def _both(arguments: Sequence[str], folder: Path) -> list[tuple[int, str, str]]:
    """Run a command twice at once; gives exit codes, outputs and errors."""
    runs = [
        subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder)
        for _ in range(2)
    ]
    ended = []
    for run in runs:
        out, err = run.communicate(timeout=600)
        ended.append((run.returncode, out, err))
    return ended


def test_two_scorings_share_a_cache_and_two_studies_a_folder(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "capbench", "correlate", "-d", "flickr8k-expert", "-m", "bleu-4", "--out", "out"]
    ended = _both(command, tmp_path)
    assert [code for code, _, _ in ended] == [0, 0], ended
    assert all("damaged" not in err and "cannot be used" not in err for _, _, err in ended)
    assert json.loads((tmp_path / "out" / "results.json").read_text())
    left = {path.name for path in (tmp_path / "out").iterdir() if not path.name.endswith(".lock")}
    assert left == {"results.json", "results.csv", "results.md", "results.tex"}
    again = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert "came from the cache" in again.stderr + again.stdout


def test_two_extractions_into_one_store_lose_nothing(tmp_path: Path) -> None:
    pictures(tmp_path / "pictures", 30)
    store = tmp_path / "a.h5"
    command = [sys.executable, "-m", "tests.features.extraction_run", str(tmp_path / "pictures"), str(store), "1", "0"]
    ended = _both(command, Path(__file__).parents[1])
    assert 0 in [code for code, _, _ in ended]
    for code, _, err in ended:
        assert code == 0 or "another run is writing this store" in err
    with open_store(store) as opened:
        assert len(opened) == 30
        assert verify_store(opened).bad == 0
    assert not store.with_name("a.h5.partial").exists()

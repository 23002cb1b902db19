"""Everything but networks works where PyTorch is not installed, and networks say how to add it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from capbench.features.records import Fingerprint, RegionFeatures
from capbench.features.writing import StoreWriter
from capbench.pytorch import NEEDS_PYTORCH, install_command, missing_pytorch

ROOT = Path(__file__).resolve().parent.parent
_RUN = """
import sys
sys.modules["torch"] = sys.modules["torchvision"] = None  # as if they were not installed
from capbench.cli.app import main
sys.argv = ["capbench", *sys.argv[1:]]
main()
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process that cannot import PyTorch."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", _RUN, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@pytest.mark.parametrize(
    "command",
    [
        "--help",
        "correlate demo --out out",
        "score -m bleu -m rouge-l -m meteor -m cider -d flickr8k-expert --out scores.csv",
        "compare cider rouge-l -d flickr8k-expert",
        "power cider rouge-l -d flickr8k-expert",
        "references -m rouge-l --counts 1-3 --out curves",
        "examples -d flickr8k-expert -m cider",
        "figure forest cider rouge-l --out forest.svg",
        "protocols composite",
        "metrics",
        "metrics tiger",
        "data info",
        "data verify",
        "models list",
        "doctor",
    ],
)
def test_commands_that_run_no_network_need_no_pytorch(command: str, tmp_path: Path) -> None:
    ran = run(tmp_path, *command.split())
    assert NEEDS_PYTORCH not in ran.stderr
    assert "Traceback" not in ran.stderr, ran.stderr
    # 1 says that rows wait, as the demo's do without features.
    assert ran.returncode in ((0, 1) if "demo" in command else (0,)), ran.stderr


@pytest.mark.parametrize(
    "command",
    [
        "extract-features --data sample",
        "train scan scan-flickr8k-grid",
        "score -m tiger --features features.h5 --model tiger=sample --candidates c.json --references r.json",
        "explain -m tiger -i f8k_003 --features features.h5 --model sample",
    ],
)
def test_networks_say_the_line_that_adds_pytorch(command: str, tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "features.h5", Fingerprint("sample", "none", "none", "none")) as writer:
        writer.add(RegionFeatures("f8k_003", 0, 0, None, np.ones((2, 8), dtype=np.float32)))
        writer.finish()
    (tmp_path / "c.json").write_text('[{"image_id": "f8k_003", "caption": "a dog"}]', encoding="utf-8")
    (tmp_path / "r.json").write_text('{"f8k_003": ["a dog"]}', encoding="utf-8")
    ran = run(tmp_path, *command.split())
    assert ran.returncode == 2, ran.stderr
    (line,) = (line for line in ran.stderr.splitlines() if line.startswith("error: "))
    assert NEEDS_PYTORCH in line
    assert "pip install 'torch>=" in line
    assert "'torchvision>=" in line
    assert "Traceback" not in ran.stderr


def test_the_line_has_the_bounds_that_are_declared() -> None:
    declared = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    bounds = [word.strip("'") for word in install_command().removeprefix("pip install ").split()]
    assert len(bounds) == 2
    assert all(f'"{bound}"' in declared for bound in bounds)


def test_another_missing_module_is_a_bug_and_no_advice() -> None:
    assert missing_pytorch(ModuleNotFoundError("No module named 'torchaudio'", name="torchaudio")) is None
    assert missing_pytorch(ImportError("torch is damaged", name="torch")) is None
    assert missing_pytorch(ModuleNotFoundError("No module named 'torch.nn'", name="torch.nn")) is not None

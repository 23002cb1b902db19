"""Everything but networks works where PyTorch is not installed, and networks say how to add it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

from capbench.core.errors import NEEDS_PYTORCH, install_pytorch, missing_pytorch
from capbench.features.records import Fingerprint, RegionFeatures
from capbench.features.writing import StoreWriter

ROOT = Path(__file__).resolve().parent.parent
# One process for all commands: each start of one takes seconds.
_RUN = """
import sys
class Missing:  # as if they were not installed
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in ("torch", "torchvision"):
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
sys.meta_path.insert(0, Missing)
from capbench.cli.app import main
for command in sys.stdin.read().splitlines():
    sys.argv = ["capbench", *command.split()]
    code = 0
    try:
        main()
    except SystemExit as left:
        code = left.code
    print(f"exit code {code} of {command}", file=sys.stderr)
"""


def run(folder: Path, commands: str) -> list[tuple[str, str]]:
    """Run commands, one a line, in a process that cannot import PyTorch: of each its stderr and exit code."""
    ran = subprocess.run(
        [sys.executable, "-c", _RUN],
        input=commands,
        capture_output=True,
        text=True,
        timeout=600,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert "Traceback" not in ran.stderr, ran.stderr
    outcomes = re.findall(r"(.*?)exit code (\S+) of [^\n]*\n", ran.stderr, re.DOTALL)
    assert len(outcomes) == len(commands.splitlines()), ran.stderr
    return outcomes


def test_commands_that_run_no_network_need_no_pytorch(tmp_path: Path) -> None:
    commands = """\
correlate demo --out out
score -m bleu -m rouge-l -m meteor -m cider -d flickr8k-expert --out scores.csv
compare cider rouge-l -d flickr8k-expert --report compare.html
report out --out page.html
power cider rouge-l -d flickr8k-expert
references -m rouge-l --counts 1-3 --out curves
examples -d flickr8k-expert -m cider --out examples.md
figure forest cider rouge-l --out forest.svg
protocols composite
metrics
metrics tiger
data info
data verify
models list"""
    for command, (stderr, code) in zip(commands.splitlines(), run(tmp_path, commands), strict=True):
        assert NEEDS_PYTORCH not in stderr, command
        # 1 says that rows wait, as the demo's do without features.
        assert code in (("0", "1") if "demo" in command else ("0",)), f"{command}: {stderr}"


def test_networks_say_the_line_that_adds_pytorch(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "features.h5", Fingerprint("sample", "none", "none", "none")) as writer:
        writer.add(RegionFeatures("f8k_003", 0, 0, None, np.ones((2, 8), dtype=np.float32)))
        writer.finish()
    (tmp_path / "c.json").write_text('[{"image_id": "f8k_003", "caption": "a dog"}]', encoding="utf-8")
    (tmp_path / "r.json").write_text('{"f8k_003": ["a dog"]}', encoding="utf-8")
    commands = """\
extract-features --data sample
train scan scan-flickr8k-grid
score -m tiger --features features.h5 --model tiger=sample --candidates c.json --references r.json
explain -m tiger -i f8k_003 --features features.h5 --model sample"""
    for command, (stderr, code) in zip(commands.splitlines(), run(tmp_path, commands), strict=True):
        assert code == "2", command
        (line,) = (line for line in stderr.splitlines() if line.startswith("error: "))
        assert NEEDS_PYTORCH in line, command
        assert "pip install 'torch>=" in line
        assert "'torchvision>=" in line


def test_the_line_has_the_bounds_that_are_declared() -> None:
    declared = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    bounds = [word.strip("'") for word in install_pytorch().removeprefix("pip install ").split()]
    assert len(bounds) == 2
    assert all(f'"{bound}"' in declared for bound in bounds)


def test_another_missing_module_is_a_bug_and_no_advice() -> None:
    assert missing_pytorch(ModuleNotFoundError("No module named 'torchaudio'", name="torchaudio")) is None
    assert missing_pytorch(ImportError("torch is damaged", name="torch")) is None
    assert missing_pytorch(ModuleNotFoundError("No module named 'torch.nn'", name="torch.nn")) is not None

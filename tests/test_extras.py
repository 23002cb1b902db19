"""The core works without any extra, and a feature that needs one names it before any work starts."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np

from capbench.core.errors import extras
from capbench.features.records import Fingerprint, RegionFeatures
from capbench.features.writing import StoreWriter

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# One process for all commands, because each start takes seconds.
_RUN = """
import sys
absent = set(sys.argv[1].split())
class Missing:  # as if they were not installed
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in absent:
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


ALL = {package for packages in extras().values() for package in packages}


def run(folder: Path, commands: str) -> list[tuple[str, str]]:
    """Run commands, one per line, in a process with the core alone: the stderr and exit code of each."""
    ran = subprocess.run(
        [sys.executable, "-c", _RUN, " ".join(sorted(ALL))],
        input=commands,
        capture_output=True,
        text=True,
        timeout=600,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PATH": "/nowhere"},
    )
    assert "Traceback" not in ran.stderr, ran.stderr
    outcomes = re.findall(r"(.*?)exit code (\S+) of [^\n]*\n", ran.stderr, re.DOTALL)
    assert len(outcomes) == len(commands.splitlines()), ran.stderr
    return outcomes


def test_the_core_scores_correlates_and_compares(tmp_path: Path) -> None:
    commands = """\
correlate demo --out out
score -m bleu -m rouge-l -m meteor -m cider -d flickr8k-expert --out scores.csv
compare cider rouge-l -d flickr8k-expert
compare cider rouge-l --power 0.8 -d flickr8k-expert
explore examples -d flickr8k-expert -m cider --out examples.md
correlate -d flickr8k-expert --scores scores.csv
data info composite --protocols
metrics
metrics tiger
data info
data info --verify
models list
papers
doctor"""
    for command, (stderr, code) in zip(commands.splitlines(), run(tmp_path, commands), strict=True):
        # 1 means that rows are missing, as the demo's are without features.
        assert code in (("0", "1") if "demo" in command else ("0",)), f"{command}: {stderr}"
        assert "which is not installed" not in stderr or "demo" in command, command


def test_a_feature_outside_the_core_names_its_extra_before_any_work(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "features.h5", Fingerprint("sample", "none", "none", "none")) as writer:
        writer.add(RegionFeatures("f8k_003", 0, 0, None, np.ones((2, 8), dtype=np.float32)))
        writer.finish()
    (tmp_path / "c.json").write_text('[{"image_id": "f8k_003", "caption": "a dog"}]', encoding="utf-8")
    (tmp_path / "r.json").write_text('{"f8k_003": ["a dog"]}', encoding="utf-8")
    (tmp_path / "scores.parquet").write_bytes(b"PAR1")
    (tmp_path / "bert").mkdir()
    wanted = {
        "extract-features --data sample": "networks",
        "train scan scan-flickr8k-grid": "networks",
        "train word-vectors -c flickr8k --out v.bin": "vectors",
        "score -m tiger --features features.h5 --model sample --candidates c.json --references r.json": "networks",
        "score -m bertscore --model bert --candidates c.json --references r.json": "bert",
        "explore explain -m tiger -i f8k_003 --features features.h5 --model sample": "figures",
        "figure forest cider rouge-l --out forest.svg": "figures",
        "correlate -d pascal-50s --references-curve -m rouge-l --counts 1-3 --out curves": "figures",
        "score -m bleu --out scores.parquet": "frames",
        "compare cider --scores scores.parquet": "frames",
        "score -m bleu --on ray": "ray",
    }
    for command, (stderr, code) in zip(wanted, run(tmp_path, "\n".join(wanted)), strict=True):
        assert code == "2", f"{command}: {stderr}"
        (line,) = (line for line in stderr.splitlines() if line.startswith("error: "))
        assert f"'{wanted[command]}'" in line, f"{command}: {line}"
        assert "pip install '" in line, f"{command}: {line}"


def test_all_collects_every_extra_of_a_feature() -> None:
    declared = PROJECT["optional-dependencies"]
    (line,) = declared["all"]
    assert set(line.removeprefix("capbench[").removesuffix("]").split(",")) == set(extras())
    assert ALL.isdisjoint(re.split(r"[^A-Za-z0-9._-]", line)[0].replace("-", "_") for line in PROJECT["dependencies"])


def test_every_imported_package_is_declared() -> None:
    names = {"PIL": "pillow", "yaml": "pyyaml", "pydantic_core": "pydantic"}
    declared = ALL | {re.split(r"[^A-Za-z0-9._-]", line)[0] for line in PROJECT["dependencies"]}
    imported = set()
    for file in (ROOT / "capbench").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.partition(".")[0])
    outside = imported - sys.stdlib_module_names - {"capbench"}
    assert {name for name in outside if names.get(name, name.replace("_", "-")) not in declared} == set()

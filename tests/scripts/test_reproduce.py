"""The Makefiles that reproduce the results pages call commands that exist, in an order that make resolves."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.test_snippets import parse, words_of

ROOT = Path(__file__).parents[2]
PAGES = sorted(path.stem for path in (ROOT / "scripts/reproduce").glob("*.mk") if "\ninclude " in path.read_text())


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("page", PAGES)
def test_all_commands_of_a_page_can_be_parsed(page: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "scripts/reproduce", tmp_path / "scripts/reproduce")
    (tmp_path / "vectors.bin").touch()
    given = ["CAPBENCH_DATA=data", "VECTORS=vectors.bin", "CAPBENCH=capbench"]
    made = subprocess.run(
        ["make", "-n", "-f", f"scripts/reproduce/{page}.mk", *given], cwd=tmp_path, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    lines = re.findall(r"^capbench .*$", re.sub(r"\\\n\s*", " ", made.stdout), re.MULTILINE)
    commands = [words_of(line)[0][1:] for line in lines]
    assert any(words[0] in ("correlate", "train") for words in commands)
    for words in commands:
        if words[:2] != ["train", "clip"]:  # a plug-in's
            parse(words)
        if words[0] == "train" and words[1] in ("scan", "faier", "vilbert", "clip", "leic", "nneval"):
            assert (ROOT / "configs/train" / f"{words[2]}.yaml").is_file()

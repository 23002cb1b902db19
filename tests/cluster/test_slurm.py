"""The array job of docs/cluster.md, with a stand-in for the variable that SLURM sets."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Ran
from tests.features.fakes import pictures

TASKS = 2


def test_the_documented_array_job_gives_the_bytes_of_one_run(
    tmp_path: Path, capbench: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    page = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text(encoding="utf-8")
    section = page[page.index("## SLURM without Ray") :]
    blocks = [re.sub("^ {4}", "", block, flags=re.M) for block in re.findall(r"(?:^ {4}.*\n)+", section, re.M)]
    job, merge = (block.replace("16", str(TASKS)) for block in blocks[:2])
    job = job.replace("grid:resnet50", "tests.cluster.poisoned:Poisoned")
    assert job.startswith("#!/bin/bash")
    pictures(tmp_path / "photos", 11)
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    command = bin_folder / "capbench"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m capbench "$@"\n')
    command.chmod(0o755)
    paths = [str(Path(__file__).parents[2]), *sys.path]
    environment = os.environ | {"PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))

    def run(script: str, **variables: str) -> None:
        subprocess.run(["bash", "-ec", script], cwd=tmp_path, env=environment | variables, check=True)

    for task in range(1, TASKS + 1):
        run(job, SLURM_ARRAY_TASK_ID=str(task))
    run(merge)
    monkeypatch.chdir(tmp_path)
    whole = ("extract-features", "--images", "photos", "--detector", "tests.cluster.poisoned:Poisoned")
    assert capbench(*whole, "--threads", "1", "--out", "one.h5").code == 0
    assert (tmp_path / "coco.h5").read_bytes() == (tmp_path / "one.h5").read_bytes()

"""The array job of docs/cluster.md."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.poisoned import POISONED
from tests.conftest import Ran
from tests.features.fakes import pictures


def test_the_documented_array_job_gives_the_bytes_of_one_run(
    tmp_path: Path, capbench: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text(encoding="utf-8")
    job, merge = re.findall(r"^ {4}capbench (.*)\n", page.partition("## SLURM without Ray")[2], re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    pictures(tmp_path / "photos", 11)
    job = job.replace("grid:resnet50", POISONED)
    for task in (1, 2):
        assert capbench(*shlex.split(job.replace("$SLURM_ARRAY_TASK_ID/16", f"{task}/2"))).code == 0
    shards = sorted(map(str, Path().glob("coco.shard-*-of-2.h5")))
    assert capbench(*shlex.split(merge)[:-1], *shards).code == 0
    assert capbench("extract-features", "-i", "photos", "-D", POISONED, "--threads", "1", "-o", "one.h5").code == 0
    assert Path("coco.h5").read_bytes() == Path("one.h5").read_bytes()

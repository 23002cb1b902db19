"""Caches that cannot be created, and files that cannot grow: a clear line, or the result without the cache."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from capbench.datasets.root import sample_dir
from tests.conftest import Ran

NOWHERE = "/proc/capbench"  # where nobody can make a folder, root included
SCORE = ("score", "-m", "bleu-4", "-d", "flickr8k-expert")

pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")


def test_scoring_works_without_a_cache_folder_and_says_so_once(
    capbench: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPBENCH_CACHE", NOWHERE)
    ran = capbench(*SCORE)
    assert ran.code == 0
    assert ran.err.count("warning:") == 1
    assert "'scores'" in ran.err


def test_data_is_verified_without_a_cache_folder(
    capbench: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CAPBENCH_CACHE", NOWHERE)
    assert capbench("data", "verify", "nocaps", "--data", "sample").code == 0
    shutil.copytree(sample_dir(), tmp_path / "data")
    ran = capbench("data", "verify", "nocaps", "--data", tmp_path / "data")
    assert ran.code in (0, 1)
    assert "error:" not in ran.err


def test_a_command_that_requires_the_cache_folder_names_the_variable(
    capbench: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPBENCH_CACHE", NOWHERE)
    ran = capbench("setup", "spice")
    assert (ran.code, ran.err.count("error:")) == (2, 1)
    assert ran.failure.code == "unwritable"
    assert "CAPBENCH_CACHE" in ran.err


def test_files_that_may_not_grow_are_one_line_and_leave_nothing_half(tmp_path: Path) -> None:
    """As on a full disk: no file may be larger than 8 kB, neither the scores' nor the cache's."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))

    out = tmp_path / "scores.csv"
    out.write_text("old\n")
    command = [sys.executable, "-m", "capbench", *SCORE]
    full = subprocess.run(
        [*command, "--out", str(out)], capture_output=True, text=True, preexec_fn=limit, cwd=tmp_path, check=False
    )
    assert full.returncode == 2, full.stderr
    (error,) = (line for line in full.stderr.splitlines() if line.startswith("error:"))
    assert error.startswith(f"error: {out}: ")
    assert "File too large" in error
    assert full.stderr.count("warning:") == 1
    assert out.read_text() == "old\n"
    assert not list(tmp_path.glob(".*.part"))
    with_room = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert "warning:" not in with_room.stderr

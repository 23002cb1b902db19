from __future__ import annotations

import os
from pathlib import Path

import pytest

from capbench.core import machine


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("200000 100000\n", 2), ("150000 100000\n", 2), ("6400000 100000\n", 8), ("max 100000", 8), ("", 8)],
)
def test_a_containers_share_of_the_cores_counts(
    quota: str, cores: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "cpu.max").write_text(quota, encoding="ascii")
    monkeypatch.setattr(machine, "_GROUP_CORES", tmp_path / "cpu.max")
    monkeypatch.setattr(machine, "_core_limit", None)  # restored in the end
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: set(range(8)), raising=False)
    assert machine.usable_cores() == cores
    machine.limit_cores(1)
    assert machine.usable_cores() == 1

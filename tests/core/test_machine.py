from __future__ import annotations

import os
from pathlib import Path

import pytest

from capbench.core import machine


@pytest.mark.parametrize(
    ("written", "cores"),
    [
        ({"cpu.max": "200000 100000\n"}, 2),
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "6400000 100000\n"}, 8),
        ({"cpu.max": "max 100000\n"}, 8),
        ({}, 8),
    ],
)
def test_a_containers_share_of_the_cores_counts(
    written: dict[str, str], cores: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, text in written.items():
        (tmp_path / name).write_text(text, encoding="ascii")
    monkeypatch.setattr(machine, "_GROUP_CORES", tmp_path / "cpu.max")
    monkeypatch.setattr(machine, "_core_limit", None)  # restored in the end
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: set(range(8)), raising=False)
    assert machine.usable_cores() == cores
    machine.limit_cores(1)
    assert machine.usable_cores() == 1

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from capbench.core.errors import UsageError
from capbench.metrics.registry import trainable
from tests.conftest import Ran
from tests.errors import raises
from tests.plugged import install, on_path

ENTRIES = "[capbench.trainers]\nbad = bad_trainer:Bad\nodd = odd_trainer:Odd\nscan = odd_trainer:Odd\n"
MODULES = {"bad_trainer": "raise RuntimeError('worn out')\n", "odd_trainer": "class Odd:\n    metric = 'odd'\n"}


def test_a_broken_trainer_is_listed_and_breaks_no_other_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capbench: Callable[..., Ran]
) -> None:
    install(tmp_path, "two-trainers", ENTRIES, MODULES)
    with on_path(tmp_path, monkeypatch):
        listed = capbench("train", "--help")
        assert listed.code == 0, listed.err
        assert listed.out.count("two-trainers") == 2  # and 'scan' stays capbench's own
        assert "Train SCAN" in capbench("train", "scan", "--help").out
        for name, quoted in (("bad", "worn out"), ("odd", "capbench.Task")):
            ran = capbench("train", name, "anything")
            assert ran.code == 2
            (line,) = [line for line in ran.err.splitlines() if line.startswith("error: ")]
            assert quoted in line
        with raises(UsageError, "unknown-name", value="oddd") as caught:
            trainable("oddd")
        assert "'odd'" in str(caught.value.hint)

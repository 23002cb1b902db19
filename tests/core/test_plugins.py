"""Metrics, data sets and detectors of other packages, with broken ones among them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from capbench.core import plugins
from capbench.core.errors import UsageError
from capbench.studies.health import examine
from tests.conftest import Ran
from tests.errors import raises
from tests.plugged import install, on_path

GROUPS: tuple[plugins.Group, ...] = ("capbench.metrics", "capbench.datasets", "capbench.detectors")


@pytest.mark.parametrize("group", GROUPS)
def test_a_broken_plug_in_hides_no_other(group: plugins.Group, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built_in = plugins.names(group)
    install(tmp_path, "good-one", f"[{group}]\ngood = good_one:Good\n", {"good_one": "class Good: ...\n"})
    install(tmp_path, "bad-one", f"[{group}]\nbad = bad_one:Bad\n", {"bad_one": "raise RuntimeError('worn out')\n"})
    install(tmp_path, "leaving-one", f"[{group}]\nleaving = leaving:Bad\n", {"leaving": "raise SystemExit(3)\n"})
    with on_path(tmp_path, monkeypatch):
        assert plugins.names(group)[: len(built_in)] == built_in
        assert {"good", "bad", "leaving"} == set(plugins.names(group)) - set(built_in)
        assert plugins.load(group, "good").__name__ == "Good"
        assert [plugin.package for plugin in plugins.registered(group) if plugin.name == "good"] == ["good-one"]
        with raises(UsageError, "import-failed", value="bad") as caught:
            plugins.load(group, "bad")
        assert "worn out" in caught.value.message
        assert "'bad-one'" in (caught.value.hint or "")
        with raises(UsageError, "import-failed", value="leaving"):
            plugins.load(group, "leaving")
        with raises(UsageError, "unknown-name", value="goood") as caught:
            plugins.load(group, "goood")
        assert "'good'" in (caught.value.hint or "")
    assert plugins.names(group) == built_in


def test_a_built_in_name_is_not_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "rival", "[capbench.detectors]\nsample = rival:Rival\n", {"rival": "class Rival: ...\n"})
    with on_path(tmp_path, monkeypatch):
        assert plugins.load("capbench.detectors", "sample").__name__ == "SampleDetector"


def test_doctor_and_models_list_tell_of_detectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capbench: Callable[..., Ran]
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("CAPBENCH_MODELS", str(tmp_path / "models"))
    entries = "[capbench.detectors]\nbad = no_such_module:Bad\nodd = odd_one:Odd\n"
    install(tmp_path / "packages", "two-detectors", entries, {"odd_one": "class Odd: ...\n"})
    with on_path(tmp_path / "packages", monkeypatch):
        ran = capbench("models", "list")
        checks = {check.name: check for check in examine("sample", start_java=False)}
    assert ran.code == 0, ran.err
    assert "bad (of two-detectors), odd (of two-detectors)" in ran.out
    assert "grid:BACKBONE, " in ran.out
    built_in = {"bottom-up-caffe", "bottom-up-hf", "x152-fpn", "torchvision-frcnn", "grid", "sample"}
    # Without PyTorch, detectors that require it have a separate line.
    ready, unavailable = checks["detectors"].detail, checks["  PyTorch"].detail if "  PyTorch" in checks else ""
    listed = [*ready.removeprefix("none").split(", "), *unavailable.removeprefix("required by ").split(", ")]
    assert sorted(filter(None, listed)) == sorted(built_in)
    assert checks["  bad"].state == checks["  odd"].state == "fail"
    assert "no_such_module" in checks["  bad"].detail
    assert "odd_one:Odd" in checks["  odd"].detail
    assert checks["  odd"].fix == "Update or remove the package 'two-detectors'"

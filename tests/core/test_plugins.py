"""Metrics, data sets and detectors of other packages, with broken ones among them."""

from __future__ import annotations

from pathlib import Path

import pytest

from capbench.core import plugins
from capbench.core.errors import UsageError
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
        assert plugins.registered(group)["good"].package == "good-one"
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

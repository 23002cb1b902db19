from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from capbench import __version__
from capbench.core.version import _source, code_digest, version_text
from tests.test_layers import imports


def _git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
    ran = subprocess.run(["git", *identity, *words], cwd=folder, capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def test_a_checkout_names_its_commit_and_an_installed_package_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert version_text(tmp_path) == __version__
    _git(tmp_path, "init")
    assert version_text(tmp_path) == __version__  # no commit yet
    (tmp_path / "file").write_text("1")
    _git(tmp_path, "add", "file")
    _git(tmp_path, "commit", "-m", "first")
    _git(tmp_path, "tag", "v9")  # the commit is named, not a tag
    commit = _git(tmp_path, "rev-parse", "--short=9", "HEAD")
    assert version_text(tmp_path) == f"{__version__} (commit {commit})"
    monkeypatch.setenv("GIT_DIR", "/nowhere")  # as in a hook of another repository
    assert version_text(tmp_path) == f"{__version__} (commit {commit})"
    (tmp_path / "file").write_text("22")
    assert version_text(tmp_path) == f"{__version__} (commit {commit}-dirty)"


def test_the_code_of_a_checkout_is_followed_along_all_imports() -> None:
    computing = ("capbench.text.", "capbench.weights.", "capbench.features.", "capbench.metrics.")
    for module, imported in imports().items():
        if module.startswith(computing):
            assert {name for name in imported if name.startswith(computing)} <= _source(module)[1]
    assert len({code_digest(f"capbench.metrics.{name}") for name in ("bleu", "cider", "cider")}) == 2

"""The command that installs a package, without an index for capbench itself."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

import pytest

from capbench.core.errors import install_command

PACKAGE = Path(__file__).resolve().parents[2] / "capbench"


def test_the_bounds_are_those_that_capbench_declares() -> None:
    assert re.fullmatch(r"pip install 'gensim>=[\d.]+' 'lmdb>=[\d.]+'", install_command("gensim", "lmdb"))


def test_without_metadata_the_name_alone_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", absent)
    assert install_command("gensim") == "pip install 'gensim'"


def test_no_hint_asks_an_index_for_capbench_itself() -> None:
    asking = re.compile(r"pip install ['\"]?capbench\b|pip install -[^\n`]* capbench\b|_INSTALL} capbench")
    files = [*PACKAGE.rglob("*.py"), *(PACKAGE.parent / "docs").glob("*.md"), PACKAGE.parent / "README.md"]
    assert [str(file) for file in files if asking.search(file.read_text(encoding="utf-8"))] == []

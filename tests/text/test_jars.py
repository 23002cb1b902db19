from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from capbench.core.errors import ToolError
from capbench.text import java
from capbench.text.java import meteor_jar, run_batch, tokenizer_jar
from tests.errors import raises


def test_jars_are_found_without_importing_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("pycocoevalcap")]:
        monkeypatch.delitem(sys.modules, name)
    assert meteor_jar().path.name == "meteor-1.5.jar"
    assert tokenizer_jar().path.name == "stanford-corenlp-3.4.1.jar"
    assert not any(name.startswith("pycocoevalcap.") for name in sys.modules)


def test_package_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_package_folders", lambda: ())
    with raises(ToolError, "missing-package", value="pycocoevalcap"):
        tokenizer_jar()


def test_empty_jar_counts_as_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "stanford-corenlp-3.4.1.jar").touch()
    monkeypatch.setattr(java, "_package_folders", lambda: (tmp_path,))
    with raises(ToolError, "missing-file", path=tmp_path / "tokenizer" / "stanford-corenlp-3.4.1.jar"):
        tokenizer_jar()
    with raises(ToolError, "missing-file", path=tmp_path / "meteor" / "data" / "paraphrase-en.gz"):
        meteor_jar()


@pytest.mark.java
@pytest.mark.parametrize("locale", ["C", "tr_TR.UTF-8", "de_DE"])
def test_odd_paths_and_locales_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locale: str) -> None:
    folder = tmp_path / "a b+ü%20#c"
    folder.mkdir()
    shutil.copy(tokenizer_jar().path, folder)
    for name in ("LC_ALL", "LANG"):
        monkeypatch.setenv(name, locale)
    arguments = ["-cp", tokenizer_jar().path.name, "edu.stanford.nlp.process.PTBTokenizer"]
    options = ["-preserveLines", "-lowerCase", "-encoding", "UTF-8"]
    answer = run_batch([*arguments, *options], "Il TITANIC à Zürich\n", name="the tokeniser", folder=folder)
    assert answer == "il titanic à zürich\n"

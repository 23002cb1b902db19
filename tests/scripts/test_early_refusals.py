"""Scripts refuse what does not fit before they begin to work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from scripts import checks, make_cli_docs, make_sample

Script = Callable[[list[str]], object]


@pytest.fixture
def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a script would work on first fails the test."""

    def began(*_: object, **__: object) -> None:
        pytest.fail("the script began to work")

    monkeypatch.setattr(make_sample, "build", began)


def refusal(script: Script, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The line that a script leaves with."""
    with pytest.raises(SystemExit) as left:
        script(arguments)
    assert left.value.code not in (0, None)
    return f"{left.value} {capsys.readouterr().err}"


@pytest.mark.usefixtures("no_work")
def test_places_that_cannot_be_written_to_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    taken = str(tmp_path / "file" / "out")
    assert "cannot be written to" in refusal(make_sample.main, ["--out", taken], capsys)


@pytest.mark.usefixtures("no_work")
def test_there_must_be_a_sample_to_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no such folder to check" in refusal(make_sample.main, ["--check", "--out", str(tmp_path / "no")], capsys)


def test_an_unknown_argument_writes_no_command_line_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["make_cli_docs.py", "--chek"])
    with pytest.raises(SystemExit, match="unknown arguments: --chek"):
        make_cli_docs.main()


def test_a_folder_is_made_and_left_empty(tmp_path: Path) -> None:
    checks.require_writable(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []

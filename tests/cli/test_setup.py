from __future__ import annotations

import contextlib
import hashlib
import json
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from capbench.cli.doctor import doctor
from capbench.core.errors import CapbenchError, ToolError, UsageError
from capbench.text.spice import parser as spice_files
from capbench.text.spice.parser import PinnedFile, install_spice, parse_tuples, spice_folder, spice_state
from tests.errors import raises

app = typer.Typer()
app.command()(doctor)

CONTENTS = {"parser-1.0.jar": b"parser" * 1000, "parser-1.0-models.jar": b"models" * 5000}


def _pinned(name: str, classifier: str) -> PinnedFile:
    content = CONTENTS[name]
    return PinnedFile("org.example", "parser", "1.0", classifier, len(content), hashlib.sha256(content).hexdigest())


@pytest.fixture(autouse=True)
def files(monkeypatch: pytest.MonkeyPatch) -> tuple[PinnedFile, ...]:
    pinned = (_pinned("parser-1.0.jar", ""), _pinned("parser-1.0-models.jar", "models"))
    monkeypatch.setattr(spice_files, "SPICE_FILES", pinned)
    return pinned


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "on a stick"
    folder.mkdir()
    for name, content in CONTENTS.items():
        (folder / name).write_bytes(content)
    return folder


class _Repository:
    """Stands in for jgo: serves CONTENTS, can break off, or be unreachable."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.served: list[str] = []
        self.breaks: Callable[[str], None] = lambda _name: None
        repository = self

        class Resolver:
            def __init__(self, progress_callback: Any) -> None:
                self.progress = progress_callback

            def download(self, artifact: tuple[str, Path]) -> Path:
                name, cache = artifact
                path = cache / "deep" / name
                path.parent.mkdir()
                with self.progress(name, len(CONTENTS[name])) as advance:
                    path.write_bytes(CONTENTS[name][:100])
                    advance(100)
                    repository.breaks(name)
                    path.write_bytes(CONTENTS[name])
                    advance(len(CONTENTS[name]) - 100)
                repository.served.append(name)
                return path

        class Context:
            def __init__(self, resolver: Resolver, repo_cache: Path, timeout: int) -> None:
                self.cache = repo_cache
                assert timeout > 0

            def project(self, group: str, artifact: str) -> Context:
                self.start = artifact
                assert group == "org.example"
                return self

            def at_version(self, version: str) -> Context:
                self.start += f"-{version}"
                return self

            def artifact(self, classifier: str, packaging: str) -> tuple[str, Path]:
                return f"{self.start}{'-' if classifier else ''}{classifier}.{packaging}", self.cache

        module = types.ModuleType("jgo.maven")
        module.MavenContext = Context  # type: ignore[attr-defined]
        module.PythonResolver = Resolver  # type: ignore[attr-defined]
        requests = types.ModuleType("requests")
        requests.RequestException = ConnectionError  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "jgo", types.ModuleType("jgo"))
        monkeypatch.setitem(sys.modules, "jgo.maven", module)
        monkeypatch.setitem(sys.modules, "requests", requests)


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> _Repository:
    return _Repository(monkeypatch)


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))


def _fails(*arguments: str | Path) -> CapbenchError:
    result = CliRunner().invoke(app, ["--install", "spice", *map(str, arguments)])
    assert isinstance(result.exception, CapbenchError), result.output
    return result.exception


def test_files_are_copied_from_a_folder_and_checked(source: Path) -> None:
    result = CliRunner().invoke(app, ["--install", "spice", "--from", str(source)])
    assert result.exit_code == 0
    assert "added parser-1.0.jar\nadded parser-1.0-models.jar\nSPICE's parser is ready in" in result.output
    assert _names(spice_folder()) == sorted(CONTENTS)
    assert spice_state().ready


def test_what_is_there_and_right_is_left_alone(source: Path, repository: _Repository) -> None:
    install_spice(source)
    result = CliRunner().invoke(app, ["--install", "spice", "--json"])
    assert json.loads(result.output) == {"folder": str(spice_folder()), "added": [], "ready": True}
    assert repository.served == []


def test_files_are_downloaded_with_progress(repository: _Repository) -> None:
    shown: dict[str, list[int | None]] = {}

    @contextlib.contextmanager
    def progress(name: str, total: int | None) -> Iterator[Callable[[int], None]]:
        shown[name] = [total]
        yield shown[name].append

    added = install_spice(progress=progress)
    assert [path.read_bytes() for path in added] == list(CONTENTS.values())
    totals = {name: sum(step or 0 for step in steps[1:]) for name, steps in shown.items()}
    assert totals == {name: steps[0] for name, steps in shown.items()}
    assert list(totals) == list(CONTENTS)
    assert spice_state().ready


@pytest.mark.parametrize("cut", [KeyboardInterrupt(), ConnectionError("reset by peer")])
def test_after_a_cut_it_goes_on_with_the_missing_file(repository: _Repository, cut: BaseException) -> None:
    def breaks(name: str) -> None:
        if "models" in name:
            raise cut

    repository.breaks = breaks
    with pytest.raises((KeyboardInterrupt, ToolError)):
        install_spice()
    assert _names(spice_folder()) == ["parser-1.0.jar"]
    assert spice_state().missing == ("parser-1.0-models.jar",)
    repository.breaks = lambda _name: None
    install_spice()
    assert repository.served == ["parser-1.0.jar", "parser-1.0-models.jar"]
    assert spice_state().ready


def test_what_a_killed_run_left_behind_is_cleared_away(source: Path) -> None:
    leftover = spice_folder() / ".part-killed"
    leftover.mkdir()
    (leftover / "parser-1.0.jar").write_bytes(b"half")
    install_spice(source)
    assert _names(spice_folder()) == sorted(CONTENTS)


def test_a_damaged_file_in_the_cache_is_replaced(source: Path) -> None:
    install_spice(source)
    (spice_folder() / "parser-1.0.jar").write_bytes(b"x" * len(CONTENTS["parser-1.0.jar"]))
    assert [path.name for path in install_spice(source)] == ["parser-1.0.jar"]
    (spice_folder() / "parser-1.0.jar").write_bytes(b"short")
    assert spice_state().missing == ("parser-1.0.jar",)


def test_another_file_under_the_name_is_refused(source: Path) -> None:
    (source / "parser-1.0-models.jar").write_bytes(b"y" * 30000)
    error = _fails("--from", source)
    assert (error.code, error.path) == ("damaged", str(source / "parser-1.0-models.jar"))
    assert _names(spice_folder()) == ["parser-1.0.jar"]


def test_a_folder_that_lacks_a_file_or_is_none_is_named(source: Path) -> None:
    (source / "parser-1.0.jar").unlink()
    error = _fails("--from", source)
    assert (error.code, error.path) == ("missing-file", str(source / "parser-1.0.jar"))
    error = _fails("--from", source / "nowhere")
    assert (error.code, error.path) == ("missing-file", str(source / "nowhere"))


def test_without_network_the_other_way_is_told(repository: _Repository) -> None:
    def breaks(_name: str) -> None:
        raise ConnectionError("no route to host")

    repository.breaks = breaks
    error = _fails()
    assert (error.code, error.value) == ("download-failed", "parser-1.0.jar")
    assert "ConnectionError" in error.message
    assert "--from" in str(error.hint)


def test_without_jgo_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jgo", None)
    monkeypatch.setitem(sys.modules, "jgo.maven", None)
    error = _fails()
    assert (error.code, error.value) == ("missing-package", "jgo")
    assert "'jgo>=" in str(error.hint)


def test_a_full_disk_is_one_line(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("capbench.text.spice.parser.os.replace", full)
    with raises(UsageError, "unwritable") as caught:
        install_spice(source)
    assert str(caught.value.path).endswith("parser-1.0.jar")
    assert _names(spice_folder()) == []


def test_the_published_files_are_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    names = [file.name for file in spice_files.SPICE_FILES]
    assert names == ["stanford-corenlp-3.6.0.jar", "stanford-corenlp-3.6.0-models.jar", "rhino-1.7.15.jar"]
    assert all(len(bytes.fromhex(file.sha256)) == 32 for file in spice_files.SPICE_FILES)


def test_the_parser_does_not_start_on_a_damaged_file(source: Path) -> None:
    install_spice(source)
    path = spice_folder() / "parser-1.0-models.jar"
    content = bytearray(path.read_bytes())
    content[1000] ^= 1
    path.write_bytes(content)
    assert spice_state().ready, "its size is right"
    with raises(ToolError, "damaged", path=path):
        parse_tuples(["a dog"])
    install_spice(source)
    spice_files.check_spice_files(spice_folder())

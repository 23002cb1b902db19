"""``doctor --install spice``, with small files in place of the published ones."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capbench.core.errors import CapbenchError, ToolError
from capbench.text.spice import parser as spice_files
from capbench.text.spice.parser import PinnedFile, install_spice, missing_files, parse_tuples, spice_folder
from tests.conftest import Ran
from tests.errors import raises
from tests.http_server import Server

CONTENTS = {"parser-1.0.jar": b"parser" * 1000, "parser-1.0-models.jar": b"models" * 5000}
INSTALL = ("doctor", "--install", "spice")


@pytest.fixture(autouse=True)
def _files(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = [
        PinnedFile(f"org/example/{name}", len(content), hashlib.sha256(content).hexdigest())
        for name, content in CONTENTS.items()
    ]
    monkeypatch.setattr(spice_files, "SPICE_FILES", tuple(pinned))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "on a stick"
    folder.mkdir()
    for name, content in CONTENTS.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def repository(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """Stands in for Maven Central."""
    server.files = {f"/maven/org/example/{name}": content for name, content in CONTENTS.items()}
    monkeypatch.setattr(spice_files, "_MAVEN", server.url.replace("file.bin", "maven/"))
    return server


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))


def test_files_are_copied_from_a_folder_and_valid_ones_are_left_alone(
    source: Path, repository: Server, capbench: Callable[..., Ran], found: Callable[..., Any]
) -> None:
    out = capbench(*INSTALL, "--from", source).out
    assert "added parser-1.0.jar\nadded parser-1.0-models.jar\nSPICE's parser is ready in" in out
    assert _names(spice_folder()) == sorted(CONTENTS)
    assert found(*INSTALL) == {"folder": str(spice_folder()), "added": [], "ready": True}
    assert repository.asked == []


def test_files_are_downloaded_or_the_other_way_is_told(repository: Server, capbench: Callable[..., Ran]) -> None:
    repository.status = [404]
    error = capbench(*INSTALL).failure
    assert (error.code, "HTTP 404" in error.message, "--from" in str(error.hint)) == ("download-failed", True, True)
    assert [path.read_bytes() for path in install_spice()] == list(CONTENTS.values())
    assert not missing_files()


def test_a_damaged_file_is_replaced_and_the_parser_does_not_start_on_it(source: Path) -> None:
    install_spice(source)
    path = spice_folder() / "parser-1.0.jar"
    path.write_bytes(b"x" * len(CONTENTS["parser-1.0.jar"]))
    assert not missing_files(), "its size is right"
    with raises(ToolError, "damaged", path=path):
        list(parse_tuples(["a dog"]))
    assert install_spice(source) == [path]
    path.write_bytes(b"short")
    assert missing_files() == ["parser-1.0.jar"]


def test_another_file_under_the_name_is_refused(source: Path, repository: Server) -> None:
    (source / "parser-1.0-models.jar").write_bytes(b"y" * 30000)
    repository.files["/maven/org/example/parser-1.0-models.jar"] = b"y" * 30000
    for place in (source, None):
        with raises(CapbenchError, "damaged"):
            install_spice(place)
        assert _names(spice_folder()) == ["parser-1.0.jar"]

"""Downloads against a server on this machine that can be told to misbehave."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from capbench.core.download import fetch, unpack
from capbench.core.errors import DataError, MissingFileError, UsageError
from tests.errors import raises
from tests.http_server import BODY, DIGEST, Server


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "data" / "file.bin"


def leftovers(target: Path) -> list[str]:
    return sorted(path.name for path in target.parent.iterdir() if path != target)


def test_a_file_is_fetched_with_its_hash_checked_and_nothing_left_over(server: Server, target: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    assert fetch(server.url, target, sha256=DIGEST, progress=lambda here, total: seen.append((here, total)))
    assert target.read_bytes() == BODY
    assert seen[-1] == (len(BODY), len(BODY))
    assert leftovers(target) == []


def test_another_file_in_its_place_is_never_overwritten(server: Server, target: Path) -> None:
    target.parent.mkdir()
    target.write_bytes(b"mine")
    with raises(UsageError, "exists", path=target):
        fetch(server.url, target, sha256=DIGEST)
    assert target.read_bytes() == b"mine"
    assert not fetch(server.url, target)


def test_a_later_run_resumes_what_an_earlier_one_left(server: Server, target: Path) -> None:
    server.cut_after = [400_000]
    with raises(MissingFileError, "download-failed", path=target, value=server.url) as caught:
        fetch(server.url, target, sha256=DIGEST)
    assert "400,000 of 1,048,576 bytes" in str(caught.value)
    assert not target.exists()
    assert fetch(server.url, target, sha256=DIGEST)
    assert server.asked == ["", "bytes=400000-"]
    assert leftovers(target) == []


def test_a_file_that_changed_meanwhile_is_not_mixed(server: Server, target: Path) -> None:
    server.cut_after = [400_000]
    with pytest.raises(MissingFileError):
        fetch(server.url, target, sha256=DIGEST)
    server.body = BODY[::-1]
    with raises(DataError, "damaged", path=target):
        fetch(server.url, target, sha256=DIGEST)
    assert leftovers(target) == []


def test_a_dead_link_says_so_with_the_manual_way(server: Server, target: Path) -> None:
    server.status = [404]
    with raises(MissingFileError, "download-failed", path=target, value=server.url) as caught:
        fetch(server.url, target, manual="Ask the authors")
    assert "HTTP 404 " in caught.value.message
    assert "Ask the authors" in str(caught.value.hint)
    assert not target.exists()


def test_unpack_writes_the_wanted_members_only(tmp_path: Path) -> None:
    members = {"x/annotations/a.json": b"1", "x/other/a.json": b"2", "x/b.txt": b"3", "__MACOSX/x/b.txt": b"4"}
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w") as stream:
        for name, content in members.items():
            stream.writestr(name, content)
    wanted = {"coco/a.json": "annotations/a.json", "coco/b.txt": None, "coco/c.txt": None}
    assert unpack(archive, wanted, tmp_path / "data") == (["coco/a.json", "coco/b.txt"], ["coco/c.txt"])
    assert (tmp_path / "data/coco/a.json").read_bytes() == b"1"
    assert (tmp_path / "data/coco/b.txt").read_bytes() == b"3"
    assert len(list((tmp_path / "data").rglob("*.*"))) == 2

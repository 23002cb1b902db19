"""Downloads against a server on this machine that can be told to misbehave."""

from __future__ import annotations

import hashlib
import io
import re
import stat
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from pydantic import ValidationError

from capbench.core.errors import DataError, MissingFileError, UsageError
from capbench.datasets.catalog import Catalog, FileEntry
from capbench.datasets.download import fetch, unpack
from capbench.datasets.inventory import Wanted, obtain, resolve_target, resolve_targets
from capbench.datasets.root import DataRoot
from tests.errors import raises

BODY = bytes(range(256)) * 4096  # 1 MiB
DIGEST = hashlib.sha256(BODY).hexdigest()


@dataclass
class Server:
    """What the server sends, how it misbehaves, and what it was asked."""

    url: str = ""
    body: bytes = BODY
    etag: str = '"v1"'
    ranges: bool = True
    cut_after: list[int] = field(default_factory=list)
    status: list[int] = field(default_factory=list)
    kind: str = "application/octet-stream"
    redirect: str = ""
    chunked: bool = False
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            wanted = self.headers.get("Range", "")
            state.asked.append(wanted)
            self.close_connection = True
            if state.status and (code := state.status.pop(0)) != 200:
                self.send_error(code)
                return
            if state.redirect:
                self.send_response(302)
                self.send_header("Location", state.redirect)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            start = 0
            match = re.fullmatch(r"bytes=(\d+)-", wanted)
            if state.ranges and match and self.headers.get("If-Range") == state.etag:
                start = int(match[1])
                if start >= len(state.body):
                    self.send_error(416)
                    return
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(state.body) - 1}/{len(state.body)}")
            else:
                self.send_response(200)
            self.send_header("Content-Type", state.kind)
            if state.etag:
                self.send_header("ETag", state.etag)
            rest = state.body[start:]
            sent = rest[: state.cut_after.pop(0)] if state.cut_after else rest
            if state.chunked:
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.wfile.write(f"{len(rest):x}\r\n".encode() + sent)
                if len(sent) == len(rest):
                    self.wfile.write(b"\r\n0\r\n\r\n")
            else:
                self.send_header("Content-Length", str(len(rest)))
                self.end_headers()
                self.wfile.write(sent)

        def log_message(self, *_: object) -> None:
            pass

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{listener.server_address[1]}/file.bin"
    thread = threading.Thread(target=listener.serve_forever, daemon=True)
    thread.start()
    yield state
    listener.shutdown()
    listener.server_close()
    thread.join()


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


def test_a_good_file_that_is_here_is_kept_without_asking(server: Server, target: Path) -> None:
    target.parent.mkdir()
    target.write_bytes(BODY)
    assert not fetch(server.url, target, sha256=DIGEST)
    assert server.asked == []


def test_another_file_in_its_place_is_never_overwritten(server: Server, target: Path) -> None:
    target.parent.mkdir()
    target.write_bytes(b"mine")
    with raises(UsageError, "exists", path=target):
        fetch(server.url, target, sha256=DIGEST)
    assert target.read_bytes() == b"mine"
    assert not fetch(server.url, target)


def test_a_cut_connection_goes_on_where_it_stopped(server: Server, target: Path) -> None:
    server.cut_after = [300_000, 200_000]
    assert fetch(server.url, target, sha256=DIGEST, wait_s=0.01)
    assert server.asked == ["", "bytes=300000-", "bytes=500000-"]
    assert target.read_bytes() == BODY


def test_a_later_run_resumes_what_an_earlier_one_left(server: Server, target: Path) -> None:
    server.cut_after = [400_000]
    with raises(MissingFileError, "download-failed", path=target, value=server.url) as caught:
        fetch(server.url, target, attempts=1)
    assert "400,000 of 1,048,576 bytes" in str(caught.value)
    assert not target.exists()
    assert fetch(server.url, target, sha256=DIGEST)
    assert server.asked == ["", "bytes=400000-"]
    assert leftovers(target) == []


def test_a_server_without_ranges_sends_all_again(server: Server, target: Path) -> None:
    server.ranges = False
    server.cut_after = [400_000]
    assert fetch(server.url, target, sha256=DIGEST, wait_s=0.01)
    assert server.asked == ["", "bytes=400000-"]


def test_a_file_that_changed_meanwhile_starts_anew(server: Server, target: Path) -> None:
    server.cut_after = [400_000]
    with pytest.raises(MissingFileError):
        fetch(server.url, target, attempts=1)
    server.body, server.etag = BODY[::-1], '"v2"'
    assert fetch(server.url, target)
    assert target.read_bytes() == BODY[::-1]


def test_without_a_version_from_the_server_nothing_is_resumed(server: Server, target: Path) -> None:
    server.etag = ""
    server.cut_after = [400_000]
    assert fetch(server.url, target, sha256=DIGEST, wait_s=0.01)
    assert server.asked == ["", ""]


def test_a_part_of_another_address_is_not_taken_up(server: Server, target: Path) -> None:
    server.cut_after = [400_000]
    with pytest.raises(MissingFileError):
        fetch(server.url + "?old", target, attempts=1)
    assert fetch(server.url, target, sha256=DIGEST)
    assert server.asked == ["", ""]


def test_a_whole_part_is_finished_without_asking_again(server: Server, target: Path) -> None:
    server.cut_after = [400_000]
    with pytest.raises(MissingFileError):
        fetch(server.url, target, attempts=1)
    target.with_name("file.bin.part").write_bytes(BODY)
    assert fetch(server.url, target, sha256=DIGEST)
    assert server.asked == [""]


def test_a_cut_chunked_answer_is_not_taken_for_the_whole(server: Server, target: Path) -> None:
    server.chunked = True
    server.cut_after = [1000]
    with raises(MissingFileError, "download-failed", path=target, value=server.url):
        fetch(server.url, target, attempts=1)
    assert not target.exists()
    assert fetch(server.url, target, sha256=DIGEST)


@pytest.mark.parametrize("code", [403, 404, 410])
def test_a_dead_link_says_so_with_the_manual_way(server: Server, target: Path, code: int) -> None:
    server.status = [code]
    with raises(MissingFileError, "download-failed", path=target, value=server.url) as caught:
        fetch(server.url, target, manual="Ask the authors")
    assert f"HTTP {code} " in caught.value.message
    assert "Ask the authors" in str(caught.value.hint)
    assert caught.value.exit_code == 2
    assert server.asked == [""]
    assert not target.exists()


def test_a_busy_server_is_asked_again(server: Server, target: Path) -> None:
    server.status = [503, 429, 200]
    assert fetch(server.url, target, sha256=DIGEST, wait_s=0.01)
    assert len(server.asked) == 3


def test_a_server_that_does_not_answer_is_an_error_with_the_manual_way(target: Path) -> None:
    url = "http://127.0.0.1:9/file.bin"
    with raises(MissingFileError, "download-failed", path=target, value=url) as caught:
        fetch(url, target, manual="Ask", attempts=2, wait_s=0.01)
    assert "Ask" in str(caught.value.hint)


def test_a_wrong_hash_removes_what_arrived(server: Server, target: Path) -> None:
    with raises(DataError, "damaged", path=target, value=DIGEST):
        fetch(server.url, target, sha256="0" * 64)
    assert not target.exists()
    assert leftovers(target) == []


def test_a_web_page_instead_of_the_file_is_an_error(server: Server, target: Path) -> None:
    server.kind = "text/html; charset=utf-8"
    with raises(MissingFileError, "download-failed", path=target, value=server.url):
        fetch(server.url, target)
    assert not target.exists()


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/a", "file:///etc/hostname", "a.bin", "http:///a"])
def test_only_http_addresses_are_taken(url: str, target: Path) -> None:
    with raises(UsageError, "wrong-value", value=url):
        fetch(url, target)


def test_a_redirect_to_another_kind_of_address_is_not_followed(server: Server, target: Path) -> None:
    server.redirect = "ftp://127.0.0.1/file.bin"
    with raises(MissingFileError, "download-failed", path=target, value=server.url) as caught:
        fetch(server.url, target, attempts=1)
    assert "ftp://127.0.0.1/file.bin" in str(caught.value)


def test_a_folder_that_cannot_be_written_is_an_error(server: Server, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where the folder should be")
    with raises(UsageError, "unwritable", path=tmp_path / "data/file.bin"):
        fetch(server.url, tmp_path / "data" / "file.bin")


def zipped(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def test_unpack_writes_the_wanted_members_only(tmp_path: Path) -> None:
    members = {"x/annotations/a.json": b"1", "x/other/a.json": b"2", "x/b.txt": b"3", "__MACOSX/x/b.txt": b"4"}
    archive = zipped(tmp_path / "a.zip", members)
    wanted = {"coco/a.json": "annotations/a.json", "coco/b.txt": None, "coco/c.txt": None}
    assert unpack(archive, wanted, tmp_path / "data") == (["coco/a.json", "coco/b.txt"], ["coco/c.txt"])
    assert (tmp_path / "data/coco/a.json").read_bytes() == b"1"
    assert (tmp_path / "data/coco/b.txt").read_bytes() == b"3"
    assert len(list((tmp_path / "data").rglob("*.*"))) == 2


def test_unpack_keeps_files_that_are_here(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "a.zip", {"b.txt": b"new"})
    (tmp_path / "b.txt").write_text("mine")
    assert unpack(archive, {"b.txt": None}, tmp_path) == ([], [])
    assert (tmp_path / "b.txt").read_text() == "mine"


@pytest.mark.parametrize("name", ["../../b.txt", "/b.txt", "x/../../b.txt", "C:/b.txt", "..\\b.txt"])
def test_an_archive_whose_names_lead_out_is_refused(tmp_path: Path, name: str) -> None:
    archive = zipped(tmp_path / "a.zip", {name: b"evil", "good/b.txt": b"good"})
    with raises(DataError, "unsafe", path=archive):
        unpack(archive, {"b.txt": None}, tmp_path / "in" / "data")
    assert not list(tmp_path.rglob("b.txt"))


def test_a_symbolic_link_in_an_archive_is_not_followed(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("b.txt")
    link.create_system = 3
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(link, "/etc/hostname")
    assert unpack(tmp_path / "a.zip", {"b.txt": None}, tmp_path / "data") == ([], ["b.txt"])


def test_two_members_of_one_name_are_not_guessed_between(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "a.zip", {"x/b.txt": b"1", "y/b.txt": b"2"})
    with raises(DataError, "ambiguous", path=archive, value="b.txt"):
        unpack(archive, {"b.txt": None}, tmp_path / "data")


def test_a_damaged_archive_leaves_no_file(tmp_path: Path) -> None:
    content = bytearray(zipped(tmp_path / "a.zip", {"b.txt": b"hello " * 100}).read_bytes())
    content[60] ^= 0xFF
    (tmp_path / "a.zip").write_bytes(content)
    with raises(DataError, "damaged", path=tmp_path / "a.zip"):
        unpack(tmp_path / "a.zip", {"b.txt": None}, tmp_path / "data")
    (tmp_path / "a.zip").write_bytes(b"<html>")
    with raises(DataError, "damaged", path=tmp_path / "a.zip"):
        unpack(tmp_path / "a.zip", {"b.txt": None}, tmp_path / "data")
    assert not list((tmp_path / "data").rglob("b.txt"))


def small(url: str, **source: str) -> Catalog:
    return Catalog.model_validate(
        {
            "schema": 1,
            "sources": {
                "s": {
                    "title": "The source",
                    "terms": "free",
                    "manual": "Ask",
                    "url": url,
                    "sha256": "unknown",
                    **source,
                }
            },
            "datasets": {
                "one": {
                    "title": "One",
                    "citation": "c",
                    "what": "w",
                    "needs": [{"role": "all", "any_of": [["d/a.txt", "d/b.txt"]]}],
                }
            },
            "files": {"d/a.txt": {"what": "a", "source": "s"}, "d/b.txt": {"what": "b", "source": "s"}},
        }
    )


@pytest.fixture
def root(tmp_path: Path) -> DataRoot:
    return DataRoot(tmp_path, False, "test")


def test_a_data_sets_missing_files_come_out_of_the_sources_archive(server: Server, root: DataRoot) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("release/a.txt", "a")
        archive.writestr("release/b.txt", "b")
    server.body = buffer.getvalue()
    known = small(server.url, archive="zip")
    wanted = resolve_target("one", known, root)
    assert wanted == [Wanted("s", ("d/a.txt", "d/b.txt"))]
    assert obtain(wanted[0], known, root).written == ("d/a.txt", "d/b.txt")
    assert (root.path / "d/b.txt").read_text() == "b"
    assert resolve_target("one", known, root) == []
    assert obtain(wanted[0], known, root).kept == ("d/a.txt", "d/b.txt")


@pytest.mark.parametrize("archive", [False, True])
def test_what_an_address_gives_is_compared_with_its_stated_checksum(
    server: Server, root: DataRoot, archive: bool
) -> None:
    kind = {"archive": "zip"} if archive else {}
    with raises(DataError, "damaged", value=DIGEST):
        obtain(Wanted("s", ("d/a.txt",)), small(server.url, sha256="0" * 64, **kind), root)
    assert not (root.path / "d/a.txt").exists()
    if not archive:
        known = small(server.url, sha256=DIGEST)
        assert obtain(Wanted("s", ("d/a.txt",)), known, root).written == ("d/a.txt",)


def test_a_link_known_to_be_dead_is_not_tried(server: Server, root: DataRoot) -> None:
    known = small(server.url, dead="answers 404 since spring")
    with raises(MissingFileError, "download-failed", value="s") as caught:
        obtain(Wanted("s", ("d/a.txt",)), known, root)
    assert "answers 404 since spring" in caught.value.message
    assert "Ask" in str(caught.value.hint)
    assert server.asked == []


def test_a_users_mirror_replaces_a_dead_link(server: Server, root: DataRoot) -> None:
    known = small("http://127.0.0.1:9/x", dead="long ago")
    assert obtain(Wanted("s", ("d/a.txt",)), known, root, url=server.url).written == ("d/a.txt",)
    assert (root.path / "d/a.txt").read_bytes() == BODY


def test_one_mirrored_file_cannot_be_two(server: Server, root: DataRoot) -> None:
    with raises(UsageError, "ambiguous", value=server.url):
        obtain(Wanted("s", ("d/a.txt", "d/b.txt")), small(server.url), root, url=server.url)


def test_the_embedded_sample_is_never_written_to(server: Server, tmp_path: Path) -> None:
    with raises(UsageError, "unsupported"):
        obtain(Wanted("s", ("d/a.txt",)), small(server.url), DataRoot(tmp_path, True, "test"))


def test_what_a_target_means(root: DataRoot) -> None:
    known = small("http://127.0.0.1:9/x")
    assert resolve_target("s", known, root) == [Wanted("s", ("d/a.txt", "d/b.txt"))]
    assert resolve_target("d/a.txt", known, root) == [Wanted("s", ("d/a.txt",))]
    assert resolve_target("b.txt", known, root) == [Wanted("s", ("d/b.txt",))]
    with raises(UsageError, "unknown-name", value="onee"):
        resolve_target("onee", known, root)


def with_addresses(url: str, sha256: str) -> Catalog:
    """Two files with an address of their own, one of them in a common source without any."""
    known = small(url).model_dump(by_alias=True)
    del known["sources"]["s"]["url"], known["sources"]["s"]["sha256"]
    for entry in known["files"].values():
        entry |= {"url": url, "size": len(BODY), "sha256": {"value": sha256, "status": "observed", "seen_in": "x/y"}}
    known["sources"]["s"]["open"] = True
    return Catalog.model_validate(known)


def test_files_with_their_own_addresses_are_fetched_one_by_one_and_resumed(server: Server, root: DataRoot) -> None:
    known = with_addresses(server.url, DIGEST)
    assert known.is_open("one")
    assert known.address("d/b.txt") == server.url
    wanted = resolve_targets(["one", "d/a.txt", "s"], known, root)
    assert wanted == [Wanted("s", ("d/a.txt", "d/b.txt"))]
    (root.path / "open/d").mkdir(parents=True)
    (root.path / "open/d/a.txt").write_bytes(BODY)
    server.cut_after = [300_000]
    done = obtain(wanted[0], known, root)
    assert (done.written, done.kept) == (("d/b.txt",), ("d/a.txt",))
    assert (root.path / "d/b.txt").read_bytes() == BODY
    assert not (root.path / "d/a.txt").exists()  # it is in the common folder
    assert server.asked[-1] == "bytes=300000-"


def test_a_file_that_is_not_the_one_of_the_address_is_removed(server: Server, root: DataRoot) -> None:
    with raises(DataError, "damaged", value=DIGEST):
        obtain(Wanted("s", ("d/a.txt",)), with_addresses(server.url, "0" * 64), root)
    assert not (root.path / "d/a.txt").exists()


def test_an_address_of_a_file_requires_its_checksum() -> None:
    with pytest.raises(ValidationError):
        FileEntry(what="a", source="s", url="http://127.0.0.1/a")

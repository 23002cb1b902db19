"""Downloads of data sets' files against a server on this machine."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from capbench.core.errors import DataError, UsageError
from capbench.datasets.catalog import Catalog
from capbench.datasets.inventory import Wanted, obtain, resolve_targets
from capbench.datasets.root import DataRoot
from tests.errors import raises
from tests.http_server import BODY, DIGEST, Server


def small(url: str, sha256: str = "", **source: str) -> Catalog:
    facts = {"title": "The source", "terms": "free", "manual": "Ask", "url": url, **source}
    needs = [{"role": "all", "any_of": [["d/a.txt", "d/b.txt"]]}]
    stated = {"sha256": {"value": sha256, "status": "official", "seen_in": "x"}} if sha256 else {}
    files = {f"d/{name}.txt": {"what": name, "source": "s", **stated} for name in "ab"}
    entry = {"title": "One", "citation": "c", "what": "w", "needs": needs}
    return Catalog.model_validate({"schema": 1, "sources": {"s": facts}, "datasets": {"one": entry}, "files": files})


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
    wanted = resolve_targets(["one"], known, root)
    assert wanted == [Wanted("s", ("d/a.txt", "d/b.txt"))]
    assert obtain(wanted[0], known, root).written == ("d/a.txt", "d/b.txt")
    assert (root.path / "d/b.txt").read_text() == "b"
    assert resolve_targets(["one"], known, root) == []
    assert obtain(wanted[0], known, root).kept == ("d/a.txt", "d/b.txt")


def test_what_an_address_gives_is_compared_with_its_official_checksum(server: Server, root: DataRoot) -> None:
    with raises(DataError, "damaged", value=DIGEST):
        obtain(Wanted("s", ("d/a.txt",)), small(server.url, sha256="0" * 64), root)
    assert not (root.path / "d/a.txt").exists()
    assert obtain(Wanted("s", ("d/a.txt",)), small(server.url, sha256=DIGEST), root).written == ("d/a.txt",)


def test_what_a_target_means(root: DataRoot) -> None:
    known = small("http://127.0.0.1:9/x")
    assert resolve_targets(["s"], known, root) == [Wanted("s", ("d/a.txt", "d/b.txt"))]
    assert resolve_targets(["d/a.txt"], known, root) == [Wanted("s", ("d/a.txt",))]
    assert resolve_targets(["b.txt"], known, root) == [Wanted("s", ("d/b.txt",))]


def test_requests_that_cannot_be_met_are_refused(server: Server, root: DataRoot) -> None:
    known, both = small(server.url), Wanted("s", ("d/a.txt", "d/b.txt"))
    with raises(UsageError, "unknown-name", value="onee"):
        resolve_targets(["onee"], known, root)
    with raises(UsageError, "ambiguous", value=server.url):
        obtain(both, known, root, url=server.url)
    with raises(UsageError, "unsupported"):
        obtain(both, known, DataRoot(root.path, True, "test"))
    with raises(DataError, "damaged", value=DIGEST):
        obtain(Wanted("s", ("d/a.txt",)), with_addresses(server.url, "0" * 64), root)
    assert not (root.path / "d/a.txt").exists()


def with_addresses(url: str, sha256: str) -> Catalog:
    """Two files with an address of their own, one of them in a common source without any."""
    known = small(url).model_dump(by_alias=True)
    del known["sources"]["s"]["url"]
    for entry in known["files"].values():
        entry |= {"url": url, "size": len(BODY), "sha256": {"value": sha256, "status": "observed", "seen_in": "x/y"}}
    known["sources"]["s"]["open"] = True
    return Catalog.model_validate(known)


def test_files_with_their_own_addresses_are_fetched_one_by_one(server: Server, root: DataRoot) -> None:
    known = with_addresses(server.url, DIGEST)
    assert known.is_open("one")
    assert known.address("d/b.txt") == server.url
    wanted = resolve_targets(["one", "d/a.txt", "s"], known, root)
    assert wanted == [Wanted("s", ("d/a.txt", "d/b.txt"))]
    (root.path / "open/d").mkdir(parents=True)
    (root.path / "open/d/a.txt").write_bytes(BODY)
    done = obtain(wanted[0], known, root)
    assert (done.written, done.kept) == (("d/b.txt",), ("d/a.txt",))
    assert (root.path / "d/b.txt").read_bytes() == BODY
    assert not (root.path / "d/a.txt").exists()  # it is in the common folder

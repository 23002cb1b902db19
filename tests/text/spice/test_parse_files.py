from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from capbench.core.cache import Cache
from capbench.core.errors import DataError, MissingFileError, UsageError
from capbench.text.spice import parser as spice
from capbench.text.spice import scene_graph
from capbench.text.spice.scene_graph import export_parses, import_parses
from tests.installed_parser import parsed
from tests.text.parsed_captions import CAPTIONS


@pytest.fixture
def exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of parses; the cache is another, and empty."""
    path = tmp_path / "parses.gz"
    with parsed(CAPTIONS):
        assert export_parses(path) == len(CAPTIONS)
    monkeypatch.setenv("CAPBENCH_CACHE", str(tmp_path / "other"))
    return path


def _n_kept() -> int:
    with Cache("scene-graphs") as store:
        return len(list(store.entries(spice.SPICE_PARSER_VERSION)))


def test_imported_captions_need_no_parser(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPBENCH_JAVA", "/nonexistent")
    assert import_parses(exported) == (len(CAPTIONS), len(CAPTIONS))
    assert scene_graph.missing(list(CAPTIONS)) == []
    tuples = [[list(parts) for parts in of_caption] for of_caption in scene_graph.tuples(list(CAPTIONS))]
    assert tuples == list(CAPTIONS.values())
    scene_graph.forget()


def test_importing_again_changes_nothing(exported: Path) -> None:
    import_parses(exported)
    assert import_parses(exported) == (len(CAPTIONS), 0)
    assert _n_kept() == len(CAPTIONS)


def test_equal_caches_give_equal_files(exported: Path, tmp_path: Path) -> None:
    import_parses(exported)
    export_parses(tmp_path / "again.gz")
    assert (tmp_path / "again.gz").read_bytes() == exported.read_bytes()


def test_the_file_holds_no_captions(exported: Path) -> None:
    text = gzip.decompress(exported.read_bytes()).decode()
    assert not any(caption in text for caption in CAPTIONS if len(caption.split()) > 3)


def test_nothing_to_export_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nothing to export: no caption was parsed yet by spice-1\.0"):
        export_parses(tmp_path / "parses.gz")
    assert not (tmp_path / "parses.gz").exists()


def test_a_file_that_is_there_is_kept(exported: Path) -> None:
    before = exported.read_bytes()
    with pytest.raises(UsageError, match="is there already"):
        export_parses(exported)
    assert exported.read_bytes() == before
    import_parses(exported)
    assert export_parses(exported, replace=True) == len(CAPTIONS)


def _edited(change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    return lambda packed: gzip.compress(change(gzip.decompress(packed)))


def _with_head(**entries: object) -> Callable[[bytes], bytes]:
    def change(text: bytes) -> bytes:
        head, _, body = text.partition(b"\n")
        return json.dumps({**json.loads(head), **entries}).encode() + b"\n" + body

    return _edited(change)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda packed: packed[:-20], "is damaged or no file of parses"),
        (lambda packed: packed[:60] + bytes([packed[60] ^ 1]) + packed[61:], "is damaged"),
        (lambda packed: b"rubbish", "is damaged or no file of parses"),
        (lambda packed: b"", "is no file of parses"),
        (lambda packed: gzip.compress(b"rubbish\n"), "is no file of parses"),
        (lambda packed: gzip.compress(b"\xff\xfe\n"), "is no file of parses"),
        (_edited(lambda text: text.replace(b"dog", b"cat")), "do not fit their SHA-256"),
        (_edited(lambda text: text.rpartition(b"\n")[0]), "do not fit their SHA-256"),
        (_with_head(parses=1), "do not fit their SHA-256"),
        (
            _with_head(parser="spice-2.0"),
            r"holds parses of spice-2\.0; this version of capbench parses with spice-1\.0",
        ),
        (_with_head(schema=2), "has schema 2"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_and_nothing_taken(
    exported: Path, damage: Callable[[bytes], bytes], message: str
) -> None:
    exported.write_bytes(damage(exported.read_bytes()))
    with pytest.raises(DataError, match=message) as caught:
        import_parses(exported)
    assert "\n" not in str(caught.value)
    assert _n_kept() == 0


@pytest.mark.parametrize("value", ["[[1]]", "[[]]", '["a"]', "[[", '[["a","b","c","d"]]'])
def test_what_is_no_list_of_tuples_is_refused_with_its_row(exported: Path, value: str) -> None:

    body = b"0" * 32 + b'\t[["dog"]]\n' + b"1" * 32 + b"\t" + value.encode() + b"\n"
    sound = gzip.decompress(exported.read_bytes()).partition(b"\n")[0]
    head = {**json.loads(sound), "parses": 2, "sha256": hashlib.sha256(body).hexdigest()}
    exported.write_bytes(gzip.compress(json.dumps(head).encode() + b"\n" + body))
    with pytest.raises(DataError, match=r"row 3.*is no key with tuples|is no key with tuples.*row 3"):
        import_parses(exported)
    assert _n_kept() == 0


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="there is no such file"):
        import_parses(tmp_path / "no.gz")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is a folder"):
        import_parses(tmp_path)


@pytest.mark.filterwarnings("ignore:the cache 'scene-graphs' cannot be used")
def test_a_cache_that_cannot_be_written_is_an_error(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CAPBENCH_CACHE", str(tmp_path / "file"))
    with pytest.raises(UsageError, match="nothing was imported"):
        import_parses(exported)


@pytest.mark.parametrize("place", ["head", "tuples"])
def test_a_file_that_is_nested_too_deeply_is_refused(exported: Path, place: str) -> None:
    head, _, body = gzip.decompress(exported.read_bytes()).partition(b"\n")
    if place == "head":
        head = b"[" * 100_000
    else:
        body = b"0" * 32 + b"\t" + b"[" * 100_000 + b"]" * 100_000 + b"\n"
        facts = {**json.loads(head), "parses": 1, "sha256": hashlib.sha256(body).hexdigest()}
        head = json.dumps(facts).encode()
    exported.write_bytes(gzip.compress(head + b"\n" + body))
    with pytest.raises(DataError, match="is no file of parses" if place == "head" else "is no key with tuples"):
        import_parses(exported)
    assert _n_kept() == 0

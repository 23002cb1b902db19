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
from tests.errors import raises
from tests.installed_parser import parsed
from tests.text.parsed_captions import CAPTIONS


@pytest.fixture
def exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A parse file; the cache is another one, and empty."""
    path = tmp_path / "parses.gz"
    with parsed(CAPTIONS):
        assert export_parses(path) == len(CAPTIONS)
    monkeypatch.setenv("CAPBENCH_CACHE", str(tmp_path / "other"))
    return path


def _n_stored() -> int:
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
    assert _n_stored() == len(CAPTIONS)


def test_equal_caches_give_equal_files(exported: Path, tmp_path: Path) -> None:
    import_parses(exported)
    export_parses(tmp_path / "again.gz")
    assert (tmp_path / "again.gz").read_bytes() == exported.read_bytes()


def test_the_file_holds_no_captions(exported: Path) -> None:
    text = gzip.decompress(exported.read_bytes()).decode()
    assert not any(caption in text for caption in CAPTIONS if len(caption.split()) > 3)


def test_nothing_to_export_is_an_error(tmp_path: Path) -> None:
    with raises(UsageError, "missing-data", value=spice.SPICE_PARSER_VERSION):
        export_parses(tmp_path / "parses.gz")
    assert not (tmp_path / "parses.gz").exists()


def test_a_file_that_is_there_is_kept(exported: Path) -> None:
    before = exported.read_bytes()
    with raises(UsageError, "exists", path=exported):
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
    ("damage", "code", "value"),
    [
        (lambda packed: packed[:-20], "damaged", None),
        (lambda packed: packed[:60] + bytes([packed[60] ^ 1]) + packed[61:], "damaged", None),
        (lambda packed: b"rubbish", "damaged", None),
        (lambda packed: b"", "wrong-format", None),
        (lambda packed: gzip.compress(b"rubbish\n"), "wrong-format", None),
        (lambda packed: gzip.compress(b"\xff\xfe\n"), "wrong-format", None),
        (_edited(lambda text: text.replace(b"dog", b"cat")), "damaged", None),
        (_edited(lambda text: text.rpartition(b"\n")[0]), "damaged", None),
        (_with_head(parses=1), "damaged", None),
        (_with_head(parser="spice-2.0"), "wrong-version", "spice-2.0"),
        (_with_head(schema=2), "wrong-version", 2),
    ],
)
def test_an_invalid_file_is_rejected_and_nothing_is_imported(
    exported: Path, damage: Callable[[bytes], bytes], code: str, value: object
) -> None:
    exported.write_bytes(damage(exported.read_bytes()))
    with raises(DataError, code, path=exported, value=value) as caught:
        import_parses(exported)
    assert "\n" not in str(caught.value)
    assert _n_stored() == 0


@pytest.mark.parametrize("value", ["[[1]]", "[[]]", '["a"]', "[[", '[["a","b","c","d"]]'])
def test_an_invalid_list_of_tuples_is_rejected_with_its_row(exported: Path, value: str) -> None:

    body = b"0" * 32 + b'\t[["dog"]]\n' + b"1" * 32 + b"\t" + value.encode() + b"\n"
    sound = gzip.decompress(exported.read_bytes()).partition(b"\n")[0]
    head = {**json.loads(sound), "parses": 2, "sha256": hashlib.sha256(body).hexdigest()}
    exported.write_bytes(gzip.compress(json.dumps(head).encode() + b"\n" + body))
    with raises(DataError, "wrong-format", path=exported, row=3):
        import_parses(exported)
    assert _n_stored() == 0


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with raises(MissingFileError, "missing-file", path=tmp_path / "no.gz"):
        import_parses(tmp_path / "no.gz")


def test_a_folder_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        import_parses(tmp_path)
    assert caught.value.path == str(tmp_path)


@pytest.mark.filterwarnings("ignore:the cache 'scene-graphs' cannot be used")
def test_a_cache_that_cannot_be_written_is_an_error(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CAPBENCH_CACHE", str(tmp_path / "file"))
    with raises(UsageError, "unwritable"):
        import_parses(exported)


@pytest.mark.parametrize("place", ["head", "tuples"])
def test_a_file_that_is_nested_too_deeply_is_rejected(exported: Path, place: str) -> None:
    head, _, body = gzip.decompress(exported.read_bytes()).partition(b"\n")
    if place == "head":
        head = b"[" * 100_000
    else:
        body = b"0" * 32 + b"\t" + b"[" * 100_000 + b"]" * 100_000 + b"\n"
        facts = {**json.loads(head), "parses": 1, "sha256": hashlib.sha256(body).hexdigest()}
        head = json.dumps(facts).encode()
    exported.write_bytes(gzip.compress(head + b"\n" + body))
    with raises(DataError, "wrong-format", path=exported, row=None if place == "head" else 2):
        import_parses(exported)
    assert _n_stored() == 0

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from capbench.core.cache import Cache
from capbench.core.errors import DataError, MissingFileError, UsageError
from capbench.datasets.root import sample_dir
from capbench.text import ptb
from capbench.text.spice import parser as spice
from capbench.text.spice import scene_graph
from capbench.text.spice.parse_file import FOLDER, CaptionSet, ParseFile, parse_files, write_parses
from capbench.text.spice.scene_graph import export_parses
from tests.errors import raises
from tests.installed_parser import installed_parser, parsed
from tests.text.parsed_captions import CAPTIONS

VERSION = spice.SPICE_PARSER_VERSION
TERMS = {"invented": (list(CAPTIONS), "CC0", True)}


@pytest.fixture
def exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A parse file in a data folder; the cache is another one, and empty, and Java is missing."""
    path = tmp_path / FOLDER / "invented.parses"
    with parsed(CAPTIONS):
        export_parses(path, TERMS)
    monkeypatch.setenv("CAPBENCH_CACHE", str(tmp_path / "other"))
    monkeypatch.setenv("CAPBENCH_JAVA", "/nonexistent")
    return path


def _n_stored() -> int:
    with Cache("scene-graphs") as store:
        return len(store.get(VERSION))


def _tuples(data: Path | None = None) -> list[list[list[str]]]:
    scene_graph.forget()
    found = [[list(parts) for parts in tuples] for tuples in scene_graph.tuples(list(CAPTIONS), data=data)]
    scene_graph.forget()
    return found


def test_captions_of_a_file_in_the_data_folder_need_no_parser(exported: Path, tmp_path: Path) -> None:
    assert scene_graph.missing([*CAPTIONS, "a new one"], data=tmp_path) == ["a new one"]
    assert _tuples(tmp_path) == list(CAPTIONS.values())
    assert _n_stored() == 0
    assert scene_graph.missing(list(CAPTIONS)) == list(CAPTIONS)
    # Equal parses give equal files, which are kept unless they are to be replaced.
    before = exported.read_bytes()
    export_parses(tmp_path / "again.parses", TERMS, data=tmp_path)
    assert (tmp_path / "again.parses").read_bytes() == before
    with raises(UsageError, "exists", path=exported):
        export_parses(exported, TERMS, data=tmp_path)
    assert exported.read_bytes() == before
    scene_graph.forget()


def test_several_files_are_read_and_other_files_are_not(exported: Path, tmp_path: Path) -> None:
    write_parses(exported.with_name("two.parses"), {scene_graph.key("a b"): b'[["b"]]'}, [], VERSION)
    (exported.parent / "README").write_text("not parses")
    assert [file.path.name for file in parse_files(tmp_path, VERSION)] == ["invented.parses", "two.parses"]
    assert scene_graph.missing([*CAPTIONS, "a b", "c d"], data=tmp_path) == ["c d"]


def test_the_file_names_the_captions_with_their_licences(tmp_path: Path) -> None:
    some = list(CAPTIONS)
    sets = {"one": ([*some[:3], some[0], ""], "CC0", True), "two": ([*some[2:5], "a new one"], "none stated", False)}
    with parsed(CAPTIONS):
        export_parses(tmp_path / "x.parses", sets)
    file = ParseFile(tmp_path / "x.parses", VERSION)
    found = file.get(map(scene_graph.key, CAPTIONS))
    text = file.path.read_bytes() + b"\n".join(found.values())
    assert not any(caption.encode() in text for caption in some if len(caption.split()) > 3)  # not the captions
    assert file.sets == (CaptionSet("one", "CC0", True, 3, 3), CaptionSet("two", "none stated", False, 4, 3))
    assert set(found) == set(map(scene_graph.key, some[:5]))


def test_a_changed_byte_is_missing_or_an_error_but_never_another_parse(exported: Path) -> None:
    whole = exported.read_bytes()
    parses = ParseFile(exported, VERSION).get(map(scene_graph.key, CAPTIONS))
    draw = random.Random(0)
    for _ in range(400):
        place = draw.randrange(len(whole))
        exported.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << draw.randrange(8))]) + whole[place + 1 :])
        with contextlib.suppress(DataError):
            assert ParseFile(exported, VERSION).get(list(parses)).items() <= parses.items()


@pytest.mark.parametrize("content", [b"rubbish", b"", b"SQLite format 3\0" * 90])
def test_another_file_is_rejected(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.parses"
    path.write_bytes(content)
    with raises(DataError, "damaged", path=path):
        ParseFile(path, VERSION)
    with raises(MissingFileError, "missing-file", path=tmp_path / "no.parses"):
        ParseFile(tmp_path / "no.parses", VERSION)


@pytest.mark.java
def test_parses_in_a_file_equal_fresh_ones_and_the_known_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (sample_dir() / "flickr8k/Flickr8k.token.txt").read_text(encoding="utf-8").splitlines()
    tokens = ptb.tokenize(
        [*CAPTIONS, *(line.partition("\t")[2] for line in lines[:4]), "Hi.", "Näive 日本 😀 dog\there"]
    )
    path = tmp_path / FOLDER / "x.parses"
    with installed_parser():
        fresh = list(scene_graph.tuples(tokens))
    with parsed({}):
        assert list(scene_graph.tuples(tokens)) == fresh
        export_parses(path, {"x": (tokens, "CC0", True)})
    monkeypatch.setenv("CAPBENCH_CACHE", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("CAPBENCH_JAVA", "/nonexistent")
    assert list(scene_graph.tuples(tokens, data=tmp_path)) == fresh
    scene_graph.forget()
    assert [list(map(list, tuples)) for tuples in fresh[: len(CAPTIONS)]] == list(CAPTIONS.values())
    assert fresh[-2] == ()

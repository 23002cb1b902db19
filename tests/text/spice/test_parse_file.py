from __future__ import annotations

import bz2
import hashlib
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from capbench.core.cache import Cache
from capbench.core.errors import DataError, MissingFileError, UsageError
from capbench.datasets.root import sample_dir
from capbench.text import ptb
from capbench.text.spice import parse_file, scene_graph
from capbench.text.spice import parser as spice
from capbench.text.spice.parse_file import FOLDER, CaptionSet, ParseFile, parse_files, write_parses
from capbench.text.spice.scene_graph import CaptionsOf, export_parses, import_parses
from tests.errors import raises
from tests.installed_parser import installed_parser, parsed
from tests.text.parsed_captions import CAPTIONS

VERSION = spice.SPICE_PARSER_VERSION
TERMS = {"invented": CaptionsOf(list(CAPTIONS), "CC0", redistributable=True)}


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
        return len(list(store.entries(VERSION)))


def _tuples(data: Path | None = None) -> list[list[list[str]]]:
    scene_graph.forget()
    found = [[list(parts) for parts in tuples] for tuples in scene_graph.tuples(list(CAPTIONS), data=data)]
    scene_graph.forget()
    return found


def test_captions_of_a_file_in_the_data_folder_need_neither_parser_nor_import(exported: Path, tmp_path: Path) -> None:
    assert scene_graph.missing([*CAPTIONS, "a new one"], data=tmp_path) == ["a new one"]
    assert _tuples(tmp_path) == list(CAPTIONS.values())
    assert _n_stored() == 0
    assert scene_graph.missing(list(CAPTIONS)) == list(CAPTIONS)


def test_imported_captions_need_no_parser(exported: Path) -> None:
    file, new = import_parses(exported)
    assert (len(file), new, _n_stored()) == (len(CAPTIONS), len(CAPTIONS), len(CAPTIONS))
    assert _tuples() == list(CAPTIONS.values())
    assert import_parses(exported)[1] == 0


def test_several_files_are_read_and_other_files_are_not(exported: Path, tmp_path: Path) -> None:
    key, other = scene_graph.key("a b"), scene_graph.key("c d")
    write_parses(exported.with_name("two.parses"), {key: b'[["b"]]'}, [], VERSION)
    (exported.parent / "README").write_text("not parses")
    assert [file.path.name for file in parse_files(tmp_path, VERSION)] == ["invented.parses", "two.parses"]
    assert scene_graph.missing([*CAPTIONS, "a b", "c d"], data=tmp_path) == ["c d"]
    scene_graph.forget()
    write_parses(exported.with_name("two.parses"), {key: b"[]", other: b'[["d"]]'}, [], VERSION, replace=True)
    assert list(scene_graph.tuples(["c d", "a b"], data=tmp_path)) == [(("d",),), ()]
    scene_graph.forget()


def test_a_data_folder_without_parse_files_has_none(tmp_path: Path) -> None:
    assert parse_files(tmp_path, VERSION) == []
    (tmp_path / FOLDER).touch()
    assert parse_files(tmp_path, VERSION) == []


def test_lookups_are_those_of_a_dictionary_and_read_only_their_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(0)
    keys = [draw.randbytes(16) for _ in range(700)]
    # Keys that differ in their last bytes only, which are zero.
    keys += [keys[0][:12] + bytes([0, 0, 0, n]) for n in (0, 1, 255)] + [bytes(16)]
    parses = {key: json.dumps([[f"object {i}", "ä"]]).encode() for i, key in enumerate(keys)}
    monkeypatch.setattr(parse_file, "_IN_BLOCK", 64)
    write_parses(tmp_path / "x.parses", parses, [], VERSION)
    file = ParseFile(tmp_path / "x.parses", VERSION)
    read: list[bytes] = []
    decompressor = bz2.BZ2Decompressor

    class Reading:
        def __init__(self) -> None:
            self.stream = decompressor()

        def decompress(self, block: bytes, limit: int) -> bytes:
            read.append(block)
            return self.stream.decompress(block, limit)

        @property
        def eof(self) -> bool:
            return self.stream.eof

    monkeypatch.setattr(bz2, "BZ2Decompressor", Reading)
    assert file.get(keys[64:128]) == {key: parses[key] for key in keys[64:128]}
    assert len(read) == 1
    asked = draw.sample(keys, 300) + [draw.randbytes(16) for _ in range(300)] + [b"\xff" * 16]
    assert file.get(asked) == {key: parses[key] for key in asked if key in parses}
    assert file.get([]) == {}
    assert dict(file.entries()) == parses
    assert len(read) == len(set(read)) == -(-len(keys) // 64)  # each block once


def test_equal_parses_give_equal_files(exported: Path, tmp_path: Path) -> None:
    import_parses(exported)
    export_parses(tmp_path / "again.parses", TERMS)
    scene_graph.forget()
    assert (tmp_path / "again.parses").read_bytes() == exported.read_bytes()


def test_the_file_holds_no_captions(exported: Path) -> None:
    file = ParseFile(exported, VERSION)
    text = exported.read_bytes() + b"\n".join(value for _, value in file.entries())
    assert not any(caption.encode() in text for caption in CAPTIONS if len(caption.split()) > 3)


def test_the_file_names_the_captions_with_their_licences(tmp_path: Path) -> None:
    some = list(CAPTIONS)
    sets = {
        "one": CaptionsOf([*some[:3], some[0], ""], "CC0", redistributable=True),
        "two": CaptionsOf([*some[2:5], "a new one"], "none stated", redistributable=False),
    }
    with parsed(CAPTIONS):
        export_parses(tmp_path / "x.parses", sets)
        export_parses(tmp_path / "cache.parses")
    file = ParseFile(tmp_path / "x.parses", VERSION)
    assert file.sets == (CaptionSet("one", "CC0", True, 3, 3), CaptionSet("two", "none stated", False, 4, 3))
    assert [each.name for each in file.restricted] == ["two"]
    assert [key for key, _ in file.entries()] == list(map(scene_graph.key, some[:5]))
    n = len(CAPTIONS)
    assert ParseFile(tmp_path / "cache.parses", VERSION).sets == (CaptionSet("cache", "unknown", False, n, n),)


def test_nothing_to_export_is_an_error(tmp_path: Path) -> None:
    with raises(UsageError, "missing-data", value=VERSION):
        export_parses(tmp_path / "x.parses")
    with raises(UsageError, "missing-data", value=VERSION):
        export_parses(tmp_path / "x.parses", TERMS)
    assert not (tmp_path / "x.parses").exists()


def test_a_file_that_is_there_is_kept(exported: Path) -> None:
    before = exported.read_bytes()
    import_parses(exported)
    with raises(UsageError, "exists", path=exported):
        export_parses(exported)
    assert exported.read_bytes() == before
    export_parses(exported, replace=True)
    assert exported.read_bytes() != before  # without the sets' names


def test_a_changed_or_missing_byte_is_noticed(exported: Path, tmp_path: Path) -> None:
    packed, path = exported.read_bytes(), tmp_path / "damaged.parses"
    for damaged in (packed[:-1], packed[:-3] + bytes([packed[-3] ^ 1]) + packed[-2:]):
        path.write_bytes(damaged)
        with raises(DataError, "damaged", path=path):
            ParseFile(path, VERSION)


def _with_content(path: Path, change: Callable[[dict[str, Any], bytes], bytes]) -> None:
    """Change head and body of a file, whose SHA-256 fits again."""
    head, body = path.read_bytes().split(b"\n", 2)[1:]
    content = change(json.loads(head), body)
    path.write_bytes(b"capbench-parses 2 " + hashlib.sha256(content).hexdigest().encode() + b"\n" + content)


def _with_head(**entries: object) -> Callable[[dict[str, Any], bytes], bytes]:
    return lambda head, body: json.dumps({**head, **entries}).encode() + b"\n" + body


@pytest.mark.parametrize(
    ("change", "code", "value"),
    [
        (_with_head(parser="spice-2.0"), "wrong-version", "spice-2.0"),
        (_with_head(parses=1), "damaged", None),
        (_with_head(parses=0, blocks=[]), "damaged", None),
        (_with_head(parses=-1), "damaged", None),
        (_with_head(blocks="all"), "damaged", None),
        (_with_head(captions=[{"name": "x"}]), "damaged", None),
        (lambda head, body: b"{}\n", "damaged", None),
        (lambda head, body: b"rubbish", "damaged", None),
    ],
)
def test_an_invalid_head_is_rejected_and_nothing_is_imported(
    exported: Path, change: Callable[[dict[str, Any], bytes], bytes], code: str, value: object
) -> None:
    _with_content(exported, change)
    with raises(DataError, code, path=exported, value=value):
        import_parses(exported)
    assert _n_stored() == 0


@pytest.mark.parametrize("content", [b"rubbish", b"", b"\n\n", b"capbench-parses 2\n", b"\x1f\x8b" * 9])
def test_another_file_is_rejected(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.parses"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        ParseFile(path, VERSION)
    assert caught.value.code in ("damaged", "wrong-format")
    assert caught.value.path == str(path)


@pytest.mark.parametrize("value", ["[[1]]", "[[]]", '["a"]', "[[", '[["a","b","c","d"]]', "{}"])
def test_an_invalid_list_of_tuples_is_rejected_with_its_row(tmp_path: Path, value: str) -> None:
    path, key = tmp_path / "x.parses", scene_graph.key("a b")
    write_parses(path, {bytes(16): b'[["dog"]]', key: value.encode()}, [], VERSION)
    with raises(DataError, "wrong-format", path=path, row=2):
        import_parses(path)
    assert _n_stored() == 0
    with raises(DataError, "wrong-format", path=path, row=2):
        ParseFile(path, VERSION).get([key])


def test_an_unusable_file_in_the_data_folder_is_an_error_only_if_it_is_needed(exported: Path, tmp_path: Path) -> None:
    import_parses(exported)
    _with_content(exported, _with_head(parser="spice-2.0"))
    assert scene_graph.missing(list(CAPTIONS), data=tmp_path) == []
    with raises(DataError, "wrong-version", path=exported, value="spice-2.0"):
        scene_graph.missing(["a new one"], data=tmp_path)
    scene_graph.forget()


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with raises(MissingFileError, "missing-file", path=tmp_path / "no.parses"):
        import_parses(tmp_path / "no.parses")


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


def _exported_and_fresh(captions: Sequence[str], tmp_path: Path) -> list[scene_graph.Tuples]:
    """Parse captions twice, compare the second parses with those in a file, read and imported, and return them.

    The parser must be installed.
    """
    tokens = ptb.tokenize(captions)
    path = tmp_path / FOLDER / "x.parses"
    scene_graph.ensure(tokens)
    export_parses(path, {"x": CaptionsOf(tokens, "CC0", redistributable=True)})
    scene_graph.forget()
    fresh = [tuple(tuple(parts) for parts in json.loads(answer)) for answer in spice.parse_tuples(tokens)]
    with pytest.MonkeyPatch.context() as elsewhere:
        elsewhere.setenv("CAPBENCH_CACHE", str(tmp_path / "elsewhere"))
        elsewhere.setattr(spice, "parse_tuples", None)
        assert list(scene_graph.tuples(tokens, data=tmp_path)) == fresh
        scene_graph.forget()
        import_parses(path)
        assert list(scene_graph.tuples(tokens)) == fresh
    return fresh


def _sample_captions(number: int) -> list[str]:
    lines = (sample_dir() / "flickr8k/Flickr8k.token.txt").read_text(encoding="utf-8").splitlines()
    return list(dict.fromkeys(line.partition("\t")[2] for line in lines))[:number]


@pytest.mark.java
def test_parses_in_a_file_equal_fresh_ones_and_the_known_ones(tmp_path: Path) -> None:
    with installed_parser():
        fresh = _exported_and_fresh([*CAPTIONS, *_sample_captions(30)], tmp_path)
        odd = scene_graph.parse(["A woman's green umbrella lies behind the bench!", "Hi.", "Näive 日本 😀 dog\there"])
    assert [[list(parts) for parts in tuples] for tuples in fresh[: len(CAPTIONS)]] == list(CAPTIONS.values())
    assert odd[0].triplets == (("umbrella", "lie behind", "bench"), ("woman", "have", "umbrella"))
    assert odd[1] == scene_graph.SceneGraph((), {}, ())


@pytest.mark.java
@pytest.mark.slow
def test_a_thousand_parses_in_a_file_equal_fresh_ones(tmp_path: Path) -> None:
    captions = _sample_captions(1000)
    subjects = ("A man", "Two children", "The old woman", "A dog and a cat", "Several people")
    captions += [f"{subject} near {caption}" for caption in captions for subject in subjects]
    assert len(set(captions[:1000])) == 1000
    with installed_parser():
        assert len(_exported_and_fresh(captions[:1000], tmp_path)) == 1000

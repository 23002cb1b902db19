"""Streaming a file gives the same result and the same errors as reading it as a whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capbench.core import files, large_json
from capbench.core.errors import DataError
from capbench.datasets.user.captions import UserCaptions, read_captions
from tests.errors import raises

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(params=[1, 2, 13, 1 << 20], autouse=True)
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_json, "_LARGE", 0)
    monkeypatch.setattr(large_json, "_BLOCK", request.param)


def whole(path: Path) -> Any:
    try:
        return files.read_json(path, unique_keys=True)
    except DataError as error:
        return str(error)


def piecewise(path: Path) -> Any:
    try:
        if (listed := large_json.list_entries(path)) is not None:
            return list(listed)
        # Keys that are drawn are shorter.
        if (entries := large_json.object_entries(path, whole_with="whole")) is not None:
            return dict(entries)
    except DataError as error:
        return str(error)
    return whole(path)


@given(_VALUES, st.integers(0, 60), st.sampled_from([*'x,]}"1é', "", "\0", "\n", "NaN", "\ufeff"]))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_json_is_the_same_whole_and_in_pieces_and_so_are_its_errors(
    tmp_path: Path, value: Any, place: int, damage: str
) -> None:
    path = tmp_path / "values.json"
    for text in (json.dumps(value, ensure_ascii=False), json.dumps(value, indent=1)):
        for written in (text, f" \r\n{text}\n", text[:place] + damage + text[place:], text[:place]):
            path.write_bytes(written.encode("utf-8", "surrogatepass"))
            assert piecewise(path) == whole(path)


@given(st.text("ab\n\r\0é\u2028\x0c", max_size=30))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_lines_are_the_same_whole_and_one_by_one(tmp_path: Path, text: str) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(text.encode())

    def outcome(read: Any) -> Any:
        try:
            return list(read(path))
        except DataError as error:
            return str(error)

    assert outcome(large_json.lines) == outcome(files.read_lines)


def test_a_file_that_is_no_utf_8_is_refused_as_a_small_one_is(tmp_path: Path) -> None:
    for content in (b'["a", "\xe4"]', b'{"a": ["\xe4"]}'):
        path = tmp_path / "latin.json"
        path.write_bytes(content)
        assert "is not UTF-8" in piecewise(path)
        assert piecewise(path) == whole(path)
    path = tmp_path / "latin.jsonl"
    path.write_bytes(b"a\n\xe4\n")
    with raises(DataError, "unreadable", path=path, row=2, value="0xe4"):
        list(large_json.lines(path))


_FORMS: list[tuple[str, Any]] = [
    ("references.json", {"a": ["a dog", " a cat "], "b.jpg": ["two cats"]}),
    (
        "references.json",
        {
            "info": {"year": 2014},
            "images": [{"id": 1, "file_name": "a.jpg"}, {"id": 2, "file_name": "b.jpg"}, {"id": 3}],
            "annotations": [
                {"image_id": 1, "caption": "a dog"},
                {"image_id": 2, "caption": "two cats"},
                {"image_id": 1, "caption": "a cat"},
            ],
        },
    ),
    ("references.json", {"annotations": [{"image_id": "a", "caption": "a dog"}, {"image_id": "b", "caption": "b"}]}),
    (
        "references.jsonl",
        [{"image": "a", "caption": "a dog"}, {"image": "b", "references": ["b"]}, {"image": "a", "caption": "a cat"}],
    ),
    ("references.json", {"a": ["a dog"], "a.jpg": ["a cat"]}),
    ("references.json", {"a": ["a dog"], "b": []}),
    ("references.json", {"a": "a dog"}),
    ("references.json", ["a dog"]),
]


@pytest.mark.parametrize(("name", "content"), _FORMS)
@pytest.mark.parametrize("ending", ["json", "jsonl"])
def test_captions_are_the_same_whole_and_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: Any, ending: str
) -> None:
    candidates = [
        {"image_id": "a", "caption": "a dog"},
        {"image_id": "b.jpg", "caption": "cats", "system": "s"},
        {"image_id": "a", "caption": "the dog"},
        {"image_id": "a", "caption": "a dog"},
        {"image_id": "b", "caption": "none", "id": "own"},
    ]
    for path, records in ((tmp_path / name, content), (tmp_path / f"candidates.{ending}", candidates)):
        by_line = path.suffix == ".jsonl"
        path.write_text("\n".join(map(json.dumps, records)) if by_line else json.dumps(records))

    def outcome() -> UserCaptions | str:
        try:
            return read_captions(tmp_path / f"candidates.{ending}", tmp_path / name)
        except DataError as error:
            return str(error)

    in_pieces = outcome()
    monkeypatch.setattr(large_json, "_LARGE", 1 << 30)
    assert in_pieces == outcome()


def test_an_image_whose_file_name_is_another_ones_number_is_refused(tmp_path: Path) -> None:
    images = [{"id": 2, "file_name": "3.jpg"}, {"id": 1, "file_name": "2.jpg"}]
    annotations = [{"image_id": 2, "caption": "of the first image"}, {"image_id": 1, "caption": "of the second"}]
    (tmp_path / "references.json").write_text(json.dumps({"images": images, "annotations": annotations}))
    (tmp_path / "candidates.json").write_text(json.dumps([{"image_id": 2, "caption": "a dog"}]))
    with pytest.raises(DataError, match="the image '2'"):
        read_captions(tmp_path / "candidates.json", tmp_path / "references.json")

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from capbench.core.errors import DataError, MissingFileError
from capbench.datasets.captions import read_entities
from tests.datasets.native_files import write_json
from tests.errors import raises


def caption(**changes: Any) -> dict[str, Any]:
    """In the published form: two words of a chunk with a detection, one of a chunk without."""
    return {
        "det_sequences": ["dog", "dog", None, None, "_"],
        "noun_chunks": [["a dog", "dog"]],
        "detections": {"dog": [[3, [1.0, 2.0, 30.0, 40.0]], [7, [5, 5, 9, 9]]]},
        "split": "test",
    } | changes


def test_words_have_the_class_of_their_detection_or_none(tmp_path: Path) -> None:
    path = write_json(tmp_path / "e.json", {"42": {"a dog lies on grass": caption()}})
    (found,) = read_entities(path)["42"]
    assert (found.text, found.classes, found.split) == ("a dog lies on grass", ("dog", "dog", None, None, None), "test")
    assert found.boxes["dog"].tolist() == [[1, 2, 30, 40], [5, 5, 9, 9]]


@pytest.mark.parametrize(
    ("data", "code", "row", "value"),
    [
        ([], "wrong-format", None, None),
        ({"42": []}, "wrong-type", "image 42", None),
        ({"42": {"a dog": caption()}}, "mismatch", "image 42, 'a dog'", 5),
        (
            {"42": {"a dog lies on grass": caption(detections={})}},
            "unknown-name",
            "image 42, 'a dog lies on grass'",
            "dog",
        ),
        (
            {"42": {"a dog lies on grass": caption(detections={"dog": [[1, [1, 2]]]})}},
            "not-a-number",
            "image 42, 'a dog lies on grass'",
            None,
        ),
        (
            {"42": {"a dog lies on grass": caption(detections={"dog": [5]})}},
            "wrong-type",
            "image 42, 'a dog lies on grass'",
            None,
        ),
        (
            {"42": {"a dog lies on grass": caption(detections={"dog": [[1, [1, 2, 3, 10**400]]]})}},
            "wrong-type",
            "image 42, 'a dog lies on grass'",
            None,
        ),
        (
            {"42": {"a dog lies on grass": caption(det_sequences=[1, 2, 3, 4, 5])}},
            "wrong-type",
            "image 42, 'a dog lies on grass'",
            None,
        ),
        ({"42": {"a dog lies on grass": {}}}, "missing-key", "image 42, 'a dog lies on grass'", None),
    ],
)
def test_a_damaged_file_is_refused_by_image_and_caption(
    tmp_path: Path, data: Any, code: str, row: str | None, value: object
) -> None:
    with raises(DataError, code, path=tmp_path / "e.json", row=row, value=value):
        read_entities(write_json(tmp_path / "e.json", data))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with raises(MissingFileError, "missing-file", path=tmp_path / "e.json"):
        read_entities(tmp_path / "e.json")

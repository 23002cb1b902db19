from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from capbench.core.errors import DataError, MissingFileError
from capbench.datasets.entities import read_entities
from tests.datasets.native_files import write_json


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
    ("data", "message"),
    [
        ([], "no JSON object of images"),
        ({"42": []}, "image 42: is no object of captions"),
        ({"42": {"a dog": caption()}}, "image 42, 'a dog': 'det_sequences' has 5 entries for 2 words"),
        ({"42": {"a dog lies on grass": caption(detections={})}}, "no detection of the class 'dog'"),
        ({"42": {"a dog lies on grass": caption(detections={"dog": [[1, [1, 2]]]})}}, "a box is not four numbers"),
        ({"42": {"a dog lies on grass": caption(detections={"dog": [5]})}}, "no number with a box"),
        ({"42": {"a dog lies on grass": caption(detections={"dog": [[1, [1, 2, 3, 10**400]]]})}}, "no number with a"),
        ({"42": {"a dog lies on grass": caption(det_sequences=[1, 2, 3, 4, 5])}}, "something else than names"),
        ({"42": {"a dog lies on grass": {}}}, "no list 'det_sequences'"),
    ],
)
def test_a_damaged_file_is_refused_by_image_and_caption(tmp_path: Path, data: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_entities(write_json(tmp_path / "e.json", data))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"e\.json"):
        read_entities(tmp_path / "e.json")

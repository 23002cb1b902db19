from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from capbench.core.errors import DataError, MissingFileError
from capbench.metrics.vifidel import ObjectLabel, read_labels
from tests.errors import raises


def write(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def test_a_file_has_labels_with_and_without_scores(tmp_path: Path) -> None:
    text = json.dumps({"im1.jpg": ["dog", {"label": "red ball", "score": 0.5}], "im2": []})
    labels = read_labels(write(tmp_path, "a.json", text))
    assert labels.of("im1") == (ObjectLabel("dog"), ObjectLabel("red ball", 0.5))
    assert labels.of("im2") == ()
    assert labels.key("im1") != labels.key("im2")
    with raises(DataError, "missing-image", path=tmp_path / "a.json", value="im3"):
        labels.require(["im1", "im3", "im3"])


BAD = {
    "word.json": ('"dog"', "wrong-format", None),
    "list.json": ("[1]", "wrong-format", None),
    "text.json": ('{"1": "dog"}', "wrong-value", "image '1'"),
    "number.json": ('{"1": ["dog", 3]}', "wrong-value", "image '1'"),
    "empty.json": ("{}", "wrong-format", None),
    "score.json": ('{"1": [{"label": "dog", "score": 1.5}]}', "wrong-value", "image '1'"),
}


@pytest.mark.parametrize("name", BAD)
def test_an_invalid_file_is_named(name: str, tmp_path: Path) -> None:
    text, code, row = BAD[name]
    path = write(tmp_path, name, text)
    with raises(DataError, code, path=path, row=row):
        read_labels(path)
    with pytest.raises(MissingFileError):
        read_labels(str(tmp_path / f"no-{name}"))


def boxes(path: Path, **more: object) -> str:
    np.savez(
        path,
        image_names=np.array(["im1.jpg", "im2.jpg"]),
        boxes_normalised_xyxy=np.tile(np.array([0, 0, 0.5, 0.5], dtype=np.float32), (2, 3, 1)),
        num_boxes=np.array([3, 1]),
        class_scores=np.array([[0.9, 0.5, 0.25], [0.5, 0, 0]], dtype=np.float32),
        **{"class_ids": np.array([[16, 0, 16], [79, 0, 0]]), **more},  # type: ignore[arg-type]
    )
    return str(path)


def test_boxes_hold_labels_by_number(tmp_path: Path) -> None:
    path = boxes(tmp_path / "b.npz")
    with raises(DataError, "missing-key", path=path, value="class_names"):
        read_labels(path)
    labels = read_labels(path, "coco-80")
    assert [label.name for label in labels.of("im1")] == ["dog", "person", "dog"]
    assert [label.score for label in labels.of("im1")] == pytest.approx([0.9, 0.5, 0.25])
    assert [label.name for label in labels.of("im2")] == ["toothbrush"]
    with raises(DataError, "out-of-range", path=path, value=16):
        read_labels(path, write(tmp_path, "names.txt", "dog\ncat\n"))

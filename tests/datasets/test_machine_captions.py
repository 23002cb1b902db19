"""Captions of systems, in the forms in which they are published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from capbench.core.errors import DataError
from capbench.datasets.captions import read_machine_captions
from tests.errors import raises

PEOPLE = {"a": ("A dog runs.", "a dog"), "b": ("two boats", "boats on a lake")}


def write(path: Path, entries: list[dict[str, Any]]) -> Path:
    path.write_text(json.dumps(entries))
    return path


def folders(folder: Path, images: str = "a.jpg\nb.jpg\n", **systems: str) -> Path:
    for name, text in systems.items():
        (folder / name).mkdir()
        (folder / name / "generated_captions.txt").write_text(text)
    path = folder / "imgs_coco.txt"
    path.write_text(images)
    return path


def test_folders_results_and_predictions(tmp_path: Path) -> None:
    listed = folders(tmp_path, coco_x_1="a cat\na ship\n", coco_x_2="one dog\none boat\n", other_y="no\nno\n")
    results = write(tmp_path / "r.json", [{"image_id": f"{i}.jpg", "caption": f"it is {i}"} for i in "ab"])
    predicted = write(
        tmp_path / "p.json", [{"image_name": f"{i}.jpg", "captions": [], "prediction": f"see {i}"} for i in "ab"]
    )
    notes: list[str] = []
    assert read_machine_captions([listed, results, predicted], PEOPLE, notes.append) == {
        "coco_x_1": {"a": "a cat", "b": "a ship"},
        "coco_x_2": {"a": "one dog", "b": "one boat"},
        "r": {"a": "it is a", "b": "it is b"},
        "p": {"a": "see a", "b": "see b"},
    }
    assert notes == []


def test_several_captions_of_each_image_are_several_systems_and_people_are_left_out(tmp_path: Path) -> None:
    entries = []
    for image, person in (("a", "a dog runs"), ("b", "Two boats!")):
        entries += [{"image_id": image, "caption": text} for text in (person, f"x {image}", f"y {image}")]
    notes: list[str] = []
    systems = read_machine_captions([write(tmp_path / "r.json", entries)], PEOPLE, notes.append)
    assert systems == {"r-2": {"a": "x a", "b": "x b"}, "r-3": {"a": "y a", "b": "y b"}}
    assert notes == ["r-1 is left out as human: 100% of its captions are references"]


@pytest.mark.parametrize(
    ("entries", "code", "row", "value"),
    [
        ([{"image_id": "a", "caption": 3}], "wrong-type", "entry 1", 3),
        ([{"image_id": image, "caption": text} for image, text in ("ax", "ay", "bz")], "mismatch", None, "b"),
        ([{"image_id": "a", "caption": "a dog"}], "too-few", None, None),
    ],
)
def test_bad_results_are_refused(
    tmp_path: Path, entries: list[dict[str, Any]], code: str, row: str | None, value: object
) -> None:
    with raises(DataError, code, path=tmp_path / "r.json", row=row, value=value):
        read_machine_captions([write(tmp_path / "r.json", entries)], PEOPLE, print)


@pytest.mark.parametrize(
    ("images", "text", "code", "row", "value"),
    [
        ("a.jpg\nb.jpg\n", "a cat\n", "mismatch", None, 1),
        ("a.jpg\n\nb.jpg\n", "x\ny\nz\n", "missing-value", 2, None),
    ],
)
def test_bad_folders_are_refused(
    tmp_path: Path, images: str, text: str, code: str, row: int | None, value: object
) -> None:
    with raises(DataError, code, row=row, value=value):
        read_machine_captions([folders(tmp_path, images, coco_x=text)], PEOPLE, print)

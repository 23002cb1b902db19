"""PublicSys: a table of the user's own."""

from __future__ import annotations

import json
from pathlib import Path

from capbench.core.records import Judgements
from capbench.datasets.publicsys import PublicSys
from tests.datasets.native_files import root, write

HEAD = "image,candidate,system,rating\n"
ROWS = 'COCO_val2014_000000000001.jpg,"a dog, running",A,4.5\nCOCO_val2014_000000000001.jpg,a cat,B,1\n'


def load(folder: Path) -> Judgements:
    (judged,) = PublicSys(root(folder)).load(PublicSys.selections["all-references"])
    return judged


def captions(folder: Path) -> None:
    entry = {"image_id": 1, "caption": "a dog runs", "id": 1}
    images = [{"id": 1, "file_name": "COCO_val2014_000000000001.jpg"}]
    write(folder / "coco/captions_val2014.json", json.dumps({"images": images, "annotations": [entry]}))


def test_rows_become_items_with_systems_and_cocos_captions(tmp_path: Path) -> None:
    write(tmp_path / "publicsys/publicsys.csv", HEAD + ROWS)
    captions(tmp_path)
    judged = load(tmp_path)
    assert [item.candidate for item in judged.items] == ["a dog, running", "a cat"]
    assert [item.system for item in judged.items] == ["A", "B"]
    assert {item.references for item in judged.items} == {("a dog runs",)}
    assert judged.ratings["rating"].value.tolist() == [4.5, 1.0]


def test_references_of_the_file_come_before_cocos(tmp_path: Path) -> None:
    text = 'rating,image,system,candidate,references\n3,x.jpg,A,a dog,"[""one"", ""two""]"\n'
    write(tmp_path / "publicsys/publicsys.csv", text)
    (item,) = load(tmp_path).items
    assert item.references == ("one", "two")
    assert item.image == "x"

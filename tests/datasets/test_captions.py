from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from capbench.core.errors import DataError
from capbench.datasets.captions import CORPORA, load_captions
from capbench.datasets.user.caption_readers import read_captions_file, read_multi30k, read_token
from tests.datasets.native_files import root, token_text, write, write_gz, write_json
from tests.errors import raises

TOKEN = token_text({"101_aa.jpg": ["A kite flies .", "Red kite in the sky"], "102_bb.jpg": ["Two goats", "Goats ."]})
SEVEN = "COCO_val2014_000000000007"
COCO: dict[str, list[dict[str, Any]]] = {
    "images": [
        {"id": 7, "file_name": f"{SEVEN}.jpg"},
        {"id": 3, "file_name": "COCO_val2014_000000000003.jpg"},
    ],
    "annotations": [
        {"id": 11, "image_id": 3, "caption": "A lamp on a desk.\n"},
        {"id": 12, "image_id": 7, "caption": "A boat at the pier."},
        {"id": 13, "image_id": 3, "caption": "Desk with a lamp"},
    ],
}
KARPATHY = {
    "dataset": "coco",
    "images": [
        {"filename": f"COCO_val2014_{number:012}.jpg", "split": split, "sentences": [{"raw": text} for text in texts]}
        for number, split, texts in ((1, "val", ["A plum."]), (2, "test", ["A pear.", "One"]))
    ],
}
NOCAPS = [{"split": "near_domain", "image_id": "0.jpg", "caption": ["A harp.", "Golden harp"]}]


def multi30k(folder: Path, packed: bool) -> Path:
    for split, names in (("train", ["1.jpg", "2.jpg"]), ("val", ["3.jpg"])):
        write(folder / "image_splits" / f"{split}_images.txt", "".join(f"{name}\n" for name in names))
        for n in range(1, 6):
            text = "".join(f"caption {n} of {name}\n" for name in names)
            path = folder / "raw" / f"{split}.{n}.en"
            write_gz(path.with_name(path.name + ".gz"), text) if packed else write(path, text)
    return folder


@pytest.mark.parametrize("packed", [True, False])
def test_multi30k_joins_five_files_line_by_line(tmp_path: Path, packed: bool) -> None:
    captions = read_multi30k(multi30k(tmp_path, packed))
    assert captions["2"] == tuple(f"caption {n} of 2.jpg" for n in range(1, 6))
    assert dict(captions.groups) == {"1": "train", "2": "train", "3": "val"}
    assert list(captions.of_groups("val")) == ["3"]


def test_flickr8ks_folder_has_the_splits_of_its_lists(tmp_path: Path) -> None:
    names = {f"{name}.jpg": [f"a {name}", f"the {name}"] for name in ("one", "two", "six", "odd")}
    write(tmp_path / "Flickr8k.token.txt", token_text(names))
    write(tmp_path / "Flickr_8k.trainImages.txt", "two.jpg\none.jpg\n")
    listed = write(tmp_path / "Flickr_8k.devImages.txt", "six.jpg\n")
    captions = load_captions(str(tmp_path))
    assert (len(captions), captions["one"], captions.source) == (4, ("a one", "the one"), tmp_path)
    assert captions.groups == {"one": "train", "two": "train", "six": "dev"}
    assert list(captions.of_groups("train")) == ["one", "two"]
    for content, code, row in (("two.jpg\n", "duplicate", 1), ("six.jpg\nten.jpg\n", "unknown-item", 2)):
        write(listed, content)
        with raises(DataError, code, path=listed, row=row):
            read_captions_file(tmp_path)


@pytest.mark.parametrize(
    ("content", "image"),
    [
        (TOKEN, "102_bb"),
        (json.dumps(COCO), SEVEN),
        (json.dumps(KARPATHY), "COCO_val2014_000000000001"),
        (json.dumps(NOCAPS), "0"),
        (json.dumps({"x.png": ["A hat"]}), "x"),
    ],
)
def test_format_of_a_file_is_told_by_its_content(tmp_path: Path, content: str, image: str) -> None:
    assert image in load_captions(str(write(tmp_path / "captions.any", content)))


def test_corpora_are_found_by_name_under_the_data_folder(tmp_path: Path) -> None:
    write(tmp_path / "flickr8k/Flickr8k.token.txt", TOKEN)
    write_json(tmp_path / "coco/dataset_coco.json", KARPATHY)
    write_json(tmp_path / "coco/annotations/captions_val2014.json", COCO)
    write_json(tmp_path / "nocaps/nocaps_corpus.json", NOCAPS)
    multi30k(tmp_path / "flickr30k/multi30k_task2", packed=False)
    sizes = {name: len(load_captions(name, root(tmp_path))) for name in CORPORA}
    assert sizes == {"coco-val": 1, "coco-test": 1, "coco-val2014": 2, "flickr8k": 2, "flickr30k": 3, "nocaps-val": 1}


@pytest.mark.parametrize(
    ("text", "code", "row", "value"),
    [
        ("", "damaged", None, None),
        ("1.jpg#0,A hat\n", "wrong-format", 1, None),
        ("1.jpg#x\tA hat\n", "wrong-value", 1, "1.jpg#x"),
        ("1.jpg#0\t \n", "missing-value", 1, None),
        ("1.jpg#0\tA hat\n1.jpg#0\tA cap\n", "duplicate", 2, 0),
        ("1.jpg#0\tA hat\n1.jpg#2\tA cap\n", "missing-caption", None, 1),
        ("1.jpg#0\tA \x1f hat\n", "wrong-value", 1, None),
        (b"1.jpg#0\tA hat\n1.jpg#1\tA caf\xe9\n", "unreadable", 2, "0xe9"),
    ],
)
def test_bad_token_files_are_refused(
    tmp_path: Path, text: str | bytes, code: str, row: int | None, value: object
) -> None:
    with raises(DataError, code, path=tmp_path / "bad.token", row=row, value=value):
        read_token(write(tmp_path / "bad.token", text))


def _changed(data: Any, value: Any, *keys: str | int) -> Any:
    copy = json.loads(json.dumps(data))
    place = copy
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    return copy


@pytest.mark.parametrize(
    ("data", "code", "row", "value"),
    [
        ({"annotations": COCO["annotations"]}, "missing-key", None, "images"),
        (_changed(COCO, [], "annotations"), "missing-key", None, "annotations"),
        (_changed(COCO, 99, "annotations", 1, "image_id"), "unknown-item", "annotation 2", 99),
        (_changed(COCO, "", "annotations", 0, "caption"), "missing-value", "annotation 1", None),
        (_changed(COCO, 7, "images", 1, "id"), "duplicate", "image 2", 7),
        (_changed(COCO, COCO["images"][0]["file_name"], "images", 1, "file_name"), "duplicate", "image 2", SEVEN),
        (_changed(COCO, True, "images", 1, "file_name"), "wrong-type", "image 2", True),
        (_changed(COCO, 3, "annotations", 1, "image_id"), "missing-caption", None, SEVEN),
        (_changed(KARPATHY, [], "images", 0, "sentences"), "missing-caption", "image 1", None),
        (_changed(KARPATHY, {}, "images", 1, "sentences", 0), "missing-key", "image 2", "raw"),
        (_changed(NOCAPS, ["A harp", ""], 0, "caption"), "missing-value", "entry 1", None),
        (NOCAPS * 2, "duplicate", "entry 2", "0"),
        ({"1.jpg": ["A hat"], "a/1.jpg": ["A cap"]}, "duplicate", "image 'a/1.jpg'", "1"),
        ({"1.jpg": []}, "missing-caption", "image '1.jpg'", None),
        ({"1.jpg": ["flickr30k-images/1.jpg"]}, "missing-caption", "image '1.jpg'", None),
        ({"1.jpg": ["A hat", 4]}, "wrong-type", "image '1.jpg'", 4),
        ({"1.jpg": "A hat"}, "wrong-format", None, None),
        ([], "wrong-format", None, None),
    ],
)
def test_bad_json_captions_are_refused(tmp_path: Path, data: Any, code: str, row: str | None, value: object) -> None:
    with raises(DataError, code, path=tmp_path / "bad.json", row=row, value=value):
        read_captions_file(write_json(tmp_path / "bad.json", data))


@pytest.mark.real_data
def test_published_corpora_have_their_counts(real_data: Path) -> None:
    sizes = {}
    for name in CORPORA:
        if name != "coco-val2014":
            captions = load_captions(name, root(real_data))
            sizes[name] = (len(captions), sum(map(len, captions.values())))
    assert sizes == {
        "coco-val": (5000, 25010),
        "coco-test": (5000, 25010),
        "flickr8k": (8092, 40460),
        "flickr30k": (31014, 155070),
        "nocaps-val": (4500, 45000),
    }

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import capbench
from capbench.core.errors import DataError
from capbench.core.records import Item
from capbench.datasets.user.caption_warnings import caption_warnings
from capbench.datasets.user.captions import ReadingOptions, captions_in_memory, read_systems
from tests.errors import raises

COCO = {
    "images": [{"id": 7, "file_name": "COCO_val_000007.jpg"}, {"id": 8, "file_name": "COCO_val_000008.jpg"}],
    "annotations": [
        {"id": 1, "image_id": 7, "caption": "a dog"},
        {"id": 2, "image_id": 8, "caption": "a cat"},
        {"id": 3, "image_id": 7, "caption": "the dog\nruns "},
    ],
}
PLAIN = {"x.jpg": ["a dog", "the dog"], "y.jpg": ["a cat"]}


def _file(folder: Path, name: str, content: Any) -> Path:
    path = folder / name
    if path.suffix == ".jsonl" and isinstance(content, list):
        path.write_text("".join(json.dumps(row) + "\n" for row in content), "utf-8")
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return path


def test_coco_results_and_annotations(tmp_path: Path) -> None:
    candidates = _file(
        tmp_path, "c.json", [{"image_id": 8, "caption": "one cat"}, {"image_id": 7, "caption": "one dog"}]
    )
    cat, dog = captions_in_memory(candidates, _file(tmp_path, "r.json", COCO)).items
    assert (cat.image, cat.candidate, cat.references) == ("COCO_val_000008", "one cat", ("a cat",))
    assert (dog.image, dog.references) == ("COCO_val_000007", ("a dog", "the dog runs"))
    assert dog.candidate_id == "COCO_val_000007"


def test_jsonl_on_both_sides(tmp_path: Path) -> None:
    candidates = _file(
        tmp_path,
        "c.jsonl",
        [{"image": "x.jpg", "candidate": "one dog", "id": "model-1"}, {"image_id": "y", "caption": "one cat", "id": 5}],
    )
    lists = [{"image": "x", "references": ["a dog", "the dog"]}, {"image": "folder/y.png", "captions": ["a cat"]}]
    lines = [
        {"image": "x", "caption": "a dog"},
        {"image": "y", "reference": "a cat"},
        {"image": "x.jpg", "caption": "the dog"},
    ]
    for content in (lists, lines):
        dog, cat = captions_in_memory(candidates, _file(tmp_path, "r.jsonl", content)).items
        assert (dog.image, dog.candidate_id, dog.references) == ("x", "model-1", ("a dog", "the dog"))
        assert (cat.image, cat.candidate_id, cat.references) == ("y", "5", ("a cat",))


LISTED = [["a dog", "the dog"], ["a cat"]]


@pytest.mark.parametrize("references", [("r.json", LISTED), ("r.txt", "a dog\na cat\n"), ("r.txt", json.dumps(LISTED))])
def test_plain_text_stands_beside_references_in_the_same_order(tmp_path: Path, references: tuple[str, Any]) -> None:
    candidates = _file(tmp_path, "c.txt", "one dog, running\n  one\tcat \r\n")
    dog, cat = captions_in_memory(candidates, _file(tmp_path, *references)).items
    assert (dog.image, dog.candidate_id, dog.candidate) == ("line-1", "line-1", "one dog, running")
    assert (cat.image, cat.candidate, cat.references) == ("line-2", "one cat", ("a cat",))
    assert dog.references == (("a dog", "the dog") if references[1] != "a dog\na cat\n" else ("a dog",))


@pytest.mark.parametrize(
    ("candidates", "references", "code", "row", "value"),
    [
        (("c.txt", "a\nb\n"), ("r.json", PLAIN), "missing-image", None, None),
        (("c.txt", "a\n"), ("r.json", LISTED), "mismatch", None, 1),
        (("c.txt", "a\nb\n"), ("r.json", [["x"], []]), "missing-references", "entry 2", None),
        (("c.txt", "a\nb\n"), ("r.json", [["x"], "y"]), "wrong-type", "entry 2", None),
        (("c.txt", "a\nb\n"), ("r.txt", "x\n"), "mismatch", None, 2),
        (("c.json", [{"image": "x", "caption": "a"}]), ("r.json", [["x"]]), "missing-image", None, None),
        (("c.json", ["a caption"]), ("r.json", PLAIN), "missing-image", "entry 1", None),
    ],
)
def test_captions_without_images_are_refused_where_nothing_tells_their_references(
    tmp_path: Path,
    candidates: tuple[str, Any],
    references: tuple[str, Any],
    code: str,
    row: int | str | None,
    value: object,
) -> None:
    with raises(DataError, code, row=row, value=value):
        captions_in_memory(_file(tmp_path, *candidates), _file(tmp_path, *references))


OK = [{"image": "x", "caption": "one dog"}]


@pytest.mark.parametrize(
    ("name", "content", "code", "row", "value"),
    [
        ("c.json", "", "damaged", None, None),
        ("c.json", "[{", "wrong-format", 1, None),
        ("c.json", "5", "wrong-format", None, None),
        ("c.json", "{}", "missing-caption", None, None),
        ("c.json", {"x": "a", "y": 5}, "wrong-type", "image 'y'", 5),
        ("c.json", {"x": "a", "y": ["b", "c"]}, "wrong-type", "image 'y'", ["b", "c"]),
        ("c.json", {"x": "a\u001fb"}, "wrong-value", "image 'x'", None),
        ("c.json", {"x": "a", "z": "b"}, "missing-references", "image 'z'", "z"),
        ("c.json", {"x": "a", ".jpg": "b"}, "missing-image", "image '.jpg'", ".jpg"),
        ("c.json", '{"x": "a", "y": "b", "x": "c"}', "duplicate", None, "x"),
        ("c.json", {"x": "a", "x.jpg": "b"}, "duplicate", "image 'x.jpg'", "x"),
        ("c.json", {"image": "x", "caption": "a"}, "wrong-format", None, "image"),
        ("c.json", COCO, "wrong-format", None, None),
        ("c.json", "[]", "missing-caption", None, None),
        ("c.json", "[5]", "wrong-type", "entry 1", None),
        ("c.json", [{"caption": "a"}], "missing-image", "entry 1", None),
        ("c.json", [{"image": "x"}], "missing-caption", "entry 1", None),
        ("c.json", [*OK, {"image": "z", "caption": "a"}], "missing-references", "entry 2", "z"),
        ("c.json", [{"image": "x", "caption": 5}], "wrong-type", "entry 1", 5),
        ("c.json", [{"image": True, "caption": "a"}], "wrong-type", "entry 1", True),
        ("c.json", [{"image": "", "caption": "a"}], "missing-value", "entry 1", None),
        ("c.json", '[{"image": "x", "caption": "a\\ud83d"}]', "wrong-value", "entry 1", None),
        ("c.json", [{**OK[0], "id": 1}, {**OK[0], "caption": "other", "id": 1}], "duplicate", "entry 2", "1"),
        ("c.json", '[{"image": "x", "caption": "a", "caption": "b"}]', "duplicate", None, "caption"),
        ("c.jsonl", '{"image": "x", "caption": "a", "caption": "b"}', "wrong-format", 1, None),
        ("c.json", [{**OK[0], "id": 1, "system": "a"}, {**OK[0], "id": 1, "system": "b"}], "duplicate", "entry 2", "1"),
        ("c.jsonl", '{"image": "x", "caption": "a"}\n{"image"\n', "wrong-format", 2, None),
        ("c.jsonl", '"text"\n', "wrong-type", 1, None),
    ],
)
def test_bad_candidates_are_named_with_their_row(
    tmp_path: Path,
    name: str,
    content: Any,
    code: str,
    row: int | str | None,
    value: object,
) -> None:
    references = _file(tmp_path, "r.json", PLAIN)
    path = _file(tmp_path, name, content)
    with raises(DataError, code, path=path, row=row, value=value):
        captions_in_memory(path, references)


@pytest.mark.parametrize(
    ("name", "content", "code", "row", "value"),
    [
        ("r.json", "[]", "missing-references", None, None),
        ("r.json", {"folder/.png": ["a"]}, "missing-image", "image 'folder/.png'", "folder/.png"),
        ("r.json", "{}", "missing-references", None, None),
        ("r.json", {"x": []}, "missing-caption", "image 'x'", None),
        ("r.json", {"x": "a dog"}, "wrong-type", "image 'x'", None),
        ("r.json", {"x": ["a", ""]}, "missing-value", "image 'x'", None),
        ("r.json", {"x.jpg": ["a"], "x.png": ["b"]}, "duplicate", "image 'x.png'", "x"),
        ("r.json", '{"x": ["a"], "x": ["b"]}', "duplicate", None, "x"),
        ("r.json", {"annotations": [5]}, "missing-key", "annotation 1", "image_id"),
        ("r.json", {"annotations": [{"image_id": 1}]}, "wrong-type", "annotation 1", None),
        ("r.json", {**COCO, "images": 5}, "missing-key", None, "images"),
        ("r.json", {**COCO, "images": [{}]}, "missing-key", "image 1", "id"),
        ("r.json", {**COCO, "images": COCO["images"][:1]}, "unknown-item", "annotation 2", 8),
        ("r.json", {**COCO, "images": [COCO["images"][0]] * 2}, "duplicate", "image 2", 7),
        ("r.json", {**COCO, "annotations": []}, "missing-references", 1, "x"),
        ("r.jsonl", [{"image": "x"}], "missing-key", 1, None),
        ("r.jsonl", [{"image": "x", "references": []}], "missing-caption", 1, None),
        ("r.jsonl", [{"image": "x", "references": ["a"]}] * 2, "duplicate", 2, "x"),
    ],
)
def test_bad_references_are_named_with_their_row(
    tmp_path: Path, name: str, content: Any, code: str, row: int | str | None, value: object
) -> None:
    with raises(DataError, code, row=row, value=value):
        captions_in_memory(_file(tmp_path, "c.jsonl", OK), _file(tmp_path, name, content))


def test_image_without_annotations_is_an_error_only_for_its_candidates(tmp_path: Path) -> None:
    references = {**COCO, "images": [*COCO["images"], {"id": 9, "file_name": "nine.jpg"}]}
    path = _file(tmp_path, "r.json", references)
    assert len(captions_in_memory(_file(tmp_path, "c.jsonl", [{"image_id": 7, "caption": "a"}]), path).items) == 1
    with raises(DataError, "missing-references", path=tmp_path / "c.jsonl", row=1, value="9"):
        captions_in_memory(_file(tmp_path, "c.jsonl", [{"image_id": 9, "caption": "a"}]), path)


def test_captions_without_references_are_known_by_their_images(tmp_path: Path) -> None:
    rows = [{"image_id": "x.jpg", "caption": "a dog"}, {"image_id": "x.jpg", "caption": "a cat"}]
    items = captions_in_memory(_file(tmp_path, "c.json", rows), None).items
    assert [(item.image, item.candidate, item.references) for item in items] == [("x", "a dog", ()), ("x", "a cat", ())]
    assert [item.candidate_id for item in items] == ["x", "x#2"]
    assert captions_in_memory({"x.jpg": ["a dog", "a cat"]}, None).items == items
    assert captions_in_memory(rows, None).items == items
    with raises(DataError, "missing-image", path=tmp_path / "c.txt"):
        captions_in_memory(_file(tmp_path, "c.txt", "a dog\n"), None)
    with raises(DataError, "missing-image"):
        captions_in_memory(["a dog"], None)


def test_captions_of_other_splits_are_counted_for_each_system(tmp_path: Path) -> None:
    references = [{"split": f"{name}_domain", "image_id": name, "caption": ["a dog"]} for name in ("in", "out")]
    files = {name: _file(tmp_path, f"{name}.json", {"in": "a", "out": "b"}) for name in ("one", "two")}
    options = ReadingOptions("in-domain", restrict=True)
    read = read_systems(files, _file(tmp_path, "r.json", references), options)
    assert {name: of_file.left_out for name, of_file in read.files.items()} == {"one": 1, "two": 1}
    assert [item.image for item in read.items["two"]] == ["in"]


NAN = float("nan")


@pytest.mark.parametrize(
    ("candidates", "references", "place"),
    [
        (["a dog", NAN], [["x"], ["y"]], "candidates, entry 2: "),
        (["a dog", None], ["x", "y"], "candidates, entry 2: "),
        ({"1": "a dog", "2": NAN}, {"1": "x", "2": "y"}, "candidates, image '2': "),
        ({"1": ["a dog", NAN]}, {"1": "x"}, "candidates, image '1': "),
        (["a dog", "a cat"], [["x"], ["y", NAN]], "references, entry 2: "),
        ({"1": "a dog"}, {"1": NAN}, "references, image '1': "),
    ],
)
def test_a_value_that_is_no_caption_is_named_with_its_place(candidates: Any, references: Any, place: str) -> None:
    with raises(DataError, "wrong-type") as caught:
        captions_in_memory(candidates, references)
    assert str(caught.value).startswith(place)


@pytest.mark.parametrize("as_items", [False, True])
def test_a_repeated_image_among_images_with_one_caption_is_an_error(as_items: bool) -> None:
    texts = {"a": ["a dog", "a cat"], "b": ["two men"], "c": ["a red bus"]}
    references = {"a": ["a dog runs"], "b": ["two old men"], "c": ["a bus"]}
    items = [Item(image, text, tuple(references[image])) for image in texts for text in texts[image]]
    given: dict[str, Any] = {"candidates": items} if as_items else {"candidates": texts, "references": references}
    with raises(DataError, "duplicate", value="a"):
        capbench.score(**given, metrics="bleu-1")
    kept = capbench.score(**given, metrics="bleu-1", keep_first=True)
    assert [item.candidate for item in kept.items] == ["a dog", "two men", "a red bus"]
    assert kept.notes == ("1 further caption of the same images left out (keep_first)",)
    several = capbench.score(items[:3], metrics="bleu-1")  # one of two images has one caption
    assert several["bleu-1"].tolist()[0] == kept["bleu-1"].tolist()[0]
    assert len(several) == 3


FINE = (
    Item("a", "a dog runs", ("the dog is running", "dog")),
    Item("b", "two cats", ("cats on a mat",)),
    Item("c", "a red bus", ("a bus",)),
)


def test_captions_that_are_in_order_get_no_line() -> None:
    assert caption_warnings(FINE, ["cider", "bleu"]) == []


@pytest.mark.parametrize(
    "text",
    [
        *("['a dog', 'one dog']", '["a dog"]', "('a dog', 'b')"),
        *("a dog</s>", "a dog<|endoftext|>", "[unused0] a dog", "a dog [PAD]", "a <unk> runs"),
        *("a cafÃ©", "the dogâ€™s ball", "a d\ufffdg"),
    ],
)
@pytest.mark.parametrize("role", ["candidates", "references"])
def test_captions_that_are_damaged_are_counted(text: str, role: str) -> None:
    damaged = Item("d", text, ("a horse",)) if role == "candidates" else Item("d", "a horse", (text,))
    (line,) = caption_warnings([*FINE, damaged])
    assert line.startswith(f"1 {role} ")
    assert "image 'd'" in line


def test_candidates_that_are_alike_are_counted() -> None:
    same = [Item(image, "a man", (f"the {image} in question",)) for image in "abc"]
    assert caption_warnings([*same, FINE[2]]) == ["3 of 4 candidates are the same text: 'a man'"]


def test_candidates_among_their_references_are_counted() -> None:
    copied = Item("d", "A horse.", ("a pony", "a horse"))
    (line,) = caption_warnings([*FINE, copied])
    assert line == "1 of 4 candidates is among their own references (first: image 'd', 'A horse.')"
    assert "2 of 5 candidates are among their own references" in caption_warnings([*FINE, copied, copied])[0]


def test_long_candidates_are_noticed() -> None:
    long = [Item(item.image, " ".join([item.candidate] * 6), item.references) for item in FINE]
    (line,) = caption_warnings(long)
    assert "18 words" in line
    assert "references of 3:" in line


def test_one_image_alone_is_noticed_under_cider() -> None:
    assert caption_warnings(FINE[:1], ["bleu"]) == []
    for metric in ("cider", "spider"):
        (line,) = caption_warnings(FINE[:1], [metric])
        assert "CIDEr" in line
        assert "--option cider.df=coco-val" in line

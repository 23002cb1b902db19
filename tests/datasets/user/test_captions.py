from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from capbench.core.errors import DataError, MissingFileError
from capbench.datasets.user.captions import captions_in_memory, user_items

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
    cat, dog = user_items(candidates, _file(tmp_path, "r.json", COCO))
    assert (cat.image, cat.candidate, cat.references) == ("COCO_val_000008", "one cat", ("a cat",))
    assert (dog.image, dog.references) == ("COCO_val_000007", ("a dog", "the dog runs"))
    assert dog.candidate_id == "COCO_val_000007"


def test_coco_annotations_without_a_list_of_images(tmp_path: Path) -> None:
    candidates = _file(tmp_path, "c.json", [{"image_id": 7, "caption": "one dog"}])
    (item,) = user_items(candidates, _file(tmp_path, "r.json", {"annotations": COCO["annotations"]}))
    assert (item.image, item.references) == ("7", ("a dog", "the dog runs"))


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
        dog, cat = user_items(candidates, _file(tmp_path, "r.jsonl", content))
        assert (dog.image, dog.candidate_id, dog.references) == ("x", "model-1", ("a dog", "the dog"))
        assert (cat.image, cat.candidate_id, cat.references) == ("y", "5", ("a cat",))


def test_an_image_may_have_several_candidates(tmp_path: Path) -> None:
    rows = [{"image": "x", "caption": text} for text in ("one", "two", "one", "three")]
    items = user_items(_file(tmp_path, "c.jsonl", rows), _file(tmp_path, "r.json", PLAIN))
    assert [item.candidate_id for item in items] == ["x", "x#2", "x", "x#3"]


def test_two_systems_with_one_caption_are_two_candidates(tmp_path: Path) -> None:
    rows = [{"image": "x", "caption": "one", "system": system} for system in ("a", "b", "a")]
    items = user_items(_file(tmp_path, "c.jsonl", rows), _file(tmp_path, "r.json", PLAIN))
    assert [(item.candidate_id, item.system) for item in items] == [("x", "a"), ("x#2", "b"), ("x", "a")]
    assert len({item.key for item in items}) == 1


def test_names_that_a_file_gives_are_passed_over_by_those_made_up(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"image": "x", "caption": text} for text in ("one", "two", "three", "two", "x2")]
    rows.insert(0, {"image": "x", "caption": "x2", "id": "x#2"})
    rows.insert(1, {"image": "y", "caption": "one", "id": "x#3"})
    items = user_items(_file(tmp_path, "c.jsonl", rows), _file(tmp_path, "r.json", PLAIN))
    assert [item.candidate_id for item in items] == ["x#2", "x#3", "x", "x#4", "x#5", "x#4", "x#2"]


LISTED = [["a dog", "the dog"], ["a cat"]]


@pytest.mark.parametrize("references", [("r.json", LISTED), ("r.txt", "a dog\na cat\n"), ("r.txt", json.dumps(LISTED))])
def test_plain_text_stands_beside_references_in_the_same_order(tmp_path: Path, references: tuple[str, Any]) -> None:
    candidates = _file(tmp_path, "c.txt", "one dog, running\n  one\tcat \r\n")
    dog, cat = user_items(candidates, _file(tmp_path, *references))
    assert (dog.image, dog.candidate_id, dog.candidate) == ("line-1", "line-1", "one dog, running")
    assert (cat.image, cat.candidate, cat.references) == ("line-2", "one cat", ("a cat",))
    assert dog.references == (("a dog", "the dog") if references[1] != "a dog\na cat\n" else ("a dog",))


@pytest.mark.parametrize(
    ("candidates", "references", "message"),
    [
        (("c.txt", "a\nb\n"), ("r.json", PLAIN), r"c\.txt: is plain text, which names no images.*Write candidates as"),
        (("c.txt", "a\n"), ("r.json", LISTED), r"c\.txt: holds 1 candidates, but .*r\.json has references for 2"),
        (("c.txt", "a\n\nb\n"), ("r.json", [["x"]] * 3), r"c\.txt, row 2: the caption is empty"),
        (("c.txt", "a\nb\n"), ("r.json", [["x"], []]), r"r\.json, entry 2: has 0 references"),
        (("c.txt", "a\nb\n"), ("r.json", [["x"], "y"]), r"r\.json, entry 2: the entry is no list of captions"),
        (("c.txt", "a\nb\n"), ("r.txt", "x\n"), r"has references for 1"),
        (("c.json", [{"image": "x", "caption": "a"}]), ("r.json", [["x"]]), r"r\.json: names no images, but the cand"),
        (("c.json", ["a caption"]), ("r.json", PLAIN), r"c\.json, entry 1: is a caption without an image"),
    ],
)
def test_captions_without_images_are_refused_where_nothing_tells_their_references(
    tmp_path: Path, candidates: tuple[str, Any], references: tuple[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        user_items(_file(tmp_path, *candidates), _file(tmp_path, *references))


OK = [{"image": "x", "caption": "one dog"}]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("c.json", "", "c.json: is empty"),
        ("c.json", "[{", "is not JSON"),
        ("c.json", "{}", "is no list of candidates"),
        ("c.json", "[]", "holds no candidates"),
        ("c.json", "[5]", "c.json, entry 1: is no JSON object"),
        ("c.json", [{"caption": "a"}], "entry 1: lacks 'image' or 'image_id'"),
        ("c.json", [{"image": "x"}], "entry 1: lacks 'caption'"),
        ("c.json", [*OK, {"image": "z", "caption": "a"}], r"entry 2: the image 'z' has no references in .*r\.json"),
        ("c.json", [{"image": "x", "caption": " \n "}], "entry 1: caption is empty"),
        ("c.json", [{"image": "x", "caption": 5}], "entry 1: caption is 5, which is no text"),
        ("c.json", [{"image": "x", "caption": None}], "caption is null, which is no text"),
        ("c.json", [{"image": True, "caption": "a"}], "'image' is true, which is no name"),
        ("c.json", [{"image": "", "caption": "a"}], "image is empty"),
        ("c.json", [{"image": "x", "caption": "a\u001fb"}], "control character"),
        ("c.json", '[{"image": "x", "caption": "a\\ud83d"}]', "half of a surrogate pair"),
        (
            "c.json",
            [{**OK[0], "id": 1}, {"image": "x", "caption": "other", "id": 1}],
            "entry 2: the id '1' has another",
        ),
        ("c.json", '[{"image": "x", "caption": "a", "caption": "b"}]', "the key 'caption' stands twice"),
        ("c.jsonl", '{"image": "x", "caption": "a", "caption": "b"}', "row 1: the key 'caption' stands twice"),
        ("c.json", '[{"image": ' + "1" * 5000 + ', "caption": "a"}]', "an integer with more than 4,300 digits"),
        ("c.jsonl", '{"image": ' + "1" * 5000 + ', "caption": "a"}', "row 1: is no JSON"),
        ("c.json", [{"image": ".jpg", "caption": "a"}], "entry 1: image is '.jpg', which names no image"),
        ("c.json", [{**OK[0], "id": 1, "system": "a"}, {**OK[0], "id": 1, "system": "b"}], "another image or system"),
        ("c.jsonl", "", "c.jsonl: is empty"),
        ("c.jsonl", '{"image": "x", "caption": "a"}\n{"image"\n', "c.jsonl, row 2: is no JSON"),
        ("c.jsonl", '"text"\n', "row 1: is no JSON object"),
        ("c.jsonl", '{"image": "x", "caption": "a"}\n\n{"image": "x", "caption": "b"}\n', "row 2: is no JSON"),
    ],
)
def test_bad_candidates_are_named_with_their_row(tmp_path: Path, name: str, content: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        user_items(_file(tmp_path, name, content), _file(tmp_path, "r.json", PLAIN))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("r.json", "[]", "r.json: holds no references"),
        ("r.json", {"folder/.png": ["a"]}, "the image is 'folder/.png', which names no image"),
        ("r.json", "{}", "holds no references"),
        ("r.json", {"x": []}, "r.json, image 'x': has 0 references"),
        ("r.json", {"x": "a dog"}, "image 'x': the value is no list of captions"),
        ("r.json", {"x": ["a", ""]}, "image 'x': reference 2 is empty"),
        ("r.json", {"x": ["a", 3]}, "reference 2 is 3, which is no text"),
        ("r.json", {"x.jpg": ["a"], "x.png": ["b"]}, "two images with the id 'x'"),
        ("r.json", '{"x": ["a"], "x": ["b"]}', "the key 'x' stands twice"),
        ("r.json", {"annotations": [5]}, "annotations, entry 1: is no JSON object"),
        ("r.json", {"annotations": [{"image_id": 1}]}, "annotations, entry 1: lacks 'caption'"),
        ("r.json", {**COCO, "images": 5}, "'images' is no list"),
        ("r.json", {**COCO, "images": [{}]}, "images, entry 1: is no image with an 'id'"),
        ("r.json", {**COCO, "images": COCO["images"][:1]}, "annotations, entry 2: the image '8' is not among 'images'"),
        ("r.json", {**COCO, "images": [COCO["images"][0]] * 2}, "images, entry 2: the image '7' stands twice"),
        ("r.json", {**COCO, "annotations": []}, "the image 'x' has no references"),
        ("r.jsonl", [{"image": "x"}], "r.jsonl, row 1: lacks 'references' or 'caption'"),
        ("r.jsonl", [{"image": "x", "references": []}], "row 1: has 0 references"),
        ("r.jsonl", [{"image": "x", "references": ["a"]}] * 2, "row 2: a second list of references for the image 'x'"),
    ],
)
def test_bad_references_are_named_with_their_row(tmp_path: Path, name: str, content: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        user_items(_file(tmp_path, "c.jsonl", OK), _file(tmp_path, name, content))


def test_missing_files_are_said_so(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"c\.json: there is no such file"):
        user_items(tmp_path / "c.json", _file(tmp_path, "r.json", PLAIN))
    with pytest.raises(MissingFileError, match=r"gone\.json: there is no such file"):
        user_items(_file(tmp_path, "c.jsonl", OK), tmp_path / "gone.json")


def test_image_without_annotations_is_an_error_only_for_its_candidates(tmp_path: Path) -> None:
    references = {**COCO, "images": [*COCO["images"], {"id": 9, "file_name": "nine.jpg"}]}
    path = _file(tmp_path, "r.json", references)
    assert len(user_items(_file(tmp_path, "c.jsonl", [{"image_id": 7, "caption": "a"}]), path)) == 1
    with pytest.raises(DataError, match="the image '9' has no references"):
        user_items(_file(tmp_path, "c.jsonl", [{"image_id": 9, "caption": "a"}]), path)


def test_captions_without_references_are_known_by_their_images(tmp_path: Path) -> None:
    rows = [{"image_id": "x.jpg", "caption": "a dog"}, {"image_id": "x.jpg", "caption": "a cat"}]
    items = user_items(_file(tmp_path, "c.json", rows), None)
    assert [(item.image, item.candidate, item.references) for item in items] == [("x", "a dog", ()), ("x", "a cat", ())]
    assert [item.candidate_id for item in items] == ["x", "x#2"]
    assert captions_in_memory({"x.jpg": ["a dog", "a cat"]}, None).items == items
    assert captions_in_memory(rows, None).items == items
    with pytest.raises(DataError, match=r"c\.txt: is plain text, which names no images"):
        user_items(_file(tmp_path, "c.txt", "a dog\n"), None)
    with pytest.raises(DataError, match="candidates: are texts, which name no images"):
        captions_in_memory(["a dog"], None)


NAN = float("nan")


@pytest.mark.parametrize(
    ("candidates", "references", "place"),
    [
        (["a dog", NAN], [["x"], ["y"]], "candidates, entry 2: "),
        (["a dog", None], ["x", "y"], "candidates, entry 2: "),
        ([NAN], ["x"], "candidates, entry 1: "),
        ({"1": "a dog", "2": NAN}, {"1": "x", "2": "y"}, "candidates, image '2': "),
        ({"1": ["a dog", NAN]}, {"1": "x"}, "candidates, image '1': "),
        (["a dog", "a cat"], ["x", NAN], "references, entry 2: "),
        (["a dog", "a cat"], [["x"], ["y", NAN]], "references, entry 2: "),
        ({"1": "a dog"}, {"1": NAN}, "references, image '1': "),
    ],
)
def test_a_value_that_is_no_caption_is_named_with_its_place(candidates: Any, references: Any, place: str) -> None:
    with pytest.raises(DataError, match=r"is (NaN|null), which is no text") as caught:
        captions_in_memory(candidates, references)
    assert str(caught.value).startswith(place)

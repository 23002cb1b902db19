from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from capbench.core.errors import DataError
from capbench.core.records import Judgements
from capbench.datasets.foil import Foil, FoilFull, FoilPair, own_captions, read_foil_annotations
from capbench.datasets.row_models import parsed
from tests.datasets.native_files import root, write_json
from tests.errors import raises

FOIL = "foil/valse_foil-it.json"
TEST = "coco/karpathy_test_captions.json"
VAL = "coco/karpathy_val_captions.json"
CAPTIONS = {
    "one.jpg": ["A red kite over a hill.", "a kite in the wind", "Somebody flies a kite"],
    "two.jpg": ["two boats on the lake", "Boats near the shore .", "a lake with boats"],
}


def entry(image: str, caption: str, foil: str, nouns: tuple[str, str], votes: int = 3) -> dict[str, Any]:
    words = {"classes": nouns[0], "classes_foil": nouns[1]}
    mturk = {"foil": 0, "caption": votes, "other": 3 - votes}
    return {"image_file": image, "caption": caption, "foil": foil, **words, "mturk": mturk}


def pairs() -> dict[str, Any]:
    return {
        "11": entry("one.jpg", "a red kite over a hill.", "a red ball over a hill.", ("kite", "ball")),
        "12": entry("two.jpg", "boats near the shore.", "trains near the shore.", ("boats", "trains"), votes=1),
        "13": entry("three.jpg", "a cat on a mat", "a dog on a mat", ("cat", "dog")),
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_json(tmp_path / FOIL, pairs())
    write_json(tmp_path / TEST, {"one.jpg": CAPTIONS["one.jpg"]})
    write_json(tmp_path / VAL, {"two.jpg": CAPTIONS["two.jpg"]})
    return tmp_path


def load(folder: Path, selection: str = "own-caption-out") -> list[Judgements]:
    return list(Foil(root(folder)).load(Foil.selections[selection]))


def test_own_caption_is_no_reference_whatever_its_capitals(folder: Path) -> None:
    loaded = load(folder)[0]
    assert loaded.items[0].references == ("a kite in the wind", "Somebody flies a kite")
    assert loaded.items[0].references == loaded.items[1].references
    assert load(folder, "all-references")[0].items[0].references == tuple(CAPTIONS["one.jpg"])


@pytest.mark.parametrize(
    ("caption", "foil", "nouns", "reference"),
    [
        ("a boy with a basebat bat", "a boy with a baseball ball", ("bat", "ball"), "A boy with a baseball bat."),
        ("a mouse and a mouse", "a keyboard and a keyboard", ("mouse", "keyboard"), "a keyboard and a mouse"),
    ],
)
def test_damaged_right_captions_are_traced_to_what_they_were_made_from(
    caption: str, foil: str, nouns: tuple[str, str], reference: str
) -> None:
    texts = {"caption": caption, "foil": foil, "right": nouns[0], "wrong": nouns[1]}
    pair = parsed(FoilPair, {"name": "1", "image": "one", **texts}, Path("f"), 1)
    assert own_captions(pair, ["something else", reference, "a third"]) == {1}
    assert own_captions(pair, ["something else"]) == set()


def test_pairs_of_unknown_origin_keep_all_references_and_are_told(folder: Path) -> None:
    data = pairs()
    data["11"] = entry("one.jpg", "a plane in the sky", "a train in the sky", ("plane", "train"))
    write_json(folder / FOIL, data)
    loaded = load(folder)[0]
    assert loaded.items[0].references == tuple(CAPTIONS["one.jpg"])
    assert loaded.notes[-1].startswith("1 pairs ")


# The whole test set, in the form of COCO's captions

FULL = "foil/foilv1.0_test_2017.json"


def coco_form() -> dict[str, Any]:
    right = {"foil": False, "foil_id": 0, "target_word": "ORIG", "foil_word": "ORIG"}
    return {
        "images": [{"id": n, "file_name": f"{name}.jpg"} for n, name in enumerate(("one", "two", "x"), 1)],
        "annotations": [
            {**right, "id": 70, "image_id": 1, "caption": "A red kite over a hill."},
            {**foil_of(70, 1, "A red ball over a hill.", "kite", "ball"), "foil_id": 5},
            {**foil_of(70, 1, "A red boat over a hill.", "kite", "boat"), "foil_id": 6},
            foil_of(71, 2, "trains near the shore .", "boats", "trains"),
            {**right, "id": 71, "image_id": 2, "caption": "Boats near the shore ."},
            {**right, "id": 72, "image_id": 3, "caption": "a cat"},
            foil_of(72, 3, "a dog", "cat", "dog"),
        ],
    }


def foil_of(annotation: int, image: int, caption: str, right: str, wrong: str) -> dict[str, Any]:
    words = {"target_word": right, "foil_word": wrong}
    return {"id": annotation, "image_id": image, "caption": caption, "foil": True, "foil_id": 9, **words}


@pytest.fixture
def full(folder: Path) -> Path:
    write_json(folder / FULL, coco_form())
    return folder


def load_full(folder: Path, selection: str = "own-caption-out") -> Judgements:
    return FoilFull(root(folder)).load(FoilFull.selections[selection])[0]


def test_every_foil_of_a_caption_is_a_pair_with_it(full: Path) -> None:
    loaded = load_full(full)
    assert [item.candidate for item in loaded.items] == [
        "A red kite over a hill.",
        "A red ball over a hill.",
        "A red kite over a hill.",
        "A red boat over a hill.",
        "Boats near the shore .",
        "trains near the shore .",
    ]
    assert [item.candidate_id for item in loaded.items][1:4] == ["70.1#foil", "70.2#caption", "70.2#foil"]
    assert loaded.preferences["right"].preferred.tolist() == [1, 1, 1]
    assert loaded.items[3].references == ("a kite in the wind", "Somebody flies a kite")
    assert loaded.notes[0].startswith("1 of 4 pairs are left out")


@pytest.mark.parametrize(
    ("place", "change", "code", "row", "value"),
    [
        (0, {"id": None}, "missing-value", "annotation 1", "id"),
        (1, {"image_id": 8}, "unknown-item", "annotation 2", 8),
        (1, {"foil_word": None}, "wrong-type", "annotation 2", None),
        (1, {"id": 99}, "missing-caption", "annotation 2", 99),
        (4, {"id": 70, "image_id": 1}, "duplicate", "annotation 5", 70),
        (1, {"image_id": 2}, "mismatch", "annotation 2", 2),
    ],
)
def test_a_wrong_annotation_is_named(
    place: int, change: dict[str, Any], code: str, row: str, value: object, full: Path
) -> None:
    data = coco_form()
    data["annotations"][place].update(change)
    write_json(full / FULL, data)
    with raises(DataError, code, path=full / "foil/foilv1.0_test_2017.json", row=row, value=value):
        read_foil_annotations(full / FULL)

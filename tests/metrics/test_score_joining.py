from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from capbench.core.errors import DataError
from capbench.core.records import FloatArray, Item, caption_key, references_hash
from capbench.metrics.score_files import ScoreFile
from capbench.metrics.score_joining import Join, item_id, join
from tests.errors import raises

DOG = Item("dog", "A dog runs.", ("a dog", "a running dog"), "c1")
CAT = Item("COCO_val2014_000000000042", "A cat sits.", ("a cat",), "c2", system="s1")
CAT_AGAIN = Item("COCO_val2014_000000000042", "A cat sits.", ("a cat",), "c3", system="s2")
FOX = Item("fox", "A fox!", (), "c1")
ITEMS = (DOG, CAT, FOX, CAT_AGAIN)


PATH = Path("dir/s.csv")


def file(names: Mapping[str, Sequence[str]], **columns: Sequence[float]) -> ScoreFile:
    scores = {name: np.array(values, dtype=np.float64) for name, values in columns.items()}
    return ScoreFile(PATH, "0" * 16, names, scores, (), 2)


def texts(*rows: tuple[str, str]) -> dict[str, list[str]]:
    return {"image": [image for image, _ in rows], "caption": [caption for _, caption in rows]}


def error_of(joined: Join) -> DataError:
    error = joined.complaint("set/items")
    assert error is not None
    return error


def shown(error: DataError) -> tuple[object, ...]:
    return error.code, error.path, error.row, error.value


def test_an_id_names_image_candidate_and_references_and_nothing_else() -> None:
    assert item_id(CAT) == item_id(CAT_AGAIN)
    others = [
        Item("dog2", DOG.candidate, DOG.references),
        Item("dog", "A dog runs", DOG.references),
        Item("dog", DOG.candidate, DOG.references[:1]),
        Item("dog", DOG.candidate, DOG.references[::-1]),
    ]
    assert len({item_id(item) for item in (DOG, *others)}) == 5
    assert item_id(DOG).startswith("dog:")


def test_rows_are_joined_by_id_and_by_candidate_id_where_it_names_one_caption() -> None:
    stranger = item_id(Item("hen", "A hen.", ()))
    joined = join(file({"id": [item_id(FOX), stranger, item_id(CAT), item_id(DOG)]}, x=[3, 9, 2, 1]), ITEMS)
    assert joined.values["x"].tolist() == [1, 2, 3, 2]
    assert (joined.ways, joined.strange) == ({"id": 3}, (1,))
    assert joined.complaint("set/items") is None
    only = (DOG, CAT, CAT_AGAIN)
    joined = join(file({"candidate_id": ["c1", "c2", "c3"]}, x=[1, 2, 2]), only)
    assert joined.values["x"].tolist() == [1, 2, 2]
    assert joined.ways == {"candidate id": 2}
    assert join(file({"id": ["c1", "c2"]}, x=[1, 2]), only).values["x"].tolist() == [1, 2, 2]
    with raises(DataError, "ambiguous", path=PATH, row=2, value="c1"):
        join(file({"candidate_id": ["c1", "c2"]}, x=[1, 2]), ITEMS)
    named = file({"candidate_id": ["c1", "c1", "c2"], "image": ["fox", "dog", "42"]}, x=[3, 1, 2])
    assert join(named, ITEMS).values["x"].tolist() == [1, 2, 3, 2]


@pytest.mark.parametrize(
    "image", ["COCO_val2014_000000000042", "images/COCO_val2014_000000000042.jpg", "42", "000000000042", "42.jpg"]
)
def test_images_may_be_named_by_id_file_or_cocos_number(image: str) -> None:
    of_2017, number = (Item(name, "A cat sits.", ("a cat",), "c2") for name in ("000000000042", "42"))
    for item in (CAT, of_2017, number):
        assert join(file(texts((image, "A cat sits.")), x=[5]), [item]).values["x"].tolist() == [5]


def test_rows_are_joined_by_caption_and_then_by_text_key() -> None:
    rows = texts(("dog.jpg", "a DOG runs"), ("fox", "A fox!"), ("42", "A cat sits."))
    joined = join(file(rows, x=[1, 3, 2]), ITEMS)
    assert joined.values["x"].tolist() == [1, 2, 3, 2]
    assert joined.ways == {"caption": 2, "text key": 1}
    assert joined.way == "caption+text key"


def test_a_row_of_an_id_must_not_name_another_image_or_caption() -> None:
    for name, value in (("caption", "A fox!"), ("image", "fox")):
        with raises(DataError, "mismatch", path=PATH, row=2, value=value):
            join(file({"id": [item_id(DOG)], name: [value]}, x=[1]), ITEMS)
    joined = join(file({"id": [item_id(DOG)], "caption": ["a dog runs"], "image": ["x/dog.png"]}, x=[1]), [DOG])
    assert joined.values["x"].tolist() == [1]


def test_two_scores_of_one_item_are_rejected_unless_they_are_equal() -> None:
    rows = texts(("fox", "A fox!"), ("fox", "A fox!"))
    assert join(file(rows, x=[1, 1]), [FOX]).values["x"].tolist() == [1]
    with raises(DataError, "duplicate", path=PATH, row=3, value="A fox!") as caught:
        join(file(rows, x=[1, 4]), [FOX])
    assert "4.0, after 1.0 in row 2" in caught.value.message
    assert join(file(rows, x=[1, 4]), [FOX], repeats="first").values["x"].tolist() == [1]
    assert join(file(rows, x=[1, 4]), [FOX], repeats="mean").values["x"].tolist() == [2.5]
    assert join(file(rows, x=[np.nan, 4]), [FOX]).values["x"].tolist() == [4]


def test_items_without_a_score_are_named() -> None:
    joined = join(file(texts(("fox", "A fox!"), ("wolf", "A wolf.")), x=[1, 1]), ITEMS)
    assert joined.missing.tolist() == [0, 1, 3]
    assert joined.strange == (1,)
    error = error_of(joined)
    assert shown(error) == ("missing-scores", str(PATH), None, "dog")
    assert "2 of the 3 items of set/items" in error.message
    assert "1 row without an item (first: row 3)" in joined.note()


def test_other_references_are_noticed_by_their_hash() -> None:
    other = Item("dog", DOG.candidate, ("another",))
    by_id = file({"id": [item_id(other)]}, x=[1])
    by_hash = file({**texts(("dog", DOG.candidate)), "references_hash": [references_hash(other.references)]}, x=[1])
    both = file({"id": [item_id(other)], **texts(("dog", DOG.candidate))}, x=[1])
    for given in (by_id, by_hash, both):
        joined = join(given, [DOG])
        assert joined.other_references == (0,)
        assert joined.strange == ()
        assert shown(error_of(joined)) == ("mismatch", str(PATH), 2, None)
        assert join(given, [DOG], check_references=False).values["x"].tolist() == [1]
    same = file({**texts(("dog", DOG.candidate)), "references_hash": [references_hash(DOG.references)]}, x=[1])
    assert join(same, [DOG, other]).missing.tolist() == [1]


def _plainly(given: ScoreFile, items: Sequence[Item]) -> FloatArray:
    """The join by image and caption, then by text key, one item at a time."""
    rows = list(zip(given.names["image"], given.names["caption"], given.columns["x"], strict=True))
    values = np.full(len(items), np.nan)
    for place, item in enumerate(items):
        exact = {score for image, text, score in rows if (image, text) == (item.image, item.candidate)}
        if len(exact) == 1:
            values[place] = exact.pop()
            continue
        key = caption_key(item.candidate)
        texts = {
            other.candidate for other in items if other.image == item.image and caption_key(other.candidate) == key
        }
        alike = {(text, score) for image, text, score in rows if image == item.image and caption_key(text) == key}
        if len(texts) == 1 and len(alike) == 1:
            values[place] = alike.pop()[1]
    return values


@pytest.mark.parametrize(
    "captions",
    [
        ["x y", "X y", "x. y", "z", "z!", "w"],
        ["the rapist", "therapist", "The rapist.", "1.5", "15", "???"],
        ["狗。", "狗", "猫", "ｄｏｇ", "Dog", "❤️"],
    ],
)
def test_a_join_is_what_a_plain_search_finds(captions: list[str]) -> None:
    generator = random.Random(5)
    for _ in range(300):
        images = ["a", "b"]
        items = [
            Item(generator.choice(images), generator.choice(captions), (generator.choice("rs"),)) for _ in range(6)
        ]
        pairs = list({(generator.choice(images), generator.choice(captions)): None for _ in range(6)})
        pairs += generator.choices(pairs, k=2)
        score_of = {pair: float(generator.randrange(3)) for pair in pairs}
        given = file(texts(*pairs), x=[score_of[pair] for pair in pairs])
        joined = join(given, items)
        np.testing.assert_array_equal(joined.values["x"], _plainly(given, items))
        assert joined.missing.tolist() == np.flatnonzero(np.isnan(joined.values["x"])).tolist()


DIFFERENT = [
    ("dog 狗", "dog 猫"),
    ("一只狗在跑", "一只猫在跑"),
    ("犬が走る", "猫が走る"),
    ("собака бежит", "кошка спит"),
    ("كَتَبَ", "كُتِبَ"),
    ("पिता", "पीता"),
    ("résumé", "rsum"),
    ("???", "!!!"),
    ("❤️", "☀️"),
    ("ハ", "バ"),
]


@pytest.mark.parametrize(("text", "other"), DIFFERENT)
def test_a_row_is_not_joined_to_a_caption_of_other_letters(text: str, other: str) -> None:
    items = [Item("dog", text, ("r",))]
    joined = join(file(texts(("dog", other)), x=[1]), items)
    assert joined.missing.tolist() == [0]
    assert joined.strange == (0,)
    both = join(file(texts(("dog", other), ("dog", text)), x=[1, 2]), [*items, Item("dog", other, ("r",))])
    assert both.values["x"].tolist() == [2, 1]
    with raises(DataError, "mismatch", path=PATH, row=2, value=other):
        join(file({"id": [item_id(items[0])], "caption": [other]}, x=[1]), items)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("A dog's ball . ", "a dogs ball"),
        ("résumé", "RE\u0301SUME\u0301"),
        ("Ｄｏｇ１", "dog1"),
        ("ﾄﾞｸﾞ", "ドグ"),
        ("犬。", "犬"),
        ("Straße", "STRASSE"),
        ("dog ❤️", "dog ❤"),
        ("dog´s", "dog’s"),
        ("র\u200d্য", "র্য"),
    ],
)
def test_texts_that_differ_in_form_alone_are_joined_by_text_key(text: str, other: str) -> None:
    joined = join(file(texts(("dog", other)), x=[1]), [Item("dog", text, ("r",))])
    assert joined.values["x"].tolist() == [1]
    assert joined.ways == {"text key": 1}


def test_a_row_whose_text_key_fits_two_texts_of_the_image_is_joined_to_neither() -> None:
    items = [Item("dog", text, ("r",)) for text in ("the rapist", "therapist", "1.5", "15")]
    rows = texts(("dog", "The rapist."), ("dog", "1.5"), ("dog", "1 5"), ("dog", "15"), ("cat", "15"))
    joined = join(file(rows, x=[1, 2, 3, 4, 5]), items)
    np.testing.assert_array_equal(joined.values["x"], [np.nan, np.nan, 2, 4])
    assert [(case.image, case.rows, case.texts) for case in joined.unclear] == [
        ("dog", (0,), ("the rapist", "therapist"))
    ]
    assert joined.strange == (2, 4)  # both texts have rows already
    assert shown(error_of(joined)) == ("missing-scores", str(PATH), 2, "dog")
    # Nor does it get the one text that has no row of its own.
    joined = join(file(texts(("dog", "the rapist"), ("dog", "The rapist.")), x=[1, 2]), items[:2])
    np.testing.assert_array_equal(joined.values["x"], [1, np.nan])
    assert [case.rows for case in joined.unclear] == [(1,)]
    assert not joined.is_empty


def test_rows_of_one_text_are_joined_by_its_text_key_if_they_have_one_score() -> None:
    rows = texts(("dog", "a dog runs"), ("dog", "a dog runs"))
    assert join(file(rows, x=[1, 1]), [DOG]).values["x"].tolist() == [1]
    assert join(file(rows, x=[np.nan, 1]), [DOG]).values["x"].tolist() == [1]
    joined = join(file(rows, x=[1, 1], y=[1, 2]), [DOG])
    assert joined.missing.tolist() == [0]
    assert [case.rows for case in joined.unclear] == [(0, 1)]
    assert join(file(rows, x=[1, 1], y=[1, 2]), [DOG], ["x"]).values["x"].tolist() == [1]
    assert join(file(rows, x=[1, 2]), [DOG], repeats="mean").values["x"].tolist() == [1.5]


def test_items_of_one_text_share_a_row_that_is_joined_by_text_key() -> None:
    others = [
        Item("dog", DOG.candidate, ("other",), "c8"),
        Item("dog", DOG.candidate, DOG.references, "c9", system="s"),
    ]
    joined = join(file(texts(("dog", "a dog runs")), x=[1]), [DOG, *others])
    assert joined.values["x"].tolist() == [1, 1, 1]
    # With references, every list of references has a score of its own.
    rows = {**texts(("dog", "a dog runs"), ("dog", "a dog runs"), ("dog", "a dog runs"))}
    rows["references_hash"] = [references_hash(refs) for refs in (("other",), DOG.references, ("third",))]
    joined = join(file(rows, x=[1, 2, 3]), [DOG, *others])
    assert joined.values["x"].tolist() == [2, 1, 2]
    assert joined.other_references == (2,)
    assert joined.unclear == ()


def test_the_caption_beside_an_id_must_not_fit_another_text_of_the_image() -> None:
    rapist, therapist = (Item("dog", text, ("r",)) for text in ("the rapist", "therapist"))
    for caption in ("therapist", "The rapist!"):
        names = {"id": [item_id(rapist)], "caption": [caption]}
        assert join(file(names, x=[1]), [rapist, DOG]).values["x"][0] == 1
        with raises(DataError, "mismatch", path=PATH, row=2, value=caption):
            join(file(names, x=[1]), [rapist, therapist])
    of_candidate = [Item("dog", "the rapist", ("r",), "c1"), Item("dog", "therapist", ("r",), "c2")]
    with raises(DataError, "mismatch", path=PATH, row=3, value="the rapist"):
        join(file({"id": ["c1", "c2"], "caption": ["the rapist", "the rapist"]}, x=[1, 2]), of_candidate)


def test_a_coco_number_of_two_images_is_ambiguous_in_every_way_of_joining() -> None:
    train, val = (Item(f"COCO_{split}2014_000000000042", "A cat.", ("a cat",), split) for split in ("train", "val"))
    for image in ("42", "000000000042.jpg", "COCO_val2017_000000000042.jpg"):
        for names in (
            texts(("fox", "A fox!"), (image, "A cat.")),
            texts(("fox", "A fox!"), (image, "a cat")),
            {"candidate_id": ["c1", "val"], "image": ["fox", image]},
            {"id": [item_id(FOX), item_id(val)], "image": ["fox", image]},
        ):
            with raises(DataError, "ambiguous", path=PATH, row=3, value=image) as caught:
                join(file(names, x=[1, 2]), [FOX, train, val])
            assert f"{train.image} or {val.image}" in caught.value.message
    named = texts((train.image, "A cat."), (f"{val.image}.jpg", "A cat."))
    assert join(file(named, x=[1, 2]), [train, val]).values["x"].tolist() == [1, 2]

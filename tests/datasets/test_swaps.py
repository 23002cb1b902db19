from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from capbench.core.errors import DataError, MissingFileError
from capbench.core.records import Judgements, caption_key
from capbench.datasets.root import DataRoot
from capbench.datasets.swaps import Flickr8kSwaps, make_pairs
from capbench.text.swaps import CATEGORIES, COMPONENTS
from tests.datasets.native_files import root, token_text, write
from tests.errors import raises

CAPTIONS = {
    "one.jpg": ["Two brown dogs are running through a muddy field .", "Dogs at play .", "some wet dogs in a yard"],
    "two.jpg": ["A girl in a red dress walks along the shore", "Somebody at the sea .", "a small girl by the water"],
    "three.jpg": ["A cup .", "A cup on a shelf ."],
    "train.jpg": ["A man in a green coat .", "A man ."],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "flickr8k/Flickr8k.token.txt", token_text(CAPTIONS))
    write(tmp_path / "flickr8k/Flickr_8k.testImages.txt", "one.jpg\ntwo.jpg\nthree.jpg\n\n")
    return tmp_path


def load(folder: Path, selection: str = "changed-reference-out") -> Judgements:
    found = Flickr8kSwaps(root(folder)).load(Flickr8kSwaps.selections[selection])
    assert len(found) == 1
    return found[0]


def test_pairs_are_similar_then_different_and_in_the_order_of_components(folder: Path) -> None:
    judged = load(folder)
    component = judged.preferences["component"]
    assert component.preferred.tolist() == [1] * len(component)
    assert component.first.tolist() == list(range(0, len(judged.items), 2))
    assert list(dict.fromkeys(component.group)) == list(COMPONENTS)
    assert len({item.candidate_id for item in judged.items}) == len(judged.items)


def test_an_image_gives_one_pair_a_component_at_most_and_training_images_none(folder: Path) -> None:
    judged = load(folder)
    named = [(item.image, item.group) for item in judged.items[::2]]
    assert len(set(named)) == len(named)
    assert {image for image, _ in named} == {"one", "two", "three"}
    assert ("three", "action") not in named


def test_candidates_differ_in_one_place_and_are_no_reference(folder: Path) -> None:
    judged = load(folder)
    texts = {caption_key(text) for texts in CAPTIONS.values() for text in texts}
    for right, wrong in zip(judged.items[::2], judged.items[1::2], strict=True):
        assert right.references == wrong.references
        assert right.candidate != wrong.candidate
        assert not {caption_key(right.candidate), caption_key(wrong.candidate)} & texts


def test_changed_caption_leaves_the_references_or_stays(folder: Path) -> None:
    out, kept = load(folder), load(folder, "all-references")
    assert [item.candidate for item in out.items] == [item.candidate for item in kept.items]
    for item, whole in zip(out.items, kept.items, strict=True):
        place = int(item.candidate_id.split("#")[1])
        captions = CAPTIONS[f"{item.image}.jpg"]
        assert whole.references == tuple(captions)
        assert item.references == tuple(text for n, text in enumerate(captions) if n != place)


def test_attributes_are_the_pairs_of_properties(folder: Path) -> None:
    judged = load(folder)
    component, attribute = judged.preferences["component"], judged.preferences["attribute"]
    assert set(attribute.group) <= set(CATEGORIES)
    properties = component.first[np.array(component.group) == "property"]
    assert attribute.first.tolist() == properties.tolist()


def test_pairs_of_an_image_do_not_depend_on_other_images(folder: Path) -> None:
    before = {item.candidate_id: item.candidate for item in load(folder).items if item.image == "two"}
    write(folder / "flickr8k/Flickr_8k.testImages.txt", "two.jpg\ntrain.jpg\none.jpg\n")
    after = {item.candidate_id: item.candidate for item in load(folder).items if item.image == "two"}
    assert before == after


def test_the_note_says_how_many_pairs_and_by_which_rules(folder: Path) -> None:
    note = load(folder).notes[0]
    assert "pairs of 3 test images, made by rules version 1 (lexicon " in note
    assert "no human judged them" in note


@pytest.mark.parametrize(
    ("listed", "code", "row", "value"),
    [
        ("one.jpg\nfour.jpg\n", "unknown-item", 2, "four.jpg"),
        ("one.jpg\none.jpg\n", "duplicate", 2, "one.jpg"),
        ("one.jpg\n\ntwo.jpg\n", "unknown-item", 2, ""),
        ("three.jpg\n", "too-few", None, "action"),
    ],
)
def test_lists_that_do_not_fit_are_refused(
    folder: Path, listed: str, code: str, row: int | None, value: object
) -> None:
    write(folder / "flickr8k/Flickr_8k.testImages.txt", listed)
    with raises(DataError, code, row=row, value=value):
        load(folder)


def test_an_image_with_one_caption_is_refused(folder: Path) -> None:
    write(folder / "flickr8k/Flickr8k.token.txt", token_text({**CAPTIONS, "two.jpg": ["A girl in a red dress"]}))
    with raises(DataError, "missing-references", path=folder / "flickr8k/Flickr_8k.testImages.txt", row=2, value="two"):
        load(folder)


def test_missing_list_is_named(folder: Path) -> None:
    (folder / "flickr8k/Flickr_8k.testImages.txt").unlink()
    with raises(MissingFileError, "missing-file", path=folder / "flickr8k/Flickr_8k.testImages.txt"):
        load(folder)


def test_a_caption_that_becomes_another_caption_of_the_image_is_passed_over() -> None:
    # The only swaps of the first caption are of "puppy"; its similar form is what the second caption says.
    pairs = make_pairs({"i": ["a puppy on a rug", "A pup on a rug .", "a thing"]})
    assert pairs == []


def test_the_sample_has_pairs_of_every_kind(sample: Path) -> None:
    dataset = Flickr8kSwaps(DataRoot(sample, True, "embedded sample"))
    judged = dataset.load(dataset.protocol().items)[0]
    groups = judged.preferences["component"].group
    assert min(groups.count(component) for component in COMPONENTS) >= 15
    assert {"colour", "count", "size"} <= set(judged.preferences["attribute"].group)


@pytest.mark.real_data
def test_published_captions_give_hundreds_of_pairs_of_every_kind(real_data: Path) -> None:
    judged = load(real_data)
    component, attribute = (judged.preferences[label].group for label in ("component", "attribute"))
    assert min(component.count(c) for c in COMPONENTS) > 600
    assert min(attribute.count(c) for c in CATEGORIES) > 100
    assert {len(item.references) for item in judged.items} == {4}
    assert load(real_data).items == judged.items

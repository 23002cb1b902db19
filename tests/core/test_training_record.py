"""Records of training data: digests, and overlap against sets that are computed separately."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from capbench.core.records import Item, caption_key
from capbench.core.training_record import (
    BY_CHANCE,
    TrainingRecord,
    captions_of,
    photographs_of,
    shared_record,
    training_overlap,
)

FLICKR8K, FLICKR30K = "1007129816_e794419615", "1007129816"


def record(images: list[str], texts: list[str], name: str = "a.bin") -> TrainingRecord:
    return TrainingRecord(name, photographs_of(images), captions_of(texts))


@pytest.mark.parametrize(
    ("trained", "judged", "known"),
    [
        (FLICKR8K, FLICKR30K, True),
        (FLICKR30K, FLICKR8K, True),
        ("COCO_val2014_000000000724", "000000000724", True),
        ("COCO_val2014_000000000724", "724", False),  # Flickr's numbers are numbers, too
        ("2008_000032", "2008_000033", False),
    ],
)
def test_a_photograph_is_the_same_under_the_names_of_several_data_sets(trained: str, judged: str, known: bool) -> None:
    assert photographs_of([trained]).has_photographs([judged]).tolist() == [known]


def test_overlap_equals_that_of_plain_sets() -> None:
    rng = np.random.default_rng(3)
    words = ["dog", "cat", "boat", "kite", "runs", "sits"]

    def text() -> str:
        return " ".join(rng.choice(words, 3)) + str(rng.choice(["", ".", " !"]))

    trained = {f"{n}_0123456789": [text() for _ in range(3)] for n in range(60)}
    items = [Item(str(n), text(), tuple(text() for _ in range(2)), group="ab"[n % 2]) for n in range(40, 90)] * 2
    (of_a, of_b) = (
        {image: texts for image, texts in trained.items() if int(image.split("_")[0]) % 2 == odd} for odd in (0, 1)
    )
    records = [record([*of], [t for texts in of.values() for t in texts]) for of in (of_a, of_b)]
    for chosen, plain in (([records[0]], of_a), (records, trained)):
        overlap = training_overlap("m", chosen, items)
        numbers = {image.split("_")[0] for image in plain}
        keys = {caption_key(t) for texts in plain.values() for t in texts}
        candidates = {caption_key(item.candidate) for item in items}
        references = {caption_key(t) for item in items for t in item.references}
        assert overlap.trained == len({item.image for item in items} & numbers) > 0
        assert overlap.photographs == 50
        assert (overlap.read_candidates, overlap.candidates) == (len(candidates & keys), len(candidates))
        assert (overlap.read_references, overlap.references) == (len(references & keys), len(references))
        assert overlap.has_read
    assert training_overlap("m", [shared_record(records, "e.json")], items).trained == 0


def test_captions_of_unnamed_photographs_count_as_read_unless_few_are_equal() -> None:
    items = [Item(f"i{n}", f"caption {n}", (f"reference {n}",)) for n in range(50)]
    few = [item.candidate for item in items[: int(BY_CHANCE * 100) - 1]]
    known = {
        number: training_overlap("m", [TrainingRecord("a", None, captions_of(texts))], items)
        for number, texts in ((9, few), (10, [*few, "Reference 49."]))
    }
    assert [known[n].has_read for n in (9, 10)] == [False, True]
    assert (known[10].read_candidates, known[10].read_references, known[10].trained) == (9, 1, 0)
    assert known[10].unrecorded == ("a",)


def test_a_record_is_the_same_after_writing_and_contains_no_text() -> None:
    made = TrainingRecord(
        "v.bin", photographs_of([FLICKR8K, "b"]), captions_of(["A dog."]), photographs_of(["c"]), "its dev split"
    )
    text = json.dumps(made.to_json())
    again = TrainingRecord.from_json("v.bin", json.loads(text))
    assert "dog" not in text
    assert again.to_json() == made.to_json()
    assert again.selected_by == "its dev split"
    overlap = training_overlap("m", [again], [Item(FLICKR30K, "a dog", ()), Item("c", "a cat", ())])
    assert (overlap.trained, overlap.selected, overlap.read_candidates, overlap.references) == (1, 1, 1, 0)
    # Eight bytes for each photograph and caption.
    assert len(TrainingRecord("v", photographs_of(map(str, range(6000)))).to_json()["photographs"]) == 64_000


_ITEM = Item("1", "a dog", ("A dog runs.", "A brown dog  runs", "Dog"), "1#0", system="A")


def test_the_key_of_an_item_is_of_image_candidate_and_references() -> None:
    assert _ITEM.key.hex() == "1eaa4c358c3466e98624807054fa29c5"
    assert replace(_ITEM, candidate_id="", group="8k", system="").key == _ITEM.key
    assert replace(_ITEM, references=_ITEM.references[:2]).key != _ITEM.key
    assert Item("1", "a dog", ()).key != Item("1", "a dog", ("",)).key

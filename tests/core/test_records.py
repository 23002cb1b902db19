"""Items: identity, and the compact form that holds the references as one text."""

from __future__ import annotations

import pickle
import random
from copy import copy
from dataclasses import FrozenInstanceError, replace

import pytest

from capbench.core.files import TextSpool
from capbench.core.records import CompactItem, Item, ItemStore, first_places, joined_references

_TEXTS = ("A dog runs.", "A brown dog  runs", "Dog")
_PLAIN = Item("1", "a dog", _TEXTS, "1#0", system="A")


def _compact(document: str = joined_references(_TEXTS)) -> CompactItem:
    return CompactItem.of_document("1", "a dog", document, "1#0", "A")


def test_the_references_of_an_item_are_one_object() -> None:
    assert _PLAIN.references is _TEXTS


def test_a_compact_item_equals_the_item_with_the_same_fields() -> None:
    plain: Item = replace(_PLAIN)
    assert _compact() == plain
    assert plain == _compact()
    assert hash(_compact()) == hash(_PLAIN)
    assert repr(_compact().references) == repr(_TEXTS)
    assert _compact() != replace(_PLAIN, references=_TEXTS[:2])
    assert _compact() != replace(_PLAIN, group="8k")


def test_both_forms_have_the_same_key_and_document() -> None:
    assert _compact().key == _PLAIN.key
    assert _compact().document == _PLAIN.document == joined_references(_TEXTS)
    assert Item("1", "a dog", ()).key != Item("1", "a dog", ("",)).key


def test_compact_items_of_an_image_share_the_text_of_their_references() -> None:
    document = joined_references(_TEXTS)
    assert _compact(document).document is document


def test_other_references_can_replace_those_of_a_compact_item() -> None:
    shorter = replace(_compact(), references=_TEXTS[:1])
    assert shorter == replace(_PLAIN, references=_TEXTS[:1])
    assert isinstance(shorter, CompactItem)


def test_a_compact_item_survives_pickling() -> None:
    assert pickle.loads(pickle.dumps(_compact())) == _PLAIN


def test_a_compact_item_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        _compact().references = ()


def test_a_stored_item_equals_the_item_with_the_same_fields() -> None:
    documents = TextSpool()
    store = ItemStore(TextSpool(), documents)
    number = documents.add(joined_references(_TEXTS)).number
    item, other = store.add("1", "a dog", number, "1#0", "A"), store.add("2", "ein Hund läuft", number)
    assert item == _PLAIN
    assert other == Item("2", "ein Hund läuft", _TEXTS)
    assert item != other
    assert hash(item) == hash(_PLAIN)
    assert (item.key, item.document, item.references) == (_PLAIN.key, _PLAIN.document, _TEXTS)
    assert type(pickle.loads(pickle.dumps(item))) is Item
    assert pickle.loads(pickle.dumps(item)) == copy(item) == _PLAIN
    assert replace(item, group="8k") == replace(_PLAIN, group="8k")
    assert repr(other).startswith("StoredItem(image='2', candidate='ein Hund läuft', references=(")
    with pytest.raises(FrozenInstanceError):
        item.image = "3"  # type: ignore[misc]


def test_first_places_are_those_of_a_dictionary() -> None:
    rng = random.Random(0)
    # Hashes with zero bytes at both ends, which numpy's texts drop.
    known = [bytes(rng.choice((0, 0, 1, 255)) for _ in range(16)) for _ in range(40)]
    known += [bytes(16), bytes(15) + b"\x01", b"\x01" + bytes(15)]
    for size in (0, 1, 7, 300):
        hashes = rng.choices(known, k=size)
        expected: dict[bytes, list[int]] = {}
        for place, each in enumerate(hashes):
            expected.setdefault(each, []).append(place)
        places, counts = first_places(iter(hashes))
        assert places.tolist() == [of_hash[0] for of_hash in expected.values()]
        assert counts.tolist() == list(map(len, expected.values()))

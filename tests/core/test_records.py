"""Items and their identity."""

from __future__ import annotations

import pickle
from dataclasses import replace

from capbench.core.records import Item

_ITEM = Item("1", "a dog", ("A dog runs.", "A brown dog  runs", "Dog"), "1#0", system="A")


def test_the_key_of_an_item_is_of_image_candidate_and_references() -> None:
    assert _ITEM.key.hex() == "1eaa4c358c3466e98624807054fa29c5"
    assert replace(_ITEM, candidate_id="", group="8k", system="").key == _ITEM.key
    assert replace(_ITEM, references=_ITEM.references[:2]).key != _ITEM.key
    assert Item("1", "a dog", ()).key != Item("1", "a dog", ("",)).key


def test_an_item_whose_key_was_computed_equals_one_without() -> None:
    other = replace(_ITEM)
    assert other.key
    assert other == Item(_ITEM.image, _ITEM.candidate, _ITEM.references, "1#0", system="A")
    assert pickle.loads(pickle.dumps(other)) == other

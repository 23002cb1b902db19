"""What is counted on dev for ViLBERT on Flickr8k."""

from __future__ import annotations

import numpy as np
import pytest

from capbench.core.errors import DataError
from capbench.core.records import Item
from scripts.select_vilbert_flickr8k import above_all, held_out, own_and_foreign, wins


def test_an_images_own_caption_is_left_out_of_the_references_and_compared_with_all_others() -> None:
    items = [Item("a", f"x{i}", ("r1", "r2", "r3"), f"b#{i}", "anywhere") for i in range(2)]
    items.append(Item("c", "y", ("s1", "s2"), "a#0", "anywhere"))
    made, owners = own_and_foreign(items)
    assert [(item.candidate, item.references) for item in made] == [
        ("r3", ("r1", "r2")),
        ("x0", ("r1", "r2")),
        ("x1", ("r1", "r2")),
        ("s2", ("s1",)),
        ("y", ("s1",)),
    ]
    assert owners.tolist() == [0, 0, 0, 3, 3]
    assert wins(np.array([0.5, 0.4, 0.5, 0.1, 0.2]), owners).tolist() == [1.0, 0.5, 0.0]


def test_made_up_judgements_can_come_from_captions_that_the_metric_does_not_read() -> None:
    said = ("a dog runs", "a brown dog", "dog on grass", "a red car on the street", "a car drives past")
    candidates = ("a dog runs on grass", "a red car drives past", "two people eat", "the red car on a street")
    items = [Item("1", text, said) for text in candidates] + [Item("2", "a bird", ("a bird", "birds", "a", "b", "c"))]
    left, levels = held_out(items, 2)
    assert [item.references for item in left] == [item.references[:3] for item in items]
    assert levels[[1, 3]].min() > levels[[0, 2]].max()
    with pytest.raises(DataError, match="5 captions, of which 5"):
        held_out(items, 5)


def test_own_captions_are_compared_with_foreign_ones_of_all_images() -> None:
    rng = np.random.default_rng(1)
    owners = np.repeat(np.arange(0.0, 60, 6), 6)
    scores = rng.integers(0, 9, 60).astype(float)
    own = owners == np.arange(60)
    pairs = [float(a > b) + float(a == b) / 2 for a in scores[own] for b in scores[~own]]
    assert above_all(scores, owners) == pytest.approx(np.mean(pairs))

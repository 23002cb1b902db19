from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import torch

from capbench.metrics.faier.graphs import CaptionCode
from capbench.metrics.faier.training import ReferenceDraw, ReferenceOptions, collate_references
from capbench.training.captions import Pairs, epoch_order

# Two images; the second one's captions 5 and 6 read the same.
PAIRS = Pairs(("a", "b"), tuple("0123456789"), np.array([0, 0, 0, 0, 0, 1, 1, 1, 1, 1]), Path())
CODES = [CaptionCode((1, 10 + (5 if i == 6 else i), 2)) for i in range(10)]


def test_references_are_other_captions_of_the_image_that_read_otherwise() -> None:
    draw = ReferenceDraw(PAIRS, CODES, ReferenceOptions(draw="all", most=4))
    rng = np.random.default_rng(1)
    for _ in range(20):
        assert sorted(draw.of(2, rng)) == [0, 1, 3, 4]
        assert sorted(draw.of(5, rng)) == [7, 8, 9]
        assert sorted(draw.of(6, rng)) == [7, 8, 9]


def test_none_to_four_references_come_equally_often_and_in_any_order() -> None:
    draw = ReferenceDraw(PAIRS, CODES, ReferenceOptions())
    rng = np.random.default_rng(1)
    drawn = [draw.of(0, rng) for _ in range(5000)]
    numbers = Counter(len(references) for references in drawn)
    assert set(numbers) == {0, 1, 2, 3, 4}
    assert all(abs(count - 1000) < 130 for count in numbers.values())
    firsts = Counter(references[0] for references in drawn if references)
    assert set(firsts) == {1, 2, 3, 4}
    assert all(abs(count - 1000) < 130 for count in firsts.values())


def test_an_image_without_references_has_the_empty_one_and_padding_is_not_counted() -> None:
    empty = CaptionCode((1, 3, 2))
    made = collate_references([[CODES[0], CODES[1]], [], [CODES[0]]], empty)
    assert made.counts.tolist() == [2, 1, 1]
    ids = made.captions.ids[made.places]
    assert ids[0, :, 1].tolist() == [10, 11]
    assert ids[1, 0].tolist() == [1, 3, 2]
    assert ids[2, 0, 1] == 10
    assert len(made.captions.ids) == 3  # each distinct caption once
    assert torch.equal(made.captions.lengths, torch.tensor([3, 3, 3]))


def test_rounds_put_an_image_into_a_batch_once() -> None:
    image_of = np.repeat(np.arange(40), 5)
    pairs = Pairs(tuple(map(str, range(40))), ("x",) * 200, image_of, Path())
    order = epoch_order(pairs, 16, "rounds", 1, 0)
    assert sorted(np.concatenate(order).tolist()) == list(range(200))
    for batch in order:
        assert len(set(image_of[batch].tolist())) == len(batch)

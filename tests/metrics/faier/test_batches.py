from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch

from capbench.metrics.faier.network import CaptionCode, FaierOptions
from capbench.metrics.faier.training import GraphReader, ReferenceOptions, collate_references, draw_references
from capbench.text.spice import parser, scene_graph
from capbench.text.vocabulary import Vocabulary
from capbench.training.trainer import Watcher

# Of two images; the second one's captions 5 and 6 read the same.
CODES = [CaptionCode((1, 10 + (5 if i == 6 else i), 2)) for i in range(10)]


def test_references_are_other_captions_of_the_image_that_read_otherwise() -> None:
    rng, options = np.random.default_rng(1), ReferenceOptions(draw="all", most=4)
    for _ in range(20):
        assert sorted(draw_references(CODES[2], CODES[:5], options, rng)) == [CODES[i] for i in (0, 1, 3, 4)]
        for same in (5, 6):
            assert sorted(draw_references(CODES[same], CODES[5:], options, rng)) == CODES[7:]


def test_none_to_four_references_come_equally_often_and_in_any_order() -> None:
    rng = np.random.default_rng(1)
    drawn = [draw_references(CODES[0], CODES[:5], ReferenceOptions(), rng) for _ in range(5000)]
    numbers = Counter(len(references) for references in drawn)
    assert set(numbers) == {0, 1, 2, 3, 4}
    assert all(abs(count - 1000) < 130 for count in numbers.values())
    firsts = Counter(references[0] for references in drawn if references)
    assert set(firsts) == set(CODES[1:5])
    assert all(abs(count - 1000) < 130 for count in firsts.values())


def test_an_image_without_references_has_the_empty_one_and_padding_is_not_counted() -> None:
    empty = CaptionCode((1, 3, 2))
    made = collate_references([[CODES[0], CODES[1]], [], [CODES[0]]], empty)
    assert made.counts.tolist() == [2, 1, 1]
    ids = made.captions.words[0][made.places]
    assert ids[0, :, 1].tolist() == [10, 11]
    assert ids[1, 0].tolist() == [1, 3, 2]
    assert ids[2, 0, 1] == 10
    assert len(made.captions.words[0]) == 3  # each distinct caption once
    assert torch.equal(made.captions.words[1], torch.tensor([3, 3, 3]))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    texts: list[str] = []

    def answer(captions: Sequence[str]) -> list[str]:
        texts.extend(captions)
        return ['[["dog"], ["dog", "grass", "run on"]]' for _ in captions]

    monkeypatch.setattr(parser, "parse_tuples", answer)
    scene_graph.forget()
    yield texts
    scene_graph.forget()


def test_captions_are_parsed_once_and_read_with_their_triplets(asked: list[str]) -> None:
    reading = GraphReader(FaierOptions(vocabulary_size=4), None, Watcher())
    texts = reading.texts(["A dog .", "a dog", "dogs running"])
    assert texts == ["dog run on grass"] * 3
    assert asked == ["a dog", "dogs running"]
    vocabulary = Vocabulary.build(["dogs running", *texts], 1)
    (code,) = reading.encode(["dogs running"], vocabulary)
    assert code.triplets == (tuple(vocabulary.number(word) for word in ("dog", "run", "on", "grass")),)
    assert reading.more is not None
    scene_graph.forget()  # as in the next process
    assert GraphReader(FaierOptions(vocabulary_size=4), None, Watcher()).texts(["a dog"]) == texts[:1]
    assert len(asked) == 2

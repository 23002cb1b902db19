from __future__ import annotations

from collections.abc import Sequence

import pytest

from capbench.core.errors import ToolError
from capbench.metrics.faier.graphs import FaierOptions
from capbench.metrics.faier.training import GraphReading, parse_captions
from capbench.text.spice import parser, scene_graph
from capbench.text.vocabulary import Vocabulary
from tests.errors import raises


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Captions that are passed to the parser; every parse is a dog on grass."""
    texts: list[str] = []

    def answer(captions: Sequence[str]) -> list[str]:
        texts.extend(captions)
        return ['[["dog"], ["dog", "grass", "run on"]]' for _ in captions]

    monkeypatch.setattr(parser, "parse_tuples", answer)
    scene_graph.forget()
    return texts


def test_captions_are_parsed_once_and_the_time_is_said_before(asked: list[str]) -> None:
    messages: list[str] = []
    done: list[tuple[int, int]] = []
    assert parse_captions(["A dog .", "a dog", "a cat"], messages.append, lambda *step: done.append(step)) == 2
    assert asked == ["a dog", "a cat"]
    assert done == [(2, 2)]
    assert len(messages) == 1
    assert messages[0].startswith("2 of 2 captions")
    assert "minute" in messages[0]
    scene_graph.forget()  # as in the next process
    assert parse_captions(["a dog", "a cat"], messages.append) == 0
    assert len(messages) == 1


def test_an_interrupted_parsing_keeps_what_it_has(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scene_graph, "_BATCH", 1)

    def stop(_done: int, _all: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        parse_captions(["a dog", "a cat"], progress=stop)
    scene_graph.forget()
    assert parse_captions(["a dog", "a cat"]) == 1
    assert asked == ["a dog", "a cat"]


def test_captions_are_read_with_their_triplets(asked: list[str]) -> None:
    reading = GraphReading(FaierOptions(vocabulary_size=4))
    texts = list(reading.more_words(["dogs running"]))
    assert texts == ["dog run on grass"]
    vocabulary = Vocabulary.build(["dogs running", *texts], 1)
    code = reading.encode("dogs running", vocabulary)
    assert code.triplets == (tuple(vocabulary.number(word) for word in ("dog", "run", "on", "grass")),)
    assert reading.place is not None


def test_without_a_relation_level_nothing_is_parsed(asked: list[str]) -> None:
    reading = GraphReading(FaierOptions(vocabulary_size=4, variant="faier-object"))
    assert list(reading.more_words(["dogs running"])) == []
    assert reading.encode("dogs running", Vocabulary.build(["dogs running"], 1)).triplets == ()
    assert reading.place is None
    assert not asked


def test_without_a_parser_it_is_said() -> None:
    scene_graph.forget()
    with raises(ToolError, "not-set-up"):
        GraphReading(FaierOptions(vocabulary_size=4)).more_words(["dogs that nobody parsed"])

"""Word Mover's similarity as a metric."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from capbench.core.errors import MetricError, UsageError
from capbench.core.records import Item
from capbench.metrics import wmd
from capbench.metrics.wmd import Wmd, word_movers_distance
from capbench.text import ptb
from capbench.text.vocabulary import ENGLISH
from capbench.text.word_vectors import write_word2vec
from tests.errors import raises

WORDS = ["dog", "cat", "runs", "sits", "grass", "red", "ball", "the", "n't", "50", "%"]


def _nothing(_done: int) -> None:
    pass


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    matrix = np.random.default_rng(1).normal(size=(len(WORDS), 16)).astype(np.float32)
    write_word2vec(tmp_path / "v.bin", WORDS, matrix)
    return tmp_path / "v.bin"


ITEMS = [
    Item("1", "A dog runs on the grass.", ("The dog sits on grass!", "A red ball, and a cat.")),
    Item("1", "A cat sits.", ("The dog sits on grass!", "A red ball, and a cat.")),
    Item("2", "A dog runs on the grass.", ("On the grass: a dog runs",)),
    Item("2", "zebra", ("The dog sits on grass!",)),
    Item("2", "dog", ("zebra", "it is")),
    Item("2", "Dogs don't cost 50%", ("The dog sits 50% on grass!",)),
]


@pytest.mark.java
def test_equals_gensim_over_nltk_tokens_and_takes_the_nearest_reference(vectors: Path) -> None:
    keyedvectors = pytest.importorskip("gensim.models.keyedvectors")
    pytest.importorskip("ot")
    from nltk.tokenize import word_tokenize

    kv = keyedvectors.KeyedVectors.load_word2vec_format(str(vectors), binary=True)

    def bag(text: str) -> list[str]:
        words = word_tokenize(ptb.tokenize([text])[0], preserve_line=True)
        return [word for word in words if word not in ENGLISH]

    metric = Wmd(vectors=str(vectors))
    statistics = metric.statistics(ITEMS, _nothing)
    assert np.isfinite(statistics).all()
    scores = metric.scores(statistics)
    for row, item in enumerate(ITEMS):
        nearest = min(kv.wmdistance(bag(item.candidate), bag(reference)) for reference in item.references)
        assert scores["wmd"][row] == pytest.approx(math.exp(-nearest), abs=1e-9)
        if math.isfinite(nearest):
            assert scores["wmd-distance"][row] == pytest.approx(nearest, abs=1e-9)
    assert scores["wmd"].tolist()[2:5] == [1.0, 0.0, 0.0]
    assert scores["wmd-distance"].tolist()[2:5] == [0.0, 2.0, 2.0]
    assert metric.corpus_scores(statistics)["wmd"] == pytest.approx(scores["wmd"].mean())


@pytest.mark.java
def test_a_pair_of_bags_is_solved_once(vectors: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    solved: list[object] = []
    solve = word_movers_distance

    def counted(first, second, found):  # type: ignore[no-untyped-def]
        solved.append((first, second))
        return solve(first, second, found)

    monkeypatch.setattr(wmd, "word_movers_distance", counted)
    same_bags = [
        Item(str(i), text, ("The cat sits.", "cat is SITTING? sits"))
        for i, text in enumerate(["dog runs", "runs, dog!", "a dog that runs", "zebra dog runs", "dog dog runs"])
    ]
    same_bags.append(Item("9", "a cat sits", ("dog runs",)))
    Wmd(vectors=str(vectors)).statistics(same_bags, _nothing)
    assert len(solved) == 2  # {dog, runs} and {dog, dog, runs} against {cat, sits}


@pytest.mark.java
def test_options_change_bags_and_signature(vectors: Path) -> None:
    items = [Item("1", "the dog", ("the cat",)), Item("1", "dog 50%", ("cat",))]
    signatures, values = set(), set()
    for options in ({}, {"keep_stop_words": True}, {"tokens": "ptb"}, {"unit": False}):
        metric = Wmd(vectors=str(vectors), **options)
        signatures.add(metric.signature())
        values.add(round(float(metric.scores(metric.statistics(items, _nothing))["wmd"][0]), 9))
    assert len(signatures) == 4
    assert len(values) == 3  # these captions are split alike by both kinds of tokens


def test_the_signature_names_the_vectors_by_their_hash(vectors: Path) -> None:
    import hashlib

    signature = Wmd(vectors=str(vectors), tokens="ptb").signature()
    assert "|dim:16|" in signature
    assert f"|vectors:{hashlib.sha256(vectors.read_bytes()).hexdigest()[:16]}|" in signature
    assert signature.endswith("|stop:nltk-179|unit:true")


@pytest.mark.java
def test_items_that_cannot_be_scored(vectors: Path) -> None:
    metric = Wmd(vectors=str(vectors))
    with raises(MetricError, "missing-references", value="1"):
        metric.statistics([Item("1", "dog", (), candidate_id="c7")], _nothing)
    with raises(MetricError, "missing-value", path=vectors, value=2):
        metric.statistics([Item("1", "zebra", ("giraffe",))], _nothing)
    # Captions of stop words only are valid.
    assert metric.scores(metric.statistics([Item("1", "it", ("he",))], _nothing))["wmd"].tolist() == [0.0]


def test_invalid_options(vectors: Path) -> None:
    with raises(MetricError, "missing-option", value="wmd") as caught:
        Wmd()
    assert "--option wmd.vectors=FILE" in caught.value.message
    with pytest.raises(UsageError, match=r"wmd\.tokens=words"):
        Wmd(vectors=str(vectors), tokens="words")
    with pytest.raises(UsageError, match=r"wmd\.unit=1"):
        Wmd(vectors=str(vectors), unit=1)


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.real_data
def test_flickr8k_with_vectors_trained_on_its_own_captions_agrees_with_people(
    real_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gensim")
    from scipy.stats import kendalltau

    from capbench.datasets.captions import load_captions
    from capbench.datasets.root import DataRoot
    from capbench.training.word_vectors import WordVectorOptions, train_word_vectors

    captions = load_captions("flickr8k", DataRoot(real_data, False, "test"))
    options = WordVectorOptions(dimension=100, epochs=5)
    words, matrix = train_word_vectors([text for texts in captions.values() for text in texts], options)
    write_word2vec(tmp_path / "v.bin", words, matrix)
    items, ratings = [], []
    for line in (real_data / "flickr8k" / "ExpertAnnotations.txt").read_text().splitlines():
        image, caption, *given = line.split()
        other, _, number = caption.rpartition("#")
        stem, other = image.removesuffix(".jpg"), other.removesuffix(".jpg")
        if stem != other:
            items.append(Item(stem, captions[other][int(number)], captions[stem]))
            ratings.append(sum(map(int, given)) / 3)
    metric = Wmd(vectors=str(tmp_path / "v.bin"))
    scores = metric.scores(metric.statistics(items, _nothing))["wmd"]
    assert len(items) == 5664
    assert np.isfinite(scores).all()
    assert kendalltau(scores, ratings).statistic > 0.4

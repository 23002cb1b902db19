"""METEOR's counts and scores; tests/metrics/test_reference_parity.py compares them with its jar."""

from __future__ import annotations

import gzip
import itertools
import random
from pathlib import Path

import numpy as np
import pytest

from capbench.core.cache import derived_table
from capbench.core.errors import MetricError
from capbench.text.meteor import aligner, paraphrases, scores
from capbench.text.meteor.aligner import Lexicon
from capbench.text.meteor.scores import meteor_corpus, meteor_score, meteor_scores, meteor_statistics
from capbench.text.meteor.stemmer import words
from tests.errors import raises
from tests.text.meteor.pairs import WORDS


def test_no_candidates_and_nothing_matched() -> None:
    assert meteor_corpus(meteor_statistics([], [])) == 0.0
    counts = meteor_statistics(["dog", ""], [["house"], [""]])
    assert meteor_scores(counts).tolist() == [0.0, 0.0]
    # The first of equally good references is taken, and repeats change nothing.
    once = meteor_statistics(["a dog runs"], [["a dog sits", "the dog runs now"]])
    again = meteor_statistics(["a dog runs"] * 3, [["a dog sits", "the dog runs now", "a dog sits"]] * 3)
    assert again.tolist() == once.tolist() * 3


def test_the_bound_is_never_below_the_score() -> None:
    rng = random.Random(8)
    lexicon = Lexicon([words(" ".join(rng.choices(WORDS, k=rng.randint(1, 9)))) for _ in range(60)])
    for candidate, reference in itertools.product(lexicon.texts().values(), repeat=2):
        found = aligner.find_matches(candidate, reference, lexicon)
        score = meteor_score(aligner.align(found, candidate, reference))
        assert score <= scores.match_bound(aligner.covered_words(found), candidate, reference)


def test_input_that_cannot_be_scored_is_an_error() -> None:
    with raises(MetricError, "unreadable", value="a \ud800 dog"):
        meteor_statistics(["a \ud800 dog"], [["a dog"]])
    fits = " ".join(f"w{i}" for i in range(scores.LONGEST))
    assert meteor_scores(meteor_statistics([fits], [["w1 w2"]]))[0] > 0
    with raises(MetricError, "too-large", value=1_001):
        meteor_statistics(["a dog"], [["a cat", f"{fits} more"]])


@pytest.mark.parametrize("block", [5, 1 << 23])
def test_a_small_table_is_built_and_read_back(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paraphrases, "_BLOCK", block)  # phrases in one block or in several
    lines = ["0.5", "a dog", "one dog", "0.4", "a dog", "dog", "0.3", "dog", "a dog", "0.2", "one dog", "one cat"]
    path = tmp_path / "paraphrase-en.gz"
    path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))
    table = paraphrases._as_table(derived_table("small", "paraphrases", 1, lambda: paraphrases._build(path)))

    def state(phrase: str) -> int:
        at = np.zeros(1, dtype=np.int64)
        for word in phrase.split():
            at = table.step(at, np.array([table.words.get(word, -1)], dtype=np.int64))
        return int(at[0])

    assert table.longest == 2
    assert state("cat") == state("a cat") == state("dog a") == 0
    index, targets, orders = table.paraphrases(np.array([state("a dog"), state("one dog"), state("dog")]))
    assert index.tolist() == [0, 0, 1, 2]
    assert targets.tolist() == [state("one dog"), state("dog"), state("one cat"), state("a dog")]
    assert orders.tolist() == [0, 1, 0, 0]

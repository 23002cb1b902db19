"""METEOR without Java compared with METEOR's jar."""

from __future__ import annotations

import gzip
import itertools
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from capbench.core.cache import derived_table
from capbench.core.errors import MetricError
from capbench.text.java import meteor_jar, run_lines
from capbench.text.meteor import aligner, paraphrases, scores
from capbench.text.meteor.aligner import Lexicon
from capbench.text.meteor.scores import meteor_corpus, meteor_score, meteor_scores, meteor_statistics
from capbench.text.meteor.stemmer import words
from tests.errors import raises

Pairs = list[tuple[str, list[str]]]


def _jar(requests: list[list[str]]) -> list[str]:
    jar = meteor_jar()
    arguments = ["-jar", jar.name, "-", "-", "-stdio", "-l", "en", "-norm"]
    return list(run_lines(arguments, map(" ||| ".join, requests), name="METEOR", folder=jar.parent))


def _assert_equals_jar(pairs: Pairs) -> None:
    """Compare counts, scores and the score of the corpus, requested in the same way as by pycocoevalcap."""
    found = meteor_statistics([text for text, _ in pairs], [group for _, group in pairs])
    counts = ["EVAL", *(" ".join(map(str, row)) for row in found.tolist())]
    rows = _jar([*(["SCORE", *group, text] for text, group in pairs), counts])
    *values, corpus = map(float, rows[len(pairs) :])
    for pair, expected, got in zip(pairs, rows[: len(pairs)], found.tolist(), strict=True):
        assert got == [float(number) for number in expected.split()], ascii(pair)
    np.testing.assert_allclose(meteor_scores(found), values, rtol=0, atol=1e-12)
    assert meteor_corpus(found) == pytest.approx(corpus, abs=1e-12)


CAPTIONS: Pairs = [
    ("a dog runs on the grass", ["a dog running on the grass", "a cat sits"]),
    ("two kids play with a red ball", ["a couple of children are playing with a ball that is red", "kids play"]),
    ("the man sits on a sofa", ["a man sitting on a couch", "the woman stands"]),
    ("a group of people", ["a number of persons", "people in a group"]),
    ("a a a a a a a", ["a a a", "the a the a the a"]),
    ("the dog the cat the dog", ["the cat the dog the cat the dog the"]),
    ("", ["a dog"]),
    ("a dog", [""]),
    ("", [""]),
    ("dog", ["dog"]),
    ("dog", ["cat"]),
    ("let", ["n't"]),
    ("a man 's hat is n't red", ["the man 's red hat", "do n't"]),
    ("in front of the house", ["before the house", "facing the home", "outside of the building"]),
    ("a woman is taking a photograph of herself", ["a woman takes a picture of herself with her cell phone"]),
    ("10 of 3,000 people , 5.5 % - 2-3", ["ten of 3000 people 5.5 percent 2 3"]),
]


_COMMON = (
    "a the the a of on in with man men woman people person kid kids child children dog dogs puppy sofa couch run runs "
    "running jumped jumping photo picture photograph take takes taking bicycle bike street road big large small little "
    "next to near beside front group couple number some several two three sitting seated standing is are 's n't water "
    "sea ocean boat ship car automobile green red field grass grassy air sky ball playing plays game"
)
_WORDS = _COMMON.split()


def _common_pairs(rng: random.Random) -> Pairs:
    def text(lengths: Sequence[int]) -> str:
        return " ".join(rng.choice(_WORDS) for _ in range(rng.choice(lengths)))

    short = [1, 3, 6, 9, 14, 25]
    pairs = [(text(short), [text(short) for _ in range(rng.randint(1, 5))]) for _ in range(800)]
    long = [text([400]) for _ in range(4)]
    return [*pairs, (long[0], [long[1]]), (long[2], [long[2]]), (long[3], [long[0], "a dog"])]


def _odd_pairs(rng: random.Random) -> Pairs:
    odd = "éÉñßİıΣσςЖǅﬁ😀𝒳中文字ア‘’“”–—…·•°½²٣\u00a0\u2003\u200b\u202f\u3000ŠžꙀᴀԧ¿€™\u0301\x01\x7f\x85\xad\ufeff"
    punctuation = ".,;:!?'\"`-()[]{}<>/\\@#$%^&*_+=~"
    short = ["dr.", "e.g.", "u.s.a.", "no. 5", "vs.", "...", "..", "--", "''", "``", "-lrb-", "DOTMULTI"]

    def token() -> str:
        kind = rng.random()
        if kind < 0.5:
            return rng.choice(_WORDS)
        if kind < 0.6:
            return rng.choice(short)
        if kind < 0.7:
            return rng.choice(_WORDS) + rng.choice("'s n't - -- ... . % , '".split()) + rng.choice("ab ")  # noqa: SIM905
        letters = rng.choice([odd + "abe", punctuation, "0123456789.,", odd + punctuation + "abc12 "])
        return "".join(rng.choice(letters) for _ in range(rng.randint(1, 6)))

    def text() -> str:
        return rng.choice([" ", "  "]).join(token() for _ in range(rng.choice([0, 1, 2, 5, 10, 30])))

    pairs: Pairs = []
    for _ in range(500):
        first = text()
        pairs.append((first, [first.lower() if rng.random() < 0.2 else text() for _ in range(rng.randint(1, 3))]))
        pairs.append((first, [" ".join(rng.sample(first.split(" "), len(first.split(" "))))]))
    return pairs


@pytest.mark.java
def test_invented_and_random_texts_equal_the_jar() -> None:
    _assert_equals_jar([*CAPTIONS, *_common_pairs(random.Random(0)), *_odd_pairs(random.Random(5))])
    counts = meteor_statistics([text for text, _ in CAPTIONS], [group for _, group in CAPTIONS])
    assert (counts[:, 4:20:4].sum(axis=0) > 0).all()  # every stage took part


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
    lexicon = Lexicon([words(" ".join(rng.choices(_WORDS, k=rng.randint(1, 9)))) for _ in range(60)])
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


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.real_data
@pytest.mark.parametrize("name", ["flickr8k-expert", "composite", "pascal-50s", "flickr8k-crowdflower"])
def test_judged_items_equal_the_jar(real_data: Path, name: str) -> None:
    from capbench.core import plugins
    from capbench.datasets.root import DataRoot
    from capbench.text import ptb

    dataset = plugins.load("capbench.datasets", name)
    judgements = dataset(DataRoot(real_data, False, "test")).load(dataset.protocol().items)[0]
    items = judgements.items
    if name == "flickr8k-crowdflower":
        items = tuple(random.Random(0).sample(items, 5_000))
    texts = list(dict.fromkeys(text for item in items for text in (item.candidate, *item.references)))
    tokens = dict(zip(texts, ptb.tokenize(texts), strict=True))
    _assert_equals_jar([(tokens[item.candidate], [tokens[text] for text in item.references]) for item in items])

"""METEOR without Java compared with METEOR's jar."""

from __future__ import annotations

import gzip
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from capbench.core.cache import derived_table
from capbench.core.errors import MetricError, ToolError
from capbench.core.records import FloatArray
from capbench.text import meteor
from capbench.text.java import LineProcess, meteor_jar
from capbench.text.meteor import aligner, paraphrases, scores
from capbench.text.meteor import scores as module
from capbench.text.meteor import scores as statistics
from capbench.text.meteor.aligner import Lexicon, Text
from capbench.text.meteor.stemmer import words
from tests.errors import raises

Pairs = list[tuple[str, list[str]]]


class Jar:
    """The jar's counts and scores, requested in the same way as by pycocoevalcap."""

    def __init__(self) -> None:
        jar = meteor_jar()
        arguments = ["-jar", jar.path.name, "-", "-", "-stdio", "-l", "en", "-norm"]
        self._process = LineProcess(arguments, name="METEOR", folder=jar.path.parent)

    def __call__(self, pairs: Pairs) -> tuple[FloatArray, FloatArray, float]:
        rows, values = [], []
        for start in range(0, len(pairs), 200):
            part = [" ||| ".join(["SCORE", *group, text]) for text, group in pairs[start : start + 200]]
            rows += self._process.ask(part)
        evaluated = self._process.ask([" ||| ".join(["EVAL", *rows])], answers=len(rows) + 1)
        values = [float(value) for value in evaluated]
        return np.array([[float(x) for x in row.split()] for row in rows]), np.array(values[:-1]), values[-1]


@pytest.fixture(scope="module")
def jar() -> Jar:
    return Jar()


def _native(pairs: Pairs) -> FloatArray:
    return meteor.meteor_statistics([text for text, _ in pairs], [group for _, group in pairs])


def _assert_equal(jar: Jar, pairs: Pairs) -> None:
    counts, values, corpus = jar(pairs)
    found = _native(pairs)
    for row, (expected, got) in enumerate(zip(counts.tolist(), found.tolist(), strict=True)):
        assert got == expected, ascii(pairs[row])
    np.testing.assert_allclose(meteor.meteor_scores(found), values, rtol=0, atol=1e-12)
    assert meteor.meteor_corpus(found) == pytest.approx(corpus, abs=1e-12)


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


@pytest.mark.java
def test_captions_of_all_stages_equal_the_jar(jar: Jar) -> None:
    _assert_equal(jar, CAPTIONS)
    counts = _native(CAPTIONS)
    assert (counts[:, 4:20:4].sum(axis=0) > 0).all()  # every stage took part


_COMMON = (
    "a the the a of on in with man men woman people person kid kids child children dog dogs puppy sofa couch run runs "
    "running jumped jumping photo picture photograph take takes taking bicycle bike street road big large small little "
    "next to near beside front group couple number some several two three sitting seated standing is are 's n't water "
    "sea ocean boat ship car automobile green red field grass grassy air sky ball playing plays game"
)
_WORDS = _COMMON.split()


@pytest.mark.java
@pytest.mark.parametrize("seed", [0, 1])
def test_random_sentences_of_common_words_equal_the_jar(jar: Jar, seed: int) -> None:
    rng = random.Random(seed)

    def text() -> str:
        return " ".join(rng.choice(_WORDS) for _ in range(rng.choice([1, 3, 6, 9, 14, 25])))

    _assert_equal(jar, [(text(), [text() for _ in range(rng.randint(1, 5))]) for _ in range(400)])


@pytest.mark.java
def test_adversarial_text_equals_the_jar(jar: Jar) -> None:
    rng = random.Random(5)
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
            return (
                rng.choice(_WORDS) + rng.choice(["'s", "n't", "-", "--", "...", ".", "%", ",", "'"]) + rng.choice("ab ")
            )
        letters = rng.choice([odd + "abe", punctuation, "0123456789.,", odd + punctuation + "abc12 "])
        return "".join(rng.choice(letters) for _ in range(rng.randint(1, 6)))

    def text() -> str:
        return rng.choice([" ", "  "]).join(token() for _ in range(rng.choice([0, 1, 2, 5, 10, 30])))

    pairs: Pairs = []
    for _ in range(500):
        first = text()
        pairs.append((first, [first.lower() if rng.random() < 0.2 else text() for _ in range(rng.randint(1, 3))]))
        pairs.append((first, [" ".join(rng.sample(first.split(" "), len(first.split(" "))))]))
    _assert_equal(jar, pairs)


@pytest.mark.java
def test_very_long_texts_equal_the_jar(jar: Jar) -> None:
    rng = random.Random(6)
    texts = [" ".join(rng.choice(_WORDS) for _ in range(400)) for _ in range(4)]
    _assert_equal(jar, [(texts[0], [texts[1]]), (texts[2], [texts[2]]), (texts[3], [texts[0], "a dog"])])


def test_no_candidates_and_nothing_matched() -> None:
    assert meteor.meteor_statistics([], []).shape == (0, meteor.N_COUNTS)
    assert meteor.meteor_corpus(np.zeros((0, 23))) == 0.0
    counts = meteor.meteor_statistics(["dog", ""], [["house"], [""]])
    assert meteor.meteor_scores(counts).tolist() == [0.0, 0.0]


def test_the_first_of_equally_good_references_is_taken_and_repeats_change_nothing() -> None:
    once = meteor.meteor_statistics(["a dog runs"], [["a dog sits", "the dog runs now"]])
    again = meteor.meteor_statistics(["a dog runs"] * 3, [["a dog sits", "the dog runs now", "a dog sits"]] * 3)
    assert again.tolist() == once.tolist() * 3


def test_each_distinct_pair_is_aligned_once_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[object, ...]] = []
    align = aligner.align

    def counted(found: aligner.Matches, candidate: Text, reference: Text) -> list[int]:
        calls.append((candidate, reference))
        return align(found, candidate, reference)

    monkeypatch.setattr(scores, "align", counted)
    meteor.meteor_statistics(["a dog", "A dog", "a dog"], [["a cat", "a  cat"], ["a cat"], ["a dog", "a cat"]])
    assert len(calls) == len(set(calls)) == 2


def test_references_that_cannot_be_better_are_not_aligned(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    align = aligner.align
    monkeypatch.setattr(scores, "align", lambda *given: calls.append(1) or align(*given))  # type: ignore[func-returns-value]
    groups = [["a cat sits on a mat", "the dog runs", "a dog runs here", "no word in common"]]
    first = meteor.meteor_statistics(["a dog runs"], [[*groups[0], "a dog runs"]])
    assert meteor.meteor_scores(first).tolist() == [1.0]
    assert len(calls) == 1


def test_the_bound_is_never_below_the_score() -> None:
    rng = random.Random(8)
    texts = list(
        dict.fromkeys(words(" ".join(rng.choice(_WORDS) for _ in range(rng.randint(1, 9)))) for _ in range(60))
    )
    lexicon = Lexicon(texts)
    units = lexicon.texts()
    for first in texts:
        for second in texts:
            candidate, reference = units[first], units[second]
            found = aligner.find_matches(candidate, reference, lexicon)
            score = scores.meteor_score(aligner.align(found, candidate, reference))
            assert score <= scores.match_bound(aligner.covered_words(found), candidate, reference)


def test_input_that_cannot_be_scored_is_an_error() -> None:
    with raises(MetricError, "mismatch"):
        meteor.meteor_statistics(["a"], [["a"], ["a"]])
    with raises(MetricError, "missing-references", row="candidate 2"):
        meteor.meteor_statistics(["a", "a"], [["a"], []])
    with raises(MetricError, "unreadable", value="a \ud800 dog"):
        meteor.meteor_statistics(["a \ud800 dog"], [["a dog"]])


def test_workers_give_the_same_and_a_killed_one_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(7)
    texts = [" ".join(rng.choice(_WORDS) for _ in range(8)) for _ in range(60)]
    groups: list[Sequence[str]] = [[rng.choice(texts), rng.choice(texts)] for _ in texts]
    alone = meteor.meteor_statistics(texts, groups, workers=1)
    monkeypatch.setattr(statistics, "_CHUNK_OF_A_PROCESS", 7)
    done: list[int] = []
    spread = meteor.meteor_statistics(texts, groups, workers=2, progress=done.append)
    np.testing.assert_array_equal(spread, alone)
    assert sum(done) == 60

    ask = module._ask
    asked: list[int] = []

    def ask_a_dying_child(child, task):  # type: ignore[no-untyped-def]
        asked.append(1)
        if len(asked) == 2:
            child.kill()
        return ask(child, task)

    monkeypatch.setattr(module, "_ask", ask_a_dying_child)
    np.testing.assert_array_equal(meteor.meteor_statistics(texts, groups, workers=2), alone)
    assert len(asked) >= 2


def test_an_error_in_a_worker_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "_CHUNK_OF_A_PROCESS", 1)
    with raises(MetricError, "unreadable", value="a \ud800 dog"):
        meteor.meteor_statistics(["a dog", "a \ud800 dog", "a cat"], [["a dog"]] * 3, workers=2)


@pytest.mark.parametrize("content", [b"", b"\x1f\x8b\x08\x00cut off", b"no gzip"])
def test_a_damaged_paraphrase_file_is_an_error(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "paraphrase-en.gz"
    path.write_bytes(content)
    with raises(ToolError, "damaged", path=path):
        paraphrases._build(path)


@pytest.mark.parametrize(
    "lines", [["0.5", "a dog"], ["0.5", "a dog", "one dog", "0.4"], ["0.5", "a dog", " "], ["0.5", "dog " * 300, "dog"]]
)
def test_a_paraphrase_file_of_other_lines_is_an_error(lines: list[str], tmp_path: Path) -> None:
    path = _paraphrase_file(tmp_path, lines)
    with raises(ToolError, "damaged", path=path):
        paraphrases._build(path)


def _paraphrase_file(folder: Path, lines: list[str]) -> Path:
    path = folder / "paraphrase-en.gz"
    with gzip.open(path, "wt", encoding="utf-8") as stream:
        stream.write("".join(f"{line}\n" for line in lines))
    return path


PAIRS_OF_PHRASES = [
    "0.5",
    "a dog",
    "one dog",
    "0.4",
    "a dog",
    "dog",
    "0.3",
    "dog",
    "a dog",
    "0.2",
    "one dog",
    "one cat",
]


def test_phrases_in_several_blocks_make_the_same_trie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _paraphrase_file(tmp_path, PAIRS_OF_PHRASES)
    whole = _states(paraphrases._as_table(paraphrases._build(path)))
    monkeypatch.setattr(paraphrases, "_BLOCK", 5)
    assert _states(paraphrases._as_table(paraphrases._build(path))) == whole


def _states(table: paraphrases.ParaphraseTable) -> dict[str, list[str]]:
    """Phrase → its paraphrases in order, for all phrases of a table."""
    words = list(table.words)
    phrases = {0: ""}
    for number, edge in enumerate(table.edges.tolist(), start=1):
        phrases[number] = f"{phrases[edge >> 20]} {words[edge & 0xFFFFF]}".strip()
    bounds = table.offsets.tolist()
    return {
        phrase: [phrases[target] for target in table.targets[bounds[state] : bounds[state + 1]].tolist()]
        for state, phrase in sorted(phrases.items(), key=lambda pair: pair[1])
    }


def test_a_small_table_is_built_and_read_back(tmp_path: Path) -> None:
    path = _paraphrase_file(tmp_path, PAIRS_OF_PHRASES)
    arrays = derived_table("small", "paraphrases", 1, lambda: paraphrases._build(path))
    table = paraphrases._as_table(arrays)
    assert _states(table) == {
        "": [],
        "a": [],
        "a dog": ["one dog", "dog"],
        "dog": ["a dog"],
        "one": [],
        "one cat": [],
        "one dog": ["one cat"],
    }

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
def test_judged_items_equal_the_jar(jar: Jar, real_data: Path, name: str) -> None:
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
    _assert_equal(jar, [(tokens[item.candidate], [tokens[text] for text in item.references]) for item in items])


def test_a_caption_too_long_to_align_is_an_error() -> None:
    fits = " ".join(f"w{i}" for i in range(scores.LONGEST))
    assert meteor.meteor_scores(meteor.meteor_statistics([fits], [["w1 w2"]]))[0] > 0
    with raises(MetricError, "too-large", value=1_001):
        meteor.meteor_statistics(["a dog"], [["a cat", f"{fits} more"]])

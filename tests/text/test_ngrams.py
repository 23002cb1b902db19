from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capbench.core.records import FloatArray
from capbench.text.ngrams import Corpus, DocumentFrequencies, Ngrams, bleu, bleu_counts, cider_d, rouge_l


def _reference(candidates: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[FloatArray, ...]:
    """BLEU (items, 4), corpus BLEU (4,), ROUGE-L (items,), CIDEr (items,) by pycocoevalcap."""
    from pycocoevalcap.bleu.bleu_scorer import BleuScorer
    from pycocoevalcap.cider.cider_scorer import CiderScorer
    from pycocoevalcap.rouge.rouge import Rouge

    bleu, cider, rouge = BleuScorer(n=4), CiderScorer(n=4), Rouge()
    for candidate, some in zip(candidates, references, strict=True):
        bleu += (candidate, list(some))
        cider += (candidate, list(some))
    corpus, each = bleu.compute_score(option="closest")
    if any(text.split() for some in references for text in some):
        ciders = cider.compute_score()[1]
    else:  # it takes the maximum of no document frequencies
        ciders = np.zeros(len(candidates))
    rouges = [rouge.calc_score([c], list(r)) for c, r in zip(candidates, references, strict=True)]
    return np.array(each).T, np.array(corpus), np.array(rouges), np.array(ciders)


def _check(counts: FloatArray, rouge: FloatArray, cider: FloatArray, expected: tuple[FloatArray, ...]) -> None:
    np.testing.assert_allclose(bleu(counts), expected[0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(bleu(counts.sum(axis=-2)), expected[1], rtol=0, atol=1e-12)
    np.testing.assert_allclose(rouge, expected[2], rtol=0, atol=1e-12)
    np.testing.assert_allclose(cider, expected[3], rtol=4e-15, atol=1e-14)


def _assert_equal(candidates: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    corpus = Corpus(candidates, references)
    _check(bleu_counts(corpus)[0], rouge_l(corpus)[0], cider_d(corpus)[0], _reference(candidates, references))


def _invented(items: int, references: int, seed: int = 0, words: int = 40) -> tuple[list[str], list[list[str]]]:
    """Captions over a small vocabulary, so that much is in common and words repeat."""
    rng = random.Random(seed)
    vocabulary = [f"w{i}" for i in range(words)]
    weights = [1 / (i + 1) for i in range(words)]

    def caption() -> str:
        return " ".join(rng.choices(vocabulary, weights, k=rng.randint(1, 18)))

    sets = [[caption() for _ in range(rng.randint(1, references))] for _ in range(items)]
    candidates = [rng.choice(some) if rng.random() < 0.2 else caption() for some in sets]
    return candidates, sets


@pytest.mark.parametrize(
    ("candidates", "references"),
    [
        pytest.param(["a dog runs on grass"], [["a dog runs on grass"]], id="a single image"),
        pytest.param(["", "a cat"], [["a dog"], ["a cat sits"]], id="empty candidate"),
        pytest.param(["", ""], [[""], ["", ""]], id="nothing at all"),
        pytest.param(["a dog", "a cat"], [["", "a dog"], [""]], id="empty references"),
        pytest.param(["the the the the", "a a b a a b"], [["the cat the"], ["a a b", "a a a a"]], id="repeated words"),
        pytest.param(["ein Mädchen läuft", "狗 在 跑"], [["ein mädchen läuft"], ["狗 在 跑", "🐕 跑"]], id="unicode"),
        pytest.param(["a b", "c d"], [["a"], ["c d e f g h i j k l m n o p q r s t u v w"]], id="unequal lengths"),
        pytest.param(["a b c d", "e f"], [["a b", "a b c d e f"], ["e"]], id="two references as near"),
        pytest.param(["a b c", "a b c"], [["a b c"] * 3, ["a b c", "x"]], id="repeated references"),
        pytest.param(["tel. 555\xa01234", "a b"], [["tel. 555\xa01234", "tel. 555 1234"], ["a b"]], id="hard spaces"),
        pytest.param(["a  b", " a b "], [["a b"], ["a  b", "a b"]], id="double spaces"),
        pytest.param(["w " * 300, "v " * 40], [["w " * 299 + "x"], [("v " * 260).strip()]], id="longer than 255 words"),
        pytest.param(*_invented(40, 50), id="fifty references"),
        pytest.param(*(part * 2 for part in _invented(30, 5, seed=1)), id="items that occur twice"),
    ],
)
def test_equal_to_pycocoevalcap(candidates: list[str], references: list[list[str]]) -> None:
    _assert_equal(candidates, references)


_WORD = st.sampled_from(["a", "b", "c", "dog", "é", "ß", "狗", "🐕", "a\xa0b", "x\u3000", "1,000", "'s"])
_TEXT = st.one_of(st.lists(_WORD, max_size=12).map(" ".join), st.just(""), st.just("a  b"), st.just("a"))


@given(st.lists(st.tuples(_TEXT, st.lists(_TEXT, min_size=1, max_size=6)), min_size=1, max_size=8))
@settings(max_examples=150, deadline=None)
def test_generated_texts_equal_pycocoevalcap(items: list[tuple[str, list[str]]]) -> None:
    _assert_equal([candidate for candidate, _ in items], [references for _, references in items])


@pytest.mark.parametrize("own_order", [False, True])
def test_a_sweep_equals_scoring_anew_with_each_number_of_references(own_order: bool) -> None:
    candidates, references = _invented(25, 9, seed=3)
    candidates, references = [*candidates, "", candidates[3]], [*references, references[4], references[3]]
    rng = random.Random(5)
    orders = [rng.sample(range(len(some)), len(some)) if own_order else range(len(some)) for some in references]
    corpus, steps = Corpus(candidates, references), (1, 2, 3, 5, 8, 10)
    rank = corpus.rank(orders) if own_order else None
    swept = bleu_counts(corpus, steps, rank), rouge_l(corpus, steps, rank), cider_d(corpus, steps, rank)
    for place, k in enumerate(steps):
        chosen = [[some[j] for j in order[:k]] for some, order in zip(references, orders, strict=True)]
        _check(swept[0][place], swept[1][place], swept[2][place], _reference(candidates, chosen))


@given(
    st.lists(
        st.tuples(st.lists(st.lists(st.sampled_from("abcd"), max_size=9), min_size=1, max_size=4), st.integers(1, 3)),
        min_size=1,
        max_size=12,
    )
)
@settings(max_examples=40, deadline=None)
def test_frequencies_are_those_of_counting_documents_one_by_one(drawn: list[tuple[list[list[str]], int]]) -> None:
    by_hand: Counter[tuple[str, ...]] = Counter()
    for texts, number in drawn:
        ngrams = {tuple(t[i : i + n]) for t in texts for n in range(1, 5) for i in range(len(t) - n + 1)}
        by_hand.update(dict.fromkeys(ngrams, number))
    df = DocumentFrequencies.count([[" ".join(text) for text in texts] for texts, _ in drawn], [n for _, n in drawn])
    assert df.documents == sum(number for _, number in drawn)
    for ngram in [*by_hand, ("x",), ("a", "x", "a"), ("a",) * 4, ("d", "c", "b", "a")]:
        found = Ngrams([" ".join(ngram)])  # its only n-gram of this length
        assert np.maximum(list(df.of(found))[len(ngram) - 1], 1).tolist() == [max(by_hand[ngram], 1)]


def test_frequencies_of_another_corpus_weigh_as_pycocoevalcap_would() -> None:
    from pycocoevalcap.cider.cider_scorer import CiderScorer

    candidates, references = _invented(20, 4, seed=7)
    _, others = _invented(60, 3, seed=8, words=60)
    outside = CiderScorer()
    for some in others:
        outside += ("", some)
    outside.compute_doc_freq()
    inside = CiderScorer()
    for candidate, some in zip(candidates, references, strict=True):
        inside += (candidate, some)
    # Its number of documents is that of the items scored: 40 more without a reference make it 60.
    inside.document_frequency = outside.document_frequency
    inside.crefs += [[{}]] * 40
    inside.ctest += [{}] * 40
    expected = np.array(inside.compute_cider())[:20]
    found = cider_d(Corpus(candidates, references), df=DocumentFrequencies.count(others, [1] * 60))[0]
    np.testing.assert_allclose(found, expected, rtol=4e-15, atol=1e-14)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_shorter_ngrams_and_other_widths_equal_pycocoevalcap(n: int) -> None:
    from pycocoevalcap.cider.cider_scorer import CiderScorer, precook

    candidates, references = _invented(20, 4, seed=9)
    scorer = CiderScorer(n=n, sigma=3.0)  # it would cut 4-grams for any n
    scorer.ctest = [precook(text, n) for text in candidates]
    scorer.crefs = [[precook(text, n) for text in some] for some in references]
    found = cider_d(Corpus(candidates, references), orders=n, sigma=3.0)[0]
    np.testing.assert_allclose(found, scorer.compute_score()[1], rtol=4e-15, atol=1e-14)

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capbench.core.errors import MetricError
from capbench.core.records import FloatArray, Item
from capbench.text.ngrams import corpus as corpus_module
from capbench.text.ngrams import frequencies, matching
from capbench.text.ngrams import frequencies as counting
from capbench.text.ngrams import statistics as sweep_module
from capbench.text.ngrams.corpus import EncodedCorpus
from capbench.text.ngrams.frequencies import document_frequencies
from capbench.text.ngrams.statistics import bleu_scores, bleu_statistics, cider_d, rouge_l, sweep
from capbench.text.ptb import native_tokenizer
from tests.errors import raises


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


def _assert_equal(candidates: Sequence[str], references: Sequence[Sequence[str]]) -> EncodedCorpus:
    corpus = EncodedCorpus.build(candidates, references)
    statistics = bleu_statistics(corpus)
    bleu, of_corpus, rouge, cider = _reference(candidates, references)
    np.testing.assert_allclose(bleu_scores(statistics), bleu, rtol=0, atol=1e-12)
    np.testing.assert_allclose(bleu_scores(statistics.sum(axis=-2)), of_corpus, rtol=0, atol=1e-12)
    np.testing.assert_allclose(rouge_l(corpus), rouge, rtol=0, atol=1e-12)
    np.testing.assert_allclose(cider_d(corpus), cider, rtol=0, atol=1e-9)
    return corpus


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
        pytest.param(["dog", "cat"], [["dog"], ["a big cat"]], id="one word"),
        pytest.param(["the the the the", "a a b a a b"], [["the cat the"], ["a a b", "a a a a"]], id="repeated words"),
        pytest.param(["ein Mädchen läuft", "狗 在 跑"], [["ein mädchen läuft"], ["狗 在 跑", "🐕 跑"]], id="unicode"),
        pytest.param(["a b", "c d"], [["a"], ["c d e f g h i j k l m n o p q r s t u v w"]], id="unequal lengths"),
        pytest.param(["a b c d", "e f"], [["a b", "a b c d e f"], ["e"]], id="two references as near"),
        pytest.param(["a b c", "a b c"], [["a b c"] * 3, ["a b c", "x"]], id="repeated references"),
        pytest.param(["tel. 555\xa01234", "a b"], [["tel. 555\xa01234", "tel. 555 1234"], ["a b"]], id="hard spaces"),
        pytest.param(["a  b", " a b "], [["a b"], ["a  b", "a b"]], id="double spaces"),
        pytest.param(["w " * 300, "v " * 40], [["w " * 299 + "x"], [("v " * 260).strip()]], id="longer than 255 words"),
    ],
)
def test_equal_to_pycocoevalcap(candidates: list[str], references: list[list[str]]) -> None:
    _assert_equal(candidates, references)


def test_equal_to_pycocoevalcap_with_fifty_references() -> None:
    candidates, references = _invented(40, 50)
    references[0] = (references[0] * 50)[:50]
    _assert_equal(candidates, references)


def test_items_that_share_candidates_and_references_are_documents_of_their_own() -> None:
    candidates, references = _invented(30, 5, seed=1)
    _assert_equal([*candidates, *candidates[:10], *candidates], [*references, *references[:10], *references[::-1]])


_WORD = st.sampled_from(["a", "b", "c", "dog", "é", "ß", "狗", "🐕", "a\xa0b", "x\u3000", "1,000", "'s"])
_TEXT = st.one_of(st.lists(_WORD, max_size=12).map(" ".join), st.just(""), st.just("a  b"), st.just("a"))


@given(st.lists(st.tuples(_TEXT, st.lists(_TEXT, min_size=1, max_size=6)), min_size=1, max_size=8))
@settings(max_examples=150, deadline=None)
def test_generated_texts_equal_pycocoevalcap(items: list[tuple[str, list[str]]]) -> None:
    _assert_equal([candidate for candidate, _ in items], [references for _, references in items])


def test_scores_do_not_depend_on_how_the_work_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    candidates, references = _invented(120, 6, seed=2)
    whole = EncodedCorpus.build(candidates, references)
    expected = bleu_statistics(whole), rouge_l(whole), cider_d(whole), sweep(whole, [1, 3, 6]).cider_d
    outside = document_frequencies(references[:50])
    by_outside = cider_d(whole, outside)
    for module, name, value in [
        (corpus_module, "_TEXTS_AT_ONCE", 7),
        (corpus_module, "_KEYS_AT_ONCE", 50),
        (corpus_module, "_KEEP_NUMBERS", 0),
        (frequencies, "_TOKENS_AT_ONCE", 30),
        (counting, "_TOKENS_AT_ONCE", 30),
        (counting, "_PLACES_AT_ONCE", 7),
        (counting, "_SAMPLED", 5),
        (matching, "_CELLS", 64),
        (sweep_module, "_TEXTS_AT_ONCE", 3),
    ]:
        monkeypatch.setattr(module, name, value)
    parts = EncodedCorpus.build(candidates, references)
    found = bleu_statistics(parts), rouge_l(parts), cider_d(parts), sweep(parts, [1, 3, 6]).cider_d
    for ours, whole_scores in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, whole_scores, rtol=0, atol=1e-12)
    np.testing.assert_allclose(cider_d(parts, document_frequencies(references[:50])), by_outside, rtol=0, atol=1e-12)


@given(
    st.lists(
        st.tuples(st.lists(st.lists(st.sampled_from("abcd"), max_size=9), min_size=1, max_size=4), st.integers(1, 3)),
        min_size=1,
        max_size=12,
    ),
    st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_frequencies_are_those_of_counting_documents_one_by_one(
    drawn: list[tuple[list[list[str]], int]], in_small_shares: bool
) -> None:
    documents, times = [texts for texts, _ in drawn], [number for _, number in drawn]
    by_hand: Counter[tuple[str, ...]] = Counter()
    for texts, number in drawn:
        ngrams = {tuple(t[i : i + n]) for t in texts for n in range(1, 5) for i in range(len(t) - n + 1)}
        by_hand.update(dict.fromkeys(ngrams, number))
    with pytest.MonkeyPatch.context() as patch:
        if in_small_shares:
            for name, value in (("_TOKENS_AT_ONCE", 5), ("_PLACES_AT_ONCE", 3), ("_SAMPLED", 4)):
                patch.setattr(counting, name, value)
        counted = document_frequencies([[" ".join(text) for text in texts] for texts in documents], times=times)
    kept = {ngram: count for ngram, count in by_hand.items() if len(ngram) == 1 or count > 1}
    assert {ngram: counted[" ".join(ngram)] for ngram in kept} == kept
    assert [sum(len(ngram) == n for ngram in kept) for n in (1, 2, 3, 4)] == [
        sum(word != "" for word in counted.vocabulary),
        *map(len, counted.keys[1:]),
    ]
    assert all((np.diff(keys) > 0).all() for keys in counted.keys)
    assert counted.documents == sum(times)


def test_a_single_image_has_cider_zero() -> None:
    corpus = EncodedCorpus.build(["a dog runs"], [["a dog runs", "a dog"]])
    assert cider_d(corpus).tolist() == [0.0]


def test_an_identical_candidate_has_the_best_scores() -> None:
    corpus = EncodedCorpus.build(["a red bird flies", "two men row"], [["a red bird flies"], ["three women sing"]])
    assert rouge_l(corpus)[0] == pytest.approx(1.0, abs=1e-12)
    assert bleu_scores(bleu_statistics(corpus))[0] == pytest.approx([1.0] * 4, abs=1e-8)
    assert cider_d(corpus)[0] == pytest.approx(10.0, abs=1e-12)
    assert cider_d(corpus)[1] == 0.0


@pytest.mark.parametrize("own_order", [False, True])
def test_a_sweep_equals_scoring_anew_with_each_number_of_references(own_order: bool) -> None:
    candidates, references = _invented(25, 9, seed=3)
    candidates, references = [*candidates, "", candidates[3]], [*references, references[4], references[3]]
    rng = random.Random(5)
    order = [rng.sample(range(len(some)), len(some)) for some in references] if own_order else None
    found = sweep(EncodedCorpus.build(candidates, references), range(1, 11), order)
    assert found.steps == tuple(range(1, 11))
    for i, k in enumerate(found.steps):
        chosen = [
            [some[j] for j in (order[item] if order else range(len(some)))[:k]] for item, some in enumerate(references)
        ]
        bleu, of_corpus, rouge, cider = _reference(candidates, chosen)
        np.testing.assert_allclose(bleu_scores(found.bleu[i]), bleu, rtol=0, atol=1e-12)
        np.testing.assert_allclose(bleu_scores(found.bleu[i].sum(axis=-2)), of_corpus, rtol=0, atol=1e-12)
        np.testing.assert_allclose(found.rouge_l[i], rouge, rtol=0, atol=1e-12)
        np.testing.assert_allclose(found.cider_d[i], cider, rtol=0, atol=1e-9)


def test_a_sweep_over_some_numbers_equals_those_of_the_full_sweep() -> None:
    corpus = EncodedCorpus.build(*_invented(30, 8, seed=4))
    full, some = sweep(corpus, range(1, 9)), sweep(corpus, [7, 2])
    assert some.steps == (2, 7)
    for name in ("bleu", "rouge_l", "cider_d"):
        np.testing.assert_allclose(getattr(some, name), getattr(full, name)[[1, 6]], rtol=0, atol=1e-12)


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_a_subset_of_references_equals_a_corpus_of_those(data: st.DataObject) -> None:
    candidates, references = _invented(12, 6, seed=data.draw(st.integers(0, 50)))
    keep = []
    for some in references:
        kept = data.draw(st.sets(st.integers(0, len(some) - 1), min_size=1))
        keep.append([i in kept for i in range(len(some))])
    corpus = EncodedCorpus.build(candidates, references)
    chosen = [
        [text for text, kept in zip(some, marks, strict=True) if kept]
        for some, marks in zip(references, keep, strict=True)
    ]
    anew = EncodedCorpus.build(candidates, chosen)
    mask = np.array([mark for marks in keep for mark in marks])
    np.testing.assert_array_equal(bleu_statistics(corpus, mask), bleu_statistics(anew))
    np.testing.assert_array_equal(rouge_l(corpus, mask), rouge_l(anew))
    np.testing.assert_allclose(cider_d(corpus, keep=mask), cider_d(anew), rtol=0, atol=1e-12)


def test_long_texts_are_compared_in_another_way_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    candidates, references = _invented(40, 3, seed=12)
    candidates[0], references[1][0], candidates[2] = "", "", "a a a a a b a a a a"
    ways = []
    for longest in (1 << 16, 0):  # 0: even two words are long
        monkeypatch.setattr(matching, "_LONG", longest)
        corpus = EncodedCorpus.build(candidates, references)
        ways.append((bleu_statistics(corpus), rouge_l(corpus), cider_d(corpus)))
    for usual, long in zip(*ways, strict=True):
        np.testing.assert_array_equal(usual, long)


def test_a_text_of_thousands_of_words_is_scored() -> None:
    rng = random.Random(0)
    long, other = (" ".join(rng.choices([f"w{i}" for i in range(500)], k=5_000)) for _ in range(2))
    corpus = EncodedCorpus.build([long, "a dog"], [[long, other], [long]])
    assert bleu_scores(bleu_statistics(corpus))[0, 3] == pytest.approx(1)
    assert rouge_l(corpus).tolist() == [pytest.approx(1), 0]


def test_document_frequencies_count_items_and_not_occurrences() -> None:
    frequencies = document_frequencies([["a dog a dog", "a dog"], ["a cat"], ["a dog"], ["a dog"]])
    assert frequencies.documents == 4
    ngrams = ("a", "dog", "cat", "a dog", "bird", "a cat a", "")
    assert [frequencies[ngram] for ngram in ngrams] == [4, 3, 1, 3, 0, 0, 0]


def test_document_frequencies_keep_longer_ngrams_of_several_documents_alone() -> None:
    frequencies = document_frequencies([["a dog a dog", "a dog"], ["a cat"], ["a dog a dog"], ["a dog"]])
    ngrams = ("a dog", "dog a", "a dog a dog", "a cat", "dog a cat")
    assert [frequencies[ngram] for ngram in ngrams] == [3, 2, 2, 0, 0]
    once, twice = (document_frequencies([["a b c d", "c d e"]], times=[times]) for times in (1, 2))
    assert [frequencies["a b c d"] for frequencies in (once, twice)] == [0, 2]


def test_own_frequencies_given_explicitly_change_nothing() -> None:
    candidates, references = _invented(30, 5, seed=6)
    corpus = EncodedCorpus.build(candidates, references)
    np.testing.assert_allclose(cider_d(corpus, document_frequencies(references)), cider_d(corpus), rtol=0, atol=1e-12)


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
    corpus = EncodedCorpus.build(candidates, references)
    np.testing.assert_allclose(cider_d(corpus, document_frequencies(others)), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_shorter_ngrams_and_other_widths_equal_pycocoevalcap(n: int) -> None:
    from pycocoevalcap.cider.cider_scorer import CiderScorer, precook

    candidates, references = _invented(20, 4, seed=9)
    scorer = CiderScorer(n=n, sigma=3.0)  # it would cut 4-grams for any n
    scorer.ctest = [precook(text, n) for text in candidates]
    scorer.crefs = [[precook(text, n) for text in some] for some in references]
    found = cider_d(EncodedCorpus.build(candidates, references), n=n, sigma=3.0)
    np.testing.assert_allclose(found, scorer.compute_score()[1], rtol=0, atol=1e-9)


def test_bad_input_is_one_clear_error() -> None:
    with raises(MetricError, "missing-references", row="item 2"):
        EncodedCorpus.build(["a", "b"], [["a"], []])
    with raises(MetricError, "mismatch"):
        EncodedCorpus.build(["a", "b"], [["a"]])
    corpus = EncodedCorpus.build(["a", "b"], [["a", "b"], ["c"]])
    with raises(MetricError, "missing-references", row="item 2"):
        rouge_l(corpus, np.array([True, True, False]))
    with raises(MetricError, "wrong-shape", value=2):
        rouge_l(corpus, np.array([True, True]))
    with raises(MetricError, "out-of-range"):
        sweep(corpus, [0, 1])
    with raises(MetricError, "wrong-value", row="item 2", value=[1]):
        sweep(corpus, [1], [[0, 1], [1]])
    with raises(MetricError, "mismatch", value=1):
        sweep(corpus, [1], [[0]])
    with raises(MetricError, "out-of-range"):
        cider_d(corpus, n=5)
    with raises(MetricError, "mismatch", value=1):
        cider_d(corpus, replace(document_frequencies([["a"], ["a"]]), documents=1))
    with raises(MetricError, "missing-data", value=2):
        cider_d(corpus, document_frequencies([["a"]], n=2))


def test_no_items_give_no_scores() -> None:
    corpus = EncodedCorpus.build([], [])
    assert bleu_statistics(corpus).shape == (0, 10)
    assert rouge_l(corpus).shape == (0,)
    assert cider_d(corpus).shape == (0,)


@pytest.mark.real_data
def test_flickr8k_candidates_equal_pycocoevalcap(real_data: Path) -> None:
    captions: dict[str, dict[str, str]] = {}
    for line in (real_data / "flickr8k" / "Flickr8k.token.txt").read_text("utf-8").splitlines():
        key, text = line.split("\t")
        captions.setdefault(key.partition("#")[0], {})[key] = native_tokenizer().tokenize(text) or ""
    rows = (real_data / "flickr8k" / "ExpertAnnotations.txt").read_text("utf-8").splitlines()[:1500]
    pairs = [row.split("\t")[:2] for row in rows]
    candidates = [captions[key.partition("#")[0]][key] for _, key in pairs]
    corpus = _assert_equal(candidates, [list(captions[image].values()) for image, _ in pairs])
    assert corpus.items == 1500


def test_the_engine_with_document_counts_equals_repeated_items() -> None:
    from capbench.text.ngrams.statistics import NativeEngine, encoded_items
    from capbench.text.ptb import caption_encoder

    candidates, references = _invented(20, 4, seed=11)
    times = np.array([1 + i % 3 for i in range(20)])
    repeated = [i for i in range(20) for _ in range(times[i])]
    many = _reference([candidates[i] for i in repeated], [references[i] for i in repeated])
    first = [repeated.index(i) for i in range(20)]
    engine, encoder = NativeEngine(), caption_encoder()
    frequencies = engine.document_frequencies(counting.DocumentWords.of_captions(references, encoder), times)
    items = [Item("", candidate, tuple(group)) for candidate, group in zip(candidates, references, strict=True)]
    corpus = encoded_items(items, encoder)
    assert encoded_items(items, encoder) is corpus
    assert frequencies.documents == len(repeated)
    cider = engine.cider(corpus, frequencies, len(repeated), 6.0)
    np.testing.assert_allclose(cider, many[3][first], rtol=0, atol=1e-9)
    np.testing.assert_allclose(bleu_scores(engine.bleu(corpus)), many[0][first], rtol=0, atol=1e-12)
    np.testing.assert_allclose(engine.rouge_l(corpus, 1.2), many[2][first], rtol=0, atol=1e-12)

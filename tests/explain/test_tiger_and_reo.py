"""Explanations hold the metrics' own numbers, and what they add is exact."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from capbench.datasets.flickr8k import Flickr8kExpert
from capbench.datasets.root import find_root
from capbench.errors import FeatureError, UsageError
from capbench.explain.reo import (
    IMAGE,
    REFERENCES,
    ReoCandidate,
    ReoExplanation,
    ReoTruth,
    WordShare,
    contributions,
    explain_reo,
    orthogonal,
    percentages,
    similarities,
)
from capbench.explain.subject import MOST_CANDIDATES, find_subject, region_names
from capbench.explain.tiger import explain_tiger, letter, rank_gains, to_dict
from capbench.features.records import RegionFeatures
from capbench.features.store import FeatureStore, open_store
from capbench.features.writing import StoreWriter
from capbench.metrics.grounding.vectors import attend, contexts, pad
from capbench.records import FloatArray
from tests.explain import explained
from tests.metrics.grounding.models import FINGERPRINT, Files

CANDIDATES = ("a dog runs", "the woman sits under a small house", "a blue cat")


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return explained.make_explained(tmp_path)


# -- TIGEr ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"minmax": False, "tau": 0.5}, {"count_ends": False, "d_rel": "half"}])
def test_tigers_numbers_are_the_metrics(files: Files, options: dict[str, object]) -> None:
    items = explained.items(*CANDIDATES)
    found = explain_tiger(explained.tiger(files, **options), items)
    metric = explained.tiger(files, **options)
    scores = metric.scores(metric.statistics(items, lambda _: None))
    for i, candidate in enumerate(found.candidates):
        assert list(candidate.scores) == ["tiger", "rrs", "wds", "grounding"]
        for name, value in candidate.scores.items():
            assert value == pytest.approx(scores[name][i], abs=1e-12)
        assert candidate.gains.sum() / candidate.ideal_gains.sum() == pytest.approx(candidate.scores["rrs"], abs=1e-12)
        tau = options.get("tau", 1.5)
        assert isinstance(tau, float)
        wds = 1 - 1 / (1 + np.exp(-tau * (candidate.kl + candidate.d_rel)))
        assert candidate.scores["wds"] == pytest.approx(wds, abs=1e-12)
        assert candidate.scores["grounding"] == pytest.approx(candidate.caption.grounding.mean(), abs=1e-12)
    assert found.signature == metric.signature()


def test_attention_and_vectors_belong_to_the_words_and_regions(files: Files) -> None:
    (candidate,) = explain_tiger(explained.tiger(files), explained.items(CANDIDATES[0])).candidates
    assert candidate.caption.words == ("<start>", "a", "dog", "runs", "<end>")
    assert candidate.caption.attention.shape == (7, 5)
    np.testing.assert_allclose(candidate.caption.attention.sum(axis=1), 1, atol=1e-12)
    mean = np.mean([caption.grounding for caption in candidate.references], axis=0)
    np.testing.assert_allclose(candidate.reference, mean, atol=1e-15)
    assert candidate.relevance.min() == 0
    assert candidate.relevance.max() == 1
    assert candidate.order.tolist() == sorted(range(7), key=lambda r: -candidate.caption.grounding[r])


def test_ends_that_do_not_count_are_no_words(files: Files) -> None:
    (candidate,) = explain_tiger(explained.tiger(files, count_ends=False), explained.items("a dog")).candidates
    assert candidate.caption.words == ("a", "dog")
    assert candidate.caption.attention.shape == (7, 2)


def test_gains_by_hand() -> None:
    candidate, relevance = np.array([0.1, 0.9, 0.9]), np.array([1.0, 0.0, 0.5])
    order, ideal, gains, ideal_gains = rank_gains(candidate, relevance)
    assert order.tolist() == [1, 2, 0]  # a tie keeps the lower index first
    assert ideal.tolist() == [0, 2, 1]
    np.testing.assert_allclose(gains, [0, 0.5 / np.log2(3), 1 / 2])
    np.testing.assert_allclose(ideal_gains, [1, 0.5 / np.log2(3), 0])


def test_words_that_the_model_does_not_know_are_told(files: Files) -> None:
    found = explain_tiger(explained.tiger(files), explained.items("a zeppelin runs"), notes=("first",))
    assert found.notes == ("first", "not in the model's vocabulary, read as <unk>: zeppelin")


def test_tiger_needs_references_and_one_image(files: Files) -> None:
    metric = explained.tiger(files)
    with pytest.raises(UsageError, match="compares with references, and 'pond' has none"):
        explain_tiger(metric, explained.items("a dog", references=()))
    with pytest.raises(UsageError, match="0 images"):
        explain_tiger(metric, ())


def test_an_explanation_becomes_json(files: Files) -> None:
    found = explain_tiger(explained.tiger(files), explained.items("a dog"), [2.5])
    read = json.loads(json.dumps(to_dict(found), allow_nan=False))
    assert read["candidates"][0]["human"] == 2.5
    assert read["candidates"][0]["caption"]["grounding"] == found.candidates[0].caption.grounding.tolist()
    assert letter(25) == "Z"


# -- REO --------------------------------------------------------------------------------------------------------------


def test_reos_numbers_are_the_metrics(files: Files) -> None:
    items = explained.items(*CANDIDATES)
    found = explain_reo(explained.reo(files), items, [1.0, None, 3.0])
    metric = explained.reo(files)
    scores = metric.scores(metric.statistics(items, lambda _: None))
    for i, candidate in enumerate(found.candidates):
        assert list(candidate.truths) == [IMAGE, REFERENCES]
        for name in ("relevance", "extraness", "omission"):
            assert candidate.truths[IMAGE].scores[name] == pytest.approx(scores[f"reo-image-{name}"][i], abs=1e-12)
            assert candidate.truths[REFERENCES].scores[name] == pytest.approx(scores[f"reo-{name}"][i], abs=1e-12)
    assert [candidate.human for candidate in found.candidates] == [1.0, None, 3.0]


def test_contributions_add_up_to_the_mean_length_of_extra_and_missing_content(files: Files) -> None:
    metric = explained.reo(files)
    (candidate,) = explain_reo(metric, explained.items(CANDIDATES[1])).candidates
    regions = metric.source.regions(explained.IMAGE)

    def in_context(text: str) -> FloatArray:
        padded = pad([metric.encode([text])[text]], metric.attention)
        found: FloatArray = contexts(attend(regions, padded, metric.attention)[0], padded)[0]
        return found

    own, references = in_context(CANDIDATES[1]), [in_context(text) for text in explained.REFERENCES]
    found = candidate.truths[REFERENCES]
    extra = np.mean([np.linalg.norm(orthogonal(own, g), axis=1).mean() for g in references])
    missing = np.mean([np.linalg.norm(orthogonal(g, own), axis=1).mean() for g in references])
    assert total(found.extra) == pytest.approx(extra, rel=1e-10)
    assert total(found.extra_words) == pytest.approx(extra, rel=1e-10)
    assert total(found.missing) == pytest.approx(missing, rel=1e-10)
    of_image = np.linalg.norm(orthogonal(own, regions), axis=1).mean()
    assert total(candidate.truths[IMAGE].extra) == pytest.approx(of_image, rel=1e-10)
    assert all(share.contribution is None for share in candidate.truths[IMAGE].missing)
    for truth in candidate.truths.values():
        similar = [share.similarity for share in truth.missing]
        assert similar == sorted(similar, reverse=True)
        assert {share.word for row in truth.references for share in row} == {share.word for share in truth.missing}


def total(words: Sequence[WordShare]) -> float:
    return sum(share.contribution or 0.0 for share in words)


def test_a_known_extra_and_a_known_missing_word_come_first(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """The image has a dog and a ball: the candidate speaks of a cat, and not of the ball. Ends are zero vectors."""
    metric = explained.reo(files)
    axes = dict(zip(("dog", "cat", "ball"), np.eye(3, 16), strict=True))
    regions = np.stack([axes["dog"], axes["ball"]])

    def encode(texts: list[str]) -> dict[str, FloatArray]:
        zero = np.zeros(16)
        return {text: np.stack([zero, *(axes[word] for word in text.split()), zero]) for text in texts}

    monkeypatch.setattr(metric, "encode", encode)
    monkeypatch.setattr(metric.source, "regions", lambda image: regions)
    (candidate,) = explain_reo(metric, explained.items("dog cat", references=("dog ball",))).candidates
    for truth in (IMAGE, REFERENCES):
        found = candidate.truths[truth]
        assert found.extra_words[0].word == "cat"
        assert found.missing[0].word == "ball"
    against = candidate.truths[REFERENCES]
    extra = {share.word: share for share in against.extra}
    # At the dog, what is left of the candidate's context is the cat (less what the reference says of the ball); at the
    # ball, which no word of it fits, its words get equal shares.
    assert extra["cat"].similarity == pytest.approx(np.sqrt(0.5), abs=0.01)
    assert extra["dog"].similarity == pytest.approx(np.sqrt(0.5) / 2, abs=0.01)
    assert (extra["<start>"].similarity, extra["<start>"].contribution) == (0, 0)
    missing = {share.word: share for share in against.missing}
    assert missing["ball"].similarity == pytest.approx((1 + np.sqrt(0.5)) / 2, abs=0.01)
    assert missing["dog"].similarity == pytest.approx(0, abs=0.01)


def test_shares_by_hand() -> None:
    """One region, a = (h1 + h2)/2 with orthogonal words, g = h1: what is left is h2/2."""
    words = np.eye(2, 4)
    weights = np.full((2, 1), 0.5)
    a = weights.T @ words
    rest = orthogonal(a, words[:1])
    np.testing.assert_allclose(rest, [[0, 0.5, 0, 0]])
    np.testing.assert_allclose(contributions(rest, a, words, weights), [0, 0.5])
    np.testing.assert_allclose(similarities(rest, a, words), [0, 1])


def test_nothing_left_and_nothing_to_project_on() -> None:
    words = np.eye(2, 4)
    a = np.array([[1.0, 0, 0, 0]])
    nothing = orthogonal(a, 3 * a) + 1e-17
    np.testing.assert_array_equal(contributions(nothing, a, words, np.ones((2, 1))), [0, 0])
    np.testing.assert_array_equal(similarities(nothing, a, words), [0, 0])
    np.testing.assert_array_equal(orthogonal(a, np.zeros((1, 4))), a)


def test_a_words_repeats_are_one_word() -> None:
    twice = (WordShare("a", 0.2, 0.1), WordShare("dog", 0.9, 0.1), WordShare("a", 0.4, 0.2))
    first, second = ReoTruth({}, twice, (), ()).extra_words
    assert first == twice[1]
    assert second.word == "a"
    assert second.similarity == pytest.approx(0.3)
    assert second.contribution == pytest.approx(0.3)
    assert percentages((first, second)) == ["25%", "75%"]
    assert percentages((WordShare("a", 0.5),)) == [""]


def test_without_references_reo_looks_at_the_image_alone(files: Files) -> None:
    (candidate,) = explain_reo(explained.reo(files), explained.items("a dog", references=())).candidates
    assert list(candidate.truths) == [IMAGE]
    assert candidate.truths[IMAGE].missing == ()
    assert len(candidate.truths[IMAGE].extra) == 4


def test_scores_are_scaled_over_the_candidates() -> None:
    def candidate(relevance: float, human: float | None) -> ReoCandidate:
        return ReoCandidate("", (), {IMAGE: ReoTruth({"relevance": relevance, "omission": 1.0}, (), (), ())}, human)

    rated = ReoExplanation("", (candidate(2, 1), candidate(4, 5), candidate(3, 2)), "")
    assert rated.scaled() == {IMAGE: {"relevance": (0, 1, 0.5), "omission": (0.5, 0.5, 0.5), "people": (0, 1, 0.25)}}
    unrated = ReoExplanation("", (candidate(2, 1), candidate(4, None)), "")
    assert "people" not in unrated.scaled()[IMAGE]


# -- what is explained ------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> FeatureStore:
    path = tmp_path / "f.h5"
    with StoreWriter(path, FINGERPRINT) as writer:
        for image in ("f8k_003", "elsewhere"):
            writer.add(RegionFeatures(image, 0, 0, None, np.ones((2, 3), np.float32)))
        writer.finish()
    return open_store(path)


def test_candidates_references_ratings_and_picture_come_from_the_data_set(store: FeatureStore, sample: Path) -> None:
    root = find_root(None)
    found = find_subject("f8k_003", store, [], [], None, root)
    judgements = Flickr8kExpert(root).load(Flickr8kExpert.protocol().items)[0]
    own = [i for i, item in enumerate(judgements.items) if item.image == "f8k_003"]
    assert len(found.items) == MOST_CANDIDATES
    for item, human in zip(found.items, found.humans, strict=True):
        places = [i for i in own if judgements.items[i].candidate == item.candidate]
        assert item.references == judgements.items[places[0]].references
        ratings = judgements.ratings["expert"]
        assert human == pytest.approx(ratings.value[np.isin(ratings.item, places)].mean())
    assert found.picture == sample / "flickr8k" / "images" / "f8k_003.png"
    assert found.under_root
    assert found.notes == (f"the first 5 of {len(own)} candidates; name others with --caption",)


def test_a_caption_of_ones_own_gets_the_images_references(store: FeatureStore) -> None:
    known = find_subject("f8k_003", store, [], [], None, find_root(None)).items[0]
    found = find_subject("f8k_003", store, ["a caption", known.candidate.upper()], [], None, find_root(None))
    assert [item.candidate for item in found.items] == ["a caption", known.candidate.upper()]
    assert found.items[0].references == known.references
    assert found.humans[0] is None
    assert found.humans[1] is not None  # the same words


def test_references_of_ones_own_need_no_data_set(store: FeatureStore, tmp_path: Path) -> None:
    found = find_subject("elsewhere", store, ["a", "b", "a"], ["r"], None, find_root(None))
    assert [(item.candidate, item.references) for item in found.items] == [("a", ("r",)), ("b", ("r",))]
    assert not found.under_root
    assert found.picture is None
    assert "drawn without it" in found.notes[0]
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "elsewhere.png").write_bytes(b"")
    where = tmp_path / "pictures"
    assert (
        find_subject("elsewhere", store, ["a"], ["r"], None, find_root(None), where).picture == where / "elsewhere.png"
    )
    by_file = find_subject(str(where / "elsewhere.png"), store, ["a"], ["r"], None, find_root(None))
    assert (by_file.image, by_file.picture) == ("elsewhere", where / "elsewhere.png")


def test_what_cannot_be_explained_is_refused(store: FeatureStore) -> None:
    root = find_root(None)
    with pytest.raises(FeatureError, match="has no features of the image 'nowhere'"):
        find_subject("nowhere", store, ["a"], ["r"], None, root)
    with pytest.raises(UsageError, match="flickr8k-expert does not judge the image 'elsewhere'"):
        find_subject("elsewhere", store, ["a"], [], None, root)
    with pytest.raises(UsageError, match="is empty"):
        find_subject("f8k_003", store, [" "], [], None, root)


def test_regions_are_named_by_number_and_class(files: Files, store: FeatureStore) -> None:
    with open_store(files.features) as boxed:
        assert region_names(boxed, explained.IMAGE)[:3] == ["0 dog", "1 house", "2 ball"]
    assert region_names(store, "f8k_003") == ["0", "1"]

"""Explanations hold the metrics' own numbers, and what they add is exact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capbench.core.errors import FeatureError, MetricError, UsageError
from capbench.core.explanations import Matching, RegionMaps, Score, Scores, Subject
from capbench.core.records import FloatArray
from capbench.datasets.flickr8k import Flickr8kExpert
from capbench.datasets.root import find_root
from capbench.features.class_names import regions_of
from capbench.features.records import RegionFeatures
from capbench.features.store import FeatureStore, open_store
from capbench.features.writing import StoreWriter
from capbench.metrics.grounding.grounding import attend, contexts, pad
from capbench.metrics.reo.explain import (
    IMAGE,
    REFERENCES,
    ReoCandidate,
    ReoTruth,
    WordShare,
    contributions,
    explain_reo,
    orthogonal,
    percentages,
    reo_candidates,
    scaled,
    similarities,
)
from capbench.metrics.tiger import metric as metric_module
from capbench.metrics.tiger.metric import (
    TigerCandidate,
    explain_tiger,
    rank_gains,
    ranking_panel,
    tiger_candidates,
)
from capbench.studies.explained import MOST_CANDIDATES, find_subject
from tests.errors import raises
from tests.metrics.grounding.models import FINGERPRINT, Files
from tests.reports.explain import explained

CANDIDATES = ("a dog runs", "the woman sits under a small house", "a blue cat")


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return explained.make_explained(tmp_path)


# -- TIGEr ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"minmax": False, "tau": 0.5}, {"count_ends": False, "d_rel": "half"}])
def test_tigers_numbers_are_the_metrics(files: Files, options: dict[str, object]) -> None:
    subject = explained.subject(*CANDIDATES)
    candidates = tiger_candidates(explained.tiger(files, **options), subject)
    metric = explained.tiger(files, **options)
    scores = metric.scores(metric.statistics(subject.items, lambda _: None))
    assert len(candidates) == len(CANDIDATES)
    for i, candidate in enumerate(candidates):
        assert list(candidate.scores) == ["tiger", "rrs", "wds", "grounding"]
        for name, value in candidate.scores.items():
            assert value == pytest.approx(scores[name][i], abs=1e-12)
        assert candidate.gains.sum() / candidate.ideal_gains.sum() == pytest.approx(candidate.scores["rrs"], abs=1e-12)
        tau = options.get("tau", 1.5)
        assert isinstance(tau, float)
        wds = 1 - 1 / (1 + np.exp(-tau * (candidate.kl + candidate.d_rel)))
        assert candidate.scores["wds"] == pytest.approx(wds, abs=1e-12)
        assert candidate.scores["grounding"] == pytest.approx(candidate.caption.grounding.mean(), abs=1e-12)


def test_attention_and_vectors_belong_to_the_words_and_regions(files: Files) -> None:
    (candidate,) = tiger_candidates(explained.tiger(files), explained.subject(CANDIDATES[0]))
    assert candidate.caption.words == ("<start>", "a", "dog", "runs", "<end>")
    assert candidate.caption.attention.shape == (7, 5)
    np.testing.assert_allclose(candidate.caption.attention.sum(axis=1), 1, atol=1e-12)
    mean = np.mean([caption.grounding for caption in candidate.references], axis=0)
    np.testing.assert_allclose(candidate.reference, mean, atol=1e-15)
    assert candidate.relevance.min() == 0
    assert candidate.relevance.max() == 1
    assert candidate.order.tolist() == sorted(range(7), key=lambda r: -candidate.caption.grounding[r])


def test_ends_that_do_not_count_are_no_words(files: Files) -> None:
    (candidate,) = tiger_candidates(explained.tiger(files, count_ends=False), explained.subject("a dog"))
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
    explanation = explain_tiger(explained.tiger(files), explained.subject("a zeppelin runs"))
    assert explanation.notes == ("not in the model's vocabulary, read as <unk>: zeppelin",)


def test_tiger_needs_references_and_a_subject_one_image(files: Files) -> None:
    with pytest.raises(UsageError, match="'pond'"):
        explain_tiger(explained.tiger(files), explained.subject("a dog", references=()))
    with pytest.raises(MetricError, match="pond"):
        explained.subject()
    with pytest.raises(MetricError, match="another image"):
        Subject("elsewhere", explained.subject("a dog").items, (None,))


def test_tiger_offers_its_numbers_as_panels(files: Files) -> None:
    metric = explained.tiger(files)
    explanation = metric.explain(explained.subject(*CANDIDATES, humans=(2.5, None, 1.0)))
    assert (explanation.title, explanation.image) == ("TIGEr", explained.IMAGE)
    assert explanation.signature == metric.signature()
    assert [candidate.human for candidate in explanation.candidates] == [2.5, None, 1.0]
    details = tiger_candidates(metric, explained.subject(*CANDIDATES))
    for candidate, numbers in zip(explanation.candidates, details, strict=True):
        scores, heat, ranking = candidate.panels[:3]
        assert isinstance(scores, Scores)
        values = {score.name: score.value for score in all_scores(scores)}
        assert {name: values[name] for name in numbers.scores} == numbers.scores
        assert (values["KL"], values["D_rel"]) == (numbers.kl, numbers.d_rel)
        assert values["DCG"] / values["ideal DCG"] == pytest.approx(values["rrs"], abs=1e-12)
        assert isinstance(heat, RegionMaps)
        vectors = [region_map.weights for region_map in heat.maps if region_map.weights is not None]
        np.testing.assert_array_equal(vectors, [numbers.reference, numbers.caption.grounding])
        assert (heat.low, heat.high) == (np.min(vectors), np.max(vectors))  # one scale for both
        assert isinstance(ranking, Matching)
        assert [link.left for link in ranking.links] == list(range(7))
        for link in ranking.links:
            assert ranking.left[link.left] == ranking.right[link.right]


def test_a_word_without_attention_has_no_outlined_region(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    attention = np.full((7, 5), 0.0)
    attention[:, 1:4] = [[1e-5, 0.3, 0.2]] * 7  # an equal share is .2
    attention[4, 1:4] = 4e-5, 0.6, 0.2

    def with_attention(*arguments: Any) -> tuple[TigerCandidate, ...]:
        return tuple(
            replace(one, caption=replace(one.caption, attention=attention)) for one in tiger_candidates(*arguments)
        )

    monkeypatch.setattr(metric_module, "tiger_candidates", with_attention)
    (candidate,) = explain_tiger(explained.tiger(files), explained.subject(CANDIDATES[0])).candidates
    (maps,) = (panel for panel in candidate.panels if isinstance(panel, RegionMaps) and panel.small)
    assert [region_map.top for region_map in maps.maps] == [(), (), (4,), (), ()]


def test_regions_beyond_the_ranks_shown_say_where_they_are(tmp_path: Path) -> None:
    metric = explained.tiger(explained.make_explained(tmp_path, regions=40))
    (candidate,) = tiger_candidates(metric, explained.subject("a dog"))
    turned = replace(candidate, order=candidate.ideal_order[np.r_[0:6, 20:40, 6:20]])
    ranking = ranking_panel(turned, [f"region {i}" for i in range(40)])
    assert [(link.left, link.right) for link in ranking.links] == [(i, i) for i in range(6)]
    assert [name.split(" (there ")[1] for name in ranking.left[6:]] == [f"{rank})" for rank in range(27, 33)]
    assert [name.split(" (there ")[1] for name in ranking.right[6:]] == [f"{rank})" for rank in range(21, 27)]
    assert not any("there" in name for name in (*ranking.left[:6], *ranking.right[:6]))


def all_scores(scores: Scores) -> list[Score]:
    waiting, flat = list(scores.scores), []
    while waiting:
        flat.append(waiting.pop(0))
        waiting += flat[-1].parts
    return flat


# -- REO --------------------------------------------------------------------------------------------------------------


def test_reos_numbers_are_the_metrics(files: Files) -> None:
    subject = explained.subject(*CANDIDATES, humans=(1.0, None, 3.0))
    candidates = reo_candidates(explained.reo(files), subject)
    metric = explained.reo(files)
    scores = metric.scores(metric.statistics(subject.items, lambda _: None))
    for i, candidate in enumerate(candidates):
        assert list(candidate.truths) == [IMAGE, REFERENCES]
        for name in ("relevance", "extraness", "omission"):
            assert candidate.truths[IMAGE].scores[name] == pytest.approx(scores[f"reo-image-{name}"][i], abs=1e-12)
            assert candidate.truths[REFERENCES].scores[name] == pytest.approx(scores[f"reo-{name}"][i], abs=1e-12)
    assert [candidate.human for candidate in candidates] == [1.0, None, 3.0]


def test_contributions_add_up_to_the_mean_length_of_extra_and_missing_content(files: Files) -> None:
    metric = explained.reo(files)
    (candidate,) = reo_candidates(metric, explained.subject(CANDIDATES[1]))
    regions = metric.source.regions(explained.IMAGE)

    def in_context(text: str) -> FloatArray:
        padded = pad([metric.encode([text])[text]], metric.attention)
        vectors: FloatArray = contexts(attend(regions, padded, metric.attention)[0], padded)[0]
        return vectors

    context, references = in_context(CANDIDATES[1]), [in_context(text) for text in explained.REFERENCES]
    against = candidate.truths[REFERENCES]
    extra = np.mean([np.linalg.norm(orthogonal(context, g), axis=1).mean() for g in references])
    missing = np.mean([np.linalg.norm(orthogonal(g, context), axis=1).mean() for g in references])
    assert total(against.extra) == pytest.approx(extra, rel=1e-10)
    assert total(against.extra_words) == pytest.approx(extra, rel=1e-10)
    assert total(against.missing) == pytest.approx(missing, rel=1e-10)
    of_image = np.linalg.norm(orthogonal(context, regions), axis=1).mean()
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
    (candidate,) = reo_candidates(metric, explained.subject("dog cat", references=("dog ball",)))
    for truth in (IMAGE, REFERENCES):
        assert candidate.truths[truth].extra_words[0].word == "cat"
        assert candidate.truths[truth].missing[0].word == "ball"
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


def test_phrases_that_people_name_are_compared_with_what_reo_found(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors are those of the test above; sim(x, y) is counted here anew, region by region, from the paper's words."""
    metric = explained.reo(files)
    axes = dict(zip(("dog", "cat", "ball", "man"), np.eye(4, 16), strict=True))
    regions = np.stack([axes["dog"] + 0.1, axes["ball"] + 0.2])

    def encode(texts: list[str]) -> dict[str, FloatArray]:
        zero = np.zeros(16)
        return {text: np.stack([zero, *(axes[word] for word in text.split()), zero]) for text in texts}

    monkeypatch.setattr(metric, "encode", encode)
    monkeypatch.setattr(metric.source, "regions", lambda image: regions)
    subject = explained.subject("dog cat", references=("dog ball", "man ball"))
    named = replace(subject, errors=({"extra": ("cat", "unsaid"), "missing": ("ball",)},))
    axes["unsaid"] = axes["man"]
    (candidate,) = reo_candidates(metric, named)

    def contexts_of(text: str) -> FloatArray:
        padded = pad([encode([text])[text]], metric.attention)
        return np.asarray(contexts(attend(regions, padded, metric.attention)[0], padded)[0], dtype=np.float64)

    def sim(found: list[FloatArray], text: str) -> float:
        cosines = []
        for vectors in found:
            for one, other in zip(vectors, contexts_of(text), strict=True):
                lengths = float(np.linalg.norm(one) * np.linalg.norm(other))
                cosines.append(float(one @ other) / lengths if lengths > 1e-9 else 0.0)
        return float(np.mean(cosines))

    def left(vectors: FloatArray, onto: FloatArray) -> FloatArray:
        return np.stack([v - (v @ o) / (o @ o) * o for v, o in zip(vectors, onto, strict=True)])

    own, references = contexts_of("dog cat"), [contexts_of("dog ball"), contexts_of("man ball")]
    for truth, others in ((IMAGE, [regions]), (REFERENCES, references)):
        against = candidate.truths[truth]
        a = [left(own, other) for other in others]
        g = [left(other, own) for other in others]
        cat, unsaid = against.extra_phrases
        (ball,) = against.missing_phrases
        assert cat.similarity == pytest.approx(sim(a, "cat"), abs=1e-5)
        assert cat.rest == pytest.approx(sim(a, "dog"), abs=1e-5)
        assert cat.rest is not None
        assert cat.similarity > cat.rest  # the error, and not the rest of the caption, is what REO found
        assert (unsaid.phrase, unsaid.rest) == ("unsaid", None)
        assert ball.similarity == pytest.approx(sim(g, "ball"), abs=1e-5)
        assert ball.rest == pytest.approx((sim(g, "dog") + sim(g, "man")) / 2, abs=1e-5)
    (shown,) = metric.explain(named).candidates
    titles = [panel.title for panel in shown.panels if isinstance(panel, Scores)]
    assert "extra, sim(x, y) against image" in titles
    assert "missing, sim(x, y) against image + references" in titles


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
    (candidate,) = reo_candidates(explained.reo(files), explained.subject("a dog", references=()))
    assert list(candidate.truths) == [IMAGE]
    assert candidate.truths[IMAGE].missing == ()
    assert len(candidate.truths[IMAGE].extra) == 4


def test_scores_are_scaled_over_the_candidates() -> None:
    def candidate(relevance: float, human: float | None) -> ReoCandidate:
        return ReoCandidate("", (), {IMAGE: ReoTruth({"relevance": relevance, "omission": 1.0}, (), (), ())}, human)

    rated = (candidate(2, 1), candidate(4, 5), candidate(3, 2))
    assert scaled(rated) == {IMAGE: {"relevance": (0, 1, 0.5), "omission": (0.5, 0.5, 0.5), "people": (0, 1, 0.25)}}
    assert "people" not in scaled((candidate(2, 1), candidate(4, None)))[IMAGE]


def test_reo_offers_its_numbers_as_panels(files: Files) -> None:
    metric = explained.reo(files)
    explanation = metric.explain(explained.subject(*CANDIDATES))
    assert (explanation.title, explanation.signature) == ("REO", metric.signature())
    details = reo_candidates(metric, explained.subject(*CANDIDATES))
    for candidate, numbers in zip(explanation.candidates, details, strict=True):
        rows = [panel for panel in candidate.panels if isinstance(panel, Scores)]
        assert [row.title for row in rows] == [f"against {truth}" for truth in numbers.truths]
        for row, truth in zip(rows, numbers.truths.values(), strict=True):
            assert {score.name: score.value for score in row.scores} == truth.scores
    assert len(explanation.comparison) == 2
    assert explain_reo(metric, explained.subject("a dog")).comparison == ()


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
    looked_up = find_subject("f8k_003", store, [], [], None, root)
    subject = looked_up.subject
    judgements = Flickr8kExpert(root).load(Flickr8kExpert.protocol().items)[0]
    of_image = [i for i, item in enumerate(judgements.items) if item.image == "f8k_003"]
    assert len(subject.items) == MOST_CANDIDATES
    for item, human in zip(subject.items, subject.humans, strict=True):
        places = [i for i in of_image if judgements.items[i].candidate == item.candidate]
        assert item.references == judgements.items[places[0]].references
        ratings = judgements.ratings["expert"]
        assert human == pytest.approx(ratings.value[np.isin(ratings.item, places)].mean())
    assert subject.picture == sample / "flickr8k" / "images" / "f8k_003.png"
    assert looked_up.under_root
    assert looked_up.notes == (f"the first 5 of {len(of_image)} candidates; choose others with --caption",)


def test_a_caption_of_ones_own_gets_the_images_references(store: FeatureStore) -> None:
    known = find_subject("f8k_003", store, [], [], None, find_root(None)).subject.items[0]
    captions = ["a caption", known.candidate.upper()]
    subject = find_subject("f8k_003", store, captions, [], None, find_root(None)).subject
    assert [item.candidate for item in subject.items] == captions
    assert subject.items[0].references == known.references
    assert subject.humans[0] is None
    assert subject.humans[1] is not None  # the same words


def test_a_caption_gets_the_rating_of_a_text_key_only_if_it_is_that_of_one_text(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    rated = [("the rapist", 1), ("therapist", 2), ("A dog runs.", 3), ("dog 狗", 4)]
    lines = [f"elsewhere,{text},a reference,{rating}" for text, rating in rated]
    path.write_text("\n".join(["image,candidate,reference_1,rating", *lines]) + "\n", encoding="utf-8")

    def humans(*captions: str) -> tuple[float | None, ...]:
        looked_up = find_subject("elsewhere", None, captions, [], str(path), find_root(None))
        unclear = [note for note in looked_up.notes if "text key" in note]
        assert len(unclear) == looked_up.subject.humans.count(None)
        return looked_up.subject.humans

    assert humans("therapist", "The rapist.", "DOG 狗!", "a dog runs") == (2, None, 4, 3)
    assert humans("a dog runs", "A dog runs.") == (None, 3)
    assert humans("a dog runs", "A dog runs!") == (None, None)
    subject = find_subject("elsewhere", None, ["dog 猫"], [], str(path), find_root(None)).subject
    assert subject.humans == (None,)


def test_references_of_ones_own_need_no_data_set(store: FeatureStore, tmp_path: Path) -> None:
    looked_up = find_subject("elsewhere", store, ["a", "b", "a"], ["r"], None, find_root(None))
    assert [(item.candidate, item.references) for item in looked_up.subject.items] == [("a", ("r",)), ("b", ("r",))]
    assert not looked_up.under_root
    assert looked_up.subject.picture is None
    assert "drawn without it" in looked_up.notes[0]
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "elsewhere.png").write_bytes(b"")
    where = tmp_path / "pictures"
    below = find_subject("elsewhere", store, ["a"], ["r"], None, find_root(None), where).subject
    assert below.picture == where / "elsewhere.png"
    by_file = find_subject(str(where / "elsewhere.png"), store, ["a"], ["r"], None, find_root(None)).subject
    assert (by_file.image, by_file.picture) == ("elsewhere", where / "elsewhere.png")


def test_what_cannot_be_explained_is_refused(store: FeatureStore) -> None:
    root = find_root(None)
    with raises(FeatureError, "missing-image", value="nowhere"):
        find_subject("nowhere", store, ["a"], ["r"], None, root)
    with pytest.raises(UsageError, match="flickr8k-expert has no judgements of the image 'elsewhere'"):
        find_subject("elsewhere", store, ["a"], [], None, root)
    with pytest.raises(UsageError, match="is empty"):
        find_subject("f8k_003", store, [" "], [], None, root)


def test_without_features_any_image_can_be_named(tmp_path: Path) -> None:
    subject = find_subject("anything", None, ["a"], ["r"], None, find_root(None)).subject
    assert (subject.image, subject.picture) == ("anything", None)


def test_regions_are_named_by_number_and_class(files: Files, store: FeatureStore) -> None:
    with open_store(files.features) as boxed:
        regions = regions_of(boxed, explained.IMAGE)
    assert regions.names[:3] == ("0 dog", "1 house", "2 ball")
    assert regions.size == explained.SIZE
    assert regions.boxes is not None
    assert regions.boxes.shape == (7, 4)
    bare = regions_of(store, "f8k_003")
    assert (bare.names, bare.boxes) == (("0", "1"), None)

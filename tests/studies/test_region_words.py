"""Scores of words that belong to a region, against loops over regions and words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from capbench.core.errors import UsageError
from capbench.core.records import Item
from capbench.datasets.captions import EntityCaption
from capbench.features.store import open_store
from capbench.metrics.faier.metric import Faier
from capbench.metrics.requests import resolve_metrics
from capbench.studies.explained import classes_of_tokens, region_words, regions_of_boxes
from capbench.studies.study import WordTask
from tests.errors import raises
from tests.metrics.faier.models import Files, make_ensemble, make_files

TEXTS = ("a dog runs on the grass", "two dogs play with a red ball", "the quiet cat", "zebras in a canoe")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return make_files(tmp_path_factory.mktemp("words"), variant="faier-object")


def entities(made: Files) -> dict[str, tuple[EntityCaption, ...]]:
    """In each caption the second word belongs to the image's last region, and the third to a box far outside."""
    found = {}
    with open_store(made.features) as store:
        for image in ("harbour", "meadow", "street"):
            boxes = store[image].boxes
            assert boxes is not None
            places = {"thing": boxes[-1:].astype(np.float64) + 0.01, "far": np.array([[900.0, 900.0, 950.0, 950.0]])}
            found[image] = tuple(
                EntityCaption(text, (None, "thing", "far", *[None] * (len(text.split()) - 3)), places, "test")
                for text in TEXTS
            )
    return found


def test_a_detection_has_the_region_that_overlaps_most_if_by_half() -> None:
    boxes = np.array([[0.0, 0, 10, 10], [0, 0, 10, 8], [20, 20, 30, 30]])
    assert regions_of_boxes(np.array([[0.0, 0, 10, 9.5]]), boxes).tolist() == [0]
    assert regions_of_boxes(np.array([[0.0, 0, 10, 8], [20, 20, 30, 30]]), boxes).tolist() == [1, 2]
    assert regions_of_boxes(np.array([[20.0, 20, 30, 24.9]]), boxes).tolist() == []
    assert regions_of_boxes(np.array([[20.0, 20, 30, 25]]), boxes).tolist() == [2]


def test_tokens_have_the_class_of_their_word() -> None:
    caption = EntityCaption("a dog's ball", (None, "dog", "ball"), {}, "")
    assert classes_of_tokens(caption) == [("a", None), ("dog", "dog"), ("'s", "dog"), ("ball", "ball")]


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_the_object_level_is_the_mean_of_the_words_best_products(tmp_path: Path, similarity: str) -> None:
    made = make_files(tmp_path, variant="faier-object", similarity=similarity)
    metric = Faier(made.resources)
    words = metric.region_words("street", TEXTS[0], TEXTS[1:3])
    names, products = words.candidate
    assert names == tuple(TEXTS[0].split())
    (scores,) = metric.statistics([Item("street", TEXTS[0], TEXTS[1:3])], lambda _: None)
    assert products.max(axis=1).mean() == pytest.approx(scores[1], abs=1e-6)
    assert [name for name, _ in words.references] == [tuple(text.split()) for text in TEXTS[1:3]]


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_references_are_matched_with_the_image_alone(tmp_path: Path, similarity: str) -> None:
    """FIEr's union nodes are the image's: what it gives for a candidate is what references get before fusion."""
    made = make_files(tmp_path, variant="fier-object", similarity=similarity)
    words = Faier(made.resources).region_words("street", TEXTS[0], [TEXTS[0], TEXTS[1]])
    np.testing.assert_allclose(words.references[0][1], words.candidate[1], atol=1e-6)
    other = Faier(made.resources).region_words("street", TEXTS[1], [TEXTS[0]])
    np.testing.assert_allclose(words.references[1][1], other.candidate[1], atol=1e-6)


def test_an_ensembles_products_are_means(tmp_path: Path) -> None:
    made = make_ensemble(tmp_path, variant="faier-object")
    together = Faier(made.resources).region_words("harbour", TEXTS[0], TEXTS[1:2])
    alone = []
    for seed in (1, 2, 3):
        single = Files(tmp_path / f"{seed}.safetensors", made.features)
        alone.append(Faier(single.resources).region_words("harbour", TEXTS[0], TEXTS[1:2]))
    np.testing.assert_allclose(together.candidate[1], np.mean([w.candidate[1] for w in alone], axis=0), atol=1e-6)
    before = [w.references[0][1] for w in alone]
    np.testing.assert_allclose(together.references[0][1], np.mean(before, axis=0), atol=1e-6)


def test_means_are_those_of_loops_over_regions_and_words(made: Files) -> None:
    annotated = entities(made)
    (request,) = resolve_metrics(["faier.faier"])
    task = WordTask(references=(1, 3), seed=5)
    found = region_words(annotated, request, task, resources=made.resources, cache=False)
    assert found.images == 3
    metric = Faier(made.resources)
    rng = np.random.default_rng(5)
    rng.permutation(3)  # which images are drawn: all of them
    orders = {image: rng.permutation(4).tolist() for image in sorted(annotated)}
    for means in found.means:
        sums: dict[tuple[str, bool], list[float]] = {(k, b): [] for k in ("before", "after") for b in (True, False)}
        for image, order in orders.items():
            texts = [TEXTS[place] for place in order]
            words = metric.region_words(image, texts[0], texts[1 : 1 + means.references])
            for kind, (names, products) in [("after", words.candidate), *(("before", r) for r in words.references)]:
                for row in range(len(names)):
                    sums[kind, row == 1].append(float(products[row, -1]))
        expected = [np.mean(sums[kind, own]) for kind in ("before", "after") for own in (True, False)]
        got = [means.reference_own, means.reference_other, means.candidate_own, means.candidate_other]
        np.testing.assert_allclose(got, expected, rtol=1e-9)
        assert sum(means.pairs) == sum(map(len, sums.values()))


def test_what_has_no_words_or_images_is_refused(made: Files) -> None:
    (request,) = resolve_metrics(["faier.faier"])
    unknown = {"nowhere": entities(made)["street"]}
    with raises(UsageError, "missing-features"):
        region_words(unknown, request, WordTask(), resources=made.resources, cache=False)
    (bleu,) = resolve_metrics(["bleu-1"])
    with raises(UsageError, "unsupported", value="bleu"):
        region_words(entities(made), bleu, WordTask(), cache=False)

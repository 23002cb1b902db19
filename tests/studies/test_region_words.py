"""Scores of words that belong to a region, against loops over regions and words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from capbench.core.errors import DataError
from capbench.core.records import Item
from capbench.features.store import open_store
from capbench.metrics.faier.metric import Faier
from capbench.studies.region_words import MEANS, EntityCaption, described_regions, region_words
from capbench.studies.study import WordTask
from tests.errors import raises
from tests.metrics.faier.models import make_files
from tests.metrics.scan.models import Files
from tests.studies.toys import known

TEXTS = ("a dog runs on the grass", "two dogs play with a red ball", "the quiet cat", "zebras in a canoe")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return make_files(tmp_path_factory.mktemp("words"), variant="faier-object")


def entities(made: Files) -> dict[str, dict[str, EntityCaption]]:
    """In each caption the second word belongs to the image's last region, and the third to a box far outside."""
    found = {}
    with open_store(made.features) as store:
        for image in ("harbour", "meadow", "street"):
            boxes = known(store[image].boxes)
            places = {"thing": [(0, boxes[-1] + 0.01)], "far": [(1, (900.0, 900.0, 950.0, 950.0))]}
            classes = {text: [None, "thing", "far", *["_"] * (len(text.split()) - 3)] for text in TEXTS}
            found[image] = {
                text: EntityCaption.model_validate({"det_sequences": of_text, "detections": places})
                for text, of_text in classes.items()
            }
    return found


def test_a_detection_has_the_region_that_overlaps_most_if_by_half() -> None:
    boxes = np.array([[0.0, 0, 10, 10], [0, 0, 10, 8], [20, 20, 30, 30]])

    def matched(*detections: list[float]) -> list[int]:
        listed = {"dog": [(0, box) for box in detections]}
        entry = EntityCaption.model_validate({"det_sequences": [None, "dog"], "detections": listed})
        _, (own, _) = described_regions("42", "a dog", entry, boxes)
        assert not own[0].any()
        return np.flatnonzero(own[1]).tolist()

    assert matched([0, 0, 10, 9.5]) == [0]
    assert matched([0, 0, 10, 8], [20, 20, 30, 30]) == [1, 2]
    assert matched([20, 20, 30, 24.9]) == matched() == []
    assert matched([20, 20, 30, 25]) == [2]


def test_tokens_have_the_class_of_their_word_if_another_word_has_a_region_too() -> None:
    places = {"dog": [(3, (1, 2, 30, 40))], "ball": [(1, (50, 50, 60, 60))]}
    entry = EntityCaption.model_validate({"det_sequences": [None, "dog", "ball", "_"], "detections": places})
    boxes = np.array([[1.0, 2, 30, 40], [50, 50, 60, 60], [80, 80, 90, 90]])
    tokens, (own, other) = described_regions("42", "a dog's ball .", entry, boxes)
    assert tokens == ["a", "dog", "'s", "ball", "."]
    assert own.astype(int).tolist() == [[0, 0, 0], [1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 0]]
    assert other.astype(int).tolist() == [[1, 1, 0], [0, 1, 0], [0, 1, 0], [1, 0, 0], [1, 1, 0]]


@pytest.mark.parametrize("classes", [["dog"], [None, "cat"]])
def test_words_without_a_class_with_detections_are_refused_by_image_and_caption(classes: list[str | None]) -> None:
    entry = EntityCaption(det_sequences=classes, detections={"dog": []})
    with raises(DataError, "wrong-format", row="image 42, 'a dog'"):
        described_regions("42", "a dog", entry, np.zeros((1, 4)))


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_words_are_matched_with_union_nodes_or_with_the_image_alone(tmp_path: Path, similarity: str) -> None:
    made = make_files(tmp_path, variant="faier-object", similarity=similarity)
    metric = Faier(made.resources)
    (products,) = metric.products("street", TEXTS[0], TEXTS[1:3])
    (scores,) = metric.statistics([Item("street", TEXTS[0], TEXTS[1:3])], lambda _: None)
    assert products.shape[:2] == (1, len(TEXTS[0].split()))
    assert products.max(axis=2).mean() == pytest.approx(scores[1], abs=1e-6)
    # FIEr's union nodes are the image's: what it gives for a candidate is what references get before fusion.
    (tmp_path / "fier").mkdir()
    metric = Faier(make_files(tmp_path / "fier", variant="fier-object", similarity=similarity).resources)
    np.testing.assert_allclose(
        metric.products("street", TEXTS[0]), metric.products("street", TEXTS[0], TEXTS[:2]), atol=1e-6
    )


def test_means_are_those_of_loops_over_regions_and_words(made: Files) -> None:
    annotated = entities(made)
    task = WordTask(references=(1, 3), seed=5)
    metric = Faier(made.resources)
    found = region_words(annotated, metric, task, lambda _: None)
    assert found["images"] == 3
    rng = np.random.default_rng(5)
    rng.permutation(3)  # which images are drawn: all of them
    orders = {image: rng.permutation(4).tolist() for image in sorted(annotated)}
    for means in found["means"]:
        sums: dict[tuple[str, bool], list[float]] = {(k, b): [] for k in ("before", "after") for b in (True, False)}
        for image, order in orders.items():
            texts = [TEXTS[place] for place in order]
            references = texts[1 : 1 + means["references"]]
            after, before = (texts[0], references), [(text, None) for text in references]
            for kind, (text, read) in [("after", after), *(("before", words) for words in before)]:
                (products,) = metric.products(image, text, read)
                for row in range(len(text.split())):
                    sums[kind, row == 1].append(float(products[0, row, -1]))
        expected = [np.mean(sums[kind, own]) for kind in ("before", "after") for own in (True, False)]
        np.testing.assert_allclose([means[name] for name in MEANS], expected, rtol=1e-9)
        assert sum(means["pairs"]) == sum(map(len, sums.values()))

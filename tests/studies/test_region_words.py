"""Scores of words that belong to a region, against loops over regions and words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capbench.core.errors import DataError, UsageError
from capbench.core.records import Item
from capbench.features.store import open_store
from capbench.metrics.bleu import Bleu
from capbench.metrics.faier.metric import Faier
from capbench.studies.region_words import MEANS, EntityCaption, matched, read_entities, region_words
from capbench.studies.study import WordTask
from tests.datasets.native_files import write_json
from tests.errors import raises
from tests.metrics.faier.models import Files, make_ensemble, make_files

TEXTS = ("a dog runs on the grass", "two dogs play with a red ball", "the quiet cat", "zebras in a canoe")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return make_files(tmp_path_factory.mktemp("words"), variant="faier-object")


def entities(made: Files) -> dict[str, list[EntityCaption]]:
    """In each caption the second word belongs to the image's last region, and the third to a box far outside."""
    found = {}
    with open_store(made.features) as store:
        for image in ("harbour", "meadow", "street"):
            boxes = store[image].boxes
            assert boxes is not None
            places = {"thing": boxes[-1:].astype(np.float64) + 0.01, "far": np.array([[900.0, 900.0, 950.0, 950.0]])}
            found[image] = [
                EntityCaption(
                    text, [(word, {1: "thing", 2: "far"}.get(k)) for k, word in enumerate(text.split())], places
                )
                for text in TEXTS
            ]
    return found


def test_a_detection_has_the_region_that_overlaps_most_if_by_half() -> None:
    boxes = np.array([[0.0, 0, 10, 10], [0, 0, 10, 8], [20, 20, 30, 30]])
    assert matched(np.array([[0.0, 0, 10, 9.5]]), boxes).tolist() == [0]
    assert matched(np.array([[0.0, 0, 10, 8], [20, 20, 30, 30]]), boxes).tolist() == [1, 2]
    assert matched(np.array([[20.0, 20, 30, 24.9]]), boxes).tolist() == []
    assert matched(np.array([[20.0, 20, 30, 25]]), boxes).tolist() == [2]


CAPTION = "a dog's ball ."
BOXES: dict[str, Any] = {"dog": [[3, [1.0, 2.0, 30.0, 40.0]], [7, [5, 5, 9, 9]]], "ball": [[1, [0, 0, 2, 2]]]}


def entry(**changes: Any) -> dict[str, Any]:
    """A caption's value in the published form."""
    return {
        "det_sequences": [None, "dog", "ball", "_"],
        "noun_chunks": [],
        "detections": BOXES,
        "split": "test",
    } | changes


def test_tokens_have_the_class_of_their_word(tmp_path: Path) -> None:
    (found,) = read_entities(write_json(tmp_path / "e.json", {"42": {CAPTION: entry()}}))["42"]
    tokens = [("a", None), ("dog", "dog"), ("'s", "dog"), ("ball", "ball"), (".", None)]
    assert (found.text, found.tokens) == (CAPTION, tokens)
    assert found.boxes["dog"].tolist() == [[1, 2, 30, 40], [5, 5, 9, 9]]


@pytest.mark.parametrize(
    ("data", "row"),
    [
        ([], None),
        ({"42": []}, "image 42"),
        ({"42": {"a dog": entry()}}, "image 42, 'a dog'"),
        ({"42": {CAPTION: {}}}, f"image 42, '{CAPTION}'"),
        *(
            ({"42": {CAPTION: damaged}}, f"image 42, '{CAPTION}'")
            for damaged in (
                entry(detections={}),
                entry(detections={**BOXES, "dog": [[1, [1, 2]]]}),
                entry(detections={**BOXES, "dog": [5]}),
                entry(detections={**BOXES, "dog": [[1, [1, 2, 3, 10**400]]]}),
                entry(det_sequences=[1, 2, 3, 4]),
            )
        ),
    ],
)
def test_a_damaged_file_is_refused_by_image_and_caption(tmp_path: Path, data: Any, row: str | None) -> None:
    with raises(DataError, "wrong-format", path=tmp_path / "e.json", row=row):
        read_entities(write_json(tmp_path / "e.json", data))


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_the_object_level_is_the_mean_of_the_words_best_products(tmp_path: Path, similarity: str) -> None:
    made = make_files(tmp_path, variant="faier-object", similarity=similarity)
    metric = Faier(made.resources)
    (names, products), *references = metric.region_words("street", TEXTS[0], TEXTS[1:3])
    assert names == TEXTS[0].split()
    (scores,) = metric.statistics([Item("street", TEXTS[0], TEXTS[1:3])], lambda _: None)
    assert products.max(axis=1).mean() == pytest.approx(scores[1], abs=1e-6)
    assert [words for words, _ in references] == [text.split() for text in TEXTS[1:3]]


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_references_are_matched_with_the_image_alone(tmp_path: Path, similarity: str) -> None:
    """FIEr's union nodes are the image's: what it gives for a candidate is what references get before fusion."""
    made = make_files(tmp_path, variant="fier-object", similarity=similarity)
    (_, candidate), (_, same), (_, second) = Faier(made.resources).region_words("street", TEXTS[0], TEXTS[:2])
    np.testing.assert_allclose(same, candidate, atol=1e-6)
    (_, other), _ = Faier(made.resources).region_words("street", TEXTS[1], [TEXTS[0]])
    np.testing.assert_allclose(second, other, atol=1e-6)


def test_an_ensembles_products_are_means(tmp_path: Path) -> None:
    made = make_ensemble(tmp_path, variant="faier-object")
    together = Faier(made.resources).region_words("harbour", TEXTS[0], TEXTS[1:2])
    alone = []
    for seed in (1, 2, 3):
        single = Files(tmp_path / f"{seed}.safetensors", made.features)
        alone.append(Faier(single.resources).region_words("harbour", TEXTS[0], TEXTS[1:2]))
    for place, (_, products) in enumerate(together):
        np.testing.assert_allclose(products, np.mean([words[place][1] for words in alone], axis=0), atol=1e-6)


def test_means_are_those_of_loops_over_regions_and_words(made: Files) -> None:
    annotated = entities(made)
    task = WordTask(references=(1, 3), seed=5)
    metric = Faier(made.resources)
    found = region_words(annotated, metric, task)
    assert found["images"] == 3
    rng = np.random.default_rng(5)
    rng.permutation(3)  # which images are drawn: all of them
    orders = {image: rng.permutation(4).tolist() for image in sorted(annotated)}
    for means in found["means"]:
        sums: dict[tuple[str, bool], list[float]] = {(k, b): [] for k in ("before", "after") for b in (True, False)}
        for image, order in orders.items():
            texts = [TEXTS[place] for place in order]
            after, *before = metric.region_words(image, texts[0], texts[1 : 1 + means["references"]])
            for kind, (names, products) in [("after", after), *(("before", words) for words in before)]:
                for row in range(len(names)):
                    sums[kind, row == 1].append(float(products[row, -1]))
        expected = [np.mean(sums[kind, own]) for kind in ("before", "after") for own in (True, False)]
        np.testing.assert_allclose([means[name] for name in MEANS], expected, rtol=1e-9)
        assert sum(means["pairs"]) == sum(map(len, sums.values()))


def test_what_has_no_words_or_images_is_refused(made: Files) -> None:
    unknown = {"nowhere": entities(made)["street"]}
    with raises(UsageError, "missing-features"):
        region_words(unknown, Faier(made.resources), WordTask())
    with raises(UsageError, "unsupported", value="bleu"):
        region_words(entities(made), Bleu(), WordTask())

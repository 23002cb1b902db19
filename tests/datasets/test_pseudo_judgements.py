"""Candidates and levels of the pseudo-judgements, on invented captions and features."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import DataError
from capbench.core.records import caption_key
from capbench.datasets.pseudo_judgements import KINDS, DrawOptions, draw_candidates, pseudo_levels
from tests.errors import raises

# The draw

ANIMALS = ("dog", "cat", "horse", "bird", "cow", "fish")
ACTS = ("runs", "sleeps", "eats", "jumps", "waits", "hides")
PLACES = ("park", "house", "field", "street", "river", "garden")
OPTIONS = DrawOptions(each=2, look=8, near=8, middle=40)


def drawn_from() -> tuple[dict[str, list[str]], NDArray[np.float64]]:
    """72 images of an animal that does something somewhere; images of one animal look alike."""
    captions: dict[str, list[str]] = {}
    looks = []
    rng = np.random.default_rng(3)
    for number, (animal, act) in enumerate(itertools.product(range(6), range(6))):
        for twin in range(2):
            place = PLACES[(number + twin) % 6]
            captions[f"i{number}{'ab'[twin]}"] = [
                f"A {ANIMALS[animal]} {ACTS[act]} in the {place} {number}{twin}.",
                f"The {ANIMALS[animal]} near a {place} {ACTS[act]} {number}{twin}.",
            ]
            looks.append(4 * np.eye(6)[animal] + 0.1 * rng.normal(size=6) + 10)
    return captions, np.array(looks)


def test_every_image_gets_candidates_of_each_kind_from_other_images() -> None:
    captions, looks = drawn_from()
    items = draw_candidates(captions, looks, OPTIONS)
    assert len(items) == 72 * len(KINDS) * 2
    for image, group in itertools.groupby(items, lambda item: item.image):
        found = list(group)
        assert Counter(item.group for item in found) == dict.fromkeys(KINDS, 2)
        keys = [caption_key(item.candidate) for item in found]
        assert len(set(keys)) == len(keys)
        mine = {caption_key(text) for text in captions[image]}
        assert not mine & set(keys)
        for item in found:
            assert item.references == tuple(captions[image])
            source = item.candidate_id.split("#")[0]
            assert source != image
            assert item.candidate in captions[source]


def test_kinds_are_what_they_are_called() -> None:
    captions, looks = drawn_from()
    items = draw_candidates(captions, looks, OPTIONS)

    def animal(image: str) -> str:
        return captions[image][0].split()[1]

    def share(kind: str) -> float:
        """How many candidates of a kind are of the image's own animal."""
        chosen = [item for item in items if item.group == kind]
        same = [animal(item.image) == animal(item.candidate_id.split("#")[0]) for item in chosen]
        return float(np.mean(same))

    assert share("looks-alike") == 1.0
    assert share("anywhere") < 0.4

    def overlap(kind: str) -> float:
        """How many words candidates of a kind share with the references."""
        words = [(set(i.candidate.split()), set(" ".join(i.references).split())) for i in items if i.group == kind]
        return float(np.mean([len(mine & theirs) for mine, theirs in words]))

    assert overlap("near-text") > overlap("mid-text") > overlap("anywhere")


def test_a_text_of_another_image_that_is_the_images_own_is_no_candidate() -> None:
    captions, looks = drawn_from()
    captions["i1a"] = [text.upper() + "!" for text in captions["i0a"]]
    items = draw_candidates(captions, looks, OPTIONS)
    shared = {caption_key(text) for text in captions["i0a"]}
    for item in items:
        if item.image in ("i0a", "i1a"):
            assert caption_key(item.candidate) not in shared


def test_levels_are_equally_full_and_follow_the_metrics_mean() -> None:
    rng = np.random.default_rng(0)
    truth = rng.normal(size=1000)
    metrics = [truth + 0.3 * rng.normal(size=1000), np.exp(truth) + 0.3 * rng.normal(size=1000)]
    levels = pseudo_levels(metrics)
    assert np.bincount(levels).tolist() == [0, 250, 250, 250, 250]
    means = [truth[levels == level].mean() for level in (1, 2, 3, 4)]
    assert means == sorted(means)
    assert pseudo_levels([np.arange(10.0)], levels=2).tolist() == [1] * 5 + [2] * 5
    with raises(DataError, "too-few"):
        pseudo_levels([np.arange(3.0)])

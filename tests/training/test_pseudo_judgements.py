from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

from capbench.core.errors import DataError, UsageError
from capbench.core.records import caption_key
from scripts.pseudo_judgements import KINDS, PseudoOptions, draw_candidates, normal_scores, pseudo_levels

ANIMALS = ("dog", "cat", "horse", "bird", "cow", "fish")
ACTS = ("runs", "sleeps", "eats", "jumps", "waits", "hides")
PLACES = ("park", "house", "field", "street", "river", "garden")
OPTIONS = PseudoOptions(each=2, look=8, near=8, middle=40)


def made_up() -> tuple[dict[str, list[str]], NDArray[np.float64]]:
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
    captions, looks = made_up()
    items = draw_candidates(captions, looks, OPTIONS)
    assert len(items) == 72 * len(KINDS) * 2
    for image, group in itertools.groupby(items, lambda item: item.image):
        found = list(group)
        assert Counter(item.group for item in found) == dict.fromkeys(KINDS, 2)
        keys = [caption_key(item.candidate) for item in found]
        assert len(set(keys)) == len(keys)
        own = {caption_key(text) for text in captions[image]}
        assert not own & set(keys)
        for item in found:
            assert item.references == tuple(captions[image])
            source = item.candidate_id.split("#")[0]
            assert source != image
            assert item.candidate in captions[source]


def test_kinds_are_what_they_are_called() -> None:
    captions, looks = made_up()
    items = draw_candidates(captions, looks, OPTIONS)

    def animal(image: str) -> str:
        return captions[image][0].split()[1]

    def share(kind: str) -> float:
        """Share of candidates of a kind that show the image's animal."""
        chosen = [item for item in items if item.group == kind]
        same = [animal(item.image) == animal(item.candidate_id.split("#")[0]) for item in chosen]
        return float(np.mean(same))

    assert share("looks-alike") == 1.0
    assert share("anywhere") < 0.4

    def overlap(kind: str) -> float:
        """Mean number of words that candidates of a kind share with the references."""
        words = [(set(i.candidate.split()), set(" ".join(i.references).split())) for i in items if i.group == kind]
        return float(np.mean([len(mine & theirs) for mine, theirs in words]))

    assert overlap("near-text") > overlap("mid-text") > overlap("anywhere")


def test_the_draw_is_decided_by_the_seed() -> None:
    captions, looks = made_up()
    first = draw_candidates(captions, looks, OPTIONS)
    assert first == draw_candidates(captions, looks, OPTIONS)
    other = draw_candidates(captions, looks, PseudoOptions(each=2, look=8, near=8, middle=40, seed=1))
    assert [i.candidate for i in first] != [i.candidate for i in other]


def test_a_text_of_another_image_that_is_the_images_own_is_no_candidate() -> None:
    captions, looks = made_up()
    captions["i1a"] = [text.upper() + "!" for text in captions["i0a"]]
    items = draw_candidates(captions, looks, OPTIONS)
    shared = {caption_key(text) for text in captions["i0a"]}
    for item in items:
        if item.image in ("i0a", "i1a"):
            assert caption_key(item.candidate) not in shared


def test_invalid_arguments_are_an_error() -> None:
    captions, looks = made_up()
    with pytest.raises(DataError, match=r"\(3, 6\)"):
        draw_candidates(captions, looks[:3], OPTIONS)
    with pytest.raises(DataError, match="144"):
        draw_candidates(captions, looks, PseudoOptions(look=72))
    with pytest.raises(UsageError, match="9 "):
        draw_candidates(captions, looks, PseudoOptions(each=9, look=8, near=8, middle=40))
    with pytest.raises(UsageError, match="1 "):
        PseudoOptions(levels=1).check()


def test_normal_scores_keep_the_order_and_forget_the_scale() -> None:
    values = np.array([3.0, -1.0, 100.0, 3.0, 7.0])
    scores = normal_scores(values)
    np.testing.assert_allclose(scores, normal_scores(np.exp(values / 10)))
    assert scores[0] == scores[3]
    assert scores[1] < scores[0] < scores[4] < scores[2]
    assert abs(normal_scores(np.arange(101.0)).mean()) < 1e-12


def test_levels_are_equally_full_and_follow_the_metrics_mean() -> None:
    rng = np.random.default_rng(0)
    truth = rng.normal(size=1000)
    metrics = [truth + 0.3 * rng.normal(size=1000), np.exp(truth) + 0.3 * rng.normal(size=1000)]
    levels = pseudo_levels(metrics)
    assert np.bincount(levels).tolist() == [0, 250, 250, 250, 250]
    means = [truth[levels == level].mean() for level in (1, 2, 3, 4)]
    assert means == sorted(means)
    assert pseudo_levels([np.arange(10.0)], levels=2).tolist() == [1] * 5 + [2] * 5
    with pytest.raises(DataError, match="4 levels"):
        pseudo_levels([np.arange(3.0)])
    with pytest.raises(DataError):
        pseudo_levels([])

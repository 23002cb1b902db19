"""Candidates and levels of the pseudo-judgements, on invented captions and features."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from capbench.core.errors import DataError
from capbench.core.records import Judgements, caption_key
from capbench.datasets.pseudo_judgements import KINDS, DrawOptions, Flickr8kPseudo, draw_candidates, pseudo_levels
from tests.datasets.native_files import five, root, token_text, write
from tests.errors import raises

FEATURES = "flickr8k/mobilenetv2_grid49_pca256_int8.npz"
CAPTIONS = {f"{who}-{where}.jpg": five(f"a {who} {where}") for who in ("dog", "girl", "cat") for where in "abcdefgh"}
NAMES = list(CAPTIONS)


class Few(Flickr8kPseudo):
    """As the real one, drawn from fewer images."""

    draw: ClassVar[DrawOptions] = DrawOptions(each=2, look=4, near=10, middle=60)


def write_features(folder: Path, names: list[str] = NAMES) -> None:
    """Images of one animal look alike: their features share one of three directions."""
    rng = np.random.default_rng(0)
    kinds = np.array([("dog", "girl", "cat").index(name.split("-")[0]) for name in names])
    features = rng.normal(0, 0.1, (len(names), 49, 3)) + np.eye(3)[kinds][:, None]
    (folder / FEATURES).parent.mkdir(parents=True, exist_ok=True)
    np.savez(folder / FEATURES, image_names=np.array(names), features=features.astype(np.float32))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "flickr8k/Flickr8k.token.txt", token_text({**CAPTIONS, "train.jpg": five("a train")}))
    write(tmp_path / "flickr8k/Flickr_8k.devImages.txt", "\n".join(NAMES))
    write_features(tmp_path)
    return tmp_path


def load(folder: Path, selection: str = "all-captions") -> Judgements:
    (judged,) = Few(root(folder)).load(Few.selections[selection])
    return judged


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
        own = {caption_key(text) for text in captions[image]}
        assert not own & set(keys)
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


def test_the_draw_is_decided_by_the_seed() -> None:
    captions, looks = drawn_from()
    first = draw_candidates(captions, looks, OPTIONS)
    assert first == draw_candidates(captions, looks, OPTIONS)
    other = draw_candidates(captions, looks, DrawOptions(each=2, look=8, near=8, middle=40, seed=1))
    assert [i.candidate for i in first] != [i.candidate for i in other]


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

"""Candidates and levels of the pseudo-judgements, on invented captions and features."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from capbench.core.errors import DataError, MissingFileError, UsageError
from capbench.core.records import Judgements, caption_key
from capbench.datasets.opening import group_of
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


def test_every_image_gets_two_captions_of_other_images_of_each_kind(folder: Path) -> None:
    judged = load(folder)
    assert len(judged.items) == 24 * 8
    for place in range(0, len(judged.items), 8):
        of_image = judged.items[place : place + 8]
        assert [item.group for item in of_image] == [kind for kind in KINDS for _ in range(2)]
        assert len({item.image for item in of_image}) == 1
        texts = {caption_key(item.candidate) for item in of_image}
        assert len(texts) == 8
        assert not texts & set(map(caption_key, of_image[0].references))
        alike = [item.candidate_id.split("-")[0] for item in of_image if item.group == "looks-alike"]
        assert set(alike) == {of_image[0].image.split("-")[0]}
    assert not any("train" in item.candidate for item in judged.items)


def test_levels_have_equally_many_items_and_order_what_text_metrics_score(folder: Path) -> None:
    judged = load(folder)
    levels = judged.ratings["pseudo"].value
    assert [int((levels == level).sum()) for level in (1, 2, 3, 4)] == [48] * 4
    assert judged.ratings["pseudo"].scale == (1.0, 4.0)
    near = [level for item, level in zip(judged.items, levels, strict=True) if item.group == "near-text"]
    anywhere = [level for item, level in zip(judged.items, levels, strict=True) if item.group == "anywhere"]
    assert np.mean(near) > np.mean(anywhere)


def test_captions_that_rate_are_not_references(folder: Path) -> None:
    whole, first, last = (load(folder, name) for name in ("all-captions", "first-three-rate", "last-two-rate"))
    for items in zip(whole.items, first.items, last.items, strict=True):
        assert len({item.candidate for item in items}) == 1
        assert items[1].references == items[0].references[3:]
        assert items[2].references == items[0].references[:3]
    assert not np.array_equal(whole.ratings["pseudo"].value, last.ratings["pseudo"].value)


def test_the_own_caption_stands_before_the_candidates_and_wins_every_pair(folder: Path) -> None:
    judged = load(folder, "own-caption")
    pairs = judged.preferences["own"]
    assert len(judged.items) == 24 * 9
    assert len(pairs) == 24 * 8
    assert set(pairs.preferred.tolist()) == {1}
    for first, second in zip(pairs.first, pairs.second, strict=True):
        own, other = judged.items[first], judged.items[second]
        assert own.image == other.image
        assert own.references == other.references == tuple(CAPTIONS[f"{own.image}.jpg"][:-1])
        assert own.candidate == CAPTIONS[f"{own.image}.jpg"][-1]
    with pytest.raises(MissingFileError):
        judged.ratings["pseudo"]
    part = group_of(Few(root(folder)), "near-text")
    (near,) = part.load(part.selections["own-caption"])
    assert len(near.preferences["own"]) == 24 * 2


def test_the_same_files_give_the_same_candidates_and_another_seed_others(folder: Path) -> None:
    looks = np.random.default_rng(1).normal(size=(24, 3))
    options = DrawOptions(2, 4, 10, 60)
    assert draw_candidates(CAPTIONS, looks, options) == draw_candidates(CAPTIONS, looks, options)
    assert draw_candidates(CAPTIONS, looks, options) != draw_candidates(CAPTIONS, looks, DrawOptions(2, 4, 10, 60, 1))


def test_levels_follow_the_mean_of_normal_scores() -> None:
    scores = [np.array([3.0, 1.0, 2.0, 4.0]), np.array([30.0, 10.0, 20.0, 40.0])]
    assert pseudo_levels(scores, 2).tolist() == [2, 1, 1, 2]
    with raises(DataError, "too-few"):
        pseudo_levels([], 4)


def test_files_that_do_not_fit_are_named(folder: Path) -> None:
    with raises(DataError, "too-few"):
        Flickr8kPseudo(root(folder)).load(Flickr8kPseudo.selections["all-captions"])
    write_features(folder, NAMES[:-1])
    with raises(DataError, "missing-image", path=folder / FEATURES, value=NAMES[-1].removesuffix(".jpg")):
        load(folder)
    write(folder / "flickr8k/Flickr8k.token.txt", token_text({**CAPTIONS, NAMES[2]: ["a dog c .", "a dog"]}))
    with raises(DataError, "too-few", path=folder / "flickr8k/Flickr8k.token.txt", value=NAMES[2].removesuffix(".jpg")):
        load(folder)
    with raises(UsageError, "out-of-range"):
        DrawOptions(each=9, look=4).check()

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from capbench.core.errors import DataError, MissingFeaturesError
from capbench.features.shown import (
    ShownStore,
    derangement,
    mean_features,
    mean_from_text,
    mean_to_text,
    partners,
    read_images,
)
from capbench.features.store import open_store
from tests.errors import raises
from tests.metrics.scan.models import write_features

IMAGES = [f"im{number}" for number in range(7)]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write_features(tmp_path / "seven.h5", IMAGES, 4)
    return tmp_path / "seven.h5"


@pytest.mark.parametrize("number", [2, 3, 5, 100])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_derangement_is_a_permutation_without_fixed_points(number: int, seed: int) -> None:
    images = [f"im{place}" for place in range(number)]
    partner_of = derangement(images, seed)
    assert sorted(partner_of) == sorted(partner_of.values()) == sorted(images)
    assert all(image != partner for image, partner in partner_of.items())


def test_a_derangement_depends_on_the_images_and_the_seed_only() -> None:
    # Fixed values: scores under image=shuffled must not change with a version of numpy.
    assert derangement(IMAGES, 1) == derangement([*reversed(IMAGES), "im3"], 1)
    assert [derangement(IMAGES, 1)[image] for image in IMAGES] == EXPECTED
    assert derangement(IMAGES, 1) != derangement(IMAGES, 2)


EXPECTED = ["im1", "im4", "im0", "im5", "im3", "im6", "im2"]


def test_partners_are_of_the_same_groups_and_do_not_depend_on_other_groups() -> None:
    groups = {image: ["8k"] for image in IMAGES[:4]} | {image: ["30k"] for image in IMAGES[4:]}
    partner_of = partners(groups, 1)
    assert {groups[image][0] for image in IMAGES[:4] if partner_of[image] in IMAGES[:4]} == {"8k"}
    assert all(groups[image] == groups[partner] for image, partner in partner_of.items())
    alone = partners({image: ["8k"] for image in IMAGES[:4]}, 1)
    assert alone == {image: partner_of[image] for image in IMAGES[:4]}


def test_a_group_of_one_image_is_shuffled_with_all_others() -> None:
    assert partners({**{image: ["8k"] for image in IMAGES}, "alone": ["coco"]}, 1) == derangement([*IMAGES, "alone"], 1)


def test_a_shuffled_store_shows_the_regions_of_the_partner(store: Path) -> None:
    partner_of = derangement(IMAGES, 1)
    with open_store(store) as own, ShownStore([store], "shuffled", partner_of=partner_of, seed=1) as shown:
        for image, partner in partner_of.items():
            assert shown[image].image == image
            np.testing.assert_array_equal(shown[image].features, own[partner].features)
            assert shown.checksum(image) == own.checksum(partner)
            assert shown.regions(image) == own.regions(partner)
        assert shown.signature().startswith(f"{own.signature()}+shuffled:seed1:7-images:")


def test_signatures_differ_by_kind_seed_and_images(store: Path) -> None:
    def shuffled(images: list[str], seed: int) -> str:
        with ShownStore([store], "shuffled", partner_of=derangement(images, seed), seed=seed) as shown:
            return shown.signature()

    with open_store(store) as own, ShownStore([store], "blank") as blank:
        mean = mean_features(own, IMAGES)
        with ShownStore([store], "mean", vector=mean) as one, ShownStore([store], "mean", vector=2 * mean) as two:
            lines = {own.signature(), one.signature(), two.signature()}
        # The option names blank features; their signature is that of earlier versions.
        assert blank.signature() == own.signature()
    assert len(lines | {shuffled(IMAGES, 1), shuffled(IMAGES, 2), shuffled(IMAGES[:5], 1)}) == 6


def test_mean_features_are_the_mean_over_images_of_the_mean_region(store: Path) -> None:
    with open_store(store) as own:
        expected = np.mean([own[image].features.mean(axis=0) for image in IMAGES[:3]], axis=0)
        mean = mean_features(own, IMAGES[:3])
        with ShownStore([store], "mean", vector=mean) as shown:
            assert shown["im5"].features.shape == own["im5"].features.shape
            assert (shown["im5"].features == mean).all()
            np.testing.assert_array_equal(shown["im5"].boxes, own["im5"].boxes)
        with pytest.raises(MissingFeaturesError):
            mean_features(own, ["im1", "nowhere"])
    np.testing.assert_allclose(mean, expected, rtol=1e-6)
    np.testing.assert_array_equal(mean_from_text(mean_to_text(mean)), mean)


def test_a_list_of_images_is_read_as_ids(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("a/im1.jpg\n\nim2\nim1.jpg\n")
    assert read_images(tmp_path / "list.txt") == ["im1", "im2"]
    (tmp_path / "empty.txt").write_text("\n")
    for name, code in (("empty.txt", "damaged"), ("none.txt", "missing-file")):
        with raises(DataError, code, path=tmp_path / name):
            read_images(tmp_path / name)

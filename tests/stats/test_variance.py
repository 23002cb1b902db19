"""Shares of the variance, against least squares with a column for each source and image."""

from __future__ import annotations

import numpy as np
import pytest

from capbench.stats.variance import share_between, variance_shares


def test_the_share_between_groups_is_that_of_an_analysis_of_variance() -> None:
    rng = np.random.default_rng(0)
    groups = np.array(["a", "b", "b", "c", "c", "c", "d", "d", "d", "d"])
    values = rng.normal(size=10)
    within = sum(((values[groups == name] - values[groups == name].mean()) ** 2).sum() for name in "abcd")
    total = ((values - values.mean()) ** 2).sum()
    assert share_between(values, groups) == pytest.approx(1 - within / total)
    assert share_between(np.ones(4), ["a", "a", "b", "b"]) is None


@pytest.mark.parametrize("kept", [1.0, 0.6], ids=["complete", "incomplete"])
def test_the_rest_is_the_residual_of_least_squares(kept: float) -> None:
    rng = np.random.default_rng(1)
    image, source = (side.ravel() for side in np.meshgrid(np.arange(20), np.arange(4)))
    chosen = rng.random(80) < kept
    image, source = image[chosen], source[chosen]
    values = rng.integers(1, 6, len(image)) + source
    columns = np.hstack([image[:, None] == np.unique(image), source[:, None] == np.unique(source)]).astype(float)
    fitted = columns @ np.linalg.lstsq(columns, values, rcond=None)[0]
    got = variance_shares(values, image.astype(str), source.astype(str))
    total = ((values - values.mean()) ** 2).sum()
    assert got.within == pytest.approx(((values - fitted) ** 2).sum() / total)
    assert (got.captions, got.n_sources, got.n_images) == (len(image), 4, len(np.unique(image)))
    assert got.sources is not None
    assert got.images is not None
    assert got.within is not None
    if kept == 1.0:
        assert got.sources + got.images + got.within == pytest.approx(1)
    assert got.images_by_chance == (got.n_images - 1) / (len(image) - 1)


def test_what_a_design_cannot_show_is_none() -> None:
    one_each = variance_shares([1, 2, 3], ["a", "b", "c"], ["s", "s", "t"])
    assert one_each.sources == pytest.approx(0.75)
    assert (one_each.images, one_each.within) == (None, None)
    assert one_each.source_means == {"s": 1.5, "t": 3.0}
    unknown = variance_shares([1, 2, 3, 4], ["a", "a", "b", "b"], ["s", "", "s", "t"])
    assert (unknown.sources, unknown.n_sources, unknown.images) == (None, 0, 0.8)
    assert unknown.within == pytest.approx(0.2)
    constant = variance_shares([2, 2, 2], ["a", "a", "b"], ["s", "t", "t"])
    assert (constant.sources, constant.images, constant.within) == (None, None, None)

"""Fitting REO's covariance: equals the plain one of all contexts, shrinks as published, and as a command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from capbench.core.errors import DataError, UsageError
from capbench.core.records import FloatArray
from capbench.metrics.grounding import grounding as grounding_source
from capbench.metrics.grounding.grounding import Attention, GroundingSource, attend, contexts, pad
from capbench.metrics.reo import metric as reo
from capbench.metrics.reo.metric import default_path, fit_covariance, oas_shrinkage, read_covariance, write_covariance
from tests.conftest import Ran
from tests.errors import raises
from tests.metrics.grounding.models import Files, make_files, make_items

ITEMS = make_items()
CAPTIONS = {item.image: item.references for item in ITEMS}


@pytest.fixture
def made(tmp_path: Path) -> Files:
    return make_files(tmp_path, list(CAPTIONS))


@pytest.fixture
def source(made: Files) -> GroundingSource:
    return grounding_source.open_source(str(made.features), str(made.model))


def all_contexts(source: GroundingSource, attention: Attention) -> FloatArray:
    found = []
    for image, texts in CAPTIONS.items():
        for text in texts:
            words = pad([source.captions([text])[text]], attention)
            weights, _ = attend(source.regions(image), words, attention)
            found.append(contexts(weights, words)[0])
    return np.concatenate(found)


@pytest.mark.parametrize("attention", [Attention(), Attention(4.0, "l2norm", "relu", count_ends=False)])
def test_it_is_the_covariance_of_all_contexts(
    attention: Attention, source: GroundingSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = all_contexts(source, attention)
    wanted = np.cov(vectors.T, bias=True)
    done: list[int] = []
    whole = fit_covariance(source, CAPTIONS, attention, corpus="invented", progress=done.append)
    assert whole.matrix == pytest.approx(wanted, abs=1e-12)
    assert sum(done) == len(CAPTIONS)
    assert whole.facts["contexts"] == len(vectors)
    monkeypatch.setattr(reo, "_TEXTS_AT_ONCE", 3)
    assert fit_covariance(source, CAPTIONS, attention, corpus="x").matrix == pytest.approx(wanted, abs=1e-12)


def test_shrinkage_is_that_of_chen_and_others() -> None:
    generator = np.random.default_rng(0)
    p, n = 5, 12
    matrix = np.cov(generator.normal(size=(n, p)).T, bias=True)
    trace, square = np.trace(matrix), np.trace(matrix @ matrix)
    wanted = ((1 - 2 / p) * square + trace**2) / ((n + 1 - 2 / p) * (square - trace**2 / p))
    assert oas_shrinkage(matrix, n) == pytest.approx(min(1, wanted))
    assert oas_shrinkage(np.eye(4), 10) == 1.0
    spread = np.diag([100.0, 1.0, 1.0, 1.0])
    assert oas_shrinkage(spread, 10_000) < 1e-3 < oas_shrinkage(spread, 100)


def test_invalid_inputs_of_the_fit(source: GroundingSource) -> None:
    with raises(UsageError, "out-of-range", value=1.5):
        fit_covariance(source, CAPTIONS, Attention(), corpus="x", shrinkage=1.5)
    with raises(DataError, "too-few", value=0):
        fit_covariance(source, {"elsewhere": ("a dog",)}, Attention(), corpus="x")


def test_a_file_comes_back_as_it_was(source: GroundingSource, tmp_path: Path) -> None:
    fitted = fit_covariance(source, CAPTIONS, Attention(), corpus="invented", shrinkage=0.25)
    for name in ("one.npz", "two.npz"):
        write_covariance(tmp_path / name, fitted)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    found = read_covariance(tmp_path / "one.npz")
    assert np.array_equal(found.matrix, fitted.matrix)
    assert found.shrinkage == 0.25
    assert found.facts == fitted.facts


def test_the_command_writes_beside_the_model(capbench: Callable[..., Ran], made: Files, tmp_path: Path) -> None:
    captions = tmp_path / "captions.json"
    captions.write_text(json.dumps({**CAPTIONS, "elsewhere": ["a dog"]}), encoding="utf-8")
    arguments = ("train", "reo-covariance", "--model", made.model, "--features", made.features, "--captions", captions)
    ran = capbench(*arguments)
    assert ran.code == 0, ran.err
    found = read_covariance(default_path(made.model))
    assert found.facts["corpus"] == "captions.json"
    assert found.facts["images"] == len(CAPTIONS)
    assert f"{default_path(made.model)}: " in ran.out
    assert found.sha256[:16] in ran.out
    assert "1 image of captions.json without features" in ran.err
    assert f"capbench score --metric reo --features {made.features} --model reo={made.model}" in ran.err

    listed = tmp_path / "some.txt"
    listed.write_text("\n".join(f"{image}.jpg" for image in sorted(CAPTIONS)[:4]), encoding="utf-8")
    out = tmp_path / "other.npz"
    again = capbench(*arguments, "--images", listed, "--out", out, "--shrinkage", "0.5", "--no-count-ends")
    assert again.code == 0, again.err
    some = read_covariance(out)
    assert (some.facts["images"], some.facts["corpus"], some.shrinkage) == (4, "captions.json/some.txt", 0.5)
    assert some.facts["attention"].endswith("+no-ends")
    listed.write_text("unknown.jpg\n", encoding="utf-8")
    failure = capbench(*arguments, "--images", listed).failure
    assert (failure.code, failure.value, failure.path) == ("unknown-item", "unknown", str(listed))


def test_the_command_refuses_in_one_line(capbench: Callable[..., Ran], made: Files, tmp_path: Path) -> None:
    for model, features, message in (
        (made.model, tmp_path / "gone.h5", "gone.h5: "),
        (tmp_path / "gone.pt", made.features, "gone.pt: "),
    ):
        ran = capbench("train", "reo-covariance", "--model", model, "--features", features, "--captions", "flickr8k")
        assert ran.code == 2
        assert message in ran.err
        assert ran.err.count("\n") == 1


def test_the_shipped_model_keeps_its_covariance(capbench: Callable[..., Ran], made: Files) -> None:
    arguments = ("train", "reo-covariance", "--model", "sample", "--features", made.features)
    ran = capbench(*arguments, "--captions", "flickr8k")
    assert ran.code == 2
    assert (ran.failure.code, ran.failure.value) == ("exists", "sample")


def test_the_place_is_tried_before_anything_is_fitted(
    capbench: Callable[..., Ran], made: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("capbench.metrics.reo.metric.fit_covariance", None)
    arguments = ("train", "reo-covariance", "--model", made.model, "--features", made.features)
    for out, message in (("/dev/null/x.npz", "cannot be written"), (tmp_path, "is a folder, not a file")):
        ran = capbench(*arguments, "--captions", "flickr8k", "--out", out)
        assert ran.code == 2
        assert f"{out}: {message}" in ran.err
    assert not list(tmp_path.glob(".capbench*"))

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from capbench.core.errors import DataError, ModelError, UsageError
from capbench.core.records import FloatArray, Item
from capbench.features.store import open_store
from capbench.metrics.reo import (
    Covariance,
    Reo,
    default_path,
    fit_covariance,
    oas_shrinkage,
    read_covariance,
    reo,
    write_covariance,
)
from capbench.metrics.scan.encode import GroundingOptions, GroundingSource, open_source
from tests.conftest import Ran
from tests.errors import raises
from tests.metrics.scan.models import Files, make_files, make_items, slow_grounding

ITEMS = make_items()
CAPTIONS = {item.image: item.references for item in ITEMS}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Files:
    files = make_files(tmp_path_factory.mktemp("reo"), [item.image for item in ITEMS])
    source = open_source(open_store(files.features), str(files.model))
    write_covariance(default_path(files.model), fit_covariance(source, CAPTIONS, GroundingOptions(), corpus="invented"))
    return files


def statistics(metric: Reo, items: tuple[Item, ...] = ITEMS) -> FloatArray:
    return metric.statistics(items, lambda _: None)


def slow_reo(metric: Reo, item: Item, precision: FloatArray) -> list[float]:
    model = metric.source.model
    regions = model.encode_image(metric.source.store[item.image].features).astype(np.float64)

    def context(text: str) -> FloatArray:
        return slow_grounding(regions, model.encode_captions([text])[text].astype(np.float64))[1]

    def distance(p: FloatArray, q: FloatArray) -> float:
        return float(np.sqrt((p - q) @ precision @ (p - q)))

    def against(truth: FloatArray) -> FloatArray:
        rows = []
        for a, g in zip(candidate, truth, strict=True):
            a_rest = a - (a @ g) / (g @ g) * g
            g_rest = g - (g @ a) / (a @ a) * a
            cosine = (a @ g) / np.linalg.norm(a) / np.linalg.norm(g)
            rows.append((cosine, distance(a, a_rest), distance(g, g_rest)))
        return np.asarray(np.mean(rows, axis=0))

    candidate = context(item.candidate)
    return [*np.mean([against(context(text)) for text in item.references], axis=0), *against(regions)]


@pytest.mark.parametrize("kind", ["identity", "fitted"])
def test_scores_are_the_papers_equations(kind: str, made: Files) -> None:
    metric = Reo(made.resources, covariance=kind)
    found = metric.scores(statistics(metric))
    assert list(found) == list(Reo.columns)
    matrix = read_covariance(default_path(made.model))
    rho = matrix.shrinkage
    fitted = (1 - rho) * matrix.matrix + rho * np.trace(matrix.matrix) / 16 * np.eye(16)
    covariance = np.eye(16) if kind == "identity" else fitted
    precision: FloatArray = np.asarray(np.linalg.inv(covariance), dtype=np.float64)
    for i in (0, 9, 17):
        wanted = slow_reo(metric, ITEMS[i], precision)
        # Encoders work in float32, in other batches here and there.
        assert [found[column][i] for column in Reo.columns] == pytest.approx(wanted, rel=1e-4, abs=1e-6)


def test_a_region_with_a_zero_vector_scores_zero() -> None:
    zero, one = torch.zeros(1, 1, 5), torch.ones(1, 1, 5)
    for candidate, truth in ((zero, one), (one, zero), (zero, zero)):
        assert reo(candidate, truth, torch.eye(5)).tolist() == [[[0, 0, 0]]]


def test_invalid_covariances_are_rejected(made: Files, tmp_path: Path) -> None:
    from capbench.metrics.scan.files import load_scan
    from capbench.metrics.scan.network import Scan
    from capbench.weights.files import write_trained

    other = make_files(tmp_path, ["imagex"])
    model = load_scan(other.model)
    write_trained(other.model, Scan(model.options), model.vocabulary, {})
    with raises(ModelError, "wrong-weights", path=default_path(made.model)):
        Reo(other.resources, covariance_file=str(default_path(made.model)))
    broken = tmp_path / "broken.npz"
    whole = default_path(made.model).read_bytes()
    for damage in (b"", b"no covariance", whole[: len(whole) // 2]):
        broken.write_bytes(damage)
        with raises(ModelError, "wrong-format", path=broken):
            Reo(made.resources, covariance_file=str(broken))
    with raises(UsageError, "conflict"):
        Reo(made.resources, covariance="identity", covariance_file=str(broken))


def test_a_singular_covariance_is_rejected_and_shrinkage_repairs_it() -> None:
    matrix = np.diag([1.0, 2.0, 0.0])
    with raises(ModelError, "undefined", value=0.0):
        Covariance(matrix, 0.0, {"captions": 2}).whitener()
    whitener = Covariance(matrix, 0.1, {"captions": 2}).whitener()
    wanted = np.linalg.inv(0.9 * matrix + 0.1 * np.eye(3))
    assert whitener.T @ whitener == pytest.approx(wanted, rel=1e-12)


@pytest.fixture
def own(tmp_path: Path) -> Files:
    return make_files(tmp_path, list(CAPTIONS))


@pytest.fixture
def source(own: Files) -> GroundingSource:
    return open_source(open_store(own.features), str(own.model))


@pytest.mark.parametrize(
    "options",
    [GroundingOptions(), GroundingOptions(lambda_softmax=4.0, norm="l2norm", clip="relu", count_ends=False)],
)
def test_it_is_the_covariance_of_all_contexts(options: GroundingOptions, source: GroundingSource) -> None:
    vectors = []
    for image, texts in CAPTIONS.items():
        for words in source.captions(texts).values():
            counted = words.astype(np.float64)[0 if options.count_ends else 1 : None if options.count_ends else -1]
            given = (options.norm or "clipped_l2norm", options.lambda_softmax or 9.0, options.clip)
            vectors.append(slow_grounding(source.regions(image), counted, *given)[1])
    found = np.concatenate(vectors)
    done: list[int] = []
    whole = fit_covariance(source, CAPTIONS, options, corpus="invented", progress=done.append)
    assert whole.matrix == pytest.approx(np.cov(found.T, bias=True), abs=1e-12)
    assert sum(done) == len(CAPTIONS)
    assert whole.facts["contexts"] == len(found)


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
        fit_covariance(source, CAPTIONS, GroundingOptions(), corpus="x", shrinkage=1.5)
    with raises(DataError, "too-few", value=0):
        fit_covariance(source, {"elsewhere": ("a dog",)}, GroundingOptions(), corpus="x")


def test_the_command_writes_beside_the_model(capbench: Callable[..., Ran], own: Files, tmp_path: Path) -> None:
    captions = tmp_path / "captions.json"
    captions.write_text(json.dumps({**CAPTIONS, "elsewhere": ["a dog"]}), encoding="utf-8")
    arguments = ("train", "reo-covariance", "--model", own.model, "--features", own.features, "--captions", captions)
    ran = capbench(*arguments)
    assert ran.code == 0, ran.err
    found = read_covariance(default_path(own.model))
    assert found.facts["corpus"] == "captions.json"
    assert found.facts["images"] == len(CAPTIONS)
    assert found.sha256[:16] in ran.out
    assert "1 image of captions.json without features" in ran.err

    listed, out = tmp_path / "some.txt", tmp_path / "other.npz"
    listed.write_text("\n".join(f"{image}.jpg" for image in sorted(CAPTIONS)[:4]), encoding="utf-8")
    again = capbench(*arguments, "--images", listed, "--out", out, "--shrinkage", "0.5", "--no-count-ends")
    assert again.code == 0, again.err
    some = read_covariance(out)
    assert (some.facts["images"], some.facts["corpus"], some.shrinkage) == (4, "captions.json/some.txt", 0.5)
    assert some.facts["attention"].endswith("+no-ends")

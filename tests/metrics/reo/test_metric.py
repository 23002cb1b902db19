"""REO as a metric: the paper's equations, its covariance, sharing with TIGEr, and invalid inputs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capbench.core.errors import CapbenchError, MetricError, MissingFileError, ModelError, UsageError
from capbench.core.records import FloatArray, Item, ScoreColumn
from capbench.metrics.grounding import grounding as grounding_source
from capbench.metrics.grounding.grounding import Attention
from capbench.metrics.needs import Resources
from capbench.metrics.reo.metric import Covariance, Reo, default_path, fit_covariance, read_covariance, write_covariance
from capbench.metrics.requests import resolve_metrics
from capbench.metrics.scoring import score
from capbench.metrics.tiger.metric import Tiger
from tests.errors import raises
from tests.metrics.grounding.models import Files, make_files, make_items
from tests.metrics.grounding.test_vectors import slow_grounding

ITEMS = make_items()
CAPTIONS = {item.image: item.references for item in ITEMS}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """A model with its covariance beside it."""
    files = make_files(tmp_path_factory.mktemp("reo"), [item.image for item in ITEMS])
    source = grounding_source.open_source(str(files.features), str(files.model))
    write_covariance(default_path(files.model), fit_covariance(source, CAPTIONS, Attention(), corpus="invented"))
    return files


@pytest.fixture(autouse=True)
def fresh() -> None:
    """Every test opens models anew, so that counts of work start at 0."""
    grounding_source._open.clear()


def statistics(metric: Reo, items: tuple[Item, ...] = ITEMS) -> FloatArray:
    return metric.statistics(items, lambda _: None)


def slow_reo(metric: Reo, item: Item, precision: FloatArray) -> list[float]:
    """Six columns of one item as the paper's equations stand, region by region."""
    model = metric.source.model
    regions = model.encode_images([metric.source.store[item.image].features])[0].astype(np.float64)

    def context(text: str) -> FloatArray:
        words = model.encode_captions([text])[0].astype(np.float64)
        return slow_grounding(regions, words, Attention())[1]

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


@pytest.mark.parametrize("kind", ["identity", "diagonal", "full", "fitted"])
def test_scores_are_the_papers_equations(kind: str, made: Files) -> None:
    metric = Reo(made.resources, covariance=kind)
    found = metric.scores(statistics(metric))
    assert list(found) == list(Reo.columns)
    matrix = read_covariance(default_path(made.model))
    covariance: FloatArray
    if kind == "identity":
        covariance = np.eye(16)
    elif kind == "diagonal":
        covariance = np.diag(np.diag(matrix.matrix))
    else:
        rho = matrix.shrinkage if kind == "fitted" else 0.0
        covariance = (1 - rho) * matrix.matrix + rho * np.trace(matrix.matrix) / 16 * np.eye(16)
    precision: FloatArray = np.asarray(np.linalg.inv(covariance), dtype=np.float64)
    for i in (0, 9, 17):
        wanted = slow_reo(metric, ITEMS[i], precision)
        # Encoders work in float32, in other batches here and there.
        assert [found[column][i] for column in Reo.columns] == pytest.approx(wanted, rel=1e-4, abs=1e-6)


def test_a_candidate_that_is_the_reference_is_wholly_relevant(made: Files) -> None:
    metric = Reo(made.resources, covariance="identity")
    item = Item(ITEMS[0].image, "a red dog runs", ("a red dog runs",))
    found = metric.scores(statistics(metric, (item,)))
    assert found["reo-relevance"][0] == pytest.approx(1, abs=1e-9)
    assert found["reo-extraness"][0] == pytest.approx(found["reo-omission"][0], abs=1e-9)


def test_many_captions_and_references_are_worked_on_in_parts(made: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    from capbench.metrics.grounding import grounding
    from capbench.metrics.reo import metric as reo
    from capbench.weights import encodings

    wanted = statistics(Reo(made.resources))
    monkeypatch.setattr(grounding, "_AT_ONCE", 2)
    monkeypatch.setattr(reo, "_WHITENED_AT_ONCE", 2)
    monkeypatch.setattr(encodings, "_PROCESS", encodings._Store(500))
    assert statistics(Reo(made.resources)) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("kind", ["identity", "diagonal", "fitted"])
@pytest.mark.parametrize("ends", [True, False])
def test_long_captions_have_the_same_scores(
    kind: str, ends: bool, made: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    from capbench.metrics.grounding import grounding
    from capbench.metrics.reo import metric as reo

    items = tuple(
        Item(ITEMS[0].image, "a dog " * (n // 2) + "cat" * (n % 2), ("the red ball", "two men " * 70)) for n in range(9)
    )
    metric = Reo(made.resources, covariance=kind, count_ends=ends)
    wanted = statistics(metric, items)
    assert wanted[0, 1:] == pytest.approx(statistics(metric, items[:1])[0, 1:], rel=1e-9)
    for module in (grounding, reo):
        monkeypatch.setattr(module, "LONG", 4)
    found = statistics(Reo(made.resources, covariance=kind, count_ends=ends), items)
    assert found == pytest.approx(wanted, rel=1e-9, abs=1e-12)


def test_batches_and_order_change_nothing(made: Files) -> None:
    wanted = statistics(Reo(made.resources))
    metric = Reo(made.resources)
    order = np.random.default_rng(0).permutation(len(ITEMS))
    found = np.empty_like(wanted)
    for start in range(0, len(order), 9):
        part = order[start : start + 9]
        found[part] = metric.statistics([ITEMS[i] for i in part], lambda _: None)
    assert found == pytest.approx(wanted, rel=1e-10)


def test_it_shares_the_encoding_with_tiger(made: Files) -> None:
    requests = resolve_metrics(["tiger", "reo"])
    table = score(ITEMS, requests, made.resources, dataset="invented", cache=False)
    assert len(table.values) == 10
    (source,) = grounding_source._open.values()
    encode = source.model.vocabulary.encode
    distinct = {tuple(encode(text)) for item in ITEMS for text in (item.candidate, *item.references)}
    assert source.encoded_captions == len(distinct)
    assert source.encoded_images == len({item.image for item in ITEMS})
    assert Tiger(made.resources).source is Reo(made.resources).source


def test_without_references_the_image_alone_is_compared_with(made: Files) -> None:
    bare = tuple(dataclasses.replace(item, references=()) for item in ITEMS)
    full, alone = (statistics(Reo(made.resources), items) for items in (ITEMS, bare))
    assert alone[:, 4:] == pytest.approx(full[:, 4:], rel=1e-10)
    table = score(bare, resolve_metrics(["reo-image-omission"]), made.resources, dataset="invented")
    assert np.isfinite(table.values[ScoreColumn("reo", "reo-image-omission")]).all()
    with raises(MetricError, "not-a-number"):
        score(bare, resolve_metrics(["reo"]), made.resources, dataset="invented")


def test_captions_at_the_edge_have_finite_scores(made: Files) -> None:
    edge = tuple(
        Item(ITEMS[0].image, text, references)
        for text in ("", "zzz qqq", "a " * 300)
        for references in (("a dog",), ("",), ("", "a dog", "a dog"))
    )
    for options in ({}, {"count_ends": False}, {"covariance": "identity", "count_ends": False}):
        metric = Reo(made.resources, **options)
        found = metric.scores(statistics(metric, edge))
        assert all(np.isfinite(values).all() for values in found.values())
        if not options.get("count_ends", True):
            assert found["reo-image-omission"][0] == 0  # no words: no context


def test_the_signature_names_the_covariance(made: Files) -> None:
    signature = Reo(made.resources).signature()
    found = read_covariance(default_path(made.model))
    assert f"S:fitted+invented+{sum(map(len, CAPTIONS.values()))}-captions+shrinkage" in signature
    assert found.sha256[:16] in signature
    of_model, of_covariance = Reo(made.resources).training_records()
    assert of_model.missing == (made.model.name,)
    assert of_covariance.photographs is not None
    assert of_covariance.photographs.has_photographs([*CAPTIONS]).all()
    assert [one.name for one in Reo(made.resources, covariance="identity").training_records()] == [made.model.name]
    assert "|S:identity|" in Reo(made.resources, covariance="identity").signature()
    signatures = {
        Reo(made.resources, **options).signature()
        for options in ({}, {"covariance": "full"}, {"clip": "relu"}, {"lambda_softmax": 4}, {"count_ends": False})
    }
    assert len(signatures) == 5


def error_of(resources: Resources, **options: Any) -> CapbenchError:
    with pytest.raises(CapbenchError) as caught:
        Reo(resources, **options)
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_model_without_covariance_says_which_command_makes_one(tmp_path: Path) -> None:
    files = make_files(tmp_path, ["imagex"])
    error = error_of(files.resources)
    command = f"'capbench train reo-covariance --model {files.model} --features {files.features} --captions NAME'"
    assert isinstance(error, MetricError)
    assert command in str(error)
    assert "reo.covariance=identity" in str(error)
    assert Reo(files.resources, covariance="identity").signature()
    names = [request.metric.name for request in resolve_metrics(["all"], resources=files.resources)]
    assert "tiger" in names
    assert "reo" not in names
    given = resolve_metrics(["all"], {"reo": {"covariance": "identity"}}, files.resources)
    assert "reo" in [request.metric.name for request in given]


def test_invalid_covariances_are_rejected(made: Files, tmp_path: Path) -> None:
    from capbench.metrics.grounding.scan import Scan
    from capbench.metrics.grounding.scan_files import load_scan, save_scan

    other = make_files(tmp_path, ["imagex"])
    model = load_scan(other.model)
    save_scan(other.model, Scan(model.options), model.vocabulary, {})
    error = error_of(other.resources, covariance_file=str(default_path(made.model)))
    assert isinstance(error, ModelError)
    assert (error.code, error.path) == ("wrong-weights", str(default_path(made.model)))
    assert isinstance(error_of(made.resources, covariance_file="nowhere.npz"), MissingFileError)
    broken = tmp_path / "broken.npz"
    whole = default_path(made.model).read_bytes()
    for damage in (b"", b"no covariance", whole[: len(whole) // 2]):
        broken.write_bytes(damage)
        error = error_of(made.resources, covariance_file=str(broken))
        assert isinstance(error, ModelError)
        assert (error.code, error.path) == ("wrong-format", str(broken))
    assert isinstance(error_of(made.resources, covariance="round"), UsageError)
    assert error_of(made.resources, covariance="identity", covariance_file="x.npz").code == "conflict"


@pytest.mark.parametrize("kind", ["full", "diagonal"])
def test_a_singular_covariance_is_rejected_and_shrinkage_repairs_it(kind: str) -> None:
    matrix = np.diag([1.0, 2.0, 0.0])
    covariance = Covariance(matrix, 0.1, {"captions": 2})
    with raises(ModelError, "undefined", value=kind):
        covariance.whitener(kind)
    whitener = covariance.whitener("fitted")
    wanted = np.linalg.inv(0.9 * matrix + 0.1 * np.eye(3))
    assert whitener.T @ whitener == pytest.approx(wanted, rel=1e-12)

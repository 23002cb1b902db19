from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from capbench.core.errors import FeatureError, MetricError, ModelError, UsageError
from capbench.core.explanations import Matrix, RegionMaps, Subject
from capbench.core.records import Item
from capbench.features.store import open_store
from capbench.metrics.needs import Resources
from capbench.metrics.requests import resolve_metrics
from capbench.metrics.vilbert.files import load_vilbert, save_vilbert
from capbench.metrics.vilbert.metric import TASKS, ViLBERTScore
from capbench.weights.ensembles import write_ensemble
from tests.errors import raises
from tests.metrics.vilbert.models import OPTIONS, PIECES, SIZE, write_model, write_store
from tests.metrics.vilbert.plain import TINY, arrays, random_state
from tests.metrics.vilbert.plain_score import PlainScorer

pytestmark = pytest.mark.usefixtures("one_thread")

LONG = "the dog runs on the grass in a park . a man eats two balls ." + " a red ball" * 9  # 43 pieces
EDGE = " ".join(["dog"] * 34 + ["cat"])  # 35 pieces: [SEP] is the 37th
OVER = " ".join(["dog"] * 35 + ["cat"])  # 36 pieces: no [SEP], and the last is not matched
ITEMS = (
    Item("a", "a dog runs on the grass .", ("the dog runs in a park", "dogs running", "A red ball", "a", "cat", "dog")),
    Item("a", "two balls", ("the dog runs in a park", "dogs running")),
    Item("b", "a dog runs on the grass .", ("the dog runs in a park", "two men", LONG)),
    Item("b", LONG, ("a cat sits", LONG, EDGE)),
    Item("one", OVER, (EDGE, "a dog")),
    Item("one", EDGE, (OVER, "a cat")),
    Item("one", "", ("a dog",)),
)  # fmt: skip
CONFIG = TINY | {"vocab_size": len(PIECES)}
SEEN: dict[int, dict[Any, Any]] = {}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("vilbert")
    (made / "vocab.txt").write_text("\n".join(PIECES.pieces) + "\n")
    (made / "config.json").write_text(json.dumps(CONFIG))
    torch.save(random_state(CONFIG), made / "released.bin")
    torch.save(random_state(CONFIG, tasks=0), made / "pretrained.bin")
    (made / "stores").mkdir()
    write_store(made / "stores" / "many.h5", ["a", "b"])
    write_store(made / "stores" / "one.h5", ["one"], n=1)
    write_model(made / "own.safetensors")
    return made


def _metric(folder: Path, model: str = "released.bin", store: str = "stores", **options: Any) -> ViLBERTScore:
    return ViLBERTScore(Resources(features=str(folder / store), model=str(folder / model)), **options)


def _scores(metric: ViLBERTScore, items: tuple[Item, ...] = ITEMS) -> dict[str, np.ndarray[Any, Any]]:
    metric.prepare(items)
    return metric.scores(metric.statistics(items, lambda _: None))


def _expected(folder: Path, tasks: int, reduce: Any = np.mean, first: int | None = None, **choices: Any) -> Any:
    texts = sorted({(item.image, text) for item in ITEMS for text in item.references[:first]})
    state = arrays(random_state(CONFIG, tasks))
    scorer = PlainScorer(state, CONFIG, PIECES, [text for _, text in texts], SEEN.setdefault(tasks, {}))
    rows = []
    with open_store(folder / "stores") as store:
        for item in ITEMS:
            regions = store[item.image]
            assert regions.boxes is not None
            place = (regions.features.astype(float), regions.boxes.astype(float), (regions.width, regions.height))
            of_item = [scorer.score(item.candidate, text, *place, **choices) for text in item.references[:first]]
            rows.append(reduce(of_item, axis=0))
    return np.array(rows)


def _check(scores: dict[str, np.ndarray[Any, Any]], expected: Any, suffix: str = "") -> None:
    for place, letter in enumerate("prf"):
        np.testing.assert_allclose(scores[f"vilbertscore-{letter}{suffix}"], expected[:, place], atol=1e-5)


@pytest.mark.parametrize("special", ["released", "bertscore"])
@pytest.mark.parametrize("padding", ["released", "masked"])
@pytest.mark.parametrize("idf", ["none", "released", "corrected"])
@pytest.mark.parametrize("task", ["none", "visual-entailment"])
def test_scores_are_those_of_a_plain_implementation(
    folder: Path, special: str, padding: str, idf: str, task: str
) -> None:
    metric = _metric(folder, task=task, special_tokens=special, padding=padding, idf=idf)
    number = 13 if task != "none" else None
    expected = _expected(folder, 20, layer=3, task=number, special=special, padding=padding, idf=idf)
    _check(_scores(metric), expected)


def test_layers_have_columns_and_are_those_of_a_plain_implementation(folder: Path) -> None:
    metric = _metric(folder, "pretrained.bin", layer="1-3")
    scores = _scores(metric)
    assert list(scores) == [f"vilbertscore-{letter}-{layer}" for layer in (1, 2, 3) for letter in "fpr"]
    for layer in (1, 2, 3):
        _check(scores, _expected(folder, 0, layer=layer), f"-{layer}")
    single = _scores(_metric(folder, "pretrained.bin", layer=2))
    np.testing.assert_allclose(single["vilbertscore-f"], scores["vilbertscore-f-2"], atol=1e-6)


def test_references_are_averaged_or_the_best_counts_or_the_first_five(folder: Path) -> None:
    task = {"task": TASKS["retrieval-coco"]}
    _check(_scores(_metric(folder, reduce="max")), _expected(folder, 20, np.max, layer=3, **task))
    _check(_scores(_metric(folder, references="first-5")), _expected(folder, 20, layer=3, first=5, **task))
    assert len(ITEMS[0].references) > 5


def test_the_task_is_that_of_the_released_run_where_weights_know_tasks(folder: Path) -> None:
    assert _metric(folder).task == 7
    assert _metric(folder, "pretrained.bin").task is None
    assert _metric(folder, task="none").task is None
    assert _metric(folder, task="retrieval-flickr30k").task == 8
    signature = _metric(folder, device="cpu").signature()
    assert all(
        f"|{key}" in signature for key in ("model:vilbert-", "pieces:", "features:x152-fpn", "layer:3", "task:7|")
    )
    assert "|task:none|" in _metric(folder, "pretrained.bin").signature()
    with raises(UsageError, "out-of-range", value="visual-entailment"):
        _metric(folder, "pretrained.bin", task="visual-entailment")


def test_an_ensemble_is_the_mean_of_its_networks(folder: Path) -> None:
    paths = [folder / f"{seed}.safetensors" for seed in (1, 2)]
    for seed, path in enumerate(paths, 1):
        write_model(path, seed)
    write_ensemble(folder / "both.json", [load_vilbert(path) for path in paths])
    single = [_scores(_metric(folder, path.name))["vilbertscore-f"] for path in paths]
    assert np.abs(single[0] - single[1]).max() > 1e-3
    both = _metric(folder, "both.json")
    np.testing.assert_allclose(_scores(both)["vilbertscore-f"], np.mean(single, axis=0), atol=1e-6)
    assert "model:mean-of-2+" in both.signature()
    write_model(paths[1], 2, dataclasses.replace(OPTIONS, tasks=0))
    with raises(ModelError, "changed", path=paths[1]):
        _metric(folder, "both.json")


def test_invalid_layers_are_rejected(folder: Path) -> None:
    for layer in ("0", 0, "4-2", "4-2x", "1,1", "", True, "-1", 1.5, "100"):
        with raises(UsageError, "wrong-value", value=layer):
            resolve_metrics(["vilbertscore"], {"vilbertscore": {"layer": layer}})
    with raises(UsageError, "out-of-range", value=6) as caught:
        _metric(folder, layer="all")
    assert "vilbertscore.layer=1-3" in str(caught.value)


@pytest.mark.parametrize(
    ("model", "store", "error", "value"),
    [
        ("released.bin", {"detector": "grid:resnet50"}, FeatureError, "grid:resnet50"),
        ("trained.safetensors", {"detector": "other"}, FeatureError, None),
        ("released.bin", {"boxes": False}, FeatureError, None),
        ("released.bin", {"size": SIZE - 1}, ModelError, SIZE - 1),
    ],
)
def test_other_features_are_rejected(
    folder: Path, model: str, store: dict[str, Any], error: type[FeatureError], value: object
) -> None:
    own = load_vilbert(folder / "own.safetensors")
    kind = open_store(folder / "stores" / "many.h5").fingerprint.kind
    save_vilbert(folder / "trained.safetensors", own.network, own.vocabulary, {"features": kind})
    write_store(folder / "other.h5", ["a"], **store)
    with raises(error, "wrong-features") as caught:
        _metric(folder, model, "other.h5")
    assert value in (None, caught.value.value)
    if "detector" in store:
        assert "|any_features:true" in _metric(folder, model, "other.h5", any_features=True).signature()
    _metric(folder, model)
    write_store(folder / "imported.h5", ["a"], detector="unknown")
    _metric(folder, store="imported.h5")
    _metric(folder, "own.safetensors", "imported.h5")  # its training features are unknown


EXPLAINED = (Item("a", "a dog runs", ("the dog runs in a park", "a red ball")), Item("a", "", ("a",)))
SUBJECT = Subject("a", EXPLAINED, (3.0, None))


@pytest.fixture
def resources(tmp_path: Path) -> Resources:
    write_store(tmp_path / "store.h5", ["a"])
    write_model(tmp_path / "model.safetensors")
    return Resources(features=str(tmp_path / "store.h5"), model=str(tmp_path / "model.safetensors"))


def test_matches_are_those_of_the_score(resources: Resources) -> None:
    metric = ViLBERTScore(resources, layer="2,3", task="none")
    explanation = metric.explain(SUBJECT)
    explained, empty = explanation.candidates
    *matches, attention = explained.panels
    of_references = []
    for panel in matches:
        assert isinstance(panel, Matrix)
        assert panel.rows == ("a", "dog", "runs")
        assert panel.marked == tuple(enumerate(panel.values.argmax(axis=1).tolist()))
        # Both texts are shorter than the padding.
        p, r = (np.maximum(panel.values.max(axis=axis), 0.0).mean() for axis in (1, 0))
        of_references.append(2 * p * r / (p + r))
    assert len(of_references) == 2
    assert explained.scores["vilbertscore-f-3"] == pytest.approx(np.mean(of_references), abs=1e-6)
    assert isinstance(attention, RegionMaps)
    assert attention.values.shape == (3, 6)
    assert (attention.values.sum(axis=1) < 1).all()  # the mean of all regions gets the rest
    assert (empty.panels, empty.scores["vilbertscore-f-3"]) == ((), 0)
    assert explanation.signature == metric.signature()


def test_metrics_without_a_single_matching_are_rejected(resources: Resources, tmp_path: Path) -> None:
    with raises(MetricError, "conflict", value="corrected"):
        ViLBERTScore(resources, idf="corrected").explain(SUBJECT)
    bare = Subject("a", (Item("a", "a dog", ()),), (None,))
    with raises(MetricError, "missing-references", value="a"):
        ViLBERTScore(resources).explain(bare)
    write_model(tmp_path / "other.safetensors", 1)
    networks = [load_vilbert(tmp_path / f"{name}.safetensors") for name in ("model", "other")]
    write_ensemble(tmp_path / "both.json", networks)
    ensemble = ViLBERTScore(Resources(features=resources.features, model=str(tmp_path / "both.json")))
    with raises(UsageError, "unsupported", value=2):
        ensemble.explain(SUBJECT)

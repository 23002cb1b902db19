from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from capbench.core.errors import UsageError
from capbench.core.explanations import Matrix, RegionMaps, Subject, WeightedWords
from capbench.core.records import Item
from capbench.metrics.needs import Resources
from capbench.metrics.vilbertscore.explain import ViLBERTScoreCandidate, _attention_maps
from capbench.metrics.vilbertscore.files import load_vilbert
from capbench.metrics.vilbertscore.metric import ViLBERTScore
from capbench.weights.ensembles import write_ensemble
from tests.errors import raises
from tests.metrics.vilbertscore.models import write_model, write_store

pytestmark = pytest.mark.usefixtures("one_thread")

ITEMS = (Item("a", "a dog runs", ("the dog runs in a park", "a red ball")), Item("a", "", ("a",)))
SUBJECT = Subject("a", ITEMS, (3.0, None))


@pytest.fixture
def resources(tmp_path: Path) -> Resources:
    write_store(tmp_path / "store.h5", ["a"])
    write_model(tmp_path / "model.safetensors")
    return Resources(features=str(tmp_path / "store.h5"), model=str(tmp_path / "model.safetensors"))


def test_matches_are_those_of_the_score(resources: Resources) -> None:
    metric = ViLBERTScore(resources, layer="2,3", task="none")
    explanation = metric.explain(SUBJECT)
    details = explanation.candidates[0].details
    assert isinstance(details, ViLBERTScoreCandidate)
    assert details.words == ("a", "dog", "runs")
    assert details.layer == 3
    assert len(details.references) == 2
    for reference in details.references:
        assert reference.similarity.shape == (len(details.words), len(reference.words))
        assert reference.matched == tuple(reference.similarity.argmax(axis=1).tolist())
        assert reference.matched_back == tuple(reference.similarity.argmax(axis=0).tolist())
        best = np.maximum(reference.similarity.max(axis=1), 0.0)  # both texts are shorter than the padding
        assert reference.precision == pytest.approx(best.mean(), abs=1e-6)
    mean = np.mean([reference.f for reference in details.references])
    assert details.scores["vilbertscore-f-3"] == pytest.approx(mean, abs=1e-6)
    assert details.attention.shape == (len(details.words), 6)
    assert (details.attention.sum(axis=1) < 1).all()  # the mean of all regions gets the rest
    kinds = [type(panel) for panel in explanation.candidates[0].panels]
    assert kinds.count(Matrix) == 2
    assert WeightedWords in kinds
    assert RegionMaps in kinds
    assert explanation.signature == metric.signature()


def test_a_word_without_attention_has_no_outlined_region(resources: Resources) -> None:
    details = ViLBERTScore(resources, task="none").explain(SUBJECT).candidates[0].details
    assert isinstance(details, ViLBERTScoreCandidate)
    details.attention[1] = 0.0
    tops = [region_map.top for region_map in _attention_maps(details, tuple("123456")).maps]
    best = [(int(weights.argmax()),) for weights in details.attention]
    assert tops == [best[0], (), best[2]]


def test_a_candidate_without_words_is_told_of(resources: Resources) -> None:
    explained = ViLBERTScore(resources, task="none").explain(SUBJECT).candidates[1]
    assert isinstance(explained.details, ViLBERTScoreCandidate)
    assert explained.details.words == ()
    assert explained.details.scores["vilbertscore-f"] == 0


def test_the_task_s_token_is_one_of_the_words(resources: Resources) -> None:
    details = ViLBERTScore(resources, task=8).explain(SUBJECT).candidates[0].details
    assert isinstance(details, ViLBERTScoreCandidate)
    assert details.words[:2] == ("[TASK]", "a")


def test_metrics_without_a_single_matching_are_rejected(resources: Resources, tmp_path: Path) -> None:
    with raises(UsageError, "unsupported", value="corrected"):
        ViLBERTScore(resources, idf="corrected").explain(SUBJECT)
    bare = Subject("a", (Item("a", "a dog", ()),), (None,))
    with raises(UsageError, "missing-references", value="a dog"):
        ViLBERTScore(resources).explain(bare)
    write_model(tmp_path / "other.safetensors", 1)
    networks = [load_vilbert(tmp_path / f"{name}.safetensors") for name in ("model", "other")]
    write_ensemble(tmp_path / "both.json", networks)
    ensemble = ViLBERTScore(Resources(features=resources.features, model=str(tmp_path / "both.json")))
    with raises(UsageError, "unsupported", value=2):
        ensemble.explain(SUBJECT)

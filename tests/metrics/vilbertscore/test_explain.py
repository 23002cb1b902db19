from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from capbench.core.errors import UsageError
from capbench.core.explanations import Matrix, RegionMaps, Subject
from capbench.core.records import Item
from capbench.metrics.needs import Resources
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
    candidate = explanation.candidates[0]
    *matrices, attention = candidate.panels
    assert "from layer 3" in explanation.notes[0]
    assert len(matrices) == 2
    f = []
    for matrix in matrices:
        assert isinstance(matrix, Matrix)
        assert matrix.rows == ("a", "dog", "runs")
        assert matrix.marked == tuple(enumerate(matrix.values.argmax(axis=1).tolist()))
        precision, recall = (np.maximum(matrix.values.max(axis=axis), 0.0).mean() for axis in (1, 0))
        f.append(2 * precision * recall / (precision + recall))  # both texts are shorter than the padding
    assert candidate.scores["vilbertscore-f-3"] == pytest.approx(np.mean(f), abs=1e-6)
    assert isinstance(attention, RegionMaps)
    assert attention.values.shape == (3, 6)
    assert (attention.values.sum(axis=1) < 1).all()  # the mean of all regions gets the rest
    assert explanation.signature == metric.signature()
    empty = explanation.candidates[1]
    assert (empty.panels, empty.scores["vilbertscore-f-3"]) == ((), 0)


def test_the_task_s_token_is_one_of_the_words(resources: Resources) -> None:
    first = ViLBERTScore(resources, task=8).explain(SUBJECT).candidates[0].panels[0]
    assert first.rows[:2] == ("[TASK]", "a")


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

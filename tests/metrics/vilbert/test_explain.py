from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from capbench.core.errors import MetricError, UsageError
from capbench.core.explanations import Matrix, RegionMaps, Subject
from capbench.core.records import Item
from capbench.metrics.needs import Resources
from capbench.metrics.vilbert.files import load_vilbert
from capbench.metrics.vilbert.metric import ViLBERTScore
from capbench.weights.ensembles import write_ensemble
from tests.errors import raises
from tests.metrics.vilbert.models import write_model, write_store

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

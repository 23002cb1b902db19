from __future__ import annotations

import json

import pytest

from capbench.core.files import sha256_file
from capbench.features.detectors.base import load_detector
from capbench.metrics.reo import default_path, read_covariance
from capbench.metrics.scan.files import load_scan
from capbench.metrics.vilbert.files import load_vilbert
from capbench.weights.registry import locate


@pytest.mark.parametrize(("metric", "most"), [("tiger", 2_000_000), ("vilbertscore", 500_000)])
def test_the_card_is_of_these_weights(metric: str, most: int) -> None:
    path = locate("sample", metric)
    card = json.loads(path.with_suffix(".json").read_text())
    assert card["sha256"] == sha256_file(path)
    assert path.stat().st_size == card["bytes"] <= most
    if metric == "tiger":
        model = load_scan(path)
        assert len(model.vocabulary) == card["words"]
        assert read_covariance(default_path(path)).facts["model"] == model.sha256
    else:
        vilbert = load_vilbert(path)
        assert (len(vilbert.vocabulary), vilbert.training["steps"]) == (card["pieces"], card["steps"])
        assert vilbert.features == load_detector("sample").fingerprint().kind

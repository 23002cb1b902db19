"""The grounding model that comes with capbench: it is the one of its card, and it knows the sample's scenes."""

from __future__ import annotations

import json

from capbench.core.files import sha256_file
from capbench.metrics.reo import default_path, read_covariance
from capbench.metrics.scan.files import load_scan
from capbench.weights.registry import locate
from tests.metrics.conftest import HeldOut


def test_the_card_is_of_these_weights() -> None:
    path = locate("sample")
    card = json.loads(path.with_suffix(".json").read_text())
    assert card["sha256"] == sha256_file(path)
    assert path.stat().st_size == card["bytes"] <= 2_000_000
    model = load_scan(path)
    assert len(model.vocabulary) == card["words"]
    assert read_covariance(default_path(path)).facts["model"] == model.sha256


def test_held_out_pictures_own_captions_score_above_others(held_out: HeldOut) -> None:
    wins = held_out.wins("tiger", "reo")
    for column in ("tiger", "wds", "grounding", "reo-relevance", "reo-omission"):
        assert wins[column] > 0.7, column

"""The ViLBERT that comes with capbench: it is the one of its card, and it knows the sample's scenes."""

from __future__ import annotations

import json

from capbench.core.files import sha256_file
from capbench.features.detectors.base import load_detector
from capbench.metrics.vilbert.files import load_vilbert
from capbench.weights.registry import locate
from tests.metrics.conftest import HeldOut


def test_the_card_is_of_these_weights() -> None:
    path = locate("sample", "vilbertscore")
    card = json.loads(path.with_suffix(".json").read_text())
    assert card["sha256"] == sha256_file(path)
    assert path.stat().st_size == card["bytes"] <= 500_000
    model = load_vilbert(path)
    assert len(model.pieces) == card["pieces"]
    assert model.training["steps"] == card["steps"]
    assert model.features == load_detector("sample").fingerprint().kind


def test_held_out_pictures_own_captions_score_above_others(held_out: HeldOut) -> None:
    wins = held_out.wins("vilbertscore")
    for column in ("vilbertscore-f", "vilbertscore-p", "vilbertscore-r"):
        assert wins[column] > 0.7, column

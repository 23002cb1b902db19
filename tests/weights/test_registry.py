from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
import torch

from capbench.core.errors import ModelError
from capbench.features.detectors.base import names
from capbench.weights import registry
from tests.errors import raises


@pytest.fixture(autouse=True)
def models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("CAPBENCH_MODELS", str(tmp_path / "models"))
    return tmp_path / "models"


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "download.pth"
    torch.save({"x": torch.ones(3)}, path)
    return path


def test_every_entry_says_where_from_and_under_which_terms() -> None:
    used = {name for entry in registry.entries().values() for name in entry.used_by}
    detectors = {"bottom-up-hf", "bottom-up-caffe", "x152-fpn", "torchvision-frcnn"}
    metrics = {"tiger", "reo", "vilbertscore", "clipscore", "pac-s", "bertscore", "bert-tbr"}
    assert used == detectors | metrics
    assert used - metrics < set(names())
    for entry in registry.entries().values():
        assert entry.page.startswith("https://")
        assert entry.terms
        if digits := re.search(r"-([0-9a-f]{8})\.pth$", entry.file):
            assert entry.sha256_prefix == digits.group(1)


def test_a_file_that_differs_from_what_others_report_is_taken_and_that_is_said(weights: Path, models: Path) -> None:
    observed = registry.entry("clip-vit-b32").sha256_observed
    assert observed is not None
    assert registry.entry("clip-vit-b32").expected is None
    done = registry.add("clip-vit-b32", weights)
    assert (done.state, done.official) == ("here", False)
    assert done.remark is not None
    assert observed in done.remark
    assert registry.find_weights("clipscore") == models / "clip-vit-b32" / "pytorch_model.bin"


def test_a_file_without_official_hash_is_recorded_and_guarded(weights: Path, models: Path) -> None:
    assert registry.status("x152-fpn").state == "missing"
    done = registry.add("x152-fpn", weights)
    file = models / "x152-fpn" / "detectron_model.pth"
    assert done.state == "here"
    assert not done.official
    assert file.read_bytes() == weights.read_bytes()
    assert registry.find_weights("x152-fpn") == file
    other = weights.with_name("other.pth")
    torch.save({"x": torch.zeros(3)}, other)
    with raises(ModelError, "exists", path=file, value=done.sha256):
        registry.add("x152-fpn", other)
    file.write_bytes(b"something else")
    assert registry.status("x152-fpn").state == "wrong"
    with raises(ModelError, "wrong-weights", path=file, value=hashlib.sha256(b"something else").hexdigest()) as caught:
        registry.find_weights("x152-fpn")
    assert str(done.sha256) in caught.value.message

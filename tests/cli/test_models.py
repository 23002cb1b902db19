from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from capbench.weights import registry
from tests.conftest import Ran
from tests.http_server import Server


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("CAPBENCH_MODELS", str(tmp_path / "models"))
    return tmp_path / "models"


def test_list_names_every_model_and_its_state(
    folder: Path, capbench: Callable[..., Ran], found: Callable[..., Any]
) -> None:
    out = capbench("models", "list").out
    for name in ("frcnn-vg-finetuned", "bua-caffe-r101", "x152-fpn", "torchvision-frcnn", "grid:BACKBONE"):
        assert name in out
    listed = found("models", "list")
    assert listed["folder"] == str(folder)
    assert {entry["state"] for entry in listed["models"]} == {"missing"}
    out = capbench("models", "list", "torchvision-frcnn").out
    for words in (
        "https://download.pytorch.org",
        "begins with dd69338a",
        "BSD",
        "capbench models add torchvision-frcnn",
    ):
        assert words in out
    facts = found("models", "list", "grid:resnet18")
    assert (facts["for"], facts["official"]) == (["grid:resnet18"], True)


def test_add_keeps_a_file_and_tells_when_it_changes(
    folder: Path, capbench: Callable[..., Ran], found: Callable[..., Any]
) -> None:
    torch.save({"x": torch.ones(3)}, "w.pth")
    assert "(recorded; " in capbench("models", "add", "x152-fpn", "w.pth").out
    assert capbench("models", "list", "x152-fpn").code == 0
    assert found("models", "add", "x152-fpn", "w.pth")["state"] == "here"
    (folder / "x152-fpn" / "detectron_model.pth").write_bytes(b"changed")
    ran = capbench("models", "list", "x152-fpn")
    assert (ran.code, "state:   wrong" in ran.out) == (1, True)
    assert capbench("models", "list").code == 1
    assert capbench("models", "add", "torchvision-frcnn", "w.pth").failure.code == "wrong-weights"
    # Another file than others report is added with a line.
    assert "(unverified)" in capbench("models", "list", "clip-vit-b32").out
    ran = capbench("models", "add", "clip-vit-b32", "w.pth")
    assert (ran.code, "that others report" in ran.err) == (0, True)
    assert "that others report" in found("models", "list", "clip-vit-b32")["remark"]


@pytest.mark.parametrize("name", ["vilbert-multi-task", "vilbert-pretrained"])
def test_the_shapes_of_vilberts_entries_are_those_of_the_released_files(parity: Path, name: str) -> None:
    kind = {"vilbert-multi-task": "VILBertForVLTasks", "vilbert-pretrained": "BertForMultiModalPreTraining"}[name]
    released = json.loads((parity / "vilbert" / "full_size_state_dict_shapes.json").read_text())[kind]
    entry = registry.entry(name)
    assert entry.tensors == len(released)
    assert entry.shapes == {tensor: tuple(released[tensor]) for tensor in entry.shapes}


def test_download_shows_the_source_and_installs(
    server: Server, monkeypatch: pytest.MonkeyPatch, capbench: Callable[..., Ran], found: Callable[..., Any]
) -> None:
    body = Path(str(registry.__file__)).with_name("sample").joinpath("sample_scan.safetensors").read_bytes()
    digest = hashlib.sha256(body).hexdigest()
    server.files = {"/s.safetensors": body}
    address = f"{server.url.rpartition('/')[0]}/s.safetensors"
    weights = registry.entry("scan-tiger").model_copy(update={"url": address, "sha256": digest, "megabytes": 1})
    monkeypatch.setitem(registry.entries(), "scan-tiger", weights)
    ran = capbench("models", "download", "scan-tiger")
    assert f"{address} (1 MB); terms: " in ran.err
    assert f"SHA-256 {digest}" in ran.out
    again = found("models", "download", "scan-tiger")
    assert [(entry["sha256"], entry["downloaded"]) for entry in again] == [(digest, False)]

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from capbench.cli import models
from capbench.core.errors import ModelError, UsageError
from capbench.metrics.scan.files import save_scan
from capbench.weights import download as weights_download
from capbench.weights import registry
from capbench.weights.download import Source
from tests.http_server import Server
from tests.metrics.scan import test_files as scan


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("CAPBENCH_MODELS", str(tmp_path / "models"))
    return tmp_path / "models"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(models.app, [str(a) for a in arguments])


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    torch.save({"x": torch.ones(3)}, tmp_path / "w.pth")
    return tmp_path / "w.pth"


def test_list_names_every_model_and_its_state(folder: Path) -> None:
    ran = run("list")
    assert ran.exit_code == 0
    for name in ("frcnn-vg-finetuned", "bua-caffe-r101", "x152-fpn", "torchvision-frcnn", "grid:BACKBONE"):
        assert name in ran.stdout
    found = json.loads(run("list", "--json").stdout)
    assert found["folder"] == str(folder)
    assert {entry["state"] for entry in found["models"]} == {"missing"}


def test_info_tells_source_terms_and_where_to_put_it() -> None:
    ran = run("list", "torchvision-frcnn")
    assert ran.exit_code == 0
    for words in (
        "https://download.pytorch.org",
        "begins with dd69338a",
        "BSD",
        "capbench models add torchvision-frcnn",
    ):
        assert words in ran.stdout
    found = json.loads(run("list", "grid:resnet18", "--json").stdout)
    assert found["for"] == ["grid:resnet18"]
    assert found["official"] is True
    assert isinstance(run("list", "vgg").exception, UsageError)


def test_add_keeps_a_file_and_tells_when_it_changes(folder: Path, weights: Path) -> None:
    ran = run("add", "x152-fpn", weights)
    assert ran.exit_code == 0
    assert "(recorded; " in ran.stdout
    assert run("list", "x152-fpn").exit_code == 0
    again = json.loads(run("add", "x152-fpn", weights, "--json").stdout)
    assert again["state"] == "here"
    (folder / "x152-fpn" / "detectron_model.pth").write_bytes(b"changed")
    ran = run("list", "x152-fpn")
    assert ran.exit_code == 1
    assert "state:   wrong" in ran.stdout
    assert run("list").exit_code == 1


def test_another_file_than_others_report_is_added_with_a_line(folder: Path, weights: Path) -> None:
    assert "(unverified)" in run("list", "clip-vit-b32").stdout
    ran = run("add", "clip-vit-b32", weights)
    assert ran.exit_code == 0
    assert "that others report" in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1
    told = run("list", "clip-vit-b32")
    assert told.exit_code == 0
    assert "that others report" in told.stdout
    assert "that others report" in json.loads(run("list", "clip-vit-b32", "--json").stdout)["remark"]


def test_add_refuses_a_wrong_file(weights: Path) -> None:
    error = run("add", "torchvision-frcnn", weights).exception
    assert isinstance(error, ModelError)
    assert error.exit_code == 2
    assert "expected SHA-256 dd69338a" in str(error)


@pytest.mark.parametrize("form", ["zip", "legacy", "python-2", "own"])
def test_add_takes_a_scan_checkpoint_of_every_form_and_reports_other_shapes(
    folder: Path, tmp_path: Path, form: str
) -> None:
    network = scan._network()
    if form == "own":
        path = tmp_path / "model.safetensors"
        save_scan(path, network, scan.VOCABULARY, {})
    else:
        path = scan._write(tmp_path, scan._checkpoint(network), form)
    ran = run("add", "scan-tiger", path)
    assert ran.exit_code == 0, ran.exception
    assert (folder / "scan-tiger" / "model_best.pth.tar").read_bytes() == path.read_bytes()
    assert "'image.fc.weight' has the shape (4, 5), the published one (1024, 2048)" in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1
    found = json.loads(run("list", "scan-tiger", "--json").stdout)
    assert found["state"] == "here"
    assert "(4, 5)" in found["remark"]
    assert registry.status("scan-tiger").fits is False


def small_scan(monkeypatch: pytest.MonkeyPatch, tensors: int) -> None:
    """Give the entry the shapes of the tests' small network."""
    shapes = {"image.fc.weight": (4, 5), "text.embed.weight": (9, 3), "text.rnn.weight_hh_l0": (12, 4)}
    entry = registry.entry("scan-tiger").model_copy(update={"shapes": shapes, "tensors": tensors})
    monkeypatch.setattr(registry, "entries", lambda: {"scan-tiger": entry})


@pytest.mark.parametrize(("tensors", "fits"), [(11, True), (10, False)])
def test_tensors_of_the_published_shapes_and_number_raise_no_remark(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tensors: int, fits: bool
) -> None:
    small_scan(monkeypatch, tensors)
    ran = run("add", "scan-tiger", scan._write(tmp_path, scan._checkpoint(scan._network())))
    assert ran.exit_code == 0
    assert ("it has 11 tensors, the published one 10" in ran.stderr) != fits
    status = registry.status("scan-tiger")
    assert (status.fits, status.remark is None) == (fits, fits)
    (registry.entry("scan-tiger").path).write_bytes(b"changed")
    assert registry.status("scan-tiger").fits is None


def test_add_refuses_what_is_no_scan_checkpoint(weights: Path, folder: Path) -> None:
    error = run("add", "scan-tiger", weights).exception
    assert isinstance(error, ModelError)
    assert error.exit_code == 2
    assert (error.code, error.path) == ("wrong-weights", str(weights))
    assert not (folder / "scan-tiger").exists()


@pytest.mark.parametrize("name", ["model_best", "model_best_py2style", "model_best_zip"])
def test_add_takes_the_released_checkpoints(parity: Path, name: str) -> None:
    path = parity / "scan" / f"{name}.pth.tar"
    if not path.exists():
        pytest.skip(f"the parity numbers lack {path.name}")
    ran = run("add", "scan-tiger", path)
    assert ran.exit_code == 0, ran.exception
    assert "(64, 128), the published one (1024, 2048)" in ran.stderr


@pytest.mark.parametrize("name", ["vilbert-multi-task", "vilbert-pretrained"])
def test_the_shapes_of_vilberts_entries_are_those_of_the_released_files(parity: Path, name: str) -> None:
    kind = {"vilbert-multi-task": "VILBertForVLTasks", "vilbert-pretrained": "BertForMultiModalPreTraining"}[name]
    released = json.loads((parity / "vilbert" / "full_size_state_dict_shapes.json").read_text())[kind]
    entry = registry.entry(name)
    assert entry.tensors == len(released)
    assert entry.shapes == {tensor: tuple(released[tensor]) for tensor in entry.shapes}


def test_download_shows_the_source_installs_and_reports_what_fails(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = Path(str(registry.__file__)).with_name("sample").joinpath("sample_scan.safetensors").read_bytes()
    digest = hashlib.sha256(body).hexdigest()
    server.files = {"/s.safetensors": body}
    address = f"{server.url.rpartition('/')[0]}/s.safetensors"
    monkeypatch.setattr(weights_download, "find_source", lambda _: Source(address, digest, 10**6, {}))
    ran = run("download", "scan-tiger")
    assert ran.exit_code == 0, ran.exception
    assert f"{address} (1.0 MB); terms: " in ran.stderr
    assert f"SHA-256 {digest}" in ran.stdout
    again = json.loads(run("download", "scan-tiger", "--json").stdout)
    assert [(one["sha256"], one["downloaded"]) for one in again] == [(digest, False)]
    monkeypatch.undo()
    error = run("download", "pac-s-vit-b32").exception
    assert isinstance(error, ModelError)
    assert (error.code, error.exit_code) == ("missing-weights", 2)
    assert "capbench models add pac-s-vit-b32 FILE" in str(error)

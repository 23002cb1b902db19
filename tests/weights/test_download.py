"""Downloads of weights against a server on this machine."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from capbench.core.download import Progress
from capbench.core.errors import ModelError
from capbench.weights import registry
from capbench.weights.checkpoints import read_checkpoint
from capbench.weights.download import download
from tests.http_server import Server

NAME = "scan-tiger"
SAMPLE = Path(str(registry.__file__)).parent / "sample" / "sample_scan.safetensors"
BODY = SAMPLE.read_bytes()
DIGEST = hashlib.sha256(BODY).hexdigest()


@pytest.fixture(autouse=True)
def models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("CAPBENCH_MODELS", str(tmp_path / "models"))
    return tmp_path / "models"


@contextlib.contextmanager
def quiet(_: str) -> Iterator[Progress | None]:
    yield None


@pytest.fixture
def weights(server: Server, monkeypatch: pytest.MonkeyPatch) -> registry.Entry:
    """An entry with the address of a file on this machine."""
    server.files = {"/scan.safetensors": BODY}
    address = {"url": f"{server.url.rpartition('/')[0]}/scan.safetensors", "sha256": DIGEST}
    monkeypatch.setitem(registry.entries(), NAME, registry.entry(NAME).model_copy(update=address))
    return registry.entry(NAME)


def get(weights: registry.Entry) -> tuple[registry.Status, bool]:
    return download(weights, read=lambda path: read_checkpoint(path).tensors, progress=quiet)


def test_a_file_is_installed_once_and_nothing_is_left_over(
    server: Server, models: Path, weights: registry.Entry
) -> None:
    status, new = get(weights)
    assert (status.state, status.sha256, new) == ("here", DIGEST, True)
    assert registry.locate(NAME).read_bytes() == BODY
    names = {path.name for path in (models / NAME).iterdir() if path.suffix != ".lock"}
    assert names == {registry.entry(NAME).file, f"{registry.entry(NAME).file}.record.json"}
    asked = len(server.asked)
    assert get(weights) == (status, False)
    assert len(server.asked) == asked


def test_a_file_without_weights_is_removed_and_downloaded_again(server: Server, models: Path) -> None:
    weights = registry.entry("x152-fpn").model_copy(update={"url": server.url})
    for _ in range(2):
        with pytest.raises(ModelError):
            get(weights)
    assert len(server.asked) == 2
    assert not list(models.rglob("detectron_model.pth*"))


def test_a_folder_model_is_downloaded_with_its_further_files(server: Server, models: Path) -> None:
    name = "bert-base-uncased"
    further = registry.entry(name).companions
    server.files = {"/model.safetensors": BODY, **{f"/{file}": file.encode() for file in further}}
    base = server.url.rpartition("/")[0]
    weights = registry.entry(name).model_copy(update={"url": f"{base}/model.safetensors"})
    assert get(weights)[0].remark is None
    assert registry.locate(name, "bertscore") == models / name
    assert (models / name / "vocab.txt").read_bytes() == b"vocab.txt"
    (models / name / "config.json").unlink()
    remark = registry.status(name).remark
    assert remark is not None
    assert "config.json" in remark
    status, new = get(weights)
    assert (status.remark, new) == (None, True)
    assert (models / name / "config.json").read_bytes() == b"config.json"

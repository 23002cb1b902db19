"""Downloads of weights against a server on this machine."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from capbench.core.download import Progress
from capbench.core.errors import MissingFileError, ModelError
from capbench.weights import registry
from capbench.weights.checkpoints import read_checkpoint
from capbench.weights.download import Source, download
from tests.errors import raises
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


def get(name: str, source: Source, *, replace: bool = False) -> tuple[registry.Status, bool]:
    return download(
        name,
        source,
        replace=replace,
        read=lambda path: read_checkpoint(path).tensors,
        progress=quiet,
    )


def served(server: Server, sha256: str = DIGEST) -> Source:
    """The address of one file on this machine."""
    server.files = {"/scan.safetensors": BODY}
    return Source(f"{server.url.rpartition('/')[0]}/scan.safetensors", sha256, len(BODY), {})


def test_a_file_is_installed_once_and_nothing_is_left_over(server: Server, models: Path) -> None:
    source = served(server)
    status, new = get(NAME, source)
    assert (status.state, status.sha256, new) == ("here", DIGEST, True)
    assert registry.locate(NAME).read_bytes() == BODY
    names = {path.name for path in (models / NAME).iterdir() if path.suffix != ".lock"}
    assert names == {registry.entry(NAME).file, f"{registry.entry(NAME).file}.record.json"}
    asked = len(server.asked)
    assert get(NAME, source) == (status, False)
    assert len(server.asked) == asked


def test_an_interrupted_download_resumes(server: Server) -> None:
    source = served(server)
    server.cut_after = [1000]
    with raises(MissingFileError, "download-failed"):
        get(NAME, source)
    assert registry.status(NAME).state == "missing"
    status, new = get(NAME, source)
    assert (status.sha256, new) == (DIGEST, True)
    assert server.asked[-1] == "bytes=1000-"


def test_a_file_without_weights_is_removed_and_downloaded_again(server: Server, models: Path) -> None:
    source = Source(server.url, None, None, {})
    for _ in range(2):
        with pytest.raises(ModelError):
            get("x152-fpn", source)
    assert len(server.asked) == 2
    assert not list(models.rglob("detectron_model.pth*"))


def test_a_folder_model_is_downloaded_with_its_further_files(server: Server, models: Path) -> None:
    name = "bert-base-uncased"
    further = registry.entry(name).beside
    server.files = {"/model.safetensors": BODY, **{f"/{file}": file.encode() for file in further}}
    base = server.url.rpartition("/")[0]
    source = Source(f"{base}/model.safetensors", None, None, {file: f"{base}/{file}" for file in further})
    assert get(name, source)[0].remark is None
    assert registry.locate(name, "bertscore") == models / name
    assert (models / name / "vocab.txt").read_bytes() == b"vocab.txt"
    (models / name / "config.json").unlink()
    remark = registry.status(name).remark
    assert remark is not None
    assert "config.json" in remark
    status, new = get(name, source)
    assert (status.remark, new) == (None, True)
    assert (models / name / "config.json").read_bytes() == b"config.json"

"""Packing of trained networks for a release."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from capbench.core.errors import DataError
from capbench.weights import registry
from capbench.weights.download import Index
from scripts.pack_weights import pack, release_address
from tests.errors import raises

pytest.importorskip("safetensors")
SAMPLE = Path(str(registry.__file__)).parent / "sample" / "sample_scan.safetensors"
DIGEST = hashlib.sha256(SAMPLE.read_bytes()).hexdigest()
TRAINED = {"scan-flickr8k-seed2"}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A recipe's folder with one of its three networks."""
    folder = tmp_path / "runs" / "flickr8k-grid"
    (folder / "seed2").mkdir(parents=True)
    (folder / ".recipe").mkdir()
    (folder / "seed2" / "model.safetensors").write_bytes(SAMPLE.read_bytes())
    run = {"config": {"seed": 2, "captions": "/home/somebody/flickr8k"}, "data": {"captions": "1708", "regions": "3"}}
    (folder / "seed2" / "run.json").write_text(json.dumps(run))
    record = {"kind": "train", "outputs": {"seed2/model.safetensors": DIGEST}}
    (folder / ".recipe" / "networks+seed2.json").write_text(json.dumps(record))
    return tmp_path / "runs"


def test_the_index_has_the_facts_of_each_network_and_lists_absent_ones(runs: Path, tmp_path: Path) -> None:
    index = pack(runs, tmp_path / "out", "https://example.org/v1")
    own = {name for name, entry in registry.entries().items() if entry.recipe}
    assert set(index.weights) == TRAINED
    assert set(index.absent) == own - TRAINED
    assert index == Index.model_validate_json((tmp_path / "out" / "index.json").read_text())
    packed = index.weights["scan-flickr8k-seed2"]
    assert (packed.sha256, packed.bytes, packed.seed) == (DIGEST, SAMPLE.stat().st_size, 2)
    assert packed.training_data == {"name": "flickr8k", "captions": "1708", "regions": "3"}
    assert packed.url == "https://example.org/v1/scan-flickr8k-seed2.safetensors"
    assert (tmp_path / "out" / packed.file).read_bytes() == SAMPLE.read_bytes()


def test_a_network_that_its_recipe_did_not_record_is_not_packed(runs: Path, tmp_path: Path) -> None:
    network = runs / "flickr8k-grid" / "seed2" / "model.safetensors"
    network.write_bytes(b"changed")
    with raises(DataError, "changed", path=network):
        pack(runs, tmp_path / "out")
    assert not list(tmp_path.glob("out/*"))


@pytest.mark.parametrize(
    ("urls", "address"),
    [
        ("", None),
        ('[project.urls]\nrepository = "https://example.org/capbench"', None),
        (
            '[project.urls]\nRepository = "https://github.com/lab/capbench/"',
            "https://github.com/lab/capbench/releases/",
        ),
    ],
)
def test_the_address_of_the_release_follows_the_repository(tmp_path: Path, urls: str, address: str | None) -> None:
    (tmp_path / "pyproject.toml").write_text(f'[project]\nname = "capbench"\n{urls}\n')
    found = release_address(tmp_path / "pyproject.toml")
    assert (found is None) if address is None else (found or "").startswith(address)

"""Ensemble files: writing, reading after a move, and errors."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from capbench.core.errors import ModelError
from capbench.core.files import sha256_file
from capbench.metrics.scan.files import GroundingModel, load_scan
from capbench.metrics.scan.network import Scan, ScanOptions
from capbench.text.vocabulary import Vocabulary
from capbench.weights.ensembles import network_files, read_ensemble, write_ensemble
from capbench.weights.files import write_trained
from capbench.weights.registry import locate
from tests.errors import raises

ODD = "a=b+c, ü 'x' \\ {1}.safetensors"


VOCABULARY = Vocabulary.build(["a dog runs on grass", "two cats sleep"], min_count=1)


def saved(path: Path, seed: int, words: Vocabulary = VOCABULARY, features: str = "f", **options: Any) -> GroundingModel:
    torch.set_num_threads(1)
    sizes = {"vocabulary_size": len(words), "word_dim": 5, "embed_dim": 6, "image_dim": 7}
    network = Scan(ScanOptions(**{**sizes, **options}), torch.Generator().manual_seed(seed))
    write_trained(path, network, words, {"features": features})
    return load_scan(path)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A folder that can be moved as a whole, with an ensemble of networks below and beside it."""
    (tmp_path / "set" / "deep").mkdir(parents=True)
    models = [saved(tmp_path / "set" / "deep" / ODD, 1), saved(tmp_path / "set" / "b.safetensors", 2)]
    write_ensemble(tmp_path / "set" / "e.json", models)
    return tmp_path / "set" / "e.json"


def test_parts_are_found_after_the_folder_has_moved(made: Path, tmp_path: Path) -> None:
    before = read_ensemble(made)
    assert before is not None
    assert {part.path.name for part in before.parts} == {ODD, "b.safetensors"}
    shutil.move(made.parent, tmp_path / "elsewhere")
    after = read_ensemble(tmp_path / "elsewhere" / "e.json")
    assert after is not None
    after.verify()
    assert [part.sha256 for part in after.parts] == [part.sha256 for part in before.parts]
    assert network_files(tmp_path / "elsewhere" / "e.json") == tuple(part.path for part in after.parts)
    saved(tmp_path / "elsewhere" / "b.safetensors", 3)
    with raises(ModelError, "changed", path=tmp_path / "elsewhere" / "b.safetensors"):
        after.verify()


PART = {"path": "b.safetensors", "sha256": "0" * 64}


@pytest.mark.parametrize(
    ("content", "code", "value"),
    [
        ('{"kind": "capbench.ensemble/1", "parts": [', "wrong-format", None),
        ({"kind": "capbench.ensemble/2", "parts": [PART, PART]}, "wrong-format", "kind"),
        ({"kind": "capbench.ensemble/1", "parts": [PART]}, "wrong-format", "parts"),
        ({"kind": "capbench.ensemble/1", "parts": [PART, {**PART, "sha256": "0g"}]}, "wrong-format", "parts.1.sha256"),
        ({"kind": "capbench.ensemble/1", "parts": [PART, {**PART, "path": "gone"}]}, "missing-file", None),
    ],
)
def test_damaged_files_are_rejected_wherever_a_model_is_read(
    content: Any, code: str, value: object, made: Path
) -> None:
    made.write_text(content if isinstance(content, str) else json.dumps(content))
    for read in (read_ensemble, locate, load_scan):
        with raises(ModelError, code, value=value) as caught:
            read(made)
        assert str(made) in str(caught.value)


@dataclass(frozen=True)
class Other:
    """A loaded network of another kind."""

    path: Path
    sha256: str
    shared: tuple[str, ...] = ("is an NNEval network", "reads 8 scores")


def test_networks_of_any_kind_make_an_ensemble_and_kinds_are_not_mixed(tmp_path: Path) -> None:
    networks = []
    for name in ("a.bin", "b.bin"):
        (tmp_path / name).write_bytes(name.encode())
        networks.append(Other(tmp_path / name, sha256_file(tmp_path / name)))
    write_ensemble(tmp_path / "e.json", networks)
    ensemble = read_ensemble(tmp_path / "e.json")
    assert ensemble is not None
    ensemble.verify()
    assert {part.path for part in ensemble.parts} == {network.path for network in networks}
    scan = saved(tmp_path / "s.safetensors", 1)
    with raises(ModelError, "mismatch", value="is a SCAN network"):
        write_ensemble(tmp_path / "mixed.json", [networks[0], scan])
    assert not (tmp_path / "mixed.json").exists()

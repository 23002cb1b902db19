"""FAIEr's files: a round trip, and errors of other and damaged files."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from capbench.core.errors import MissingFileError, ModelError
from capbench.metrics.faier.graphs import VARIANTS, FaierOptions
from capbench.metrics.faier.network import Faier, load_faier, save_faier, stored_options
from capbench.metrics.grounding.scan import Scan, ScanOptions
from capbench.metrics.grounding.scan_files import save_scan
from capbench.text.vocabulary import Vocabulary
from capbench.weights.arrays import read_metadata
from capbench.weights.ensembles import check_together, write_ensemble
from capbench.weights.files import write_safetensors
from tests.errors import raises

pytestmark = pytest.mark.usefixtures("one_thread")

VOCABULARY = Vocabulary.build(["a dog runs on green grass"], 1)
OPTIONS = FaierOptions(vocabulary_size=len(VOCABULARY), word_dim=5, embed_dim=6, image_dim=7)


def _saved(path: Path, seed: int = 0, **changes: Any) -> Path:
    options = FaierOptions(**{**vars(OPTIONS), **changes})
    save_faier(path, Faier(options, torch.Generator().manual_seed(seed)), VOCABULARY, {"features": "ab" * 8})
    return path


@pytest.mark.parametrize("variant", VARIANTS)
def test_one_file_holds_weights_options_vocabulary_and_training(tmp_path: Path, variant: str) -> None:
    path = _saved(tmp_path / "m.safetensors", variant=variant, similarity="cosine", reference_encoder="separate")
    model = load_faier(path)
    network = Faier(model.options, torch.Generator().manual_seed(0))
    assert (model.options.variant, model.options.similarity) == (variant, "cosine")
    assert model.vocabulary == VOCABULARY
    assert (model.features, model.path) == ("ab" * 8, path)
    for name, weight in network.state_dict().items():
        torch.testing.assert_close(model.network.state_dict()[name], weight, rtol=0, atol=0)
    assert not any(weight.requires_grad for weight in model.network.parameters())
    assert not model.network.training
    assert stored_options(path) == model.options


def test_the_signature_names_weights_variant_and_vocabulary(tmp_path: Path) -> None:
    model = load_faier(_saved(tmp_path / "m.safetensors"))
    parts = model.signature_parts()
    assert parts["model"] == f"faier-{model.sha256[:16]}"
    assert parts["variant"] == "faier"
    assert parts["vocabulary"].startswith(VOCABULARY.sha256[:16])


def test_an_image_that_the_model_cannot_read_is_refused(tmp_path: Path) -> None:
    model = load_faier(_saved(tmp_path / "m.safetensors", variant="fier-object"))
    assert model.encode_image(np.zeros((3, 7)), None)[1] is None
    for features, code in (
        (np.zeros((3, 8)), "wrong-shape"),
        (np.zeros((0, 7)), "wrong-shape"),
        (np.full((3, 7), np.nan), "not-a-number"),
    ):
        with raises(ModelError, code):
            model.encode_image(features, None)


def _metadata(key: str, value: str | None) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        metadata = read_metadata(path)
        assert metadata is not None
        tensors = load_faier(path).network.state_dict()
        changed = {**metadata, **({} if value is None else {key: value})}
        if value is None:
            del changed[key]
        write_safetensors(path, tensors, changed)

    return change


def _tensor(name: str, value: torch.Tensor | None) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        metadata = read_metadata(path)
        assert metadata is not None
        tensors = dict(load_faier(path).network.state_dict())
        del tensors[name]
        write_safetensors(path, tensors if value is None else {**tensors, name: value}, metadata)

    return change


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def _with_nan(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-4:] = struct.pack("<f", float("nan"))
    path.write_bytes(bytes(content))


def _scan(path: Path) -> None:
    options = ScanOptions(vocabulary_size=len(VOCABULARY), word_dim=5, embed_dim=6, image_dim=7)
    save_scan(path, Scan(options), VOCABULARY, {})


def _text(path: Path) -> None:
    path.write_text("no model", encoding="utf-8")


_OPTIONS = dict(vars(OPTIONS))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (_cut, "damaged"),
        (_text, "wrong-weights"),
        (_scan, "wrong-weights"),
        (_with_nan, "not-a-number"),
        (_metadata("options", json.dumps({**_OPTIONS, "variant": "x"})), "wrong-value"),
        (_metadata("options", json.dumps({**_OPTIONS, "variant": "fier"})), "unknown-key"),
        (_metadata("vocabulary", json.dumps(["<pad>"])), "wrong-format"),
        (_tensor("image_out.weight", torch.zeros(6, 5)), "wrong-shape"),
        (_tensor("image_out.weight", None), "missing-key"),
    ],
)
def test_other_and_damaged_files_are_rejected_in_one_line(
    tmp_path: Path, change: Callable[[Path], None], code: str
) -> None:
    path = _saved(tmp_path / "m.safetensors")
    change(path)
    with raises(ModelError, code, path=path) as caught:
        load_faier(path)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with raises(MissingFileError, "missing-file", path=tmp_path / "nowhere.safetensors"):
        load_faier(tmp_path / "nowhere.safetensors")
    assert stored_options(tmp_path / "nowhere.safetensors") is None


def test_an_ensemble_is_of_one_variant(tmp_path: Path) -> None:
    one, two = (load_faier(_saved(tmp_path / f"{seed}.safetensors", seed)) for seed in (1, 2))
    write_ensemble(tmp_path / "both.json", [one, two])
    assert stored_options(tmp_path / "both.json") == OPTIONS
    with raises(ModelError, "unsupported", path=tmp_path / "both.json", value=2):
        load_faier(tmp_path / "both.json")
    other = load_faier(_saved(tmp_path / "other.safetensors", variant="fier"))
    with raises(ModelError, "mismatch", path=other.path):
        check_together([one, other])
    cosine = load_faier(_saved(tmp_path / "cosine.safetensors", similarity="cosine"))
    with raises(ModelError, "mismatch", path=cosine.path):
        check_together([one, cosine])

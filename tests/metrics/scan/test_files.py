from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from capbench.core.errors import ModelError
from capbench.metrics.scan.files import GroundingModel, load_scan
from capbench.metrics.scan.network import Scan, ScanOptions
from capbench.text.vocabulary import SPECIAL, Vocabulary
from capbench.weights.files import write_trained
from tests.text.vocabulary_files import write_vocabulary

pytestmark = pytest.mark.usefixtures("one_thread")

OPTIONS = ScanOptions(9, word_dim=3, embed_dim=4, image_dim=5)
VOCABULARY = Vocabulary((*SPECIAL, "a", "cat", "sat", "ran", "."))


def _network(**changes: Any) -> Scan:
    return Scan(dataclasses.replace(OPTIONS, **changes), torch.Generator().manual_seed(1))


def _checkpoint(network: Scan, **changes: Any) -> dict[str, Any]:
    state, options = network.state_dict(), network.options
    sides = [
        collections.OrderedDict((k.split(".", 1)[1], v) for k, v in state.items() if k.startswith(side))
        for side in ("image", "text")
    ]
    opt = argparse.Namespace(
        data_name="coco_precomp",
        vocab_size=options.vocabulary_size,
        word_dim=options.word_dim,
        embed_size=options.embed_dim,
        img_dim=options.image_dim,
        num_layers=options.layers,
        bi_gru=options.bidirectional,
        no_imgnorm=not options.normalise_images,
        no_txtnorm=not options.normalise_captions,
        cross_attn=options.cross_attention,
        agg_func=options.aggregation,
        raw_feature_norm=options.feature_norm,
        lambda_lse=options.lambda_lse,
        lambda_softmax=options.lambda_softmax,
        logger_name="runs/one",
    )
    return {"epoch": 7, "model": sides, "best_rsum": 123.5, "opt": opt, "Eiters": 42} | changes


def _write(folder: Path, found: Any, form: str = "zip", vocabulary: Vocabulary | None = VOCABULARY) -> Path:
    path = folder / "model_best.pth.tar"
    if form == "zip":
        torch.save(found, path)
    else:
        torch.save(found, path, pickle_protocol=2, _use_new_zipfile_serialization=False)
    if vocabulary is not None:
        write_vocabulary(folder / "coco_precomp_vocab.json", vocabulary)
    return path


def _same(model: GroundingModel, network: Scan) -> bool:
    own, wanted = model.network.state_dict(), network.state_dict()
    return own.keys() == wanted.keys() and all(torch.equal(own[k], wanted[k]) for k in wanted)


@pytest.mark.parametrize("form", ["zip", "legacy"])
def test_checkpoints_of_the_released_code_are_read_in_every_form(tmp_path: Path, form: str) -> None:
    network = _network(cross_attention="i2t", lambda_softmax=4.0, normalise_captions=False, aggregation="Mean")
    path = _write(tmp_path, _checkpoint(network), form)
    data = path.read_bytes()
    assert (data[:2] == b"PK") == (form == "zip")
    model = load_scan(path)
    assert _same(model, network)
    assert model.options == network.options
    assert model.vocabulary == VOCABULARY
    assert model.training == {"source": "released"}
    assert model.features is None
    assert not model.network.training
    assert len(model.sha256) == 64


@pytest.mark.parametrize(
    "changes", [{"layers": 2}, {"bidirectional": False}, {"weight_norm": True}, {"normalise_images": False}]
)
def test_the_shape_of_the_network_follows_the_checkpoint(tmp_path: Path, changes: dict[str, Any]) -> None:
    network = _network(**changes)
    model = load_scan(_write(tmp_path, _checkpoint(network)))
    assert model.options == network.options
    assert _same(model, network)


def test_weight_norm_of_other_versions_of_pytorch_is_read(tmp_path: Path) -> None:
    network = _network(weight_norm=True)
    found = _checkpoint(network)
    image = found["model"][0]
    new = {
        "fc.parametrizations.weight.original0": image.pop("fc.weight_g").reshape(1, 1),
        "fc.parametrizations.weight.original1": image.pop("fc.weight_v"),
    }
    found["model"][0] = {**image, **new}
    assert _same(load_scan(_write(tmp_path, found)), network)


def test_a_checkpoint_of_several_gpus_in_half_precision_is_read(tmp_path: Path) -> None:
    network = _network()
    found = _checkpoint(network)
    found["model"] = [{f"module.{k}": v.half() for k, v in side.items()} for side in found["model"]]
    numbers = {"lambda_lse": torch.tensor(5.0), "vocab_size": np.int64(9), "no_txtnorm": np.bool_(True)}
    found["opt"] = {**vars(found["opt"]), **numbers}  # some tools keep options as a dictionary
    model = load_scan(_write(tmp_path, found))
    name = "image.fc.weight"
    assert torch.equal(model.network.state_dict()[name], network.state_dict()[name].half().float())
    assert (model.options.lambda_lse, model.options.normalise_captions) == (5.0, False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda found: found.pop("model"), "'model'"),
        (lambda found: found.pop("opt"), "'opt'"),
        (lambda found: found.update(model=found["model"][0]), "dictionary of tensors"),
        (lambda found: found["model"][0].pop("fc.weight"), r"'image\.fc\.weight'"),
        (lambda found: found["model"][1].update({"rnn.extra": torch.zeros(2)}), r"'text\.rnn\.extra'"),
        (lambda found: found["model"][0].update({"fc.bias": torch.full((4,), torch.nan)}), "'fc.bias'.*NaN"),
        (lambda found: setattr(found["opt"], "raw_feature_norm", "l1norm"), "feature_norm=l1norm"),
    ],
)
def test_a_changed_checkpoint_is_rejected_in_one_line(tmp_path: Path, change: Any, message: str) -> None:
    found = _checkpoint(_network())
    change(found)
    path = _write(tmp_path, found)
    with pytest.raises(ModelError, match=message) as caught:
        load_scan(path)
    assert str(path) in str(caught.value)


# capbench's own file


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    write_trained(path, _network(), VOCABULARY, {"features": "0123456789abcdef", "epochs": 2, "note": "né"})
    return path


def test_one_file_holds_weights_options_vocabulary_and_training(saved: Path) -> None:
    model = load_scan(saved)
    assert _same(model, _network())
    assert (model.options, model.vocabulary) == (OPTIONS, VOCABULARY)
    assert model.training == {"features": "0123456789abcdef", "epochs": 2, "note": "né"}
    assert model.features == "0123456789abcdef"
    first = saved.read_bytes()
    write_trained(saved, model.network, model.vocabulary, model.training)
    assert saved.read_bytes() == first
    length = struct.unpack("<Q", first[:8])[0]
    assert length % 8 == 0
    assert json.loads(first[8 : 8 + length])["image.fc.bias"]["dtype"] == "F32"


def test_the_published_form_gives_the_released_embeddings(parity: Path) -> None:
    model = load_scan(parity / "scan" / "model_best.pth.tar")
    with np.load(parity / "scan" / "scan_vectors.npz") as vectors:
        ids, lengths = (torch.from_numpy(vectors[name]) for name in ("captions", "lengths"))
        with torch.inference_mode():
            found = model.network.encode_captions(ids, lengths)
        np.testing.assert_allclose(found, vectors["bi__cap_emb"], rtol=0, atol=1e-6)
        images = np.stack([model.encode_image(image) for image in vectors["images"]])
        np.testing.assert_allclose(images, vectors["bi__img_emb"], rtol=0, atol=1e-6)

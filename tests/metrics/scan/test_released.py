"""Checkpoints as PyTorch's own modules and savers of different ages write them."""

from __future__ import annotations

import argparse
import io
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from capbench.metrics.scan.files import GroundingModel, load_scan
from capbench.text.vocabulary import SPECIAL, Vocabulary
from tests.text.vocabulary_files import write_vocabulary

FORMS = [False, True]  # zip, and what PyTorch wrote before 1.6


class _Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 8)


class _Texts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 5)
        self.rnn = nn.GRU(5, 8, batch_first=True, bidirectional=True)


def _options(**changes: Any) -> argparse.Namespace:
    found = {
        "data_name": "coco_precomp",
        "vocab_size": 7,
        "word_dim": 5,
        "embed_size": 8,
        "img_dim": 6,
        "num_layers": 1,
        "bi_gru": True,
        "no_imgnorm": False,
        "no_txtnorm": False,
        "cross_attn": "t2i",
        "agg_func": "LogSumExp",
        "raw_feature_norm": "clipped_l2norm",
        "precomp_enc_type": "basic",
        "lambda_lse": 6.0,
        "lambda_softmax": 9.0,
        "margin": 0.2,
        "max_violation": True,
        "resume": "",
    }
    return argparse.Namespace(**{**found, **changes})


def _checkpoint(**changes: Any) -> dict[str, Any]:
    """State dicts as modules give them, with their ``_metadata``."""
    torch.manual_seed(3)
    sides = [_Images().state_dict(), _Texts().state_dict()]
    found = {"epoch": 7, "model": sides, "best_rsum": 123.5, "opt": _options(), "Eiters": 42}
    return {**found, **changes}


def _save(folder: Path, found: dict[str, Any], old: bool = False) -> Path:
    path = folder / "model_best.pth.tar"
    torch.save(found, path, pickle_protocol=2, _use_new_zipfile_serialization=not old)
    write_vocabulary(folder / "coco_precomp_vocab.json", Vocabulary((*SPECIAL, "a", "dog", ".")))
    return path


def _agrees(model: GroundingModel, found: dict[str, Any]) -> bool:
    own = model.network.state_dict()
    given = {f"{s}.{k}": v for s, part in zip(("image", "text"), found["model"], strict=True) for k, v in part.items()}
    return own.keys() == given.keys() and all(torch.equal(own[name], given[name]) for name in own)


@pytest.mark.parametrize("old", FORMS)
def test_tensors_of_a_gpu_are_read_where_there_is_none(
    tmp_path: Path, old: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = _checkpoint()
    # On a GPU the weights of a GRU are parts of one buffer.
    texts = found["model"][1]
    names = [name for name in texts if name.startswith("rnn")]
    buffer = torch.cat([texts[name].flatten() for name in names])
    parts = torch.split(buffer, [texts[name].numel() for name in names])
    texts.update({name: part.view(texts[name].shape) for name, part in zip(names, parts, strict=True)})
    monkeypatch.setattr(torch.serialization, "location_tag", lambda _storage: "cuda:0")
    path = _save(tmp_path, found, old)
    assert b"cuda:0" in path.read_bytes()
    assert _agrees(load_scan(path), found)


_PurePickler: Any = vars(pickle)["_Pickler"]  # the one whose parts can be replaced


class _OldPickler(_PurePickler):  # type: ignore[misc]
    """Pickles tensors as PyTorch 0.3 did, the age of the published checkpoints."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=2)
        self.storages: dict[str, Tensor] = {}

    def persistent_id(self, thing: object) -> tuple[object, ...] | None:
        if not isinstance(thing, _Storage):
            return None
        key = str(len(self.storages))
        self.storages[key] = thing.tensor
        return ("storage", torch.FloatStorage, key, "cuda:0", thing.tensor.numel(), None)

    def save(self, thing: object, save_persistent_id: bool = True) -> None:
        if not isinstance(thing, Tensor):
            super().save(thing, save_persistent_id)
            return
        arguments = (_Storage(thing), 0, tuple(thing.shape), tuple(thing.stride()))
        self.save_reduce(torch._utils._rebuild_tensor, arguments, obj=thing)


class _Storage:
    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def test_a_file_of_pytorch_before_0_4_is_read(tmp_path: Path) -> None:
    found = _checkpoint()
    path = _save(tmp_path, found)
    file = io.BytesIO()
    sizes = {"short": 2, "int": 4, "long": 4}
    header = (0x1950A86A20F9469CFC6C, 1001, {"protocol_version": 1001, "little_endian": True, "type_sizes": sizes})
    for part in header:
        pickle.dump(part, file, 2)
    pickler = _OldPickler(file)
    pickler.dump(found)
    pickle.dump(list(pickler.storages), file, 2)
    for tensor in pickler.storages.values():
        file.write(struct.pack("<q", tensor.numel()) + tensor.contiguous().numpy().tobytes())
    path.write_bytes(file.getvalue())
    assert _agrees(load_scan(path), found)


@pytest.mark.parametrize("old", FORMS)
def test_numbers_of_numpy_and_pytorch_are_taken_as_numbers(tmp_path: Path, old: bool) -> None:
    options = _options(
        lambda_softmax=np.float64(4), lambda_lse=torch.tensor(5.0), vocab_size=np.int64(7), no_txtnorm=np.bool_(True)
    )
    model = load_scan(_save(tmp_path, _checkpoint(opt=options, epoch=np.int64(3), best_rsum=torch.tensor(2.5)), old))
    assert (model.options.lambda_softmax, model.options.lambda_lse) == (4.0, 5.0)
    assert not model.options.normalise_captions
    assert model.training == {"source": "released", "epoch": 3, "best_recall_sum": 2.5, "steps": 42}

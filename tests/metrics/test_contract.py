"""Every metric of capbench keeps the contract: see :mod:`capbench.metrics.contract_checks`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import capbench
from capbench.datasets.root import sample_dir
from capbench.metrics.needs import Parser
from capbench.text.word_vectors import write_word2vec
from tests.metrics.clip import plain_clip
from tests.metrics.faier.models import make_files as make_faier
from tests.metrics.leic import test_metric as leic
from tests.metrics.leic.world import make_world
from tests.metrics.nneval.stored import without_parser, write_weights
from tests.metrics.scan.models import make_files as make_scan
from tests.metrics.tiny_bert import make_bert
from tests.metrics.vilbert.models import write_model, write_store

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.filterwarnings("ignore")]

IMAGES = ["street", "harbour", "meadow"]


def of_files(files: Any) -> dict[str, Any]:
    return {"features": files.features, "model": files.model}


def given(name: str, folder: Path) -> dict[str, Any]:
    """What a metric requires, tiny and with random weights."""
    if name in ("tiger", "reo"):
        covariance = {"covariance": "identity"} if name == "reo" else {}
        return {**of_files(make_scan(folder, IMAGES)), "options": covariance}
    if name == "faier":
        return of_files(make_faier(folder, variant="faier-object"))
    if name == "vilbertscore":
        write_store(folder / "store.h5", IMAGES)
        write_model(folder / "model.safetensors")
        return {"features": folder / "store.h5", "model": folder / "model.safetensors"}
    if name == "leic":
        world = make_world(folder / "world")
        model = leic.write_model(folder / "m.safetensors", features=leic.kind_of(world))
        return {"features": world / "world.h5", "model": model}
    if name in ("bertscore", "bert-tbr"):
        return {"model": make_bert(folder / "bert", hidden_size=8), "options": {"layer": 2}}
    if name in ("clipscore", "pac-s"):
        weights = plain_clip.write_checkpoint(folder / "clip_ViT.pth", plain_clip.random_state())
        return {"model": weights, "images": sample_dir() / "flickr8k/images", "options": {"activation": "gelu"}}
    text = (sample_dir() / "flickr8k/Flickr8k.token.txt").read_text(encoding="utf-8")
    words = sorted(set(re.findall("[a-z]+", text.lower())))
    write_word2vec(folder / "v.bin", words, np.random.default_rng(1).normal(size=(len(words), 8)).astype(np.float32))
    options: dict[str, Any] = {"vectors": str(folder / "v.bin")}
    if name == "nneval":
        (folder / "df.json").write_text(json.dumps({"1.jpg": ["a dog runs"], "2.jpg": ["a man in a boat"]}))
        options["df"] = str(folder / "df.json")
        return {"model": write_weights(folder / "w.npz"), "options": options}
    return {"options": options if name == "wmd" else {}}


@pytest.mark.parametrize(
    "name",
    [
        *("bleu", "rouge-l", "meteor", "cider", "wmd", "bertscore", "bert-tbr", "nneval"),
        *("tiger", "reo", "faier", "vilbertscore", "leic", "clipscore", "pac-s"),
    ],
)
def test_a_metric_keeps_the_contract(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_parser(monkeypatch)
    monkeypatch.setattr(Parser, "missing", lambda *_: None)
    checks = capbench.check_metric(name, **given(name, tmp_path))
    assert [check for check in checks if check.state == "failed"] == []

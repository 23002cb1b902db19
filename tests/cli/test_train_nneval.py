from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from capbench.core.files import sha256_file
from tests.conftest import Ran
from tests.metrics.nneval.stored import without_parser
from tests.metrics.nneval.world import make_world, settings


def test_train_then_score(tmp_path: Path, capbench: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    without_parser(monkeypatch)
    world = make_world(tmp_path / "world")
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(settings(world).to_dict()), encoding="utf-8")
    ran = capbench("train", "nneval", "tiny.yaml", "--seed", "2", "--set", "domain=drawings")
    assert ran.code == 0, ran.err
    model = tmp_path / "results/train/tiny-seed2/model.safetensors"
    assert f"results/train/tiny-seed2/model.safetensors: sha256 {sha256_file(model)}" in ran.out
    assert "14 images, 84 captions" in ran.err
    assert "held-out log-likelihood" in ran.err

    given = ["--model", f"nneval={model}", "--option", f"nneval.vectors={world / 'v.bin'}"]
    given += ["--option", f"nneval.df={world / 'people.json'}"]
    scored = capbench("score", "-m", "nneval", "-d", "flickr8k-expert", *given)
    assert scored.code == 0, scored.err
    assert "14 images (drawings)" in scored.err
    refused = capbench("train", "nneval", "tiny.yaml", "--set", "machine=none.json", "--out", "other")
    assert refused.code == 2
    assert "none.json" in refused.err

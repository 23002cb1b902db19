from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from capbench.api.training import plan_training
from capbench.core.errors import StudyError
from capbench.core.yaml import shipped_files
from capbench.metrics.registry import TRAINABLES, trainable
from capbench.metrics.scan.train import ScanTraining
from tests.errors import raises

MINIMAL = "schema: 1\nname: one\ncaptions: c.json\nfeatures: f.h5\n"


def load(path: Path, changes: Sequence[str] = ()) -> ScanTraining:
    return ScanTraining.load(path, changes)


@pytest.fixture
def minimal(tmp_path: Path) -> Path:
    path = tmp_path / "one.yaml"
    path.write_text(MINIMAL, encoding="utf-8")
    return path


def test_every_problem_is_reported_at_once(tmp_path: Path) -> None:
    raw: dict[str, Any] = {
        "schema": 2,
        "name": "a",
        "feature": "x.h5",
        "captions": "c.json",
        "loss": {"temprature": 0.1, "margin": -1},
        "network": {"embed": 3, "image_dim": 4, "cross_attention": "i2i"},
    }
    path = tmp_path / "wrong.yaml"
    path.write_text(yaml.safe_dump(raw), encoding="utf-8")
    with raises(StudyError, "invalid", path=path) as caught:
        plan_training("scan", path, {})
    for part in (
        "schema=2: ",
        "the file has no option 'feature'. Did you mean 'features'?",
        "the key 'features' is missing",
        "loss has no option 'temprature'. Did you mean 'temperature'?",
        "loss.margin=-1: ",
        "network has no option 'embed'. Did you mean 'embed_dim'?",
        "'image_dim' is determined by the data",
        "network.cross_attention=i2i: not one of t2i, i2t",
        "6 problems",
    ):
        assert part in str(caught.value)


def test_changes_replace_what_the_file_says(minimal: Path) -> None:
    changes = ["loss.kind=info-nce", "loss.temperature=0.2", "seed=7", "splits.dev=[val, restval]", "splits.test=t"]
    config = load(minimal, [*changes, "optimiser.clip=null", "optimiser.lr=5e-4", "network.lambda_lse=5e0"])
    assert (config.loss.temperature, config.seed, config.splits.dev) == (0.2, 7, ("val", "restval"))
    assert (config.splits.test, config.optimiser.clip, config.optimiser.lr_update) == (("t",), None, 15)
    assert (config.optimiser.lr, config.network.lambda_lse, config.network.embed_dim) == (0.0005, 5.0, 1024)
    assert ScanTraining.model_validate(config.to_dict()) == config
    for change in ("seed", "name.first=x", "seed='"):
        with raises(StudyError, "wrong-format", value=change):
            load(minimal, [change])


def test_what_does_not_decide_the_result_may_change(minimal: Path) -> None:
    here, there = load(minimal), load(minimal, ["threads=3", "checkpoint_seconds=5", "features=g.h5", "batch=128"])
    assert here.deciding() == there.deciding()
    assert load(minimal, ["optimiser.clip=1.0"]).deciding() != here.deciding()


def test_shipped_files_are_valid() -> None:
    read, shipped = 0, shipped_files("train")
    for network in TRAINABLES:
        for name, path in shipped.items():
            if name.startswith(f"{network}-"):
                assert trainable(network).settings.load(path).name == name
                read += 1
    assert read == len(shipped) - 1  # that of a plug-in

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

import capbench
from capbench.core.files import sha256_file
from tests.errors import raises
from tests.training.world import make_world, settings


def test_a_function_trains_what_the_command_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    world = make_world(tmp_path / "world")
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(settings(world, epochs=1).to_dict()), encoding="utf-8")
    done: list[int] = []

    @contextlib.contextmanager
    def bars(_description: str, _steps: int | None) -> Iterator[Callable[[int], None]]:
        yield done.append

    trained = capbench.train("scan", "tiny.yaml", seed=3, settings={"max_steps": 2}, progress=bars)
    assert (trained.step, trained.ended, sum(done)) == (2, "max_steps", 2)
    assert trained.model == Path("results/train/tiny-seed3/model.safetensors")
    assert trained.sha256 == sha256_file(trained.model)


def test_features_of_others_are_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with raises(capbench.UsageError, "missing-option"):
        capbench.import_features([])
    np.savez("two.npz", image_names=["a", "b"], features=np.ones((2, 4, 8), np.float32))
    made = capbench.import_features("two.npz", detector="mine")
    assert (made.path, made.format, made.images) == (Path("features/two.h5"), "npz", 2)

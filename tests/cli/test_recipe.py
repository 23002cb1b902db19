"""``capbench train recipe``: recipes listed, planned, carried out and resumed, and studies that train."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import capbench as public
from capbench.core.files import sha256_file
from tests.conftest import Ran

pytest.importorskip("torch")

from tests.training.world import make_world, settings

Command = Callable[..., Ran]


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A recipe that trains two small networks and measures text metrics, in the current folder."""
    monkeypatch.chdir(tmp_path)
    world = make_world(tmp_path / "world")
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(settings(world, epochs=1).to_dict()), encoding="utf-8")
    raw = {
        "schema": 1,
        "name": "toy",
        "title": "A toy",
        "takes": "seconds",
        "steps": {
            "store": {"files": str(world / "world.h5")},
            "networks": {"train": "scan", "config": "tiny.yaml", "features": "store", "seeds": [1, 2]},
            "both": {"ensemble": "networks", "of": 2},
            "text": {"score": "bleu-1", "judgements": "flickr8k-expert"},
            "expert": {"evaluate": "flickr8k-expert", "coefficients": ["tau-c"], "values": [{"scores": "text"}]},
            "results": {"results": "toy.json", "seeds": "networks", "dev": "networks", "parts": {"expert": "expert"}},
        },
    }
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(raw, sort_keys=False), encoding="utf-8")
    return raw


def test_recipes_are_listed(capbench: Command) -> None:
    ran = capbench("train", "recipe")
    assert ran.code == 0
    assert "vilbert-flickr8k" in ran.out
    listed = json.loads(capbench("train", "recipe", "--json").out)
    assert {"name", "title", "takes"} == set(listed[0])
    ran = capbench("train", "recipe", "--dry-run")
    assert (ran.code, ran.failure.code) == (2, "missing-option")
    assert capbench("train", "recipe", "no-such-recipe").failure.code == "unknown-name"


@pytest.mark.usefixtures("toy")
def test_a_plan_is_printed_and_does_nothing(capbench: Command, tmp_path: Path) -> None:
    ran = capbench("train", "recipe", "toy.yaml", "--data", "sample", "--dry-run")
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert "toy: 6 tasks in results/sample/toy (seconds)" in lines
    place = next(i for i, line in enumerate(lines) if "networks/tiny-seed2" in line)
    assert "planned" in lines[place]
    assert "seed 2" in lines[place]
    assert lines[place + 1].split() == ["reads", (tmp_path / "world/world.h5").as_posix()]
    assert lines[place + 2].split() == ["writes", "tiny-seed2/model.safetensors"]
    assert not (tmp_path / "results").exists()


@pytest.mark.usefixtures("toy")
def test_a_recipe_trains_what_the_command_trains_and_is_done_once(capbench: Command, tmp_path: Path) -> None:
    given = ("recipe", "toy.yaml", "--data", "sample", "--out", "out", "--set", "max_steps=2")
    ran = capbench(*given, "--json")
    assert ran.code == 0, ran.err
    made = json.loads(ran.out)
    assert {task["state"] for task in made["tasks"]} == {"done"}
    assert made["results"] == ["out/toy.json"]
    for seed in (1, 2):
        trained = public.train("scan", "tiny.yaml", seed=seed, settings={"max_steps": 2, "threads": 1})
        assert sha256_file(tmp_path / f"out/tiny-seed{seed}/model.safetensors") == trained.sha256
    results = json.loads((tmp_path / "out/toy.json").read_text(encoding="utf-8"))
    assert results["seeds"] == [1, 2]
    assert set(results["dev"]) == {"tiny-seed1", "tiny-seed2"}
    parts = json.loads((tmp_path / "out/tiny-ensemble1.json").read_text(encoding="utf-8"))["parts"]
    assert sorted(part["path"] for part in parts) == ["tiny-seed1/model.safetensors", "tiny-seed2/model.safetensors"]
    again = capbench(*given)
    assert "0 tasks done, 6 finished before" in again.out
    other = json.loads(capbench(*given, "--set", "text.score=bleu-4", "--json").out)
    states = {task["task"]: task["state"] for task in other["tasks"]}
    assert [name for name, state in states.items() if state == "done"] == ["text/bleu-4", "expert", "results"]


@pytest.mark.usefixtures("toy")
def test_seeds_trainings_and_single_steps_are_chosen(capbench: Command, tmp_path: Path) -> None:
    given = ("recipe", "toy.yaml", "--data", "sample", "--out", "out", "--set", "max_steps=1", "--json")
    trained = json.loads(capbench(*given, "--seed", "7", "--train-only").out)
    assert [task["task"] for task in trained["tasks"]] == ["networks/tiny-seed7"]
    assert (tmp_path / "out/tiny-seed7/model.safetensors").is_file()
    only = json.loads(capbench(*given, "--only", "expert").out)
    assert [task["task"] for task in only["tasks"]] == ["text/bleu-1", "expert"]
    ran = capbench(*given, "--only", "experts")
    assert (ran.code, ran.failure.code, ran.failure.value) == (2, "unknown-name", "experts")
    assert capbench(*given, "--set", "networks.seed=3").code == 2


@pytest.mark.usefixtures("toy")
def test_an_interrupted_training_resumes(capbench: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from capbench.training import loop

    @contextlib.contextmanager
    def stopped(_say: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
        yield lambda: True

    given = ("recipe", "toy.yaml", "--data", "sample", "--out", "out", "--set", "max_steps=3", "--train-only")
    with monkeypatch.context() as patch:
        patch.setattr(loop, "stop_on_signal", stopped)
        ran = capbench(*given)
    assert ran.code == 130
    assert "run the same command again" in ran.err
    assert not (tmp_path / "out/tiny-seed1/model.safetensors").exists()
    assert capbench(*given).code == 0
    whole = public.train("scan", "tiny.yaml", seed=1, settings={"max_steps": 3, "threads": 1})
    assert sha256_file(tmp_path / "out/tiny-seed1/model.safetensors") == whole.sha256


def test_a_study_that_trains(capbench: Command, tmp_path: Path, toy: dict[str, Any]) -> None:
    train = {"network": "scan", "config": "tiny.yaml", "seeds": [1, 2], "features": "world/world.h5"}
    study = {"schema": 1, "name": "mine", "protocols": ["flickr8k-expert"], "metrics": ["bleu-1"], "train": train}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(study), encoding="utf-8")
    made = public.run_recipe("mine.yaml", data="sample", settings={"max_steps": 1})
    assert made.out == Path("results/sample/mine")
    assert [task["task"] for task in made.tasks] == ["networks/tiny-seed1", "networks/tiny-seed2", "ensemble/ensemble"]
    assert made.out / "results.json" in made.results
    told = json.loads((made.out / "results.json").read_text(encoding="utf-8"))
    ours = public.correlate("flickr8k-expert", metrics=["bleu-1"], data="sample")
    assert told["cells"][0]["value"] == pytest.approx(ours.value("bleu-1"), abs=1e-12)
    study["train"] = {**train, "seed": 3}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(study), encoding="utf-8")
    ran = capbench("train", "recipe", "mine.yaml", "--data", "sample")
    assert ran.code == 2
    assert "'seed'" in ran.err
    del study["train"]
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(study), encoding="utf-8")
    assert capbench("train", "recipe", "mine.yaml", "--data", "sample").failure.code == "missing-key"


def test_a_study_imports_and_pools_the_features_that_it_trains_on() -> None:
    from capbench.studies.recipe_file import recipe_of_study
    from capbench.studies.study import Study, TrainEntry

    made = {"import": "flickr8k/grid.npz", "detector": "grid", "windows": "3x3/2"}
    train = TrainEntry("scan", "scan-flickr8k-grid", (4,), features=made)
    recipe = recipe_of_study(Study("mine", "", (), (), train=train))
    steps: dict[str, Any] = dict(recipe.steps)
    assert list(steps) == ["cells", "features", "networks"]
    assert steps["features"].windows == "3x3/2"
    assert steps["networks"].features == "features"

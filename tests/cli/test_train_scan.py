from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from capbench.core.files import sha256_file
from tests.conftest import Ran
from tests.training.world import make_world, settings


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_world(tmp_path_factory.mktemp("world"))
    config = settings(folder, epochs=2).to_dict()
    # Paths below the data folder, as the shipped files have them.
    config |= {"captions": "world.json", "features": "world.h5"}
    (folder / "tiny.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    return folder


def test_train_then_measure(
    world: Path, tmp_path: Path, capbench: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = capbench("train", "scan", world / "tiny.yaml", "--data", world)
    assert ran.code == 0, ran.err
    model = tmp_path / "results/train/tiny/model.safetensors"
    assert "dev at step" in ran.out
    assert f"results/train/tiny/model.safetensors: sha256 {sha256_file(model)}" in ran.out
    assert "train 18 images, 42 captions, dev 6 images, 14 captions" in ran.err
    assert "step 5 (epoch 1): dev image to text R@1" in ran.err

    measured = capbench("train", "scan", world / "tiny.yaml", "--data", world, "--evaluate", "test", "--json")
    assert measured.code == 0, measured.err
    found = json.loads(measured.out)
    assert (found["split"], found["images"], found["captions"]) == ("test", 6, 14)
    assert found["sha256"] == sha256_file(model)
    table = capbench(
        *("train", "scan", world / "tiny.yaml", "--data", world, "--evaluate", "test", "--folds", "2"),
        *("--model", model),
    )
    assert "test: 6 images, 14 captions, 2 folds" in table.out
    assert "recall sum" in table.out


def test_settings_on_the_command_line(
    world: Path, tmp_path: Path, capbench: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ("train", "scan", world / "tiny.yaml", "--data", world, "--seed", "3", "--set", "max_steps=2")
    ran = capbench(*command, "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert (found["step"], found["ended"]) == (2, "max_steps")
    assert found["model"] == "results/train/tiny-seed3/model.safetensors"
    other = capbench("train", "scan", world / "tiny.yaml", "--data", world, "--seed", "3", "--set", "max_steps=3")
    assert other.code == 2
    assert "max_steps (2 there, 3 now)" in other.err
    anew = capbench(
        *("train", "scan", world / "tiny.yaml", "--data", world, "--seed", "3", "--set", "max_steps=3", "--restart")
    )
    assert anew.code == 0, anew.err
    assert "3 steps, 1 epoch (max_steps)" in anew.out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("tiny.yaml", "--set", "lose.kind=hinge"), "'loss'"),
        (("tiny.yaml", "--vectors", "v.bin"), "'vectors'"),
        (("tiny.yaml", "--variant", "fier"), "'fier'"),
        (("tiny.yaml", "--folds", "5"), "--folds"),
        (("tiny.yaml", "--evaluate", "tset"), "'test'"),
        (("tiny.yaml", "--set", "vocabulary.min_count=99"), "99"),
        (("tiny.yaml", "--set", "device=cuda:99999999999999"), "'cuda:99999999999999'"),
        (("tiny.yaml", "--set", "regions=4"), "'regions' (4)"),
        (("tiny.yaml", "--set", "network.embed_dim=10000000"), "not enough memory"),
        (("tiny.yaml", "--features", "it's \\ no ü.h5"), "it's \\ no ü.h5: "),
        (("tiny.yaml", "--evaluate", "test"), "model.safetensors: "),
        (("tiny.yaml", "--evaluate", "test", "--model", "smaple"), "'sample'"),
        (("tiny.yaml", "--evaluate", "test", "--model", "sample"), "was trained on features of another kind"),
        (("tiny.yaml", "--evaluate", "test", "--restart"), "--restart"),
    ],
)
def test_bad_input_is_one_line_and_leaves_no_model(
    world: Path,
    tmp_path: Path,
    capbench: Callable[..., Ran],
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    named: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_bytes((world / "tiny.yaml").read_bytes())
    ran = capbench("train", "scan", *arguments, "--data", world)
    assert ran.code == 2
    assert ran.out == ""
    (error,) = [line for line in ran.err.splitlines() if line.startswith("error:")]
    assert named in error
    assert not list(tmp_path.rglob("model.safetensors"))


def test_without_a_file_the_shipped_ones_of_the_network_are_listed(capbench: Callable[..., Ran]) -> None:
    shipped = {path.stem for path in (Path(__file__).parents[2] / "configs" / "train").glob("*.yaml")}
    listed: list[str] = []
    for network in ("scan", "faier", "vilbert", "nneval", "leic"):
        ran = capbench("train", network)
        assert (ran.code, ran.err) == (0, "")
        names = [line.split()[0] for line in ran.out.splitlines()]
        found = json.loads(capbench("train", network, "--json").out)
        assert [entry["name"] for entry in found] == names
        assert all(entry["description"] in ran.out for entry in found)
        assert all(5 < len(entry["description"]) < 200 for entry in found)
        listed += names
    assert sorted(listed) == sorted(shipped - {"dual-encoder-flickr8k"})  # of a plug-in

"""``capbench train`` as a user types it, on small worlds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from capbench.core.files import sha256_file
from tests.conftest import Ran
from tests.metrics.nneval import world as nneval
from tests.metrics.nneval.stored import without_parser
from tests.training.world import make_world, settings


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_world(tmp_path_factory.mktemp("world"))
    config = settings(folder, epochs=2).to_dict()
    # Paths below the data folder, as the shipped files have them.
    config |= {"captions": "world.json", "features": "world.h5"}
    (folder / "tiny.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    return folder


def test_scan_is_trained_then_measured(world: Path, capbench: Callable[..., Ran], found: Callable[..., Any]) -> None:
    command = ("train", "scan", world / "tiny.yaml", "--data", world)
    ran = capbench(*command)
    assert ran.code == 0, ran.err
    model = Path("results/train/tiny/model.safetensors")
    assert "dev at step" in ran.out
    assert f"{model}: sha256 {sha256_file(model)}" in ran.out
    assert "train 18 images, 42 captions, dev 6 images, 14 captions" in ran.err
    assert "step 5 (epoch 1): dev image to text R@1" in ran.err
    measured = found(*command, "--evaluate", "test")
    assert (measured["split"], measured["images"], measured["captions"]) == ("test", 6, 14)
    assert measured["sha256"] == sha256_file(model)
    table = capbench(*command, "--evaluate", "test", "--folds", "2", "--model", model).out
    assert "test: 6 images, 14 captions, 2 folds" in table


def test_settings_on_the_command_line(world: Path, capbench: Callable[..., Ran], found: Callable[..., Any]) -> None:
    command = ("train", "scan", world / "tiny.yaml", "--data", world, "--seed", "3", "--set")
    answer = found(*command, "max_steps=2")
    assert (answer["step"], answer["ended"]) == (2, "max_steps")
    assert answer["model"] == "results/train/tiny-seed3/model.safetensors"
    other = capbench(*command, "max_steps=3")
    assert (other.code, "max_steps (2 there, 3 now)" in other.err) == (2, True)
    assert "3 steps, 1 epoch (max_steps)" in capbench(*command, "max_steps=3", "--restart").out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--set", "vocabulary.min_count=99"), "99"),
        (("--set", "device=cuda:99999999999999"), "'cuda:99999999999999'"),
        (("--set", "regions=4"), "training requires 4 of every image"),
        (("--set", "network.embed_dim=10000000"), "not enough memory"),
        (("--features", "it's \\ no ü.h5"), "it's \\ no ü.h5: "),
        (("--evaluate", "test"), "model.safetensors: "),
        (("--evaluate", "test", "--model", "sample"), "was trained on features of another kind"),
    ],
)
def test_bad_input_is_one_line_and_leaves_no_model(
    world: Path, capbench: Callable[..., Ran], arguments: tuple[str, ...], named: str
) -> None:
    ran = capbench("train", "scan", world / "tiny.yaml", *arguments, "--data", world)
    assert (ran.code, ran.out) == (2, "")
    (error,) = [line for line in ran.err.splitlines() if line.startswith("error:")]
    assert named in error
    assert not list(Path().rglob("model.safetensors"))


def test_without_a_file_the_shipped_ones_of_the_network_are_listed(
    capbench: Callable[..., Ran], found: Callable[..., Any]
) -> None:
    shipped = {path.stem for path in (Path(__file__).parents[2] / "configs" / "train").glob("*.yaml")}
    listed: list[str] = []
    for network in ("scan", "faier", "vilbert", "nneval", "leic"):
        out = capbench("train", network).out
        listed += (names := [line.split()[0] for line in out.splitlines()])
        entries = found("train", network)
        assert [entry["name"] for entry in entries] == names
        assert all(entry["description"] in out and 5 < len(entry["description"]) < 200 for entry in entries)
    assert sorted(listed) == sorted(shipped - {"dual-encoder-flickr8k"})  # of a plug-in


def test_nneval_is_trained_then_scores(capbench: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    without_parser(monkeypatch)
    world = nneval.make_world(Path("world").resolve())
    Path("tiny.yaml").write_text(yaml.safe_dump(nneval.settings(world).to_dict()), encoding="utf-8")
    ran = capbench("train", "nneval", "tiny.yaml", "--seed", "2", "--set", "domain=drawings")
    assert ran.code == 0, ran.err
    model = Path("results/train/tiny-seed2/model.safetensors")
    assert f"{model}: sha256 {sha256_file(model)}" in ran.out
    assert "14 images, 84 captions" in ran.err
    assert "dev log_likelihood" in ran.err
    given = ["--option", f"nneval.vectors={world / 'v.bin'}", "--option", f"nneval.df={world / 'people.json'}"]
    scored = capbench("score", "-m", "nneval", "-d", "flickr8k-expert", "--model", f"nneval={model}", *given)
    assert scored.code == 0, scored.err
    assert "14 images (drawings)" in scored.err

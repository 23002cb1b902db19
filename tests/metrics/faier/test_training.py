from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from capbench.api.training import evaluate_model
from capbench.core.errors import UsageError
from capbench.metrics.faier.network import FaierModel
from capbench.metrics.faier.training import FaierTask
from capbench.text.spice import scene_graph
from capbench.training.trainer import train
from tests.errors import raises
from tests.metrics.faier.models import put_parses, settings
from tests.training.interruptions import check_stopped
from tests.training.world import log_of, make_world


@pytest.fixture(scope="module")
def placed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("world"), seed=5, boxes=True)


@pytest.fixture
def world(placed: Path) -> Iterator[Path]:
    put_parses(placed)
    yield placed
    scene_graph.forget()


def test_training_finds_images_for_captions(world: Path, tmp_path: Path) -> None:
    learning = {"epochs": 10, "optimiser": {"lr": 0.03}, "evaluation": {"every": 50, "references": [0, 1]}}
    result = train(FaierTask, settings(world, **learning), tmp_path / "run")
    assert result.ended == "epochs"
    by_references = result.chosen["by_references"]
    assert set(by_references) == {"0", "1"}
    assert by_references["1"]["text_to_image"]["r@5"] > 80
    sums = [recalls["recall_sum"] for recalls in by_references.values()]
    assert result.chosen["recall_sum"] == pytest.approx(np.mean(sums), abs=1e-5)
    steps = [line["loss"] for line in log_of(tmp_path / "run") if line["kind"] == "step"]
    assert np.mean(steps[-5:]) < 0.8 * np.mean(steps[:5])
    model = FaierModel.load(result.model or "")
    assert model.training["dev"] == result.chosen
    assert "stand" in model.vocabulary.words  # of triplets alone


@pytest.mark.parametrize(
    ("variant", "draw", "most"),
    [
        *((variant, "all", 4) for variant in ("fier", "aier", "fier+aier", "faier-object", "faier")),
        *((variant, draw, most) for variant in ("faier-object", "faier") for draw, most in (("all", 1), ("random", 4))),
    ],
)
def test_every_row_of_table_4_trains(world: Path, tmp_path: Path, variant: str, draw: str, most: int) -> None:
    references = {"draw": draw, "most": most}
    network = {"embed_dim": 8, "word_dim": 6, "variant": variant}
    config = settings(world, network=network, references=references, max_steps=3, loss={"kind": "hinge"})
    result = train(FaierTask, config, tmp_path / "run")
    assert result.step == 3
    assert FaierModel.load(result.model or "").options.variant == variant


def test_a_training_interrupted_anywhere_ends_with_the_same_file(world: Path, tmp_path: Path) -> None:
    config = settings(world, epochs=2)
    whole = check_stopped(FaierTask, config, tmp_path, (4,))
    assert train(FaierTask, settings(world, epochs=2, memory_mb=0), tmp_path / "streamed").sha256 == whole.sha256
    assert train(FaierTask, settings(world, epochs=2, seed=2), tmp_path / "other").sha256 != whole.sha256


def test_the_command_trains_rows_and_measures_them(
    world: Path, tmp_path: Path, capbench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = settings(world, max_steps=2)
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(config.to_dict()), encoding="utf-8")
    row = ("--set", "network.variant=faier-object", "--set", "references.draw=all", "--set", "references.most=1")
    one = capbench("train", "faier", path, *row, "--seed", "3")
    assert one.code == 0, one.err
    run = tmp_path / "results/train/tiny-seed3"
    assert FaierModel.load(run / "model.safetensors").options.variant == "faier-object"
    command = ("train", "faier", path, *row, "--seed", "3", "--evaluate", "test")
    measured, halves = capbench(*command), capbench(*command, "--folds", "2")
    assert measured.code == halves.code == 0, measured.err
    assert "with 1 reference, 6 images: image to text R@1 " in measured.out
    assert "test: 2 folds" in halves.out
    with raises(UsageError, "unsupported", value="vocabulary"):
        evaluate_model("faier", path, out=run, vocabulary=path)
    assert halves.out != measured.out.replace("test:", "test: 2 folds")  # a caption among three is found more easily

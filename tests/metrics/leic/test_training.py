from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from capbench.core.errors import DataError, StudyError
from capbench.features.store import open_store
from capbench.metrics.leic.network import load_leic
from capbench.metrics.leic.training import (
    NEGATIVES,
    LeicTask,
    corrupted,
    parts_of,
)
from capbench.text.vocabulary import END, SPECIAL
from capbench.training.trainer import train
from capbench.weights.training_files import read_training_record
from tests.errors import raises
from tests.metrics.leic.world import make_world, settings, system_files
from tests.training.interruptions import check_stopped
from tests.training.world import StopAfter


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("leic"))


def task_of(world: Path, **changes: Any) -> LeicTask:
    return LeicTask(settings(world, **changes), None, torch.device("cpu"), StopAfter())


def test_people_are_told_from_ruined_captions(world: Path, tmp_path: Path) -> None:
    config = settings(
        world, epochs=60, dropout=0.0, negatives=["replaced-words"], optimiser={"lr": 0.01, "lr_decay": 1}
    )
    result = train(LeicTask, config, tmp_path / "run")
    assert result.chosen["accuracy"] > 0.8
    assert result.chosen["p human"] > 0.5 > result.chosen["p replaced-words"]
    assert result.model is not None
    model = load_leic(result.model)
    record = read_training_record(result.model)
    assert record.photographs is not None
    assert record.selected is not None
    assert record.photographs.has_photographs([f"train{n:02d}" for n in range(18)]).all()
    assert (len(record.photographs), len(record.selected), record.unrecorded) == (18, 6, ())
    assert str(model.training["about"]).endswith("captions of 18 images against replaced-words")
    assert model.features == open_store(world / "world.h5").fingerprint.kind


@pytest.mark.parametrize("machine", [False, True])
def test_a_training_interrupted_anywhere_ends_with_the_same_file(world: Path, tmp_path: Path, machine: bool) -> None:
    changes = {"machine": system_files(world), "folds": {"of": 3}} if machine else {}
    config = settings(world, **changes)
    whole = check_stopped(LeicTask, config, tmp_path, (1, 5))
    assert train(LeicTask, settings(world, **changes, seed=2), tmp_path / "c").sha256 != whole.sha256


def test_words_of_captions_are_replaced_or_permuted() -> None:
    caption = [*range(10, 20), END]
    changed: set[int] = set()
    for seed in range(200):
        rng = np.random.default_rng(seed)
        other = corrupted(caption, "replaced-words", 500, rng)
        assert other[-1] == END
        assert len(other) == len(caption)
        places = [place for place, (old, new) in enumerate(zip(caption, other, strict=True)) if old != new]
        changed.add(len(places))
        assert all(other[place] >= len(SPECIAL) for place in places)
        moved = corrupted(caption, "permuted", 500, rng)
        assert sorted(moved) == sorted(caption)
        assert moved[-1] == END
        assert sum(old != new for old, new in zip(caption, moved, strict=True)) <= 9
    assert changed <= set(range(10))  # a word may be replaced by itself
    assert {2, 5, 8} <= changed
    rng = np.random.default_rng(1)
    assert corrupted([7, END], "permuted", 500, rng) == [7, END]
    assert corrupted([END], "replaced-words", 500, rng) == [END]
    assert corrupted([7, END], "replaced-words", 500, rng)[0] != 7
    drawn = {tuple(corrupted([7, 8, END], "permuted", 500, np.random.default_rng(n))) for n in range(9)}
    assert drawn == {(7, 8, END), (8, 7, END)}


def test_a_batch_has_as_many_right_as_wrong_captions_beside_the_same_references(world: Path) -> None:
    task = task_of(world, machine=system_files(world), splits={"train": ["train", "val", "test"]}, folds={"of": 3})
    kinds: dict[str, int] = {}
    for epoch in range(20):
        seen = []
        for batch in task.batches(epoch, 0):
            for right, wrong in zip(batch[::2], batch[1::2], strict=True):
                assert right.kind == "human"
                assert right.reference == wrong.reference
                assert right.reference != right.candidate
                of_image = task.images[0].human[right.image]
                assert list(right.candidate) in map(list, of_image)
                if wrong.kind == "machine":
                    assert wrong.candidate in task.images[0].machine[right.image].values()
                kinds[wrong.kind] = kinds.get(wrong.kind, 0) + 1
                seen.append(right.image)
        assert sorted(seen) == list(range(len(task.images[0].human)))
    assert kinds["machine"] == pytest.approx(200, abs=50)
    assert set(kinds) == {"machine", *NEGATIVES}
    whole = [batch for epoch in range(2) for batch in task.batches(epoch, 0)]
    assert [*task.batches(1, 2)] == whole[task.steps_per_epoch + 2 :]


def test_folds_leave_images_out_and_measure_on_them(world: Path, tmp_path: Path) -> None:
    every = [f"train{n:02d}" for n in range(18)]
    left_out: list[str] = []
    for out in (1, 2, 3):
        task = task_of(world, machine=system_files(world), folds={"of": 3, "out": out}, epochs=1)
        record = task.record
        assert record.photographs is not None
        assert record.selected is not None
        assert (len(record.photographs), len(record.selected)) == (12, 6)
        trained = record.photographs.has_photographs(every)
        np.testing.assert_array_equal(trained, ~record.selected.has_photographs(every))
        left_out += [image for image, inside in zip(every, trained, strict=True) if not inside]
        assert task.facts()["about"].endswith(
            f"(all but part {out} of 3) against other-image, replaced-words, permuted, captions of 2 systems"
        )
    assert sorted(left_out) == every
    assert {"p human", "p machine", "p permuted"} < set(task.validate(task.model, lambda: None))
    images = [f"im{n}" for n in range(10)]
    assert parts_of(images, 4).tolist() == parts_of(images[::-1], 4).tolist()[::-1]
    assert sorted(parts_of(images, 4)) == [1, 1, 1, 2, 2, 2, 3, 3, 4, 4]


def test_the_measured_numbers_are_those_of_plain_code(world: Path) -> None:
    task = task_of(world, negatives=["other-image"])
    numbers = task.validate(task.model, lambda: None)
    model = task.model.eval()
    right: list[float] = []
    wrong: list[float] = []
    with torch.inference_mode():
        for pair in task._dev_pairs:
            states = []
            for caption in (pair.reference, pair.candidate):
                outputs, _ = model.lstm(model.words(torch.tensor([list(caption)])))
                states.append(outputs[0, -1])
            seen = model.image(torch.from_numpy(task.images[1].vectors[pair.image]))
            hidden = torch.relu(model.hidden(torch.cat([seen, *states])))
            human = float(torch.softmax(model.classes(hidden), 0)[0])
            (right if pair.kind == "human" else wrong).append(human)
    assert numbers["p human"] == pytest.approx(np.mean(right), abs=1e-5)
    assert numbers["p other-image"] == pytest.approx(np.mean(wrong), abs=1e-5)
    likelihood = (np.log(right).mean() + np.log1p(-np.array(wrong)).mean()) / 2
    assert numbers["log_likelihood"] == pytest.approx(likelihood, abs=1e-5)
    correct = ((np.array(right) > 0.5).mean() + (np.array(wrong) <= 0.5).mean()) / 2
    assert numbers["accuracy"] == pytest.approx(correct)


def test_invalid_settings_and_data_are_named(world: Path, tmp_path: Path) -> None:
    for change in ({"negatives": None}, {"folds": {"out": 2}}):
        with raises(StudyError, "wrong-value"):
            settings(world, **change)
    with raises(DataError, "too-few"):
        task_of(world, folds={"of": 99})
    few = json.loads((world / "one.json").read_text())[:20]
    (tmp_path / "few.json").write_text(json.dumps(few))
    with raises(DataError, "missing-caption", value="val02"):
        task_of(world, machine=[str(tmp_path / "few.json")])

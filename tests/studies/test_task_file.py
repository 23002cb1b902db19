"""Task files: what they may contain, and the shipped ones."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from capbench.core.errors import StudyError
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import find_root
from capbench.studies.task_file import DEFAULT_TASKS, RankedTask, load_tasks, resolve_tasks
from tests.errors import raises


def resolved(path: Path, *tasks: str) -> tuple[RankedTask, ...]:
    path.write_text("schema: 1\nname: mine\ntasks:\n" + "".join(f"  - {task}\n" for task in tasks), encoding="utf-8")
    return resolve_tasks(load_tasks(path), path, find_root("sample"))


def test_the_shipped_tasks_cover_all_published_judgements_with_equal_weights() -> None:
    tasks = resolve_tasks(load_tasks(DEFAULT_TASKS), DEFAULT_TASKS, find_root("sample"))
    weights: Counter[str] = Counter()
    for task in tasks:
        weights[task.protocol.dataset] += int(task.weight)
    assert len(tasks) >= 12
    assert set(weights.values()) == {12}
    assert set(weights) == {
        "flickr8k-expert",
        "flickr8k-crowdflower",
        "composite",
        "pascal-50s",
        "thumb",
        "nebula",
        "polaris",
        "foil",
    }
    assert load_tasks("configs/tasks/default.yaml") == load_tasks(DEFAULT_TASKS)


@pytest.mark.parametrize("file", ["default", "leaderboard"])
def test_the_name_of_a_data_set_means_its_default_protocol(file: str) -> None:
    """Of a group, too: composite-8k would be composite@8k; other items have another name."""
    for task in resolve_tasks(load_tasks(file), file, find_root("sample")):
        dataset = open_dataset(task.protocol.dataset, find_root("sample"))
        short = dataset.name.partition("-")[0]
        if task.name in (dataset.name, *(f"{name}-{task.group}".lower() for name in (dataset.name, short))):
            assert task.protocol == dataset.protocol(), task.name


@pytest.mark.parametrize(
    ("task", "code", "value"),
    [
        ("{protocol: flickr8k-expert, weight: 0}", "invalid", "tasks.0.weight"),
        ("{protocol: flickr8k-expert, weight: .nan}", "invalid", "tasks.0.weight"),
        ("{protocol: flickr8k-expert, wieght: 1}", "invalid", "tasks.0.wieght"),
        ("{name: x}", "invalid", "tasks.0.protocol"),
        ("{protocol: flickr9k}", "unknown-name", "flickr9k"),
        ("{protocol: pascal-50s, group: XX}", "unknown-name", "XX"),
        ("{protocol: nocaps}", "unsupported", "nocaps/first-vs-rest/mean"),
        (
            "{protocol: flickr8k-expert/mean-acc-eq}",
            "unsupported",
            "flickr8k-expert/no-own-captions/mean-acc-eq",
        ),
    ],
)
def test_an_invalid_task_is_rejected(tmp_path: Path, task: str, code: str, value: str) -> None:
    with raises(StudyError, code, path=tmp_path / "t.yaml", value=value):
        resolved(tmp_path / "t.yaml", task)


def test_tasks_that_are_repeated_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    with raises(StudyError, "duplicate", path=path, value="b"):
        resolved(
            path, "{name: a, protocol: flickr8k-expert}", "{name: b, protocol: flickr8k-expert/unaggregated-tau-c}"
        )
    with raises(StudyError, "duplicate", path=path, value="a"):
        resolved(path, "{name: a, protocol: flickr8k-expert}", "{name: a, protocol: nebula}")
    with raises(StudyError, "missing-file", value=None):
        load_tasks("defalt")

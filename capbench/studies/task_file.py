"""Reads task files: the tasks that ``capbench rank`` ranks metrics on.

Schema version 1::

    schema: 1
    name: my-tasks
    title: Captions of products        # optional
    tasks:
      - {name: expert, protocol: flickr8k-expert/no-own-captions/unaggregated-tau-c, weight: 1}
      - {name: mm, protocol: pascal-50s/random-5-refs/direct-strict, group: MM, weight: 0.5}
      - {protocol: ratings.csv}        # name: the protocol; weight: 1

``protocol`` is the name of a data set (its default protocol) or ``dataset/items/statistic``; ``group`` restricts the
task to one group of its items or pairs, which are scored together with all others.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from capbench.core.errors import ProtocolError, StudyError, suggest
from capbench.core.typed_json import Strict, validated
from capbench.core.yaml import read_yaml, shipped_configs
from capbench.datasets.opening import open_dataset, split_protocol
from capbench.datasets.protocol import Protocol
from capbench.datasets.root import DataRoot
from capbench.studies.study import Problems

DEFAULT_TASKS = "default"
"""Name of the shipped tasks that are used if no others are named."""


class TaskEntry(Strict):
    """One task of a file; the keys are described in the module."""

    name: Annotated[str, Field(pattern=r"^\S.{0,39}$")] | None = None
    protocol: Annotated[str, Field(pattern=r"\S")]
    group: Annotated[str, Field(pattern=r"\S")] | None = None
    weight: Annotated[float, Field(gt=0)] = 1.0


class TaskFile(Strict):
    """The content of a task file."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    name: Annotated[str, Field(pattern=r"\S")]
    title: str = ""
    tasks: Annotated[tuple[TaskEntry, ...], Field(min_length=1)]


@dataclass(frozen=True)
class RankedTask:
    """A task with its protocol resolved."""

    name: str  # in tables
    protocol: Protocol
    group: str  # of the items or pairs; "" for all
    weight: float  # in the overall value, > 0
    spelled: str  # id of the protocol with the data set as the file names it: by path or class, if not registered


def load_tasks(name: str | os.PathLike[str]) -> TaskFile:
    """Read a task file, by its path or the name of a shipped one. Raises StudyError."""
    path = Path(name)
    if not os.path.isfile(path):  # noqa: PTH113  Path.is_file raises for a folder without read permission
        shipped = {file.stem: file for file in sorted((shipped_configs() / "tasks").glob("*.yaml"))}
        if path.stem not in shipped or path.suffix not in ("", ".yaml") or path.parent not in (Path(), _FOLDER):
            hint = suggest(path.stem, list(shipped))
            raise StudyError("there is no such task file", code="missing-file", path=path, hint=hint)
        path = shipped[path.stem]
    raw = read_yaml(path, "a task file (a mapping with 'schema', 'name', 'tasks')")
    return validated(TaskFile, raw, path, error=StudyError, code="invalid", hint="See docs/rank.md")


_FOLDER = Path("configs/tasks")


def resolve_tasks(
    file: TaskFile, path: str | os.PathLike[str], root: DataRoot, columns: Mapping[str, str] | None = None
) -> tuple[RankedTask, ...]:
    """Resolve the protocols of a task file; every problem is reported at once.

    ``columns``: for data sets that are files, the column of a field. Raises StudyError if a protocol or group is
    unknown, two tasks are the same or have one name, or a statistic cannot be tested by permutation.
    """
    problems = Problems(path)
    tasks: list[RankedTask] = []
    for entry in file.tasks:
        with problems.catching():
            name, rest = split_protocol(entry.protocol)
            dataset = open_dataset(name, root, columns)
            protocol = dataset.protocol(rest)
            _refuse_untestable(protocol)
            known = dataset.groups
            if entry.group is not None and known is not None and entry.group not in known:
                hint = suggest(entry.group, list(known))
                message = f"{protocol} has no group '{entry.group}'. {hint}"
                problems.add(message, "unknown-name", entry.group)
            group = entry.group or ""
            title = entry.name or f"{protocol}{f'@{group}' if group else ''}"
            spelled = f"{name}/{protocol.items.name}/{protocol.statistic.name}"
            tasks.append(RankedTask(title, protocol, group, entry.weight, spelled))
    _refuse_repeated(tasks, problems)
    problems.raise_if_any()
    return tuple(tasks)


def _refuse_untestable(protocol: Protocol) -> None:
    """Raise ProtocolError for a statistic without human judgements or without a permutation test."""
    spec = protocol.statistic
    if spec.kind == "mean":
        message, hint = f"{protocol} has no human judgements to rank metrics on", "Choose a correlation or an accuracy"
    elif spec.coefficient == "acc-eq":
        message, hint = f"{protocol} is too slow for a permutation test", "Choose within-image-acc-eq-held-out"
    elif spec.systems == "soft-accuracy":
        message, hint = f"{protocol} has no permutation test", "Choose system-accuracy or system-pearson"
    else:
        return
    raise ProtocolError(message, code="unsupported", value=str(protocol), hint=hint)


def _refuse_repeated(tasks: Sequence[RankedTask], problems: Problems) -> None:
    names, places = set[str](), set[tuple[str, str]]()
    for task in tasks:
        place = (str(task.protocol), task.group)
        if task.name in names:
            problems.add(f"two tasks have the name '{task.name}'", "duplicate", task.name)
        elif place in places:
            problems.add(f"the task '{task.name}' repeats the protocol and group of another", "duplicate", task.name)
        names.add(task.name)
        places.add(place)

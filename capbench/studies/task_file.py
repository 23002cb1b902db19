"""Reads task files: the tasks that ``capbench rank`` ranks metrics on (``docs/rank.md``)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from capbench.core.errors import ProtocolError, StudyError, suggest
from capbench.core.typed_json import Strict, validated
from capbench.core.yaml import find_config, read_yaml
from capbench.datasets.opening import open_dataset, split_protocol
from capbench.datasets.protocol import Protocol
from capbench.datasets.root import DataRoot
from capbench.studies.study import Problems

DEFAULT_TASKS = "default"  # name of the shipped tasks that are used if no others are named


class TaskEntry(Strict):
    """One task of a file, by default with the protocol as its name."""

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
    path = find_config(name, "tasks", "task")
    raw = read_yaml(path, "a task file (a mapping with 'schema', 'name', 'tasks')")
    return validated(TaskFile, raw, path, error=StudyError, code="invalid", hint="See docs/rank.md")


def resolve_tasks(
    file: TaskFile, path: str | os.PathLike[str], root: DataRoot, columns: Mapping[str, str] | None = None
) -> tuple[RankedTask, ...]:
    """Resolve the protocols of a task file. Raises StudyError with all problems at once."""
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
            if title in [task.name for task in tasks]:
                problems.add(f"two tasks have the name '{title}'", "duplicate", title)
            elif (str(protocol), group) in [(str(task.protocol), task.group) for task in tasks]:
                problems.add(f"the task '{title}' repeats the protocol and group of another", "duplicate", title)
            tasks.append(RankedTask(title, protocol, group, entry.weight, spelled))
    problems.raise_if_any()
    return tuple(tasks)


def _refuse_untestable(protocol: Protocol) -> None:
    spec = protocol.statistic
    calibrated = (spec.level, spec.coefficient) == ("captions", "acc-eq")  # over the pairs of all captions
    reasons = {
        "has no human judgements to rank metrics on": (spec.kind == "mean", "Choose a correlation or an accuracy"),
        "is too slow for a permutation test": (calibrated, "Choose within-image-acc-eq-held-out"),
        "has no permutation test": (spec.coefficient == "soft-accuracy", "Choose system-accuracy or system-pearson"),
    }
    for reason, (applies, hint) in reasons.items():
        if applies:
            raise ProtocolError(f"{protocol} {reason}", code="unsupported", value=str(protocol), hint=hint)

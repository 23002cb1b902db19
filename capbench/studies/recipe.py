"""Recipes: features, trainings, scores, evaluations and results as tasks with inputs and outputs.

A step of a recipe (:mod:`capbench.studies.recipe_file`) plans tasks. A task has a record next to its outputs, with
its settings and the SHA-256 of the files that it read and wrote: a finished task is skipped, an interrupted one is
repeated (a training resumes from its checkpoint), and so is one with changed inputs or settings. A task is locked while
it runs, so two runs in one folder share the work.
"""

from __future__ import annotations

import abc
import functools
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict

from capbench.core.errors import MissingFileError, UsageError, suggest
from capbench.core.files import atomic_write, lock, read_json, sha256_file
from capbench.core.progress import words
from capbench.datasets.root import DataRoot

if TYPE_CHECKING:
    from capbench.core.records import Judgements
    from capbench.datasets.protocol import Protocol
    from capbench.training.trainable import Bars

T = TypeVar("T")

_LONGEST_S = 7 * 86400.0


class LeftOut(Exception):  # noqa: N818  # no error
    """A step is left out because an optional input is missing; the text says which."""


class Entry(BaseModel):
    """A mapping within a recipe; unknown keys are rejected."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True)


class Step(Entry, abc.ABC):
    """A step in a recipe file; a subclass is a kind of steps.

    The field with the value of the kind's key has that key as its alias.
    """

    kind: ClassVar[str]

    @abc.abstractmethod
    def plan(self, name: str, planning: Planning) -> None:
        """Add the step's tasks.

        Args:
            name: name of the step.
            planning: collects the tasks, and knows the products of earlier steps.

        Raises:
            LeftOut: an optional input is missing; the step is left out.
            CapbenchError: a setting does not fit, or a required input is missing.
        """

    def as_json(self) -> dict[str, Any]:
        """The options, without defaults."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)


@dataclass(frozen=True)
class Recipe:
    """A recipe.

    Attributes:
        name: name of the folder that it writes, below ``results``.
        title: title.
        takes: duration, in words.
        data: files of the data folder that its steps read.
        steps: steps by name, in order.
        path: the file.
        changes: ``STEP.key=value`` changes of options, which ``steps`` contains.
    """

    name: str
    title: str
    takes: str
    data: tuple[str, ...]
    steps: Mapping[str, Step]
    path: str
    changes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Product:
    """A file that a task writes.

    Attributes:
        path: the file.
        fields: its ``seed``, ``variant``, ``metric``, ``network``, for names of rows and files.
    """

    path: Path
    fields: Mapping[str, Any] = field(default_factory=dict)


def by_variant(products: Sequence[Product]) -> Iterator[tuple[Mapping[str, Any], list[Product]]]:
    """Products grouped by their fields except seed and network, in order."""

    def key(product: Product) -> dict[str, Any]:
        return {name: value for name, value in product.fields.items() if name not in ("seed", "network", "run")}

    for fields, group in groupby(products, key):
        yield fields, list(group)


def groups(products: Sequence[T], size: int | None) -> list[Sequence[T]]:
    """Products in groups of a size, in order, without an incomplete last group. Without a size: all, if several."""
    if size is None:
        return [products] if len(products) > 1 else []
    return [products[start : start + size] for start in range(0, len(products) - size + 1, size)]


@dataclass(frozen=True)
class Run:
    """Context of running tasks.

    Attributes:
        root: the data folder.
        note: shows a line.
        bars: shows progress.
    """

    root: DataRoot
    note: Callable[[str], None]
    bars: Bars


@dataclass(frozen=True)
class Task:
    """A unit of work of a step.

    Attributes:
        name: ``STEP`` or ``STEP/PART``.
        step: name of the step.
        kind: kind of the step.
        settings: everything except inputs that determines the outputs, as JSON values.
        inputs: files that it reads.
        products: files that it writes.
        work: function that does the work.
        after: steps whose products it reads.
    """

    name: str
    step: str
    kind: str
    settings: Mapping[str, Any]
    inputs: tuple[Path, ...]
    products: tuple[Product, ...]
    work: Callable[[Run], None] = field(compare=False, repr=False)
    after: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Plan:
    """A recipe's tasks, in order.

    Attributes:
        recipe: the recipe.
        out: the output folder.
        data: the data folder.
        tasks: the tasks.
        left_out: reason by name of each omitted step.
    """

    recipe: Recipe
    out: Path
    data: Path
    tasks: tuple[Task, ...]
    left_out: Mapping[str, str]

    def as_json(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "recipe": self.recipe.name,
            "out": self.out.as_posix(),
            "tasks": [
                {
                    "task": task.name,
                    "kind": task.kind,
                    "settings": dict(task.settings),
                    "inputs": [self.shown(path) for path in task.inputs],
                    "outputs": [self.shown(product.path) for product in task.products],
                }
                for task in self.tasks
            ],
            "left_out": dict(self.left_out),
        }

    def left_out_by_reason(self) -> dict[str, list[str]]:
        """Omitted steps, by reason."""
        steps: dict[str, list[str]] = {}
        for step, reason in self.left_out.items():
            steps.setdefault(reason, []).append(step)
        return steps

    def shown(self, path: Path) -> str:
        """A path below the recipe's folder or the data folder, without that folder, since it may be moved."""
        for folder in (self.out, self.data):
            if path.is_relative_to(folder):
                return path.relative_to(folder).as_posix()
        return path.as_posix()

    def digests(self, paths: Sequence[Path], of: Callable[[Path], str]) -> dict[str, str]:
        """SHA-256 by path."""
        return {self.shown(path): of(path) for path in paths}


class Planning:
    """The plan as seen by a step that adds its tasks.

    Args:
        recipe: the recipe.
        out: the output folder.
        root: the data folder.
        seeds: replacement of the trainings' seeds; empty for their own.
        changes: ``key=value`` settings of all trainings.
        note: shows a line.

    Attributes:
        data: files of the data folder that steps read.
    """

    def __init__(
        self,
        recipe: Recipe,
        out: Path,
        root: DataRoot,
        seeds: Sequence[int] = (),
        changes: Sequence[str] = (),
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.recipe, self.out, self.root = recipe, out, root
        self.seeds, self.changes, self.note = tuple(seeds), tuple(changes), note
        self.tasks: list[Task] = []
        self.left_out: dict[str, str] = {}
        self._products: dict[str, list[Product]] = {}
        self._judged: dict[str, tuple[Protocol, tuple[Judgements, ...]]] = {}
        self._image_groups: dict[str, Mapping[str, Sequence[str]]] = {}
        self._after: set[str] = set()
        self.data = tuple(root.file(name) for name in recipe.data)

    def judged(self, name: str, optional: bool = False) -> tuple[Protocol, tuple[Judgements, ...]]:
        """The protocol of a name (for a data set, its default) and its draws of judgements, loaded once.

        Raises:
            LeftOut: a file is missing, and the step is optional.
            CapbenchError: there is no such protocol, or a file is missing or damaged.
        """
        if name not in self._judged:
            from capbench.datasets.opening import open_dataset, split_protocol

            dataset, rest = split_protocol(name)
            opened = open_dataset(dataset, self.root)
            protocol = opened.protocol(rest)
            try:
                self._judged[name] = protocol, opened.load(protocol.items)
            except MissingFileError as error:
                if not optional:
                    raise
                raise LeftOut(str(error)) from error
        return self._judged[name]

    def image_groups(self, name: str) -> Mapping[str, Sequence[str]]:
        """All images of the data set of a protocol (:meth:`judged`), with their groups, loaded once."""
        from capbench.datasets.images import image_groups
        from capbench.datasets.opening import open_dataset, split_protocol

        whole = split_protocol(name)[0].partition("@")[0]
        if whole not in self._image_groups:
            self._image_groups[whole] = image_groups(open_dataset(whole, self.root))()
        return self._image_groups[whole]

    def fingerprint(self, name: str) -> str:
        """SHA-256 of the items, ratings and preferences of :meth:`judged`."""
        _, draws = self.judged(name)
        digest = hashlib.sha256()
        for draw in draws:
            for item in draw.items:
                digest.update(item.key)
            for aspect, ratings in draw.ratings.items():
                digest.update(aspect.encode())
                digest.update(ratings.item.tobytes() + ratings.value.tobytes())
            for label, pairs in draw.preferences.items():
                digest.update(label.encode())
                digest.update(pairs.first.tobytes() + pairs.second.tobytes() + pairs.preferred.tobytes())
        return digest.hexdigest()

    def begin(self, step: str) -> None:
        """Set the step of the next tasks."""
        self._products[step], self._after = [], set()

    def products(self, step: str) -> list[Product]:
        """Products of an earlier step.

        Raises:
            LeftOut: the step is left out.
            UsageError: there is no such earlier step.
        """
        if step in self.left_out:
            raise LeftOut(self.left_out[step])
        if step not in self._products:
            hint = suggest(step, list(self._products))
            raise UsageError(f"there is no earlier step '{step}'", code="unknown-name", value=step, hint=hint)
        self._after.add(step)
        return self._products[step]

    def behind(self, steps: Iterable[str]) -> dict[str, list[Product]]:
        """Products of steps and of all steps that they require, directly or not, by step, in the recipe's order."""
        required = set(steps)
        for task in reversed(self.tasks):
            if task.step in required:
                required |= task.after
        return {step: of_step for step, of_step in self._products.items() if step in required}

    def one(self, step: str) -> Path:
        """The only file of an earlier step. Raises UsageError if it makes several."""
        products = self.products(step)
        if len(products) != 1:
            raise UsageError(f"the step '{step}' makes {len(products)} files, not one", code="mismatch", value=step)
        return products[0].path

    def add(
        self,
        name: str,
        kind: str,
        settings: Mapping[str, Any],
        inputs: Sequence[Path],
        products: Sequence[Product],
        work: Callable[[Run], None],
    ) -> None:
        """Add a task of the current step; ``name`` is ``STEP`` or ``STEP/PART``."""
        step = name.partition("/")[0]
        self._products[step] += products
        self.tasks.append(
            Task(name, step, kind, settings, tuple(inputs), tuple(products), work, frozenset(self._after))
        )

    def have(self, step: str, products: Sequence[Product]) -> None:
        """Add existing files as products of a step."""
        self._products[step] += products


def make_plan(
    recipe: Recipe,
    out: Path,
    root: DataRoot,
    *,
    seeds: Sequence[int] = (),
    changes: Sequence[str] = (),
    only: str | None = None,
    train_only: bool = False,
    note: Callable[[str], None] = lambda _: None,
) -> Plan:
    """The tasks of a recipe; checks all settings and inputs without running anything.

    Args:
        recipe: the recipe.
        out: the output folder.
        root: the data folder.
        seeds: replacement of the trainings' seeds.
        changes: ``key=value`` settings of all trainings.
        only: name of a step: run only this step and those that it requires.
        train_only: True to run only the trainings and the steps that they require.
        note: shows a line.

    Raises:
        CapbenchError: a setting does not fit, or a required input is missing.
    """
    steps = dict(recipe.steps)
    if only is not None and only not in steps:
        hint = suggest(only, list(steps))
        raise UsageError(f"the recipe has no step '{only}'", code="unknown-name", value=only, hint=hint)
    twice = next((seed for place, seed in enumerate(seeds) if seed in seeds[:place]), None)
    if twice is not None:
        raise UsageError(f"the seed {twice} occurs twice", code="duplicate", value=twice, hint="List each seed once")
    trainings = [name for name, step in steps.items() if step.kind == "train"]
    if changes and not trainings:
        hint = "Change an option of a step: STEP.key=value"
        raise UsageError(
            f"'{changes[0]}' changes a training, and the recipe has none", code="conflict", value=changes[0], hint=hint
        )
    wanted = {only} if only is not None else set(trainings) if train_only else set(steps)
    last = max((place for place, name in enumerate(steps) if name in wanted), default=-1)
    planning = Planning(recipe, out, root, seeds, changes, note)
    for name, step in list(steps.items())[: last + 1]:
        if train_only and step.kind in ("score", "evaluate", "results"):
            continue
        planning.begin(name)
        try:
            step.plan(name, planning)
        except LeftOut as reason:
            planning.left_out[name] = str(reason)
    required: set[str] = set(wanted)
    for task in reversed(planning.tasks):
        if task.step in required:
            required |= task.after
    return Plan(
        recipe,
        out,
        root.path,
        tuple(task for task in planning.tasks if task.step in required),
        {name: reason for name, reason in planning.left_out.items() if name in required},
    )


def run_plan(plan: Plan, run: Run) -> dict[str, str]:
    """Run the unfinished tasks; returns ``done`` or ``finished`` (before) by name of the task.

    Raises:
        KeyboardInterrupt: the user asked to stop; finished tasks stay finished.
        CapbenchError: a task failed.
    """
    outcome: dict[str, str] = {}
    digests = _Digests()
    seconds: dict[str, list[float]] = {}
    for number, task in enumerate(plan.tasks, 1):
        record = _record(plan, task)
        with _held(record, run):
            known = _finished(plan, task, record, digests)
            if known is not None:
                seconds.setdefault(task.step, []).append(known)
                outcome[task.name] = "finished"
                continue
            run.note(f"[{number}/{len(plan.tasks)}] {task.name}{_time_left(plan.tasks[number - 1 :], seconds)}")
            began = time.monotonic()
            before = plan.digests(task.inputs, digests.of)
            task.work(run)
            took = time.monotonic() - began
            seconds.setdefault(task.step, []).append(took)
            written = plan.digests([product.path for product in task.products], digests.of)
            content = {**_decided(task), "inputs": before, "outputs": written, "seconds": round(took, 1)}
            with atomic_write(record, "w") as file:
                json.dump(content, file, indent=1, ensure_ascii=False)
        outcome[task.name] = "done"
    return outcome


def finished(plan: Plan) -> list[bool]:
    """True for each finished task whose inputs no earlier task will change."""
    digests, states = _Digests(), []
    changing: set[Path] = set()
    for task in plan.tasks:
        is_done = changing.isdisjoint(task.inputs) and _finished(plan, task, _record(plan, task), digests) is not None
        states.append(is_done)
        changing.update(() if is_done else (product.path for product in task.products))
    return states


class _Digests:
    """SHA-256 of files, computed once for each size and modification time."""

    def __init__(self) -> None:
        self._of = functools.lru_cache(maxsize=None)(lambda path, size, changed: sha256_file(path))

    def of(self, path: Path) -> str:
        try:
            status = path.stat()
        except FileNotFoundError as error:
            raise MissingFileError("there is no such file", path=path, hint="Run the recipe again") from error
        return self._of(path, status.st_size, status.st_mtime_ns)


def _record(plan: Plan, task: Task) -> Path:
    return plan.out / ".recipe" / f"{task.name.replace('/', '+')}.json"


def _decided(task: Task) -> dict[str, Any]:
    return {"kind": task.kind, "settings": json.loads(json.dumps(task.settings))}


def _finished(plan: Plan, task: Task, record: Path, digests: _Digests) -> float | None:
    """Duration of a task in seconds, if it is finished with these settings, inputs and outputs; else None."""
    if not record.is_file():
        return None
    content = read_json(record)
    files = [*task.inputs, *(product.path for product in task.products)]
    if not all(path.is_file() for path in files):
        return None
    now = {
        **_decided(task),
        "inputs": plan.digests(task.inputs, digests.of),
        "outputs": plan.digests([product.path for product in task.products], digests.of),
    }
    return float(content.pop("seconds", 0)) if {**content, "seconds": 0} == {**now, "seconds": 0} else None


class _held:  # noqa: N801
    """Holds a task's lock; prints a note if another run holds it."""

    def __init__(self, record: Path, run: Run) -> None:
        self._record, self._run = record, run

    def __enter__(self) -> None:
        self._lock = lock(self._record, 0.2)
        try:
            self._lock.__enter__()
        except UsageError:
            self._run.note(f"another run works on {self._record.stem}; continuing after it")
            self._lock = lock(self._record, _LONGEST_S)
            self._lock.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._lock.__exit__(*error)


def _time_left(tasks: Sequence[Task], seconds: Mapping[str, list[float]]) -> str:
    """Estimate of the remaining time from tasks of the same steps: ``; about 3 minutes left``."""
    left = [seconds[task.step] for task in tasks if task.step in seconds]
    if not left:
        return ""
    total = sum(sum(of_step) / len(of_step) for of_step in left)
    return f"; {'' if len(left) == len(tasks) else 'at least '}{words(total).removeprefix('about ')} left"

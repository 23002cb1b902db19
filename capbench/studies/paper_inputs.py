"""What a table or figure of a paper is computed from: its files, and a fingerprint of all that it depends on."""

from __future__ import annotations

import hashlib
import importlib.resources
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capbench import __version__
from capbench.datasets.captions import CORPORA
from capbench.datasets.catalog import catalog
from capbench.datasets.root import DataRoot
from capbench.studies.config import find_study
from capbench.studies.tasks import ImageTask, RetrievalTask, WordTask

if TYPE_CHECKING:
    from capbench.studies.papers import PaperItem, Prospect
    from capbench.studies.plan import Plan

__all__ = ["fingerprint", "further_files", "inputs_of"]


def further_files(item: PaperItem, plan: Plan, root: DataRoot) -> Iterator[tuple[str | None, str]]:
    """Files beside those of judgements: (path below the data folder, what it is)."""
    for path in item.files:
        yield path, Path(path).name
    task = plan.study.task
    if isinstance(task, WordTask) and task.entities not in item.files:
        yield task.entities, Path(task.entities).name
    if isinstance(task, RetrievalTask) and (corpus := CORPORA.get(task.captions)) is not None:
        here = next((path for path in corpus.sources if (root.path / path).exists()), None)
        yield here or next(iter(corpus.sources)), f"captions {task.captions}"


def inputs_of(item: PaperItem, plan: Plan, root: DataRoot) -> Iterator[str]:
    """Every file that the item's numbers come from, here or not."""
    known = catalog().datasets
    names = {dataset.name.partition("@")[0] for dataset, _ in plan.protocols}
    task = plan.study.task
    if isinstance(task, ImageTask) and task.dataset:
        names.add(task.dataset)
    for name in sorted(names & known.keys()):
        for need in known[name].needs:
            yield from (str(root.path / path) for paths in need.any_of for path in paths)
    yield from (str(root.path / path) for path, _ in further_files(item, plan, root) if path)
    resources = plan.resources
    given = (resources.features, resources.model, *resources.features_of.values(), *resources.models.values())
    for file in filter(None, given):
        yield from _with_parts(file)
    for options in plan.study.options.values():
        yield from (value for value in options.values() if isinstance(value, str) and Path(value).is_file())


def _with_parts(file: str) -> Iterator[str]:
    """A file, and the networks of an ensemble."""
    yield file
    if file.endswith(".json") and Path(file).is_file():
        try:
            parts = json.loads(Path(file).read_text(encoding="utf-8")).get("parts", [])
            yield from (str(Path(file).parent / part["path"]) for part in parts)
        except (OSError, ValueError, AttributeError, TypeError, KeyError):
            return  # whoever loads it says what is wrong


def fingerprint(looked: Prospect, commands: Sequence[Sequence[str]]) -> str:
    """What an item's results depend on, as SHA-256: commands, study, published numbers, files, what waits, version.

    Files count by size and time of change; the study and its published table by what they hold.
    """
    facts: dict[str, Any] = {
        "capbench": __version__,
        "commands": [list(command) for command in commands],
        "waiting": dict(looked.waiting),
        "absent": dict(looked.absent),
    }
    if looked.item.study:
        path = find_study(looked.item.study)
        facts["study"] = path.read_text(encoding="utf-8")
        published = importlib.resources.files("capbench.studies.published") / f"{path.stem}.yaml"
        facts["published"] = published.read_text(encoding="utf-8") if published.is_file() else ""
    states = {}
    for name in looked.inputs:
        try:
            state = Path(name).stat()
        except OSError:
            continue
        states[name] = [state.st_size, state.st_mtime_ns]
    facts["files"] = states
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

"""The tables and figures of five papers: the commands that make them, and the rows that can be computed.

The facts are in ``papers.yaml`` next to this module; here they get types. Every item is a study: one that comes with
capbench, or one of the item's metrics and protocols. So the metrics and data sets themselves report what is missing.
"""

from __future__ import annotations

import functools
import importlib.resources
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from capbench.core.errors import StudyError, UsageError, suggest
from capbench.core.typed_json import Strict, validated
from capbench.datasets.captions import CORPORA
from capbench.datasets.catalog import catalog
from capbench.datasets.inventory import missing_needs
from capbench.datasets.root import DataRoot
from capbench.studies.plan import plan_study
from capbench.studies.study import RetrievalTask, Study
from capbench.studies.study_file import find_study, load_study
from capbench.text.spice.scene_graph import any_known

if TYPE_CHECKING:
    from capbench.metrics.metric_request import MetricRequest, Row
    from capbench.studies.plan import Plan

ALL = "all"
"""Pattern of an item's key."""


class PaperItem(Strict):
    """A table or figure.

    Attributes:
        paper: key of its paper.
        number: number as printed (``Table 1``).
        title: description of its content.
        commands: command lines with places to fill in; see :func:`command_lines`.
        study: name of a study that comes with capbench; ``""`` for an item with ``metrics`` and ``protocols``.
        metrics: metrics of an item without a study.
        protocols: their protocols.
        ours: the reason why it is a stand-in; ``""`` for the paper's own table or figure.
        never: keys of unpublished inputs.
        note: a note for the reader.
        files: required paths below the data folder, besides the files of data sets.
        seconds: duration of a first run on two cores, without SPICE's parses.
    """

    paper: str
    number: str
    title: str
    commands: tuple[str, ...] = Field(min_length=1)
    study: str = ""
    metrics: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()
    ours: str = ""
    never: tuple[str, ...] = ()
    note: str = ""
    files: tuple[str, ...] = ()
    seconds: float


class Papers(Strict):
    """All papers, their items, and unpublished inputs.

    Attributes:
        papers: names by key.
        items: by key, in the order of lists.
        never: one line on each unpublished input.
    """

    schema_version: int = Field(alias="schema")
    papers: dict[str, str]
    items: dict[str, PaperItem]
    never: dict[str, str]


@functools.cache
def papers() -> Papers:
    """The registry.

    Raises:
        StudyError: the file is invalid.
    """
    from capbench.core.yaml import read_yaml

    with importlib.resources.as_file(importlib.resources.files("capbench.studies") / "papers.yaml") as path:
        raw = read_yaml(path, "a list of papers and their items")
        known = validated(Papers, raw, path, error=StudyError, hint="Reinstall capbench")
        for key, item in known.items.items():
            strange = [*({item.paper} - known.papers.keys()), *(set(item.never) - known.never.keys())]
            if strange or bool(item.study) == bool(item.metrics):
                raise StudyError(f"{key}: {', '.join(strange) or 'a study or metrics'}", path=path)
    return known


def choose_items(names: Sequence[str]) -> dict[str, PaperItem]:
    """The items that names select, in the order of the list.

    Args:
        names: keys of papers or of items, or ``all``; none for all.

    Raises:
        UsageError: a name is neither; the error lists the nearest ones.
    """
    known = papers()
    wanted: set[str] = set()
    for name in names or (ALL,):
        of_name = {key for key, item in known.items.items() if name in (ALL, key, item.paper)}
        if not of_name:
            choices = [ALL, *known.papers, *known.items]
            raise UsageError(
                f"{name}: no such paper, table or figure", code="unknown-name", value=name, hint=suggest(name, choices)
            )
        wanted |= of_name
    return {key: item for key, item in known.items.items() if key in wanted}


def item_study(key: str, item: PaperItem) -> Study:
    """The study of an item: the one that it names, or one with its metrics and protocols."""
    if item.study:
        return load_study(find_study(item.study))
    return Study(name=key, title=item.title, protocols=item.protocols, metrics=item.metrics)


@dataclass(frozen=True)
class Prospect:
    """The computable part of an item, given the available data, features and weights.

    Attributes:
        key: the item's key.
        item: the item.
        rows: titles of the rows that can be computed.
        waiting: title of a row that cannot be computed → its missing requirement.
        absent: missing protocol, or other missing input → its missing file.
        present: available protocols.
        scorable: by protocol of an item without a study: the data set or a group of it (``composite@8k``) → names of
            the metrics that can be scored there.
        without: the names of the study's omitted metrics that it has.
    """

    key: str
    item: PaperItem
    rows: tuple[str, ...]
    waiting: Mapping[str, str]
    absent: Mapping[str, str]
    present: tuple[str, ...]
    scorable: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    without: tuple[str, ...] = ()

    @property
    def is_computable(self) -> bool:
        """True if a row can be computed."""
        return bool(self.rows) and (bool(self.present) or not self.absent)

    @property
    def missing(self) -> dict[str, str]:
        """All missing requirements: rows first."""
        return {**self.waiting, **self.absent}


def prospect(key: str, item: PaperItem, study: Study, root: DataRoot, *, look: bool = False) -> Prospect:
    """Check the requirements of an item's metrics and data sets, without scoring.

    Args:
        key: the item's key.
        item: the item.
        study: its study, with the features and weights to use.
        root: the data folder.
        look: True to read the judgements of an item without a study, and check which of their images have features;
            a study checks this itself, and names the groups that it leaves out.

    Raises:
        StudyError: features, weights or other inputs do not fit, or no metric is left.
    """
    plan = plan_study(study, root, task=True)
    absent, present = _available_protocols(plan, root)
    files = {what: f"{path} in the data folder" for path, what in _further_files(item, plan, root)}
    waiting: dict[str, str] = {}
    ready: list[MetricRequest] = []
    parsed = any_known(root.path)
    for request in plan.requests:
        # Whether captions of these judgements lack parses is found out by scoring.
        missing = [reason for need, reason in request.missing(plan.resources) if not (need.may_be_spared and parsed)]
        if missing:
            waiting |= {row.title: " and ".join(missing) for row in request.rows}
        else:
            ready.append(request)
    scorable: dict[str, dict[str, list[str]]] = {}
    for dataset, protocol in [] if item.study else plan.protocols:
        if str(protocol) not in present:
            continue
        lacking = {}
        if look:
            from capbench.studies.judged import judge

            lacking = {
                less.request.label: less for less in judge(dataset, protocol.items, ready, plan.resources).lacking
            }
        name = dataset.name.partition(":")[0]
        targets = scorable[str(protocol)] = {name: _names(r for r in ready if r.label not in lacking)}
        for group in dict.fromkeys(group for less in lacking.values() for group in less.groups):
            there = (r for r in ready if r.label not in lacking or group in lacking[r.label].groups)
            targets[f"{name}@{group}"] = _names(there)
        scorable[str(protocol)] = {target: names for target, names in targets.items() if names}
        for less in lacking.values():
            waiting |= {f"{row.title} on {protocol}": str(less.error) for row in less.request.rows}
    scored = {name for targets in scorable.values() for names in targets.values() for name in names}
    strange = {note.partition(":")[0] for note in plan.notes}
    return Prospect(
        key,
        item,
        tuple(
            row.title
            for request in ready
            for row in request.rows
            if item.study or not look or _name(request, row) in scored
        ),
        waiting,
        absent | files,
        () if files else tuple(present),
        scorable,
        tuple(name for name in study.without if f"--without {name}" not in strange),
    )


def _further_files(item: PaperItem, plan: Plan, root: DataRoot) -> Iterator[tuple[str, str]]:
    """Missing files besides those of judgements: (path below the data folder, description)."""
    task = plan.study.task
    yield from ((path, Path(path).name) for path in item.files if not (root.path / path).exists())
    if isinstance(task, RetrievalTask):
        corpus = CORPORA.get(task.captions)
        if corpus is not None and not any((root.path / path).exists() for path in corpus.sources):
            yield next(iter(corpus.sources)), f"captions {task.captions}"


def _names(requests: Iterable[MetricRequest]) -> list[str]:
    """Names of the requests' rows on a command line."""
    return [_name(request, row) for request in requests for row in request.rows]


def _name(request: MetricRequest, row: Row) -> str:
    metric = request.metric
    several = len(metric.columns) > 1  # the metric's name selects all of them
    return f"{metric.name}.{row.key.column}" if several and row.name == metric.name else row.name


def _available_protocols(plan: Plan, root: DataRoot) -> tuple[dict[str, str], list[str]]:
    absent: dict[str, str] = {}
    present: list[str] = []
    known = catalog().datasets
    for dataset, protocol in plan.protocols:
        entry = known.get(dataset.name.partition("@")[0])
        missing = [] if entry is None else missing_needs(entry, root)
        if entry is not None:  # Composite's thoroughness has files of its own
            aspect = protocol.statistic.human
            missing += [
                n for n in entry.needs if not n.needed and n.role.startswith(aspect) and n.met(root.locate) is None
            ]
        if missing:
            files = " or ".join(" and ".join(paths) for paths in missing[0].any_of[:2])
            absent[str(protocol)] = f"{files} in the data folder"
        else:
            present.append(str(protocol))
    return absent, present


def command_lines(looked: Prospect, given: Sequence[str], out: Path, bootstrap: int | None = None) -> list[list[str]]:
    """The arguments of ``capbench`` that make an item, one list for each command.

    The commands of an item without a study belong to its protocols. Each is left out if no metric can be scored, and
    repeated for each group in which more metrics can.

    Args:
        looked: the item, with the metrics that can be computed.
        given: options with the features, weights and data of the metrics, as the user wrote them.
        out: the item's folder.
        bootstrap: resamples of the intervals of tables; None for the setting of their studies (mostly none).
    """
    item = looked.item
    lines: list[list[str]] = []
    for place, template in enumerate(item.commands):
        targets: Mapping[str, Sequence[str]] = (
            {"": ()} if item.study else looked.scorable.get(item.protocols[place], {})
        )
        for dataset, metrics in targets.items():
            places = {"study": item.study, "out": out, "dataset": dataset, "name": dataset.replace("@", "-")}
            several = {
                "{given}": given,
                "{metrics}": metrics,
                "{m:metrics}": [text for metric in metrics for text in ("-m", metric)],
            }
            words: list[str] = []
            for word in shlex.split(template):
                words += several[word] if word in several else [word.format(**places)]
            if bootstrap is not None and words[0] == "correlate" and "--references-curve" not in words:
                words += ["--bootstrap", str(bootstrap)]
            lines.append(words)
    return lines

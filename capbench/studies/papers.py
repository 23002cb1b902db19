"""The tables and figures of five papers: the commands that make them, and the rows that can be computed.

The facts are in ``papers.yaml``. Every item is a study, or has metrics and protocols, which report what is missing.
"""

from __future__ import annotations

import functools
import importlib.resources
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from capbench.core.errors import StudyError, check_choice
from capbench.core.typed_json import Strict, validated
from capbench.core.yaml import find_config
from capbench.datasets.captions import CORPORA
from capbench.datasets.catalog import catalog
from capbench.datasets.inventory import missing_needs
from capbench.datasets.root import DataRoot
from capbench.metrics.metric_request import MetricRequest, Row
from capbench.studies.plan import Plan, plan_study
from capbench.studies.scoring import load_scorable
from capbench.studies.study import RetrievalTask, Study
from capbench.studies.study_file import load_study
from capbench.text.spice.scene_graph import any_known


class PaperItem(Strict):
    """A table or figure."""

    paper: str  # key
    number: str  # as printed (Table 1)
    title: str
    commands: tuple[str, ...] = Field(min_length=1)  # with places to fill in
    study: str = ""  # one that comes with capbench; "" for an item with metrics and protocols
    metrics: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()  # one for each command
    ours: str = ""  # why it is a stand-in; "" for the paper's own table or figure
    never: tuple[str, ...] = ()  # keys of unpublished inputs
    note: str = ""
    files: tuple[str, ...] = ()  # required paths below the data folder, besides the files of data sets
    seconds: float  # of a first run on two cores, without SPICE's parses


class Papers(Strict):
    """All papers, their items in the order of lists, and a line on each unpublished input, by key."""

    schema_version: int = Field(alias="schema")
    papers: dict[str, str]
    items: dict[str, PaperItem]
    never: dict[str, str]


@functools.cache
def papers() -> Papers:
    """The registry. Raises StudyError if the file is invalid."""
    from capbench.core.yaml import read_yaml

    with importlib.resources.as_file(importlib.resources.files("capbench.studies") / "papers.yaml") as path:
        raw = read_yaml(path, "a list of papers and their items")
        return validated(Papers, raw, path, error=StudyError, hint="Reinstall capbench")


def choose_items(names: Sequence[str]) -> dict[str, PaperItem]:
    """The items of papers, tables or figures, or ``all`` (the default). Raises UsageError with the nearest names."""
    known = papers()
    for name in names:
        check_choice("paper, table or figure", name, ["all", *known.papers, *known.items])
    wanted = {"all"} if not names else {*names}
    return {key: item for key, item in known.items.items() if wanted & {"all", key, item.paper}}


def item_study(key: str, item: PaperItem) -> Study:
    """The study of an item: the one that it names, or one with its metrics and protocols."""
    if item.study:
        return load_study(find_config(item.study))
    return Study(name=key, title=item.title, protocols=item.protocols, metrics=item.metrics)


@dataclass(frozen=True)
class Prospect:
    """The computable part of an item, given the available data, features and weights."""

    key: str
    item: PaperItem
    rows: tuple[str, ...]  # titles of the rows that can be computed
    waiting: Mapping[str, str]  # title of a row that cannot be computed → its missing requirement
    absent: Mapping[str, str]  # missing protocol, or other missing input → its missing file
    present: tuple[str, ...]  # available protocols
    # By protocol of an item without a study: names of the metrics that can be scored there.
    scorable: Mapping[str, Sequence[str]]
    without: tuple[str, ...] = ()  # the study's omitted metrics that it has

    @property
    def is_computable(self) -> bool:
        """True if a row can be computed."""
        return bool(self.rows) and (bool(self.present) or not self.absent)

    @property
    def missing(self) -> dict[str, str]:
        """All missing requirements: rows first."""
        return {**self.waiting, **self.absent}


def prospect(key: str, item: PaperItem, study: Study, root: DataRoot) -> Prospect:
    """Check the requirements of an item's metrics and data sets, without scoring."""
    plan = plan_study(study, root, task=True)
    absent = _absent(plan, root)
    present = tuple(str(protocol) for _, protocol in plan.protocols if str(protocol) not in absent)
    files = {Path(path).name: f"{path} in the data folder" for path in item.files if not (root.path / path).exists()}
    task = plan.study.task
    corpus = CORPORA.get(task.captions) if isinstance(task, RetrievalTask) else None
    if corpus is not None and not any((root.path / path).exists() for path in corpus.sources):
        files["captions"] = f"{next(iter(corpus.sources))} in the data folder"
    waiting: dict[str, str] = {}
    ready: list[MetricRequest] = []
    parsed = any_known(root.path)
    for request in plan.requests:
        # Whether captions of these judgements lack parses is found out by scoring.
        missing = [reason for need, reason in request.missing(plan.resources) if not (need.may_be_spared and parsed)]
        ready += [] if missing else [request]
        waiting |= {row.title: " and ".join(missing) for row in request.rows if missing}
    scorable: dict[str, Sequence[str]] = {}
    by_features = any(request.reads_features() for request in ready)
    for dataset, protocol in () if item.study else plan.protocols:
        if str(protocol) in present:
            unmet = load_scorable(dataset, protocol.items, ready, plan.resources).unscored if by_features else ()
            waiting |= {f"{row.title} on {protocol}": str(entry.error) for entry in unmet for row in entry.request.rows}
            left_out = {entry.request.label for entry in unmet}
            names = [_name(request, row) for request in ready for row in request.rows if request.label not in left_out]
            scorable[str(protocol)] = names
    scored = {name for names in scorable.values() for name in names}
    strange = {note.partition(":")[0] for note in plan.notes}
    return Prospect(
        key,
        item,
        tuple(r.title for request in ready for r in request.rows if item.study or _name(request, r) in scored),
        waiting,
        absent | files,
        () if files else present,
        scorable,
        tuple(name for name in study.without if f"--without {name}" not in strange),
    )


def _name(request: MetricRequest, row: Row) -> str:
    several = len(request.metric.columns) > 1  # the metric's name selects all of them
    return f"{request.metric.name}.{row.key.column}" if several and row.name == request.metric.name else row.name


def _absent(plan: Plan, root: DataRoot) -> dict[str, str]:
    absent: dict[str, str] = {}
    for dataset, protocol in plan.protocols:
        entry = catalog().datasets.get(dataset.name.partition("@")[0])
        if entry is None:
            continue
        aspect = protocol.statistic.human  # Composite's thoroughness has files of its own
        of_aspect = [n for n in entry.needs if not n.needed and n.role.startswith(aspect)]
        missing = [*missing_needs(entry, root), *(n for n in of_aspect if n.met(root.locate) is None)]
        if missing:
            files = " or ".join(" and ".join(paths) for paths in missing[0].any_of[:2])
            absent[str(protocol)] = f"{files} in the data folder"
    return absent


def command_lines(looked: Prospect, given: Sequence[str], out: Path, bootstrap: int | None = None) -> list[list[str]]:
    """The arguments of ``capbench`` that make an item, one list for each command; none without a computable row."""
    item = looked.item
    lines: list[list[str]] = []
    for place, template in enumerate(item.commands if looked.is_computable else ()):
        protocol = "" if item.study else item.protocols[place]
        metrics, dataset = looked.scorable.get(protocol, ()), protocol.partition("/")[0]
        if not item.study and not metrics:
            continue
        places = {"study": item.study, "out": out, "dataset": dataset, "name": dataset}
        several = {
            "{given}": given,
            "{metrics}": metrics,
            "{m:metrics}": [text for metric in metrics for text in ("-m", metric)],
        }
        split = shlex.split(template)
        words = [each for w in split for each in (several[w] if w in several else [w.format(**places)])]
        if bootstrap is not None and words[0] == "correlate":
            words += ["--bootstrap", str(bootstrap)]
        lines.append(words)
    return lines

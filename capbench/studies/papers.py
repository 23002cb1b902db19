"""The tables and figures of five papers: the commands that make them, and the rows that can be computed.

The facts are in ``papers.yaml`` next to this module; here they get types. Every item is a study: one that comes with
capbench, or one of the item's metrics and protocols. So the metrics and data sets themselves report what is missing.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.resources
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from capbench import __version__
from capbench.core.errors import MissingFileError, StudyError, UsageError, suggest
from capbench.core.typed_json import Strict, validated
from capbench.datasets.captions import CORPORA
from capbench.datasets.catalog import catalog
from capbench.datasets.inventory import missing_needs
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import DataRoot
from capbench.features.store import open_store
from capbench.metrics.abilities import explains_ensembles
from capbench.metrics.metric_request import MetricRequest
from capbench.metrics.needs import Features
from capbench.studies.plan import plan_study
from capbench.studies.study import ImageTask, RetrievalTask, Study, WordTask
from capbench.studies.study_file import find_study, load_study
from capbench.weights.ensembles import network_files

if TYPE_CHECKING:
    from capbench.studies.plan import Plan

# Inputs of a table or figure: its files, and a fingerprint of everything that it depends on.


def further_files(item: PaperItem, plan: Plan, root: DataRoot) -> Iterator[tuple[str | None, str]]:
    """Files besides those of judgements: (path below the data folder, description)."""
    for path in item.files:
        yield path, Path(path).name
    task = plan.study.task
    if isinstance(task, WordTask) and task.entities not in item.files:
        yield task.entities, Path(task.entities).name
    if isinstance(task, RetrievalTask) and (corpus := CORPORA.get(task.captions)) is not None:
        here = next((path for path in corpus.sources if (root.path / path).exists()), None)
        yield here or next(iter(corpus.sources)), f"captions {task.captions}"


def inputs_of(item: PaperItem, plan: Plan, root: DataRoot) -> Iterator[str]:
    """Every file that the item's numbers are computed from, present or not."""
    known = catalog().datasets
    names = {dataset.name.partition("@")[0] for dataset, _ in plan.protocols}
    task = plan.study.task
    if isinstance(task, ImageTask) and task.dataset:
        names.add(task.dataset)
    for name in sorted(names & known.keys()):
        for need in known[name].needs:
            yield from (str(root.locate(path)) for paths in need.any_of for path in paths)
    yield from (str(root.path / path) for path, _ in further_files(item, plan, root) if path)
    resources = plan.resources
    given = (resources.features, resources.model, *resources.features_of.values(), *resources.models.values())
    for file in filter(None, given):
        yield from _with_parts(file)
    for options in plan.study.options.values():
        yield from (value for value in options.values() if isinstance(value, str) and Path(value).is_file())


def _with_parts(file: str) -> Iterator[str]:
    """A file, and the networks if it is an ensemble."""
    yield file
    if file.endswith(".json") and Path(file).is_file():
        try:
            parts = json.loads(Path(file).read_text(encoding="utf-8")).get("parts", [])
            yield from (str(Path(file).parent / part["path"]) for part in parts)
        except (OSError, ValueError, AttributeError, TypeError, KeyError):
            return  # loading it raises the error


def fingerprint(looked: Prospect, commands: Sequence[Sequence[str]]) -> str:
    """SHA-256 of everything that an item's results depend on: commands, study, published numbers, files, version.

    What is missing counts, too, but not the way to get it, which changes with installed weights. Files are identified
    by size and modification time; the study and its published table by content.
    """
    facts: dict[str, Any] = {
        "capbench": __version__,
        "commands": [list(command) for command in commands],
        "waiting": sorted(looked.waiting),
        "absent": sorted(looked.absent),
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


ALL = "all"
"""Pattern of an item's key."""
NOTHING = "waits"
"""State of an item of which nothing can be computed; files and scripts of earlier versions have this word."""


class Paper(Strict):
    """A paper.

    Attributes:
        title: title of its metric.
        citation: authors, title, venue and year.
    """

    title: str
    citation: str


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

    @property
    def name(self) -> str:
        """The command that makes it, without its options, for lists."""
        words = shlex.split(self.commands[0])
        verb = " ".join(words[:2]) if words[0] in ("figure", "explore") else words[0]
        return f"{verb} {self.study}" if self.study else f"{verb} …"


class Papers(Strict):
    """All papers, their items, and unpublished inputs.

    Attributes:
        papers: by key.
        items: by key, in the order of lists.
        never: one line on each unpublished input.
    """

    schema_version: int = Field(alias="schema")
    papers: dict[str, Paper]
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
    """The computable part of an item, given the available data and weights.

    Attributes:
        key: the item's key.
        item: the item.
        rows: titles of the rows that can be computed.
        metrics: their names on a command line, in the order of the study.
        scorable: by protocol, the data set or a group of it (``composite@8k``) → the names in ``metrics`` that can be
            scored there; empty until features are checked (see :func:`prospect`).
        waiting: title of a row that cannot be computed → its missing requirement.
        absent: missing protocol, or other missing input → its missing file.
        present: available protocols.
        inputs: all files that it reads, present or not.
    """

    key: str
    item: PaperItem
    rows: tuple[str, ...]
    metrics: tuple[str, ...]
    waiting: Mapping[str, str]
    absent: Mapping[str, str]
    present: tuple[str, ...]
    inputs: tuple[str, ...] = field(repr=False, default=())
    scorable: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """``all``, ``part`` or :data:`NOTHING`."""
        if not self.rows or (self.absent and not self.present):
            return NOTHING
        return "part" if self.waiting or self.absent else "all"

    @property
    def is_computable(self) -> bool:
        """True if a row can be computed."""
        return self.state != NOTHING

    def reasons(self) -> Iterator[tuple[str, str]]:
        """All missing requirements: rows first."""
        yield from self.waiting.items()
        yield from self.absent.items()


Unparsed = dict[tuple[str, str], bool]
"""By metric with its options, and by data set and items, True if captions must be parsed, which requires the parser;
by two empty texts, True if no caption at all has a parse."""


def prospect(
    key: str,
    item: PaperItem,
    study: Study,
    root: DataRoot,
    *,
    look: bool = False,
    unparsed: Unparsed | None = None,
) -> Prospect:
    """Check the requirements of an item's metrics and data sets, without scoring.

    Args:
        key: the item's key.
        item: the item.
        study: its study, with the features and weights to use.
        root: the data folder.
        look: True to read judgements and check which of their images have features. This is meant for items without a
            study: a study checks this itself, and names the groups that it leaves out.
        unparsed: findings of earlier items, which are not looked up again.

    Raises:
        StudyError: features, weights or other inputs do not fit.
    """
    plan = plan_study(study, root, task=True)
    absent, present = _available_protocols(plan, root)
    lacking = {
        request.label: request.lacks(plan.resources)
        or _missing_image(request, plan)
        or _missing_network(request, plan, item)
        or _missing_parser(request, plan, present, {} if unparsed is None else unparsed)
        for request in plan.requests
    }
    rows: list[str] = []
    metrics: list[str] = []
    waiting: dict[str, str] = {}
    for request in plan.requests:
        reason = lacking[request.label]
        for row in request.rows:
            if reason:
                waiting[row.title] = reason
            else:
                rows.append(row.title)
        if not reason:
            metrics += _names(request)
    for path, what in further_files(item, plan, root):
        absent |= {} if path is None or (root.path / path).exists() else {what: f"{path} in the data folder"}
        if what in absent:
            present = []
    absent |= _absent_image(plan, root)
    ready = [request for request in plan.requests if not lacking[request.label]]
    scorable = _scorable(plan, ready, present) if look and not item.study else {}
    if scorable and not any(scorable.values()):
        waiting |= dict.fromkeys(rows, "features of the images that these judgements are of")
        rows = []
    elif scorable:
        for protocol, targets in scorable.items():
            whole = set(targets.get(protocol.partition("/")[0], ()))
            lack = [name for name in metrics if name not in whole]
            groups = ", ".join(name for name in targets if "@" in name)
            if lack:
                shown = f" ({groups} is there)" if groups else ""
                waiting[f"{', '.join(lack)} on {protocol}"] = f"features of all of its images{shown}"
    return Prospect(
        key,
        item,
        tuple(rows),
        tuple(metrics),
        waiting,
        absent,
        tuple(present),
        tuple(inputs_of(item, plan, root)),
        {protocol: {name: tuple(columns) for name, columns in of.items()} for protocol, of in scorable.items()},
    )


def _absent_image(plan: Plan, root: DataRoot) -> dict[str, str]:
    """The image whose references a study takes from a data set, if the data or the image is missing."""
    task = plan.study.task
    if not isinstance(task, ImageTask) or (task.candidates and task.references):
        return {}
    dataset = open_dataset(task.dataset or "flickr8k-expert", root)
    reason = f"the real judgements of {dataset.name} in the data folder (--data DIR or CAPBENCH_DATA)"
    try:
        (judgements, *_) = dataset.load(dataset.protocol().items)
    except MissingFileError:
        return {f"the image {task.id}": reason}
    return {} if any(item.image == task.id for item in judgements.items) else {f"the image {task.id}": reason}


def _missing_image(request: MetricRequest, plan: Plan) -> str | None:
    """The missing features of the single image of a study; None if they are present."""
    task = plan.study.task
    store = plan.resources.of(request.label, request.metric.name).features
    if not isinstance(task, ImageTask) or not request.needs(Features) or store is None:
        return None
    with open_store(store) as features:
        return None if task.id in features else f"features of the image {task.id}, which {store} does not contain"


def _missing_parser(request: MetricRequest, plan: Plan, present: Sequence[str], unparsed: Unparsed) -> str | None:
    """The parser, if it is missing and captions of all present protocols have no parse, as a run finds out."""
    missing = request.missing(plan.resources)
    if not missing:
        return None
    from capbench.studies.judged import judge
    from capbench.text.spice.scene_graph import any_known

    if ("", "") not in unparsed:
        unparsed["", ""] = not any_known(plan.root.path)
    if not unparsed["", ""]:
        metric = f"{request.metric.name} {sorted(request.options.items())}"
        there = [(dataset, protocol) for dataset, protocol in plan.protocols if str(protocol) in present]
        for dataset, protocol in there:
            place = (metric, f"{dataset.name}/{protocol.items.name}")
            if place not in unparsed:
                lacking = judge(dataset, protocol.items, [request], plan.resources).lacking
                unparsed[place] = any(less.input_missing for less in lacking)
            if not unparsed[place]:
                return None
        if not there:
            return None
    return " and ".join(reason for _, reason in missing)


def _missing_network(request: MetricRequest, plan: Plan, item: PaperItem) -> str | None:
    """The requirement of a single network, if an explanation gets an ensemble instead."""
    model = plan.resources.of(request.label, request.metric.name).model
    explained = any("explain" in shlex.split(command)[:2] for command in item.commands)
    if explains_ensembles(request.metric) or model is None or not explained:
        return None
    networks = network_files(model)
    if len(networks) == 1:
        return None
    return f"a single network to explain: {model} is an ensemble of {len(networks)} (--model ROW={networks[0]})"


def _names(request: MetricRequest) -> list[str]:
    """Names of a request's rows on a command line."""
    metric = request.metric
    several = len(metric.columns) > 1  # the metric's name selects all of them
    return [
        f"{metric.name}.{row.key.column}" if several and row.name == metric.name else row.name for row in request.rows
    ]


def _scorable(plan: Plan, ready: Sequence[MetricRequest], present: Sequence[str]) -> dict[str, dict[str, list[str]]]:
    """By protocol: the data set, and each group in which more metrics can be scored → metrics."""
    from capbench.studies.judged import judge

    scorable: dict[str, dict[str, list[str]]] = {}
    for dataset, protocol in plan.protocols:
        if str(protocol) not in present:
            continue
        lacking = {less.request.label: less for less in judge(dataset, protocol.items, ready, plan.resources).lacking}
        whole = [name for request in ready if request.label not in lacking for name in _names(request)]
        name = dataset.name.partition(":")[0]
        scorable[str(protocol)] = {name: whole} if whole else {}
        for group in dict.fromkeys(group for less in lacking.values() for group in less.groups):
            there = [r for r in ready if r.label not in lacking or group in lacking[r.label].groups]
            scorable[str(protocol)][f"{name}@{group}"] = [column for request in there for column in _names(request)]
    return scorable


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

    A command with the place ``{dataset}`` belongs to the protocol at the same index in the item's list. It is left out
    if no metric can be scored, and repeated for each group in which more metrics can.

    Args:
        looked: the item, with the metrics that can be computed.
        given: options with the features, weights and data of the metrics, as the user wrote them.
        out: the item's folder.
        bootstrap: resamples of the intervals of tables; None for the setting of their studies (mostly none).
    """
    lines: list[list[str]] = []
    item = looked.item
    for place, template in enumerate(item.commands):
        targets: Mapping[str, tuple[str, ...]] = {"": looked.metrics}
        if item.protocols:
            protocol = item.protocols[place]
            name = protocol.partition("/")[0]
            if protocol not in looked.present:
                continue
            targets = looked.scorable.get(protocol, {name: looked.metrics})
        for dataset, metrics in targets.items():
            words: list[str] = []
            for word in shlex.split(template):
                if word == "{given}":
                    words += given
                    if bootstrap is not None and words[0] == "correlate" and "--references-curve" not in words:
                        words += ["--bootstrap", str(bootstrap)]
                elif word == "{metrics}":
                    words += metrics
                elif word == "{m:metrics}":
                    words += [text for metric in metrics for text in ("-m", metric)]
                else:
                    words.append(
                        word.format(study=item.study, out=out, dataset=dataset, name=dataset.replace("@", "-"))
                    )
            lines.append(words)
    return lines

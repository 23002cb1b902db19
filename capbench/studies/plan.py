"""Resolves a study to a plan: data sets and protocols, metrics with their resources, rows, a published table."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from capbench.core import plugins
from capbench.core.errors import CapbenchError, ModelError, suggest
from capbench.core.records import ScoreColumn
from capbench.datasets.base import Dataset
from capbench.datasets.opening import open_dataset, split_protocol
from capbench.datasets.protocol import Protocol
from capbench.datasets.root import DataRoot
from capbench.metrics.from_file import chosen_of_files, collisions, requests_of_files, with_columns
from capbench.metrics.metric_request import Asked, MetricRequest, Row
from capbench.metrics.needs import Parser, Resources
from capbench.metrics.registry import metric_columns, metric_names
from capbench.metrics.requests import labels_of, resolve_metrics
from capbench.studies.published.tables import PublishedTable, load_published
from capbench.studies.results import LEFT_OUT, LEFT_OUT_WITH_PARSES
from capbench.studies.study import Problems, Study, misfit


@dataclass(frozen=True)
class Plan:
    """A study with every name resolved, and the data found."""

    study: Study
    root: DataRoot
    protocols: tuple[tuple[Dataset, Protocol], ...]  # one for each entry of the study
    requests: tuple[MetricRequest, ...]  # those that cannot be computed become rows with the reason
    rows: tuple[Row, ...]  # in the order of the study
    published: PublishedTable | None = None
    left_out: Mapping[Row, str] = field(default_factory=dict)  # by the user, with the reason; not in `requests`
    notes: tuple[str, ...] = ()  # on names to leave out that the study does not contain

    @property
    def resources(self) -> Resources:
        """Features, weights and images for the metrics."""
        return _resources(self.study, self.root)

    @property
    def uses_root(self) -> bool:
        """False if all data sets are the user's and are stored elsewhere."""
        return any(dataset.under_root for dataset, _ in self.protocols)

    @property
    def on_sample(self) -> bool:
        """True if the numbers are computed from the embedded sample."""
        return self.root.is_sample and self.uses_root


def plan_study(study: Study, root: DataRoot, *, task: bool = False) -> Plan:
    """Resolve protocols, metrics, options and paths; every problem is reported at once.

    Unless ``task``, a study with a task has nothing left except the published table that it names.
    """
    if study.task is not None and not task:
        study = replace(study, protocols=(), metrics=(), options={}, titles={}, models={}, features_of={})
    problems = Problems(study.path)
    resources = _resources(study, root)
    protocols: dict[str, tuple[Dataset, Protocol]] = {}
    for text in study.protocols:
        with problems.catching():
            name, rest = split_protocol(text)
            dataset = open_dataset(name, root, study.columns)
            protocol = dataset.protocol(rest)
            if study.curves is not None:
                from capbench.studies.references import curve_protocol

                protocol = curve_protocol(dataset, rest)
            if str(protocol) in protocols:
                problems.add(f"the protocol {protocol} is listed twice", "duplicate", str(protocol))
            found = [protocol]
            if study.all_protocols:
                from capbench.studies.all_protocols import all_protocols

                found = all_protocols(dataset)
            protocols |= {str(each): (dataset, each) for each in found}
    names, requests = _requests(study, resources, problems)
    _check_files(study, problems)
    if (compare := study.compare) is not None:
        for _, protocol in protocols.values():
            if reason := misfit(compare, protocol):
                problems.add(reason, "conflict", compare.test)
    published = None
    if study.published is not None:
        with problems.catching():
            published = load_published(study.published)
    rows = [row for request in requests for row in request.rows]
    left_out = _left_out(study.without, requests, resources)
    notes = []
    for name in study.without:
        with_parses = name.lower() == Parser.metric and LEFT_OUT_WITH_PARSES in left_out.values()
        if not with_parses and not any(_is_named(row, name) for row in rows):
            choices = dict.fromkeys(name for row in rows for name in (row.key.label, row.name))
            known = name.lower() in {*metric_names(), *metric_columns()}
            hint = "" if known else f". {suggest(name, list(choices))}"
            notes.append(f"--without {name}: the study has no such metric{hint}")
    if left_out and len(left_out) == len(rows):
        problems.add("--without leaves no metric. Leave out fewer", "too-few")
    problems.raise_if_any()
    # Rows are in the order of the study: ``rrs, wds, tiger`` keeps it. Score files come last.
    by_key, by_label = {row.key: row for row in rows}, {request.label: request for request in requests}
    keys = [
        ScoreColumn(named.label, column)
        for asked in names
        for named in resolve_metrics([asked], resources=resources)
        for column in named.metric.columns_under(by_label[named.label].options, named.columns)
    ]
    ordered = [by_key[key] for key in dict.fromkeys([*keys, *by_key])]
    dropped = {row.key for row in left_out}
    kept = ((request, [key.column for key in request.score_columns if key not in dropped]) for request in requests)
    return Plan(
        study=study,
        root=root,
        protocols=tuple(protocols.values()),
        requests=tuple(
            request if len(columns) == len(request.columns) else with_columns(request, columns)
            for request, columns in kept
            if columns
        ),
        rows=tuple(ordered),
        published=published,
        left_out=left_out,
        notes=tuple(notes),
    )


def changed_inputs(plan: Plan) -> dict[str, str]:
    """By label, the options, features and weights of a command that replace those that its study file sets."""
    base = plan.study.base
    if base is None:
        return {}
    resources = _resources(base, plan.root)
    _, requests = _requests(replace(base, scores=()), resources, Problems(base.path))
    before = {request.label: _inputs(request, resources) for request in requests}
    changed: dict[str, str] = {}
    for request in plan.requests:
        then, now = before.get(request.label, {}), _inputs(request, plan.resources)
        replaced = [f"{key}={now[key]} (the study: {value})" for key, value in then.items() if now[key] != value]
        if replaced:
            changed[request.label] = ", ".join(replaced)
    return changed


def _inputs(request: MetricRequest, resources: Resources) -> dict[str, object]:
    """The options of a request, with their defaults, and the features and weights that it is given."""
    options = request.metric.option_type.read(request.label, request.options)
    names = [declared.name for declared in options.declared()]
    inputs: dict[str, object] = {f"{request.label}.{name}": getattr(options, name) for name in names}
    with contextlib.suppress(ModelError):  # the registered weights are not installed
        given = request.given(resources)
        inputs |= {key: file for key, file in (("features", given.features), ("model", given.model)) if file}
    return inputs


def _requests(study: Study, resources: Resources, problems: Problems) -> tuple[Sequence[Asked], list[MetricRequest]]:
    """The metrics that the study names, and all requests, those of score files last."""
    options = dict(study.options)
    stored, wrong_files = requests_of_files(study.scores, options)
    for wrong in wrong_files:
        with problems.catching():
            raise wrong
    names, stored = chosen_of_files(study.metrics, stored)
    requests: list[MetricRequest] = []
    for asked in names:
        with problems.catching():
            # One name at a time, so that one misspelt metric does not hide another.
            requests.extend(resolve_metrics([asked], resources=resources))
    together = False
    if not problems.found:
        with problems.catching():
            requests, together = list(resolve_metrics(names, options, resources, study.titles, stored)), True
    # Requests of single names do not form a table: two columns of one metric are two requests.
    for problem in collisions([*requests, *stored] if together else stored):
        problems.add(problem)
    return names, [*requests, *stored]


def _check_files(study: Study, problems: Problems) -> None:
    names = [*labels_of(study.metrics), *plugins.names("capbench.metrics")]

    def is_known(key: str, name: str) -> bool:
        if unknown := name not in ("", *names) and ":" not in name:
            message = f"'{key}' names '{name}', which is not a metric. {suggest(name, names)}"
            problems.add(message, "unknown-name", name)
        return not unknown

    for name, model in (("", study.model), *study.models.items()):
        if model is not None and is_known("models", name):
            from capbench.weights.registry import locate

            try:
                locate(model, name)
            except CapbenchError as error:
                problems.add(f"the model{f' of {name}' if name else ''}: {error}", error.code, error.value)
    for name, store in (("", study.features), *study.features_of.items()):
        # Features of a study file may be missing: its other rows can be computed, and these rows give the reason.
        if is_known("features", name) and store and study.path is None and not Path(store).exists():
            problems.add(f"features: there is no such file: {store}", "missing-file", store)


def _left_out(names: Sequence[str], requests: Sequence[MetricRequest], resources: Resources) -> dict[Row, str]:
    """Rows that some names leave out, with the reason; without SPICE, also all rows that require its parses."""
    rows = [row for request in requests for row in request.rows]
    left_out = {row: LEFT_OUT for row in rows if any(_is_named(row, name) for name in names)}
    parsing = [row for row in rows if row.metric == Parser.metric]
    named = any(name.lower() == Parser.metric for name in names)
    if left_out.keys() >= set(parsing) and (parsing or named):
        for request in requests:
            if request.takes_parses(resources):
                left_out |= {row: LEFT_OUT_WITH_PARSES for row in request.rows if row not in left_out}
    return left_out


def _is_named(row: Row, name: str) -> bool:
    return name.lower() in (row.name.lower(), row.key.label.lower(), row.metric, f"{row.metric}.{row.key.column}")


def _resources(study: Study, root: DataRoot) -> Resources:
    return Resources(
        features=study.features,
        features_of=study.features_of,
        model=study.model,
        models=study.models,
        images=study.images,
        data=str(root.path),
        allow_missing=study.allow_missing,
    )

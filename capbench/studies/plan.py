"""What a study asks for, resolved: data sets and protocols, metrics with what they need, rows, a published table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from capbench import plugins
from capbench.datasets.base import Dataset
from capbench.datasets.opening import open_dataset, split_protocol
from capbench.datasets.protocol import Protocol
from capbench.datasets.root import DataRoot
from capbench.errors import CapbenchError, StudyError, suggest
from capbench.metrics.base import MetricRequest, Resources, resolve_metrics
from capbench.models.registry import locate
from capbench.studies.config import Study, _Problems
from capbench.studies.published import PublishedTable, load_published
from capbench.studies.settings import misfit, problems_of_bootstrap, problems_of_test

__all__ = ["Plan", "plan_study"]


@dataclass(frozen=True)
class Plan:
    """A study with every name resolved.

    Attributes:
        study: what was asked for.
        root: where data lies.
        protocols: one for each entry of the study, with its data set.
        requests: metrics that can be computed here.
        waiting: metrics that cannot, which become rows that say why.
        order: (metric, column, title) of the table's rows.
        published: the table to compare with.
    """

    study: Study
    root: DataRoot
    protocols: tuple[tuple[Dataset, Protocol], ...]
    requests: tuple[MetricRequest, ...]
    waiting: tuple[MetricRequest, ...]
    order: tuple[tuple[str, str, str], ...]
    published: PublishedTable | None = None

    @property
    def resources(self) -> Resources:
        """What is given to the metrics."""
        return _resources(self.study, self.root)

    @property
    def uses_root(self) -> bool:
        """False if every data set is the user's own and lies elsewhere."""
        return any(dataset.under_root for dataset, _ in self.protocols)

    @property
    def on_sample(self) -> bool:
        """True if numbers come from the embedded sample."""
        return self.root.is_sample and self.uses_root


def plan_study(study: Study, root: DataRoot) -> Plan:
    """Resolve protocols, metrics, options and paths; every problem is reported at once.

    Raises:
        StudyError: something does not fit; all of it is listed.
    """
    problems = _Problems(study.path)
    protocols: list[tuple[Dataset, Protocol]] = []
    for text in study.protocols:
        try:
            name, rest = split_protocol(text)
            dataset = open_dataset(name, root)
            entry = (dataset, dataset.protocol(rest))
            if str(entry[1]) in {str(p) for _, p in protocols}:
                problems.add(f"the protocol {entry[1]} is asked for twice")
            protocols.append(entry)
        except CapbenchError as error:
            problems.catch(error)
    requests: list[MetricRequest] = []
    resources = _resources(study, root)
    options = dict(study.options)
    for name in study.metrics:
        try:
            # One name at a time, so that one misspelt metric does not hide another.
            requests.extend(resolve_metrics([name], resources=resources))
        except CapbenchError as error:
            problems.catch(error)
    if not problems.found:
        try:
            requests = list(resolve_metrics(study.metrics, _options_by_metric(options), resources))
        except CapbenchError as error:
            problems.catch(error)
    known = plugins.names("capbench.metrics")
    for metric in study.models:
        if metric not in known and ":" not in metric:
            problems.add(f"'models' names '{metric}', which is no metric. {suggest(metric, list(known))}")
    weights = [("the model", study.model), *((f"the model of {m}", p) for m, p in study.models.items())]
    for what, given in weights:
        try:
            if given is not None:
                locate(given)
        except CapbenchError as error:
            problems.add(f"{what}: {error}")
    # A study's features are often not made yet: its other rows can be, and these rows say what they wait for.
    if study.features is not None and study.path is None and not Path(study.features).exists():
        problems.add(f"features: there is no such file: {study.features}")
    if study.bootstrap is not None:
        for problem in problems_of_bootstrap(study.bootstrap):
            problems.add(problem)
    if study.compare is not None:
        for problem in problems_of_test(study.compare) or [misfit(study.compare, p) for _, p in protocols]:
            if problem:
                problems.add(problem)
    published = None
    if study.published is not None:
        try:
            published = load_published(study.published)
        except CapbenchError as error:
            problems.catch(error)
    problems.raise_if_any()
    return Plan(
        study=study,
        root=root,
        protocols=tuple(protocols),
        requests=tuple(r for r in requests if r.lacks(resources) is None),
        waiting=tuple(r for r in requests if r.lacks(resources) is not None),
        order=_row_order(study.metrics, requests, resources),
        published=published,
    )


def _resources(study: Study, root: DataRoot) -> Resources:
    return Resources(features=study.features, model=study.model, models=study.models, data=str(root.path))


def _options_by_metric(options: dict[str, dict[str, object]]) -> dict[str, dict[str, object]]:
    """Options may stand at a column's name (``bleu-4``); they belong to its metric."""
    merged: dict[str, dict[str, object]] = {}
    for name, given in options.items():
        metric = resolve_metrics([name])[0].metric.name
        for option, value in given.items():
            if merged.get(metric, {}).get(option, value) != value:
                raise StudyError(f"the option '{option}' of {metric} is given twice with different values")
            merged.setdefault(metric, {})[option] = value
    return merged


def _row_order(
    names: Sequence[str], requests: Sequence[MetricRequest], resources: Resources
) -> tuple[tuple[str, str, str], ...]:
    """Rows in the order in which the study names them: ``rrs, wds, tiger`` stays so."""
    known = {r.metric.name: r.metric for r in requests}
    rows: dict[tuple[str, str], str] = {}
    for name in names:
        for request in resolve_metrics([name], resources=resources):
            metric = known[request.metric.name]
            for column in request.columns:
                rows.setdefault((metric.name, column), metric.titles.get(column, column))
    return tuple((metric, column, title) for (metric, column), title in rows.items())

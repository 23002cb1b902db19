"""What a user gives, resolved once: metrics with their options, files and data become one record, fully checked.

Python functions (:mod:`capbench.api`) and commands (:mod:`capbench.cli`) give the same Python values
(:class:`MetricInputs`), and differ in their :class:`Caller` alone: how arguments are spelled in messages, and where
notes and progress are shown. :func:`resolve` is for captions, :func:`resolve_judged` for judgements under one protocol,
:func:`with_inputs` for studies.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

from capbench.api.caller import PYTHON, Caller, python_caller, warn
from capbench.core import plugins
from capbench.core.errors import FeatureError, ModelError, UsageError, suggest
from capbench.core.files import check_folder
from capbench.datasets.base import Dataset, dataset_names
from capbench.datasets.opening import open_dataset, with_group_of
from capbench.datasets.protocol import Protocol
from capbench.datasets.root import DataRoot, find_root
from capbench.metrics.base import Metric, Resources
from capbench.metrics.from_file import ScoresEntry
from capbench.metrics.from_function import metric_of_function
from capbench.metrics.needs import Features, GivenModel, Weights
from capbench.metrics.requests import (
    FOR_ALL,
    Asked,
    GivenMetric,
    MetricRequest,
    Row,
    left_out_of_all,
    requested_metrics,
    require_resources,
    split_label,
)

if TYPE_CHECKING:
    from capbench.studies.plan import Plan
    from capbench.studies.study import Study
    from capbench.studies.tasks import Task

__all__ = [
    "PYTHON",
    "SAMPLE_MODEL",
    "SAMPLE_STORE",
    "Caller",
    "DatasetGiven",
    "FilesGiven",
    "MetricGiven",
    "MetricInputs",
    "MetricsGiven",
    "OptionsGiven",
    "PathGiven",
    "Resolved",
    "ResolvedJudged",
    "ScoresGiven",
    "VersionGiven",
    "asked",
    "check_store",
    "dataset_name",
    "files_by_owner",
    "is_sample_data",
    "note_left_out",
    "options_by_owner",
    "python_caller",
    "resolve",
    "resolve_judged",
    "resolve_study",
    "resolve_task",
    "resources_of",
    "scores_entries",
    "study_of_task",
    "texts",
    "warn",
    "with_inputs",
    "with_sample",
]

TaskType = TypeVar("TaskType", bound="Task")

PathGiven = str | os.PathLike[str]
MetricGiven = str | type[Metric] | Callable[..., Any]
"""A metric's or column's name (``cider``, ``label=cider``), a class, or a function."""
MetricsGiven = MetricGiven | Sequence[MetricGiven] | Mapping[str, MetricGiven]
"""One metric, several, or several by label."""
DatasetGiven = PathGiven | type[Dataset]
"""A data set's name, with ``@`` and a group or not; a file of judgements; or a class."""
ScoresGiven = PathGiven | Sequence[PathGiven | ScoresEntry] | Mapping[str, PathGiven]
"""Files of scores that were computed elsewhere, by name or not."""
OptionsGiven = Mapping[str, Any]
"""Options of metrics: ``{"cider": {"df": "coco-val"}}`` or ``{"cider.df": "coco-val"}``."""
VersionGiven = str | Mapping[str, str]
"""A version of all functions that are metrics, or versions by name or label."""
FilesGiven = PathGiven | Mapping[str, PathGiven]
"""A file for all metrics, or files by metric or label; ``""`` stands for all others."""

SAMPLE_STORE = Path("features") / "sample.h5"
"""Where ``capbench extract-features`` puts the sample's features."""
SAMPLE_MODEL = "sample"


@dataclass(frozen=True, kw_only=True)
class MetricInputs:
    """Arguments that the functions of ``import capbench`` share; the command line parses its flags into them.

    Attributes:
        options: options of metrics: ``{"cider": {"df": "coco-val"}}`` or ``{"cider.df": "coco-val"}``.
        features: region features for all metrics, or by metric or label.
        model: weights for all metrics that need some, or by metric or label.
        images: folder of the pictures; by default the data set's image folders.
        data: the data folder; by default ``CAPBENCH_DATA``, else the embedded sample.
        scores: files of scores that were computed elsewhere, a list or by name. Every column of numbers is a metric,
            or those that ``metrics`` names.
        allow_missing: True to leave out items without a score in such a file, for all metrics.
        cache: True to read and write the score cache.
        version: a version of the functions among the metrics, or versions by name: their scores are then cached under
            it, whatever they do. Without one, a function that cannot be signed completely is scored anew.
    """

    options: OptionsGiven | None = None
    features: FilesGiven | None = None
    model: FilesGiven | None = None
    images: PathGiven | None = None
    data: PathGiven | None = None
    scores: ScoresGiven = ()
    allow_missing: bool = False
    cache: bool = True
    version: VersionGiven | None = None

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> MetricInputs:
        """The inputs among the arguments of a function (``locals()``), by their names."""
        return cls(**{field.name: arguments[field.name] for field in fields(cls) if field.name in arguments})


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """Metrics and all that they are given, checked: nothing that a user can get wrong before reading captions is open.

    Attributes:
        root: the data folder.
        requests: the metrics, with labels and options.
        resources: features, weights, pictures.
        cache: whether the score cache is read and written.
        allow_missing: whether items without a score in a file of scores are left out, for all metrics.
        caller: where notes and progress are shown.
        notes: what was told of the metrics, one line each.
    """

    root: DataRoot
    requests: tuple[MetricRequest, ...]
    resources: Resources
    cache: bool = True
    allow_missing: bool = False
    caller: Caller = field(repr=False, default=PYTHON)
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows of a table of these metrics."""
        return tuple(row for request in self.requests for row in request.rows)


@dataclass(frozen=True, kw_only=True)
class ResolvedJudged(Resolved):
    """Metrics and a data set under one protocol.

    Attributes:
        dataset: the data set.
        protocol: one of its protocols.
    """

    dataset: Dataset
    protocol: Protocol

    @property
    def sample(self) -> bool:
        """True if the data is the embedded sample."""
        return self.root.is_sample and self.dataset.under_root


def resolve(
    metrics: MetricsGiven,
    inputs: MetricInputs,
    caller: Caller = PYTHON,
    *,
    on_sample: Callable[[DataRoot], bool] | None = None,
) -> Resolved:
    """Resolve metrics with what they are given; nothing is scored.

    Args:
        metrics: names, functions, classes, or metrics by label.
        inputs: what they are given.
        caller: the side that calls.
        on_sample: True if captions of the embedded sample are scored: its features and its model then stand in where
            none are given. By default they never do.

    Raises:
        UsageError: no metric is named; a name, an option, a label, a file's owner or the data folder does not fit.
        FeatureError, ModelError: a given file does not exist, even if none of these metrics needs it.
        DataError: a file of scores does not hold scores.
        MetricError: a metric lacks something.
    """
    root = find_root(inputs.data)
    names, options = asked(metrics, inputs.version), options_by_owner(inputs.options)
    requests, resources = requested_metrics(
        names, dict(options), scores_entries(inputs.scores), lambda left: resources_of(left, inputs, root, caller)
    )
    if not requests:
        raise UsageError("no metric is named", hint=caller.no_metric)
    _refuse_absent(requests, resources)
    note_left_out(names, resources, options, caller)
    if on_sample is not None and on_sample(root):
        resources = with_sample(requests, resources, root, caller)
    require_resources(requests, resources)
    return Resolved(
        root=root,
        requests=requests,
        resources=resources,
        cache=inputs.cache,
        allow_missing=inputs.allow_missing,
        caller=caller,
    )


def resolve_judged(
    metrics: MetricsGiven,
    dataset: DatasetGiven,
    protocol: str | None,
    inputs: MetricInputs,
    caller: Caller = PYTHON,
    *,
    find_protocol: Callable[[Dataset, str | None], Protocol] | None = None,
    one_alone: UsageError | None = None,
) -> ResolvedJudged:
    """Resolve metrics, a data set and one of its protocols, and tell the caller which data is used.

    Args:
        metrics: names, functions, classes, or metrics by label.
        dataset: the data set.
        protocol: the protocol's id or a part of it, which may name a group of the data set; by default the
            literature's.
        inputs: what the metrics are given.
        caller: the side that calls.
        find_protocol: finds the protocol in the data set; by default :meth:`capbench.datasets.base.Dataset.protocol`.
        one_alone: raised if there is but one column of scores.

    Raises:
        UsageError, FeatureError, ModelError, MetricError: see :func:`resolve`; or there is no such data set.
        ProtocolError: the data set has no such protocol.
        DataError: imported judgements, or a file, do not hold what they should.
    """
    name = with_group_of(dataset_name(dataset), protocol)
    resolved = resolve(metrics, inputs, caller, on_sample=lambda root: is_sample_data(root, name))
    if one_alone is not None and len(resolved.rows) < 2:
        raise one_alone
    opened = open_dataset(name, resolved.root)
    chosen = opened.protocol(protocol) if find_protocol is None else find_protocol(opened, protocol)
    caller.on_data(resolved.root, opened.under_root)
    return ResolvedJudged(**vars(resolved), dataset=opened, protocol=chosen)


def with_inputs(study: Study, inputs: MetricInputs, caller: Caller = PYTHON) -> Study:
    """A study with what a user gives beside it: features, weights and pictures of a study file are often elsewhere.

    An option takes the place of the study's option of the same name, and leaves its others; a file for all metrics
    takes the place of all files of its kind.

    Raises:
        UsageError: an option, a file's owner or the folder of pictures does not fit.
        FeatureError: a feature store that is given beside a study file does not exist.
    """
    options = {name: dict(of_name) for name, of_name in study.options.items()}
    for name, of_name in options_by_owner(inputs.options).items():
        options[name] = {**options.get(name, {}), **of_name}
    files = resources_of(study.metrics, inputs, None, caller)
    if study.path is None:
        note_left_out(study.metrics, files, options, caller)
    else:  # else the plan reports it, together with all other problems
        for path in filter(None, (files.features, *files.features_of.values())):
            check_store(path)
    return replace(
        study,
        options=options,
        features=files.features or study.features,
        features_of=dict(files.features_of) if files.features else {**study.features_of, **files.features_of},
        model=files.model or study.model,
        models=dict(files.models) if files.model else {**study.models, **files.models},
        images=files.images or study.images,
        scores=(*study.scores, *scores_entries(inputs.scores)),
        allow_missing=study.allow_missing or inputs.allow_missing,
    )


def study_of_task(
    file: str,
    task: type[TaskType],
    inputs: MetricInputs,
    without: Sequence[str] = (),
    caller: Caller = PYTHON,
) -> tuple[Study, TaskType]:
    """A study file with a task, with what a user gives beside it.

    Args:
        file: the study file, or the name of one that comes with capbench.
        task: the task that is wanted.
        inputs: what the metrics are given.
        without: metrics that are left out.
        caller: the side that calls.

    Raises:
        StudyError: the study file does not exist, or does not hold a study.
        UsageError: it holds another task; the command for that is named. Or see :func:`with_inputs`.
        FeatureError: a feature store does not exist.
    """
    from capbench.studies.study_file import find_study, load_study

    study = load_study(find_study(file))
    if not isinstance(study.task, task):
        command = "correlate" if study.task is None else study.task.command
        raise UsageError(f"{file} holds no '{task.key}'", hint=f"Run 'capbench {command} {file}'")
    return replace(with_inputs(study, inputs, caller), without=tuple(without)), study.task


def resolve_study(
    study: Study,
    root: DataRoot,
    caller: Caller = PYTHON,
    *,
    task: bool = False,
    sample: bool | None = None,
    all_protocols: bool = False,
) -> Plan:
    """Resolve a study; on the embedded sample, the sample's features and model stand in where none are given.

    Args:
        study: the study.
        root: the data folder.
        caller: the side that calls.
        task: True for the command of the study's task.
        sample: True if the sample stands in. By default it does where a study without a file reads the sample.
        all_protocols: True for all protocols of the study's data sets in place of its own.

    Raises:
        StudyError: the study does not fit; all problems are listed.
        ProtocolError, UsageError: see :func:`capbench.studies.all_protocols.plan_all_protocols`.
    """
    if all_protocols:
        from capbench.studies.all_protocols import plan_all_protocols as make_plan
    else:
        from capbench.studies.plan import plan_study

        make_plan = partial(plan_study, task=task)
    plan = make_plan(study, root)
    if plan.on_sample and study.path is None if sample is None else sample and root.is_sample:
        given = plan.resources
        completed = with_sample(plan.requests, given, root, caller)
        if completed is not given:
            study = replace(study, features_of=dict(completed.features_of), models=dict(completed.models))
            plan = make_plan(study, root)
    for line in plan.notes:
        caller.note(line)
    return plan


def resolve_task(
    study: Study, root: DataRoot, caller: Caller = PYTHON, *, sample: bool = True
) -> tuple[Plan, dict[str, str]]:
    """The plan of a study with a task, of the metrics that can be computed; and by title what the others wait for.

    Args:
        study: the study.
        root: the data folder.
        caller: the side that calls.
        sample: True if, on the embedded sample, its features and its model stand in where none are given.

    Raises:
        StudyError: the study does not fit; all problems are listed.
    """
    plan = resolve_study(study, root, caller, task=True, sample=sample)
    reasons = {request.label: request.lacks(plan.resources) for request in plan.requests}
    waiting = {
        row.title: f"waits for {reasons[request.label]}"
        for request in plan.requests
        if reasons[request.label]
        for row in request.rows
    }
    return replace(plan, requests=tuple(r for r in plan.requests if not reasons[r.label])), waiting


def asked(metrics: MetricsGiven, version: VersionGiven | None = None) -> list[Asked]:
    """Metrics as they are asked for below.

    Args:
        metrics: names, functions or classes.
        version: what stands in the signatures of functions for what they do, for all of them or by name.

    Raises:
        UsageError: one of them is none, a label cannot be one, two functions are called alike, or a version is of no
            function.
    """
    if isinstance(metrics, Mapping):
        entries = [(_label(label), metric) for label, metric in metrics.items()]
    elif isinstance(metrics, str | type) or callable(metrics):
        entries = [("", metrics)]
    else:
        entries = [("", metric) for metric in metrics]
    names: list[Asked] = []
    made: dict[str, tuple[object, GivenMetric]] = {}
    versions = _versions(version)
    for label, metric in entries:
        if isinstance(metric, str):
            names.append(f"{label}={metric}" if label not in ("", metric) else metric)
        elif isinstance(metric, type):
            if not issubclass(metric, Metric):
                raise UsageError(f"the class {metric.__name__} is no metric", hint="Derive it from capbench.Metric")
            names.append(GivenMetric(metric, label))
        elif callable(metric):
            named = label or _unlike(metric, made)
            cls = metric_of_function(metric, named)
            if stated := versions.get(cls.name, versions.get("")):
                cls = metric_of_function(metric, named, stated)
            known = made.setdefault(cls.name, (metric, GivenMetric(cls)))
            if known[0] is not metric:
                raise UsageError(
                    f"two functions are called '{cls.name}'",
                    hint="Name them: metrics={'my-name': function, 'other-name': function}",
                )
            names.append(known[1])
        else:
            raise UsageError(
                f"{repr(metric)[:60]} is no metric", hint="Give a metric's name, a function, or a subclass of Metric"
            )
    for name in versions:
        if name not in made and (name or not made):
            raise UsageError(
                f"version names '{name}', which is not a function" if name else "version is for functions",
                hint=suggest(name, list(made)) if name and made else "Leave it out: other metrics have their own",
            )
    return list(dict.fromkeys(names))


def _versions(version: VersionGiven | None) -> dict[str, str]:
    """Versions by function; ``""`` is for all that are not named."""
    if version is None:
        return {}
    by_name = dict(version) if isinstance(version, Mapping) else {"": version}
    for name, text in by_name.items():
        if not isinstance(name, str) or not isinstance(text, str) or not re.fullmatch(r"[\w.+-]{1,40}", text):
            raise UsageError(
                f"version{f'[{name!r}]' if name else ''} is {repr(text)[:60]}, which is not a version",
                hint="Give up to 40 letters, digits, '.', '-', '_' and '+', such as version='2'",
            )
    return by_name


def _unlike(function: Callable[..., Any], made: Mapping[str, tuple[object, GivenMetric]]) -> str:
    """A name for a function that has none; ``""`` for one that has."""
    if not isinstance(function, FunctionType) or function.__name__ != "<lambda>":
        return ""
    number = 1 + sum(name.startswith("lambda") for name in made)
    return "lambda" if number == 1 else f"lambda-{number}"


def _label(label: object) -> str:
    if not isinstance(label, str):
        raise UsageError(f"the label {label!r} of a metric is no text", hint="Write metrics={'my-name': metric}")
    try:
        split_label(f"{label}=metric")
    except UsageError as error:
        raise UsageError(
            f"'{label}' cannot be a metric's label", hint="Use letters, digits, '-', '_' and '+'"
        ) from error
    return label


def dataset_name(dataset: DatasetGiven) -> str:
    """The name under which a data set is opened."""
    if isinstance(dataset, type):
        return f"{dataset.__module__}:{dataset.__qualname__}"
    return os.fspath(dataset)


def texts(values: DatasetGiven | Sequence[DatasetGiven] | None) -> list[str]:
    """One name or several as a list."""
    if values is None:
        return []
    if isinstance(values, str | os.PathLike | type):
        return [dataset_name(values)]
    return [dataset_name(value) for value in values]


def scores_entries(scores: ScoresGiven) -> tuple[ScoresEntry, ...]:
    """Files of scores as entries."""
    if isinstance(scores, Mapping):
        return tuple(ScoresEntry(os.fspath(path), _label(label)) for label, path in scores.items())
    entries = [scores] if isinstance(scores, str | os.PathLike) else scores
    return tuple(entry if isinstance(entry, ScoresEntry) else ScoresEntry(os.fspath(entry)) for entry in entries)


def options_by_owner(options: OptionsGiven | None) -> dict[str, dict[str, Any]]:
    """Options by metric or label; those that name none are for all that have them."""
    owners: dict[str, dict[str, Any]] = {}
    for key, value in (options or {}).items():
        if isinstance(value, Mapping):
            pairs = [(key, str(name), given) for name, given in value.items()]
        else:
            owner, _, name = key.rpartition(".")
            pairs = [(owner or FOR_ALL, name, value)]
        for owner, name, given in pairs:
            if name in owners.get(owner, {}):
                raise UsageError(f"the option '{name}' of {owner or 'all metrics'} is given twice", hint="Give it once")
            # A path is a text to whoever reads options.
            owners.setdefault(owner, {})[name] = str(given) if isinstance(given, Path) else given
    return owners


def resources_of(
    names: Iterable[Asked], inputs: MetricInputs, root: DataRoot | None = None, caller: Caller = PYTHON
) -> Resources:
    """Files that metrics are given.

    Args:
        names: the metrics; files may be given to their labels.
        inputs: the files.
        root: the data folder.
        caller: the side that calls.

    Raises:
        UsageError: a file is given to an unknown metric, or there is no folder of pictures.
    """
    if inputs.images is not None:
        check_folder(inputs.images, caller.spelled("images"))
    labels = [label for label, _ in map(split_label, names) if label]
    store, stores = files_by_owner("features", inputs.features, labels, caller)
    weights, models = files_by_owner("model", inputs.model, labels, caller)
    return Resources(
        features=store,
        features_of=stores,
        model=weights,
        models=models,
        images=None if inputs.images is None else os.fspath(inputs.images),
        data=None if root is None else str(root.path),
        allow_missing=inputs.allow_missing,
    )


def files_by_owner(
    argument: str, given: FilesGiven | None, labels: Sequence[str], caller: Caller = PYTHON
) -> tuple[str | None, dict[str, str]]:
    """The file for all metrics, if there is one, and files by metric or label.

    Args:
        argument: ``features`` or ``model``.
        given: its value.
        labels: labels of metrics, which may be named as well as the metrics themselves.
        caller: the side that calls.

    Raises:
        UsageError: a file is given to an unknown metric.
    """
    if given is None:
        return None, {}
    if not isinstance(given, Mapping):
        return os.fspath(given), {}
    files = {name: os.fspath(path) for name, path in given.items()}
    for_all = files.pop(FOR_ALL, None)
    known = [*labels, *(name for name in plugins.names("capbench.metrics") if name not in labels)]
    for name, path in files.items():
        if name not in known and ":" not in name:
            message = caller.unknown_owner.format(argument=caller.spelled(argument), name=name, path=path)
            raise UsageError(message, hint=suggest(name, known))
    return for_all, files


def _refuse_absent(requests: Sequence[MetricRequest], resources: Resources) -> None:
    """Refuse files that are not there. What is wrong with weights that a metric takes, the metric says itself."""
    for store in filter(None, (resources.features, *resources.features_of.values())):
        check_store(store)
    taking = [request for request in requests if request.needs(GivenModel)]
    taken = {name for request in taking for name in (request.label, request.metric.name)}
    left = [path for name, path in resources.models.items() if name not in taken]
    left += [resources.model] if resources.model is not None and not taking else []
    for path in left:
        if Path(path).expanduser().exists():
            continue
        from capbench.weights.registry import is_known

        if not is_known(path):
            raise ModelError(
                "there is no such model, and none of these metrics takes it",
                path=path,
                hint="Correct the path, or leave it out",
            )


def check_store(path: str) -> None:
    """Raise FeatureError if there is no file of features."""
    if not Path(path).exists():
        raise FeatureError(
            "there is no such feature store", path=path, hint="Make one with 'capbench extract-features'"
        )


def note_left_out(
    names: Sequence[Asked], resources: Resources, options: Mapping[str, Mapping[str, Any]], caller: Caller
) -> None:
    """Name in one line the metrics that ``all`` leaves out, and why."""
    if "all" not in names:
        return
    by_reason: dict[str, list[str]] = {}
    for metric, reason in left_out_of_all(resources, options).items():
        by_reason.setdefault(reason, []).append(metric)
    if by_reason:
        listed = "; ".join(f"{', '.join(metrics)} ({reason})" for reason, metrics in by_reason.items())
        caller.note(f"all leaves out what requires more than is given: {listed}")


def is_sample_data(root: DataRoot, dataset: str) -> bool:
    """Whether a data set is read from the embedded sample: not a file, nor imported judgements."""
    return root.is_sample and dataset.partition("@")[0] in dataset_names()


def with_sample(
    requests: Sequence[MetricRequest], resources: Resources, root: DataRoot, caller: Caller = PYTHON
) -> Resources:
    """Resources in which metrics over region features have the sample's, where neither features nor weights were given.

    A metric with weights of which no sample comes with capbench is left alone. The features are extracted, and what is
    taken is noted.

    Args:
        requests: metrics that are asked for by name.
        resources: what was given.
        root: the embedded sample.
        caller: the side that calls.

    Raises:
        CapbenchError: the features cannot be written, or the file of this name holds others.
    """
    seeing = [request for request in requests if request.reads_features()]
    if not seeing:
        return resources
    from capbench.metrics.grounding.grounding import GroundedMetric
    from capbench.weights.registry import has_sample

    features_of, models = dict(resources.features_of), dict(resources.models)
    completed: list[str] = []
    for request in seeing:
        given = resources.of(request.label, request.metric.name)
        sampled = issubclass(request.metric, GroundedMetric) or has_sample(request.metric.name)
        if given.features or given.model or (request.needs(Weights) and not sampled):
            continue
        of_label = {request.label: SAMPLE_MODEL} if sampled else {}
        tried = replace(resources, features_of={request.label: str(SAMPLE_STORE)}, models=of_label)
        if any(not isinstance(need, Features) and not need.may_be_spared for need, _ in request.lacking(tried)):
            continue  # it waits for something that the sample has not
        features_of[request.label] = str(SAMPLE_STORE)
        models |= of_label
        completed.append(request.label)
    if not completed:
        return resources
    _extract_missing(root, caller)
    model = f" and the model '{SAMPLE_MODEL}'" if any(label in models for label in completed) else ""
    caller.note(
        f"{', '.join(completed)}: the sample's features ({SAMPLE_STORE}){model}; {caller.spelled('features')} and "
        f"{caller.spelled('model')} change it"
    )
    return replace(resources, features_of=features_of, models=models)


def _extract_missing(root: DataRoot, caller: Caller) -> None:
    from capbench.datasets.images import all_images
    from capbench.features.store import open_store

    images = all_images(root)
    if SAMPLE_STORE.exists():
        with open_store(SAMPLE_STORE) as store:
            if all(image.image in store for image in images):
                return
    from capbench.features.detectors.base import load_detector
    from capbench.features.extract import extract

    caller.note(f"extracting the features of the sample's {len(images)} images into {SAMPLE_STORE}, once")
    with caller.progress("extracting", len(images)) as step:
        extract(images, load_detector("sample"), SAMPLE_STORE, progress=step)

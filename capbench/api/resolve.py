"""Resolution of inputs: metrics with their options, files and data become one fully checked record.

Python functions and commands pass the same values (:class:`MetricInputs`) and differ only in their :class:`Caller`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from capbench.api.caller import PYTHON, Caller
from capbench.api.checking import check_store
from capbench.core.arguments import DataFolder, Expected, PathGiven, strict
from capbench.core.errors import UsageError, suggest
from capbench.core.files import check_folder
from capbench.datasets.base import Dataset
from capbench.datasets.root import DataRoot, find_root
from capbench.metrics.base import Metric
from capbench.metrics.from_file import ScoresEntry
from capbench.metrics.from_function import metric_of_function
from capbench.metrics.metric_request import FOR_ALL, Asked, GivenMetric
from capbench.metrics.needs import Features, Resources, Weights
from capbench.metrics.requests import left_out_of_all, require_resources, split_label

if TYPE_CHECKING:
    from capbench.studies.plan import Plan
    from capbench.studies.study import Study

MetricGiven = str | type[Metric] | Callable[..., Any]
"""A metric's or column's name (``cider``, ``label=cider``), a class, or a function."""
MetricsGiven = Annotated[
    MetricGiven | Sequence[MetricGiven] | Mapping[str, MetricGiven],
    Expected("a metric or a list of them", "Pass metrics=['cider', my_function], or {'my-name': my_function}"),
]
"""One metric, several, or several by label."""
_DATASETS = "Name a data set, such as 'flickr8k-expert', or a file of judgements"
DatasetGiven = Annotated[PathGiven | type[Dataset], Expected("a data set", _DATASETS)]
"""A data set's name, optionally with ``@`` and a group; a file of judgements; or a class."""
DatasetsGiven = Annotated[DatasetGiven | Sequence[DatasetGiven], Expected("a data set or a list of them", _DATASETS)]
_ScoresEntry = Annotated[ScoresEntry, Expected("a file of scores", "", lambda value: isinstance(value, ScoresEntry))]
ScoresGiven = Annotated[
    PathGiven | Sequence[PathGiven | _ScoresEntry] | Mapping[str, PathGiven],
    Expected("a path, a list of paths, or paths by name", "Pass scores=['file.csv'], or {'name': 'file.csv'}"),
]
"""Files of precomputed scores, optionally by name."""
OptionsGiven = Annotated[
    Mapping[str, Any],
    Expected("a dictionary of options", "Pass options={'cider': {'df': 'coco-val'}} or {'cider.df': 'coco-val'}"),
]
"""Options of metrics: ``{"cider": {"df": "coco-val"}}`` or ``{"cider.df": "coco-val"}``."""
_Version = Annotated[str, Field(pattern=r"^[\w.+-]{1,40}$")]
VersionGiven = Annotated[
    _Version | Mapping[str, _Version],
    Expected(
        "a version", "Use up to 40 letters, digits, '.', '-', '_' and '+', such as version='2', or versions by name"
    ),
]
"""A version of all functions among the metrics, or versions by name or label."""
FilesGiven = Annotated[
    PathGiven | Mapping[str, PathGiven],
    Expected("a path, or paths by metric", "Pass a path, or {'tiger': 'file'}"),
]
"""A file for all metrics, or files by metric or label; ``""`` means all others."""
FolderGiven = Annotated[PathGiven, Expected("a path", "Pass the path of a folder, or omit it")]
ColumnsGiven = Annotated[
    Mapping[str, str],
    Expected("a dictionary of columns by field", "Pass columns={'image': 'file', 'candidate': 'text'}"),
]
SAMPLE_STORE = Path("features") / "sample.h5"
"""Store of the sample's features, the default output of ``capbench extract-features``."""


@strict
class MetricFiles(TypedDict, total=False):
    """Inputs of all functions that compute metrics."""

    options: OptionsGiven | None
    features: FilesGiven | None  # region features
    model: FilesGiven | None  # weights of the metrics that require them
    images: FolderGiven | None  # folder of the pictures; by default the data set's image folders
    data: DataFolder | None


class CachedInputs(MetricFiles, total=False):
    """Inputs of functions whose scores are cached."""

    cache: bool  # False not to read and write the score cache
    version: VersionGiven | None  # scores of functions without one are not cached


class MetricInputs(CachedInputs, total=False):
    """Inputs of functions that score judgements or captions; the command line parses its flags into them."""

    scores: ScoresGiven  # every numeric column is a metric; if ``metrics`` names columns, only those
    allow_missing: bool  # True to use only items that have a score in every such file
    columns: ColumnsGiven | None  # column of a field, for a file with other names of columns: ``{"image": "file"}``


Inputs = Mapping[str, Any]
"""The :class:`MetricInputs` among the arguments of a function."""


def resolve(metrics: MetricsGiven, inputs: Inputs, caller: Caller = PYTHON, *, on_sample: bool = False) -> Plan:
    """Metrics with all their inputs, checked as far as is possible without reading captions; nothing is scored.

    ``on_sample``: True to use the sample's features and weights, if the data folder is the sample.
    """
    from capbench.studies.study import Study

    names = asked(metrics, inputs.get("version"))
    if not names and not inputs.get("scores"):
        raise UsageError("no metric is named", code="missing-option", hint=caller.no_metric)
    study = with_inputs(Study(name="metrics", metrics=tuple(names)), inputs, caller)
    plan = resolve_study(study, find_root(inputs.get("data")), caller, on_sample=on_sample)
    require_resources(plan.requests, plan.resources)
    return plan


def with_inputs(study: Study, inputs: Inputs, caller: Caller = PYTHON) -> Study:
    """A study with inputs that override its own: options, features, weights and pictures.

    An option replaces the study's option of the same name; a file for all metrics replaces all files of its kind.
    """
    if columns := inputs.get("columns") or {}:
        from capbench.datasets.user.judgement_files import check_columns

        check_columns(caller.spelled("columns"), columns)
    options = {name: dict(of_name) for name, of_name in study.options.items()}
    for name, of_name in options_by_owner(inputs.get("options")).items():
        options[name] = {**options.get(name, {}), **of_name}
    if (images := inputs.get("images")) is not None:
        check_folder(images, caller.spelled("images"))
    (features, features_of), (model, models) = _files(inputs.get("features")), _files(inputs.get("model"))
    # Without a file, the plan reports a missing store together with all other problems.
    for path in () if study.path is None else filter(None, (features, *features_of.values())):
        check_store(path)
    return replace(
        study,
        options=options,
        features=features or study.features,
        features_of=features_of if features else {**study.features_of, **features_of},
        model=model or study.model,
        models=models if model else {**study.models, **models},
        images=study.images if images is None else os.fspath(images),
        scores=(*study.scores, *scores_entries(inputs.get("scores", ()))),
        allow_missing=study.allow_missing or inputs.get("allow_missing", False),
        columns=columns,
        base=study if study.path else None,
    )


def resolve_study(
    study: Study,
    root: DataRoot,
    caller: Caller = PYTHON,
    *,
    task: bool = False,  # True for the command of the study's task
    on_sample: bool = False,  # True to use the sample's features and weights without a protocol, too
) -> Plan:
    """Resolve a study; on the embedded sample, metrics without features and weights can use the sample's."""
    from capbench.studies.plan import plan_study

    plan = plan_study(study, root, task=task)
    if root.is_sample and (task or on_sample or (plan.uses_root and study.path is None)):
        completed = with_sample(study, plan, caller)
        plan = plan if completed is study else plan_study(completed, root, task=task)
    if study.path is None:
        note_left_out(study, plan.resources, caller)
    for line in plan.notes:
        caller.note(line)
    for dataset in {dataset.name: dataset for dataset, _ in plan.protocols if dataset.file_columns}.values():
        caller.note_columns(dataset)
    return plan


def asked(metrics: MetricsGiven, version: VersionGiven | None = None) -> list[Asked]:
    """Metrics in the form of :mod:`capbench.metrics.requests`."""
    if isinstance(metrics, Mapping):
        entries = [(_label(label), metric) for label, metric in metrics.items()]
    elif isinstance(metrics, str | type) or callable(metrics):
        entries = [("", metrics)]
    else:
        entries = [("", metric) for metric in metrics]
    names: list[Asked] = []
    made: dict[str, tuple[object, GivenMetric]] = {}
    versions = version if isinstance(version, Mapping) else {} if version is None else {"": version}
    for label, metric in entries:
        if isinstance(metric, str):
            names.append(f"{label}={metric}" if label not in ("", metric) else metric)
        elif isinstance(metric, type):
            if not issubclass(metric, Metric):
                message, hint = f"the class {metric.__name__} is not a metric", "Derive it from capbench.Metric"
                raise UsageError(message, code="wrong-type", value=metric.__name__, hint=hint)
            names.append(GivenMetric(metric, label))
        else:
            cls = metric_of_function(metric, label)
            if stated := versions.get(cls.name, versions.get("")):
                cls = metric_of_function(metric, label, stated)
            known = made.setdefault(cls.name, (metric, GivenMetric(cls)))
            if known[0] is not metric:
                hint = "Name them: metrics={'my-name': function, 'other-name': function}"
                raise UsageError(f"two functions are named '{cls.name}'", code="duplicate", value=cls.name, hint=hint)
            names.append(known[1])
    for name in versions:
        if name not in made and (name or not made):
            message = f"version names '{name}', which is not a function" if name else "version is for functions"
            hint = suggest(name, list(made)) if name and made else "Omit it: only functions take a version"
            raise UsageError(message, code="unknown-name" if name else "conflict", value=name or None, hint=hint)
    return list(dict.fromkeys(names))


def dataset_name(dataset: DatasetGiven) -> str:
    """The name of a data set, for :func:`capbench.datasets.opening.open_dataset`."""
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


def _label(label: str) -> str:
    """A label of a dictionary. Raises UsageError if it has other characters than those of labels."""
    with contextlib.suppress(UsageError):
        if split_label(f"{label}=metric")[0] == label:
            return label
    hint = "Use letters, digits, '-', '_' and '+'"
    raise UsageError(f"{label!r} is not a valid label", code="wrong-format", value=label, hint=hint)


def scores_entries(scores: ScoresGiven) -> tuple[ScoresEntry, ...]:
    """Files of scores as entries."""
    if isinstance(scores, Mapping):
        return tuple(ScoresEntry(os.fspath(path), _label(label)) for label, path in scores.items())
    entries = [scores] if isinstance(scores, str | os.PathLike) else scores
    return tuple(entry if isinstance(entry, ScoresEntry) else ScoresEntry(os.fspath(entry)) for entry in entries)


def options_by_owner(options: OptionsGiven | None) -> dict[str, dict[str, Any]]:
    """Options by metric or label; those without one apply to all metrics that have them."""
    owners: dict[str, dict[str, Any]] = {}
    for key, value in (options or {}).items():
        if isinstance(value, Mapping):
            pairs = [(key, str(name), setting) for name, setting in value.items()]
        else:
            owner, _, name = key.rpartition(".")
            pairs = [(owner or FOR_ALL, name, value)]
        for owner, name, setting in pairs:
            if name in owners.get(owner, {}):
                message = f"the option '{name}' of {owner or 'all metrics'} is repeated"
                raise UsageError(message, code="duplicate", value=name, hint="Pass it once")
            # Options are text, numbers or Booleans.
            owners.setdefault(owner, {})[name] = str(setting) if isinstance(setting, Path) else setting
    return owners


def _files(value: FilesGiven | None) -> tuple[str | None, dict[str, str]]:
    """The file for all metrics, if there is one, and files by metric or label."""
    by_name = value if isinstance(value, Mapping) else {} if value is None else {FOR_ALL: value}
    files = {name: os.fspath(path) for name, path in by_name.items()}
    return files.pop(FOR_ALL, None), files


def note_left_out(study: Study, resources: Resources, caller: Caller) -> None:
    """Note the metrics that ``all`` leaves out, with the reasons."""
    by_reason: dict[str, list[str]] = {}
    for metric, reason in left_out_of_all(resources, study.options).items() if "all" in study.metrics else ():
        by_reason.setdefault(reason, []).append(metric)
    if by_reason:
        listed = "; ".join(f"{', '.join(metrics)} ({reason})" for reason, metrics in by_reason.items())
        caller.note(f"'all' leaves out metrics with missing requirements: {listed}")


def with_sample(study: Study, plan: Plan, caller: Caller) -> Study:
    """A study with the sample's features and model for metrics of its plan that have neither features nor weights.

    Metrics without sample weights in capbench are not changed. The features are extracted if necessary, and a note
    names the metrics.
    """
    with_features = [request for request in plan.requests if request.reads_features()]
    if not with_features:
        return study
    from capbench.metrics.scan.encode import GroundedMetric
    from capbench.weights.registry import has_sample

    features_of, models = dict[str, str](), dict[str, str]()
    for request in with_features:
        files = plan.resources.of(request.label, request.metric.name)
        sampled = issubclass(request.metric, GroundedMetric) or has_sample(request.metric.name)
        if files.features or files.model or (request.needs(Weights) and not sampled):
            continue
        of_label = {request.label: "sample"} if sampled else {}
        tried = replace(plan.resources, features_of={request.label: str(SAMPLE_STORE)}, models=of_label)
        if any(not isinstance(need, Features) and not need.may_be_spared for need, _ in request.missing(tried)):
            continue  # it also requires an input that the sample does not have
        features_of[request.label] = str(SAMPLE_STORE)
        models |= of_label
    if not features_of:
        return study
    _extract_missing(plan.root, caller)
    used = f"the sample's features ({SAMPLE_STORE})" + (" and the model 'sample'" if models else "")
    flags = f"{caller.spelled('features')} and {caller.spelled('model')}"
    caller.note(f"{', '.join(features_of)}: using {used}; override with {flags}")
    return replace(study, features_of={**study.features_of, **features_of}, models={**study.models, **models})


def _extract_missing(root: DataRoot, caller: Caller) -> None:
    """Extract the features of the sample, unless its store has those of all images."""
    from capbench.datasets.images import all_images
    from capbench.features.detectors.base import load_detector
    from capbench.features.extract import extract
    from capbench.features.store import open_store

    images = all_images(root)
    if SAMPLE_STORE.exists():
        with open_store(SAMPLE_STORE) as store:
            if all(image.image in store for image in images):
                return
    caller.note(f"extracting features of the sample's {len(images)} images into {SAMPLE_STORE} (once)")
    with caller.progress("extracting", len(images)) as step:
        extract(images, load_detector("sample"), SAMPLE_STORE, progress=step)

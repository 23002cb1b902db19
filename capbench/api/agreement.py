"""``capbench.correlate``: agreement of metrics with human judgements."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from typing_extensions import Unpack

from capbench.api.arguments import CurveChoices, Statistics
from capbench.api.caller import Caller, ProgressGiven, python_caller, warn
from capbench.api.checking import checked, refuse_with_study
from capbench.api.resolve import (
    DatasetGiven,
    DatasetsGiven,
    Inputs,
    MetricInputs,
    MetricsGiven,
    asked,
    resolve_study,
    texts,
    with_inputs,
)
from capbench.core.arguments import Expected, PathGiven
from capbench.core.errors import UsageError
from capbench.datasets.root import find_root
from capbench.metrics.requests import require_resources
from capbench.studies.plan import Plan
from capbench.studies.results import StudyResult, is_left_out
from capbench.studies.study import Study, protocols_asked, with_statistics

if TYPE_CHECKING:
    from capbench.datasets.root import DataRoot

Names = Annotated[str | Sequence[str], Expected("a name or a list of names", "Pass a name, or a list of names")]


class StudyInputs(MetricInputs, Statistics, CurveChoices, total=False):
    """Inputs of the metrics of a study, intervals, tests and curves."""


@checked
def correlate(
    dataset: DatasetsGiven | None = None,
    metrics: MetricsGiven = (),
    *,
    study: PathGiven | None = None,
    protocol: Names | None = None,
    all_protocols: bool = False,
    sentinels: bool = False,
    without: Names = (),
    progress: ProgressGiven = False,
    **inputs: Unpack[StudyInputs],
) -> StudyResult:
    """Measure how well metrics agree with human judgements, as ``capbench correlate`` does.

    On the user's own judgements (a file or an imported data set), ``answers`` of the result names the metric that fits
    them best, from intervals, tests and a power analysis with default settings.

    ``study`` is a study file (YAML), or the name of one that comes with capbench, in place of data sets, metrics and
    protocols; the other arguments override it. Other inputs: :class:`capbench.api.resolve.MetricInputs` and
    :class:`capbench.api.arguments.Statistics`; with ``references_curve=True``, ``points`` of the result is agreement
    against the number of references (``counts``, ``draws`` and ``seed`` of their random orders). With
    ``all_protocols``, ``rankings`` of the result are those under every protocol of the data sets.
    """
    from capbench.studies.run import run_plan

    caller = python_caller(progress)
    named = study_of(dataset, metrics, protocol, inputs, caller, file=study)
    named = replace(named, without=tuple(texts(without)), sentinels=sentinels or named.sentinels)
    if all_protocols:
        named = over_all_protocols(named, {"protocol": protocol, "sentinels": sentinels, **inputs}, caller)
    plan = plan_agreement(named, inputs, caller, inputs)
    result = run_plan(plan, caller.progress, cache=inputs.get("cache", True), announce=caller.announce)
    warn_of_missing(result)
    return result


def warn_of_missing(result: StudyResult) -> None:
    """Warn of numbers that are missing or undefined."""
    for missing in result.missing:
        if not is_left_out(missing.reason):
            warn(f"{missing.title or missing.protocol} is not computed: {missing.reason}")
    for cell in result.undefined:
        place = f"{cell.protocol}{f', {cell.group}' if cell.group else ''}"
        warn(f"{cell.title} is undefined under {place}: {cell.undefined}")


def study_of(
    dataset: DatasetGiven | Sequence[DatasetGiven] | None,
    metrics: MetricsGiven,
    protocol: str | Sequence[str] | None,
    inputs: Inputs,
    caller: Caller,
    *,
    file: PathGiven | None = None,
) -> Study:
    """A study, from names of data sets, metrics and protocols or from a file, for Python or the command line.

    Without metrics and files of scores it has all metrics; without data sets and protocols, all published judgements
    whose files are installed and all imported ones. Of a file, ``dataset`` chooses some of its data sets.
    """
    datasets, protocols = texts(dataset), texts(protocol)
    if file is None:
        names = asked(metrics, inputs.get("version")) or ([] if inputs.get("scores") else ["all"])
        return Study(
            name="quick-look",
            title="Agreement with human judgements",
            protocols=tuple(protocols_asked(datasets, protocols, caller.spelled)),
            metrics=tuple(names),
            answers=True,
            practices=not protocols,
        )
    from capbench.core.yaml import find_config
    from capbench.studies.study_file import load_study

    if asked(metrics) or protocols:
        refuse_with_study({"metrics": asked(metrics), "protocol": protocols}, caller)
    study = load_study(find_config(os.fspath(file)))
    if datasets:
        study = replace(study, protocols=_of_datasets(study, datasets, caller))
    if study.task is not None:
        command = f"'capbench {study.task.command} {file}'"
        if study.published is None:
            raise UsageError(
                f"{study.name} is not a study of agreement", code="unsupported", value=study.name, hint=f"Run {command}"
            )
        caller.note(f"only the published table is shown; {command} computes its rows")
    return study


def over_all_protocols(study: Study, arguments: Mapping[str, object], caller: Caller) -> Study:
    """A study of data sets with all of their protocols. Raises UsageError if an argument does not apply to them."""
    refuse_with_study({"all_protocols": study.path is not None}, caller)
    for name in ("protocol", "sentinels", "bootstrap", "references_curve"):
        if arguments.get(name):
            flag, of = caller.spelled(name), caller.spelled("all_protocols")
            raise UsageError(f"{flag} does not apply to {of}", code="conflict", value=flag, hint="Omit it")
    return replace(study, all_protocols=True, answers=False, human_ceiling=False)


def plan_agreement(
    study: Study,
    inputs: Inputs,
    caller: Caller,
    statistics: Mapping[str, object] = {},
) -> Plan:
    """Resolve a study, and report the data folder to the caller; nothing is scored.

    ``statistics`` are those of :class:`capbench.api.arguments.Statistics`; other keys are ignored.
    """
    root = find_root(inputs.get("data"))
    if study.path is None:
        study = replace(study, protocols=study.protocols or tuple(_installed_judgements(root, caller)))
    study = with_statistics(with_inputs(study, inputs, caller), statistics, caller.spelled)
    plan = resolve_study(study, root, caller)
    caller.on_data(root, plan.uses_root)
    return plan


def plan_judged(
    dataset: DatasetGiven,
    metrics: MetricsGiven,
    protocol: str | None,
    inputs: Inputs,
    caller: Caller,
    statistics: Mapping[str, object] = {},
    *,
    at_least: int = 1,
    sentinels: bool = False,
) -> Plan:
    """A plan of one protocol whose metrics, ``at_least`` this number of columns, are all required."""
    if not inputs.get("scores") and not asked(metrics, inputs.get("version")):
        raise UsageError("no metric is named", code="missing-option", hint=caller.no_metric)
    study = study_of(dataset, metrics, protocol, inputs, caller)
    study = replace(study, name="comparison", sentinels=sentinels, answers=False, practices=False)
    plan = plan_agreement(study, inputs, caller, statistics)
    require_resources(plan.requests, plan.resources)
    if len(plan.rows) < at_least:
        raise UsageError("a comparison requires two metrics", code="too-few", hint="Name two or more")
    return plan


def _of_datasets(study: Study, datasets: Sequence[str], caller: Caller) -> tuple[str, ...]:
    """The study's protocols of some data sets. Raises UsageError if it has none of one of them."""
    names = {protocol: protocol.partition("/")[0] for protocol in study.protocols}
    fitting = {p: {name, name.partition("@")[0]}.intersection(datasets) for p, name in names.items()}
    for dataset in datasets:
        if not any(dataset in found for found in fitting.values()):
            raise UsageError(
                f"the study {study.name} has no protocol of {dataset}",
                code="unknown-name",
                value=dataset,
                hint=f"Choices: {', '.join(dict.fromkeys(names.values()))}. Omit the study to use another data set "
                f"({caller.spelled('dataset')} {dataset})",
            )
    return tuple(protocol for protocol, found in fitting.items() if found)


def _installed_judgements(root: DataRoot, caller: Caller) -> list[str]:
    """Published judgements whose files are installed, then imported ones; the others are noted.

    All published ones if none is installed, so that the error names the missing files.
    """
    from capbench.datasets.base import dataset_names, load_dataset
    from capbench.datasets.catalog import catalog
    from capbench.datasets.inventory import missing_needs
    from capbench.datasets.user.judgements import imported_folders

    known = catalog().datasets
    published = [name for name in dataset_names() if name in known and load_dataset(name).in_default]
    absent = [name for name in published if missing_needs(known[name], root)]
    installed = [*(name for name in published if name not in absent), *imported_folders(root)]
    if absent and installed:
        caller.note(f"left out: {', '.join(absent)}; 'capbench data info NAME' lists the missing files")
    return installed or published

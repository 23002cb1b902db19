"""HTML reports: ``capbench figure report``, and ``--report`` of other commands."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from capbench.cli import common
from capbench.cli.options import Inputs
from capbench.core.arguments import Help
from capbench.core.errors import CapbenchError, StudyError, UsageError, require, suggest

if TYPE_CHECKING:
    from capbench.api.resolve import Caller, MetricInputs
    from capbench.datasets.root import DataRoot
    from capbench.metrics.metric_request import MetricRequest
    from capbench.metrics.needs import Resources
    from capbench.reports.page import ReportSource
    from capbench.studies.item_scores import Collector
    from capbench.studies.plan import Plan
    from capbench.studies.results import StudyResult


def check_report(report: Path) -> None:
    """Raise an error if a report cannot be drawn or written, before anything is computed."""
    from capbench.core.files import check_writable

    require("matplotlib", purpose="an HTML report")
    check_writable(report)


ReportOption = Annotated[Path | None, Help("Also write an HTML report (docs/report.md).", metavar="FILE")]
ExplanationsOption = Annotated[
    int | None, Ge(0), Help("Explain scores in the report, for N captions per metric. Default: 5.", metavar="N")
]


def explaining(
    source: ReportSource, requests: Sequence[MetricRequest], resources: Resources, number: int | None
) -> ReportSource:
    """A study with the explainers of its metrics."""
    from dataclasses import replace

    from capbench.studies.explained import explainers

    if number == 0 or not source.items:
        return source
    return replace(source, explainers=explainers(source.result, requests, resources))


def write_report(
    report: Path | None,
    result: StudyResult,
    collector: Collector | None,
    plan: Plan,
    explanations: int | None,
    *,
    written: bool = False,
) -> None:
    """Write the report of a run, if ``--report`` is given; ``written``: the result has files next to it."""
    if report is None or collector is None:
        return
    from capbench.reports.page import ReportSource

    source = ReportSource(result, collector.tables, written=written)
    source = explaining(source, plan.requests, plan.resources, explanations)
    images = None if plan.study.images is None else Path(plan.study.images)
    write_page([source], report, plan.root, image_root=images, explanations=explanations)


def write_page(
    sources: Sequence[ReportSource],
    out: Path,
    root: DataRoot,
    *,
    explanations: int | None = None,
    title: str | None = None,
    image_root: Path | None = None,
) -> None:
    """Write the report, and note its path and size."""
    from capbench.reports.page import write_report
    from capbench.reports.page.items import USUAL_NUMBER

    def pictures(dataset: str, images: Iterable[str]) -> Mapping[str, Path]:
        from capbench.datasets.images import image_paths
        from capbench.datasets.opening import open_dataset

        if image_root is not None:
            return image_paths(images, root, image_root)
        try:
            opened = open_dataset(dataset, root)
        except CapbenchError:  # results of a data set or file that is not installed
            return {}
        return image_paths(images, root, dataset=opened)

    # The command as typed, without the path of the program.
    command = shlex.join(["capbench", *sys.argv[1:]])
    number = USUAL_NUMBER if explanations is None else explanations
    write_report(
        sources,
        out,
        title=title,
        command=command,
        pictures=pictures,
        explanations=number,
        progress=common.progress,
    )
    missing = {
        explainer.label: explainer.missing
        for explainer in (explainer for source in sources for explainer in source.explainers)
        if explainer.missing
    }
    for label, reason in missing.items() if number else ():
        common.note(f"explanations of {label} require {reason}")
    common.note(f"wrote {out} ({out.stat().st_size / 1e6:.1f} MB): open it in a browser")


def write_reports(
    results: Sequence[Path], out: Path, title: str | None, explanations: int | None, flags: Inputs
) -> None:
    """Write an HTML report of study results; with the inputs of metrics, the report also explains scores."""
    from capbench.core.files import check_folder, check_writable
    from capbench.reports.page import read_source

    root = flags.root()
    if flags.image_root is not None:
        check_folder(flags.image_root, "--image-root")
    inputs, caller = flags.values(), common.caller()
    check_writable(out)
    sources = [read_source(path) for path in results]
    _refuse_unknown(inputs, sources, caller)
    sources = [_explained(source, inputs, root, explanations, caller) for source in sources]
    write_page(sources, out, root, title=title, image_root=flags.image_root, explanations=explanations)


def _refuse_unknown(inputs: MetricInputs, sources: Sequence[ReportSource], caller: Caller) -> None:
    """Raise UsageError for inputs of a metric that no study has."""
    from capbench.api.resolve import files_by_owner, options_by_owner

    names = {name for source in sources for cell in source.result.cells for name in (cell.label, cell.metric)}
    for argument, files in (("features", inputs.get("features")), ("model", inputs.get("model"))):
        _, by_name = files_by_owner(argument, files, sorted(names), caller)
        for name in by_name.keys() - names:
            raise _no_metric(f"{caller.spelled(argument)} {name}=...", name, names)
    for name in options_by_owner(inputs.get("options")):
        if name and name not in names:
            raise _no_metric(f"--option {name}...", name, names)


def _no_metric(flag: str, name: str, names: set[str]) -> UsageError:
    message = f"{flag}: no study has a metric '{name}'"
    return UsageError(message, code="unknown-name", value=name, hint=suggest(name, sorted(names)))


def _explained(
    source: ReportSource, inputs: MetricInputs, root: DataRoot, number: int | None, caller: Caller
) -> ReportSource:
    """A study with the explainers of those metrics that its results identify."""
    from capbench.api.resolve import resources_of, with_sample
    from capbench.core.plugins import load
    from capbench.metrics.abilities import Explains
    from capbench.metrics.registry import metric_names
    from capbench.metrics.requests import resolve_metrics

    if number == 0 or not source.items:
        return source
    known = metric_names()
    labels = {cell.label: cell.metric for cell in source.result.cells if cell.metric in known}
    able = [
        label if label == metric else f"{label}={metric}"
        for label, metric in labels.items()
        if issubclass(load("capbench.metrics", metric), Explains)
    ]
    if not able:
        return source
    named = {name for text in able for name in text.split("=")}
    options = {name: of_name for name, of_name in _options(source.result, inputs).items() if not name or name in named}
    resources = resources_of(able, inputs, root, caller)
    requests = resolve_metrics(able, options, resources)
    if source.result.sample and root.is_sample:
        resources = with_sample(requests, resources, root, caller)
    return explaining(source, requests, resources, number)


def _options(result: StudyResult, inputs: MetricInputs) -> dict[str, dict[str, Any]]:
    """Options of a study's labels: those of the shipped study, overridden by the inputs."""
    from capbench.api.resolve import options_by_owner
    from capbench.studies.study_file import find_study, load_study

    try:
        options = {name: dict(of_name) for name, of_name in load_study(find_study(result.name)).options.items()}
    except StudyError:
        options = {}
    for name, of_name in options_by_owner(inputs.get("options")).items():
        options[name] = {**options.get(name, {}), **of_name}
    return options

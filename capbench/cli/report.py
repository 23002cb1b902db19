"""``capbench report``: results as one page that people open."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from capbench.cli.given import Inputs, parse_files
from capbench.cli.groups import with_groups
from capbench.cli.reporting import ExplanationsOption, explaining, write_page
from capbench.errors import StudyError, UsageError, suggest

if TYPE_CHECKING:
    from capbench.datasets.root import DataRoot
    from capbench.reports.report import ReportSource
    from capbench.studies.results import StudyResult

__all__ = ["report"]


@with_groups
def report(
    *,
    results: Annotated[
        list[Path],
        typer.Argument(metavar="RESULTS...", help="Files results.json, or folders that hold one.", show_default=False),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The page.")] = Path("report.html"),
    title: Annotated[str | None, typer.Option("--title", metavar="TEXT", help="Title of the page.")] = None,
    explanations: ExplanationsOption = None,
    given: Inputs,
) -> None:
    """Write results of studies as one HTML file that opens without a network.

    Tables are sorted, searched and copied as LaTeX, Markdown and CSV; every number tells its protocol, signature, n and
    interval; protocols are explained; files have checksums.

    Captions on which metrics and people part need items beside the results: 'capbench correlate ... --out DIR --items'
    writes them. Pictures are taken from the data folder, for the captions that are listed first.

    With the features and models of the study, captions have explanations: TIGEr's, REO's, FAIEr's, ViLBERTScore's, and
    those of metrics of your own. --option, --features and --model are those of the study.

    Example: capbench report results/tiger-table1 --out report.html

    Example: capbench report results/tiger-table1 results/tiger-table2 results/text-metrics --title "Text metrics"

    Example: capbench report results/mine --features grid.h5 --model tiger=scan.safetensors --explanations 20
    """
    from capbench.files import check_writable
    from capbench.reports.report import read_source

    root = given.root()
    given.resources(())  # refuses a folder of pictures that is not there
    check_writable(out)
    sources = [read_source(path) for path in results]
    _refuse_unknown(given, sources)
    sources = [_explained(source, given, root, explanations) for source in sources]
    write_page(sources, out, root, title=title, image_root=given.image_root, explanations=explanations)


def _refuse_unknown(given: Inputs, sources: Sequence[ReportSource]) -> None:
    """Raise UsageError for what is given to a metric that no study has."""
    names = {name for source in sources for cell in source.result.cells for name in (cell.label, cell.metric)}
    for flag, texts in (("--features", given.features), ("--model", given.model)):
        _, by_name = parse_files(flag, texts or [], sorted(names))
        for name in by_name.keys() - names:
            raise UsageError(f"{flag} {name}=...: no study has a metric '{name}'", hint=suggest(name, sorted(names)))
    for name in given.options():
        if name and name not in names:
            raise UsageError(f"--option {name}...: no study has a metric '{name}'", hint=suggest(name, sorted(names)))


def _explained(source: ReportSource, given: Inputs, root: DataRoot, number: int | None) -> ReportSource:
    """A study with what explains its metrics, as far as results say what these are."""
    from capbench.cli.sample import with_sample
    from capbench.metrics.base import Metric
    from capbench.metrics.names import metric_names
    from capbench.metrics.requests import resolve_metrics
    from capbench.plugins import load

    if number == 0 or not source.items:
        return source
    known = metric_names()
    labels = {cell.label: cell.metric for cell in source.result.cells if cell.metric in known}
    able = [
        label if label == metric else f"{label}={metric}"
        for label, metric in labels.items()
        if load("capbench.metrics", metric).explain is not Metric.explain
    ]
    if not able:
        return source
    named = {name for text in able for name in text.split("=")}
    options = {name: of_name for name, of_name in _options(source.result, given).items() if not name or name in named}
    resources = given.resources(able, root)
    requests = resolve_metrics(able, options, resources)
    if source.result.sample and root.is_sample:
        resources = with_sample(requests, resources, root)
    return explaining(source, requests, resources, number)


def _options(result: StudyResult, given: Inputs) -> dict[str, dict[str, Any]]:
    """The options of a study's labels: those that are given, after those of the study that comes with capbench."""
    from capbench.studies.config import find_study, load_study

    try:
        options = {name: dict(of_name) for name, of_name in load_study(find_study(result.name)).options.items()}
    except StudyError:
        options = {}
    for name, of_name in given.options().items():
        options[name] = {**options.get(name, {}), **of_name}
    return options

"""``capbench correlate``: run a study and print how well each metric agrees with people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from capbench.cli import common
from capbench.errors import UsageError

if TYPE_CHECKING:
    from capbench.studies.config import Study

__all__ = ["correlate"]


def correlate(
    study: Annotated[
        str | None,
        typer.Argument(metavar="[STUDY.yaml]", help="Study file, or the name of one that comes with capbench."),
    ] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option("--dataset", "-d", metavar="NAME", help="Data set, instead of a study file; repeatable."),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", "-m", metavar="NAME", help="Metric, instead of a study file; repeatable; or 'all'."),
    ] = None,
    protocol: Annotated[
        list[str] | None,
        typer.Option(
            "--protocol",
            "-p",
            metavar="ID",
            help="dataset/items/statistic, or a part of it with --dataset; repeatable. See 'capbench protocols'.",
        ),
    ] = None,
    option: common.MetricOption = None,
    data: common.DataOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help="Folder for CSV, JSON, Markdown and LaTeX. A study file: results/NAME."
        ),
    ] = None,
    features: common.FeaturesOption = None,
    model: Annotated[
        list[str] | None, typer.Option("--model", metavar="METRIC=FILE", help="Weights of a metric; repeatable.")
    ] = None,
    no_cache: common.NoCacheOption = False,
    json_output: common.JsonOption = False,
) -> None:
    """Correlate metrics with human judgements, and compare with published tables.

    With a study file everything is in the file. Without one, --dataset and --metric make a quick study; their
    defaults are all judged data sets at hand and all metrics.

    Exit code 1: done, but some data files are missing (listed).

    Example: capbench correlate configs/tiger-table1.yaml

    Example: capbench correlate -d composite -p all-references/correctness-tau-b -m cider -m meteor
    """
    from capbench.datasets.root import find_root
    from capbench.reports.files import write_result
    from capbench.reports.terminal import print_result
    from capbench.studies.config import find_study, load_study
    from capbench.studies.run import plan_study, run_plan

    root = find_root(data)
    if study is not None:
        if dataset or metric or protocol or option or features or model:
            raise UsageError(
                "a study file and flags that define a study were given together",
                hint="Change the study file, or leave it out and use flags alone",
            )
        wanted = load_study(find_study(study))
        out = out or Path("results") / wanted.name
    else:
        wanted = _quick_study(dataset or [], metric or ["all"], protocol or [], option or [], features, model or [])
    plan = plan_study(wanted, root)
    common.announce_root(root, json_output=json_output, used=plan.uses_root)
    if plan.on_sample and wanted.published and not json_output:
        print("published numbers are left out: they were measured on the real judgements, not on this sample")
    result = run_plan(plan, common.progress, cache=not no_cache)
    if json_output:
        common.print_json(result.model_dump(mode="json"))
    else:
        print_result(result, common.out())
    cached = sum(result.cached.values())
    common.note(
        f"{len(result.cells)} numbers in {result.seconds['total']:.1f} s"
        + (f"; {cached:,} scores came from the cache" if cached else "")
    )
    if out is not None:
        for path in write_result(result, out):
            common.note(f"wrote {path}")
    if any(missing.protocol for missing in result.missing):
        raise typer.Exit(1)


def _quick_study(
    datasets: list[str],
    metrics: list[str],
    protocols: list[str],
    options: list[str],
    features: Path | None,
    models: list[str],
) -> Study:
    from capbench.studies.config import Study

    ids = []
    full = [p for p in protocols if p.count("/") == 2]
    partial = [p for p in protocols if p.count("/") < 2]
    if partial and not datasets:
        raise UsageError(
            f"--protocol {partial[0]} names no data set", hint="Give dataset/items/statistic, or add --dataset"
        )
    ids += full
    for name in datasets:
        ids += [f"{name}/{part}" for part in partial]
        if not partial and not any(p.startswith(f"{name}/") for p in full):
            ids.append(name)
    if not ids:
        ids = ["flickr8k-expert", "flickr8k-crowdflower", "composite", "pascal-50s"]
    paths = {}
    for text in models:
        name, equals, path = text.partition("=")
        if not equals:
            raise UsageError(f"--model {text}: not of the form metric=file", hint="Example: tiger=scan.pth.tar")
        paths[name] = path
    return Study(
        name="quick-look",
        title="Agreement with human judgements",
        protocols=tuple(ids),
        metrics=tuple(dict.fromkeys(metrics)),
        options=common.parse_options(options),
        features=None if features is None else str(features),
        models=paths,
    )

"""``capbench metrics``: list metrics with their columns, options and requirements, or check one."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from capbench.cli import common
from capbench.cli.options import argument, parse_options
from capbench.core.arguments import Help
from capbench.core.errors import UsageError

if TYPE_CHECKING:
    from capbench.metrics.base import Metric


def metrics(
    *,
    ctx: typer.Context,
    metric: Annotated[
        str | None, argument("[METRIC]", "Describe this metric, module:Class or module:function.")
    ] = None,
    check: Annotated[bool, Help("Check that METRIC fulfils the contract of metrics.")] = False,
    option: Annotated[list[str] | None, Help("With --check: its option; repeatable.", metavar="NAME=VALUE")] = None,
    features: Annotated[Path | None, Help("With --check: region features.", metavar="FILE")] = None,
    model: Annotated[str | None, Help("With --check: weights.", metavar="FILE")] = None,
    image_root: Annotated[Path | None, Help("With --check: folder of the images.", metavar="DIR")] = None,
    json_output: common.JsonOption = False,
) -> None:
    """List metrics, or describe one with all options.

    Every command also accepts a custom metric as module:Class or module:function. --check tests it on ten captions of
    the embedded sample. Each check prints one line; a failed check prints the observed behaviour and a remedy. Exit
    code 1: a check failed. See docs/extend.md.

    Example: capbench metrics my_metric:MyMetric --check --option cap=2
    """
    if check:
        if metric is None:
            raise UsageError("--check requires a metric", code="missing-option", value="metric", hint="Add its name")
        _check(metric, option or [], features, model, image_root, json_output=json_output)
        return
    common.check_applies(ctx, ["option", "features", "model", "image_root"], "'capbench metrics' without --check")
    from capbench.core import plugins
    from capbench.metrics.registry import metric_columns, metric_names

    if metric is not None:
        from capbench.metrics.requests import metric_class

        cls = metric_class(metric if ":" in metric else metric_columns().get(metric.lower(), (metric, ""))[0])
        common.answer(json_output, _entry(cls), _described(cls))
        return
    entries = [_entry(plugins.load("capbench.metrics", name)) for name in metric_names()]
    rows = []
    for entry in entries:
        options = ", ".join(f"{name}={value}" for name, value in entry["options"].items()) or "–"
        state = f"requires {entry['waits_for']}" if entry["waits_for"] else "ready"
        rows.append([entry["metric"], ", ".join(entry["columns"]), options, ", ".join(entry["needs"]), state])
    heads = ["metric", "columns", "options", "needs", "state"]
    common.answer(json_output, entries, lambda: common.print_list(heads, rows))


def _entry(cls: type[Metric]) -> dict[str, Any]:
    """Facts about a metric; ``waits_for`` names inputs or components that are missing, None without any."""
    from capbench.metrics.needs import Resources

    return {
        "metric": cls.name,
        "columns": list(cls.columns),
        "options": {declared.name: declared.default for declared in cls.option_type.declared()},
        "needs": [need.word for need in cls.needs],
        "waits_for": " and ".join(reason for _, reason in cls.missing(Resources())) or None,
        "citation": cls.citation,
    }


def _described(cls: type[Metric]) -> list[str]:
    import inspect

    from capbench.metrics.needs import Resources

    missing, options = dict(cls.missing(Resources())), list(cls.option_type.declared())
    lines = [f"{cls.name}: {cls.citation}\n", inspect.cleandoc(cls.__doc__ or ""), "\ncolumns"]
    for column in cls.columns:
        free = " (needs no references)" if column in cls.reference_free() else ""
        lines.append(f"  {column}: {cls.titles.get(column, column)}{free}")
    lines.append("needs")
    lines += [f"  {need.word}" + (f": {missing[need]}" if need in missing else "") for need in cls.needs]
    return [*lines, "options" if options else "no options", *(f"  {declared.describe()}" for declared in options)]


def _check(
    metric: str, option: list[str], features: Path | None, model: str | None, images: Path | None, *, json_output: bool
) -> None:
    from capbench.api.check_metric import check_metric
    from capbench.core.files import check_folder

    options = {name: value for values in parse_options(option).values() for name, value in values.items()}
    if images is not None:
        check_folder(images, "--image-root")
    checks = check_metric(metric, options=options, features=features, model=model, images=images)
    count = {state: sum(check.state == state for check in checks) for state in ("passed", "skipped", "failed")}
    lines = []
    for check in checks:
        line = f"{check.state:7} {check.name}: {check.seen or check.promise}"
        lines.append(f"{line}. {check.advice}" if check.advice else line)
    lines.append(f"{metric}: {', '.join(f'{number} {state}' for state, number in count.items())}")
    common.answer(json_output, {"metric": metric, "checks": list(map(dataclasses.asdict, checks))}, lines)
    if count["failed"]:
        raise typer.Exit(1)

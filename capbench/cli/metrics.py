"""``capbench metrics``: list metrics with their columns, options and requirements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from capbench.cli import common

if TYPE_CHECKING:
    from capbench.metrics.base import Metric

__all__ = ["metrics"]


def metrics(
    metric: Annotated[
        str | None, typer.Argument(metavar="[METRIC]", help="Describe this metric or module:Class.")
    ] = None,
    json_output: common.JsonOption = False,
) -> None:
    """List metrics, or describe one with all options.

    Every command also accepts a custom metric as module:Class.

    Example: capbench metrics

    Example: capbench metrics cider
    """
    from capbench.core import plugins
    from capbench.metrics.registry import metric_columns, metric_names

    if metric is not None:
        name = metric if ":" in metric else metric_columns().get(metric.lower(), (metric, ""))[0]
        cls = plugins.load("capbench.metrics", name)
        if json_output:
            common.print_json(_entry(cls))
        else:
            _print_one(cls)
        return
    classes = [plugins.load("capbench.metrics", name) for name in metric_names()]
    entries = [_entry(cls) for cls in classes]
    if json_output:
        common.print_json(entries)
        return
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for head in ("metric", "columns", "options", "needs", "state"):
        table.add_column(head, overflow="fold")
    for entry in entries:
        options = ", ".join(f"{name}={value}" for name, value in entry["options"].items())
        state = f"requires {entry['waits_for']}" if entry["waits_for"] else "ready"
        table.add_row(entry["metric"], ", ".join(entry["columns"]), options or "–", ", ".join(entry["needs"]), state)
    common.out().print(table)


def _entry(cls: type[Metric]) -> dict[str, Any]:
    """Facts about a metric; ``waits_for`` names inputs or components that are missing, None without any."""
    from capbench.metrics.base import Resources, missing_inputs

    return {
        "metric": cls.name,
        "columns": list(cls.columns),
        "options": {declared.name: declared.default for declared in cls.option_type.declared()},
        "needs": [need.name() for need in cls.needs],
        "waits_for": " and ".join(reason for _, reason in missing_inputs(cls, Resources())) or None,
        "citation": cls.citation,
    }


def _print_one(cls: type[Metric]) -> None:
    import inspect

    from capbench.metrics.base import Resources, missing_inputs

    print(f"{cls.name}: {cls.citation}\n")
    print(inspect.cleandoc(cls.__doc__ or ""))
    print("\ncolumns")
    for column in cls.columns:
        free = "" if column not in cls.reference_free() else " (needs no references)"
        print(f"  {column}: {cls.titles.get(column, column)}{free}")
    print("needs")
    missing = dict(missing_inputs(cls, Resources()))
    for need in cls.needs:
        print(f"  {need.name()}" + (f": {missing[need]}" if need in missing else ""))
    options = list(cls.option_type.declared())
    print("options" if options else "no options")
    for declared in options:
        print(f"  {declared.describe()}")

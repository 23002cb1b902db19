"""``capbench metrics``: the metrics, their columns, options and needs."""

from __future__ import annotations

from typing import Any

from capbench.cli import common

__all__ = ["metrics"]


def metrics(json_output: common.JsonOption = False) -> None:
    """List metrics with their columns, options and what they need.

    A metric of your own is named as module:Class wherever a metric is asked for.

    Example: capbench metrics
    """
    from capbench import plugins
    from capbench.metrics.base import metric_names

    found: list[dict[str, Any]] = []
    for name in metric_names():
        cls = plugins.load("capbench.metrics", name)
        found.append(
            {
                "metric": cls.name,
                "columns": list(cls.columns),
                "options": cls.option_defaults(),
                "needs": sorted(cls.needs),
                "waits_for": cls.waits_for,
                "citation": cls.citation,
            }
        )
    if json_output:
        common.print_json(found)
        return
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for head in ("metric", "columns", "options", "needs", "state"):
        table.add_column(head, overflow="fold")
    for entry in found:
        options = ", ".join(f"{k}={v}" for k, v in entry["options"].items())
        if entry["waits_for"]:
            state = f"waits for {entry['waits_for']}"
        elif "features" in entry["needs"]:
            state = f"ready with --features STORE --model {entry['metric']}=FILE"
        else:
            state = "ready"
        table.add_row(entry["metric"], ", ".join(entry["columns"]), options or "–", ", ".join(entry["needs"]), state)
    common.out().print(table)

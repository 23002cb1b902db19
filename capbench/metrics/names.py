"""Names of registered metrics, of their columns, and what may be a name."""

from __future__ import annotations

import re

from capbench import plugins
from capbench.errors import CapbenchError
from capbench.metrics.base import Metric
from capbench.metrics.built_in import BUILT_IN

__all__ = ["as_label", "columns_by_metric", "metric_columns", "metric_names"]


def metric_names() -> list[str]:
    """Names of all registered metrics, in the order of :attr:`Metric.order`."""
    return list(columns_by_metric())


def metric_columns() -> dict[str, tuple[str, str]]:
    """Every name that can be asked for → (metric, column); ``""`` as column stands for all of the metric's.

    A metric of another package that cannot be imported has no columns here, so that it does not hide the others.
    """
    columns: dict[str, tuple[str, str]] = {}
    for name, of_metric in columns_by_metric().items():
        for column in of_metric:
            columns.setdefault(column, (name, column))
    for name in columns_by_metric():
        columns[name] = (name, "")
    return columns


def columns_by_metric() -> dict[str, tuple[str, ...]]:
    """Columns by metric, in the metrics' order. Only metrics of other packages are imported for it."""
    by_name: dict[str, tuple[int, tuple[str, ...]]] = {}
    for plugin in plugins.registered("capbench.metrics"):
        if plugin.is_built_in and plugin.name in BUILT_IN:
            by_name[plugin.name] = BUILT_IN[plugin.name]
            continue
        try:
            cls = plugins.load("capbench.metrics", plugin.name)
            by_name[plugin.name] = int(cls.order), tuple(cls.columns)
        except (CapbenchError, AttributeError):  # a broken plug-in must not hide the others
            by_name[plugin.name] = Metric.order, ()
    return {name: by_name[name][1] for name in sorted(by_name, key=lambda name: by_name[name][0])}


def as_label(text: str, default: str) -> str:
    """A text as far as it can be a label: what no label may hold is one '-'.

    >>> as_label("my run.v2", "scores"), as_label("...", "scores")
    ('my-run-v2', 'scores')
    """
    return re.sub(r"[^A-Za-z0-9_+-]+", "-", text).strip("-_+") or default

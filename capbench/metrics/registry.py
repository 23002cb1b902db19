"""Names of registered metrics and their columns, valid labels, trainable networks, and loading of trained ones."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from capbench.core import plugins
from capbench.core.built_in import COLUMNS
from capbench.core.errors import CapbenchError, ModelError, UsageError, check_choice

if TYPE_CHECKING:
    from capbench.training.trainer import Task


def metric_names() -> list[str]:
    """Names of all registered metrics, capbench's first."""
    return list(columns_by_metric())


def metric_columns() -> dict[str, tuple[str, str]]:
    """Every name that can be requested → (metric, column); column ``""`` means all columns of the metric."""
    columns: dict[str, tuple[str, str]] = {}
    for name, of_metric in columns_by_metric().items():
        for column in of_metric:
            columns.setdefault(column, (name, column))
    for name in columns_by_metric():
        columns[name] = (name, "")
    return columns


def columns_by_metric() -> dict[str, tuple[str, ...]]:
    """Columns by metric, capbench's metrics first. Imports only metrics of other packages."""
    by_name: dict[str, tuple[str, ...]] = {}
    for plugin in plugins.registered("capbench.metrics").values():
        if plugin.point is None:
            by_name[plugin.name] = COLUMNS.get(plugin.name, (plugin.name,))
            continue
        try:
            by_name[plugin.name] = tuple(plugins.load("capbench.metrics", plugin.name).columns)
        except (CapbenchError, AttributeError):  # a broken plug-in must not hide the others
            by_name[plugin.name] = ()
    return by_name


def as_label(text: str, default: str) -> str:
    """A label made from a text: invalid characters become '-'.

    >>> as_label("my run.v2", "scores"), as_label("...", "scores")
    ('my-run-v2', 'scores')
    """
    return re.sub(r"[^A-Za-z0-9_+-]+", "-", text).strip("-_+") or default


# Networks that ``capbench train`` trains, by name; a network's module is imported when it is used.

TRAINABLES = {
    "scan": "capbench.metrics.scan.train:ScanTask",
    "faier": "capbench.metrics.faier.training:FaierTask",
    "vilbert": "capbench.metrics.vilbert.train:VilbertTask",
    "nneval": "capbench.metrics.nneval.training:NNEvalTask",
    "leic": "capbench.metrics.leic.training:LeicTask",
}  # Name → class of the network's training


def trainable(name: str) -> type[Task[Any, Any]]:
    """A network of capbench or of a plug-in that can be trained. Raises UsageError for an unknown or invalid one."""
    if name in TRAINABLES:
        module, _, task = TRAINABLES[name].partition(":")
        found: type[Task[Any, Any]] = getattr(import_module(module), task)
        return found
    from capbench.training.trainer import Task

    check_choice("trainable network", name, [*TRAINABLES, *plugins.names("capbench.trainers")])
    cls = plugins.load("capbench.trainers", name)
    if not issubclass(cls, Task) or not all(hasattr(cls, fact) for fact in ("settings", "metric", "kind", "load")):
        hint = "It must be a subclass of capbench.Task with 'settings', 'metric', 'kind' and 'load'"
        raise UsageError(f"'{name}' is not a trainer", code="wrong-type", value=name, hint=hint)
    return cls


def load_network(path: str | os.PathLike[str]) -> Any:
    """A grounding model, a network of FAIEr, LEIC or a plug-in, or a ViLBERT in capbench's format."""
    from capbench.metrics.faier.network import FaierModel
    from capbench.metrics.leic.network import LeicModel
    from capbench.metrics.scan.files import load_scan
    from capbench.metrics.scan.network import Scan
    from capbench.metrics.vilbert.files import VilbertModel, load_vilbert
    from capbench.weights.arrays import read_metadata

    family = (read_metadata(path) or {}).get("kind", "").partition("/")[0]
    loaders: dict[str, Callable[..., Any]] = {Scan.kind: load_scan, VilbertModel.network_type.kind: load_vilbert}
    loaders |= {model.network_type.kind: model.load for model in (FaierModel, LeicModel)}
    for kind, load in loaders.items():
        if family in ("", kind.partition("/")[0]):
            return load(path)
    for name in plugins.names("capbench.trainers"):
        try:
            trainer: Any = trainable(name)
        except CapbenchError:  # one that cannot be imported does not hide the others
            continue
        if family == trainer.kind.partition("/")[0]:
            return trainer.load(path)
    message = f"has a network of the kind {family}, which no installed package reads"
    hint = "Install the package that registers it"
    raise ModelError(message, code="missing-package", value=family, path=path, hint=hint)

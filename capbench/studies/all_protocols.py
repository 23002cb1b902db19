"""Every metric under every protocol of a data set (``correlate --all-protocols``): how rankings depend on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from capbench.core.errors import ProtocolError, StatisticError
from capbench.datasets.base import Dataset
from capbench.datasets.protocol import Protocol
from capbench.stats.correlation import correlation
from capbench.stats.system_agreement import fewest_systems
from capbench.studies.published.tables import load_published, names
from capbench.studies.results import Cell, Ranked


def all_protocols(dataset: Dataset) -> list[Protocol]:
    """The default items, then the others, under all statistics, unless these are over more systems than the items have.

    Raises ProtocolError without human judgements.
    """
    default = dataset.protocol()
    found = [
        Protocol(dataset.name, items, statistic, dataset.version)
        for items in dataset.selections.values()
        for statistic in dataset.statistics.values()
        if statistic.kind != "mean"
        and not (
            items.systems and statistic.level == "systems" and items.systems < fewest_systems(statistic.coefficient)
        )
    ]
    if not found:
        message = f"{dataset.title} has no human judgements, so metrics have no ranking there"
        raise ProtocolError(message, code="unsupported", value=dataset.name)
    return sorted(found, key=lambda protocol: protocol.items.name != default.items.name)


def rankings(datasets: Iterable[Dataset], cells: Iterable[Cell]) -> list[Ranked]:
    """The metrics ranked by their overall values under each protocol, compared with the default one of the data set.

    If its file is missing, the first available protocol takes its place.
    """
    used: dict[str, dict[str, None]] = {}  # names of the published tables by protocol
    for name in names():
        for column in load_published(name).columns:
            used.setdefault(column.protocol or "", {})[name] = None
    of_dataset: dict[str, dict[str, dict[str, float]]] = {}
    for cell in cells:
        if cell.value is not None and not cell.group:
            of_protocol = of_dataset.setdefault(cell.protocol.partition("/")[0], {}).setdefault(cell.protocol, {})
            of_protocol[cell.column] = cell.value
    defaults = {dataset.name: str(dataset.protocol()) for dataset in datasets}
    ranked = []
    for dataset, values in of_dataset.items():
        default = defaults[dataset] if defaults[dataset] in values else next(iter(values))
        base = ranks(values[default])
        for protocol, of_protocol in values.items():
            tau = agreement_of_rankings(values[default], of_protocol)
            ranked += [
                Ranked(
                    protocol=protocol,
                    default=protocol == default,
                    column=column,
                    value=of_protocol[column],
                    rank=rank,
                    move=base[column] - rank if column in base else None,
                    tau=tau,
                    used_by=tuple(used.get(protocol, ())),
                )
                for column, rank in ranks(of_protocol).items()
            ]
    return ranked


def ranks(values: Mapping[str, float]) -> dict[str, int]:
    """Rank by metric from 1, the largest value first; equal values share the better rank.

    >>> ranks({"a": 0.3, "b": 0.5, "c": 0.3})
    {'a': 2, 'b': 1, 'c': 2}
    """
    return {name: 1 + sum(other > value for other in values.values()) for name, value in values.items()}


def agreement_of_rankings(first: Mapping[str, float], second: Mapping[str, float]) -> float | None:
    """Kendall's tau-b between two rankings of metrics; None if it is undefined (one metric, or all values equal)."""
    common = [name for name in first if name in second]
    try:
        return correlation("tau-b", [first[n] for n in common], [second[n] for n in common]).value
    except StatisticError:
        return None

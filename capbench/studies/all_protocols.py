"""Every metric under every protocol of a data set (``correlate --all-protocols``): how rankings depend on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from capbench.core.errors import ProtocolError, StatisticError, UsageError
from capbench.core.typed_json import Strict, Tidy
from capbench.datasets.base import Dataset
from capbench.datasets.protocol import Protocol
from capbench.datasets.root import DataRoot
from capbench.stats.correlation import correlation
from capbench.stats.system_agreement import fewest_systems
from capbench.studies.plan import Plan, plan_study
from capbench.studies.published.tables import load_published, names
from capbench.studies.results import StudyResult
from capbench.studies.study import Study, misfit

SENSITIVITY_SCHEMA_VERSION = 4


class ProtocolRanking(Strict):
    """The ranking of metrics under one protocol; values and ranks are by metric column."""

    id: str
    items: str
    statistic: str
    used_by: tuple[str, ...] = ()  # names of published tables that use this protocol (tiger-table1)
    values: dict[str, float]
    ranks: dict[str, int]  # from 1, the largest value first; equal values share the better rank
    moves: dict[str, int]  # ranks gained (positive) or lost (negative) compared with the default protocol
    tau: float | None  # Kendall's tau-b with the ranking under the default protocol; None if undefined


class Sensitivity(Strict):
    """Dependence of the ranking of metrics on the protocol of one data set."""

    dataset: str
    title: str
    default: str  # the protocol that the others are compared with: the default one, or else the first available one
    protocols: tuple[ProtocolRanking, ...]


class SensitivityResult(Tidy):
    """Result of ``capbench correlate --all-protocols``: the numbers of the study, and the rankings by data set."""

    schema_version: int = SENSITIVITY_SCHEMA_VERSION
    result: StudyResult
    datasets: tuple[Sensitivity, ...]

    def rows(self) -> list[dict[str, Any]]:
        """One row for each metric under each protocol; with tests, ``top`` marks the best and those not worse."""
        tested = bool(self.result.comparisons)
        return [
            {
                "dataset": data.dataset,
                "protocol": p.id,
                "default": p.id == data.default,
                "column": name,
                "title": self.result.columns[name],
                "value": value,
                "rank": p.ranks[name],
                "move": p.moves.get(name),
                "tau": p.tau,
                "used_by": " ".join(p.used_by),
            }
            | ({"top": None if tests is None else name in tests.top} if tested else {})
            for data in self.datasets
            for p in data.protocols
            for tests in [self.result.comparison(p.id)]
            for name, value in p.values.items()
        ]


def plan_all_protocols(study: Study, root: DataRoot) -> Plan:
    """Plan of a study (its protocols are names of data sets) with all protocols of its data sets."""
    plan = plan_study(replace(study, bootstrap=None, human_ceiling=False, sentinels=False, published=None), root)
    protocols: list[tuple[Dataset, Protocol]] = []
    for dataset, _ in plan.protocols:
        if not (found := _protocols(dataset)):
            message = f"{dataset.title} has no human judgements, so metrics have no ranking there"
            raise ProtocolError(message, code="unsupported", value=dataset.name)
        protocols += [(dataset, protocol) for protocol in found]
    for _, protocol in protocols:
        if study.compare is not None and (problem := misfit(study.compare, protocol)):
            raise UsageError(problem, code="conflict", value=study.compare.test, hint="Choose permutation or bootstrap")
    return replace(plan, protocols=tuple(protocols))


def rank_protocols(plan: Plan, result: StudyResult) -> SensitivityResult:
    """Rank the metrics by their overall values under each protocol of a plan of :func:`plan_all_protocols`."""
    used: dict[str, dict[str, None]] = {}  # names of the published tables by protocol
    for name in names():
        for column in load_published(name).columns:
            used.setdefault(column.protocol or "", {})[name] = None
    ranked = []
    for dataset in {dataset.name: dataset for dataset, _ in plan.protocols}.values():
        values: dict[str, dict[str, float]] = {}
        for cell in result.cells:
            if cell.value is not None and not cell.group and cell.protocol.startswith(f"{dataset.name}/"):
                values.setdefault(cell.protocol, {})[cell.column] = cell.value
        if not values:
            continue
        default = str(dataset.protocol())
        if default not in values:  # its file is missing: use the first available protocol instead
            default = next(iter(values))
        base = ranks(values[default])
        rankings = [
            ProtocolRanking(
                id=id_,
                items=id_.split("/")[1],
                statistic=id_.split("/")[2],
                used_by=tuple(used.get(id_, ())),
                values=of_protocol,
                ranks=ranks(of_protocol),
                moves={name: base[name] - rank for name, rank in ranks(of_protocol).items() if name in base},
                tau=agreement_of_rankings(values[default], of_protocol),
            )
            for id_, of_protocol in values.items()
        ]
        ranked.append(
            Sensitivity(dataset=dataset.name, title=dataset.title, default=default, protocols=tuple(rankings))
        )
    return SensitivityResult(result=result, datasets=tuple(ranked))


def _protocols(dataset: Dataset) -> list[Protocol]:
    """The default protocol, then the others with human judgements, unless over more systems than the items have."""
    default = dataset.protocol()
    everything = [
        Protocol(dataset.name, items, statistic, dataset.version)
        for items in dataset.selections.values()
        for statistic in dataset.statistics.values()
        if statistic.kind != "mean"
        and not (
            items.systems and statistic.level == "systems" and items.systems < fewest_systems(statistic.coefficient)
        )
    ]
    return sorted(everything, key=lambda protocol: protocol.items.name != default.items.name)


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

"""Every metric under every protocol of a data set (``correlate --all-protocols``): how rankings depend on the protocol.

Items are scored once for each *items* part, and all statistics are computed from the same scores. If a study requests
tests between metrics, they are run under every protocol and show which changes of rank are significant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from capbench.core.errors import ProtocolError, StatisticError, UsageError
from capbench.core.typed_json import Strict
from capbench.datasets.base import Dataset
from capbench.datasets.protocol import Protocol
from capbench.datasets.root import DataRoot
from capbench.stats.correlation import correlation
from capbench.stats.pairs import Pair
from capbench.stats.system_agreement import fewest_systems
from capbench.studies.judged import ProgressFactory
from capbench.studies.plan import Plan, plan_study
from capbench.studies.published import load_published, names
from capbench.studies.results import StudyResult
from capbench.studies.run import Keep, SlowPart, run_plan
from capbench.studies.study import Study, misfit

# JSON schema of all-protocols.json, with a version of its own.

SENSITIVITY_SCHEMA_VERSION = 3


class ProtocolRanking(Strict):
    """The ranking of metrics under one protocol.

    Attributes:
        id: ``dataset/items/statistic``.
        items: its *items* part.
        statistic: its *statistic* part.
        used_by: names of published tables that use this protocol (``tiger-table1``).
        values: the statistic by metric column.
        ranks: rank by metric column, from 1, the largest value first; equal values share the better rank.
        moves: by metric column, ranks gained (positive) or lost (negative) compared with the default protocol.
        tau: Kendall's tau-b between this ranking and the one under the default protocol; None if it is undefined.
    """

    id: str
    items: str
    statistic: str
    used_by: tuple[str, ...] = ()
    values: dict[str, float]
    ranks: dict[str, int]
    moves: dict[str, int]
    tau: float | None


class Reversal(Strict):
    """Two metrics whose order under a protocol differs from their order under the default protocol.

    Attributes:
        protocol: id of the protocol.
        better: column of the metric that is better under it.
        worse: column of the other metric, which is better under the default protocol.
        difference: value of ``better`` minus value of ``worse`` under the protocol, > 0.
        default_difference: the same under the default protocol, < 0.
        p_adjusted: p-value of the pair's test under the protocol, after its correction; None without such a test.
        default_p_adjusted: the same under the default protocol.
        real: True if the difference is significant under both protocols.
    """

    protocol: str
    better: str
    worse: str
    difference: float
    default_difference: float
    p_adjusted: float | None
    default_p_adjusted: float | None
    real: bool


class Sensitivity(Strict):
    """Dependence of the ranking of metrics on the protocol of one data set.

    Attributes:
        dataset: name of the data set.
        title: its name in tables.
        default: id of the protocol that the others are compared with: the data set's default, or else the first
            available one.
        protocols: one ranking for each available protocol.
        taus: Kendall's tau-b between the rankings of all protocols, in the order of ``protocols``.
        reversals: every pair of metrics whose order differs from that under ``default``, by protocol; None if metrics
            were not tested against each other.
    """

    dataset: str
    title: str
    default: str
    protocols: tuple[ProtocolRanking, ...]
    taus: tuple[tuple[float | None, ...], ...]
    reversals: tuple[Reversal, ...] | None = None


class SensitivityResult(Strict):
    """Result of ``capbench correlate --all-protocols``.

    Attributes:
        schema_version: version of this schema.
        result: the numbers of the study, with its tests between metrics if there are any.
        datasets: the rankings, one entry for each data set.
    """

    schema_version: int = SENSITIVITY_SCHEMA_VERSION
    result: StudyResult
    datasets: tuple[Sensitivity, ...]


def plan_all_protocols(study: Study, root: DataRoot) -> Plan:
    """Plan of a study with all protocols of its data sets instead of the study's protocols.

    Args:
        study: the study; its protocols are names of data sets, and its settings of intervals are ignored.
        root: the data folder.

    Raises:
        ProtocolError: a data set has no human judgements.
        UsageError: the test between metrics does not apply to all of the protocols.
        StudyError: see :func:`capbench.studies.plan.plan_study`.
    """
    plan = plan_study(replace(study, bootstrap=None, human_ceiling=False, sentinels=False, published=None), root)
    for dataset, _ in plan.protocols:
        if not _protocols(dataset):
            raise ProtocolError(
                f"{dataset.title} has no human judgements, so metrics have no ranking there",
                code="unsupported",
                value=dataset.name,
            )
    protocols = tuple((dataset, protocol) for dataset, _ in plan.protocols for protocol in _protocols(dataset))
    if study.compare is not None:
        for _, protocol in protocols:
            if problem := misfit(study.compare, protocol):
                raise UsageError(
                    f"the test does not apply to all protocols: {problem}",
                    code="conflict",
                    value=study.compare.test,
                    hint="The tests 'permutation' and 'bootstrap' apply to every protocol",
                )
    return replace(plan, protocols=protocols)


def run_all_protocols(
    plan: Plan,
    progress: ProgressFactory,
    *,
    cache: bool = True,
    announce: Callable[[SlowPart], None] | None = None,
    keep: Keep | None = None,
) -> SensitivityResult:
    """Run a plan of :func:`plan_all_protocols`, and rank the metrics under each protocol.

    Tests between metrics and their correction are those of any study under that protocol. Groups of a data set are not
    tested, since rankings use the overall values. The arguments are those of :func:`capbench.studies.run.run_plan`.

    Raises:
        StudyError: nothing could be computed.
        CapbenchError: see :func:`capbench.studies.run.run_plan`.
    """
    result = run_plan(plan, progress, cache=cache, test_groups=False, announce=announce, keep=keep)
    datasets = {dataset.name: dataset for dataset, _ in plan.protocols}
    tested = plan.study.compare is not None
    sensitivities = [_sensitivity(result, dataset, tested) for dataset in datasets.values()]
    return SensitivityResult(result=result, datasets=tuple(entry for entry in sensitivities if entry is not None))


def _protocols(dataset: Dataset) -> list[Protocol]:
    """The default protocol, then all others with human judgements, in the order of the data set.

    Statistics over more systems than the items have are omitted.
    """
    default = dataset.protocol()
    everything = [
        Protocol(dataset.name, items, statistic, dataset.version)
        for items in dataset.selections.values()
        for statistic in dataset.statistics.values()
        if statistic.kind != "mean"
        and not (items.systems and statistic.systems and items.systems < fewest_systems(statistic.systems))
    ]
    return sorted(everything, key=lambda protocol: protocol.items.name != default.items.name)


def _sensitivity(result: StudyResult, dataset: Dataset, tested: bool) -> Sensitivity | None:
    infos = [info for info in result.protocols if info.dataset == dataset.name]
    values = {
        info.id: {
            cell.column: cell.value
            for cell in result.cells
            if cell.protocol == info.id and not cell.group and cell.value is not None
        }
        for info in infos
    }
    values = {id_: of_protocol for id_, of_protocol in values.items() if of_protocol}
    if not values:
        return None
    default = str(dataset.protocol())
    if default not in values:  # its file is missing: use the first available protocol instead
        default = next(iter(values))
    used = _used_by()
    base = ranks(values[default])
    rankings = []
    for id_, of_protocol in values.items():
        ranking = ranks(of_protocol)
        rankings.append(
            ProtocolRanking(
                id=id_,
                items=id_.split("/")[1],
                statistic=id_.split("/")[2],
                used_by=tuple(used.get(id_, ())),
                values=of_protocol,
                ranks=ranking,
                moves={column: base[column] - rank for column, rank in ranking.items() if column in base},
                tau=agreement_of_rankings(values[default], of_protocol),
            )
        )
    taus = tuple(tuple(agreement_of_rankings(first, second) for second in values.values()) for first in values.values())
    return Sensitivity(
        dataset=dataset.name,
        title=dataset.title,
        default=default,
        protocols=tuple(rankings),
        taus=taus,
        reversals=tuple(_reversals(result, default, values)) if tested else None,
    )


def _reversals(result: StudyResult, default: str, values: Mapping[str, Mapping[str, float]]) -> Iterator[Reversal]:
    """Pairs of metrics whose order differs from that under the default protocol; equal values have no order."""
    base, base_tests = values[default], _tests(result, default)
    for id_, of_protocol in values.items():
        tests = _tests(result, id_)
        for pair in combinations([column for column in base if column in of_protocol], 2):
            worse, better = sorted(pair, key=of_protocol.__getitem__)
            difference, before = of_protocol[better] - of_protocol[worse], base[better] - base[worse]
            if not (difference > 0 > before):
                continue
            here, there = tests.get((better, worse)), base_tests.get((worse, better))
            yield Reversal(
                protocol=id_,
                better=better,
                worse=worse,
                difference=difference,
                default_difference=before,
                p_adjusted=None if here is None else here.p_adjusted,
                default_p_adjusted=None if there is None else there.p_adjusted,
                real=here is not None and there is not None and here.significant and there.significant,
            )


def _tests(result: StudyResult, protocol: str) -> dict[tuple[str, str], Pair]:
    """The tests under a protocol by (better, worse) column; empty if they failed."""
    comparison = result.comparison(protocol)
    return {} if comparison is None else {(pair.better, pair.worse): pair for pair in comparison.pairs}


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


def _used_by() -> dict[str, Sequence[str]]:
    """Names of the published tables by protocol."""
    tables_by_protocol: dict[str, list[str]] = {}
    for name in names():
        table = load_published(name)
        for protocol in dict.fromkeys(column.protocol for column in table.columns):
            if protocol is not None:
                tables_by_protocol.setdefault(protocol, []).append(name)
    return dict(tables_by_protocol)

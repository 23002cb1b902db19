"""How rankings depend on the protocol, as data: a typed schema with a version, readable for good.

``all-protocols.json`` holds one :class:`SensitivityResult`. Its version is its own: version 3 added which changes of
rank are significant, which is optional, so that a file of an earlier version is a valid file of this one.
"""

from __future__ import annotations

from capbench.strict import Strict
from capbench.studies.results import StudyResult

__all__ = ["SENSITIVITY_SCHEMA_VERSION", "ProtocolRanking", "Reversal", "Sensitivity", "SensitivityResult"]

SENSITIVITY_SCHEMA_VERSION = 3


class ProtocolRanking(Strict):
    """The ranking of metrics under one protocol.

    Attributes:
        id: ``dataset/items/statistic``.
        items: its *items* part.
        statistic: its *statistic* part.
        used_by: published tables that use this protocol (``tiger-table1``).
        values: the statistic by metric column.
        ranks: rank by metric column, from 1, the largest value first; equal values share the better rank.
        moves: by metric column, how many ranks it is better (positive) or worse than under the default protocol.
        tau: Kendall's tau-b between this ranking and that under the default protocol; None where it is not defined.
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
    """Two metrics that are in another order under a protocol than under the default one.

    Attributes:
        protocol: id of the protocol.
        better: column of the metric that is better under it.
        worse: column of the other one, which is better under the default protocol.
        difference: value of ``better`` minus value of ``worse`` under the protocol, > 0.
        default_difference: the same under the default protocol, < 0.
        p_adjusted: of the pair's test under the protocol, after its correction; None if there is no such test.
        default_p_adjusted: the same under the default protocol.
        real: whether the difference is significant under both protocols.
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
    """How far the ranking of metrics depends on the protocol of one data set.

    Attributes:
        dataset: name of the data set.
        title: its name in tables.
        default: id of the protocol that others are compared with: the data set's default, or the first one at hand.
        protocols: one ranking for each protocol at hand.
        taus: Kendall's tau-b between the rankings of all protocols, in the order of ``protocols``.
        reversals: every pair of metrics in another order than under ``default``, by protocol; None if metrics were not
            tested against each other.
    """

    dataset: str
    title: str
    default: str
    protocols: tuple[ProtocolRanking, ...]
    taus: tuple[tuple[float | None, ...], ...]
    reversals: tuple[Reversal, ...] | None = None


class SensitivityResult(Strict):
    """What ``capbench correlate --all-protocols`` found.

    Attributes:
        schema_version: version of this schema.
        result: the numbers, as of any other study, with the tests between metrics if there are any.
        datasets: the rankings, one entry for each data set.
    """

    schema_version: int = SENSITIVITY_SCHEMA_VERSION
    result: StudyResult
    datasets: tuple[Sensitivity, ...]

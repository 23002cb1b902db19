"""Notes on metrics with many tied scores next to Kendall's tau-c, which counts every tie against them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from capbench.core.records import FloatArray, Judgements, ScoreTable
from capbench.datasets.base import Dataset
from capbench.datasets.protocol import Protocol
from capbench.metrics.metric_request import Row
from capbench.stats.ties import merged
from capbench.studies.evaluate import evaluate
from capbench.studies.results import Cell

FEW_VALUES = 20
"""Metrics with at most this many distinct scores get a note under Kendall's tau-c."""
MANY_TIES = 0.1
"""Metrics that give this share of all pairs of items the same score get one, too."""
_FEWEST_ITEMS = 50


def tie_cautions(
    dataset: Dataset,
    protocol: Protocol,
    draws: Sequence[Judgements],
    tables: Sequence[ScoreTable],
    rows: Sequence[Row],
    cells: Sequence[Cell],
) -> list[str]:
    """A line for each metric with many ties under Kendall's tau-c: their number, and the values of other statistics.

    With several draws, the share of tied pairs is the mean over draws.

    Tau-c divides by the same number whatever the metric ties, so every tie of its scores counts against it; tau-b
    excludes ties, and tie-calibrated accuracy chooses the threshold below which the metric may tie (Deutsch, Foster and
    Freitag, 2023).

    Empty unless the statistic of the protocol is tau-c.
    """
    if protocol.statistic.coefficient != "tau-c" or not tables or len(tables[0].items) < _FEWEST_ITEMS:
        return []
    lines = []
    values = {cell.column: cell.value for cell in cells if not cell.group and cell.value is not None}
    for row in rows:
        if row.name not in values:
            continue
        of_draws = [_ties(table, table.values[row.key]) for table in tables]
        distinct, share = min(count for count, _ in of_draws), float(np.mean([tied for _, tied in of_draws]))
        if distinct > FEW_VALUES and share < MANY_TIES:
            continue
        most = max(count for count, _ in of_draws)
        counted = f"{distinct:,}{f' to {most:,}' if most > distinct else ''} distinct scores"
        if most == 1:
            counted = "one score for all items"
        others = _others(dataset, protocol, draws, tables, row)
        lines.append(
            f"{row.title} has {counted} and gives {share:.0%} of all pairs of items the same score, which τ-c counts "
            f"against it ({values[row.name]:.4f}){others}"
        )
    return lines


def _ties(table: ScoreTable, values: FloatArray) -> tuple[int, float]:
    """The number of distinct scores of distinct items, and the share of pairs of items with the same score."""
    of_item = dict(zip((item.key for item in table.items), values.tolist(), strict=True))
    counts = np.unique(merged(np.array(list(of_item.values()))), return_counts=True)[1].astype(np.float64)
    n = counts.sum()
    return len(counts), float((counts * (counts - 1)).sum() / (n * (n - 1))) if n > 1 else 0.0


def _others(
    dataset: Dataset, protocol: Protocol, draws: Sequence[Judgements], tables: Sequence[ScoreTable], row: Row
) -> str:
    """The values of tau-b and tie-calibrated accuracy, if the data set has them."""
    values = []
    for coefficient, title in (("tau-b", "τ-b"), ("acc-eq", "tie-calibrated accuracy")):
        spec = dataset.statistics.get(protocol.statistic.name.replace("tau-c", coefficient))
        if spec is None or spec.coefficient != coefficient:
            continue
        cells, _ = evaluate(replace(protocol, statistic=spec), draws, tables, [row])
        values += [f"{title} is {cell.value:.4f}" for cell in cells if not cell.group and cell.value is not None]
    return f"; {' and '.join(values)}" if values else ""

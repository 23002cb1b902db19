"""A comparison of metrics as the result of a study, for what reads results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime

from capbench import __version__
from capbench.analyses.comparing import MetricComparison
from capbench.datasets.protocol import Protocol
from capbench.metrics.requests import Row
from capbench.stats.intervals import Interval
from capbench.studies.evaluate import evaluate
from capbench.studies.judged import Scored
from capbench.studies.results import (
    BootstrapInfo,
    Cell,
    Comparisons,
    PairTest,
    ProtocolInfo,
    StudyResult,
)

__all__ = ["comparison_result"]


def comparison_result(
    comparison: MetricComparison, protocol: Protocol, scored: Scored, rows: Sequence[Row]
) -> StudyResult:
    """What ``compare`` found, with the values of the data set's groups beside.

    Args:
        comparison: intervals and tests, metrics by title.
        protocol: its protocol.
        scored: the scores behind it.
        rows: what was compared.
    """
    columns = {row.title: row.name for row in rows}
    cells, groups = evaluate(protocol, scored.draws, scored.tables, rows)
    by_title = comparison.intervals
    first = next(iter(by_title.values()))
    return StudyResult(
        capbench=__version__,
        name="comparison",
        title=f"{' and '.join(columns)} compared" if len(columns) == 2 else f"{len(columns)} metrics compared",
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        sample=comparison.sample,
        protocols=(
            ProtocolInfo(
                id=str(protocol),
                dataset=scored.dataset.name,
                dataset_title=scored.dataset.title,
                statistic=protocol.statistic.label,
                kind=protocol.statistic.kind,
                description=f"{protocol.items.description}; {protocol.statistic.description}",
                groups=groups,
                notes=(*comparison.notes, *scored.cautions),
                n_items=len(scored.draws[0].items),
                draws=len(scored.draws),
                bootstrap=_how(first),
                version=protocol.version,
            ),
        ),
        columns={row.name: row.title for row in rows},
        signatures={f"{scored.dataset.name}/{protocol.items.name}": dict(comparison.signatures)},
        cells=tuple(cell if cell.group else _with_interval(cell, by_title[cell.title]) for cell in cells),
        comparisons=(_tests(comparison, str(protocol), columns),),
        seconds={},
    )


def _how(interval: Interval) -> BootstrapInfo | None:
    if interval.unit is None or interval.resamples is None or interval.seed is None:
        return None
    return BootstrapInfo(
        method="bca" if interval.method == "bca" else "percentile",
        level=interval.level,
        unit=interval.unit,
        units=interval.units,
        resamples=interval.resamples,
        seed=interval.seed,
    )


def _with_interval(cell: Cell, interval: Interval) -> Cell:
    return cell.model_copy(update={"low": interval.low, "high": interval.high})


def _tests(comparison: MetricComparison, protocol: str, columns: dict[str, str]) -> Comparisons:
    table = comparison.table
    pairs = [asdict(pair) | {"better": columns[pair.better], "worse": columns[pair.worse]} for pair in table.pairs]
    return Comparisons(
        protocol=protocol,
        test=table.test,
        correction=table.correction,
        alpha=table.alpha,
        unit=table.unit,
        units=table.units,
        resamples=table.resamples,
        seed=table.seed,
        level=table.level,
        top=tuple(columns[title] for title in table.top),
        ranks={columns[title]: rank for title, rank in table.ranks.items()},
        pairs=tuple(PairTest(**pair) for pair in pairs),
    )

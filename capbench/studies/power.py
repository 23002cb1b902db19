"""Power analysis of two metrics: the amount of data that distinguishes them under one protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from capbench.core.errors import UsageError
from capbench.datasets.base import Dataset
from capbench.datasets.protocol import Protocol
from capbench.metrics.metric_request import MetricRequest
from capbench.metrics.needs import Resources
from capbench.stats.agreement import Accuracies
from capbench.stats.pairs import Unit
from capbench.stats.power import Power, power
from capbench.studies.data_points import agreement
from capbench.studies.evaluate import check_defined, evaluate
from capbench.studies.protocol_notes import photograph_note, protocol_notes
from capbench.studies.scoring import ProgressFactory, load_scorable, no_progress, refuse_means


@dataclass(frozen=True)
class MetricPower:
    """Result of :func:`metric_power`."""

    protocol: str
    n: int  # available data points (ratings or pairs; captions within images; systems over systems)
    values: dict[str, float]  # the statistic of both metrics, by title
    power: Power
    signatures: dict[str, str]  # one line by label
    notes: tuple[str, ...]
    version: str  # of the data set, which `protocol` leaves out; "" if it has none
    file_columns: dict[str, str]  # for a user's file: the field that each column was read as, "" if it is not read
    statistic: str
    percent: bool
    data_points: str

    def as_json(self) -> dict[str, Any]:
        """Plain values for JSON; ``file_columns`` only if there are any."""
        return {key: value for key, value in asdict(self).items() if key != "file_columns" or value}


def metric_power(
    dataset: Dataset,
    protocol: Protocol,
    requests: Sequence[MetricRequest],
    *,
    unit: Unit = "image",
    resources: Resources | None = None,
    cache: bool = True,
    progress: ProgressFactory = no_progress,
    **aims: Any,  # of :func:`capbench.stats.power.power`
) -> MetricPower:
    """Score two columns of metrics, and estimate how much data distinguishes them; see :func:`capbench.power`."""
    rows = [row for request in requests for row in request.rows]
    if len(rows) != 2:
        message = f"exactly two metrics are required, not {len(rows)}: {', '.join(row.name for row in rows)}"
        hint = "Name single columns, such as bleu-4 instead of bleu"
        raise UsageError(message, code="wrong-value", value=len(rows), hint=hint)
    refuse_means(protocol)
    scorable = load_scorable(dataset, protocol.items, requests, resources, cache=cache).require_all()
    scored = scorable.score(progress)
    rows = scored.complete(rows, at_least=2)
    draws = scored.draws
    cells = [cell for cell in evaluate(protocol, draws, scored.tables, rows)[0] if not cell.group]
    check_defined(cells)
    scores = {row.title: np.stack([table.values[row.key] for table in scored.tables]) for row in rows}
    data = agreement(protocol, draws[0], scores, unit)
    statistic = protocol.statistic
    photographs = photograph_note(draws[0]) if unit == "image" else None
    return MetricPower(
        protocol=str(protocol),
        n=len(draws[0].preferences[statistic.human]) if isinstance(data, Accuracies) else data.n,
        values={cell.title: cell.number for cell in cells},
        power=power(data, *data.names, unit=unit, **aims),
        signatures=scored.signatures,
        notes=(
            *dict.fromkeys(note for judgements in draws for note in judgements.notes),
            *protocol_notes(protocol, draws, scored.tables, rows),
            *filter(None, [photographs]),
        ),
        version=protocol.version,
        file_columns=dict(dataset.file_columns),
        statistic=statistic.label,
        percent=statistic.kind == "accuracy",
        data_points=statistic.data_points,
    )

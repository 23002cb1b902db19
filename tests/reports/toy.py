"""Made-up studies: values by protocol and column, and tests between the columns."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from capbench.stats.pairs import Pair, Tests
from capbench.stats.significance import adjust
from capbench.studies.results import BootstrapInfo, Cell, ProtocolInfo, StudyResult

BOOTSTRAP = BootstrapInfo(method="percentile", level=0.95, unit="image", units=50, resamples=1000, seed=0)


def protocol_info(id_: str, **facts: object) -> ProtocolInfo:
    """One protocol, by default with Kendall's τ-c."""
    dataset = id_.split("/")[0]
    given = {"statistic": "τ-c", "kind": "correlation", "description": "rules", "n_items": 12, **facts}
    return ProtocolInfo.model_validate({"id": id_, "dataset": dataset, "dataset_title": dataset.title(), **given})


def result(
    protocols: Sequence[ProtocolInfo], cells: Sequence[Cell], columns: Mapping[str, str], /, **more: object
) -> StudyResult:
    """The result of a study named ``toy``."""
    made: dict[str, Any] = {
        "capbench": "0.1.0",
        "name": "toy",
        "title": "Toy",
        "created": "2020-01-01T00:00:00+00:00",
        "sample": False,
        "protocols": tuple(protocols),
        "columns": dict(columns),
        "signatures": {},
        "cells": tuple(cells),
        "seconds": {"total": 1.0},
    }
    return StudyResult(**made | more)


def study(
    values: Mapping[str, Mapping[str, float]],
    *,
    n: int = 12,
    intervals: tuple[float, float] | None = None,
    info: Mapping[str, object] | None = None,
    **more: object,
) -> StudyResult:
    """A study; ``intervals``: distances of their ends from values; ``info``: fields of all protocols."""
    low, high = intervals or (None, None)
    cells = [
        Cell(
            protocol=id_,
            metric=name,
            column=name,
            title=name.upper(),
            value=value,
            low=None if low is None else value - low,
            high=None if high is None else value + high,
            n=n,
        )
        for id_, of_protocol in values.items()
        for name, value in of_protocol.items()
    ]
    infos = [protocol_info(id_, **{"n_items": n, **(info or {})}) for id_ in values]
    columns = {name: name.upper() for of_protocol in values.values() for name in of_protocol}
    return result(infos, cells, columns, **more)


def pairs_tested(
    protocol: str,
    values: Mapping[str, float],
    p_values: Sequence[float],
    intervals: Sequence[tuple[float, float]] | None = None,
    *,
    adjusted: Sequence[float] | None = None,
    **how: Any,
) -> Tests:
    """Tests of all pairs of columns, the best first."""
    how = {"test": "permutation", "correction": "holm", "unit": "image", "units": 100, "resamples": 999, **how}
    corrected = adjusted or adjust(p_values, how["correction"]).tolist()
    ends: Sequence[tuple[float | None, float | None]] = intervals or [(None, None)] * len(p_values)
    pairs = tuple(
        Pair(
            better=a,
            worse=b,
            difference=values[a] - values[b],
            low=low,
            high=high,
            p_value=p,
            p_adjusted=q,
            significant=q <= 0.05,
        )
        for (a, b), (low, high), p, q in zip(itertools.combinations(values, 2), ends, p_values, corrected, strict=True)
    )
    facts = {"alpha": 0.05, "seed": 0, "level": 0.95, "ranks": dict.fromkeys(values, 1), "top": tuple(values), **how}
    return Tests(protocol=protocol, pairs=pairs, **facts)

"""Notes below the numbers of a protocol: what it leaves out, its chance level, captions' lengths, photographs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from capbench.core.errors import StatisticError
from capbench.core.records import FloatArray, Judgements, ScoreTable, photograph
from capbench.datasets.protocol import Protocol, StatisticSpec
from capbench.metrics.metric_request import Row
from capbench.stats.system_agreement import FEW_SYSTEMS, Systems
from capbench.stats.tie_calibration import chance_level
from capbench.stats.ties import merged
from capbench.stats.within_images import WithinImages
from capbench.stats.within_sources import WithinSources
from capbench.studies.data_points import item_column, level_points, rated_points
from capbench.studies.results import Cell


def protocol_notes(
    protocol: Protocol, draws: Sequence[Judgements], tables: Sequence[ScoreTable], rows: Sequence[Row]
) -> tuple[str, ...]:
    """Notes below a number that is not over all captions, and on the chance level of acc*_eq."""
    spec = protocol.statistic
    if not tables or spec.level == "pairs":
        return ()
    if spec.level == "captions":
        return tuple(f"{protocol}: {line}" for line in _chance(spec, draws[0]))
    rows = [row for row in rows if all(row.key in table.values for table in tables)]
    scores = {row.title: np.stack([table.values[row.key] for table in tables]) for row in rows}
    if not scores:
        return ()
    try:
        data = level_points(spec, draws[0], scores)
    except StatisticError:  # the cells give the reason
        return ()
    lines = _of_images(data) if isinstance(data, WithinImages) else []
    lines += _of_sources(data) if isinstance(data, WithinSources) else []
    lines += _of_systems(data) if isinstance(data, Systems) else []
    return tuple(f"{protocol}: {line}" for line in (*lines, *_chance(spec, draws[0])))


def _chance(spec: StatisticSpec, judgements: Judgements) -> list[str]:
    """The chance level of acc*_eq; empty for other statistics and without pairs."""
    try:
        level, tied = _chance_level(spec, judgements, "")
    except StatisticError:  # the cells give the reason
        return []
    ties = "all pairs tied" if tied else "no pairs tied"
    return [f"chance level {level:.4f}: acc*_eq of scores without information, with {ties}"] if level else []


def no_agreement(spec: StatisticSpec, judgements: Judgements, group: str) -> float:
    """The value of scores without information: the chance level of acc*_eq, 0 for correlations."""
    return _chance_level(spec, judgements, group)[0]


def _chance_level(spec: StatisticSpec, judgements: Judgements, group: str) -> tuple[float, bool]:
    if "acc-eq" not in str(spec.coefficient):
        return 0.0, False
    item, human = rated_points(spec, judgements, group)
    return chance_level(human, item_column(judgements, item, "image") if spec.level == "images" else None)


def _of_images(data: WithinImages) -> list[str]:
    lines = []
    left_out = [
        f"{count:,} {why}"
        for count, why in ((data.few, "with one caption only"), (data.tied, "whose captions all have one rating"))
        if count
    ]
    if left_out:
        total = data.images + data.few + data.tied
        lines.append(f"{data.images:,} of {total:,} images are used; excluded are {' and '.join(left_out)}")
    tied = []
    for name in data.names:
        low, high = min(data.flat(name)), max(data.flat(name))
        tied += [f"{name} on {low:,}{f' to {high:,}' if high > low else ''}"] if high else []
    if tied:
        lines.append(f"images count 0 if a metric gives all their captions the same score: {', '.join(tied)}")
    return lines


def _of_sources(data: WithinSources) -> list[str]:
    captions = zip(data.sources, data.sizes.tolist(), strict=True)
    lines = [f"captions of one source are compared: {', '.join(f'{name} ({n:,} captions)' for name, n in captions)}"]
    if data.few:
        lines.append(f"excluded are {data.few:,} source{'s' if data.few != 1 else ''} with one caption only")
    return lines


def _of_systems(data: Systems) -> list[str]:
    lines = []
    if data.n < FEW_SYSTEMS:
        lines.append(
            f"only {data.n} systems ({', '.join(data.systems)}): with fewer than {FEW_SYSTEMS}, agreement over systems "
            "is unreliable, and its interval covers the choice of images, not the choice of systems"
        )
    if data.shared < data.units:
        lines.append(
            f"{data.shared:,} of {data.units:,} images have a caption of every system; a system's mean is over all of "
            "its captions"
        )
    return lines


def photograph_note(judgements: Judgements) -> str | None:
    """A note on judgements in which one photograph has two image ids, None for others."""
    images = {item.image for item in judgements.items}
    photographs = len({photograph(image) for image in images})
    if photographs == len(images):
        return None
    return f"{len(images):,} image ids show {photographs:,} photographs; ids of one photograph are resampled together"


# Metrics with many tied scores next to Kendall's tau-c, which counts every tie against them.

FEW_VALUES = 20  # a metric with at most so many distinct scores gets a note,
MANY_TIES = 0.1  # or with at least this share of tied pairs,
_FEWEST_ITEMS = 50  # of so many items


def tie_cautions(
    protocol: Protocol, tables: Sequence[ScoreTable], rows: Sequence[Row], cells: Sequence[Cell]
) -> list[str]:
    """A line for each metric with many ties under Kendall's tau-c.

    Tau-c divides by the same number whatever the metric ties, so every tie of its scores counts against it; tau-b
    excludes ties, and tie-calibrated accuracy chooses the threshold below which the metric may tie (Deutsch, Foster and
    Freitag, 2023).
    """
    spec = protocol.statistic
    if (spec.level, spec.coefficient) != ("captions", "tau-c") or not tables or len(tables[0].items) < _FEWEST_ITEMS:
        return []
    lines = []
    defined = {cell.column for cell in cells if not cell.group and cell.value is not None}
    for row in (row for row in rows if row.name in defined):
        of_draws = [_ties(table, table.values[row.key]) for table in tables]
        distinct, share = min(count for count, _ in of_draws), float(np.mean([tied for _, tied in of_draws]))
        if distinct > FEW_VALUES and share < MANY_TIES:
            continue
        most = max(count for count, _ in of_draws)
        counted = f"{distinct:,}{f' to {most:,}' if most > distinct else ''} distinct scores"
        lines.append(
            f"{row.title} has {'one score for all items' if most == 1 else counted} and gives {share:.0%} of all pairs "
            "of items the same score, which τ-c counts against it (see τ-b and tie-calibrated accuracy)"
        )
    return lines


def _ties(table: ScoreTable, values: FloatArray) -> tuple[int, float]:
    """The number of distinct scores of distinct items, and the share of pairs of items with the same score."""
    of_item = dict(zip((item.key for item in table.items), values.tolist(), strict=True))
    counts = np.unique(merged(np.array(list(of_item.values()))), return_counts=True)[1].astype(np.float64)
    n = counts.sum()
    return len(counts), float((counts * (counts - 1)).sum() / (n * (n - 1))) if n > 1 else 0.0

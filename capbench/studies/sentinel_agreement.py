"""Agreement of sentinels with human judgements, and tests of metrics against sentinels and human raters."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from capbench.core.errors import StatisticError
from capbench.core.records import FloatArray, Judgements
from capbench.datasets.protocol import Protocol
from capbench.stats.agreement import Agreement
from capbench.stats.resampling import observed_value
from capbench.stats.significance import PERMUTATIONS, adjust, better_p_values, permutations_needed
from capbench.studies.data_points import agreement
from capbench.studies.human_ceiling import HUMAN_CEILING, human_ceiling
from capbench.studies.results import Cell, RaterTests, Sentinels, SentinelTest, SentinelTests
from capbench.studies.sentinels import BOUNDS, SentinelScores, sentinel_scores
from capbench.studies.study import BootstrapSettings, TestSettings
from capbench.studies.uncertainty import draw_intervals, too_few_to_permute, with_intervals


def assess_sentinels(
    protocol: Protocol,
    draws: Sequence[Judgements],
    scores: Mapping[str, FloatArray],
    cells: Sequence[Cell],
    *,
    bootstrap: BootstrapSettings | None,
    tests: TestSettings,
    groups: bool = True,
    of_groups: Mapping[str, Mapping[str, FloatArray]] | None = None,
    seed: int = 0,
) -> Sentinels:
    """Agreement of all sentinels under a protocol, and tests of metrics against them and against human raters.

    A metric passes if it is significantly better than every sentinel outside :data:`BOUNDS`: the largest of its
    one-sided p-values counts (intersection-union test), since the best sentinel is known only from the same data. These
    p-values, one for each metric, form a family of their own, and no test between metrics depends on them.

    The test is a permutation test (PERM-BOTH) over the unit of the settings, whatever test they name. Tau-c has the
    same denominator for metrics and sentinels, from the number of distinct ratings.

    Where raters or votes are known, each metric is also tested against the human ceiling, two-sided and on the data
    points of the ceiling (:func:`capbench.studies.human_ceiling.human_ceiling`). These p-values are another family.

    ``scores`` are the metrics' (draws, items) scores by column, ``of_groups`` those of metrics that were scored on the
    items of a group only. Metrics without a value in ``cells`` are not tested; ``groups`` False tests overall numbers
    only. ``seed`` is that of the folds.
    """
    made = sentinel_scores(protocol, draws, seed=seed)
    found = {name: one for name, one in made.items() if isinstance(one, SentinelScores)}
    result: list[Cell] = []
    tested: list[SentinelTests] = []
    raters: list[RaterTests] = []
    notes: list[str] = []
    for group in dict.fromkeys(["", *(cell.group for cell in cells)]):
        of_group = [sentinel_cell(protocol, draws[0], name, one, group) for name, one in made.items()]
        defined = {cell.column: found[cell.column].values for cell in of_group if cell.value is not None}
        known = {**scores, **(of_groups or {}).get(group, {})}
        of_metrics = {
            cell.column: known[cell.column]
            for cell in cells
            if cell.group == group and cell.value is not None and cell.column in known
        }
        place = f"{protocol}{f' {group}' if group else ''}"
        if groups or not group:
            try:
                if bootstrap is not None and defined:
                    data = agreement(protocol, draws[0], defined, bootstrap.unit, group, rating_levels=True)
                    of_group = with_intervals(of_group, draw_intervals(data, bootstrap)[1])
                against = {name: values for name, values in defined.items() if name not in BOUNDS}
                if against and of_metrics:
                    tested.append(_tests(protocol, draws[0], of_metrics, against, group, tests))
                if of_metrics and (of_raters := _raters(protocol, draws[0], of_metrics, group, tests)) is not None:
                    raters.append(of_raters)
            except StatisticError as error:
                notes.append(f"{place}: no tests against sentinels and raters: {error.message}")
        result += of_group
    return Sentinels(
        protocol=str(protocol),
        cells=tuple(result),
        tests=tuple(tested),
        inputs={name: one.inputs for name, one in found.items()},
        signatures={name: one.signature for name, one in found.items()},
        notes=tuple(notes),
        raters=tuple(raters),
    )


def sentinel_cell(
    protocol: Protocol, judgements: Judgements, name: str, scores: SentinelScores | str, group: str
) -> Cell:
    """Agreement of one sentinel, overall or in a group; ``undefined`` is the reason if it has none."""
    of_name: dict[str, Any] = {"protocol": str(protocol), "metric": name, "column": name, "title": name, "group": group}
    if isinstance(scores, str):
        return Cell(**of_name, undefined=scores, n=0)
    try:
        data = agreement(protocol, judgements, {name: scores.values}, "image", group, rating_levels=True)
    except StatisticError as error:
        return Cell(**of_name, undefined=error.message, n=0)
    value = observed_value(data.statistic(name))
    if not np.isfinite(value):
        return Cell(**of_name, undefined=f"{protocol.statistic.name} is undefined on these scores", n=0)
    return Cell(**of_name, value=value, n=data.n)


def _tests(
    protocol: Protocol,
    judgements: Judgements,
    metrics: Mapping[str, FloatArray],
    sentinels: Mapping[str, FloatArray],
    group: str,
    settings: TestSettings,
) -> SentinelTests:
    # A metric may have the name of a sentinel.
    of_metric = {f"metric|{name}": values for name, values in metrics.items()}
    of_sentinel = {f"sentinel|{name}": values for name, values in sentinels.items()}
    data = agreement(protocol, judgements, of_metric | of_sentinel, settings.unit, group, rating_levels=True)
    permutations = _permutations(data, settings, len(metrics))
    pairs = list(itertools.product(of_metric, of_sentinel))
    p_values = better_p_values(data, pairs, permutations=permutations, seed=settings.seed)
    by_metric = p_values.reshape(len(metrics), len(sentinels))
    largest = by_metric.max(axis=1)
    value = {name: observed_value(data.statistic(name)) for name in data.names}
    # Of several sentinels with the largest p-value, the one that agrees best.
    best_first = sorted(sentinels, key=lambda name: -value[f"sentinel|{name}"])
    order = [list(sentinels).index(name) for name in best_first]
    against = [best_first[place] for place in by_metric[:, order].argmax(axis=1).tolist()]
    return SentinelTests(
        group=group,
        correction=settings.correction,
        alpha=settings.alpha,
        unit=settings.unit,
        units=data.units,
        permutations=permutations,
        seed=settings.seed,
        sentinels=tuple(sentinels),
        tests=tuple(
            SentinelTest(
                column=metric,
                sentinel=name,
                difference=value[f"metric|{metric}"] - value[f"sentinel|{name}"],
                p_value=p,
                p_adjusted=p_adjusted,
                better=p_adjusted <= settings.alpha,
            )
            for metric, name, p, p_adjusted in zip(
                metrics, against, largest.tolist(), adjust(largest, settings.correction).tolist(), strict=True
            )
        ),
    )


def _raters(
    protocol: Protocol, judgements: Judgements, metrics: Mapping[str, FloatArray], group: str, settings: TestSettings
) -> RaterTests | None:
    """Tests of the metrics against human raters; None if these are unknown or too few."""
    named = {f"metric|{name}": values for name, values in metrics.items()}
    try:
        known = human_ceiling(protocol, judgements, settings.unit, group, named)
    except StatisticError:  # the human ceiling has the reason
        return None
    if known is None:
        return None
    data, ceiling = known
    permutations = _permutations(data, settings, len(metrics))
    pairs = [(name, HUMAN_CEILING) for name in named]
    one_sided = better_p_values(data, pairs, permutations=permutations, seed=settings.seed)
    adjusted = adjust(np.minimum(1.0, 2 * np.minimum(one_sided, 1 - one_sided)), settings.correction)
    found: dict[str, list[str]] = {"above": [], "below": [], "alike": []}
    for metric, p, p_adjusted in zip(metrics, one_sided.tolist(), adjusted.tolist(), strict=True):
        found["alike" if p_adjusted > settings.alpha else "above" if p < 0.5 else "below"].append(metric)
    return RaterTests(
        group=group,
        value=ceiling.value,
        n=ceiling.n,
        method=ceiling.method,
        correction=settings.correction,
        alpha=settings.alpha,
        p_adjusted=dict(zip(metrics, adjusted.tolist(), strict=True)),
        above=tuple(found["above"]),
        below=tuple(found["below"]),
        alike=tuple(found["alike"]),
    )


def _permutations(data: Agreement, settings: TestSettings, metrics: int) -> int:
    """Number of permutations with which more than the smallest p-value can be significant."""
    reason = too_few_to_permute(data.units, settings.unit, settings.correction, settings.alpha, metrics)
    if reason:
        raise StatisticError(reason, code="too-few", value=data.units)
    return max(settings.resamples or PERMUTATIONS, 2 * permutations_needed(metrics, settings.alpha))

"""Agreement of sentinels with human judgements, and tests of metrics against sentinels."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from capbench.core.errors import StatisticError
from capbench.core.records import FloatArray, Judgements
from capbench.datasets.protocol import Protocol
from capbench.stats.pairs import Tests
from capbench.stats.resampling import observed_value
from capbench.stats.significance import PERMUTATIONS, adjusted_pairs, better_p_values, permutations_needed
from capbench.studies.data_points import agreement, defined_value
from capbench.studies.results import Cell, Sentinels
from capbench.studies.sentinels import BOUNDS, SentinelScores, sentinel_scores
from capbench.studies.study import BootstrapSettings, TestSettings
from capbench.studies.uncertainty import draw_intervals, too_few_units, with_intervals


def assess_sentinels(
    protocol: Protocol,
    draws: Sequence[Judgements],
    scores: Mapping[str, Mapping[str, FloatArray]],  # by group, (draws, items) by column
    cells: Sequence[Cell],
    *,
    bootstrap: BootstrapSettings | None,
    tests: TestSettings,
    groups: bool = True,
) -> Sentinels:
    """Agreement of all sentinels under a protocol, and tests of metrics against them.

    A metric passes if it is significantly better than every sentinel outside :data:`BOUNDS`: the largest of its
    one-sided p-values counts (intersection-union test), since the best sentinel is known only from the same data. These
    p-values form a family of their own. The test is a permutation test (PERM-BOTH), whatever test the settings name.
    Tau-c has the same denominator for metrics and sentinels, from the number of distinct ratings.
    """
    made = sentinel_scores(protocol, draws)
    found = {name: entry for name, entry in made.items() if isinstance(entry, SentinelScores)}
    result: list[Cell] = []
    tested: list[Tests] = []
    notes: list[str] = []
    for group in dict.fromkeys(["", *(cell.group for cell in cells)]):
        of_group = [sentinel_cell(protocol, draws[0], name, entry, group) for name, entry in made.items()]
        defined = {cell.column: found[cell.column].values for cell in of_group if cell.value is not None}
        known = scores.get(group, {})
        with_value = [cell.column for cell in cells if cell.group == group and cell.value is not None]
        of_metrics = {column: known[column] for column in with_value if column in known}
        place = f"{protocol}{f' {group}' if group else ''}"
        if groups or not group:
            try:
                if bootstrap is not None and defined:
                    data = agreement(protocol, draws[0], defined, bootstrap.unit, group, rating_levels=True)
                    of_group = with_intervals(of_group, draw_intervals(data, bootstrap)[1])
                against = {name: values for name, values in defined.items() if name not in BOUNDS}
                if against and of_metrics:
                    tested.append(_tests(protocol, draws[0], of_metrics, against, group, tests))
            except StatisticError as error:
                notes.append(f"{place}: no tests against sentinels: {error.message}")
        result += of_group
    return Sentinels(
        protocol=str(protocol),
        cells=tuple(result),
        tests=tuple(tested),
        inputs={name: entry.inputs for name, entry in found.items()},
        signatures={name: entry.signature for name, entry in found.items()},
        notes=tuple(notes),
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
        return Cell(**of_name, value=defined_value(data, name), n=data.n)
    except StatisticError as error:
        return Cell(**of_name, undefined=error.message, n=0)


def _tests(
    protocol: Protocol,
    judgements: Judgements,
    metrics: Mapping[str, FloatArray],
    sentinels: Mapping[str, FloatArray],
    group: str,
    settings: TestSettings,
) -> Tests:
    # A metric may have the name of a sentinel.
    of_metric = {f"metric|{name}": values for name, values in metrics.items()}
    of_sentinel = {f"sentinel|{name}": values for name, values in sentinels.items()}
    data = agreement(protocol, judgements, of_metric | of_sentinel, settings.unit, group, rating_levels=True)
    # With fewer permutations, only the smallest p-value could be significant.
    permutations = max(settings.resamples or PERMUTATIONS, 2 * permutations_needed(len(metrics), settings.alpha))
    pairs = list(itertools.product(of_metric, of_sentinel))
    p_values = better_p_values(data, pairs, permutations=permutations, seed=settings.seed)
    by_metric = p_values.reshape(len(metrics), len(sentinels))
    largest = by_metric.max(axis=1)
    value = {name: observed_value(data.statistic(name)) for name in data.names}
    # Of several sentinels with the largest p-value, the one that agrees best.
    best_first = sorted(sentinels, key=lambda name: -value[f"sentinel|{name}"])
    order = [list(sentinels).index(name) for name in best_first]
    against = [best_first[place] for place in by_metric[:, order].argmax(axis=1).tolist()]
    differences = [
        (metric, name, value[f"metric|{metric}"] - value[f"sentinel|{name}"])
        for metric, name in zip(metrics, against, strict=True)
    ]
    tested = adjusted_pairs(differences, largest.tolist(), settings.correction, settings.alpha)
    made = Tests(
        protocol=str(protocol),
        group=group,
        test="permutation",
        correction=settings.correction,
        alpha=settings.alpha,
        unit=settings.unit,
        units=data.units,
        resamples=permutations,
        seed=settings.seed,
        level=None,
        top=tuple(pair.better for pair in tested if pair.significant),
        ranks={},
        pairs=tuple(tested),
    )
    if reason := too_few_units(made):
        raise StatisticError(reason, code="too-few", value=data.units)
    return made

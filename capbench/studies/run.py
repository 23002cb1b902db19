"""Runs a study: scores everything that can be scored, and computes the statistics."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from capbench import __version__
from capbench.core.errors import CapbenchError, MissingFileError, StudyError
from capbench.core.progress import LONG_S, SlowWork, together
from capbench.core.records import FloatArray, Judgements, ScoreTable
from capbench.core.training_record import TrainingOverlap
from capbench.datasets.base import Dataset
from capbench.datasets.protocol import Protocol
from capbench.metrics.base import CombinedMetric, classes_of
from capbench.metrics.metric_request import MetricRequest, Row
from capbench.metrics.needs import Scores
from capbench.stats.pairs import Tests
from capbench.stats.ties import merged
from capbench.studies import evaluate as evaluation
from capbench.studies.evaluate import check_defined, evaluate, unscored_cells
from capbench.studies.judged import Judged, ProgressFactory, Scored, judge, training_overlaps
from capbench.studies.plan import Plan, changed_inputs
from capbench.studies.published.beside import join_published
from capbench.studies.results import (
    Answer,
    Ceiling,
    Cell,
    Missing,
    Practice,
    ProtocolInfo,
    Sentinels,
    StudyResult,
)
from capbench.studies.study import TestSettings
from capbench.studies.uncertainty import answer, assess, common_scores, group_scores

if TYPE_CHECKING:
    from capbench.studies.combine import PlannedCombination

# Warnings next to misleading numbers.

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

    Args:
        dataset: the data set.
        protocol: the protocol; the result is empty unless its statistic is tau-c.
        draws: its judgements.
        tables: their scores.
        rows: the rows.
        cells: the protocol's numbers, including those of all items.
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


@dataclass
class _Run:
    """Accumulated results of a running plan."""

    cells: list[Cell] = field(default_factory=list)
    ceilings: list[Ceiling] = field(default_factory=list)
    comparisons: list[Tests] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    infos: list[ProtocolInfo] = field(default_factory=list)
    signatures: dict[str, dict[str, str]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    cached: dict[str, int] = field(default_factory=dict)
    unscored: list[CapbenchError] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    practices: list[Practice] = field(default_factory=list)
    sentinels: list[Sentinels] = field(default_factory=list)
    training: dict[str, tuple[TrainingOverlap, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class SlowPart:
    """Slow work of a study, known before it begins.

    Attributes:
        works: the work, with each unit once in the whole study.
        labels: the requests that require it.
    """

    works: tuple[SlowWork, ...]
    labels: tuple[str, ...]


_Entries = list[tuple[Dataset, Protocol]]
Keep = Callable[[Protocol, Scored, Sequence[ScoreTable], Sequence[Row]], None]
"""Called with the data behind the numbers of a protocol."""


def run_plan(
    plan: Plan,
    progress: ProgressFactory,
    *,
    cache: bool = True,
    test_groups: bool = True,
    announce: Callable[[SlowPart], None] | None = None,
    keep: Keep | None = None,
) -> StudyResult:
    """Run a plan.

    Each *dataset/items* is loaded and scored once, whatever the number of statistics. Missing requirements (a data
    set's files, a metric's weights) become :class:`Missing` entries. Metrics with slow work come last.

    Args:
        plan: the plan.
        progress: makes progress bars.
        cache: True to use the score cache.
        test_groups: False for intervals, tests and ceilings of the overall numbers only, not of groups.
        announce: called before scoring if there is slow work of more than half a minute.
        preview: called before the slow work begins, with the numbers of the other metrics, without intervals, tests and
            ceilings.
        keep: called with the data behind each protocol's numbers: the protocol, its judgements with scores, the tables
            with combinations, and the rows (:class:`capbench.studies.item_scores.Collector`).

    Raises:
        StudyError: nothing could be computed.
        StatisticError: no statistic of the study is defined.
        CapbenchError: a file is damaged, or a metric failed.
    """
    started = time.perf_counter()
    run = _Run()
    has_images = any(dataset.judges_images for dataset, _ in plan.protocols)
    for request in plan.requests:
        # Without images on any data set, the reason is not a missing input.
        if (has_images or not request.requires_images()) and (reason := request.lacks(plan.resources)):
            run.missing += _missing_rows(request, reason, planned=True)
    by_items: dict[str, _Entries] = {}
    for dataset, protocol in plan.protocols:
        by_items.setdefault(f"{dataset.name}/{protocol.items.name}", []).append((dataset, protocol))
    judged = {key: _judge(plan, key, entries, run, cache) for key, entries in by_items.items()}
    _refuse_damaged_files(plan, judged)
    _refuse_unlearnable(plan, by_items, judged)
    slow = _slow_part(plan, judged)
    if slow is not None and announce is not None:
        announce(slow)
    for key, entries in by_items.items():
        # Release the memory: a study may have many judgements.
        one = judged.pop(key)
        if isinstance(one, MissingFileError):
            run.missing += [Missing(protocol=str(protocol), reason=str(one)) for _, protocol in entries]
            continue
        began = time.perf_counter()
        scored = one.score(progress, by_group=_has_mean(entries))
        _note_scored(key, scored, run)
        run.seconds[key] += time.perf_counter() - began
        _evaluate(plan, entries, scored, run, progress, test_groups, keep)
    run.missing += [Missing(column=row.name, title=row.title, reason=reason) for row, reason in plan.left_out.items()]
    if all(cell.value is None for cell in run.cells):
        if run.unscored:
            raise run.unscored[0]
        check_defined(run.cells)
    if not run.cells and run.missing and not any(missing.planned for missing in run.missing):
        raise StudyError(run.missing[0].reason, path=plan.study.path)
    if plan.study.practices and not plan.on_sample:
        run.practices += filter(None, (_practice(plan, *entry, progress, cache=cache) for entry in plan.protocols))
    run.seconds["total"] = time.perf_counter() - started
    return _result(plan, run)


def _has_mean(entries: _Entries) -> bool:
    """True if a protocol uses plain means, which are corpus scores overall and of each group."""
    return any(protocol.statistic.kind == "mean" for _, protocol in entries)


def _judge(plan: Plan, key: str, entries: _Entries, run: _Run, cache: bool) -> Judged | MissingFileError:
    """The judgements of one *dataset/items*, or the error of a missing file."""
    dataset, first = entries[0]
    began = time.perf_counter()
    try:
        judged = judge(dataset, first.items, plan.requests, plan.resources, cache=cache)
    except MissingFileError as error:
        return error
    run.seconds[key] = time.perf_counter() - began
    return judged


def _refuse_damaged_files(plan: Plan, judged: Mapping[str, Judged | MissingFileError]) -> None:
    """Raise the error of a score file that cannot be joined to one of the study's judgements and fits no other."""
    there = [one for one in judged.values() if isinstance(one, Judged)]
    for request in plan.requests:
        of_label = [
            [less for less in one.lacking if less.of_file and less.request.label == request.label] for one in there
        ]
        fits = any(
            {key for less in lacking for key in less.request.score_columns} != set(request.score_columns)
            or any(less.scored and less.scored[""][0] for less in lacking)
            for lacking in of_label
        )
        damaged = [less.error for lacking in of_label for less in lacking if less.damaged]
        if damaged and not fits:
            raise damaged[0]


def _refuse_unlearnable(
    plan: Plan, by_items: Mapping[str, _Entries], judged: Mapping[str, Judged | MissingFileError]
) -> None:
    """Raise errors of combinations that do not depend on scores, such as too many folds."""
    if not plan.combinations:
        return
    from capbench.studies.combine import refuse_unlearnable

    for key, one in judged.items():
        if not isinstance(one, Judged):
            continue
        for _, protocol in by_items[key]:
            # Plain means have no combinations, and a missing human side becomes an entry of the result.
            if protocol.statistic.kind != "mean":
                with contextlib.suppress(MissingFileError):
                    for combination in plan.combinations:
                        refuse_unlearnable(protocol, one.draws[0], combination.settings)


def _slow_part(plan: Plan, judged: Mapping[str, Judged | MissingFileError]) -> SlowPart | None:
    """The slow work of all judgements, if it takes long."""
    works = [one.slow_work() for one in judged.values() if isinstance(one, Judged)]
    labels = tuple(request.label for request in plan.requests if any(request.label in of_items for of_items in works))
    joined = together(work for of_items in works for of_label in of_items.values() for work in of_label)
    return SlowPart(joined, labels) if sum(work.seconds for work in joined) > LONG_S else None


def _result(plan: Plan, run: _Run) -> StudyResult:
    """The result of a run, in the order of the plan, with the published numbers."""
    order = {str(protocol): i for i, (_, protocol) in enumerate(plan.protocols)}
    result = StudyResult(
        capbench=__version__,
        name=plan.study.name,
        title=plan.study.title,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        sample=plan.on_sample,
        protocols=tuple(sorted(run.infos, key=lambda info: order[info.id])),
        columns=_columns(plan, run),
        signatures=run.signatures,
        cells=tuple(sorted(run.cells, key=lambda cell: order[cell.protocol])),
        ceilings=tuple(sorted(run.ceilings, key=lambda ceiling: order[ceiling.protocol])),
        comparisons=tuple(sorted(run.comparisons, key=lambda comparison: order[comparison.protocol])),
        missing=tuple(run.missing),
        seconds={key: round(value, 3) for key, value in run.seconds.items()},
        cached=run.cached,
        answers=tuple(sorted(run.answers, key=lambda found: order[found.protocol])),
        practices=tuple(run.practices),
        sentinels=tuple(sorted(run.sentinels, key=lambda one: order[one.protocol])),
        training=run.training,
    )
    if plan.published is None or plan.on_sample:
        return result
    return join_published(result, plan.published, plan.rows, changed_inputs(plan))


def _practice(
    plan: Plan, dataset: Dataset, protocol: Protocol, progress: ProgressFactory, *, cache: bool
) -> Practice | None:
    """The numbers under another common protocol; None if there is none, or its files or all scores are missing."""
    if dataset.other_practice is None:
        return None
    other, papers = dataset.protocol(dataset.other_practice[0]), dataset.other_practice[1]
    try:
        scored = judge(dataset, other.items, plan.requests, plan.resources, cache=cache).score(progress)
        cells, _ = evaluate(other, scored.draws, scored.tables, plan.rows)
    except MissingFileError:
        return None
    values = {cell.column: cell.value for cell in cells if not cell.group and cell.value is not None}
    if not values:
        return None
    return Practice(
        protocol=str(protocol),
        used_by=protocol.items.source,
        other=str(other),
        other_used_by=papers,
        values=values,
    )


def _columns(plan: Plan, run: _Run) -> dict[str, str]:
    """Titles by row, in the order of the plan; if all data is the user's, best first under the first protocol."""
    titles = {row.name: row.title for row in plan.rows}
    if not run.answers or any(dataset.under_root for dataset, _ in plan.protocols):
        return titles
    order = {str(protocol): i for i, (_, protocol) in enumerate(plan.protocols)}
    first = min(run.answers, key=lambda found: order[found.protocol])
    return {name: titles[name] for name in dict.fromkeys((*first.ranking, *titles))}


def _evaluate(
    plan: Plan,
    entries: _Entries,
    scored: Scored,
    run: _Run,
    progress: ProgressFactory,
    test_groups: bool,
    keep: Keep | None = None,
) -> None:
    """Every statistic of one *dataset/items*, from its scores."""
    draws = scored.draws
    dataset = scored.dataset
    of_groups = {group: group_scores(scored, group, plan.rows) for group in scored.groups}
    for _, protocol in entries:
        try:
            tables, notes = _with_combinations(plan, protocol, scored, run, progress)
            cells, groups = evaluate(protocol, draws, tables, plan.rows)
        except MissingFileError as error:
            run.missing.append(Missing(protocol=str(protocol), reason=str(error)))
            continue
        if keep is not None:
            keep(protocol, scored, tables, plan.rows)
        began = time.perf_counter()
        for group, alone in scored.groups.items():
            cells += [
                cell.model_copy(update={"group": group})
                for cell in evaluate(protocol, alone.draws, alone.tables, plan.rows)[0]
                if not cell.group
            ]
            groups = tuple(name for name in dict.fromkeys((*draws[0].groups, *groups)) if name in {*groups, group})
        overall = {cell.column for cell in cells if not cell.group and cell.value is not None}
        defined = [row for row in plan.rows if row.name in overall]
        answered = plan.study.answers and not dataset.under_root
        bootstrap, tests = plan.study.statistics_of(answered=answered)
        steps = len({cell.group for cell in cells if test_groups or not cell.group})
        with progress(f"statistics of {protocol}", steps) as step:
            assessed = assess(
                protocol,
                draws,
                tables,
                plan.rows,
                cells,
                bootstrap=bootstrap,
                tests=tests,
                ceiling=plan.study.human_ceiling,
                groups=test_groups,
                of_groups=of_groups,
                progress=step,
            )
        if answered and tests is not None:
            found = answer(protocol, draws[0], tables, defined, assessed, tests, _relation(plan, tables, defined))
            run.answers += [] if found is None else [found]
        if plan.study.sentinels and protocol.statistic.kind != "mean":
            from capbench.studies.sentinels import assess_sentinels

            run.sentinels.append(
                assess_sentinels(
                    protocol,
                    draws,
                    common_scores(tables, plan.rows),
                    cells,
                    bootstrap=bootstrap,
                    tests=tests or TestSettings(),
                    groups=test_groups,
                    of_groups=of_groups,
                )
            )
        unscored = unscored_cells(protocol, scored, plan.rows, groups)
        run.unscored += [less.error for less in scored.lacking if less.of_file]
        known = {*groups, *(cell.group for cell in unscored)}
        groups = (*groups, *(name for name in draws[0].groups if name in known and name not in groups))
        cautions = tie_cautions(dataset, protocol, draws, tables, plan.rows, cells)
        if bootstrap is not None or tests is not None:
            run.seconds[str(protocol)] = time.perf_counter() - began
        run.cells += [*assessed.cells, *unscored]
        run.ceilings += assessed.ceilings
        run.comparisons += assessed.comparisons
        run.infos.append(
            ProtocolInfo(
                id=str(protocol),
                dataset=dataset.name,
                dataset_title=dataset.title,
                statistic=protocol.statistic.label,
                kind=protocol.statistic.kind,
                description=f"{protocol.items.description}; {protocol.statistic.description}",
                groups=groups,
                notes=(
                    *dict.fromkeys(note for judgements in draws for note in judgements.notes),
                    *notes,
                    *evaluation.notes(protocol, draws, tables, defined),
                    *assessed.notes,
                    *scored.cautions,
                    *cautions,
                ),
                n_items=min(len(judgements.items) for judgements in draws),
                n_items_whole=scored.whole,
                draws=len(draws),
                bootstrap=assessed.bootstrap,
                version=dataset.version,
                level=protocol.statistic.level,
                file_columns=dict(dataset.file_columns),
            )
        )


def _relation(plan: Plan, tables: Sequence[ScoreTable], rows: Sequence[Row]) -> Callable[[str, str], bool]:
    """A function that is True for the names of two rows of one metric, and if one is computed from the other.

    Columns of a score file are different metrics.
    """
    labels = {row.name: row.key.label for row in rows}
    requests = {request.label: request for request in plan.requests if request.label in labels.values()}
    made_of = {
        label: classes_of(request.make(plan.resources))
        for label, request in requests.items()
        if issubclass(request.metric, CombinedMetric)
    }

    def related(first: str, second: str) -> bool:
        one, other = requests[labels[first]], requests[labels[second]]
        if one.metric is other.metric:
            signatures = tables[0].signatures
            return signatures[one.label] == signatures[other.label] and not one.needs(Scores)
        return one.metric in made_of.get(other.label, ()) or other.metric in made_of.get(one.label, ())

    return related


def _with_combinations(
    plan: Plan, protocol: Protocol, scored: Scored, run: _Run, progress: ProgressFactory
) -> tuple[tuple[ScoreTable, ...], list[str]]:
    """The scores with those of the combinations learned under a protocol, and notes on these."""
    tables, notes = scored.tables, list[str]()
    if not plan.combinations:
        return tables, notes
    from capbench.studies.combine import learn_out_of_fold, with_column

    key = f"{scored.dataset.name}/{protocol.items.name}"
    for combination in plan.combinations:
        row = combination.row
        if reason := _unlearnable(combination, protocol, tables):
            run.missing.append(Missing(protocol=str(protocol), column=row.name, title=row.title, reason=reason))
            continue
        with progress(f"{row.title}, {protocol}", combination.settings.folds) as step:
            learned = learn_out_of_fold(
                protocol, scored.draws, scored.tables, combination.inputs, combination.settings, step
            )
        tables = with_column(tables, row.key, learned.values, learned.signature, combination.inputs)
        notes.append(f"{row.title}: {learned.note}")
        if records := tables[0].trained_on.get(row.key.label):
            known = {(one.label, one.group): one for one in run.training.get(key, ())}
            learned_from = training_overlaps(row.key.label, records, scored.draws)
            known |= {(one.label, one.group): one for one in learned_from}
            run.training[key] = tuple(known.values())
        # Combinations learned from different human sides are different metrics.
        signatures = run.signatures.setdefault(key, {})
        known_signature = signatures.get(row.name)
        name = row.name if known_signature in (None, learned.signature) else f"{row.name} ({protocol.statistic.name})"
        signatures[name] = learned.signature
    return tables, notes


def _unlearnable(combination: PlannedCombination, protocol: Protocol, tables: Sequence[ScoreTable]) -> str:
    """The reason a combination cannot be learned under a protocol; ``""`` if there is none."""
    if protocol.statistic.kind == "mean":
        return f"{protocol} has no human judgements to learn from"
    inputs = [entry.row for entry in combination.inputs]
    lacking = [row.title for row in inputs if not tables or any(row.key not in table.values for table in tables)]
    return f"{protocol}: requires the scores of {', '.join(lacking)}" if lacking else ""


def _note_scored(key: str, scored: Scored, run: _Run) -> None:
    """Record signatures, numbers of cached scores, and missing requests."""
    if scored.signatures:
        run.signatures[key] = scored.signatures
    if scored.training:
        run.training[key] = scored.training
    for label, count in scored.cached.items():
        run.cached[f"{key}|{label}"] = count
    waiting = {missing.column for missing in run.missing if missing.planned}
    for lacking in scored.lacking:
        if lacking.of_file or lacking.request.rows[0].name in waiting:
            continue  # already recorded, for all protocols
        reason, protocol = (str(lacking.error), "") if lacking.input_missing else (f"{key}: {lacking.error}", key)
        run.missing += _missing_rows(lacking.request, reason, protocol=protocol)
    run.missing = list({(missing.protocol, missing.column): missing for missing in run.missing}.values())


def _missing_rows(request: MetricRequest, reason: str, *, planned: bool = False, protocol: str = "") -> list[Missing]:
    """One entry for each column of a metric that cannot be computed."""
    return [
        Missing(
            protocol=protocol,
            column=row.name,
            title=row.title,
            reason=reason,
            planned=planned,
        )
        for row in request.rows
    ]

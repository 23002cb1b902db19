"""Runs a study: score what can be scored, and put the statistics together."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from capbench import __version__
from capbench.datasets.base import Dataset
from capbench.datasets.groups import group_of
from capbench.datasets.protocol import Protocol
from capbench.errors import MissingFeaturesError, MissingFileError, SetupError, StudyError
from capbench.metrics.base import MetricRequest
from capbench.records import Judgements, ScoreTable
from capbench.scoring import covered_groups, score
from capbench.studies.evaluate import evaluate
from capbench.studies.plan import Plan
from capbench.studies.published.joining import ResultRow, join_published
from capbench.studies.results import Ceiling, Cell, Comparisons, Missing, ProtocolInfo, StudyResult
from capbench.studies.uncertainty import assess

__all__ = ["ProgressFactory", "run_plan"]

ProgressFactory = Callable[[str, int | None], AbstractContextManager[Callable[[int], None]]]
"""Makes a progress bar from a description and a number of steps; yields a function of the steps done."""


@dataclass
class _Run:
    """What accumulates while a plan is carried out."""

    cells: list[Cell] = field(default_factory=list)
    ceilings: list[Ceiling] = field(default_factory=list)
    comparisons: list[Comparisons] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    infos: list[ProtocolInfo] = field(default_factory=list)
    signatures: dict[str, dict[str, str]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    cached: dict[str, int] = field(default_factory=dict)


def run_plan(plan: Plan, progress: ProgressFactory, *, cache: bool = True, test_groups: bool = True) -> StudyResult:
    """Carry out a plan.

    Each *dataset/items* is loaded and scored once, however many statistics are asked of it. What is
    missing (a data set's files, a metric's weights) becomes a :class:`Missing` entry.

    Args:
        plan: the plan.
        progress: makes progress bars.
        cache: whether the score cache is used.
        test_groups: False for intervals, tests and ceilings of the overall numbers alone, not of groups.

    Raises:
        StudyError: nothing at all could be computed.
        CapbenchError: a file is damaged, a metric failed, a statistic is undefined.
    """
    started = time.perf_counter()
    run = _Run()
    for request in plan.waiting:
        run.missing += _missing_rows(request, request.lacks(plan.resources) or "", planned=True)
    by_items: dict[tuple[str, str], list[tuple[Dataset, Protocol]]] = {}
    for dataset, protocol in plan.protocols:
        by_items.setdefault((dataset.name, protocol.items.name), []).append((dataset, protocol))
    for (name, items), entries in by_items.items():
        _run_items(plan, f"{name}/{items}", entries, run, progress, cache, test_groups)
    if not run.cells and not plan.waiting and run.missing:
        raise StudyError(run.missing[0].reason, path=plan.study.path)
    order = {str(protocol): i for i, (_, protocol) in enumerate(plan.protocols)}
    run.seconds["total"] = time.perf_counter() - started
    result = StudyResult(
        capbench=__version__,
        name=plan.study.name,
        title=plan.study.title,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        sample=plan.on_sample,
        protocols=tuple(sorted(run.infos, key=lambda info: order[info.id])),
        columns={column: title for _, column, title in plan.order},
        signatures=run.signatures,
        cells=tuple(sorted(run.cells, key=lambda cell: order[cell.protocol])),
        ceilings=tuple(sorted(run.ceilings, key=lambda ceiling: order[ceiling.protocol])),
        comparisons=tuple(sorted(run.comparisons, key=lambda found: order[found.protocol])),
        missing=tuple(run.missing),
        seconds={key: round(value, 3) for key, value in run.seconds.items()},
        cached=run.cached,
    )
    if plan.published is None or plan.on_sample:
        return result
    rows = [ResultRow(column, metric, metric, column, title) for metric, column, title in plan.order]
    return join_published(result, plan.published, rows)


def _run_items(
    plan: Plan,
    key: str,
    entries: list[tuple[Dataset, Protocol]],
    run: _Run,
    progress: ProgressFactory,
    cache: bool,
    test_groups: bool,
) -> None:
    """Load and score one *dataset/items*, and evaluate every statistic that is asked of it."""
    dataset, first = entries[0]
    began = time.perf_counter()
    try:
        draws = dataset.load(first.items)
    except MissingFileError as error:
        run.missing += [Missing(protocol=str(protocol), reason=str(error)) for _, protocol in entries]
        return
    tables, lacking = _score_draws(plan, key, draws, run, progress, cache)
    parts = _score_groups(plan, key, dataset, draws, lacking, run, progress, cache)
    run.seconds[key] = time.perf_counter() - began
    for _, protocol in entries:
        try:
            cells, groups = evaluate(protocol, draws, tables, plan.order)
        except MissingFileError as error:
            run.missing.append(Missing(protocol=str(protocol), reason=str(error)))
            continue
        began = time.perf_counter()
        steps = len({cell.group for cell in cells if test_groups or not cell.group})
        with progress(f"statistics of {protocol}", steps) as step:
            found = assess(
                protocol,
                draws,
                tables,
                cells,
                bootstrap=plan.study.bootstrap,
                tests=plan.study.compare,
                ceiling=plan.study.human_ceiling,
                groups=test_groups,
                progress=step,
            )
        if plan.study.bootstrap is not None or plan.study.compare is not None:
            run.seconds[str(protocol)] = time.perf_counter() - began
        run.cells += found.cells
        for group, (of_group, scored) in parts.items():
            alone, _ = evaluate(protocol, of_group, scored, plan.order)
            sure = assess(protocol, of_group, scored, alone, bootstrap=plan.study.bootstrap, tests=None, ceiling=False)
            run.cells += [cell.model_copy(update={"group": group}) for cell in sure.cells]
            groups = tuple(name for name in draws[0].groups if name in {*groups, group})
        run.ceilings += found.ceilings
        run.comparisons += found.comparisons
        run.infos.append(
            ProtocolInfo(
                id=str(protocol),
                dataset=dataset.name,
                dataset_title=dataset.title,
                statistic=protocol.statistic.label,
                kind=protocol.statistic.kind,
                description=f"{protocol.items.description}; {protocol.statistic.description}",
                groups=groups,
                notes=(*draws[0].notes, *found.notes),
                n_items=len(draws[0].items),
                draws=len(draws),
                bootstrap=found.bootstrap,
            )
        )


def _score_draws(
    plan: Plan,
    key: str,
    draws: Sequence[Judgements],
    run: _Run,
    progress: ProgressFactory,
    cache: bool,
) -> tuple[list[ScoreTable], list[MetricRequest]]:
    """Scores of every draw, and the metrics that could not be computed since images lack features."""
    if not plan.requests:
        return [], []
    # What is not set up, or looks at features that may lack images, is scored apart; the rest goes together, since
    # metrics can share work on a batch.
    apart = [r for r in plan.requests if not r.metric.is_set_up()]
    looking = [r for r in plan.requests if "features" in r.metric.needs and r not in apart]
    together = [r for r in plan.requests if r not in apart and r not in looking]
    resources = plan.resources
    tables: list[ScoreTable] = []
    lacking: dict[str, MetricRequest] = {}
    for judgements in draws:
        label = key + (f" draw {judgements.draw + 1}" if len(draws) > 1 else "")
        found: list[ScoreTable] = []
        with progress(label, len(judgements.items) * len(plan.requests)) as step:
            for requests in filter(None, [together, looking, *([request] for request in apart)]):
                try:
                    table = score(
                        judgements.items, requests, resources, dataset=judgements.dataset, cache=cache, progress=step
                    )
                except SetupError as error:
                    run.missing += _missing_rows(requests[0], str(error))
                    continue
                except MissingFeaturesError as error:
                    for request in requests:
                        run.missing += _missing_rows(request, f"{key}: {error}", protocol=key)
                        lacking[request.metric.name] = request
                    continue
                found.append(table)
        for table in found:
            run.signatures.setdefault(key, {}).update(table.signatures)
            for metric, count in table.cached.items():
                run.cached[f"{key}|{metric}"] = run.cached.get(f"{key}|{metric}", 0) + count
        if found:
            tables.append(_join(found))
    run.missing = list({(m.protocol, m.column): m for m in run.missing}.values())
    return tables, list(lacking.values())


def _score_groups(
    plan: Plan,
    key: str,
    dataset: Dataset,
    draws: Sequence[Judgements],
    requests: Sequence[MetricRequest],
    run: _Run,
    progress: ProgressFactory,
    cache: bool,
) -> dict[str, tuple[list[Judgements], list[ScoreTable]]]:
    """Groups whose images all have features, with their judgements and scores: what can be told of metrics that lack
    features for others."""
    found: dict[str, tuple[list[Judgements], list[ScoreTable]]] = {}
    if not requests or not draws[0].groups:
        return found
    resources = plan.resources
    for group in covered_groups(draws[0].items, resources):
        parts = [group_of(dataset, group).part(judgements) for judgements in draws]
        tables = []
        with progress(f"{key}, {group}", sum(len(part.items) for part in parts) * len(requests)) as step:
            for part in parts:
                tables.append(score(part.items, requests, resources, dataset=part.dataset, cache=cache, progress=step))
                run.signatures.setdefault(key, {}).update(tables[-1].signatures)
        found[group] = parts, tables
    return found


def _join(tables: Sequence[ScoreTable]) -> ScoreTable:
    """Tables of the same items under different metrics as one."""
    return ScoreTable(
        tables[0].dataset,
        tables[0].items,
        dict(pair for table in tables for pair in table.values.items()),
        dict(pair for table in tables for pair in table.corpus.items()),
        dict(pair for table in tables for pair in table.signatures.items()),
        dict(pair for table in tables for pair in table.cached.items()),
        tuple(line for table in tables for line in table.failed),
    )


def _missing_rows(request: MetricRequest, reason: str, *, planned: bool = False, protocol: str = "") -> list[Missing]:
    """One entry for each column of a metric that cannot be computed."""
    return [
        Missing(
            protocol=protocol,
            column=column,
            title=request.metric.titles.get(column, column),
            reason=reason,
            planned=planned,
        )
        for column in request.columns
    ]

"""Runs a study: score what can be scored, and put the statistics together."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

from capbench import __version__
from capbench.datasets.base import Dataset
from capbench.datasets.protocol import Protocol
from capbench.errors import MissingFileError, StudyError
from capbench.metrics.requests import MetricRequest
from capbench.studies.evaluate import evaluate
from capbench.studies.judged import ProgressFactory, Scored, judge
from capbench.studies.plan import Plan
from capbench.studies.published.joining import ResultRow, join_published
from capbench.studies.results import Ceiling, Cell, Comparisons, Missing, ProtocolInfo, StudyResult
from capbench.studies.uncertainty import assess

__all__ = ["run_plan"]


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
    for request in plan.requests:
        if reason := request.lacks(plan.resources):
            run.missing += _missing_rows(request, reason, planned=True)
    by_items: dict[tuple[str, str], list[tuple[Dataset, Protocol]]] = {}
    for dataset, protocol in plan.protocols:
        by_items.setdefault((dataset.name, protocol.items.name), []).append((dataset, protocol))
    for (name, items), entries in by_items.items():
        _run_items(plan, f"{name}/{items}", entries, run, progress, cache, test_groups)
    if not run.cells and run.missing and not any(missing.planned for missing in run.missing):
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
        columns={row.name: row.title for row in plan.rows},
        signatures=run.signatures,
        cells=tuple(sorted(run.cells, key=lambda cell: order[cell.protocol])),
        ceilings=tuple(sorted(run.ceilings, key=lambda ceiling: order[ceiling.protocol])),
        comparisons=tuple(sorted(run.comparisons, key=lambda comparison: order[comparison.protocol])),
        missing=tuple(run.missing),
        seconds={key: round(value, 3) for key, value in run.seconds.items()},
        cached=run.cached,
    )
    if plan.published is None or plan.on_sample:
        return result
    rows = [ResultRow(row.name, row.key.label, row.metric, row.key.column, row.title) for row in plan.rows]
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
        judged = judge(dataset, first.items, plan.requests, plan.resources, cache=cache)
    except MissingFileError as error:
        run.missing += [Missing(protocol=str(protocol), reason=str(error)) for _, protocol in entries]
        return
    scored = judged.score(progress)
    draws = scored.draws
    _note_scored(key, scored, run)
    run.seconds[key] = time.perf_counter() - began
    for _, protocol in entries:
        try:
            cells, groups = evaluate(protocol, draws, scored.tables, plan.rows)
        except MissingFileError as error:
            run.missing.append(Missing(protocol=str(protocol), reason=str(error)))
            continue
        began = time.perf_counter()
        steps = len({cell.group for cell in cells if test_groups or not cell.group})
        with progress(f"statistics of {protocol}", steps) as step:
            assessed = assess(
                protocol,
                draws,
                scored.tables,
                plan.rows,
                cells,
                bootstrap=plan.study.bootstrap,
                tests=plan.study.compare,
                ceiling=plan.study.human_ceiling,
                groups=test_groups,
                progress=step,
            )
        if plan.study.bootstrap is not None or plan.study.compare is not None:
            run.seconds[str(protocol)] = time.perf_counter() - began
        run.cells += assessed.cells
        for group, alone in scored.groups.items():
            of_group, _ = evaluate(protocol, alone.draws, alone.tables, plan.rows)
            sure = assess(
                protocol,
                alone.draws,
                alone.tables,
                plan.rows,
                of_group,
                bootstrap=plan.study.bootstrap,
                tests=None,
                ceiling=False,
            )
            run.cells += [cell.model_copy(update={"group": group}) for cell in sure.cells]
            groups = tuple(name for name in draws[0].groups if name in {*groups, group})
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
                notes=(*draws[0].notes, *assessed.notes),
                n_items=len(draws[0].items),
                draws=len(draws),
                bootstrap=assessed.bootstrap,
            )
        )


def _note_scored(key: str, scored: Scored, run: _Run) -> None:
    """What scoring says beside the scores: signatures, what came from the cache, what is lacking."""
    if scored.signatures:
        run.signatures[key] = scored.signatures
    for label, count in scored.cached.items():
        run.cached[f"{key}|{label}"] = count
    waiting = {missing.column for missing in run.missing if missing.planned}
    for lacking in scored.lacking:
        if lacking.request.rows[0].name in waiting:
            continue  # it was said once, for all protocols
        reason, protocol = (str(lacking.error), "") if lacking.waits else (f"{key}: {lacking.error}", key)
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

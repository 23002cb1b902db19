"""Runs a study: scores everything that can be scored, and computes the numbers of each protocol."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from capbench.core.errors import CapbenchError, MissingFileError
from capbench.core.progress import LONG_S, SlowWork, together
from capbench.core.records import ScoreTable
from capbench.core.training_record import TrainingOverlap
from capbench.datasets.base import Dataset
from capbench.datasets.protocol import Protocol
from capbench.metrics.abilities import ReferenceSweep
from capbench.metrics.base import CombinedMetric, classes_of
from capbench.metrics.metric_request import MetricRequest, Row
from capbench.metrics.needs import Scores
from capbench.studies.evaluate import check_defined
from capbench.studies.numbers import protocol_numbers, study_result
from capbench.studies.plan import Plan, changed_inputs
from capbench.studies.published.differences import join_published
from capbench.studies.results import OTHER_NUMBERS, Missing, Point, Ranked, StudyResult
from capbench.studies.scoring import ProgressFactory, Scorable, Scored, load_scorable
from capbench.studies.uncertainty import Numbers


@dataclass(frozen=True)
class SlowPart:
    """Slow work of a study, known before it begins."""

    works: tuple[SlowWork, ...]  # with each unit once in the whole study
    labels: tuple[str, ...]  # the requests that require it

    def in_words(self) -> str:
        """The work in one line."""
        return "; ".join(f"{work.subject} {len(work.units):,} {work.unit} first" for work in self.works)


Keep = Callable[[Protocol, Scored, Sequence[Row]], None]
"""Called with the data behind the numbers of a protocol: judgements with scores, and rows."""


def run_plan(
    plan: Plan,
    progress: ProgressFactory,
    *,
    cache: bool = True,
    test_groups: bool = True,  # False for intervals, tests and ceilings of the overall numbers only, not of groups
    # called before scoring if there is slow work of more than half a minute
    announce: Callable[[SlowPart], None] | None = None,
    keep: Keep | None = None,
    extend: Callable[[Scored], Scored] = lambda scored: scored,  # adds the scores of rows that no request computes
) -> StudyResult:
    """Run a plan: each *dataset/items* is scored once, and missing requirements become :class:`Missing` entries."""
    started = time.perf_counter()
    made, missing = list[Numbers](), list[Missing]()
    signatures, cached = dict[str, dict[str, str]](), dict[str, int]()
    training: dict[str, tuple[TrainingOverlap, ...]] = {}
    has_images = any(dataset.judges_images for dataset, _ in plan.protocols)
    for request in plan.requests:
        # Without images on any data set, the reason is not a missing input.
        if (has_images or not request.requires_images()) and (reason := request.lacks(plan.resources)):
            missing += missing_rows(request, reason, planned=True)
    by_items: dict[str, list[Protocol]] = {}
    datasets: dict[str, Dataset] = {}
    for dataset, protocol in plan.protocols:
        key = f"{dataset.name}/{protocol.items.name}"
        by_items.setdefault(key, []).append(protocol)
        datasets[key] = dataset
    loaded: dict[str, Scorable] = {}
    failures: list[CapbenchError] = []
    for key, protocols in by_items.items():
        try:
            loaded[key] = load_scorable(datasets[key], protocols[0].items, plan.requests, plan.resources, cache=cache)
        except MissingFileError as error:
            missing += [Missing(protocol=str(protocol), reason=str(error)) for protocol in protocols]
            failures.append(error)
    _refuse_damaged_files(plan, list(loaded.values()))
    sweeps, points = dict[str, ReferenceSweep](), list[Point]()
    if (curves := plan.study.curves) is not None:
        from capbench.studies.references import reference_curves, reference_sweep

        sweeps = {key: reference_sweep(scorable, curves) for key, scorable in loaded.items()}
    works = [scorable.slow_work() for scorable in loaded.values()] if announce is not None else []
    slow = together(work for of_items in works for of_label in of_items.values() for work in of_label)
    if announce is not None and sum(work.seconds for work in slow) > LONG_S:
        labels = tuple(r.label for r in plan.requests if any(r.label in of_items for of_items in works))
        announce(SlowPart(slow, labels))
    unscored: list[CapbenchError] = []
    for key in list(loaded):
        protocols = by_items[key]
        # Plain means are corpus scores overall and of each group. A study may have many judgements: release the memory.
        by_group = any(protocol.statistic.kind == "mean" for protocol in protocols)
        scorable = loaded.pop(key)
        scored, curve_notes = extend(scorable.score(progress, by_group=by_group)), list[str]()
        if key in sweeps:
            of_items, curve_notes = reference_curves(scorable, protocols, sweeps.pop(key), progress)
            points += of_items
        signatures |= {key: scored.signatures} if scored.signatures else {}
        training |= {key: scored.training} if scored.training else {}
        cached |= {f"{key}|{label}": count for label, count in scored.cached.items()}
        missing = _with_unscored(missing, key, scored)
        unscored += [unmet.error for unmet in scored.unscored if unmet.of_file]
        failures += [unmet.error for unmet in scored.unscored]
        for protocol in protocols:
            try:
                notes = curve_notes[:]
                if (other := datasets[key].other_practice) and plan.study.practices and not plan.on_sample:
                    notes.append(f"{other[1]} use {other[0]}{OTHER_NUMBERS}")
                numbers = protocol_numbers(
                    plan.study,
                    protocol,
                    scored,
                    plan.rows,
                    progress,
                    related=_relation(plan, scored.tables),
                    notes=notes,
                    test_groups=test_groups and not plan.study.all_protocols,
                )
            except MissingFileError as error:
                missing.append(Missing(protocol=str(protocol), reason=str(error)))
                failures.append(error)
                continue
            made.append(numbers)
            if keep is not None:
                keep(protocol, scored, plan.rows)
    missing += [Missing(column=row.name, title=row.title, reason=reason) for row, reason in plan.left_out.items()]
    cells = [cell for numbers in made for cell in numbers.cells]
    if all(cell.value is None for cell in cells):
        if unscored:
            raise unscored[0]
        check_defined(cells)
    if not cells and failures and not any(entry.planned for entry in missing):
        raise failures[0]
    titles = {row.name: row.title for row in plan.rows}
    answers = [found for numbers in made for found in numbers.answers]
    if answers and not plan.uses_root:  # all data is the user's: best first under the first protocol
        titles = {name: titles[name] for name in dict.fromkeys((*answers[0].ranking, *titles))}
    order = [str(protocol) for _, protocol in plan.protocols]
    made.sort(key=lambda numbers: order.index(numbers.info.id))
    ranked: list[Ranked] = []
    if plan.study.all_protocols:
        from capbench.studies.all_protocols import rankings

        ranked = rankings((dataset for dataset, _ in plan.protocols), (cell for part in made for cell in part.cells))
    result = study_result(
        plan.study,
        made,
        titles,
        sample=plan.on_sample,
        signatures=signatures,
        missing=tuple(missing),
        seconds={"total": round(time.perf_counter() - started, 3)},
        cached=cached,
        training=training,
        curves=plan.study.curves,
        points=tuple(points),
        rankings=tuple(ranked),
    )
    if plan.published is None or plan.on_sample:
        return result
    return join_published(result, plan.published, plan.rows, changed_inputs(plan))


def _refuse_damaged_files(plan: Plan, loaded: Sequence[Scorable]) -> None:
    """Raise the error of a score file that cannot be joined to one of the study's judgements and fits no other."""
    for request in plan.requests:
        of_label = [
            [entry for entry in scorable.unscored if entry.of_file and entry.request.label == request.label]
            for scorable in loaded
        ]
        fits = any(
            {key for entry in unmet for key in entry.request.score_columns} != set(request.score_columns)
            or any(entry.scored and entry.scored[""][0] for entry in unmet)
            for unmet in of_label
        )
        damaged = [entry.error for unmet in of_label for entry in unmet if entry.damaged]
        if damaged and not fits:
            raise damaged[0]


def _relation(plan: Plan, tables: Sequence[ScoreTable]) -> Callable[[str, str], bool]:
    """A function that is True for the names of two rows of one metric, and if one is computed from the other."""

    def related(first: str, second: str) -> bool:
        labels = {row.name: row.key.label for row in plan.rows}
        requests = {request.label: request for request in plan.requests}
        request, compared = requests[labels[first]], requests[labels[second]]
        if request.metric is compared.metric:
            signatures = tables[0].signatures
            return signatures[request.label] == signatures[compared.label] and not request.needs(Scores)
        pairs = [(request, compared), (compared, request)]
        combined = [(part, request) for part, request in pairs if issubclass(request.metric, CombinedMetric)]
        return any(part.metric in classes_of(request.make(plan.resources)) for part, request in combined)

    return related


def _with_unscored(missing: list[Missing], key: str, scored: Scored) -> list[Missing]:
    """With the requests that could not be scored on *dataset/items*; those of files have cells with the reason."""
    waiting = {entry.column for entry in missing if entry.planned}
    for unmet in scored.unscored:
        if unmet.of_file or unmet.request.rows[0].name in waiting:
            continue  # already recorded, for all protocols
        reason, protocol = (str(unmet.error), "") if unmet.input_missing else (f"{key}: {unmet.error}", key)
        missing = [*missing, *missing_rows(unmet.request, reason, protocol=protocol)]
    return list({(entry.protocol, entry.column): entry for entry in missing}.values())


def missing_rows(request: MetricRequest, reason: str, *, planned: bool = False, protocol: str = "") -> list[Missing]:
    """The rows of a request that cannot be computed."""
    return [
        Missing(protocol=protocol, column=row.name, title=row.title, reason=reason, planned=planned)
        for row in request.rows
    ]

"""Loads judgements, checks the requirements of metrics before any computation, and scores: shared by all commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from capbench.core.errors import CapbenchError, DataError, MetricError, ProtocolError, SetupError
from capbench.core.progress import SlowWork
from capbench.core.records import Item, Judgements, ScoreTable
from capbench.core.training_record import TrainingOverlap, overlap_lines, training_overlap
from capbench.datasets.base import Dataset
from capbench.datasets.images import image_groups
from capbench.datasets.opening import group_of, spelled
from capbench.datasets.protocol import ItemSelection, Protocol
from capbench.datasets.user.caption_warnings import damaged_captions
from capbench.metrics.from_file import by_completeness
from capbench.metrics.metric_request import MetricRequest, Row
from capbench.metrics.needs import Resources, Scores, unmet_needs
from capbench.metrics.score_joining import Join
from capbench.metrics.scoring import score, slow_work
from capbench.studies.score_files import Incomplete, Joins, common_items, join_draws, joined_note

ProgressFactory = Callable[[str, int | None], AbstractContextManager[Callable[[int], None]]]
"""Makes a progress bar from a description and a number of steps; yields a function of the steps done, which may
distinguish kinds of work (:class:`capbench.core.progress.Display`)."""


def no_progress(description: str, steps: int | None) -> AbstractContextManager[Callable[[int], None]]:
    """A progress factory that shows nothing."""
    return nullcontext(lambda _: None)


@dataclass(frozen=True)
class Unscored:
    """A request that cannot be scored on all items, and the reason."""

    request: MetricRequest
    error: CapbenchError  # of a command that requires it
    input_missing: bool = False  # whether an input of the request is missing, whatever the items
    groups: tuple[str, ...] = ()  # of the items, that it can be scored on
    of_file: bool = False  # whether it is columns of a score file in which these items have no score
    # Numbers of items with a score (of the draw of references with the fewest) and of all items, of columns of a file:
    # overall ("") and by group.
    scored: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    damaged: bool = False  # whether the file cannot be joined to these items: two scores of one item, say

    def in_words(self, group: str = "") -> str:
        """Text in the place of a number, overall or of a group: ``scores for 4 of 11,985``."""
        return "scores for {:,} of {:,}".format(*self.scored[group]) if group in self.scored else "no scores"

    def as_incomplete(self) -> Incomplete:
        """The same for commands, with the reason."""
        return Incomplete(self.in_words(), str(self.error))


@dataclass(frozen=True, eq=False)
class Scored:
    """Judgements with scores."""

    dataset: Dataset
    draws: tuple[Judgements, ...]  # its judgements under one selection of items, one for each draw of references
    # scores of the requests that cover all items, one table for each draw; empty if there are none
    tables: tuple[ScoreTable, ...]
    groups: Mapping[str, Scored] = field(default_factory=dict)  # scores of the other requests that cover a group
    unscored: tuple[Unscored, ...] = ()  # the requests that could not be scored on all items
    items_before: int | None = None  # of one draw, if those without scores were left out

    def complete(self, rows: Sequence[Row], at_least: int = 1) -> list[Row]:
        """The rows that are scored on all items; raises the error of an incomplete score file if there are too few."""
        complete = [row for row in rows if self.tables and row.key in self.tables[0].values]
        if len(complete) < min(at_least, len(rows)):
            raise self.unscored[0].error
        return complete

    @property
    def incomplete(self) -> dict[str, Incomplete]:
        """By title, rows without a number and the reason: columns of incomplete score files."""
        of_files = [entry for entry in self.unscored if entry.of_file]
        return {row.title: entry.as_incomplete() for entry in of_files for row in entry.request.rows}

    @property
    def all_tables(self) -> tuple[ScoreTable, ...]:
        """The tables of all items and of groups."""
        return (*self.tables, *(table for group in self.groups.values() for table in group.tables))

    @property
    def signatures(self) -> dict[str, str]:
        """One line for each label, of the first draw; draws differ only in their documents."""
        lines: dict[str, str] = {}
        for table in self.all_tables:
            lines |= {label: line for label, line in table.signatures.items() if label not in lines}
        return lines

    @property
    def cached(self) -> dict[str, int]:
        """By label, the number of scores from the cache, over all draws and groups."""
        counts: dict[str, int] = {}
        for table in self.all_tables:
            counts |= {label: counts.get(label, 0) + count for label, count in table.cached.items()}
        return counts

    @property
    def cautions(self) -> tuple[str, ...]:
        """Warnings of metrics about their scores and training data, each line once, after its label."""
        lines = [f"{label}: {line}" for table in self.all_tables for label, of in table.cautions.items() for line in of]
        return tuple(dict.fromkeys([*lines, *overlap_lines(self.training)]))

    @cached_property
    def training(self) -> tuple[TrainingOverlap, ...]:
        """Overlap of the judged items, and of their groups, with the training data of each trained metric."""
        overlaps: list[TrainingOverlap] = []
        for part in (self, *self.groups.values()):
            # Records are those of the metrics, whatever the draw.
            for label, records in (part.tables[0].trained_on if part.tables else {}).items():
                items = [item for judgements in part.draws for item in judgements.items]
                overlaps.append(training_overlap(label, records, items))
                for group in part.draws[0].groups if overlaps[-1].has_read else ():
                    of_group = [item for item in items if item.group == group]
                    overlaps.append(training_overlap(label, records, of_group, group))
        return tuple({(overlap.label, overlap.group): overlap for overlap in overlaps}.values())


@dataclass(frozen=True, eq=False)
class Scorable:
    """Judgements, and the requests that can be scored on them. Made by :func:`load_scorable`."""

    dataset: Dataset
    selection: ItemSelection  # the items and their references
    draws: tuple[Judgements, ...]  # the judgements, one for each draw of references
    requests: tuple[MetricRequest, ...]  # requests that can be scored on all items
    unscored: tuple[Unscored, ...]  # the others
    resources: Resources  # features, weights and images for the metrics
    cache: bool = True  # True to use the score cache
    items_before: int | None = None  # of one draw, if those without scores were left out

    def require_all(self) -> Scorable:
        """Itself, if every request can be scored on all items, except incomplete columns of score files."""
        for unscored in self.unscored:
            if not unscored.of_file or unscored.damaged or not self.requests:
                raise unscored.error
        return self

    def slow_work(self) -> dict[str, tuple[SlowWork, ...]]:
        """By label, the slow work that :meth:`score` would start with; labels without any are left out."""
        works: dict[str, tuple[SlowWork, ...]] = {}
        for draw in self.draws:
            found = slow_work(draw.items, self.requests, self.resources, cache=self.cache, documents=draw.documents)
            for label, of_label in found.items():
                works[label] = (*works.get(label, ()), *of_label)
        return works

    def score(self, progress: ProgressFactory = no_progress, *, by_group: bool = False) -> Scored:
        """Score every draw, and single groups for requests that do not cover all items."""
        tables = self._tables(self.draws, self.requests, "", progress, by_group)
        groups: dict[str, Scored] = {}
        for group in self.draws[0].groups:
            if requests := [entry.request for entry in self.unscored if group in entry.groups]:
                draws = tuple(group_of(self.dataset, group).part(judgements) for judgements in self.draws)
                of_group = self._tables(draws, requests, f", {group}", progress, by_group)
                groups[group] = Scored(self.dataset, draws, of_group)
        return Scored(self.dataset, self.draws, tables, groups, self.unscored, self.items_before)

    def _tables(
        self,
        draws: Sequence[Judgements],
        requests: Sequence[MetricRequest],
        group: str,
        progress: ProgressFactory,
        by_group: bool,
    ) -> tuple[ScoreTable, ...]:
        tables: list[ScoreTable] = []
        for judgements in draws if requests else ():
            name = f"{self.dataset.name}/{self.selection.name}{group}"
            label = name + (f" draw {judgements.draw + 1}" if len(draws) > 1 else "")
            with progress(label, len(judgements.items) * len(requests)) as step:
                table = score(
                    judgements.items,
                    requests,
                    self.resources,
                    dataset=judgements.dataset,
                    cache=self.cache,
                    progress=step,
                    by_group=by_group,
                    documents=judgements.documents,
                )
            if (reverse := judgements.reverse) is not None:
                both = {key: (values + values[reverse]) / 2 for key, values in table.values.items()}
                table = replace(table, values=both)
            tables.append(table)
        return tuple(tables)


def load_scorable(
    dataset: Dataset,
    selection: ItemSelection,
    requests: Sequence[MetricRequest],
    resources: Resources | None = None,
    *,
    cache: bool = True,
) -> Scorable:
    """Load judgements, and decide which requests can be scored on all of their items, and which on some groups."""
    resources = with_pictures_of(dataset, resources or Resources())
    draws = tuple(dataset.load(selection))
    scorable: list[MetricRequest] = []
    unscored: list[Unscored] = []
    joins: Joins = {}
    for request in requests:
        if request.needs(Scores):
            try:
                joins[request.label] = join_draws(request, draws)
            except DataError as error:
                unscored.append(Unscored(request, error, of_file=True, damaged=True))
    requests = [request for request in requests if request.label in joins or not request.needs(Scores)]
    items_before: int | None = min(len(judgements.items) for judgements in draws)
    nothing_left: DataError | None = None
    if resources.allow_missing:
        try:
            draws, joins = common_items(dataset, selection, draws, requests, joins)
        except DataError as error:
            nothing_left = error
    for request in requests:
        found = _unmet(dataset, selection, draws, request, resources, cache)
        if found is not None:
            unscored.append(found)
        elif request.label in joins:
            for part, joined in by_completeness(request, joins[request.label]):
                columns = _unscored_columns(dataset, selection, part, joined, nothing_left)
                unscored += [] if columns is None else [columns]
                scorable += [part] if columns is None else []
        else:
            scorable.append(request)
    notes = [joined_note(joined) for joined in joins.values() if joined and not joined[0].is_empty]
    notes += [] if dataset.under_root else damaged_captions(draws[0].items)  # a user's own file
    draws = tuple(replace(judgements, notes=(*judgements.notes, *notes)) for judgements in draws)
    if min(len(judgements.items) for judgements in draws) == items_before:
        items_before = None
    return Scorable(dataset, selection, draws, tuple(scorable), tuple(unscored), resources, cache, items_before)


def refuse_means(protocol: Protocol) -> None:
    """Raise ProtocolError if a protocol's statistic is a plain mean."""
    if protocol.statistic.kind == "mean":
        message = f"{protocol} has no human judgements to compare metrics on"
        raise ProtocolError(message, code="unsupported", value=str(protocol))


def with_pictures_of(dataset: Dataset, resources: Resources) -> Resources:
    """Resources that know all images of the data set and find their pictures in its image folders, unless set."""
    if resources.image_groups is None:
        resources = replace(resources, image_groups=image_groups(dataset))
    if resources.pictures is not None:
        return resources
    from capbench.datasets.images import image_finder

    folder = None if resources.images is None else Path(resources.images)
    return replace(resources, pictures=image_finder(dataset.root, folder, dataset))


def _unscored_columns(
    dataset: Dataset,
    selection: ItemSelection,
    request: MetricRequest,
    joins: Sequence[Join],
    nothing_left: DataError | None,
) -> Unscored | None:
    """A score file's columns if items have no score, with the groups that are complete; None if all have one."""
    worst = max(joins, key=lambda joined: len(joined.missing))
    first = next((joined for joined in joins if len(joined.missing)), worst)
    error = first.complaint(f"{dataset.name}/{selection.name}")
    if error is None:
        return None
    scored = {"": (worst.scored, len(worst.items))}
    for group in dict.fromkeys(item.group for item in worst.items if item.group):
        counts = [joined.scored_of(group) for joined in joins]
        scored[group] = min(counts, key=lambda count: count[0] - count[1])
    groups = tuple(group for group, (count, total) in scored.items() if group and count == total)
    return Unscored(request, nothing_left or error, groups=groups, of_file=True, scored=scored)


def _unmet(
    dataset: Dataset,
    selection: ItemSelection,
    draws: Sequence[Judgements],
    request: MetricRequest,
    resources: Resources,
    cache: bool,
) -> Unscored | None:
    """A request that lacks an input, or something of an item, with the groups that have it; None if it lacks none."""
    inapplicable = imageless(dataset, request)
    if inapplicable is not None:
        return Unscored(request, inapplicable)
    missing, items = request.missing(resources), draws[0].items
    if unmet := unmet_needs(request.label, missing):
        return Unscored(request, unmet, input_missing=True)
    without = sum(not item.references for item in items)
    if without and not request.metric.reference_free().issuperset(request.columns):
        others = dataset.with_references
        hint = "Choose a metric or column that works without references ('capbench metrics NAME' shows this)"
        hint = f"{hint}, or the items with references: -d {dataset.name} -p {others}" if others else hint
        where = f"{dataset.name}{f'/{selection.name}' if others else ''}"
        message = f"{request.label} requires references, and {without:,} of {len(items):,} items of {where} have none"
        return Unscored(request, MetricError(message, code="missing-references", value=request.label, hint=hint))
    if error := request.unmet_by(items, resources):
        by_group: dict[str, list[Item]] = {}
        for item in items:
            by_group.setdefault(item.group, []).append(item)
        groups = tuple(g for g, of_group in by_group.items() if g and request.unmet_by(of_group, resources) is None)
        if groups:
            names = " or ".join(f"{dataset.name}@{spelled(group)}" for group in groups)
            complete = f"group{'s' * bool(groups[1:])} {', '.join(groups)} {'lack' if groups[1:] else 'lacks'} nothing"
            error.hint = f"{error.hint}; {complete}: request {names}"
        return Unscored(request, error, groups=groups)
    # Slow work may require something that is missing (SPICE's parser).
    for judgements in draws if missing else ():
        for work in slow_work(judgements.items, [request], resources, cache=cache).get(request.label, ()):
            message = f"{work.unit} require {' and '.join(reason for _, reason in missing)}"
            setup = SetupError(message, code=missing[0][0].code, value=request.label)
            return Unscored(request, setup, input_missing=True)
    return None


def imageless(dataset: Dataset | type[Dataset], request: MetricRequest) -> MetricError | None:
    """The error for a request that requires images on a data set without any; None if it applies."""
    if dataset.judges_images or not request.requires_images():
        return None
    message = f"{request.label} requires images, and {dataset.name} rates captions against captions, without an image"
    return MetricError(message, code="unsupported", value=request.label, hint="Choose a metric that compares texts")

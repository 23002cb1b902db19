"""Loads judgements, checks the requirements of metrics, and scores: shared by all commands.

Requirements are checked before any computation starts: requests with unmet needs, and requests whose features cover
only some groups of the data set. All covered items are scored once, and :mod:`capbench.studies.evaluate` computes all
numbers from these scores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from capbench.core.errors import (
    CapbenchError,
    DataError,
    MetricError,
    ProtocolError,
    SetupError,
)
from capbench.core.progress import SlowWork
from capbench.core.records import Item, Judgements, ScoreColumn, ScoreTable
from capbench.core.training_record import TrainingOverlap, TrainingRecord, overlap_lines, training_overlap
from capbench.datasets.base import Dataset
from capbench.datasets.images import image_groups
from capbench.datasets.opening import group_of, keep_items, spelled
from capbench.datasets.protocol import ItemSelection, Protocol
from capbench.datasets.user.caption_warnings import damaged_captions
from capbench.metrics.from_file import by_completeness, stored_join
from capbench.metrics.metric_request import MetricRequest, Row
from capbench.metrics.needs import Resources, Scores, unmet_needs
from capbench.metrics.score_joining import Join
from capbench.metrics.scoring import score, slow_work

# Items that have a score in every score file (--allow-missing).

Joins = dict[str, list[Join]]
"""By label, a score file joined to the items of each draw."""


@dataclass(frozen=True)
class Incomplete:
    """A column of a score file without a number, since items have no score.

    Attributes:
        instead: text in the place of the number: ``scores for 4 of 11,985``.
        reason: what is missing, and what to do.
    """

    instead: str
    reason: str

    def __str__(self) -> str:
        return f"{self.instead}: {self.reason}"


def join_draws(request: MetricRequest, draws: Sequence[Judgements]) -> list[Join]:
    """A score file joined to the items of each draw of references.

    A file may contain scores for all draws, so a row is strange, or has other references, only if it belongs to no
    draw.

    Raises:
        DataError: an item has two different scores, or a row matches two items.
    """
    joins = [stored_join(request, judgements.items) for judgements in draws]
    if len(joins) == 1:
        return joins
    unused = set.intersection(*({*joined.strange, *joined.other_references} for joined in joins))
    other_references = {row for joined in joins for row in joined.other_references if row in unused}
    strange = tuple(sorted(unused - other_references))
    return [
        replace(joined, strange=strange, other_references=tuple(sorted(other_references)), draw=(number, len(joins)))
        for number, joined in enumerate(joins, 1)
    ]


def joined_note(joins: Sequence[Join]) -> str:
    """Summary of a join in one line: of all draws if they are alike, else of the first."""
    line = joins[0].note()
    if len(joins) > 1 and all(joined.ways == joins[0].ways for joined in joins):
        return line.replace(f" (draw 1 of {len(joins)})", f" in each of {len(joins)} draws", 1)
    return line


def items_with_scores(
    items: Sequence[Item], requests: Sequence[MetricRequest], name: str, *, allow_missing: bool = False
) -> tuple[tuple[Item, ...], tuple[MetricRequest, ...], dict[ScoreColumn, Incomplete], list[str]]:
    """The scorable part of a user's own captions, where score files may be incomplete.

    Args:
        items: all items.
        requests: the metrics, score files among them.
        name: description of the items.
        allow_missing: True to leave out items without a score, for all metrics.

    Returns:
        the items, the requests without incomplete columns, the incomplete columns, and notes.

    Raises:
        DataError: an item has two scores in a file; or no request, or no item, remains.
    """
    joins = {request.label: stored_join(request, items) for request in requests if request.needs(Scores)}
    notes = [joined.note() for joined in joins.values()]
    lacking = sorted({place for joined in joins.values() for place in joined.missing.tolist()})
    if allow_missing and lacking:
        if len(lacking) == len(items):
            raise next(error for joined in joins.values() if (error := joined.complaint(words=name)) is not None)
        kept = np.setdiff1d(np.arange(len(items)), lacking).tolist()
        notes.append(f"{len(kept):,} of {len(items):,} captions remain, for all metrics (--allow-missing)")
        return tuple(items[place] for place in kept), tuple(requests), {}, notes
    complete: list[MetricRequest] = []
    incomplete: dict[ScoreColumn, Incomplete] = {}
    errors: list[DataError] = []
    for request in requests:
        parts = by_completeness(request, [joins[request.label]]) if request.label in joins else [(request, [])]
        for part, joined in parts:
            error = joined[0].complaint(words=name) if joined else None
            if error is None:
                complete.append(part)
                continue
            errors.append(error)
            less = Incomplete(f"scores for {joined[0].scored:,} of {len(items):,}", str(error))
            incomplete |= dict.fromkeys(part.score_columns, less)
    if errors and not complete:
        raise errors[0]
    return tuple(items), tuple(complete), incomplete, notes


def common_items(
    dataset: Dataset,
    selection: ItemSelection,
    draws: tuple[Judgements, ...],
    requests: Sequence[MetricRequest],
    joins: Joins,
) -> tuple[tuple[Judgements, ...], Joins]:
    """The judgements of the items with a score in every file; a file without any belongs to another data set.

    If the draws have the same candidates, an item without a score in one draw is left out of all of them.
    """
    here = [joined for joined in joins.values() if not all(one.is_empty for one in joined)]
    alike = len({tuple((item.image, item.candidate) for item in judgements.items) for judgements in draws}) == 1

    def missing(joined: Sequence[Join], place: int) -> set[int]:
        return {item for one in (joined if alike else [joined[place]]) for item in one.missing.tolist()}

    def of_emptied_draw(total: int) -> str:
        for place in range(len(draws)):
            if len({item for joined in here for item in joined[place].missing.tolist()}) == total:
                return f" (draw {place + 1} of {len(draws)})" if len(draws) > 1 else ""
        return ""

    kept_draws = []
    for place, judgements in enumerate(draws):
        lacking = {item for joined in here for item in missing(joined, place)}
        if judgements.reverse is not None:  # a pair needs the scores of both directions
            lacking |= set(judgements.reverse[sorted(lacking)].tolist())
        if not lacking:
            kept_draws.append(judgements)
            continue
        total = len(judgements.items)
        if len(lacking) == total:
            files = ", ".join(joined[place].file.path.name for joined in here)
            raise DataError(
                f"no item of {dataset.name}/{selection.name}{of_emptied_draw(total)} has a score in "
                f"{'each of ' if len(here) > 1 else ''}{files}",
                code="missing-scores",
                hint="Choose files that share items, or a single one"
                if len(here) > 1
                else f"'capbench data items {dataset.name}/{selection.name}' writes the items of all draws",
            )
        counts = ((len(missing(joined, place)), joined[place].file.path.name) for joined in here)
        by_file = " and ".join(
            f"{count:,} {'has' if count == 1 else 'have'} no score in {name}" for count, name in counts if count
        )
        note = f"{total - len(lacking):,} of {total:,} items remain, for all metrics: {by_file} (--allow-missing)"
        places = np.setdiff1d(np.arange(total), sorted(lacking))
        kept_draws.append(keep_items(judgements, places, f"{dataset.title}, items with scores", [note]))
    by_label = {request.label: request for request in requests}
    # Rows of items that were left out are not strange.
    return tuple(kept_draws), {
        label: [
            replace(
                stored_join(by_label[label], judgements.items),
                strange=before.strange,
                other_references=before.other_references,
                unclear=before.unclear,
                draw=before.draw,
            )
            for judgements, before in zip(kept_draws, joins[label], strict=True)
        ]
        for label in joins
    }


ProgressFactory = Callable[[str, int | None], AbstractContextManager[Callable[[int], None]]]
"""Makes a progress bar from a description and a number of steps; yields a function of the steps done, which may
distinguish kinds of work (:class:`capbench.core.progress.Parts`)."""


def no_progress(description: str, steps: int | None) -> AbstractContextManager[Callable[[int], None]]:
    """A progress factory that shows nothing."""
    return nullcontext(lambda _: None)


@dataclass(frozen=True)
class Lacking:
    """A request that cannot be scored on all items, and the reason.

    Attributes:
        request: the request.
        error: the error of a command that requires it.
        input_missing: True if an input of the request is missing, whatever the items; False if some items cannot be
            scored.
        groups: groups of the items that it can be scored on.
        of_file: True for columns of a score file in which these items have no score.
        scored: numbers of items with a score (of the draw of references with the fewest) and of all items: overall
            (``""``) and by group; empty for other requests.
        damaged: True if the file cannot be joined to these items: two scores of one item, a row of two items.
    """

    request: MetricRequest
    error: CapbenchError
    input_missing: bool
    groups: tuple[str, ...] = ()
    of_file: bool = False
    scored: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    damaged: bool = False

    def in_words(self, group: str = "") -> str:
        """Text in the place of a number, overall or of a group: ``scores for 4 of 11,985``."""
        if group not in self.scored:
            return "no scores"
        scored, total = self.scored[group]
        return f"scores for {scored:,} of {total:,}"

    def as_incomplete(self) -> Incomplete:
        """The same for commands, with the reason."""
        return Incomplete(self.in_words(), str(self.error))


@dataclass(frozen=True, eq=False)
class ScoredGroup:
    """One group of the items, scored separately for requests that cannot be scored on all.

    Attributes:
        draws: the group's judgements, one for each draw.
        tables: their scores, in the same order.
    """

    draws: tuple[Judgements, ...]
    tables: tuple[ScoreTable, ...]


def training_overlaps(
    label: str, records: Sequence[TrainingRecord], draws: Sequence[Judgements]
) -> list[TrainingOverlap]:
    """Overlap of the items of all draws with training data; of each group, too, if judged captions were read.

    Args:
        label: the metric's label.
        records: the training records of its files.
        draws: the judgements.
    """
    items = [item for judgements in draws for item in judgements.items]
    overlaps = [training_overlap(label, records, items)]
    for group in draws[0].groups if overlaps[0].has_read else ():
        overlaps.append(training_overlap(label, records, [item for item in items if item.group == group], group))
    return overlaps


@dataclass(frozen=True, eq=False)
class Scored:
    """Judgements with scores.

    Attributes:
        dataset: the data set.
        draws: its judgements under one selection of items, one for each draw of references.
        tables: scores of the requests that cover all items, one table for each draw; empty if there are none.
        groups: by group, scores of the other requests that cover it.
        lacking: the requests that could not be scored on all items.
        whole: number of items of one draw before those without scores were left out; None if none were.
    """

    dataset: Dataset
    draws: tuple[Judgements, ...]
    tables: tuple[ScoreTable, ...]
    groups: Mapping[str, ScoredGroup] = field(default_factory=dict)
    lacking: tuple[Lacking, ...] = ()
    whole: int | None = None

    def require_all(self) -> Scored:
        """Itself, if every request is scored on all items, except incomplete columns of score files.

        Raises the error of the first other request.
        """
        _raise_first(self.lacking, any_scored=bool(self.tables))
        return self

    def complete(self, rows: Sequence[Row], at_least: int = 1) -> list[Row]:
        """The rows that are scored on all items; the others are in :attr:`incomplete`.

        Args:
            rows: rows of the requests.
            at_least: minimum number of rows.

        Raises:
            CapbenchError: fewer remain, since a score file is incomplete.
        """
        complete = [row for row in rows if self.tables and row.key in self.tables[0].values]
        if len(complete) < min(at_least, len(rows)):
            _raise_first(self.lacking, any_scored=False)
        return complete

    def incomplete(self, rows: Sequence[Row]) -> dict[str, Incomplete]:
        """By title, rows without a number and the reason: columns of incomplete score files."""
        by_key = {row.key: row.title for row in rows}
        return {
            by_key[key]: lacking.as_incomplete()
            for lacking in self.lacking
            for key in lacking.request.score_columns
            if lacking.of_file and key in by_key
        }

    @property
    def signatures(self) -> dict[str, str]:
        """One line for each label, of the first draw; draws differ only in their documents."""
        lines: dict[str, str] = {}
        for table in (*self.tables, *(table for group in self.groups.values() for table in group.tables)):
            for label, line in table.signatures.items():
                lines.setdefault(label, line)
        return lines

    @property
    def cached(self) -> dict[str, int]:
        """By label, the number of scores from the cache, over all draws and groups."""
        counts: dict[str, int] = {}
        for table in (*self.tables, *(table for group in self.groups.values() for table in group.tables)):
            for label, count in table.cached.items():
                counts[label] = counts.get(label, 0) + count
        return counts

    @property
    def cautions(self) -> tuple[str, ...]:
        """Warnings of metrics about their scores and training data, each line once, after its label."""
        tables = (*self.tables, *(table for group in self.groups.values() for table in group.tables))
        lines = [f"{label}: {line}" for table in tables for label, of in table.cautions.items() for line in of]
        return tuple(dict.fromkeys([*lines, *overlap_lines(self.training)]))

    @cached_property
    def training(self) -> tuple[TrainingOverlap, ...]:
        """Overlap of the judged items of all draws with the training data of each metric with trained files.

        Of a metric that has read judged captions, also that of each group of the items.
        """
        overlaps: list[TrainingOverlap] = []
        for draws, tables in ((self.draws, self.tables), *((of.draws, of.tables) for of in self.groups.values())):
            # Records are those of the metrics, whatever the draw.
            for label, records in (tables[0].trained_on if tables else {}).items():
                overlaps += training_overlaps(label, records, draws)
        return tuple({(overlap.label, overlap.group): overlap for overlap in overlaps}.values())


@dataclass(frozen=True, eq=False)
class Judged:
    """Judgements, and the requests that can be scored on them. Made by :func:`judge`.

    Attributes:
        dataset: the data set.
        selection: the items and their references.
        draws: the judgements, one for each draw of references.
        requests: requests that can be scored on all items.
        lacking: the others.
        resources: features, weights and images for the metrics.
        cache: True to use the score cache.
        whole: number of items of one draw before those without scores were left out; None if none were.
    """

    dataset: Dataset
    selection: ItemSelection
    draws: tuple[Judgements, ...]
    requests: tuple[MetricRequest, ...]
    lacking: tuple[Lacking, ...]
    resources: Resources
    cache: bool = True
    whole: int | None = None

    def require_all(self) -> Judged:
        """Itself, if every request can be scored on all items, except incomplete columns of score files.

        Raises:
            MetricError: a request is missing an input.
            MissingFeaturesError: images have no features; groups that can be requested are named.
            DataError: a score file cannot be joined to the items, or no other request remains.
        """
        _raise_first(self.lacking, any_scored=bool(self.requests))
        return self

    def slow_work(self) -> dict[str, tuple[SlowWork, ...]]:
        """By label, the slow work that :meth:`score` would start with; labels without any are left out.

        Raises:
            CapbenchError: a metric cannot be computed on the items.
        """
        works: dict[str, tuple[SlowWork, ...]] = {}
        for judgements in self.draws:
            of_draw = slow_work(
                judgements.items, self.requests, self.resources, cache=self.cache, documents=judgements.documents
            )
            for label, of_label in of_draw.items():
                works[label] = (*works.get(label, ()), *of_label)
        return works

    def score(self, progress: ProgressFactory = no_progress, *, by_group: bool = False) -> Scored:
        """Score every draw, and single groups for requests that do not cover all items.

        Args:
            progress: makes progress bars.
            by_group: True to compute corpus scores of each group of the items, as plain means require.

        Raises:
            CapbenchError: a metric failed.
        """
        tables: list[ScoreTable] = []
        for judgements in self.draws if self.requests else ():
            name = f"{self.dataset.name}/{self.selection.name}"
            label = name + (f" draw {judgements.draw + 1}" if len(self.draws) > 1 else "")
            with progress(label, len(judgements.items) * len(self.requests)) as step:
                tables.append(self._table(judgements, self.requests, step, by_group))
        groups = self._groups(progress, by_group)
        return Scored(self.dataset, self.draws, tuple(tables), groups, self.lacking, self.whole)

    def _groups(self, progress: ProgressFactory, by_group: bool) -> dict[str, ScoredGroup]:
        scored: dict[str, ScoredGroup] = {}
        for group in self.draws[0].groups:
            requests = [lacking.request for lacking in self.lacking if group in lacking.groups]
            if not requests:
                continue
            draws = tuple(group_of(self.dataset, group).part(judgements) for judgements in self.draws)
            steps = sum(len(judgements.items) for judgements in draws) * len(requests)
            with progress(f"{self.dataset.name}/{self.selection.name}, {group}", steps) as step:
                tables = tuple(self._table(judgements, requests, step, by_group) for judgements in draws)
            scored[group] = ScoredGroup(draws, tables)
        return scored

    def _table(
        self,
        judgements: Judgements,
        requests: Sequence[MetricRequest],
        step: Callable[[int], None],
        by_group: bool,
    ) -> ScoreTable:
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
        if judgements.reverse is None:
            return table
        both = {key: (values + values[judgements.reverse]) / 2 for key, values in table.values.items()}
        return replace(table, values=both)


def judge(
    dataset: Dataset,
    selection: ItemSelection,
    requests: Sequence[MetricRequest],
    resources: Resources | None = None,
    *,
    cache: bool = True,
) -> Judged:
    """Load judgements, and decide which requests can be scored on all of their items, and which on some groups.

    Args:
        dataset: the data set.
        selection: the items and their references.
        requests: the metrics.
        resources: features, weights and images for the metrics.
        cache: True to use the score cache.

    Raises:
        MissingFileError: a file of the data set is missing.
        DataError, FeatureError: a file is damaged.
    """
    resources = with_pictures_of(dataset, resources or Resources())
    draws = tuple(dataset.load(selection))
    sure: list[MetricRequest] = []
    lacking: list[Lacking] = []
    joins: Joins = {}
    for request in requests:
        if request.needs(Scores):
            try:
                joins[request.label] = join_draws(request, draws)
            except DataError as error:
                lacking.append(Lacking(request, error, input_missing=False, of_file=True, damaged=True))
    requests = [request for request in requests if request.label in joins or not request.needs(Scores)]
    whole = min(len(judgements.items) for judgements in draws)
    nothing_left: DataError | None = None
    if resources.allow_missing:
        try:
            draws, joins = common_items(dataset, selection, draws, requests, joins)
        except DataError as error:
            nothing_left = error
    for request in requests:
        inapplicable = imageless(dataset, request)
        if inapplicable is not None:
            lacking.append(Lacking(request, inapplicable, input_missing=False))
            continue
        unmet = [each for each in request.missing(resources) if not each[0].may_be_spared]
        if unmet:
            lacking.append(Lacking(request, unmet_needs(request.label, unmet), input_missing=True))
            continue
        unreferenced = _unreferenced(dataset, selection, draws[0].items, request)
        if unreferenced is not None:
            lacking.append(unreferenced)
            continue
        of_file = joins.get(request.label)
        if of_file is not None:
            for part, joined in by_completeness(request, of_file):
                unscored = _unscored(dataset, selection, part, joined, nothing_left)
                if unscored is None:
                    sure.append(part)
                else:
                    lacking.append(unscored)
            continue
        unmet_by_items = _unmet_by_items(dataset, draws[0].items, request, resources)
        unmet_by_items = unmet_by_items or _unworked(draws, request, resources, cache)
        if unmet_by_items is None:
            sure.append(request)
        else:
            lacking.append(unmet_by_items)
    summaries = tuple(joined_note(joined) for joined in joins.values() if joined and not joined[0].is_empty)
    if not dataset.under_root:  # a user's own file
        summaries += tuple(damaged_captions(draws[0].items))
    if summaries:
        draws = tuple(replace(judgements, notes=(*judgements.notes, *summaries)) for judgements in draws)
    reduced = whole if min(len(judgements.items) for judgements in draws) < whole else None
    return Judged(dataset, selection, draws, tuple(sure), tuple(lacking), resources, cache, reduced)


def score_all(
    dataset: Dataset,
    protocol: Protocol,
    requests: Sequence[MetricRequest],
    resources: Resources | None = None,
    *,
    cache: bool = True,
    progress: ProgressFactory = no_progress,
    check: Callable[[Judgements], None] | None = None,
) -> Scored:
    """Score a protocol's items with metrics that are all required, except columns of incomplete score files.

    ``check`` is called with the judgements of the first draw before scoring, and may raise.
    """
    refuse_means(protocol)
    judged = judge(dataset, protocol.items, requests, resources, cache=cache).require_all()
    if check is not None:
        check(judged.draws[0])
    return judged.score(progress).require_all()


def refuse_means(protocol: Protocol) -> None:
    """Raise ProtocolError if a protocol's statistic is a plain mean."""
    if protocol.statistic.kind == "mean":
        raise ProtocolError(
            f"{protocol} has no human judgements to compare metrics on", code="unsupported", value=str(protocol)
        )


def _raise_first(lacking: Sequence[Lacking], *, any_scored: bool) -> None:
    """Raise the first error that stops a command which requires all of its metrics.

    An incomplete column of a score file stops it only if nothing else is scored.
    """
    for less in lacking:
        if not less.of_file or less.damaged or not any_scored:
            raise less.error


def with_pictures_of(dataset: Dataset, resources: Resources) -> Resources:
    """Resources that know all images of the data set and find their pictures in its image folders, unless set."""
    if resources.image_groups is None:
        resources = replace(resources, image_groups=image_groups(dataset))
    if resources.pictures is not None:
        return resources
    from capbench.datasets.images import image_finder

    folder = None if resources.images is None else Path(resources.images)
    return replace(resources, pictures=image_finder(dataset.root, folder, dataset))


def _unscored(
    dataset: Dataset,
    selection: ItemSelection,
    request: MetricRequest,
    joins: Sequence[Join],
    nothing_left: DataError | None = None,
) -> Lacking | None:
    """A score file's columns if items have no score, with the groups that are complete; None if all have one.

    ``nothing_left`` is the error of leaving out items without scores, if no item would remain.
    """
    worst = max(joins, key=lambda joined: len(joined.missing))
    error = next((joined for joined in joins if len(joined.missing)), worst).complaint(
        f"{dataset.name}/{selection.name}"
    )
    if error is None:
        return None
    scored = {"": (worst.scored, len(worst.items))}
    for group in dict.fromkeys(item.group for item in worst.items if item.group):
        counts = [joined.scored_of(group) for joined in joins]
        scored[group] = min(counts, key=lambda count: count[0] - count[1])
    groups = tuple(group for group, (count, total) in scored.items() if group and count == total)
    return Lacking(request, nothing_left or error, input_missing=False, groups=groups, of_file=True, scored=scored)


def _unreferenced(
    dataset: Dataset, selection: ItemSelection, items: Sequence[Item], request: MetricRequest
) -> Lacking | None:
    """A request that requires references if an item has none; else None."""
    without = sum(not item.references for item in items)
    if not without or not request.needs_references:
        return None
    others = dataset.with_references
    hint = "Choose a metric or column that works without references ('capbench metrics NAME' shows this)"
    error = MetricError(
        f"{request.label} requires references, and {without:,} of {len(items):,} items of "
        f"{dataset.name}{f'/{selection.name}' if others else ''} have none",
        code="missing-references",
        value=request.label,
        hint=f"{hint}, or the items with references: -d {dataset.name} -p {others}" if others else hint,
    )
    return Lacking(request, error, input_missing=False)


def imageless(dataset: Dataset | type[Dataset], request: MetricRequest) -> MetricError | None:
    """The error for a request that requires images on a data set without any; None if it applies."""
    if dataset.judges_images or not request.requires_images():
        return None
    return MetricError(
        f"{request.label} requires images, and {dataset.name} rates captions against captions, without an image",
        code="unsupported",
        value=request.label,
        hint="Choose a metric that compares texts",
    )


def _unmet_by_items(
    dataset: Dataset, items: Sequence[Item], request: MetricRequest, resources: Resources
) -> Lacking | None:
    """A request that lacks something of some items, with the groups that have it; else None."""
    error = request.unmet_by(items, resources)
    if error is None:
        return None
    by_group: dict[str, list[Item]] = {}
    for item in items:
        by_group.setdefault(item.group, []).append(item)
    groups = tuple(g for g, of_group in by_group.items() if g and request.unmet_by(of_group, resources) is None)
    if groups:
        names = " or ".join(f"{dataset.name}@{spelled(group)}" for group in groups)
        whole = f"group{'s' if groups[1:] else ''} {', '.join(groups)} {'lack' if groups[1:] else 'lacks'} nothing"
        hint = f"{error.hint}; {whole}: request {names}"
        error = type(error)(
            error.message, code=error.code, value=error.value, path=error.path, row=error.row, hint=hint
        )
    return Lacking(request, error, input_missing=False, groups=groups)


def _unworked(draws: Sequence[Judgements], request: MetricRequest, resources: Resources, cache: bool) -> Lacking | None:
    """A request whose slow work requires something that is missing (SPICE's parser); None without such work."""
    for judgements in draws if (missing := request.missing(resources)) else ():
        for work in slow_work(judgements.items, [request], resources, cache=cache).get(request.label, ()):
            message = f"{work.unit} require {' and '.join(reason for _, reason in missing)}"
            error = SetupError(message, code=missing[0][0].code, value=request.label)
            return Lacking(request, error, input_missing=True)
    return None

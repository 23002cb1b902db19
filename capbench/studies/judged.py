"""Judgements and their scores: the one place where every command gets both.

What is lacking is decided here, before any work: a request whose needs are not met, and one whose features cover some
groups of the data set and not others. What is covered is scored once, and a number is computed from these scores by
one path (:mod:`capbench.studies.evaluate`), whichever command asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from capbench.datasets.base import Dataset
from capbench.datasets.groups import group_of, spelled
from capbench.datasets.protocol import ItemSelection
from capbench.errors import CapbenchError, MetricError, MissingFeaturesError, MissingFileError, SetupError
from capbench.metrics.base import Resources
from capbench.metrics.needs import Images, Scores
from capbench.metrics.requests import MetricRequest
from capbench.progress import SlowWork
from capbench.records import Item, Judgements, ScoreTable
from capbench.score_files.joining import Join
from capbench.scoring import complete, score, slow_work
from capbench.studies.file_scores import common_items, join_draws, joined_note

__all__ = ["Judged", "Lacking", "ProgressFactory", "Scored", "ScoredGroup", "judge", "no_progress"]

ProgressFactory = Callable[[str, int | None], AbstractContextManager[Callable[[int], None]]]
"""Makes a progress bar from a description and a number of steps; yields a function of the steps done, which may tell
kinds of work apart (:class:`capbench.progress.Parts`)."""


def no_progress(description: str, steps: int | None) -> AbstractContextManager[Callable[[int], None]]:
    """A progress factory that shows nothing."""
    return nullcontext(lambda _: None)


@dataclass(frozen=True)
class Lacking:
    """A request that cannot be scored on all items, and why.

    Attributes:
        request: the request.
        error: what a command says that needs it.
        waits: True if something must be given first, whatever the items; False if it is these items that lack it.
        groups: groups of the items that it can be scored on alone.
    """

    request: MetricRequest
    error: CapbenchError
    waits: bool
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class ScoredGroup:
    """One group of the items, scored alone for requests that cannot be scored on all.

    Attributes:
        draws: the group's judgements, one for each draw.
        tables: their scores, in the same order.
    """

    draws: tuple[Judgements, ...]
    tables: tuple[ScoreTable, ...]


@dataclass(frozen=True, eq=False)
class Scored:
    """Judgements with scores.

    Attributes:
        dataset: the data set.
        draws: its judgements under one choice of items, one for each draw of references.
        tables: scores of the requests that cover all items, one table for each draw; empty if there are none.
        groups: scores of the others in the groups that they cover, by group.
        lacking: the requests that could not be scored on all items.
    """

    dataset: Dataset
    draws: tuple[Judgements, ...]
    tables: tuple[ScoreTable, ...]
    groups: Mapping[str, ScoredGroup] = field(default_factory=dict)
    lacking: tuple[Lacking, ...] = ()

    def require_all(self) -> Scored:
        """Itself, if every request is scored on all items. Raises what stands in the way."""
        for lacking in self.lacking:
            raise lacking.error
        return self

    @property
    def signatures(self) -> dict[str, str]:
        """One line for each label; draws differ in their documents at most, and the first one's stands for all."""
        lines: dict[str, str] = {}
        for table in (*self.tables, *(table for group in self.groups.values() for table in group.tables)):
            for label, line in table.signatures.items():
                lines.setdefault(label, line)
        return lines

    @property
    def cached(self) -> dict[str, int]:
        """By label, how many scores came from the cache, over all draws."""
        counts: dict[str, int] = {}
        for table in self.tables:
            for label, count in table.cached.items():
                counts[label] = counts.get(label, 0) + count
        return counts

    @property
    def cautions(self) -> tuple[str, ...]:
        """What metrics say must be said beside their scores, each line once, after the label that it is about."""
        tables = (*self.tables, *(table for group in self.groups.values() for table in group.tables))
        lines = (f"{label}: {line}" for table in tables for label, of in table.cautions.items() for line in of)
        return tuple(dict.fromkeys(lines))

    def joined(self, later: Scored, labels: Sequence[str]) -> Scored:
        """These scores with those of other requests on the same judgements.

        Args:
            later: the others.
            labels: the order in which labels stand in the tables.
        """
        pairs = zip_longest(self.tables, later.tables)
        tables = tuple(_join([table for table in pair if table is not None], labels) for pair in pairs)
        groups, lacking = {**self.groups, **later.groups}, (*self.lacking, *later.lacking)
        return replace(self, tables=tables, groups=groups, lacking=lacking)


@dataclass(frozen=True, eq=False)
class Judged:
    """Judgements, and what of the requests can be scored on them. Made by :func:`judge`.

    Attributes:
        dataset: the data set.
        selection: which items count, and which references.
        draws: the judgements, one for each draw of references.
        requests: requests that can be scored on all items.
        lacking: the others.
        resources: what is given to the metrics.
        cache: whether the score cache is used.
    """

    dataset: Dataset
    selection: ItemSelection
    draws: tuple[Judgements, ...]
    requests: tuple[MetricRequest, ...]
    lacking: tuple[Lacking, ...]
    resources: Resources
    cache: bool = True

    def require_all(self) -> Judged:
        """Itself, if every request can be scored on all items.

        Raises:
            MetricError: a request waits for something.
            MissingFeaturesError: images lack features; groups that could be asked for are named.
        """
        for lacking in self.lacking:
            raise lacking.error
        return self

    def slow_work(self) -> dict[str, tuple[SlowWork, ...]]:
        """By label, the slow work that :meth:`score` would do first; labels without any are left out.

        Raises:
            CapbenchError: a metric cannot be computed on the items.
        """
        works: dict[str, tuple[SlowWork, ...]] = {}
        for judgements in self.draws:
            of_draw = slow_work(judgements.items, self.requests, self.resources, cache=self.cache)
            for label, of_label in of_draw.items():
                works[label] = (*works.get(label, ()), *of_label)
        return works

    def split(self, labels: Collection[str]) -> tuple[Judged, Judged]:
        """The same without the requests under some labels, and with nothing but them."""
        others = tuple(request for request in self.requests if request.label not in labels)
        chosen = tuple(request for request in self.requests if request.label in labels)
        return replace(self, requests=others), replace(self, requests=chosen, lacking=())

    def score(self, progress: ProgressFactory = no_progress, *, by_group: bool = False) -> Scored:
        """Score every draw, and the groups of those that cover no more.

        A metric that needs SPICE's parser for captions that were never parsed joins ``lacking`` if there is none.

        Args:
            progress: makes progress bars.
            by_group: whether corpus scores of each group of the items are computed, which plain means are.

        Raises:
            CapbenchError: a metric failed.
        """
        # What may be spared is tried alone, so that it takes nothing else down with it.
        tried = [request for request in self.requests if request.lacking(self.resources)]
        sure = [request for request in self.requests if request not in tried]
        lacking = list(self.lacking)
        tables: list[ScoreTable] = []
        for judgements in self.draws:
            name = f"{self.dataset.name}/{self.selection.name}"
            label = name + (f" draw {judgements.draw + 1}" if len(self.draws) > 1 else "")
            of_draw: list[ScoreTable] = []
            with progress(label, len(judgements.items) * len(self.requests)) as step:
                for requests in filter(None, [sure, *([request] for request in tried)]):
                    try:
                        of_draw.append(self._table(judgements, requests, step, by_group))
                    except SetupError as error:
                        if requests[0] not in tried:
                            raise
                        tried.remove(requests[0])
                        lacking.append(Lacking(requests[0], error, waits=True))
            if of_draw:
                tables.append(_join(of_draw))
        return Scored(self.dataset, self.draws, tuple(tables), self._groups(progress, by_group), tuple(lacking))

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
        return score(
            judgements.items,
            requests,
            self.resources,
            dataset=judgements.dataset,
            cache=self.cache,
            progress=step,
            by_group=by_group,
        )


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
        selection: which items count, and which references.
        requests: the metrics.
        resources: what is given to them.
        cache: whether the score cache is used.

    Raises:
        MissingFileError: a file of the data set is not here.
        DataError, FeatureError: a file is damaged.
    """
    resources = resources or Resources()
    draws = tuple(dataset.load(selection))
    joins = {request.label: join_draws(request, draws) for request in requests if request.needs(Scores)}
    if resources.allow_missing:
        draws, joins = common_items(dataset, selection, draws, requests, joins)
    sure: list[MetricRequest] = []
    lacking: list[Lacking] = []
    for request in requests:
        reason = request.lacks(resources)
        if reason:
            lacking.append(Lacking(request, MetricError(f"{request.label} waits for {reason}"), waits=True))
            continue
        unreferenced = _unreferenced(dataset, draws[0].items, request)
        if unreferenced is not None:
            lacking.append(unreferenced)
            continue
        of_file = joins.get(request.label)
        if of_file is None:
            uncovered = _uncovered(dataset, draws[0].items, request, resources)
            uncovered = uncovered or _unpictured(draws[0].items, request, resources)
        else:
            uncovered = _unscored(dataset, selection, request, of_file)
        if uncovered is None:
            sure.append(request)
        else:
            lacking.append(uncovered)
    said = tuple(joined_note(joined) for joined in joins.values() if joined and not joined[0].is_empty)
    if said:
        draws = tuple(replace(judgements, notes=(*judgements.notes, *said)) for judgements in draws)
    return Judged(dataset, selection, draws, tuple(sure), tuple(lacking), resources, cache)


def _unscored(
    dataset: Dataset, selection: ItemSelection, request: MetricRequest, joins: Sequence[Join]
) -> Lacking | None:
    """Whether a file lacks scores of items; it may have those of some groups, or be of another data set.

    Raises:
        DataError: it has scores of a part of the items that is no group.
    """
    lacking = next((joined for joined in joins if len(joined.missing)), None)
    if lacking is None:
        return None
    error = lacking.complaint(f"{dataset.name}/{selection.name}")
    assert error is not None
    if all(joined.is_empty for joined in joins):
        return Lacking(request, error, waits=False)
    covered: set[str] = set()
    open_groups: set[str] = set()
    for joined in joins:  # a group is covered if it is in every draw
        without = set(joined.missing.tolist())
        for place, item in enumerate(joined.items):
            (open_groups if place in without else covered).add(item.group)
    if covered & open_groups or "" in covered:
        raise error
    groups = tuple(dict.fromkeys(item.group for item in lacking.items if item.group in covered))
    return Lacking(request, error, waits=False, groups=groups)


def _unreferenced(dataset: Dataset, items: Sequence[Item], request: MetricRequest) -> Lacking | None:
    """Whether the request needs references, and there are none at all; None if not."""
    if any(item.references for item in items) or not request.needs_references:
        return None
    error = MetricError(
        f"{request.label} needs references, and {dataset.name} has none",
        hint="Choose a metric or column that needs none ('capbench metrics NAME' tells)",
    )
    return Lacking(request, error, waits=False)


def _uncovered(dataset: Dataset, items: Sequence[Item], request: MetricRequest, resources: Resources) -> Lacking | None:
    """Whether images of the items lack features, which, and which groups lack none; None if all have them."""
    features = resources.of(request.label, request.metric.name).features
    if features is None or not request.reads_features():
        return None
    from capbench.features.store import open_store

    with open_store(features) as store:
        try:
            store.require([item.image for item in items])
        except MissingFeaturesError as error:
            images: dict[str, set[str]] = {}
            for item in items:
                images.setdefault(item.group, set()).add(item.image)
            groups = tuple(g for g, names in images.items() if g and all(name in store for name in names))
            return Lacking(request, _with_groups(error, dataset, groups), waits=False, groups=groups)
    return None


def _unpictured(items: Sequence[Item], request: MetricRequest, resources: Resources) -> Lacking | None:
    """Whether pictures of the items are not there; None if all are, or the metric looks at none."""
    if not request.needs(Images):
        return None
    from capbench.metrics.pictures import find_pictures

    try:
        find_pictures((item.image for item in items), complete(resources, cache=False))
    except MissingFileError as error:
        return Lacking(request, error, waits=False)
    return None


def _with_groups(error: MissingFeaturesError, dataset: Dataset, groups: Sequence[str]) -> MissingFeaturesError:
    """The error with the groups of which no image lacks features: these can be asked for alone."""
    if not groups:
        return error
    names = " or ".join(f"{dataset.name}@{spelled(group)}" for group in groups)
    what = f"all images of group{'s' if groups[1:] else ''} {', '.join(groups)} have features"
    return MissingFeaturesError(
        error.message, path=error.path, row=error.row, hint=f"{error.hint}; {what}: ask for {names}"
    )


def _join(tables: Sequence[ScoreTable], labels: Sequence[str] = ()) -> ScoreTable:
    """Tables of the same items under different requests as one, in the order of the labels, or of the tables."""
    place = {label: i for i, label in enumerate(labels)}
    signatures = [pair for table in tables for pair in table.signatures.items()]
    return ScoreTable(
        tables[0].dataset,
        tables[0].items,
        dict(pair for table in tables for pair in table.values.items()),
        dict(pair for table in tables for pair in table.corpus.items()),
        dict(sorted(signatures, key=lambda pair: place.get(pair[0], 0))),
        dict(
            sorted((pair for table in tables for pair in table.cached.items()), key=lambda pair: place.get(pair[0], 0))
        ),
        {
            group: dict(pair for table in tables for pair in table.group_corpus[group].items())
            for group in tables[0].group_corpus
        },
        dict(pair for table in tables for pair in table.cautions.items()),
    )

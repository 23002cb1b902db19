"""Score files joined to the items of judgements: the items with a score in every file, and incomplete columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from capbench.core.errors import DataError
from capbench.core.records import Item, Judgements, ScoreColumn
from capbench.datasets.base import Dataset
from capbench.datasets.opening import keep_items
from capbench.datasets.protocol import ItemSelection
from capbench.metrics.from_file import by_completeness, stored_join
from capbench.metrics.metric_request import MetricRequest
from capbench.metrics.needs import Scores
from capbench.metrics.score_joining import Join

Joins = dict[str, list[Join]]
"""By label, a score file joined to the items of each draw."""


@dataclass(frozen=True)
class Incomplete:
    """A column of a score file without a number, since items have no score."""

    instead: str  # text in the place of the number: ``scores for 4 of 11,985``
    reason: str  # what is missing, and what to do

    def __str__(self) -> str:
        return f"{self.instead}: {self.reason}"


def join_draws(request: MetricRequest, draws: Sequence[Judgements]) -> list[Join]:
    """A score file joined to the items of each draw of references; a row is strange only if it belongs to no draw."""
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
    """The scorable part of a user's own captions, which ``name`` describes, where score files may be incomplete.

    Returns the items (with ``allow_missing``, those with all scores), the complete requests, the incomplete columns,
    and notes; raises DataError if no request, or no item, remains.
    """
    joins = {request.label: stored_join(request, items) for request in requests if request.needs(Scores)}
    notes = [joined.note() for joined in joins.values()]
    without = sorted({place for joined in joins.values() for place in joined.missing.tolist()})
    if allow_missing and without:
        if len(without) == len(items):
            raise next(error for joined in joins.values() if (error := joined.complaint(words=name)) is not None)
        kept = np.setdiff1d(np.arange(len(items)), without).tolist()
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
            column = Incomplete(f"scores for {joined[0].scored:,} of {len(items):,}", str(error))
            incomplete |= dict.fromkeys(part.score_columns, column)
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
    """The judgements of the items with a score in every file; a file without any belongs to another data set."""
    here = [joined for joined in joins.values() if not all(of_draw.is_empty for of_draw in joined)]
    alike = len({tuple((item.image, item.candidate) for item in judgements.items) for judgements in draws}) == 1

    def missing(joined: Sequence[Join], place: int) -> set[int]:
        return {item for of_draw in (joined if alike else [joined[place]]) for item in of_draw.missing.tolist()}

    kept_draws = []
    for place, judgements in enumerate(draws):
        without = {item for joined in here for item in missing(joined, place)}
        if judgements.reverse is not None:  # a pair needs the scores of both directions
            without |= set(judgements.reverse[sorted(without)].tolist())
        if not without:
            kept_draws.append(judgements)
            continue
        total = len(judgements.items)
        if len(without) == total:
            files = ", ".join(joined[place].file.path.name for joined in here)
            name, several = f"{dataset.name}/{selection.name}", len(here) > 1
            every = f"'capbench data items {name}' writes the items of all draws"
            hint = "Choose files that share items, or a single one" if several else every
            message = f"no item of {name} has a score in {'each of ' if several else ''}{files}"
            raise DataError(message, code="missing-scores", hint=hint)
        counts = ((len(missing(joined, place)), joined[place].file.path.name) for joined in here)
        by_file = " and ".join(
            f"{count:,} {'has' if count == 1 else 'have'} no score in {name}" for count, name in counts if count
        )
        note = f"{total - len(without):,} of {total:,} items remain, for all metrics: {by_file} (--allow-missing)"
        places = np.setdiff1d(np.arange(total), sorted(without))
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

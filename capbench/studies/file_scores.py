"""Items of which files of scores lack none: what is left where others are left out, for all metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from capbench.datasets.base import Dataset
from capbench.datasets.keeping import keep_items
from capbench.datasets.protocol import ItemSelection
from capbench.errors import DataError
from capbench.metrics.from_file import stored_join
from capbench.metrics.needs import Scores
from capbench.metrics.requests import MetricRequest
from capbench.records import Item, Judgements
from capbench.score_files.joining import Join

__all__ = ["Joins", "common_items", "items_with_scores", "join_draws", "joined_note"]

Joins = dict[str, list[Join]]
"""By label, a file of scores joined to the items of each draw."""


def join_draws(request: MetricRequest, draws: Sequence[Judgements]) -> list[Join]:
    """A file of scores joined to the items of each draw of references.

    A file may hold scores for all draws, so a row is strange, or has other references, only if it belongs to no draw.

    Raises:
        DataError: an item has two different scores, or a row is of two items.
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
    """What was joined, in one line, for all draws where they are alike and else for the first."""
    line = joins[0].note()
    if len(joins) > 1 and all(joined.ways == joins[0].ways for joined in joins):
        return line.replace(f" (draw 1 of {len(joins)})", f" in each of {len(joins)} draws", 1)
    return line


def items_with_scores(
    items: Sequence[Item], requests: Sequence[MetricRequest], name: str, *, allow_missing: bool = False
) -> tuple[tuple[Item, ...], list[str]]:
    """The items of which no file of scores lacks one, and what is to be said of it; for a user's own captions.

    Args:
        items: all of them.
        requests: the metrics, files of scores among them.
        name: the items in words.
        allow_missing: whether items may be left out.

    Raises:
        DataError: an item has no score in a file, or two.
    """
    joins = [stored_join(request, items) for request in requests if request.needs(Scores)]
    lacking = sorted({place for joined in joins for place in joined.missing.tolist()})
    for joined in joins:
        complaint = joined.complaint(words=name)
        if complaint is not None and (not allow_missing or len(lacking) == len(items)):
            raise complaint
    notes = [joined.note() for joined in joins]
    if not lacking:
        return tuple(items), notes
    kept = np.setdiff1d(np.arange(len(items)), lacking).tolist()
    notes.append(f"{len(kept):,} of {len(items):,} captions are kept, for all metrics (--allow-missing)")
    return tuple(items[place] for place in kept), notes


def common_items(
    dataset: Dataset,
    selection: ItemSelection,
    draws: tuple[Judgements, ...],
    requests: Sequence[MetricRequest],
    joins: Joins,
) -> tuple[tuple[Judgements, ...], Joins]:
    """The judgements of the items that no file lacks a score of; a file that has none at all is of another data set."""
    here = [joined for joined in joins.values() if not all(one.is_empty for one in joined)]
    kept_draws = []
    for place, judgements in enumerate(draws):
        lacking = {item for joined in here for item in joined[place].missing.tolist()}
        if not lacking:
            kept_draws.append(judgements)
            continue
        total = len(judgements.items)
        if len(lacking) == total:
            files = ", ".join(joined[place].file.path.name for joined in here)
            of_draw = f" (draw {place + 1} of {len(draws)})" if len(draws) > 1 else ""
            raise DataError(
                f"no item of {dataset.name}/{selection.name}{of_draw} has a score in "
                f"{'each of ' if len(here) > 1 else ''}{files}",
                hint="Give files that share items, or one of them alone"
                if len(here) > 1
                else f"'capbench items {dataset.name}/{selection.name}' writes the items of all draws",
            )
        counts = ((len(joined[place].missing), joined[place].file.path.name) for joined in here)
        by_file = " and ".join(
            f"{count:,} {'has' if count == 1 else 'have'} no score in {name}" for count, name in counts if count
        )
        note = (
            f"{total - len(lacking):,} of {total:,} items are kept, for all metrics: {by_file} (--allow-missing); "
            "statistics of a corpus are of the kept ones"
        )
        places = np.setdiff1d(np.arange(total), sorted(lacking))
        kept_draws.append(keep_items(judgements, places, f"{dataset.title}, items with scores", [note]))
    by_label = {request.label: request for request in requests}
    # A row of an item that was left out still belongs to an item.
    return tuple(kept_draws), {
        label: [
            replace(
                stored_join(by_label[label], judgements.items),
                strange=before.strange,
                other_references=before.other_references,
                draw=before.draw,
            )
            for judgements, before in zip(kept_draws, joins[label], strict=True)
        ]
        for label in joins
    }

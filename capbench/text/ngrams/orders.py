"""In which order references are added to those that candidates are scored with.

Every reference of an item has a *rank*: the place at which it is added. A *step* k scores with the references of rank
below k.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capbench.errors import MetricError
from capbench.text.ngrams.corpus import EncodedCorpus

__all__ = ["ReferenceOrder", "all_references", "reference_order"]


@dataclass(frozen=True)
class ReferenceOrder:
    """In which order references are added.

    Attributes:
        rank: (pairs,) place of each reference, from 0; negative for one that is never used.
        steps: ascending numbers of references to score with.
    """

    rank: NDArray[np.int32]
    steps: tuple[int, ...]


def reference_order(
    corpus: EncodedCorpus, steps: Iterable[int], order: Sequence[Sequence[int]] | None = None
) -> ReferenceOrder:
    """References in the order given, or in an order of one's own.

    Args:
        corpus: candidates and references.
        steps: numbers of references to score with. An item that has fewer is scored with all that it has.
        order: for every item, places of its references (from 0) in the order in which they are added; those that are
            not named are never used. By default the order in which they were given.

    Raises:
        MetricError: a step below 1, or an order that does not fit.
    """
    wanted = tuple(sorted({int(step) for step in steps}))
    if not wanted or wanted[0] < 1:
        raise MetricError("a sweep needs numbers of references, each at least 1")
    sizes = np.diff(corpus.first_pair)
    if order is None:
        rank = np.arange(len(corpus.reference)) - np.repeat(corpus.first_pair[:-1], sizes)
        return ReferenceOrder(rank.astype(np.int32), wanted)
    if len(order) != corpus.items:
        raise MetricError(f"an order of references is given for {len(order)} items, not for {corpus.items}")
    rank = np.full(len(corpus.reference), -1, dtype=np.int64)
    for i, places in enumerate(order):
        if not len(places) or len(set(places)) < len(places) or min(places) < 0 or max(places) >= sizes[i]:
            raise MetricError(
                f"the order of references of item {i + 1} does not fit its {sizes[i]} references",
                hint="Name each reference at most once, by its place from 0, and at least one",
            )
        rank[corpus.first_pair[i] + np.asarray(places)] = np.arange(len(places))
    return ReferenceOrder(rank.astype(np.int32), wanted)


def all_references(corpus: EncodedCorpus, keep: NDArray[np.bool_] | None = None) -> ReferenceOrder:
    """One step with all references, or with those of the pairs to keep.

    Args:
        corpus: candidates and references.
        keep: (pairs,) which references to use; by default all.

    Raises:
        MetricError: an item is left without references.
    """
    if keep is None:
        return ReferenceOrder(np.zeros(len(corpus.reference), dtype=np.int32), (1,))
    if keep.shape != corpus.reference.shape:
        raise MetricError(f"{keep.size} references are marked, but there are {corpus.reference.size}")
    left = np.bincount(corpus.item_of_pair[keep], minlength=corpus.items)
    if corpus.items and left.min() == 0:
        raise MetricError(f"item {int(left.argmin()) + 1} is left without references")
    return ReferenceOrder(np.where(keep, 0, -1).astype(np.int32), (1,))

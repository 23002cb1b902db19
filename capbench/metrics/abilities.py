"""Growing sets of references, which :meth:`capbench.metrics.base.Metric.sweep` takes, and explanations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from capbench.core.records import Item

if TYPE_CHECKING:
    from capbench.core.explanations import Explanation, Subject


@dataclass(frozen=True)
class ReferenceSweep:
    """The same items with growing sets of references, added in one or more orders."""

    items: tuple[Item, ...]  # (n) items with all their references, repeats included
    # for each draw and item, indices of the item's references (from 0) in the order in which they are added
    orders: tuple[tuple[tuple[int, ...], ...], ...]
    counts: tuple[int, ...]  # ascending numbers of references, each at least 1 for :meth:`Metric.sweep`

    def subset(self, draw: int, count: int) -> tuple[Item, ...]:
        """Items with the first ``count`` references of a draw in its order, or with all if there are fewer."""
        return tuple(
            replace(item, references=tuple(item.references[place] for place in order[:count]))
            for item, order in zip(self.items, self.orders[draw], strict=True)
        )


@runtime_checkable
class Explains(Protocol):
    """A metric that explains its scores (``capbench explore explain``)."""

    def explain(self, subject: Subject) -> Explanation | None:
        """Explanation of the scores of one image's candidates; None if this image has no explanation.

        Called without ``prepare`` and ``open``.
        """

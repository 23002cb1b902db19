"""Work that is cut into parts, which other processes may do: the contract. ``capbench.cluster`` holds an engine.

Parts are cut in one way, whatever the number of workers, and whoever hands them out gathers the results alone. So the
number of workers changes no byte of what is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

__all__ = ["PartFailure", "Spread"]

PartT = TypeVar("PartT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class PartFailure:
    """A part that was tried three times, in vain.

    Attributes:
        reason: why, one line.
    """

    reason: str


class Spread(Protocol):
    """Does parts of a work, several at the same time."""

    def run(
        self, opener: Callable[[], Callable[[PartT], ResultT]], parts: Sequence[PartT], *, memory_mb: int
    ) -> Iterator[tuple[int, ResultT | PartFailure]]:
        """Do all parts; places and results come as the parts end, in any order.

        A part whose worker dies, or that raises anything but a CapbenchError, is tried again, twice.

        Args:
            opener: called once in each worker, for what takes long to open; it gives the function of a part. Opener,
                parts and results travel between processes.
            parts: what to do.
            memory_mb: what a worker may need; no more workers are started than there is memory for.

        Raises:
            CapbenchError: what ``opener`` or a part raised.
        """
        ...

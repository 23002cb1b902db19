"""Long work tells how far it is: what is done of how much, and how long the rest takes.

A plain progress is a function that takes numbers of steps. Who shows progress may also tell kinds of work apart
(:class:`Parts`): each kind has a name, a unit and a total of its own, which count only what is really done, so that
what comes from a cache makes no estimate too good.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol, runtime_checkable

from capbench.spreading import Spread

__all__ = ["LONG_S", "Parts", "Progress", "SlowWork", "Tally", "part_of", "share_of", "together", "words"]

LONG_S: Final = 30.0
"""Seconds from which work says so before it begins, and how often it says how far it is."""

_EXPECTED_WEIGHT_S: Final = 20.0  # for so long an expectation outweighs what was measured

Progress = Callable[[int], None]
"""Called with the number of steps done since the last call."""


@runtime_checkable
class Parts(Protocol):
    """A progress that tells kinds of work apart."""

    def part(self, name: str, total: int, unit: str, expected_s: float | None = None) -> Progress:
        """The progress of one kind of work.

        Args:
            name: what does it (a metric's label).
            total: units to do.
            unit: their name in the plural (``captions``).
            expected_s: seconds that all of it should take, if that is known.
        """
        ...


def part_of(progress: Progress, name: str, total: int, unit: str, expected_s: float | None = None) -> Progress:
    """As :meth:`Parts.part`; a function that does nothing if this progress does not tell kinds of work apart."""
    return progress.part(name, total, unit, expected_s) if isinstance(progress, Parts) else lambda _: None


def share_of(progress: Progress, total: int, steps: int) -> Progress:
    """A progress over ``total`` units that is told as one over ``steps``, of which one takes several units."""
    done = told = 0

    def step(count: int) -> None:
        nonlocal done, told
        done += count
        now = steps * done // max(total, 1)
        if now > told:
            progress(now - told)
            told = now

    return step


@dataclass(frozen=True)
class SlowWork:
    """Work that a metric must do before it can score, counted beforehand.

    Attributes:
        subject: who does it: ``SPICE parses``.
        unit: what is done, in the plural: ``captions``.
        units: what is still to be done, each once.
        per_second: how many units a second can be expected.
        run: does it.
        run_on: does it in other processes; None if it cannot be cut into parts.
    """

    subject: str
    unit: str
    units: frozenset[str]
    per_second: float
    run: Callable[[Progress], None] = field(compare=False, repr=False)
    run_on: Callable[[Spread, Progress], None] | None = field(default=None, compare=False, repr=False)

    @property
    def seconds(self) -> float:
        """Seconds that it should take."""
        return len(self.units) / self.per_second


def together(works: Iterable[SlowWork]) -> tuple[SlowWork, ...]:
    """Works of several items and labels, one for each subject; a unit that several need is done once."""
    by_subject: dict[str, SlowWork] = {}
    for work in works:
        before = by_subject.get(work.subject, work)
        by_subject[work.subject] = SlowWork(
            work.subject, work.unit, before.units | work.units, work.per_second, work.run, work.run_on
        )
    return tuple(by_subject.values())


class Tally:
    """How far one kind of work is.

    Args:
        name: what does it; ``""`` if that goes without saying.
        total: steps to do, None if nobody knows.
        unit: their name in the plural; ``""`` for bare numbers.
        expected_s: seconds that all of it should take, if that is known.
        clock: gives seconds.
    """

    def __init__(
        self,
        name: str,
        total: int | None,
        unit: str = "",
        expected_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.total, self.done = name, total, 0
        self._unit, self._expected_s, self._clock = unit, expected_s, clock
        self._start = clock()
        self._measured_s = 0.0  # until the last step: a step that takes long tells nothing before it ends

    @property
    def seconds(self) -> float:
        """Seconds since it began."""
        return self._clock() - self._start

    def add(self, done: int) -> None:
        """Steps were done."""
        if done:
            self.done += done
            self._measured_s = self.seconds

    def left(self) -> float | None:
        """Seconds that the rest should take; None if nothing tells."""
        if not self.total:
            return None
        rest = max(self.total - self.done, 0)
        if not self._expected_s:
            return self._measured_s * rest / self.done if self.done else None
        # What was expected counts like a first piece of work, whose weight is lost as more is measured.
        expected_per_s = self.total / self._expected_s
        per_s = (self.done + expected_per_s * _EXPECTED_WEIGHT_S) / (self._measured_s + _EXPECTED_WEIGHT_S)
        return rest / per_s

    def __str__(self) -> str:
        """Such as ``spice 3,200 of 27,499 captions, about 9 minutes left``."""
        of = "" if self.total is None else f" of {self.total:,}"
        left = self.left()
        said = "" if left is None or self.done >= (self.total or 0) else f", {words(left)} left"
        return f"{self.name} {self.done:,}{of} {self._unit}".strip() + said


def words(seconds: float) -> str:
    """A length of time as one says it: ``about 12 minutes``."""
    if seconds < 90:
        return f"about {max(10, 10 * math.ceil(seconds / 10))} seconds"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"about {minutes} minutes"
    hours = f"{seconds / 3600:.1f}".removesuffix(".0")
    return f"about {hours} hours"

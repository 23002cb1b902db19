"""Progress of long computations: steps done, total, and estimated time left.

A progress is a function that takes numbers of steps; it may distinguish several tasks (:class:`Display`).
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar

    from capbench.core.workers import Engine

LONG_S: Final = 30.0  # seconds of expected work that are announced before the start, and interval of progress lines

# The time left is estimated from the measured speed, once this share of the steps is done or this time has passed.
_MEASURED_SHARE: Final = 0.05
_MEASURED_S: Final = 10.0

Progress = Callable[[int], None]  # called with the number of steps done since the last call


def part_of(progress: Progress, name: str, total: int, unit: str, expected_s: float | None = None) -> Progress:
    """The result of :meth:`Display.part`; a function that does nothing if ``progress`` does not distinguish tasks."""
    part = getattr(progress, "part", None)
    return part(name, total, unit, expected_s) if part is not None else lambda _: None


@dataclass(frozen=True)
class SlowWork:
    """Slow work before a metric can score, with its amount."""

    subject: str  # subject and verb of a message: ``SPICE parses``
    unit: str  # name of the units in the plural: ``captions``
    units: frozenset[str]  # the units to process, each once
    per_second: float  # expected units per second
    # does the work: in other processes with an engine, if it can be split
    run: Callable[[Progress, Engine | None], None] = field(compare=False, repr=False)

    @property
    def seconds(self) -> float:
        """Expected seconds."""
        return len(self.units) / self.per_second

    def run_in(self, progress: Progress, name: str, engine: Engine | None = None) -> None:
        """Do the work as a task of a progress, under a metric's name."""
        self.run(part_of(progress, name, len(self.units), self.unit, self.seconds), engine)


def together(works: Iterable[SlowWork]) -> tuple[SlowWork, ...]:
    """The works merged by subject; a unit that several works require is counted once."""
    by_subject: dict[str, SlowWork] = {}
    for work in works:
        before = by_subject.get(work.subject, work)
        by_subject[work.subject] = replace(work, units=before.units | work.units)
    return tuple(by_subject.values())


class Tally:
    """Progress count of one task."""

    def __init__(self, name: str, total: int | None, unit: str, clock: Callable[[], float]) -> None:
        self.name, self.total, self.unit, self.done = name, total, unit, 0
        self._clock = clock
        # until the end of the last step, since an unfinished step has no speed
        self._start = self._last = clock()
        self._first = (0, self._start)  # the first step and its end: it includes the start of networks and programs

    def add(self, done: int) -> None:
        """Count completed steps."""
        if done:
            self.done += done
            self._last = self._clock()
            self._first = self._first if self._first[0] else (self.done, self._last)

    def left(self) -> float | None:
        """Estimated seconds left, from the speed after the first step; None if unknown or too early."""
        if not self.total or not self.done:
            return None
        done, start = self._first if self.done > self._first[0] else (0, self._start)
        seconds = self._last - start
        if self.done < _MEASURED_SHARE * self.total and (not done or seconds < _MEASURED_S):
            return None
        return seconds / (self.done - done) * max(self.total - self.done, 0)

    def __str__(self) -> str:
        """A line such as ``spice 3,200 of 27,499 captions, about 9 minutes left``."""
        total = "" if self.total is None else f" of {self.total:,}"
        left = self.left()
        estimate = f", {words(left)} left" if left else ""
        return f"{self.name} {self.done:,}{total} {self.unit}".strip() + estimate


def words(seconds: float) -> str:
    """A duration in words: ``about 12 minutes``."""
    if seconds < 90:
        return f"about {max(10, 10 * math.ceil(seconds / 10))} seconds"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"about {minutes} minutes"
    hours = f"{seconds / 3600:.1f}".removesuffix(".0")
    return f"about {hours} hours"


_CHECK_S = 1.0


class Display:
    """Shows the whole work on stderr, or the task in progress, if tasks (without cached results) are distinguished.

    Without a bar of rich, it writes a line when long work starts, and every half minute until it ends.
    """

    def __init__(
        self, description: str, total: int | None, bar: Bar | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._description, self._bar, self._clock = description, bar, clock
        self._whole = self._current = Tally("", total, "", clock)
        self._last_line, self._is_announced = clock(), False
        if bar is not None:
            bar.add_task(description, total=total, left="")

    def __call__(self, done: int) -> None:
        """Count completed steps of the whole."""
        self._whole.add(done)
        if self._current is self._whole:
            self.show()

    def part(self, name: str, total: int, unit: str, expected_s: float | None = None) -> Progress:
        """The progress of one task; long work is announced before its first unit, if its seconds are expected."""
        tally = self._current = Tally(name, total, unit, self._clock)
        self.show(expected_s)

        def step(done: int) -> None:
            tally.add(done)
            self._current = tally
            self.show()

        return step

    def show(self, expected_s: float | None = None) -> None:
        """Show the task in progress; ``expected_s``: the seconds expected of one that begins."""
        tally, left = self._current, self._current.left()
        if self._bar is not None:
            text = f"{self._description}: {tally.name}, {tally.unit}" if tally.name else self._description
            shown = "" if left is None else f"{words(left)} left"
            task = self._bar.task_ids[0]
            self._bar.update(task, description=text, total=tally.total, completed=tally.done, left=shown)
            return
        announced = (None if self._is_announced else left) if expected_s is None else expected_s
        if self._clock() - self._last_line >= LONG_S or (announced or 0) > LONG_S:
            self._last_line, self._is_announced = self._clock(), True
            print(f"{self._description}: {tally}", file=sys.stderr)


def console(file: TextIO, **settings: Any) -> Console:
    """A rich console. Files and pipes have no width, so tables for them are not wrapped."""
    from rich.console import Console

    made = Console(file=file, highlight=False, **settings)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = 200
    return made


@contextlib.contextmanager
def progress(description: str, total: int | None) -> Iterator[Progress]:
    """Show progress on stderr; yields a function that takes numbers of completed steps."""
    if sys.stderr.isatty():
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        left = TextColumn("{task.fields[left]}")
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), left)
        with Bar(*columns, console=console(sys.stderr), transient=True) as bar:
            yield Display(description, total, bar)
        return
    display, ended = Display(description, total), threading.Event()

    def watch() -> None:  # lines also during steps that take long
        while not ended.wait(_CHECK_S):
            display.show()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield display
    finally:
        ended.set()
        thread.join()


def speed(images: int, seconds: float) -> str:
    """Images per second, or seconds per image if that is the larger number."""
    return f"{images / seconds:.1f} images/s" if images >= seconds else f"{seconds / images:.1f} s an image"

"""Progress of long computations: steps done, total, and estimated time left.

A simple progress is a function that takes numbers of steps. A display may also distinguish several tasks
(:class:`Parts`), each with a name, a unit and a total. Their steps exclude cached results, which would make the
estimates too optimistic. :func:`progress` writes to stderr: a bar on a terminal, otherwise a line every half minute.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol, TextIO, runtime_checkable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from capbench.core.workers import Engine

LONG_S: Final = 30.0  # seconds of expected work that are announced before the start, and interval of progress lines

# The time left is estimated from the measured speed, once this share of the steps is done or this time has passed.
_MEASURED_SHARE: Final = 0.05
_MEASURED_S: Final = 10.0

Progress = Callable[[int], None]  # called with the number of steps done since the last call


@runtime_checkable
class Parts(Protocol):
    """A progress that distinguishes several tasks."""

    def part(self, name: str, total: int, unit: str, expected_s: float | None = None) -> Progress:
        """The progress of one task.

        ``expected_s``: expected seconds for all units, if known: long work is announced before its first unit.
        """
        ...


def part_of(progress: Progress, name: str, total: int, unit: str, expected_s: float | None = None) -> Progress:
    """The result of :meth:`Parts.part`; a function that does nothing if ``progress`` does not distinguish tasks."""
    return progress.part(name, total, unit, expected_s) if isinstance(progress, Parts) else lambda _: None


@dataclass(frozen=True)
class SlowWork:
    """Slow work before a metric can score, with its amount."""

    subject: str  # subject and verb of a message: ``SPICE parses``
    unit: str  # name of the units in the plural: ``captions``
    units: frozenset[str]  # the units to process, each once
    per_second: float  # expected units per second
    run: Callable[[Progress], None] = field(compare=False, repr=False)  # does the work
    # does the work in other processes; None if it cannot be split
    run_on: Callable[[Engine, Progress], None] | None = field(default=None, compare=False, repr=False)

    @property
    def seconds(self) -> float:
        """Expected seconds."""
        return len(self.units) / self.per_second


def together(works: Iterable[SlowWork]) -> tuple[SlowWork, ...]:
    """The works merged by subject; a unit that several works require is counted once."""
    by_subject: dict[str, SlowWork] = {}
    for work in works:
        before = by_subject.get(work.subject, work)
        by_subject[work.subject] = replace(work, units=before.units | work.units)
    return tuple(by_subject.values())


class Tally:
    """Progress count of one task."""

    def __init__(
        self, name: str, total: int | None, unit: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name, self.total, self.done = name, total, 0
        self._unit, self._clock = unit, clock
        self._start = clock()
        self._measured_s = 0.0  # until the end of the last step, since an unfinished step has no speed
        self._first = (0, 0.0)  # the first step and its end: it includes the start of networks and other programs

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._start

    def add(self, done: int) -> None:
        """Count completed steps."""
        if done:
            self.done += done
            self._measured_s = self.seconds
            self._first = self._first if self._first[0] else (self.done, self._measured_s)

    def left(self) -> float | None:
        """Estimated seconds left, from the speed after the first step; None if unknown or too early."""
        if not self.total or not self.done:
            return None
        is_only_first = self.done == self._first[0]
        if self.done < _MEASURED_SHARE * self.total and (is_only_first or self._measured_s < _MEASURED_S):
            return None
        done, seconds = self._first if self.done > self._first[0] else (0, 0.0)
        return (self._measured_s - seconds) / (self.done - done) * max(self.total - self.done, 0)

    def __str__(self) -> str:
        """A line such as ``spice 3,200 of 27,499 captions, about 9 minutes left``."""
        total = "" if self.total is None else f" of {self.total:,}"
        left = self.left()
        estimate = "" if left is None or self.done >= (self.total or 0) else f", {words(left)} left"
        return f"{self.name} {self.done:,}{total} {self._unit}".strip() + estimate


def words(seconds: float) -> str:
    """A duration in words: ``about 12 minutes``."""
    if seconds < 90:
        return f"about {max(10, 10 * math.ceil(seconds / 10))} seconds"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"about {minutes} minutes"
    hours = f"{seconds / 3600:.1f}".removesuffix(".0")
    return f"about {hours} hours"


# Display on stderr.

_CHECK_S = 1.0


class Lines:
    """A line when long work starts, and every half minute until it ends."""

    def __init__(
        self,
        description: str,
        total: int | None,
        write: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._description, self._write, self._clock = description, write, clock
        self._whole = self._current = Tally("", total, clock=clock)
        self._last_line = clock()
        self._is_announced = False
        self._lock = threading.Lock()

    def __call__(self, done: int) -> None:
        """Count completed steps of the whole."""
        self._whole.add(done)
        # Tasks exclude cached results, so their estimates are better.
        if self._current is self._whole:
            self.update()

    def part(self, name: str, total: int, unit: str, expected_s: float | None = None) -> Progress:
        """See :class:`capbench.core.progress.Parts`."""
        tally = self._current = Tally(name, total, unit, self._clock)
        if expected_s is not None and expected_s > LONG_S:
            self._write_line()

        def step(done: int) -> None:
            tally.add(done)
            self._current = tally
            self.update()

        return step

    def update(self) -> None:
        """Write a line if one is due."""
        tally = self._current
        left = tally.left()
        is_long = left is not None and left > LONG_S
        if self._clock() - self._last_line >= LONG_S or (is_long and not self._is_announced):
            self._write_line()

    @contextlib.contextmanager
    def watched(self) -> Iterator[Lines]:
        """Write lines also during steps that take long."""
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(_CHECK_S):
                self.update()

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            ended.set()
            thread.join()

    def _write_line(self) -> None:
        with self._lock:
            self._last_line, self._is_announced = self._clock(), True
            self._write(f"{self._description}: {self._current}")


class Bars:
    """A progress bar for each task, or one for the whole if tasks are not distinguished."""

    def __init__(self, description: str, total: int | None, bar: Bar) -> None:
        self._description, self._bar = description, bar
        self._whole = Tally("", total)
        self._whole_task = bar.add_task(description, total=total, left="")

    def __call__(self, done: int) -> None:
        """Count completed steps of the whole."""
        self._advance(self._whole_task, self._whole, done)

    def part(self, name: str, total: int, unit: str, expected_s: float | None = None) -> Progress:
        """See :class:`capbench.core.progress.Parts`."""
        tally = Tally(name, total, unit)
        self._bar.update(self._whole_task, visible=False)
        task = self._bar.add_task(f"{self._description}: {name}, {unit}", total=total, left="")

        def step(done: int) -> None:
            self._advance(task, tally, done)
            if tally.done >= total:
                self._bar.update(task, visible=False)

        step(0)
        return step

    def _advance(self, task: TaskID, tally: Tally, done: int) -> None:
        tally.add(done)
        left = tally.left()
        self._bar.update(task, advance=done, left="" if left is None else f"{words(left)} left")


def console(file: TextIO, **settings: Any) -> Console:
    """A rich console. Files and pipes have no width, so tables for them are not wrapped."""
    from rich.console import Console

    made = Console(file=file, highlight=False, **settings)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = 200
    return made


def _is_terminal() -> bool:
    """True if rich treats stderr as a terminal; rich is imported only if that is possible."""
    is_forced = any(os.environ.get(name) for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"))
    return (sys.stderr.isatty() or is_forced) and console(sys.stderr).is_terminal


def _write(line: str) -> None:
    print(line, file=sys.stderr)


@contextlib.contextmanager
def progress(description: str, total: int | None, *, images: bool = False) -> Iterator[Callable[[int], None]]:
    """Show progress on stderr; yields a function that takes numbers of completed steps."""
    if not _is_terminal():
        with Lines(description, total, _write).watched() as lines:
            yield lines
        return
    from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, Task, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar
    from rich.text import Text

    class Speed(ProgressColumn):
        def render(self, task: Task) -> Text:
            rate = task.finished_speed or task.speed
            return Text(speed(1, 1 / rate) if rate else "")

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Speed() if images else TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )
    with Bar(*columns, console=console(sys.stderr), transient=True) as bar:
        yield Bars(description, total, bar)


def images_progress(description: str, total: int | None) -> AbstractContextManager[Callable[[int], None]]:
    """The :func:`progress` of images."""
    return progress(description, total, images=True)


def speed(images: int, seconds: float) -> str:
    """Images per second, or seconds per image if that is the larger number."""
    return f"{images / seconds:.1f} images/s" if images >= seconds else f"{seconds / images:.1f} s an image"

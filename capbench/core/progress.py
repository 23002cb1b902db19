"""Long work tells how far it is: what is done of how much, and how long the rest takes.

A plain progress is a function that takes numbers of steps. Who shows progress may also tell kinds of work apart
(:class:`Parts`): each kind has a name, a unit and a total of its own, which count only what is really done, so that
what comes from a cache makes no estimate too good. :func:`progress` shows it on stderr: a bar on a terminal, else a
line every half minute.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, TextIO, runtime_checkable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from capbench.core.workers import Spread

__all__ = [
    "LONG_S",
    "Bars",
    "Lines",
    "Parts",
    "Progress",
    "SlowWork",
    "Tally",
    "console",
    "images_progress",
    "part_of",
    "progress",
    "share_of",
    "speed",
    "together",
    "words",
]


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


# How long work is shown on stderr: bars on a terminal, else a line every half minute.

_FIRST_LOOK_S = 5.0  # from when an estimate is believed
_LOOK_S = 1.0


class Lines:
    """A line when long work begins, and every half minute while it goes on.

    Args:
        description: what is worked on; it begins every line.
        total: number of steps, None if nobody knows.
        write: takes a line.
        clock: gives seconds.
    """

    def __init__(
        self,
        description: str,
        total: int | None,
        write: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._description, self._write, self._clock = description, write, clock
        self._whole = self._current = Tally("", total, clock=clock)
        self._said = clock()
        self._is_announced = False
        self._lock = threading.Lock()

    def __call__(self, done: int) -> None:
        """Steps of the whole were done."""
        self._whole.add(done)
        # Parts count what is really done, so they know better how long it takes.
        if self._current is self._whole:
            self.tell()

    def part(self, name: str, total: int, unit: str, expected_s: float | None = None) -> Progress:
        """See :class:`capbench.core.progress.Parts`."""
        tally = self._current = Tally(name, total, unit, expected_s, self._clock)
        if expected_s is not None and expected_s > LONG_S:
            self._say()

        def step(done: int) -> None:
            tally.add(done)
            self._current = tally
            self.tell()

        return step

    def tell(self) -> None:
        """Write a line if it is time for one."""
        tally = self._current
        left = tally.left()
        is_long = tally.done > 0 and tally.seconds >= _FIRST_LOOK_S and left is not None and left > LONG_S
        if self._clock() - self._said >= LONG_S or (is_long and not self._is_announced):
            self._say()

    @contextlib.contextmanager
    def watched(self) -> Iterator[Lines]:
        """Tell also while no step is done for long."""
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(_LOOK_S):
                self.tell()

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            ended.set()
            thread.join()

    def _say(self) -> None:
        with self._lock:
            self._said, self._is_announced = self._clock(), True
            self._write(f"{self._description}: {self._current}")


class Bars:
    """A bar for each kind of work that goes on, or one for the whole where kinds are not told apart.

    Args:
        description: what is worked on.
        total: number of steps, None if nobody knows.
        bar: draws; its tasks have a field ``left``.
    """

    def __init__(self, description: str, total: int | None, bar: Bar) -> None:
        self._description, self._bar = description, bar
        self._whole = Tally("", total)
        self._whole_task = bar.add_task(description, total=total, left="")

    def __call__(self, done: int) -> None:
        """Steps of the whole were done."""
        self._advance(self._whole_task, self._whole, done)

    def part(self, name: str, total: int, unit: str, expected_s: float | None = None) -> Progress:
        """See :class:`capbench.core.progress.Parts`."""
        tally = Tally(name, total, unit, expected_s)
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
    """A console of rich. A file or a pipe has no width: tables are not broken for it."""
    from rich.console import Console

    made = Console(file=file, highlight=False, **settings)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = 200
    return made


def _is_terminal() -> bool:
    """Whether stderr is one to rich, which is asked only where it may be: a pipe needs none of its imports."""
    asks_for_one = any(os.environ.get(name) for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"))
    return (sys.stderr.isatty() or asks_for_one) and console(sys.stderr).is_terminal


def _write(line: str) -> None:
    print(line, file=sys.stderr)


@contextlib.contextmanager
def progress(description: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show on stderr how far work is; yields a function that takes the number of steps done.

    That function tells kinds of work apart, too (:class:`capbench.core.progress.Parts`). On a terminal there are bars;
    else a line when it is clear that the work takes more than half a minute, and every half minute from then on.
    """
    if not _is_terminal():
        with Lines(description, total, _write).watched() as lines:
            yield lines
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )
    with Bar(*columns, console=console(sys.stderr), transient=True) as bar:
        yield Bars(description, total, bar)


def speed(images: int, seconds: float) -> str:
    """Images a second, or seconds an image where that is the larger number."""
    return f"{images / seconds:.1f} images/s" if images >= seconds else f"{seconds / images:.1f} s an image"


@contextlib.contextmanager
def images_progress(description: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A progress bar with images a second and the time left; on a pipe lines, as of :func:`progress`."""
    if not _is_terminal():
        with progress(description, total) as step:
            yield step
        return
    from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, Task, TextColumn
    from rich.progress import Progress as Bar
    from rich.progress import TimeRemainingColumn as Remaining
    from rich.text import Text

    class Speed(ProgressColumn):
        def render(self, task: Task) -> Text:
            rate = task.finished_speed or task.speed
            return Text(speed(1, 1 / rate) if rate else "")

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Speed(), Remaining())
    with Bar(*columns, console=console(sys.stderr), transient=True) as bar:
        task = bar.add_task(description, total=total)
        yield lambda done: bar.advance(task, done)

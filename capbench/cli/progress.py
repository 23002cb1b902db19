"""How long work is shown on stderr: bars on a terminal, else a line every half minute."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from capbench.progress import LONG_S, Progress, Tally, words

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

__all__ = ["Bars", "Lines"]

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
        """See :class:`capbench.progress.Parts`."""
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
        """See :class:`capbench.progress.Parts`."""
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

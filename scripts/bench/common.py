"""Common parts of the benches: settings, repeated measurements in new processes, rows, and the record of a run.

A bench is a module of this package with a function ``measure(settings)`` that yields rows. Both sides of a row run
equally often, in turn, each time in a new process; the run with the least processor time counts. Time is that of all
processors, user and system, child processes included; memory is the peak of the process, inputs included.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import platform
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")
Work = Callable[[], Any]
PACKAGES = ("capbench", "numpy", "scipy", "torch", "pycocoevalcap", "bert-score", "pandas", "h5py", "ray")
HEAD = f"{'':38} {'ours s':>8} {'peer s':>8} {'ratio':>6} {'MB':>6} {'differ':>7}"


class MissingError(Exception):
    """A peer or data that is not installed; the message is the reason in the row."""


@dataclass(frozen=True)
class Settings:
    """Settings of a run."""

    full: bool  # True for the full size
    repeats: int  # runs of each side
    data: str | None  # folder of the published data, or None
    folder: Path  # an empty temporary folder

    def pick(self, small: T, full: T) -> T:
        """The value for the size of this run."""
        return full if self.full else small


@dataclass(frozen=True)
class Measured:
    """Processor time (seconds), peak memory (megabytes of 10⁶ bytes) and result of a process."""

    seconds: float
    megabytes: float
    result: Any


@dataclass(frozen=True)
class Goal:
    """A measured value with its limit; the limit is a maximum unless ``minimum``."""

    value: float
    limit: float
    unit: str
    minimum: bool = False

    @property
    def met(self) -> bool:
        """True if the value is within the limit."""
        return self.value >= self.limit if self.minimum else self.value <= self.limit

    def __str__(self) -> str:
        sign, verdict = ("≥" if self.minimum else "≤"), ("met" if self.met else "MISSED")
        return f"{self.value:.3g} {self.unit} (goal {sign} {self.limit:g}: {verdict})"


@dataclass(frozen=True)
class Row:
    """One measured task."""

    what: str  # the task with its size
    ours: float | None = None  # processor seconds of capbench
    peer: str = ""  # the compared implementation
    theirs: float | None = None  # its processor seconds, for the same work
    megabytes: float | None = None  # peak memory of capbench's process
    difference: float | None = None  # largest absolute difference between the two outputs
    goals: tuple[Goal, ...] = ()  # values with limits
    missing: str = ""  # reason why a number is missing

    @property
    def ratio(self) -> float | None:
        """The peer's time divided by ours."""
        return self.theirs / self.ours if self.theirs is not None and self.ours else None

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Row:
        """The row of a stored entry."""
        fields = {key: value for key, value in entry.items() if key != "ratio"}
        return cls(**fields | {"goals": tuple(Goal(**goal) for goal in entry["goals"])})

    def entry(self) -> dict[str, Any]:
        """The row for JSON."""
        return asdict(self) | {"ratio": self.ratio}

    def cells(self) -> list[str]:
        """Seconds of both sides, ratio, megabytes and difference as texts; empty without a value."""
        seconds = ["" if value is None else f"{value:#.3g}".rstrip(".") for value in (self.ours, self.theirs)]
        ratio = "" if self.ratio is None else f"{self.ratio:.1f}"
        memory = "" if self.megabytes is None else f"{self.megabytes:,.0f}"
        difference = "" if self.difference is None else "equal" if self.difference == 0 else f"{self.difference:.0e}"
        return [*seconds, ratio, memory, difference]

    def notes(self) -> list[str]:
        """Peer, goals and the reason for missing numbers."""
        return (
            [f"peer: {self.peer}"] * bool(self.peer)
            + [str(goal) for goal in self.goals]
            + [self.missing] * bool(self.missing)
        )


def lines(row: Row) -> str:
    """A row for the terminal, at most 80 columns wide."""
    first, *others = textwrap.wrap(row.what, 38)
    widths = (8, 8, 6, 6, 7)
    cells = " ".join(f"{cell:>{width}}" for cell, width in zip(row.cells(), widths, strict=True))
    notes = [line for note in row.notes() for line in textwrap.wrap(note, 76)]
    return "\n".join([f"{first:38} {cells}".rstrip(), *others, *(f"    {note}" for note in notes)])


def largest_difference(a: Any, b: Any) -> float:
    """Largest absolute difference of two arrays; other values are equal (0) or not (infinity)."""
    if isinstance(a, np.ndarray):
        return float(np.abs(a - b).max()) if a.shape == np.shape(b) else np.inf
    return 0.0 if a == b else np.inf


def child(make: Callable[..., Work], *arguments: Any, inner: int = 1) -> Measured:
    """Prepare work in a new process, and measure it there; of ``inner`` runs the fastest counts.

    Raises MissingError: the process fails, with its error.
    """
    context = multiprocessing.get_context("spawn")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_measure, args=(make, arguments, inner, send))
    process.start()
    send.close()
    try:
        answer = receive.recv()
    except EOFError:
        answer = "the process was killed"
    process.join()
    if isinstance(answer, str):
        raise MissingError(answer)
    return Measured(*answer)


def _measure(make: Callable[..., Work], arguments: Sequence[Any], inner: int, pipe: Any) -> None:
    try:
        work = make(*arguments)
        seconds, result = np.inf, None
        for _ in range(inner):
            del result
            before = _processor_seconds()
            result = work()
            seconds = min(seconds, _processor_seconds() - before)
        pipe.send((seconds, _peak(), result))
    except BaseException as error:
        pipe.send(f"{type(error).__name__}: {error}".splitlines()[0])
    pipe.close()
    sys.stdout.flush()
    os._exit(0)  # pycocoevalcap's clean-up may wait for its Java process forever


def _processor_seconds() -> float:
    """User and system seconds of this process, its children that have ended, and those that run (Linux only)."""
    ticks = 0
    for pid in _children():
        with contextlib.suppress(OSError):
            ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
    return time.process_time() + sum(os.times()[2:4]) + ticks / os.sysconf("SC_CLK_TCK")


def _peak() -> float:
    """Peak memory of this process and its running children, or the largest that has ended, in megabytes."""
    import resource

    if sys.platform != "linux":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    total = 0
    # Not ru_maxrss, which a process inherits from the one that starts it.
    for pid in (os.getpid(), *_children()):
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{pid}/status").read_text()
            total += next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")), 0)
    return total * 1024 / 1e6


def _children() -> list[int]:
    listed = subprocess.run(
        ["ps", "-o", "pid=,comm=", "--ppid", str(os.getpid())], capture_output=True, text=True, check=False
    )
    return [int(line.split()[0]) for line in listed.stdout.splitlines() if line.split()[1] != "ps"]


def command(words: Sequence[str], folder: Path, **environment: str) -> Measured:
    """Run a command; the result is what it printed.

    Raises MissingError: it fails, with the end of its messages.
    """
    with (folder / "out").open("w+") as out, (folder / "err").open("w+") as err:
        # The first run compiles modules to byte code, as in an installed package.
        settings = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "CAPBENCH_DATA": "", **environment}
        process = subprocess.Popen(words, stdout=out, stderr=err, env=settings, cwd=folder)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if process.returncode:
            raise MissingError(f"exit code {process.returncode}: {err.read()[-300:].strip()}")
        unit = 1 if sys.platform == "darwin" else 1024
        return Measured(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * unit / 1e6, out.read())


def least(*sides: Callable[[], Measured], repeats: int) -> list[Measured]:
    """The fastest run of each side, with the highest peak; the sides run in turn."""
    rounds = [[side() for side in sides] for _ in range(repeats)]
    return [
        replace(min(runs, key=lambda run: run.seconds), megabytes=max(run.megabytes for run in runs))
        for runs in zip(*rounds, strict=True)
    ]


def between(
    what: str,  # the task
    peer: str,  # the other implementation
    ours: Callable[..., Work],  # called with ``arguments`` in a new process; returns the work to be measured
    theirs: Callable[..., Work],  # the same for the peer
    *arguments: Any,
    repeats: int,  # runs of each
    tolerance: float = 0.0,  # largest allowed difference; beyond it the row has no numbers
    times: float = 1.0,  # how often the peer's work fits into ours, if it does a part of it
    inner: int = 1,  # repetitions in a process, for work of milliseconds that leaves nothing behind
    difference: Callable[[Any, Any], float] = largest_difference,  # of our and the peer's result
) -> Row:
    """A row of two implementations of the same work.

    ``arguments``: data from which both prepare their inputs.
    """
    try:
        mine, other = least(
            lambda: child(ours, *arguments, inner=inner),
            lambda: child(theirs, *arguments, inner=inner),
            repeats=repeats,
        )
    except MissingError as error:
        return _alone(what, peer, ours, arguments, repeats, inner, str(error))
    apart = difference(mine.result, other.result)
    if not apart <= tolerance:
        return Row(what, peer=peer, missing=f"outputs differ by {apart:.1e}, allowed are {tolerance:g}")
    return Row(what, mine.seconds, peer, other.seconds * times, mine.megabytes, apart)


def _alone(
    what: str, peer: str, ours: Callable[..., Work], arguments: Sequence[Any], repeats: int, inner: int, reason: str
) -> Row:
    """Our side only, and the reason."""
    try:
        (mine,) = least(lambda: child(ours, *arguments, inner=inner), repeats=repeats)
    except MissingError as error:
        return Row(what, peer=peer, missing=str(error))
    return Row(what, mine.seconds, peer, megabytes=mine.megabytes, missing=f"the peer is missing: {reason}")


def record(rows: Sequence[Row]) -> dict[str, Any]:
    """Rows with the date, the machine and versions, for JSON."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            versions[package] = version(package)
    machine = {"platform": platform.platform(), "processor": processor(), "cores": os.cpu_count()}
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine | {"load": round(os.getloadavg()[0], 1)},
        "versions": versions,
        "rows": [row.entry() for row in rows],
    }


def processor() -> str:
    """Name of the processor."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()

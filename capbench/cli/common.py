"""What every command shares: consoles, notes, JSON output and progress."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from capbench.errors import UsageError, suggest

if TYPE_CHECKING:
    from rich.console import Console

    from capbench.datasets.root import DataRoot

__all__ = [
    "UNITS",
    "DataOption",
    "EscapeOption",
    "JsonOption",
    "announce_root",
    "check_choice",
    "count",
    "err",
    "images_progress",
    "note",
    "out",
    "print_json",
    "progress",
    "speed",
    "warn",
]

DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Folder of the data sets' files. Default: $CAPBENCH_DATA, else the embedded synthetic sample.",
        show_default=False,
    ),
]
UNITS = ("image", "item", "rating")
"""What can be resampled."""
EscapeOption = Annotated[
    bool,
    typer.Option(
        "--escape-formulas",
        help="In CSV files of --out, an apostrophe before texts that a spreadsheet would take for formulas (=, +, -, "
        "@). They are then no longer the very texts.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print machine-readable JSON on stdout.")]


def out() -> Console:
    """The console for results (stdout). A file or a pipe has no width: tables are not broken for it."""
    from rich.console import Console

    return _wide(Console(highlight=False))


def _wide(console: Console) -> Console:
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = 200
    return console


def err() -> Console:
    """The console for everything that is not a result (stderr)."""
    from rich.console import Console

    return _wide(Console(stderr=True, highlight=False, soft_wrap=True))


def _is_terminal() -> bool:
    """Whether stderr is one to rich, which is asked only where it may be: a pipe needs none of its imports."""
    asks_for_one = any(os.environ.get(name) for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"))
    return (sys.stderr.isatty() or asks_for_one) and err().is_terminal


def note(text: str) -> None:
    """One line of information on stderr."""
    print(text, file=sys.stderr)


def warn(text: str) -> None:
    """One warning line on stderr."""
    err().print(f"[yellow]warning:[/yellow] {_escape(text)}")


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def count(number: int, noun: str) -> str:
    """A number with its noun: ``1 step``, ``1,200 steps``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def print_json(value: Any) -> None:
    """Print a value as JSON on stdout; NaN is refused because JSON has none."""
    print(json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False))


def announce_root(root: DataRoot, *, json_output: bool = False, used: bool = True) -> None:
    """Name the embedded sample in the output's first line, so that nobody takes its numbers for results.

    Nothing is said where only a user's own files are read (``used`` is False).
    """
    if not used:
        return
    if root.is_sample:
        line = "data: embedded synthetic sample (set --data or CAPBENCH_DATA for real judgements)"
        print(line, file=sys.stderr if json_output else sys.stdout, flush=True)
    else:
        note(f"data: {root.path} ({root.origin})")


def check_choice(flag: str, value: str, choices: Sequence[str]) -> None:
    """Raise UsageError, with the nearest choice and all of them, unless the value is one of the choices."""
    if value not in choices:
        raise UsageError(f"{flag} {value}: unknown", hint=suggest(value, list(choices)))


@contextlib.contextmanager
def progress(description: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show on stderr how far work is; yields a function that takes the number of steps done.

    That function tells kinds of work apart, too (:class:`capbench.progress.Parts`). On a terminal there are bars; else
    a line when it is clear that the work takes more than half a minute, and every half minute from then on.
    """
    from capbench.cli.progress import Bars, Lines

    if not _is_terminal():
        with Lines(description, total, note).watched() as lines:
            yield lines
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )
    with Progress(*columns, console=err(), transient=True) as bar:
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
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining
    from rich.text import Text

    class Speed(ProgressColumn):
        def render(self, task: Task) -> Text:
            rate = task.finished_speed or task.speed
            return Text(speed(1, 1 / rate) if rate else "")

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Speed(), Remaining())
    with Progress(*columns, console=err(), transient=True) as bar:
        task = bar.add_task(description, total=total)
        yield lambda done: bar.advance(task, done)

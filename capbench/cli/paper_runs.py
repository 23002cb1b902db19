"""Engine of ``capbench papers``: runs the commands of tables and figures, and records finished runs."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING, NoReturn

from capbench import __version__
from capbench.cli import common
from capbench.core.errors import DataError, StudyError, UsageError

if TYPE_CHECKING:
    from capbench.reports.papers import ItemRun
    from capbench.studies.papers import Prospect

# Commands of capbench as child processes, which end with their parent.

_PATIENCE_S = 10.0  # time for an ending command to clean up


class _Terminated(KeyboardInterrupt):
    """SIGTERM, which only this process receives; the child also receives an interruption from the terminal."""


def call(arguments: Sequence[str]) -> tuple[int, str, list[str]]:
    """Run ``capbench ARGUMENTS``, and print its stderr while it runs.

    Returns:
        Exit code (negative: the number of the signal that ended it), stdout, and the lines of stderr.

    Raises:
        KeyboardInterrupt: this process was interrupted; the command has ended.
    """
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    environment.pop("COLUMNS", None)
    with subprocess.Popen(
        [sys.executable, "-m", "capbench", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        env=environment,
    ) as process:
        lines: list[str] = []
        assert process.stdout is not None and process.stderr is not None  # noqa: PT018  they are pipes
        listener = threading.Thread(target=_listen, args=(process.stderr, lines), daemon=True)
        listener.start()
        try:
            text = process.stdout.read()
            code = process.wait()
        except BaseException as error:
            _end(process, interrupted=isinstance(error, KeyboardInterrupt) and not isinstance(error, _Terminated))
            listener.join(_PATIENCE_S)
            raise
        listener.join()
    return code, text, lines


@contextlib.contextmanager
def ended_like_an_interruption() -> Iterator[None]:
    """Handle SIGTERM, which ``kill`` and job systems send, like Ctrl-C, so that the child process also ends."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread can set a handler
        yield
        return
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise _Terminated


def _end(process: subprocess.Popen[str], *, interrupted: bool) -> None:
    """End a command; one that the terminal already interrupted first gets time to print its last message."""
    if not interrupted:
        process.terminate()
    for end in (process.terminate, process.kill):
        # A second interruption ends the command without delay.
        with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            process.wait(_PATIENCE_S)
            return
        end()
    process.wait()


def _listen(stream: IO[str], lines: list[str]) -> None:
    for line in stream:
        lines.append(line.rstrip("\n"))
        print(f"  {lines[-1]}", file=sys.stderr, flush=True)


_RECORD = "run.json"
_RESULTS = "results.json"
_TEXT = "output.txt"
_LOG = "log.txt"
_PAGE = "index.md"
_REPORT = "report.html"
_LOCK = ".papers"
_INTERRUPTED = 130
_WIDTH = 80
"""Columns of the printed table where stdout is not a terminal."""
_CRASHED = 70
"""Exit code that is recorded for a command that ended with a traceback."""


@dataclass(frozen=True)
class _Todo:
    """An item with its commands.

    Attributes:
        prospect: the item and the parts of it that can be computed.
        commands: arguments of each command.
        folder: output folder.
        fingerprint: hash of everything that the results depend on.
        before: the finished run, if nothing changed since.
        expected_s: expected time in seconds.
    """

    prospect: Prospect
    commands: list[list[str]]
    folder: Path
    fingerprint: str
    before: ItemRun | None
    expected_s: float


def run_items(
    items: Sequence[tuple[Prospect, list[str]]],
    out: Path,
    *,
    again: bool,
    dry_run: bool,
    json_output: bool,
    report_flags: Callable[[Collection[str]], list[str]],
    bootstrap: int | None = None,
) -> int:
    """Run items, and write their common page and report.

    Args:
        items: the items, each with the flags of its commands.
        out: folder of the results.
        again: True to repeat finished items.
        dry_run: True to print the commands only.
        json_output: True to print the runs as JSON.
        report_flags: function from the metrics and labels of all results to the flags of 'capbench figure report'.
        bootstrap: resamples for intervals of tables; None for the number in each study.

    Returns:
        0 if all items are complete, 1 if requirements are missing.

    Raises:
        StudyError: a command failed; the other items are finished.
        UsageError: another process writes to this folder, or it cannot be written.
    """
    from capbench.core.files import check_writable

    if dry_run:
        todos = [_todo(prospect, flags, out, again, bootstrap) for prospect, flags in items]
        _announce(todos)
        _print_dry(todos, json_output=json_output)
        return 0
    check_writable(out / _PAGE)
    with _held(out), ended_like_an_interruption():
        # Finished items are read under the lock, as another process may have been writing them.
        todos = [_todo(prospect, flags, out, again, bootstrap) for prospect, flags in items]
        _announce(todos)
        runs = _make(todos, out)
        _write_page(runs, out, report_flags, json_output=json_output)
    failed = [run.item for _, run in runs if run.state == "failed"]
    if failed:
        raise StudyError(
            f"{len(failed)} of {len(runs)} failed: {', '.join(failed)}",
            code="unfinished",
            value=failed[0],
            hint=f"See {out / failed[0] / _LOG}; the same command repeats only the failed ones",
        )
    return int(any(run.state != "done" for _, run in runs))


def _make(todos: Sequence[_Todo], out: Path) -> list[tuple[Prospect, ItemRun]]:
    """Run the items, and write the page after each one, so that an interrupted run has a page, too.

    Raises:
        typer.Exit: the run was interrupted; the message is printed.
    """
    import typer

    runs: list[tuple[Prospect, ItemRun]] = []
    to_run = [todo for todo in todos if todo.before is None and todo.prospect.is_computable]
    for todo in todos:
        if todo.before is not None:
            runs.append((todo.prospect, todo.before))
        elif not todo.prospect.is_computable:
            runs.append((todo.prospect, _waiting_run(todo)))
        else:
            place = f"{to_run.index(todo) + 1} of {len(to_run)}"
            common.note(f"{todo.prospect.key} ({place}), {_words(todo.expected_s)}")
            try:
                run = _run(todo)
            except KeyboardInterrupt:
                left = len(to_run) - to_run.index(todo)
                _write_index(runs, out)
                common.note(
                    f"interrupted in {todo.prospect.key}, {left} of {len(to_run)} left; {out / _PAGE} shows the "
                    "finished ones; run the same command again to resume"
                )
                raise typer.Exit(_INTERRUPTED) from None
            runs.append((todo.prospect, run))
            common.note(f"{todo.prospect.key}: {run.state_in_words} after {run.seconds:.0f} s")
            _write_index(runs, out)
    return runs


@contextlib.contextmanager
def _held(out: Path) -> Iterator[None]:
    """Lock the folder of results. Raises UsageError immediately if another process has locked it."""
    import filelock

    from capbench.core.files import lock

    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(lock(out / _LOCK, timeout_s=0))
        except UsageError as error:
            if not isinstance(error.__cause__, filelock.Timeout):
                raise
            raise UsageError(
                "another 'capbench papers' process writes to this folder",
                code="in-use",
                path=out,
                hint="Wait until it ends, or choose another folder with --out",
            ) from error
        yield


def _todo(prospect: Prospect, flags: list[str], out: Path, again: bool, bootstrap: int | None) -> _Todo:
    from capbench.reports.papers import load_run
    from capbench.studies.papers import command_lines, fingerprint

    folder = out / prospect.key
    commands = command_lines(prospect, flags, folder, bootstrap)
    print_of_inputs = fingerprint(prospect, commands)
    last = load_run(folder / _RECORD)
    expected = prospect.item.seconds if last is None or not last.seconds else last.seconds
    finished = last is not None and last.fingerprint == print_of_inputs and last.is_finished
    whole = last is not None and not again and finished and not last.damaged(folder)
    return _Todo(prospect, commands, folder, print_of_inputs, last if whole else None, expected)


def _announce(todos: Sequence[_Todo]) -> None:
    """Note the items that will run and their expected time."""
    done = [todo for todo in todos if todo.before is not None]
    waiting = [todo for todo in todos if todo.before is None and not todo.prospect.is_computable]
    rest = [todo for todo in todos if todo not in done and todo not in waiting]
    states = [f"{len(rest)} to run, {_words(sum(todo.expected_s for todo in rest))}"] if rest else ["none to run"]
    states += [f"{len(done)} already finished"] if done else []
    states += [f"{len(waiting)} with missing requirements"] if waiting else []
    items = "1 item" if len(todos) == 1 else f"{len(todos)} items"
    common.note(f"{items}: {', '.join(states)}")
    for todo in rest:
        common.note(f"  {todo.prospect.key}: {_words(todo.expected_s)}")
    if any("SPICE" in todo.prospect.rows for todo in rest):
        common.note("  parsing new captions for SPICE takes additional time; omit it with --without spice")


def _print_dry(todos: Sequence[_Todo], *, json_output: bool) -> None:
    if json_output:
        common.print_json(
            [
                {
                    "item": todo.prospect.key,
                    "todo": _plan_word(todo),
                    "seconds": todo.expected_s,
                    "commands": [["capbench", *command] for command in todo.commands],
                }
                for todo in todos
            ]
        )
        return
    for todo in todos:
        word = _plan_word(todo) if todo.prospect.is_computable else "requirements missing"
        print(f"# {todo.prospect.key}: {word}")
        for command in todo.commands if todo.prospect.is_computable else ():
            print(shlex.join(["capbench", *command]))


def _plan_word(todo: _Todo) -> str:
    if todo.before is not None:
        return "finished"
    return "to make" if todo.prospect.is_computable else todo.prospect.state


def _waiting_run(todo: _Todo) -> ItemRun:
    from capbench.reports.papers import ItemRun

    return ItemRun(
        item=todo.prospect.key,
        capbench=__version__,
        created=_now(),
        fingerprint=todo.fingerprint,
        commands=tuple(tuple(command) for command in todo.commands),
        waiting=dict(todo.prospect.reasons()),
    )


def _run(todo: _Todo) -> ItemRun:
    """Run an item's commands, one process each; stdout and stderr are stored in its folder, stderr is printed, too."""
    from capbench.core.files import sha256_file, write_text
    from capbench.reports.papers import ItemRun

    todo.folder.mkdir(parents=True, exist_ok=True)
    for name in (_RECORD, _RESULTS):
        (todo.folder / name).unlink(missing_ok=True)
    began = time.monotonic()
    codes: list[int] = []
    notes: list[str] = []
    printed: list[str] = []
    for command in todo.commands:
        code, text, lines = call(command)
        # A traceback also exits with 1, the code for missing requirements.
        crashed = code == 1 and any(line.startswith("Traceback (") for line in lines)
        codes.append(_CRASHED if crashed else code)
        # Tables do not name their data set: with several commands, each output is preceded by its command.
        printed.append(f"$ {shlex.join(['capbench', *command])}\n{text}" if len(todo.commands) > 1 else text)
        notes += lines
        if code in (_INTERRUPTED, -2):
            raise KeyboardInterrupt
    write_text(todo.folder / _TEXT, "\n".join(printed))
    write_text(todo.folder / _LOG, "".join(f"{line}\n" for line in notes))
    names = _files_of(todo.folder)
    failed = any(code not in (0, 1) for code in codes)
    errors = [line for line in notes if line.startswith("error:")] or notes[-1:]
    killed = [-code for code in codes if code < 0]
    if killed:  # the last line shows progress only
        errors = [f"ended by {signal.Signals(killed[0]).name}{', possibly out of memory' * (killed[0] == 9)}"]
    run = ItemRun(
        item=todo.prospect.key,
        capbench=__version__,
        created=_now(),
        fingerprint=todo.fingerprint,
        commands=tuple(tuple(command) for command in todo.commands),
        codes=tuple(codes),
        seconds=round(time.monotonic() - began, 1),
        rows=todo.prospect.rows,
        waiting={**dict(todo.prospect.reasons()), **_missing(todo.folder, notes)},
        error=errors[-1] if failed and errors else "",
        files=tuple(names),
        checksums={name: sha256_file(todo.folder / name) for name in names},
    )
    write_text(todo.folder / _RECORD, run.model_dump_json(indent=2) + "\n")
    return run


def _missing(folder: Path, notes: Sequence[str]) -> dict[str, str]:
    """Requirements that the commands reported as missing in results and notes, such as features of single images."""
    from capbench.studies.results import load_result

    missing: dict[str, str] = {}
    if (folder / _RESULTS).is_file():
        result = load_result(folder / _RESULTS)
        for entry in (entry for entry in result.missing if not entry.left_out):
            place = " on ".join(text for text in (entry.title, entry.protocol) if text)
            missing[place] = entry.reason.removeprefix(f"{entry.protocol}: ")
        for cell in result.undefined:
            place = f"{cell.title} on {cell.protocol}{f', {cell.group}' if cell.group else ''}"
            missing[place] = cell.undefined
    for line in notes:
        row, is_missing, reason = line.partition(" missing: ")
        if is_missing:
            missing[row] = reason
    return missing


def _files_of(folder: Path) -> list[str]:
    """Paths of a run's files relative to its folder, without hidden files."""
    paths = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return [str(path) for path in paths if path.name != _RECORD and not path.name.startswith(".")]


def _write_page(
    runs: Sequence[tuple[Prospect, ItemRun]],
    out: Path,
    report_flags: Callable[[Collection[str]], list[str]],
    *,
    json_output: bool,
) -> None:
    folders = _write_index(runs, out, note_damaged=True)
    if json_output:
        common.print_json([run.model_dump(mode="json") | {"state": run.state} for _, run in runs])
    else:
        _print_runs(runs)
    common.note(f"wrote {out / _PAGE}")
    _write_report(folders, out / _REPORT, report_flags)


def _write_index(runs: Sequence[tuple[Prospect, ItemRun]], out: Path, *, note_damaged: bool = False) -> list[Path]:
    """Write the page, and return the folders of its items; ``note_damaged`` notes damaged earlier items."""
    from capbench.core.files import write_text
    from capbench.reports.papers import index_page, load_run
    from capbench.studies.papers import papers

    # Items of an earlier run in the same folder stay on the page, unless one of their files is damaged.
    known = {prospect.key: run for prospect, run in runs}
    for key in papers().items:
        if key in known or (run := load_run(out / key / _RECORD)) is None:
            continue
        if not (damaged := run.damaged(out / key)):
            known[key] = run
        elif note_damaged:
            common.note(
                f"{key} is not on the page: {out / key / damaged} has changed since its run; repeat it with "
                f"'capbench papers {key}'"
            )
    ordered = [known[key] for key in papers().items if key in known]
    write_text(out / _PAGE, index_page(ordered, out))
    return [out / run.item for run in ordered]


def _write_report(folders: Sequence[Path], target: Path, report_flags: Callable[[Collection[str]], list[str]]) -> None:
    """Write the HTML report of all studies' results, with explanations."""
    from capbench.studies.results import load_result

    results: list[Path] = []
    names: set[str] = set()
    for path in (folder / _RESULTS for folder in folders):
        if not path.is_file():
            continue
        try:
            cells = load_result(path).cells
        except DataError as error:  # of an item that failed or whose requirements are now missing
            common.note(f"not in the report: {error}")
            continue
        results.append(path)
        names |= {name for cell in cells for name in (cell.label, cell.metric)}
    if results:
        flags = report_flags(names)
        code, _, _ = call(["figure", "report", *map(str, results), *flags, "--out", str(target)])
        common.note(f"wrote {target}" if code == 0 else f"the report {target} could not be written (exit code {code})")


def _print_runs(runs: Sequence[tuple[Prospect, ItemRun]]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from capbench.studies.results import OURS

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head in ("item", "shows", "state", "time"):
        table.add_column(head, overflow="fold", no_wrap=head == "item", justify="right" if head == "time" else "left")
    for prospect, run in runs:
        item = prospect.item
        shown = f"{item.title} ({OURS})" if item.ours else item.title
        table.add_row(prospect.key, Text(shown), run.state, f"{run.seconds:.0f} s" if run.codes else "")
    console = common.out()
    width = console.width if console.is_terminal else min(console.width, _WIDTH)
    console.print(table, width=width)
    for prospect, run in runs:
        reasons = [f"{', '.join(rows)}: {reason}" for reason, rows in run.reasons.items()]
        for reason in [run.error] if run.error else reasons:
            # A path or a command stays in one piece.
            lines = textwrap.wrap(
                f"{prospect.key}: {reason}",
                width,
                subsequent_indent="  ",
                break_long_words=False,
                break_on_hyphens=False,
            )
            console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


def _words(seconds: float) -> str:
    from capbench.core.progress import words

    return words(max(seconds, 1.0))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")

"""Runs tables and figures of papers, one command after the other, and keeps what was done: the engine of ``papers``."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
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

__all__ = ["call", "ended_like_an_interruption", "run_items"]


# Commands of capbench as processes of their own, which end when the one that began them does.

_PATIENCE_S = 10.0  # for which a command that ends may tidy up


class _Terminated(KeyboardInterrupt):
    """SIGTERM, which reaches this process alone; a terminal's interruption reaches the command, too."""


def call(arguments: Sequence[str]) -> tuple[int, str, list[str]]:
    """Run ``capbench ARGUMENTS``; its stderr is passed on while it runs.

    Returns:
        Exit code (a signal's number, negative, if one ended it), stdout, and the lines of stderr.

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
            _end(process, is_told=isinstance(error, KeyboardInterrupt) and not isinstance(error, _Terminated))
            listener.join(_PATIENCE_S)
            raise
        listener.join()
    return code, text, lines


@contextlib.contextmanager
def ended_like_an_interruption() -> Iterator[None]:
    """Let SIGTERM, with which ``kill`` and job systems end a program, do what Ctrl-C does: the command ends, too."""
    if threading.current_thread() is not threading.main_thread():  # where no handler can be set
        yield
        return
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise _Terminated


def _end(process: subprocess.Popen[str], *, is_told: bool) -> None:
    """See to it that a command ends; one that the terminal told to gets time to say what is kept."""
    if not is_told:
        process.terminate()
    for end in (process.terminate, process.kill):
        # Whoever interrupts a second time has no more patience.
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
_CRASHED = 70
"""Of a command that ended with a traceback."""


@dataclass(frozen=True)
class _Todo:
    """An item with its commands.

    Attributes:
        looked: the item, and what of it can be computed.
        commands: arguments of each command.
        folder: where its files go.
        fingerprint: what its results depend on.
        before: its finished run, if nothing changed since.
        expected_s: how long it should take.
    """

    looked: Prospect
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
    """Make items, and the page of all of them.

    Args:
        items: what is to be made, each with the flags that its commands get.
        out: folder of the results.
        again: whether what is finished is made again.
        dry_run: only say what would be done.
        json_output: whether the runs are printed as JSON.
        report_flags: by the metrics and labels of all results, what 'capbench report' is given for explanations.
        bootstrap: resamples of the intervals of tables; None for what their studies say.

    Returns:
        0 if all is whole, 1 if something waits.

    Raises:
        StudyError: a command failed; the others were made all the same.
        UsageError: another run makes tables and figures in this folder, or it cannot be written.
    """
    from capbench.core.files import check_writable

    if dry_run:
        todos = [_todo(looked, flags, out, again, bootstrap) for looked, flags in items]
        _announce(todos)
        _print_dry(todos, json_output=json_output)
        return 0
    check_writable(out / _PAGE)
    with _held(out), ended_like_an_interruption():
        # Only who holds the folder knows what is finished in it.
        todos = [_todo(looked, flags, out, again, bootstrap) for looked, flags in items]
        _announce(todos)
        runs = _make(todos, out)
        _write_page(runs, out, report_flags, json_output=json_output)
    failed = [run.item for _, run in runs if run.state == "failed"]
    if failed:
        raise StudyError(
            f"{len(failed)} of {len(runs)} failed: {', '.join(failed)}",
            hint=f"{out / failed[0] / _LOG} says why; the same command tries again what failed, and nothing else",
        )
    return int(any(run.state != "done" for _, run in runs))


def _make(todos: Sequence[_Todo], out: Path) -> list[tuple[Prospect, ItemRun]]:
    """Run what is to be run. The page is written after each item, so that whatever ends the run leaves one.

    Raises:
        typer.Exit: interrupted, which was told.
    """
    import typer

    runs: list[tuple[Prospect, ItemRun]] = []
    to_run = [todo for todo in todos if todo.before is None and todo.looked.state != "waits"]
    for todo in todos:
        if todo.before is not None:
            runs.append((todo.looked, todo.before))
        elif todo.looked.state == "waits":
            runs.append((todo.looked, _waiting_run(todo)))
        else:
            place = f"{to_run.index(todo) + 1} of {len(to_run)}"
            common.note(f"{todo.looked.key} ({place}), {_words(todo.expected_s)}")
            try:
                run = _run(todo)
            except KeyboardInterrupt:
                left = len(to_run) - to_run.index(todo)
                _write_index(runs, out)
                common.note(
                    f"interrupted in {todo.looked.key}, {left} of {len(to_run)} left; {out / _PAGE} shows what is "
                    "finished; run the same command again to go on"
                )
                raise typer.Exit(_INTERRUPTED) from None
            runs.append((todo.looked, run))
            common.note(f"{todo.looked.key}: {run.state} after {run.seconds:.0f} s")
            _write_index(runs, out)
    return runs


@contextlib.contextmanager
def _held(out: Path) -> Iterator[None]:
    """Hold the folder of results. Raises UsageError at once if another run holds it."""
    import filelock

    from capbench.core.files import lock

    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(lock(out / _LOCK, timeout_s=0))
        except UsageError as error:
            if not isinstance(error.__cause__, filelock.Timeout):
                raise
            raise UsageError(
                "another 'capbench papers' makes tables and figures in this folder",
                path=out,
                hint="Wait for it, or choose another folder with --out",
            ) from error
        yield


def _todo(looked: Prospect, flags: list[str], out: Path, again: bool, bootstrap: int | None) -> _Todo:
    from capbench.reports.papers import load_run
    from capbench.studies.papers import command_lines, fingerprint

    folder = out / looked.key
    commands = command_lines(looked, flags, folder, bootstrap)
    print_of_inputs = fingerprint(looked, commands)
    last = load_run(folder / _RECORD)
    expected = looked.item.seconds if last is None or not last.seconds else last.seconds
    finished = last is not None and last.fingerprint == print_of_inputs and last.is_finished
    whole = last is not None and not again and finished and not last.damaged(folder)
    return _Todo(looked, commands, folder, print_of_inputs, last if whole else None, expected)


def _announce(todos: Sequence[_Todo]) -> None:
    """Say what will be done and how long it takes, before it begins."""
    done = [todo for todo in todos if todo.before is not None]
    waiting = [todo for todo in todos if todo.before is None and todo.looked.state == "waits"]
    rest = [todo for todo in todos if todo not in done and todo not in waiting]
    told = [f"{len(rest)} to make, {_words(sum(todo.expected_s for todo in rest))}"] if rest else ["nothing to make"]
    told += [f"{len(done)} finished before"] if done else []
    told += [f"{len(waiting)} wait{'s' if len(waiting) == 1 else ''}"] if waiting else []
    what = "1 table or figure" if len(todos) == 1 else f"{len(todos)} tables and figures"
    common.note(f"{what}: {', '.join(told)}")
    for todo in rest:
        common.note(f"  {todo.looked.key}: {_words(todo.expected_s)}")
    if any("SPICE" in todo.looked.rows for todo in rest):
        common.note(
            "  where SPICE has not parsed a caption before, its parse comes on top: the command says how long; "
            "leave it out with --without spice"
        )


def _print_dry(todos: Sequence[_Todo], *, json_output: bool) -> None:
    if json_output:
        common.print_json(
            [
                {
                    "item": todo.looked.key,
                    "todo": _plan_word(todo),
                    "seconds": todo.expected_s,
                    "commands": [["capbench", *command] for command in todo.commands],
                }
                for todo in todos
            ]
        )
        return
    for todo in todos:
        print(f"# {todo.looked.key}: {_plan_word(todo)}")
        for command in todo.commands if todo.looked.state != "waits" else ():
            print(shlex.join(["capbench", *command]))


def _plan_word(todo: _Todo) -> str:
    if todo.before is not None:
        return "finished"
    return "waits" if todo.looked.state == "waits" else "to make"


def _waiting_run(todo: _Todo) -> ItemRun:
    from capbench.reports.papers import ItemRun

    return ItemRun(
        item=todo.looked.key,
        capbench=__version__,
        created=_now(),
        fingerprint=todo.fingerprint,
        commands=tuple(tuple(command) for command in todo.commands),
        waiting=dict(todo.looked.reasons()),
    )


def _run(todo: _Todo) -> ItemRun:
    """Run an item's commands, one process each; what they print goes to its folder, what they say to stderr, too."""
    from capbench.core.files import sha256_file, write_text
    from capbench.reports.papers import ItemRun

    todo.folder.mkdir(parents=True, exist_ok=True)
    for name in (_RECORD, _RESULTS):
        (todo.folder / name).unlink(missing_ok=True)
    began = time.monotonic()
    codes: list[int] = []
    said: list[str] = []
    printed: list[str] = []
    for command in todo.commands:
        code, text, lines = call(command)
        # A crash ends with 1, too, which else says that something waits.
        crashed = code == 1 and any(line.startswith("Traceback (") for line in lines)
        codes.append(_CRASHED if crashed else code)
        # Of several commands each has its line above what it printed: tables do not name their data set.
        printed.append(f"$ {shlex.join(['capbench', *command])}\n{text}" if len(todo.commands) > 1 else text)
        said += lines
        if code in (_INTERRUPTED, -2):
            raise KeyboardInterrupt
    write_text(todo.folder / _TEXT, "\n".join(printed))
    write_text(todo.folder / _LOG, "".join(f"{line}\n" for line in said))
    names = _files_of(todo.folder)
    failed = any(code not in (0, 1) for code in codes)
    errors = [line for line in said if line.startswith("error:")] or said[-1:]
    killed = [-code for code in codes if code < 0]
    if killed:  # the last line is then only how far it was
        errors = [f"ended by {signal.Signals(killed[0]).name}{', perhaps for want of memory' * (killed[0] == 9)}"]
    run = ItemRun(
        item=todo.looked.key,
        capbench=__version__,
        created=_now(),
        fingerprint=todo.fingerprint,
        commands=tuple(tuple(command) for command in todo.commands),
        codes=tuple(codes),
        seconds=round(time.monotonic() - began, 1),
        rows=todo.looked.rows,
        waiting={**dict(todo.looked.reasons()), **_missing(todo.folder, said)},
        error=errors[-1] if failed and errors else "",
        files=tuple(names),
        checksums={name: sha256_file(todo.folder / name) for name in names},
    )
    write_text(todo.folder / _RECORD, run.model_dump_json(indent=2) + "\n")
    return run


def _missing(folder: Path, said: Sequence[str]) -> dict[str, str]:
    """What the commands found out to be missing, such as features of single images: from their results and notes."""
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
    for line in said:
        what, waits, reason = line.partition(" waits: ")
        if waits:
            missing[what] = reason
    return missing


def _files_of(folder: Path) -> list[str]:
    """Files that a run left, without hidden ones, as paths in its folder."""
    paths = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return [str(path) for path in paths if path.name != _RECORD and not path.name.startswith(".")]


def _write_page(
    runs: Sequence[tuple[Prospect, ItemRun]],
    out: Path,
    report_flags: Callable[[Collection[str]], list[str]],
    *,
    json_output: bool,
) -> None:
    folders = _write_index(runs, out, tell=True)
    if json_output:
        common.print_json([run.model_dump(mode="json") | {"state": run.state} for _, run in runs])
    else:
        _print_runs(runs)
    common.note(f"wrote {out / _PAGE}")
    _write_report(folders, out / _REPORT, report_flags)


def _write_index(runs: Sequence[tuple[Prospect, ItemRun]], out: Path, *, tell: bool = False) -> list[Path]:
    """The page; gives the folders of the items on it. ``tell``: name the earlier items that are left off."""
    from capbench.core.files import write_text
    from capbench.reports.papers import index_page, load_run
    from capbench.studies.papers import papers

    # Items of an earlier run in the same folder stay on the page, unless a file of theirs is damaged.
    known = {looked.key: run for looked, run in runs}
    for key in papers().items:
        if key in known or (run := load_run(out / key / _RECORD)) is None:
            continue
        if not (damaged := run.damaged(out / key)):
            known[key] = run
        elif tell:
            common.note(
                f"{key} is left off the page: {out / key / damaged} is not what its run wrote; 'capbench papers {key}' "
                "makes it again"
            )
    ordered = [known[key] for key in papers().items if key in known]
    write_text(out / _PAGE, index_page(ordered, out))
    return [out / run.item for run in ordered]


def _write_report(folders: Sequence[Path], target: Path, report_flags: Callable[[Collection[str]], list[str]]) -> None:
    """The report that opens in a browser, of all studies' results, with explanations of what is given."""
    from capbench.studies.results import load_result

    results: list[Path] = []
    names: set[str] = set()
    for path in (folder / _RESULTS for folder in folders):
        if not path.is_file():
            continue
        try:
            cells = load_result(path).cells
        except DataError as error:  # of an item that now waits, or that failed
            common.note(f"left out of the report: {error}")
            continue
        results.append(path)
        names |= {name for cell in cells for name in (cell.label, cell.metric)}
    if results:
        flags = report_flags(names)
        code, _, _ = call(["report", *map(str, results), *flags, "--out", str(target)])
        common.note(f"wrote {target}" if code == 0 else f"the report {target} could not be written (exit code {code})")


def _print_runs(runs: Sequence[tuple[Prospect, ItemRun]]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from capbench.studies.papers import OURS

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head in ("item", "shows", "state", "time", "why"):
        table.add_column(head, overflow="fold", no_wrap=head == "item", justify="right" if head == "time" else "left")
    for looked, run in runs:
        item = looked.item
        why = run.error or "; ".join(f"{', '.join(waiting)}: {reason}" for reason, waiting in run.reasons.items())
        shown = f"{item.title} ({OURS})" if item.ours else item.title
        table.add_row(
            looked.key, Text(shown), run.state, f"{run.seconds:.0f} s" if run.codes else "", Text(_short(why))
        )
    common.out().print(table)


def _short(text: str) -> str:
    return text if len(text) <= 110 else f"{text[:109]}…"


def _words(seconds: float) -> str:
    from capbench.core.progress import words

    return words(max(seconds, 1.0))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")

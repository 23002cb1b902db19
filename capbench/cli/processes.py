"""Commands of capbench as processes of their own, which end when the one that began them does."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import IO, NoReturn

__all__ = ["call", "ended_like_an_interruption"]

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

"""METEOR over several processes.

Workers are plain child processes that read tasks and write counts, a line of JSON each: unlike ``multiprocessing`` this
neither copies a process with threads in it nor imports the caller's main module again.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import capbench
from capbench.errors import CapbenchError
from capbench.text.meteor.paraphrases import paraphrase_table
from capbench.text.meteor.scores import chunk_statistics

__all__ = ["main", "spread"]

Task = tuple[Sequence[str], Sequence[Sequence[str]]]
_Answer = tuple[int, list[list[int]] | BaseException]


def spread(tasks: Sequence[Task], workers: int) -> Iterator[tuple[int, list[list[int]]]]:
    """Do tasks in worker processes, and give them back as they are done.

    The task that a worker had in hand when it died, or that it could not be started for, is done in this process.

    Args:
        tasks: each a list of candidates, and for each of these a list of references.
        workers: number of processes at most.

    Yields:
        Number of the task, from 0, and the counts of its candidates.

    Raises:
        CapbenchError: a task cannot be done.
    """
    paraphrase_table()  # made once, here, and not by every worker for itself
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    answers: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
    for number in range(len(tasks)):
        waiting.put(number)
    children: list[subprocess.Popen[str]] = []
    stop = threading.Event()
    threads = [
        threading.Thread(target=_serve, args=(tasks, waiting, answers, children, stop), daemon=True)
        for _ in range(min(workers, len(tasks)))
    ]
    try:
        for thread in threads:
            thread.start()
        for _ in tasks:
            number, answer = answers.get()
            if isinstance(answer, BaseException):
                raise answer
            yield number, answer
    finally:
        stop.set()
        for child in list(children):
            with contextlib.suppress(OSError):
                child.kill()
        for thread in threads:
            thread.join()


def _serve(
    tasks: Sequence[Task],
    waiting: queue.SimpleQueue[int],
    answers: queue.SimpleQueue[_Answer],
    children: list[subprocess.Popen[str]],
    stop: threading.Event,
) -> None:
    with contextlib.ExitStack() as cleanup:
        child: subprocess.Popen[str] | None = None
        with contextlib.suppress(OSError):
            child = _start()
            cleanup.callback(_end, child)
            children.append(child)
        while not stop.is_set():
            try:
                number = waiting.get_nowait()
            except queue.Empty:
                return
            answer: list[list[int]] | BaseException | None = None
            if child is not None:
                answer = _ask(child, tasks[number])
                if answer is None:
                    child.kill()
                    child = None
            if answer is None and not stop.is_set():
                try:
                    answer = chunk_statistics(*tasks[number])
                except BaseException as error:  # handed to the caller's thread, which raises it
                    answer = error
            if answer is not None:
                answers.put((number, answer))


def _start() -> subprocess.Popen[str]:
    root = str(Path(capbench.__file__).resolve().parent.parent)
    path = os.pathsep.join(folder for folder in (root, os.environ.get("PYTHONPATH", "")) if folder)
    code = "from capbench.text.meteor.parallel import main; main()"
    return subprocess.Popen(
        [sys.executable, "-P", "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # a failure is done again in this process, which tells its reason
        encoding="utf-8",
    )


def _end(child: subprocess.Popen[str]) -> None:
    child.kill()
    with contextlib.suppress(OSError):  # what was not read of a killed child's task is written when its pipe is closed
        child.communicate()


def _ask(child: subprocess.Popen[str], task: Task) -> list[list[int]] | None:
    assert child.stdin is not None
    assert child.stdout is not None
    candidates, references = task
    try:
        child.stdin.write(json.dumps([list(candidates), [list(group) for group in references]]) + "\n")
        child.stdin.flush()
        rows = json.loads(child.stdout.readline())
    except (OSError, ValueError):
        return None
    return rows if isinstance(rows, list) and len(rows) == len(candidates) else None


def main() -> None:
    """A worker: for each line ``[candidates, references]`` on stdin a line of counts on stdout."""
    for line in sys.stdin:
        try:
            rows = chunk_statistics(*json.loads(line))
        except CapbenchError:
            sys.exit(2)
        print(json.dumps(rows), flush=True)

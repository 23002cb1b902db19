"""Ctrl-C while a network is trained: the step is finished, a checkpoint is written, and the run can go on."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

__all__ = ["stop_on_signal"]


@contextlib.contextmanager
def stop_on_signal(say: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Yields a function that is true once Ctrl-C or SIGTERM has come; a second Ctrl-C interrupts at once.

    It is the ``stop`` of :func:`capbench.training.loop.train`. Outside of the main thread no signal is caught.

    Args:
        say: is told, once, that training stops and how to stop it at once.
    """
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return

    def ask(number: int, _frame: object) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        say("stopping after this step (once more to stop at once)")

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

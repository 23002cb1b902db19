"""Batches made ahead of their use, by a thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import TypeVar

__all__ = ["prefetch"]

_T = TypeVar("_T")


def prefetch(items: Iterator[_T], depth: int = 2) -> Iterator[_T]:
    """The same items, made by a thread ahead of their use. An error in it is raised where the item would have come.

    Args:
        items: none of them is None.
        depth: how many may wait to be used.
    """
    ready: queue.Queue[tuple[_T | None, BaseException | None]] = queue.Queue(maxsize=depth)
    leave = threading.Event()

    def put(item: _T | None, error: BaseException | None) -> None:
        while not leave.is_set():
            try:
                ready.put((item, error), timeout=0.1)
                return
            except queue.Full:
                continue

    def work() -> None:
        try:
            for item in items:
                put(item, None)
                if leave.is_set():
                    return
        except BaseException as error:
            put(None, error)
            return
        put(None, None)

    thread = threading.Thread(target=work, name="prefetch", daemon=True)
    thread.start()
    try:
        while True:
            item, error = ready.get()
            if error is not None:
                raise error
            if item is None:
                return
            yield item
    finally:
        leave.set()
        thread.join()

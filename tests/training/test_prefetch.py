from __future__ import annotations

import threading
from collections.abc import Generator, Iterator

from capbench.core.errors import DataError
from capbench.training.loop import prefetch
from tests.errors import raises


def test_prefetching_changes_nothing_and_hands_errors_on() -> None:
    assert list(prefetch(iter(range(50)))) == list(range(50))

    def broken() -> Iterator[int]:
        yield 1
        raise DataError("cannot be read", code="unreadable", path="captions.txt")

    items = prefetch(broken())
    assert next(items) == 1
    with raises(DataError, "unreadable", path="captions.txt"):
        next(items)


def test_a_prefetching_thread_ends_with_its_reader() -> None:
    items = prefetch(iter(range(10**9)))
    assert next(items) == 0
    assert isinstance(items, Generator)
    items.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "prefetch"]

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator

import pytest

from capbench.core.errors import CapbenchError, DataError
from capbench.training.loop import prefetch


def test_prefetching_changes_nothing_and_hands_errors_on() -> None:
    assert list(prefetch(iter(range(50)))) == list(range(50))

    def broken() -> Iterator[int]:
        yield 1
        raise DataError("the disk is gone")

    items = prefetch(broken())
    assert next(items) == 1
    with pytest.raises(CapbenchError, match="the disk is gone"):
        next(items)


def test_a_prefetching_thread_ends_with_its_reader() -> None:
    items = prefetch(iter(range(10**9)))
    assert next(items) == 0
    assert isinstance(items, Generator)
    items.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "prefetch"]

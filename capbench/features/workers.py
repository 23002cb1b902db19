"""Decoding and preparing images in other processes, a few images ahead of the network.

Prepared images are large (13 MB for a network that sees 800 x 1333 pixels): their arrays travel through shared memory
where there is room for them, and only a short message goes through the pipe.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import connection, shared_memory
from pathlib import Path
from typing import Any

from capbench.errors import CapbenchError, ToolError
from capbench.features.images import ImageFile, decode

__all__ = ["Prepared", "prepare_all"]

_SHARED_FROM = 1 << 16
Preprocessor = Callable[[Any], Any]


@dataclass(frozen=True, eq=False)
class Prepared:
    """An image ready for the network, or why it is not.

    Attributes:
        source: the image.
        value: what the detector's preprocessor gave; None if there is an error.
        error: why the image cannot be used.
    """

    source: ImageFile
    value: Any
    error: CapbenchError | None = None


def prepare_all(images: Iterable[ImageFile], preprocessor: Preprocessor, workers: int) -> Iterator[Prepared]:
    """Decode and prepare images, in their order.

    Args:
        images: what to read.
        preprocessor: uint8 (h, w, 3) RGB to what the network takes; it must pickle if there are workers.
        workers: number of processes; 0 works in this one.

    Raises:
        ToolError: a worker process died.
    """
    if workers <= 0:
        for image in images:
            yield _here(image, preprocessor)
        return
    # Processes are spawned: a fork would inherit the network's threads and locks, and the lock on the store.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, initializer=_begin, initargs=(pickle.dumps(preprocessor),))
    waiting: deque[tuple[ImageFile, Future[_Message]]] = deque()
    todo = iter(images)
    try:
        while True:
            while len(waiting) < 2 * workers + 2:
                following = next(todo, None)
                if following is None:
                    break
                waiting.append((following, pool.submit(_work, following.path)))
            if not waiting:
                return
            image, future = waiting.popleft()
            yield _received(image, future.result())
    except BrokenProcessPool as error:
        raise ToolError(
            "a worker process that decodes images died", hint="Perhaps memory ran out: use fewer with --workers"
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        for _, future in waiting:  # what was prepared and is not wanted any more
            if future.done() and not future.cancelled() and future.exception() is None:
                _received(ImageFile("", Path()), future.result())


def _here(image: ImageFile, preprocessor: Preprocessor) -> Prepared:
    try:
        return Prepared(image, preprocessor(decode(image.path)))
    except CapbenchError as error:
        return Prepared(image, None, error)


# -- in a worker ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Message:
    """A pickle without its arrays; these lie in shared memory, or follow if there was no room."""

    pickled: bytes
    sizes: tuple[int, ...] = ()
    shared: str | None = None
    buffers: tuple[bytes, ...] = ()
    error: CapbenchError | None = None


_preprocessor: Preprocessor | None = None


def _begin(pickled: bytes) -> None:
    global _preprocessor
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_leave_with, args=(parent.sentinel,), daemon=True).start()
    _preprocessor = pickle.loads(pickled)


def _leave_with(sentinel: Any) -> None:
    """Do not outlive a parent that was killed."""
    connection.wait([sentinel])
    os._exit(1)


def _work(path: Path) -> _Message:
    assert _preprocessor is not None
    try:
        value = _preprocessor(decode(path))
    except CapbenchError as error:
        return _Message(b"", error=error)
    buffers: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    raw = [buffer.raw() for buffer in buffers]
    sizes = tuple(len(buffer) for buffer in raw)
    if sum(sizes) >= _SHARED_FROM:
        name = _share(raw, sum(sizes))
        if name is not None:
            return _Message(pickled, sizes, shared=name)
    return _Message(pickled, sizes, buffers=tuple(bytes(buffer) for buffer in raw))


def _share(buffers: list[memoryview], size: int) -> str | None:
    try:
        block = shared_memory.SharedMemory(create=True, size=size)
    except OSError:
        return None
    try:
        if hasattr(os, "posix_fallocate"):  # without it a full /dev/shm kills the process when it is written
            os.posix_fallocate(block._fd, 0, size)  # type: ignore[attr-defined]
        assert block.buf is not None
        position = 0
        for buffer in buffers:
            block.buf[position : position + len(buffer)] = buffer
            position += len(buffer)
        return block.name
    except OSError:
        block.unlink()
        return None
    finally:
        block.close()


# -- back in this process ---------------------------------------------------------------------------------------------


def _received(image: ImageFile, message: _Message) -> Prepared:
    if message.error is not None:
        return Prepared(image, None, message.error)
    if message.shared is None:
        return Prepared(image, pickle.loads(message.pickled, buffers=[bytearray(buffer) for buffer in message.buffers]))
    block = shared_memory.SharedMemory(message.shared)
    try:
        block.unlink()
        assert block.buf is not None
        copies, position = [], 0
        for size in message.sizes:  # copied, so that nothing looks into the block when it is closed
            copies.append(bytearray(block.buf[position : position + size]))
            position += size
    finally:
        block.close()
    return Prepared(image, pickle.loads(message.pickled, buffers=copies))

"""Feature extraction: images through a detector into a store, resumable, in shards, with a list of unusable images.

Other processes decode and preprocess images, a few images ahead of the network. Preprocessed images are large (13 MB
for a network that reads 800 x 1333 pixels): their arrays are passed in shared memory if it has room, and only a short
message passes through the pipe.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from multiprocessing import connection, shared_memory
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from capbench.core import files
from capbench.core.errors import CapbenchError, FeatureError, ToolError, UsageError, check_choice
from capbench.core.machine import usable_cores
from capbench.core.workers import PartFailure, Spread
from capbench.features.images import ImageFile, decode
from capbench.features.layout import DTYPES
from capbench.features.records import Fingerprint, RegionFeatures
from capbench.features.store import FeatureStore
from capbench.features.writing import StoreWriter

if TYPE_CHECKING:
    from capbench.features.detectors.base import Detector

_SHARED_FROM = 1 << 16
Preprocessor = Callable[[Any], Any]


@dataclass(frozen=True, eq=False)
class Prepared:
    """An image ready for the network, or the error that prevents it.

    Attributes:
        source: the image.
        value: result of the detector's preprocessor; None if there is an error.
        error: the reason why the image cannot be used.
    """

    source: ImageFile
    value: Any
    error: CapbenchError | None = None


def prepare_all(images: Iterable[ImageFile], preprocessor: Preprocessor, workers: int) -> Iterator[Prepared]:
    """Decode and prepare images, in their order.

    Args:
        images: the images.
        preprocessor: turns uint8 (h, w, 3) RGB into the network's input; it must pickle if there are workers.
        workers: number of processes; 0 for this process.

    Raises:
        ToolError: a worker process died.
    """
    if workers <= 0:
        for image in images:
            yield _prepare_here(image, preprocessor)
        return
    # Spawned, since a forked process would inherit the network's threads and locks, and the lock on the store.
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
            "a worker process that decodes images died",
            hint="If memory ran out, use fewer processes with --workers",
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        for _, future in waiting:  # releases the shared memory of unused images
            if future.done() and not future.cancelled() and future.exception() is None:
                _received(ImageFile("", Path()), future.result())


def _prepare_here(image: ImageFile, preprocessor: Preprocessor) -> Prepared:
    try:
        return Prepared(image, preprocessor(decode(image.path)))
    except CapbenchError as error:
        return Prepared(image, None, error)


# -- in a worker ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Message:
    """A pickle without its arrays, which lie in shared memory or, if it had no room, in ``buffers``."""

    pickled: bytes
    sizes: tuple[int, ...] = ()
    shared: str | None = None
    buffers: tuple[bytes, ...] = ()
    error: CapbenchError | None = None


_preprocessor: Preprocessor | None = None


def _begin(pickled: bytes) -> None:
    global _preprocessor
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles interrupts
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_leave_with, args=(parent.sentinel,), daemon=True).start()
    _preprocessor = pickle.loads(pickled)


def _leave_with(sentinel: Any) -> None:
    """Exit when the parent has ended."""
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
        if hasattr(os, "posix_fallocate"):  # otherwise writing to a full /dev/shm kills the process
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


# -- in the parent process --------------------------------------------------------------------------------------------


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
        for size in message.sizes:  # copied, so that no array refers to the block when it is closed
            copies.append(bytearray(block.buf[position : position + size]))
            position += size
    finally:
        block.close()
    return Prepared(image, pickle.loads(message.pickled, buffers=copies))


_IMAGES_A_PART = 16
_WORKER_MB = 2500  # a large network on a CPU


@dataclass(frozen=True)
class Failure:
    """An image without features.

    Attributes:
        image: its id.
        file: its file, ``""`` if it does not exist.
        reason: the error message.
    """

    image: str
    file: str
    reason: str


@dataclass(frozen=True)
class Shard:
    """Part ``index`` (from 1) of ``count``."""

    index: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read ``i/n``. Raises UsageError for any other text."""
        index, slash, count = text.partition("/")
        if not slash or not index.isdecimal() or not count.isdecimal() or not 1 <= int(index) <= int(count):
            raise UsageError(
                f"'{text}' is not a shard", code="wrong-value", value=text, hint="Example: 1/4, 2/4, 3/4, 4/4"
            )
        return cls(int(index), int(count))

    def path(self, whole: Path) -> Path:
        """The file of this shard: ``a.h5`` → ``a.shard-1-of-4.h5``."""
        return whole.with_name(f"{whole.stem}.shard-{self.index}-of-{self.count}{whole.suffix}")


@dataclass(frozen=True, eq=False)
class Extracted:
    """Result of an extraction.

    Attributes:
        store: the finished store.
        images: number of requested images.
        extracted: number of images that this run passed through the network.
        resumed: number of images that an interrupted run left in the journal.
        failures: images without features.
        seconds: ``total`` time of the loop over images; of it ``network`` in the detector, ``waiting`` for decoded
            images, ``writing`` the journal; and ``finishing``, the time to write the final file.
    """

    store: FeatureStore
    images: int
    extracted: int
    resumed: int
    failures: tuple[Failure, ...]
    seconds: dict[str, float]


def default_workers(device: str) -> int:
    """Number of processes that decode images: 0 on a CPU, where the network takes most of the time and all cores."""
    if not device.startswith("cuda"):
        return 0
    return max(1, min(8, usable_cores() - 1))


def report_path(target: str | os.PathLike[str]) -> Path:
    """The file that lists images without features, one JSON object per line."""
    return Path(f"{os.fspath(target)}.failed.jsonl")


def extract(
    images: Sequence[ImageFile],
    detector: Detector,
    target: str | os.PathLike[str],
    *,
    missing: Sequence[str] = (),
    shard: Shard | None = None,
    workers: int = 0,
    threads: int | None = None,
    spread: Spread | None = None,
    opener: Callable[[], Detector] | None = None,
    dtype: str = "float32",
    compression: str | None = None,
    restart: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Extracted:
    """Extract features of images into a store; existing features are kept.

    Images pass through the network in groups of the detector's batch size, which depend only on the list of images,
    not on finished images or shards. Therefore an interrupted run, merged shards, and any number of workers under
    ``spread`` write the same bytes as one run.

    Args:
        images: the images, each id once.
        detector: from :func:`capbench.features.detectors.base.load_detector`.
        target: the store.
        missing: ids of images without a file, for the report.
        shard: only this part of the groups.
        workers: processes that decode and preprocess; 0 for this process.
        threads: threads of the network on a CPU, if the user chose their number: the fingerprint then contains it,
            since it changes last digits.
        spread: runs the work in other processes; ``workers`` is then ignored.
        opener: opens the detector in those processes.
        dtype: type of the stored features.
        compression: of the store.
        restart: discard existing features.
        progress: called with numbers of images done.

    Raises:
        FeatureError: the store contains another detector's features, or no image could be used.
        UsageError: the store cannot be written; finished images are kept.
        ToolError: a worker process died.
        KeyboardInterrupt: Ctrl-C or SIGTERM; its text says how many images are stored.
    """
    groups = grouped(images, detector)
    if shard is not None:
        groups = groups[shard.index - 1 :: shard.count]
        missing = missing[shard.index - 1 :: shard.count]
    if not groups:
        raise UsageError("there are no images for this shard", code="missing-image", hint="Use fewer shards")
    step = progress or (lambda _done: None)
    failures = [Failure(image, "", "the file is missing") for image in missing]
    seconds = dict.fromkeys(("total", "network", "waiting", "writing", "finishing"), 0.0)
    requested = [*missing, *(entry.image for group in groups for entry in group)]
    with (
        StoreWriter(
            target,
            fingerprint_of(detector, threads),
            dtype=dtype,
            compression=compression,
            class_names=detector.class_names,
            attribute_names=detector.attribute_names,
            restart=restart,
        ) as writer,
        _naming_what_is_stored(writer, requested, restart=restart),
    ):
        done = writer.done
        parts = parts_of(groups, done)
        todo = [group for part in parts for group in part]
        step(sum(len(group) for group in groups) - sum(len(group) for group in todo))
        begin = time.perf_counter()
        count = 0
        with contextlib.ExitStack() as stack:
            if spread is None:
                results = _here(todo, detector, workers, seconds)
            else:
                results = _spread(parts, spread, opener or (lambda: detector))
            stack.callback(results.close)  # type: ignore[attr-defined]
            for detected in results:
                failures += detected.failures
                started = time.perf_counter()
                for regions in detected.records:
                    if regions.image in done:
                        continue
                    failure = _add(writer, regions, detected.group)
                    failures += [failure] if failure else []
                    count += failure is None
                seconds["writing"] += time.perf_counter() - started
                step(len(detected.group))
        seconds["total"] = time.perf_counter() - begin
        order = {image: place for place, image in enumerate(requested)}
        failures.sort(key=lambda failure: order[failure.image])
        earlier = [] if restart else _reported(report_path(target))
        still_missing = [failure for failure in earlier if failure.image not in order and failure.image not in writer]
        _report(report_path(target), [*still_missing, *failures])
        if not writer.done:
            raise FeatureError(
                f"none of the {len(requested) - len(missing):,} images could be used; the first: "
                f"{failures[0].file or failures[0].image}: {failures[0].reason}",
                code="unreadable",
                value=failures[0].image,
                hint=f"All images are listed in {report_path(target)}",
            )
        resumed = writer.resumed
        started = time.perf_counter()
        store = writer.finish()
        seconds["finishing"] = time.perf_counter() - started
    return Extracted(store, len(requested), count, resumed, tuple(failures), seconds)


@contextlib.contextmanager
def _naming_what_is_stored(writer: StoreWriter, images: Sequence[str], *, restart: bool) -> Iterator[None]:
    """Give a KeyboardInterrupt the number of stored images and the way to resume as its text."""
    try:
        yield
    except KeyboardInterrupt as interruption:
        again = "run the same command again" + (" without --restart" if restart else "")
        stored = sum(image in writer for image in images)
        raise KeyboardInterrupt(f"{stored:,} of {len(images):,} images are stored; {again} to resume") from interruption


Group = Sequence[ImageFile]
"""Images that pass through the network together."""


def grouped(images: Sequence[ImageFile], detector: Detector) -> list[Group]:
    """Images in groups of the detector's batch size."""
    batch = int(getattr(detector, "batch", 1)) if detector.batchable else 1
    return [images[start : start + batch] for start in range(0, len(images), batch)]


def parts_of(groups: Sequence[Group], done: Container[str] = ()) -> list[list[Group]]:
    """Parts of some 16 images each, without finished groups; these do not change the division into parts."""
    if not groups:
        return []
    a_part = max(1, _IMAGES_A_PART // len(groups[0]))
    cut = (groups[start : start + a_part] for start in range(0, len(groups), a_part))
    parts = [[group for group in part if any(entry.image not in done for entry in group)] for part in cut]
    return [part for part in parts if part]


def fingerprint_of(detector: Detector, threads: int | None) -> Fingerprint:
    """The detector's fingerprint, with the number of threads if the user chose it and the device is a CPU."""
    fingerprint = detector.fingerprint()
    if threads is None or detector.device != "cpu":
        return fingerprint
    return dataclasses.replace(fingerprint, versions=tuple(sorted((*fingerprint.versions, ("threads", str(threads))))))


@dataclass(frozen=True, eq=False)
class _Detected:
    """Result of one group."""

    group: Group
    records: Sequence[RegionFeatures]
    failures: Sequence[Failure]


def _here(todo: Sequence[Group], detector: Detector, workers: int, seconds: dict[str, float]) -> Iterator[_Detected]:
    """Pass groups through the network in this process; adds to ``seconds``."""
    source = prepare_all((entry for group in todo for entry in group), detector.preprocessor, workers)
    try:
        for group in todo:
            started = time.perf_counter()
            prepared = [next(source) for _ in group]
            seconds["waiting"] += time.perf_counter() - started
            yield _Detected(group, *_detect(detector, prepared, seconds))
    finally:
        source.close()  # type: ignore[attr-defined]


def _spread(parts: Sequence[Sequence[Group]], spread: Spread, opener: Callable[[], Detector]) -> Iterator[_Detected]:
    """Pass groups through networks in other processes; results in the order of completion."""
    for place, result in spread.run(partial(_opened, opener), parts, memory_mb=_WORKER_MB):
        if isinstance(result, PartFailure):
            for group in parts[place]:
                reason = f"a part of {sum(map(len, parts[place]))} images failed: {result.reason}"
                yield _Detected(group, (), [Failure(entry.image, str(entry.path), reason) for entry in group])
        else:
            yield from result


def _opened(opener: Callable[[], Detector]) -> Callable[[Sequence[Group]], list[_Detected]]:
    """In a worker: the function that passes a part through the network."""
    detector = opener()
    return lambda part: list(_here(part, detector, 0, dict.fromkeys(("network", "waiting"), 0.0)))


def _detect(
    detector: Detector, prepared: Sequence[Prepared], seconds: dict[str, float]
) -> tuple[list[RegionFeatures], list[Failure]]:
    """Regions of the usable images, with their ids; and the failures."""
    failures = [_failure(entry.source, entry.error) for entry in prepared if entry.error is not None]
    usable = [entry for entry in prepared if entry.error is None]
    if not usable:
        return [], failures
    started = time.perf_counter()
    try:
        records = detector.detect([entry.value for entry in usable])
    except FeatureError as error:  # NaN or no boxes in one image, which must not affect the others
        if len(usable) == 1:
            return [], [*failures, _failure(usable[0].source, error)]
        alone = [_detect(detector, [entry], seconds) for entry in usable]
        return [r for regions, _ in alone for r in regions], failures + [f for _, failed in alone for f in failed]
    except RuntimeError as error:
        if type(error).__name__ != "OutOfMemoryError":
            raise
        raise FeatureError(
            "the GPU is out of memory",
            code="out-of-memory",
            hint="Use a smaller --batch; finished images are kept, and the next run resumes",
        ) from error
    finally:
        seconds["network"] += time.perf_counter() - started
    if len(records) != len(usable):
        raise FeatureError(
            f"{detector.name} returned {len(records)} results for {len(usable)} images",
            code="mismatch",
            value=detector.name,
        )
    return [dataclasses.replace(r, image=e.source.image) for r, e in zip(records, usable, strict=True)], failures


def _add(writer: StoreWriter, regions: RegionFeatures, group: Sequence[ImageFile]) -> Failure | None:
    try:
        writer.add(regions)
        return None
    except FeatureError as error:
        return _failure(next(entry for entry in group if entry.image == regions.image), error)


def _failure(source: ImageFile, error: CapbenchError) -> Failure:
    return Failure(source.image, str(source.path), error.message)


def _reported(path: Path) -> list[Failure]:
    """The failures that an earlier run listed; none if the list does not exist or is not one."""
    with contextlib.suppress(CapbenchError, ValueError, TypeError):
        return [Failure(**json.loads(line)) for line in files.read_lines(path)]
    return []


def _report(path: Path, failures: Sequence[Failure]) -> None:
    """List the failures; without any, remove an old list."""
    if not failures:
        path.unlink(missing_ok=True)
        return
    text = "".join(json.dumps(vars(failure), ensure_ascii=False) + "\n" for failure in failures)
    # File names need not be UTF-8: other bytes become JSON escapes.
    files.write_text(path, text.encode("utf-8", "backslashreplace").decode("utf-8"))


# Estimate of an extraction's cost, measured on a few images.

_BYTES_A_REGION = 32  # box, class, scores and offsets, at most
_BYTES_AN_IMAGE = 64


@dataclass(frozen=True)
class Plan:
    """Measurements and the estimate for all images.

    Attributes:
        images: number of images.
        parts: number of parts that workers receive, of some 16 images each.
        measured: number of images measured.
        opening_s: seconds to open the detector, which each worker needs once.
        image_s: median seconds per image, decoding included.
        regions: mean number of regions per image.
        disk_bytes: size of the finished store.
    """

    images: int
    parts: int
    measured: int
    opening_s: float
    image_s: float
    regions: float
    disk_bytes: int

    def hours(self, workers: int) -> float:
        """Hours with workers as fast as this process: opening, and the longest sequence of parts."""
        images_of_one = min(self.images, math.ceil(self.parts / workers) * math.ceil(self.images / self.parts))
        return (self.opening_s + images_of_one * self.image_s) / 3600


def measure(
    images: Sequence[ImageFile],
    opener: Callable[[], Detector],
    *,
    count: int,
    dtype: str = "float32",
    progress: Callable[[int], None] | None = None,
) -> Plan:
    """Time some images, evenly spaced among all, after one warm-up image.

    Args:
        images: all images.
        opener: opens the detector.
        count: number of images to measure.
        dtype: type of the stored features.
        progress: called with numbers of images done.

    Raises:
        UsageError: there are no images, or the type is unknown.
        FeatureError: none of the measured images could be used.
    """
    if not images:
        raise UsageError(
            "there are no images to plan for", code="missing-image", hint="Select some with --images or --dataset"
        )
    check_choice("dtype", dtype, DTYPES, code="wrong-value")
    step = progress or (lambda _: None)
    started = time.perf_counter()
    detector = opener()
    opening_s = time.perf_counter() - started
    groups = grouped(images, detector)
    chosen = [groups[place] for place in np.unique(np.linspace(0, len(groups) - 1, count + 1).round().astype(int))]
    seconds: list[float] = []
    regions: list[int] = []
    failure: CapbenchError | None = None
    for group in chosen:
        started = time.perf_counter()
        try:
            records = detector.detect([_prepared(entry, detector) for entry in group])
        except CapbenchError as error:
            failure = error
            continue
        finally:
            step(len(group))
        seconds.append((time.perf_counter() - started) / len(group))
        regions += [len(record) for record in records]
    if not seconds:
        raise FeatureError(f"none of {len(chosen)} images could be used; the last: {failure}", code="unreadable")
    counted = seconds[1:] or seconds
    mean_regions = float(np.mean(regions))
    a_region = detector.feature_size * np.dtype(dtype).itemsize + _BYTES_A_REGION
    disk = len(images) * (mean_regions * a_region + _BYTES_AN_IMAGE)
    parts = len(parts_of(groups))
    return Plan(len(images), parts, len(counted), opening_s, float(np.median(counted)), mean_regions, round(disk))


def _prepared(entry: ImageFile, detector: Detector) -> Any:
    return detector.preprocessor(decode(entry.path))

"""Feature extraction: images through a detector into a store, resumable, in shards, with a list of unusable images.

Other processes decode and preprocess images, a few images ahead of the network.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import time
from collections.abc import Callable, Container, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capbench.core import files
from capbench.core.errors import CapbenchError, FeatureError, ToolError, UsageError
from capbench.core.machine import usable_cores
from capbench.core.workers import Engine, PartFailure
from capbench.features.images import ImageFile, decode
from capbench.features.records import Fingerprint, RegionFeatures
from capbench.features.store import FeatureStore
from capbench.features.writing import StoreWriter

if TYPE_CHECKING:
    from capbench.features.detectors.base import Detector

Preprocessor = Callable[[Any], Any]


def _prepared(preprocessor: Preprocessor, image: ImageFile) -> Any:
    """The result of the detector's preprocessor, or the error that prevents it."""
    try:
        return preprocessor(decode(image.path))
    except CapbenchError as error:
        return error


def _prepare_all(images: Sequence[ImageFile], preprocessor: Preprocessor, workers: int) -> Generator[Any, None, None]:
    """Decode and prepare images, in their order; in place of an unusable one, its error."""
    prepare = partial(_prepared, preprocessor)
    if workers <= 0:
        yield from map(prepare, images)
        return
    from torch.utils.data import DataLoader

    # Spawned, since a forked process would inherit the network's threads and locks, and the lock on the store.
    loader: DataLoader[Any] = DataLoader(
        images,  # type: ignore[arg-type]
        batch_size=None,
        num_workers=workers,
        collate_fn=prepare,
        multiprocessing_context="spawn",
    )
    try:
        yield from loader
    except RuntimeError as error:
        if "exited unexpectedly" not in str(error):
            raise
        hint = "If memory ran out, use fewer processes with --workers"
        raise ToolError("a worker process that decodes images died", hint=hint) from error


_IMAGES_A_PART = 16
_WORKER_MB = 2500  # a large network on a CPU


@dataclass(frozen=True)
class Failure:
    """An image without features: its id, its file (``""`` if it does not exist), and the reason."""

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
            hint = "Example: 1/4, 2/4, 3/4, 4/4"
            raise UsageError(f"'{text}' is not a shard", code="wrong-value", value=text, hint=hint)
        return cls(int(index), int(count))

    def path(self, store: Path) -> Path:
        """The file of this shard: ``a.h5`` → ``a.shard-1-of-4.h5``."""
        return store.with_name(f"{store.stem}.shard-{self.index}-of-{self.count}{store.suffix}")


@dataclass(frozen=True, eq=False)
class Extracted:
    """Result of an extraction."""

    store: FeatureStore  # the finished store
    path: Path  # its file, for ``features=``
    signature: str  # signature of the features, which is part of signatures of scores
    images: int  # number of requested images
    stored: int  # number of images in the store
    extracted: int  # number of images that this run passed through the network
    resumed: int  # number of images that an interrupted run left in the journal
    failed: tuple[Failure, ...]  # images without features
    # ``total`` time of the loop over images; of it ``network`` in the detector, ``waiting`` for decoded images,
    # ``writing`` the journal; and ``finishing``, the time to write the final file
    seconds: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        counts = {name: getattr(self, name) for name in ("images", "stored", "extracted", "resumed")}
        failed = [vars(failure) for failure in self.failed]
        seconds = {name: round(value, 4) for name, value in self.seconds.items()}
        facts = {"failed": failed, "seconds": seconds, "signature": self.signature}
        return {"store": str(self.path), **counts, **facts}


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
    shard: Shard | None = None,  # only this part of the groups
    workers: int = 0,
    # threads of the network on a CPU, if the user chose their number: the fingerprint then contains it, since it
    # changes last digits
    threads: int | None = None,
    spread: Engine | None = None,  # runs the work in other processes; ``workers`` is then ignored
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
    sources = {entry.image: entry for group in groups for entry in group}
    requested = [*missing, *sources]
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
        if spread is None:
            results = _here(todo, detector, workers, seconds)
        else:
            results = _spread(parts, spread, opener or (lambda: detector))
        with contextlib.closing(results):
            for outcomes in results:
                started = time.perf_counter()
                for outcome in outcomes:
                    if isinstance(outcome, Failure):
                        failures.append(outcome)
                    elif outcome.image not in done:
                        try:
                            writer.add(outcome)
                            count += 1
                        except FeatureError as error:
                            failures.append(_failure(sources[outcome.image], error))
                seconds["writing"] += time.perf_counter() - started
                step(len(outcomes))
        seconds["total"] = time.perf_counter() - begin
        order = {image: place for place, image in enumerate(requested)}
        failures.sort(key=lambda failure: order[failure.image])
        earlier = [] if restart else _reported(report_path(target))
        still_missing = [failure for failure in earlier if failure.image not in order and failure.image not in writer]
        _report(report_path(target), [*still_missing, *failures])
        if not writer.done:
            first, hint = failures[0], f"All images are listed in {report_path(target)}"
            message = (
                f"none of the {len(requested) - len(missing):,} images could be used; the first: "
                f"{first.file or first.image}: {first.reason}"
            )
            raise FeatureError(message, code="unreadable", value=first.image, hint=hint)
        resumed = writer.resumed
        started = time.perf_counter()
        store = writer.finish()
        seconds["finishing"] = time.perf_counter() - started
    counts = len(requested), len(store), count, resumed
    return Extracted(store, Path(target), store.signature(), *counts, tuple(failures), seconds)


@contextlib.contextmanager
def _naming_what_is_stored(writer: StoreWriter, images: Sequence[str], *, restart: bool) -> Iterator[None]:
    """Give a KeyboardInterrupt the number of stored images and the way to resume as its text."""
    try:
        yield
    except KeyboardInterrupt as interruption:
        again = "run the same command again" + (" without --restart" if restart else "")
        stored = sum(image in writer for image in images)
        raise KeyboardInterrupt(f"{stored:,} of {len(images):,} images are stored; {again} to resume") from interruption


Group = Sequence[ImageFile]  # images that pass through the network together
_Outcome = RegionFeatures | Failure  # of one image


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


def _here(
    todo: Sequence[Group], detector: Detector, workers: int, seconds: dict[str, float]
) -> Generator[list[_Outcome], None, None]:
    """Pass groups through the network in this process; adds to ``seconds``."""
    with contextlib.closing(
        _prepare_all([entry for group in todo for entry in group], detector.preprocessor, workers)
    ) as source:
        for group in todo:
            started = time.perf_counter()
            prepared = [(entry, next(source)) for entry in group]
            seconds["waiting"] += time.perf_counter() - started
            yield _detect(detector, prepared, seconds)


def _spread(
    parts: Sequence[Sequence[Group]], spread: Engine, opener: Callable[[], Detector]
) -> Generator[list[_Outcome], None, None]:
    """Pass groups through networks in other processes; results in the order of completion."""
    for place, result in spread.run(partial(_opened, opener), parts, memory_mb=_WORKER_MB):
        if isinstance(result, PartFailure):
            for group in parts[place]:
                reason = f"a part of {sum(map(len, parts[place]))} images failed: {result.reason}"
                yield [Failure(entry.image, str(entry.path), reason) for entry in group]
        else:
            yield from result


def _opened(opener: Callable[[], Detector]) -> Callable[[Sequence[Group]], list[list[_Outcome]]]:
    """In a worker: the function that passes a part through the network."""
    detector = opener()
    return lambda part: list(_here(part, detector, 0, dict.fromkeys(("network", "waiting"), 0.0)))


def _detect(detector: Detector, prepared: Sequence[tuple[ImageFile, Any]], seconds: dict[str, float]) -> list[_Outcome]:
    """The failures of unusable images, and the regions of the others, with their ids."""
    failures: list[_Outcome] = [_failure(image, of) for image, of in prepared if isinstance(of, CapbenchError)]
    usable = [(image, of) for image, of in prepared if not isinstance(of, CapbenchError)]
    if not usable:
        return failures
    started = time.perf_counter()
    try:
        records = detector.detect([of for _, of in usable])
    except FeatureError as error:  # NaN or no boxes in one image, which must not affect the others
        if len(usable) == 1:
            return [*failures, _failure(usable[0][0], error)]
        return [*failures, *(outcome for image in usable for outcome in _detect(detector, [image], seconds))]
    except RuntimeError as error:
        if type(error).__name__ != "OutOfMemoryError":
            raise
        hint = "Use a smaller --batch; finished images are kept, and the next run resumes"
        raise FeatureError("the GPU is out of memory", code="out-of-memory", hint=hint) from error
    finally:
        seconds["network"] += time.perf_counter() - started
    if len(records) != len(usable):
        message = f"{detector.name} returned {len(records)} results for {len(usable)} images"
        raise FeatureError(message, code="mismatch", value=detector.name)
    named = (dataclasses.replace(of, image=image.image) for of, (image, _) in zip(records, usable, strict=True))
    return [*failures, *named]


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

"""``capbench.extract_features`` and ``capbench.import_features``: region features of images in an HDF5 store."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capbench.api.checking import check_arguments
from capbench.core.errors import UsageError
from capbench.core.files import check_folder, check_writable, real_path

if TYPE_CHECKING:
    from capbench.api.resolve import Caller, PathGiven
    from capbench.core.workers import Engine
    from capbench.datasets.root import DataRoot
    from capbench.features.detectors.base import Detector
    from capbench.features.extract import Failure, Shard
    from capbench.features.images import ImageFile
    from capbench.studies.judged import ProgressFactory

__all__ = [
    "ExtractedFeatures",
    "ImportedFeatures",
    "PlannedExtraction",
    "extract_features",
    "find_images_and_detector",
    "import_features",
    "plan_extraction",
]


@dataclass(frozen=True)
class ExtractedFeatures:
    """A store with features of images.

    Attributes:
        path: the store, for ``features=``.
        images: number of requested images.
        stored: number of images in the store.
        extracted: number of images that were extracted in this run.
        resumed: number of images from an interrupted run.
        failed: images without features, each with its file and the reason.
        seconds: time of the extraction, and of its parts.
        signature: signature of the features, which is part of signatures of scores.
    """

    path: Path
    images: int
    stored: int
    extracted: int
    resumed: int
    failed: tuple[Failure, ...]
    seconds: Mapping[str, float]
    signature: str

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "store": str(self.path),
            "images": self.images,
            "stored": self.stored,
            "extracted": self.extracted,
            "resumed": self.resumed,
            "failed": [vars(failure) for failure in self.failed],
            "seconds": {name: round(value, 4) for name, value in self.seconds.items()},
            "signature": self.signature,
        }


@dataclass(frozen=True)
class ImportedFeatures:
    """A store with imported features.

    Attributes:
        path: the store, for ``features=``.
        format: format of the files.
        images: number of images.
        duplicates: number of repeated images that were skipped.
        without_probabilities: number of images with only the best class of ``cls_prob`` in the store.
        seconds: time of the import.
        signature: signature of the features, which is part of signatures of scores.
        damaged: numbers of damaged rows that were skipped, because their image has an intact row, too.
    """

    path: Path
    format: str
    images: int
    duplicates: int
    without_probabilities: int
    seconds: float
    signature: str
    damaged: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "store": str(self.path),
            "format": self.format,
            "images": self.images,
            "duplicates": self.duplicates,
            "damaged": list(self.damaged),
            "seconds": round(self.seconds, 3),
            "signature": self.signature,
        }


def extract_features(
    images: PathGiven | Sequence[PathGiven] = (),
    *,
    dataset: str | None = None,
    image_root: PathGiven | None = None,
    detector: str | None = None,
    weights: PathGiven | None = None,
    options: Mapping[str, Any] | None = None,
    device: str = "auto",
    batch: int = 1,
    precision: str = "float32",
    dtype: str = "float32",
    out: PathGiven | None = None,
    workers: int | None = None,
    threads: int | None = None,
    shard: str | None = None,
    compression: str | None = None,
    restart: bool = False,
    data: PathGiven | None = None,
    progress: bool | ProgressFactory = False,
) -> ExtractedFeatures:
    """Extract region features of images into an HDF5 store, as ``capbench extract-features`` does.

    An interrupted run resumes. Images that cannot be read are in the result's ``failed``.

    Args:
        images: folders, images, lists (.txt) or COCO's JSON; by default all images of the data folder.
        dataset: images of this data set, in place of ``images``.
        image_root: folder of the images of a list or a data set.
        detector: a detector's name, or ``module:Class``. By default ``sample`` for images of the embedded sample, else
            bottom-up attention if its weights are installed, else ``torchvision-frcnn``, which is then downloaded.
        weights: weights of the detector; ``random:SEED`` for an untrained network, to measure speed.
        options: options of the detector.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        batch: images per batch; more than 1 changes features slightly and is part of the fingerprint.
        precision: ``float32``, ``amp-bfloat16`` or ``amp-float16``.
        dtype: type of the stored features, ``float32`` or ``float16``.
        out: the store; by default ``features/IMAGES.h5``, with ``detector`` ``features/IMAGES.DETECTOR.h5``.
        workers: number of processes that decode images.
        threads: number of CPU threads of the network; part of the signature if it is set.
        shard: only a part of the images, ``I/N``.
        compression: ``none``, ``gzip`` or ``lzf``.
        restart: True to discard an existing store.
        data: the data folder; by default ``CAPBENCH_DATA``, else the embedded sample.
        progress: see :func:`capbench.api.caller.python_caller`.

    Raises:
        UsageError: an argument is invalid, there are no images, or the detector ``sample`` is given other images than
            the embedded sample's.
        FeatureError: the store has features of another detector, or no image can be read.
        ModelError: the detector's weights are not installed.
    """
    from capbench.api.resolve import python_caller

    check_arguments({"data": data, "progress": progress})
    caller = python_caller(progress)
    planned = plan_extraction(
        [images] if isinstance(images, str | os.PathLike) else images,
        dataset=dataset,
        image_root=image_root,
        detector=detector,
        weights=None if weights is None else os.fspath(weights),
        options=options or {},
        device=device,
        batch=batch,
        precision=precision,
        out=out,
        threads=threads,
        shard=shard,
        data=data,
        caller=caller,
    )
    return planned.run(caller.progress, workers=workers, dtype=dtype, compression=compression, restart=restart)


def import_features(
    files: PathGiven | Sequence[PathGiven],
    out: PathGiven | None = None,
    *,
    format: str | None = None,
    ids: PathGiven | None = None,
    detector: str | None = None,
    weights_sha256: str | None = None,
    dtype: str = "float32",
    compression: str = "none",
    class_probabilities: bool = False,
    keep_first: bool = False,
    replace: bool = False,
    progress: bool | ProgressFactory = False,
) -> ImportedFeatures:
    """Import region features of other programs into an HDF5 store, as ``capbench features import`` does.

    Args:
        files: files of one format, or folders of them.
        out: the store; by default ``features/NAME.h5`` for the first file NAME.
        format: ``butd-tsv``, ``lxmert-tsv``, ``milvlg``, ``scan``, ``vilbert``, ``lmdb`` or ``npz``; by default
            detected.
        ids: for ``scan``: a file with one image id per line.
        detector: name of the detector; without it, the store cannot be merged with others.
        weights_sha256: SHA-256 of the detector's weights.
        dtype: type of the stored features, ``float32`` or ``float16``.
        compression: ``none``, ``gzip`` or ``lzf``.
        class_probabilities: for ``vilbert`` and ``lmdb``: True to store all of ``cls_prob``, which training ViLBERT
            requires.
        keep_first: True to skip repeated images instead of raising an error.
        replace: True to replace an existing store.
        progress: see :func:`capbench.api.caller.python_caller`.

    Raises:
        FeatureError, UsageError: a file or a row is invalid; nothing is stored.
    """
    from capbench.api.resolve import python_caller
    from capbench.features.importers import import_features as read

    sources = [files] if isinstance(files, str | os.PathLike) else list(files)
    if not sources:
        raise UsageError("no feature file is named", code="missing-option", hint="Pass one or more files")
    target = Path("features") / f"{real_path(Path(sources[0])).stem}.h5" if out is None else Path(out)
    begin = time.perf_counter()
    with python_caller(progress).progress("importing", None) as step:
        made = read(
            sources,
            target,
            format=format,
            ids=ids,
            detector=detector,
            weights_sha256=weights_sha256,
            dtype=dtype,
            compression=compression,
            class_probabilities=class_probabilities,
            keep_first=keep_first,
            replace=replace,
            progress=step,
        )
    seconds, store = time.perf_counter() - begin, made.store
    counts = len(store), made.duplicates, made.without_probabilities
    return ImportedFeatures(target, made.format, *counts, seconds, store.signature(), made.damaged)


@dataclass(frozen=True)
class PlannedExtraction:
    """Images, an open detector, and the output store.

    Attributes:
        images: files of the images.
        missing: ids of images without a file.
        model: the detector.
        opener: opens the detector in another process.
        target: path of the store.
        shard: the part of the images to extract; None for all.
        threads: CPU threads of the network; None for the default.
    """

    images: Sequence[ImageFile]
    missing: Sequence[str]
    model: Detector
    opener: Callable[[], Detector]
    target: Path
    shard: Shard | None
    threads: int | None

    def run(
        self,
        progress: ProgressFactory,
        *,
        workers: int | None = None,
        dtype: str = "float32",
        compression: str | None = None,
        restart: bool = False,
        engine: AbstractContextManager[Engine | None] | None = None,
    ) -> ExtractedFeatures:
        """Extract, in this process or by the workers of ``engine``; see :func:`extract_features`."""
        from capbench.features.extract import default_workers, extract

        total = len(self.images) if self.shard is None else -(-len(self.images) // self.shard.count)
        with engine or nullcontext() as spread, progress("extracting", total) as step:
            result = extract(
                self.images,
                self.model,
                self.target,
                missing=self.missing,
                shard=self.shard,
                workers=default_workers(self.model.device) if workers is None else workers,
                threads=self.threads,
                spread=spread,
                opener=self.opener,
                dtype=dtype,
                compression=compression,
                restart=restart,
                progress=step,
            )
        return ExtractedFeatures(
            self.target,
            result.images,
            len(result.store),
            result.extracted,
            result.resumed,
            result.failures,
            result.seconds,
            result.store.signature(),
        )


def find_images_and_detector(
    images: Sequence[PathGiven],
    *,
    dataset: str | None,
    image_root: PathGiven | None,
    detector: str | None,
    weights: str | None,
    options: Mapping[str, Any],
    device: str,
    batch: int,
    precision: str,
    threads: int | None,
    data: PathGiven | None,
    caller: Caller,
) -> tuple[Sequence[ImageFile], Sequence[str], str, Callable[[], Detector]]:
    """The images, ids of those without a file, a name for file names, and a function that opens the detector.

    The arguments are those of :func:`extract_features`; ``caller`` receives the data folder before it is searched.
    """
    from capbench.datasets.root import find_root

    settings: dict[str, Any] = {"batch": batch} if batch > 1 else {}
    settings |= {"precision": precision} if precision != "float32" else {}
    if images and dataset:
        message = f"{caller.spelled('images')} excludes {caller.spelled('dataset')}"
        hint = f"Pass one of the two; {caller.spelled('image_root')} adds a folder"
        raise UsageError(message, code="conflict", value=dataset, hint=hint)
    root = find_root(data)
    caller.on_data(root, not images)
    folder = None if image_root is None else Path(image_root)
    if folder is not None:
        check_folder(folder, caller.spelled("image_root"))
    found, missing, name = _find(images, dataset, root, folder)
    chosen = _detector_of(found, detector, weights, caller)
    return found, missing, name, partial(_open, chosen, weights, device, {**options, **settings}, threads)


def plan_extraction(
    images: Sequence[PathGiven], *, detector: str | None, out: PathGiven | None, shard: str | None, **others: Any
) -> PlannedExtraction:
    """Find the images and open the detector; see :func:`extract_features`.

    Args:
        others: the other arguments of :func:`find_images_and_detector`.
    """
    from capbench.features.extract import Shard

    part = None if shard is None else Shard.parse(shard)
    files, missing, name, opener = find_images_and_detector(images, detector=detector, **others)
    suffix = "" if detector in (None, name) else f".{detector.replace(':', '-')}"
    target = Path("features") / f"{name}{suffix}.h5" if out is None else Path(out)
    target = target if part is None else part.path(target)
    check_writable(target)
    return PlannedExtraction(files, missing, opener(), opener, target, part, others["threads"])


def _detector_of(images: Sequence[ImageFile], detector: str | None, weights: str | None, caller: Caller) -> str:
    """The name of the requested detector, or of the default one for these images."""
    from capbench.datasets.root import sample_dir
    from capbench.features.detectors.base import detector_of_photographs

    if detector not in (None, "sample"):
        return detector
    sample = sample_dir().resolve()
    other = next((image.path for image in images if not image.path.resolve().is_relative_to(sample)), None)
    if other is None:
        return "sample"
    flag = caller.spelled("detector")
    if detector is not None:
        message = f"the detector 'sample' recognises only the embedded sample's drawn scenes, not {other}"
        hint = f"Omit {flag}, or choose another one from 'capbench models list'"
        raise UsageError(message, code="unsupported", value=detector, hint=hint)
    if weights is not None:
        message, hint = f"{caller.spelled('weights')} requires {flag}", "Name the detector that the weights belong to"
        raise UsageError(message, code="missing-option", value=weights, hint=hint)
    return detector_of_photographs(caller.note, caller.progress)


def _open(name: str, weights: str | None, device: str, options: dict[str, Any], threads: int | None) -> Detector:
    """The detector, in this process or in a worker."""
    from capbench.core.machine import keep_freed_memory
    from capbench.features.detectors.base import load_detector

    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    model = load_detector(name, weights=weights, device=device, options=options)
    if model.device == "cpu":
        keep_freed_memory()
    return model


def _find(
    images: Sequence[PathGiven], dataset: str | None, root: DataRoot, image_root: Path | None
) -> tuple[list[ImageFile], list[str], str]:
    """The images, ids of a data set's images without a file, and a name for file names."""
    if images:
        from capbench.features.images import find_images

        return find_images(images, image_root), [], Path(images[0]).stem or "images"
    from capbench.datasets.images import all_images, dataset_images

    if dataset is not None:
        return *dataset_images(dataset, root, image_root), Path(dataset).stem
    return all_images(root), [], "sample" if root.is_sample else "all"

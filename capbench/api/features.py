"""``capbench.extract_features`` and ``capbench.import_features``: region features of images in an HDF5 store."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import Unpack

from capbench.api.arguments import DetectorSettings, ExtractionSettings, ImportSettings
from capbench.api.caller import Caller, ProgressGiven, python_caller
from capbench.api.checking import checked
from capbench.core.arguments import PathGiven, PathsGiven
from capbench.core.errors import UsageError
from capbench.core.files import check_folder, check_writable

if TYPE_CHECKING:
    from capbench.core.workers import Engine
    from capbench.datasets.root import DataRoot
    from capbench.features.detectors.base import Detector
    from capbench.features.extract import Extracted, Shard
    from capbench.features.images import ImageFile
    from capbench.features.importers import Imported
    from capbench.studies.scoring import ProgressFactory


@checked
def extract_features(
    images: PathsGiven = (),
    *,
    options: Mapping[str, Any] | None = None,
    workers: int | None = None,
    progress: ProgressGiven = False,
    **settings: Unpack[ExtractionSettings],
) -> Extracted:
    """Extract region features of images into an HDF5 store, as ``capbench extract-features`` does.

    An interrupted run resumes. Images that cannot be read are in the result's ``failed``.
    Images are folders, images, lists (.txt) or COCO's JSON; by default all images of the data folder. ``options`` are
    those of the detector; ``workers`` the number of processes that decode images.
    """
    caller = python_caller(progress)
    return plan_extraction(_listed(images), options or {}, settings, caller).run(caller.progress, workers)


def _listed(paths: PathsGiven) -> list[PathGiven]:
    return [paths] if isinstance(paths, str | os.PathLike) else list(paths)


@checked
def import_features(
    files: PathsGiven,
    out: PathGiven | None = None,
    *,
    progress: ProgressGiven = False,
    **settings: Unpack[ImportSettings],
) -> Imported:
    """Import region features of other programs into an HDF5 store, as ``capbench features import`` does.

    Nothing is stored if a file or a row is invalid.
    The default store is ``features/NAME.h5`` for the first file NAME.
    """
    from capbench.features.importers import import_features as read

    sources = _listed(files)
    if not sources:
        raise UsageError("no feature file is named", code="missing-option", hint="Pass one or more files")
    target = Path("features") / f"{Path(sources[0]).resolve().stem}.h5" if out is None else Path(out)
    with python_caller(progress).progress("importing", None) as step:
        return read(sources, target, progress=step, **settings)


@dataclass(frozen=True)
class PlannedExtraction:
    """Images, an open detector, and the output store."""

    images: Sequence[ImageFile]
    missing: Sequence[str]  # ids of images without a file
    model: Detector
    opener: Callable[[], Detector]  # opens the detector in another process
    target: Path
    shard: Shard | None  # the part of the images to extract; None for all
    settings: ExtractionSettings

    def run(
        self,
        progress: ProgressFactory,
        workers: int | None = None,
        engine: AbstractContextManager[Engine | None] | None = None,
    ) -> Extracted:
        """Extract, in this process or by the workers of ``engine``; see :func:`extract_features`."""
        from capbench.features.extract import default_workers, extract

        total = len(self.images) if self.shard is None else -(-len(self.images) // self.shard.count)
        with engine or nullcontext() as spread, progress("extracting", total) as step:
            return extract(
                self.images,
                self.model,
                self.target,
                missing=self.missing,
                shard=self.shard,
                workers=default_workers(self.model.device) if workers is None else workers,
                threads=self.settings.get("threads"),
                spread=spread,
                opener=self.opener,
                dtype=self.settings.get("dtype", "float32"),
                compression=self.settings.get("compression"),
                restart=self.settings.get("restart", False),
                progress=step,
            )


def find_images_and_detector(
    images: Sequence[PathGiven], options: Mapping[str, Any], settings: DetectorSettings, caller: Caller
) -> tuple[Sequence[ImageFile], Sequence[str], str, Callable[[], Detector]]:
    """The images, ids of those without a file, a name for file names, and a function that opens the detector."""
    from capbench.datasets.root import find_root

    dataset, folder = settings.get("dataset"), settings.get("image_root")
    if images and dataset:
        message = f"{caller.spelled('images')} excludes {caller.spelled('dataset')}"
        hint = f"Pass one of the two; {caller.spelled('image_root')} adds a folder"
        raise UsageError(message, code="conflict", value=dataset, hint=hint)
    root = find_root(settings.get("data"))
    caller.on_data(root, not images)
    if folder is not None:
        check_folder(folder, caller.spelled("image_root"))
    found, missing, name = _find(images, dataset, root, None if folder is None else Path(folder))
    weights = None if settings.get("weights") is None else os.fspath(settings["weights"] or "")
    chosen = _detector_of(found, settings.get("detector"), weights, caller)
    batch, precision = settings.get("batch", 1), settings.get("precision", "float32")
    changed = {"batch": batch} if batch > 1 else {}
    of_detector = {**options, **changed, **({"precision": precision} if precision != "float32" else {})}
    opener = partial(_open, chosen, weights, settings.get("device", "auto"), of_detector, settings.get("threads"))
    return found, missing, name, opener


def plan_extraction(
    images: Sequence[PathGiven], options: Mapping[str, Any], settings: ExtractionSettings, caller: Caller
) -> PlannedExtraction:
    """Find the images and open the detector; see :func:`extract_features`."""
    from capbench.features.extract import Shard

    shard, detector, out = settings.get("shard"), settings.get("detector"), settings.get("out")
    part = None if shard is None else Shard.parse(shard)
    files, missing, name, opener = find_images_and_detector(images, options, settings, caller)
    suffix = "" if detector in (None, name) else f".{detector.replace(':', '-')}"
    target = Path("features") / f"{name}{suffix}.h5" if out is None else Path(out)
    target = target if part is None else part.path(target)
    check_writable(target)
    return PlannedExtraction(files, missing, opener(), opener, target, part, settings)


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

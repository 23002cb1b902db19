"""``capbench.extract_features`` and ``capbench.import_features``: region features of images in an HDF5 store."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import Unpack

from capbench.api.arguments import DetectorSettings, ExtractionSettings, ImportSettings
from capbench.api.caller import Caller, ProgressGiven, python_caller
from capbench.api.checking import checked
from capbench.core.arguments import PathGiven, PathsGiven
from capbench.core.errors import UsageError, count
from capbench.core.files import check_folder, check_writable

if TYPE_CHECKING:
    from capbench.features.detectors.base import Detector
    from capbench.features.extract import Extracted
    from capbench.features.images import ImageFile
    from capbench.features.importers import Imported


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
    from capbench.features.extract import Shard, default_workers, extract

    caller, shard, detector = python_caller(progress), settings.get("shard"), settings.get("detector")
    part = None if shard is None else Shard.parse(shard)
    found, missing, name, opener = find_images_and_detector(_listed(images), options or {}, settings, caller)
    suffix = "" if detector in (None, name) else f".{detector.replace(':', '-')}"
    target = Path(settings.get("out") or Path("features") / f"{name}{suffix}.h5")
    target = target if part is None else part.path(target)
    check_writable(target)
    model = opener()
    caller.tell(f"{count(len(found), 'image')}, detector {model.name} on {model.device}, output {target}")
    total = len(found) if part is None else -(-len(found) // part.count)
    with caller.spread() as engine, caller.progress("extracting", total) as step:
        return extract(
            found,
            model,
            target,
            missing=missing,
            shard=part,
            workers=default_workers(model.device) if workers is None else workers,
            threads=settings.get("threads"),
            spread=engine,
            opener=opener,  # in another process
            dtype=settings.get("dtype", "float32"),
            compression=settings.get("compression"),
            restart=settings.get("restart", False),
            progress=step,
        )


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


def find_images_and_detector(
    images: Sequence[PathGiven], options: Mapping[str, Any], settings: DetectorSettings, caller: Caller
) -> tuple[Sequence[ImageFile], Sequence[str], str, Callable[[], Detector]]:
    """The images, ids of those without a file, a name for file names, and a function that opens the detector."""
    from capbench.datasets.images import all_images, dataset_images
    from capbench.datasets.root import find_root
    from capbench.features.images import find_images

    dataset, folder = settings.get("dataset"), settings.get("image_root")
    if images and dataset:
        message = f"{caller.spelled('images')} excludes {caller.spelled('dataset')}"
        hint = f"Pass one of the two; {caller.spelled('image_root')} adds a folder"
        raise UsageError(message, code="conflict", value=dataset, hint=hint)
    root = find_root(settings.get("data"))
    caller.on_data(root, not images)
    if folder is not None:
        check_folder(folder, caller.spelled("image_root"))
    place = None if folder is None else Path(folder)
    if images:
        found, missing, name = find_images(images, place), list[str](), Path(images[0]).stem or "images"
    elif dataset is not None:
        (found, missing), name = dataset_images(dataset, root, place), Path(dataset).stem
    else:
        found, missing, name = all_images(root), [], "sample" if root.is_sample else "all"
    weights = None if settings.get("weights") is None else os.fspath(settings["weights"] or "")
    chosen = _detector_of(found, settings.get("detector"), weights, caller)
    batch, precision = settings.get("batch", 1), settings.get("precision", "float32")
    changed = {"batch": batch} if batch > 1 else {}
    of_detector = {**options, **changed, **({"precision": precision} if precision != "float32" else {})}
    opener = partial(_open, chosen, weights, settings.get("device", "auto"), of_detector, settings.get("threads"))
    return found, missing, name, opener


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

"""What is done to whole stores: tell what is in them, verify, merge."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from capbench import files
from capbench.errors import FeatureError, UsageError
from capbench.features.layout import COMPRESSIONS, Entry, build
from capbench.features.records import RegionFeatures
from capbench.features.store import FeatureStore, open_store
from capbench.features.writing import partial_path

__all__ = ["Verified", "describe", "merge_stores", "verify_store"]

_MOST_PROBLEMS = 20
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Verified:
    """What verifying a store found.

    Attributes:
        images: number of images.
        regions: number of regions of the images that are right.
        problems: one line for each image that is not, the first 20.
        bad: number of images that are not right.
    """

    images: int
    regions: int
    problems: tuple[str, ...]
    bad: int


def describe(store: FeatureStore) -> dict[str, Any]:
    """Facts of a store for people and programs; reads ids and offsets, no features."""
    header = store.header
    counts = [store.regions(image) for image in store.ids]
    unfinished = [str(partial_path(path)) for path in store.paths if partial_path(path).exists()]
    return {
        "files": [str(path) for path in store.paths],
        "bytes": sum(path.stat().st_size for path in store.paths),
        "images": len(counts),
        "regions": sum(counts),
        "regions_per_image": [min(counts), max(counts)],
        "feature_size": header.feature_size,
        "dtype": header.dtype,
        "compression": header.compression,
        "boxes": header.boxes,
        "fields": [*header.fields, *(("class_probabilities",) if header.probabilities else ())],
        "classes": len(header.class_names or ()),
        "attributes": len(header.attribute_names or ()),
        "fingerprint": header.fingerprint.to_dict(),
        "signature": store.signature(),
        "unfinished": unfinished,
    }


def verify_store(store: FeatureStore, progress: Progress | None = None) -> Verified:
    """Read every image: checksums, finite features, boxes inside their images, ids that have names.

    Raises:
        FeatureError: the store's index itself is damaged, so that images cannot be told apart.
    """
    header, problems, bad, regions = store.header, [], 0, 0
    images = store.ids
    for image in images:
        try:
            regions_of_image = store[image]
            regions_of_image.check()
            _check_names(regions_of_image, header.class_names, header.attribute_names)
            regions += len(regions_of_image)
        except FeatureError as error:
            bad += 1
            if bad <= _MOST_PROBLEMS:
                problems.append(error.message)
        if progress:
            progress(1)
    return Verified(len(images), regions, tuple(problems), bad)


def _check_names(regions: RegionFeatures, classes: tuple[str, ...] | None, attributes: tuple[str, ...] | None) -> None:
    for what, ids, names in (("class", regions.class_ids, classes), ("attribute", regions.attribute_ids, attributes)):
        if ids is not None and names is not None and len(ids) and int(ids.max()) >= len(names):
            raise FeatureError(f"image '{regions.image}': there is no {what} {int(ids.max())} of {len(names)}")


def merge_stores(
    target: str | os.PathLike[str],
    sources: Sequence[str | os.PathLike[str]],
    *,
    compression: str | None = None,
    replace: bool = False,
    progress: Progress | None = None,
) -> FeatureStore:
    """Join stores into one file: the same bytes as one run over all their images would have written.

    Args:
        target: the new file.
        sources: stores of one fingerprint, type and set of names, without a common image.
        compression: of the new file; default: that of the first source.
        replace: whether a file that is there may be replaced.
        progress: called with numbers of images written.

    Raises:
        FeatureError: the stores cannot be mixed, hold an image twice, are damaged, or one is not finished.
        UsageError: the target is there already, or cannot be written.
    """
    path = Path(target)
    if compression is not None and compression not in COMPRESSIONS:
        raise UsageError(f"unknown compression '{compression}'", hint=f"Choices: {', '.join(COMPRESSIONS)}")
    if not sources:
        raise UsageError("merge needs at least one store to read")
    for source in sources:
        if partial_path(source).exists():
            raise FeatureError(
                "is not finished: an extraction was interrupted",
                path=source,
                hint="Run the same extract-features command again, then merge",
            )
        if files.real_path(source) == files.real_path(path):
            raise UsageError("a store cannot be merged into itself", path=path, hint="Name another target")
    if path.exists() and not replace:
        raise UsageError("is there already", path=path, hint="Name another file, or replace it with --replace")
    with files.lock(path, 5.0), open_store(list(sources)) as store:
        header = dataclasses.replace(store.header, compression=compression or store.header.compression)
        build(path, header, [Entry(i, store.regions(i), _reader(store, i)) for i in store.ids], progress)
    return open_store(path)


def _reader(store: FeatureStore, image: str) -> Callable[[], RegionFeatures]:
    return lambda: store[image]

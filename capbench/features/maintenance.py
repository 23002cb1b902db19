"""Operations on whole stores: describe, verify, merge, and export to formats of other programs (re-importable)."""

from __future__ import annotations

import base64
import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from capbench.core import files
from capbench.core.errors import FeatureError, UsageError, check_choice
from capbench.core.progress import Progress
from capbench.core.records import image_id
from capbench.features.layout import COMPRESSIONS, Entry, build
from capbench.features.records import check_names
from capbench.features.store import FeatureStore, open_store
from capbench.features.writing import check_new, partial_path

_MAX_PROBLEMS = 20


@dataclass(frozen=True)
class Verified:
    """Numbers of images, of regions of valid images, and of invalid images; a line for each of the first 20 of them."""

    images: int
    regions: int
    problems: tuple[str, ...]
    bad: int


def describe(store: FeatureStore) -> dict[str, Any]:
    """Facts of a store for display and JSON; reads ids and offsets, no features."""
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
    """Read every image: checksums, finite features, boxes inside their images, ids that have names."""
    header, problems, bad, regions = store.header, [], 0, 0
    images = store.ids
    for image in images:
        try:
            regions_of_image = store[image]
            regions_of_image.check()
            check_names(regions_of_image, header.class_names, header.attribute_names)
            regions += len(regions_of_image)
        except FeatureError as error:
            bad += 1
            if bad <= _MAX_PROBLEMS:
                problems.append(error.message)
        if progress:
            progress(1)
    return Verified(len(images), regions, tuple(problems), bad)


def merge_stores(
    target: str | os.PathLike[str],
    sources: Sequence[str | os.PathLike[str]],  # stores of the same fingerprint, type and names, without a common image
    *,
    compression: str | None = None,
    replace: bool = False,
    progress: Progress | None = None,
) -> FeatureStore:
    """Join stores into one file: the same bytes as from one run over all their images."""
    path = Path(target)
    if compression is not None:
        check_choice("compression", compression, COMPRESSIONS, code="wrong-value")
    if not sources:
        raise UsageError("merge requires at least one store to read", code="missing-option")
    for source in sources:
        if partial_path(source).exists():
            message, hint = "is not finished", "Run the same extract-features command again, then merge"
            raise FeatureError(message, code="unfinished", path=source, hint=hint)
    check_new(path, replace, map(Path, sources))
    with files.lock(path, 5.0), open_store(list(sources)) as store:
        header = dataclasses.replace(store.header, compression=compression or store.header.compression)
        build(path, header, [Entry(i, store.regions(i), store.__getitem__) for i in store.ids], progress)
    return open_store(path)


EXPORTS = {".npz": "npz", ".tsv": "butd-tsv"}
"""Formats of exported files by their suffix."""


def export_store(
    store: FeatureStore, target: str | os.PathLike[str], *, replace: bool = False, progress: Progress | None = None
) -> str:
    """Write all images to a file and return the name of its format, one of :data:`EXPORTS`."""
    path, step = Path(target), progress or (lambda _done: None)
    check_choice("suffix", path.suffix, EXPORTS)
    check_new(path, replace)
    if path.suffix == ".npz":
        _write_npz(store, path, step)
        return EXPORTS[path.suffix]
    problem = "" if store.header.boxes else "has no boxes, which a .tsv file requires"
    if store.header.probabilities:
        problem = "has class_probabilities, which a .tsv file cannot hold"
    elif any("\t" in image for image in store.ids):
        problem = "has an image id with a tab, the separator of a .tsv file"
    if problem:
        hint = "Export an .npz file"
        raise FeatureError(problem, code="unsupported", value=path.suffix, path=store.paths[0], hint=hint)
    with files.atomic_write(path, "wb") as stream:
        for regions in store:
            arrays = (np.asarray(array).astype("<f4").tobytes() for array in (regions.boxes, regions.features))
            encoded = (base64.b64encode(data).decode() for data in arrays)
            cells = (regions.image, regions.width, regions.height, len(regions), *encoded)
            stream.write(("\t".join(map(str, cells)) + "\r\n").encode())
            step(1)
    return EXPORTS[path.suffix]


def _write_npz(store: FeatureStore, path: Path, step: Progress) -> None:
    images = store.ids
    counts = [store.regions(image) for image in images]
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    arrays = {name: np.empty((int(offsets[-1]), *shape), dtype) for name, (shape, dtype) in store.header.arrays.items()}
    sizes = np.empty((len(images), 2), dtype=np.int32)
    for i, regions in enumerate(store):
        sizes[i] = regions.width, regions.height
        for name, array in arrays.items():
            array[offsets[i] : offsets[i + 1]] = getattr(regions, name)
        step(1)
    arrays["image_sizes"] = sizes
    # The import shortens names to ids; ids that would change are written as ids.
    names = "image_names" if all(image_id(image) == image for image in images) else "image_ids"
    with files.atomic_write(path, "wb") as stream:
        np.savez(stream, allow_pickle=False, offsets=offsets, **{names: np.array(images)}, **arrays)

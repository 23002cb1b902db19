"""A store in the formats of other programs; each can be imported again."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench import files
from capbench.errors import FeatureError, UsageError, suggest
from capbench.features.records import FLAT_FIELDS, RegionFeatures
from capbench.features.store import FeatureStore
from capbench.records import image_id

__all__ = ["EXPORTS", "export_store"]

EXPORTS = ("npz", "butd-tsv", "lxmert-tsv")


def export_store(
    store: FeatureStore,
    target: str | os.PathLike[str],
    *,
    format: str | None = None,
    replace: bool = False,
    progress: Callable[[int], None] | None = None,
) -> str:
    """Write all images; the format that was chosen is returned.

    Args:
        store: what to write.
        target: the file.
        format: one of :data:`EXPORTS`; None: ``npz`` or ``butd-tsv``, by the file's ending.
        replace: whether a file that is there may be replaced.
        progress: called with numbers of images written.

    Raises:
        UsageError: unknown format, the file is there, or cannot be written.
        FeatureError: the format needs boxes, classes or attributes that the store does not have, or cannot hold the
            probabilities of classes that it has.
    """
    path = Path(target)
    kind = format or {".npz": "npz", ".tsv": "butd-tsv"}.get(path.suffix)
    if kind not in EXPORTS:
        problem = f"unknown format '{kind}'" if kind else f"the ending '{path.suffix}' names no format"
        raise UsageError(problem, hint=f"Say it with --format. {suggest(kind or '', list(EXPORTS))}")
    if path.exists() and not replace:
        raise UsageError("is there already", path=path, hint="Name another file, or replace it with --replace")
    lacking = [] if store.header.boxes else ["boxes"]
    if kind == "lxmert-tsv":
        lacking += [name for name in FLAT_FIELDS if name not in store.header.fields]
    if kind != "npz" and lacking:
        raise FeatureError(f"{kind} needs {', '.join(lacking)}, which this store does not have", path=store.paths[0])
    if kind != "npz" and store.header.probabilities:
        raise FeatureError(
            f"{kind} cannot hold class_probabilities, which this store has", path=store.paths[0], hint="Export an npz"
        )
    step = progress or (lambda _done: None)
    if kind == "npz":
        _write_npz(store, path, step)
        return kind
    with files.atomic_write(path, "wb") as stream:
        for regions in store:
            if "\t" in regions.image:
                raise FeatureError(
                    f"the image id {regions.image!r} holds a tab, which ends a column of {kind}",
                    path=store.paths[0],
                    hint="Export an npz",
                )
            stream.write(_row(regions, lxmert=kind == "lxmert-tsv"))
            step(1)
    return kind


def _base64(array: Any, dtype: str) -> str:
    return base64.b64encode(np.asarray(array).astype(dtype).tobytes()).decode()


def _row(regions: RegionFeatures, *, lxmert: bool) -> bytes:
    size: tuple[object, ...] = (regions.width, regions.height)
    cells: tuple[object, ...] = (len(regions), _base64(regions.boxes, "<f4"), _base64(regions.features, "<f4"))
    if lxmert:
        flat = regions.flat()
        objects = (_base64(flat[name], "<i8" if name.endswith("ids") else "<f4") for name in FLAT_FIELDS)
        cells = (*objects, *cells)
        size = size[::-1]
    return ("\t".join(map(str, (regions.image, *size, *cells))) + "\r\n").encode()


def _write_npz(store: FeatureStore, path: Path, step: Callable[[int], None]) -> None:
    header = store.header
    images = store.ids
    counts = [store.regions(image) for image in images]
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    total = int(offsets[-1])
    arrays: dict[str, NDArray[Any]] = {"features": np.empty((total, header.feature_size), dtype=header.dtype)}
    if header.boxes:
        arrays["boxes"] = np.empty((total, 4), dtype=np.float32)
    for name in header.fields:
        arrays[name] = np.empty(total, dtype=np.int32 if name.endswith("ids") else np.float32)
    if header.probabilities:
        arrays["class_probabilities"] = np.empty((total, header.probabilities), dtype=header.dtype)
    sizes = np.empty((len(images), 2), dtype=np.int32)
    for i, regions in enumerate(store):
        sizes[i] = regions.width, regions.height
        for name, array in arrays.items():
            array[offsets[i] : offsets[i + 1]] = getattr(regions, name)
        step(1)
    arrays["image_sizes"] = sizes
    # Names lose their folders and endings when they are imported; ids that have such parts are given as ids.
    names = "image_names" if all(image_id(image) == image for image in images) else "image_ids"
    with files.atomic_write(path, "wb") as stream:
        np.savez(stream, allow_pickle=False, offsets=offsets, **{names: np.array(images)}, **arrays)

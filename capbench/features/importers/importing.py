"""Import of feature files: detecting the format, tab-separated files, ViLBERT's, and writing the images to a store."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench.core import files
from capbench.core.errors import DataError, FeatureError, UsageError, check_choice, require
from capbench.core.pickles import load_npy, load_pickle
from capbench.core.records import image_id
from capbench.features.importers.arrays import (
    FIELDS,
    FieldError,
    ImportedImage,
    array_names,
    base64_array,
    demand,
    flat_field,
    float_matrix,
    invalid_field,
    read_milvlg,
    read_npz,
    read_scan,
    single_number,
    whole_number,
)
from capbench.features.records import UNKNOWN, Fingerprint, RegionFeatures, not_distributions
from capbench.features.store import FeatureStore
from capbench.features.writing import StoreWriter, check_new

# Tab-separated files with base64 arrays: six columns of bottom-up attention, ten of LXMERT, both without a header.
# They are read line by line: a file of 40 GB requires the memory of one image.

COLUMNS = {
    6: ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features"),
    10: (
        "img_id", "img_h", "img_w", "objects_id", "objects_conf", "attrs_id", "attrs_conf", "num_boxes", "boxes",
        "features",
    ),
}  # fmt: skip
_MOST_DAMAGED = 20  # images with damaged rows in a file of this format


def read_tsv(path: Path, columns: int, damaged: list[int] | None = None) -> Iterator[ImportedImage]:
    """All images of a file with 6 or 10 columns.

    ``damaged``: gets the numbers of damaged rows whose image has an intact row, too, as in the published features of
    COCO's test images.
    """
    names = COLUMNS[columns]
    intact: set[bytes] = set()
    broken: dict[bytes, list[tuple[int, DataError]]] = {}
    with open(path, "rb") as stream:
        for row, line in enumerate(stream, start=1):
            text = line.rstrip(b"\r\n")
            if not text and not stream.peek(1):
                break
            image = text.partition(b"\t")[0]
            try:
                regions = _parse(text, names, path, row, complete=line.endswith(b"\n"))
            except DataError as error:
                if len(broken) > _MOST_DAMAGED or image == names[0].encode():  # another format
                    raise
                broken.setdefault(image, []).append((row, error))
                continue
            intact.add(image)
            yield ImportedImage(regions, path, row)
    for image, problems in broken.items():
        if image not in intact:
            raise problems[0][1]
        if damaged is not None:
            damaged += [row for row, _ in problems]


def _parse(line: bytes, names: tuple[str, ...], path: Path, row: int, *, complete: bool) -> RegionFeatures:
    again = "Get the file again" if complete else "The file is truncated: get it again"
    columns = line.count(b"\t") + 1
    if columns != len(names):
        hint = f"Use tabs as separators, without a header: {', '.join(names)}" if complete else again
        message = f"has {columns} column{'s' if columns != 1 else ''}, not {len(names)}"
        code = "wrong-format" if complete else "damaged"
        raise DataError(message, code=code, value=columns, path=path, row=row, hint=hint)
    cell = dict(zip(names, map(_bare, line.split(b"\t")), strict=True))
    lxmert = len(names) == 10
    try:
        name = cell["img_id" if lxmert else "image_id"].decode("utf-8")
        height = whole_number(cell["img_h" if lxmert else "image_h"], "height")
        width = whole_number(cell["img_w" if lxmert else "image_w"], "width")
        n = whole_number(cell["num_boxes"], "num_boxes")
        boxes = float_matrix(base64_array(cell["boxes"], "float32", "boxes"), n, 4, "boxes")
        features = float_matrix(base64_array(cell["features"], "float32", "features"), n, None, "features")
        flat = {}
        if lxmert:
            for field, column in FIELDS.items():
                dtype = "int64" if field.endswith("_ids") else "float32"
                flat[field] = flat_field(base64_array(cell[column], dtype, column), n, field)
    except ValueError as error:
        if row == 1 and cell["num_boxes"] == b"num_boxes":
            message = "is a header, which this format does not have"
            raise DataError(message, code="wrong-format", path=path, row=1, hint="Remove it") from None
        invalid = invalid_field(error, path, row, again)
        invalid.code = invalid.code if complete else "damaged"
        raise invalid from None
    return RegionFeatures(image_id(name), width, height, boxes, features, **flat)


def _bare(cell: bytes) -> bytes:
    """A cell without the signs of ``b'…'``, as which Python 3 writes bytes to a text file."""
    return cell[2:-1] if cell.startswith(b"b'") and cell.endswith(b"'") else cell


FORMATS = {
    "butd-tsv": "bottom-up attention: 6 columns, base64",
    "lxmert-tsv": "LXMERT: 10 columns, base64, with classes and attributes",
    "milvlg": "bottom-up-attention.pytorch: one .npz per image",
    "scan": "SCAN: .npy (images, regions, columns), with --ids",
    "vilbert": "ViLBERT: one .npy per image",
    "lmdb": "ViLBERT: LMDB",
    "npz": "many images in one .npz",
}
_WITH_PROBABILITIES = ("vilbert", "lmdb")
_HEAD = 1 << 20


@dataclass(frozen=True, eq=False)
class Imported:
    """Result of an import."""

    store: FeatureStore  # the finished store
    path: Path  # its file, for ``features=``
    format: str  # format of the files
    images: int  # number of images
    seconds: float  # time of the import
    signature: str  # signature of the features, which is part of signatures of scores
    duplicates: int  # number of images skipped because the store had them already
    # number of images whose files contain ``cls_prob``, of which the store has only the resulting class and
    # confidence
    without_probabilities: int = 0
    damaged: tuple[int, ...] = ()  # numbers of damaged rows whose image has an intact row, too

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        names = ("format", "images", "duplicates", "damaged", "seconds", "signature")
        return {"store": str(self.path), **{n: getattr(self, n) for n in names}, "seconds": round(self.seconds, 3)}


def import_features(
    sources: Sequence[str | os.PathLike[str]],
    target: str | os.PathLike[str],
    *,
    format: str | None = None,
    ids: str | os.PathLike[str] | None = None,  # for ``scan``: a file with the id of each image, one per line
    # name of the detector for the fingerprint. None if it is unknown: the fingerprint then identifies these files, so
    # that they are not mixed with others
    detector: str | None = None,
    weights_sha256: str | None = None,
    dtype: str = "float32",
    compression: str = "none",
    # for ``vilbert`` and ``lmdb``: import all of ``cls_prob``, in the type of the features. It takes nearly as much
    # space as features of 2,048 columns
    class_probabilities: bool = False,
    keep_first: bool = False,  # skip later rows of the same image instead of raising
    replace: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Imported:
    """Read files of one format into a new store, image by image."""
    path, begin = Path(target), time.perf_counter()
    check_new(path, replace)
    if not sources:
        raise UsageError("no file to import was passed", code="missing-option")
    if format is not None:
        check_choice("format", format, FORMATS)
    paths = _expand([Path(source) for source in sources], format)
    kind = format or detect_format(paths[0])
    if (kind == "scan") != (ids is not None):
        raise UsageError(
            f"the format {kind} {'requires' if kind == 'scan' else 'does not use'} --ids",
            code="missing-option" if kind == "scan" else "conflict",
            value="--ids",
            hint="Pass a file with one image id per line for SCAN's arrays only",
        )
    if class_probabilities and kind not in _WITH_PROBABILITIES:
        hint = f"Omit --class-probabilities, or import {' or '.join(_WITH_PROBABILITIES)}"
        message = f"the format {kind} has no class probabilities"
        raise UsageError(message, code="conflict", value=kind, path=paths[0], hint=hint)
    ids_file = None if ids is None else Path(ids)
    damaged: list[int] = []
    images = chain.from_iterable(_read(source, kind, ids_file, class_probabilities, damaged) for source in paths)
    fingerprint = _fingerprint(paths, detector, weights_sha256)
    duplicates = without_probabilities = 0
    # In these formats confidences always come from cls_prob.
    reduced = kind in _WITH_PROBABILITIES and not class_probabilities
    with StoreWriter(path, fingerprint, dtype=dtype, compression=compression, restart=True, keep=False) as writer:
        for entry in images:
            if keep_first and entry.regions.image in writer:
                duplicates += 1
                continue
            try:
                writer.add(entry.regions)
            except FeatureError as error:
                keep = "Remove one of the two, or keep the first with --keep-first"
                remedy = keep if error.code == "duplicate" else None
                raise error.placed(DataError, entry.path, entry.row, remedy) from error
            without_probabilities += reduced and entry.regions.class_scores is not None
            if progress:
                progress(1)
        store = writer.finish()
    facts = len(store), time.perf_counter() - begin, store.signature()
    return Imported(store, path, kind, *facts, duplicates, without_probabilities, tuple(damaged))


def _fingerprint(paths: Sequence[Path], detector: str | None, weights: str | None) -> Fingerprint:
    if weights is not None and (len(weights) != 64 or set(weights.lower()) - set("0123456789abcdef")):
        message = f"'{weights}' is not a SHA-256"
        raise UsageError(message, code="wrong-value", value=weights, hint="Write its 64 hex digits")
    mode = "imported"
    if detector is None:
        summary = hashlib.sha256()
        for path in paths:
            summary.update(f"{path.name}\n{path.stat().st_size}\n".encode())
            if path.is_file():
                with open(path, "rb") as stream:
                    summary.update(stream.read(_HEAD))
        mode = f"imported files {summary.hexdigest()[:16]}"
    sha256 = UNKNOWN if weights is None else weights.lower()
    return Fingerprint(detector or UNKNOWN, sha256, UNKNOWN, mode, UNKNOWN, UNKNOWN)


def _expand(sources: Sequence[Path], format: str | None) -> list[Path]:
    """Files, with folders replaced by their files, except for LMDB folders."""
    paths: list[Path] = []
    endings = {"milvlg": (".npz",), "npz": (".npz",), "vilbert": (".npy",), "scan": (".npy",), "lmdb": (".mdb",)}
    suffixes = endings.get(format or "", (".tsv", ".npz", ".npy"))
    for source in sources:
        if not source.is_dir():
            files.check_readable(source)
        if not source.is_dir() or (source / "data.mdb").exists():
            paths.append(source)
            continue
        inside = sorted(path for path in source.iterdir() if path.suffix in suffixes)
        kinds = sorted({path.suffix for path in inside})
        if len(kinds) > 1:
            message = f"contains files of several kinds: {', '.join(kinds)}"
            hint = "Name the files, or select a format with --format"
            raise DataError(message, code="ambiguous", path=source, hint=hint)
        if not inside:
            message = f"contains no {' or '.join(suffixes)} file"
            raise DataError(message, code="missing-file", path=source, hint="Name the files, or their folder")
        paths += inside
    return paths


def detect_format(path: Path) -> str:
    """The format of a file, by its suffix and first bytes. Raises DataError if it is not one of :data:`FORMATS`."""
    if path.is_dir() or path.suffix in (".mdb", ".lmdb"):
        return "lmdb"
    with open(path, "rb") as stream:
        first = stream.readline()
    if first.startswith(b"\x93NUMPY"):
        return "vilbert" if b"'|O'" in first[:128] else "scan"
    if first.startswith(b"PK"):
        return "milvlg" if {"x", "bbox"} <= set(array_names(path)) else "npz"
    if not first.strip():
        raise DataError("is empty", code="missing-value", path=path, hint="Get the file again")
    columns = first.count(b"\t") + 1
    if columns not in COLUMNS:
        plural = "s" if columns > 1 else ""
        message = f"has {columns} column{plural} separated by tabs, and is not an .npz, .npy or LMDB file"
        known = "; ".join(f"{name} ({description})" for name, description in FORMATS.items())
        raise DataError(message, code="wrong-format", path=path, row=1, hint=f"Known formats: {known}")
    return {6: "butd-tsv", 10: "lxmert-tsv"}[columns]


def _read(path: Path, kind: str, ids: Path | None, probabilities: bool, damaged: list[int]) -> Iterator[ImportedImage]:
    if kind in ("butd-tsv", "lxmert-tsv"):
        return read_tsv(path, 6 if kind == "butd-tsv" else 10, damaged)
    if kind == "scan":
        assert ids is not None
        return read_scan(path, ids)
    if kind in _WITH_PROBABILITIES:
        return {"vilbert": read_vilbert, "lmdb": read_lmdb}[kind](path, probabilities=probabilities)
    return {"milvlg": read_milvlg, "npz": read_npz}[kind](path)


# ViLBERT's pickled dictionaries, one per image, in ``.npy`` files or in an LMDB database. The database holds a
# dictionary under each image id, and the list of ids under ``keys``.

_VILBERT_NAMES = {"bbox": "boxes", "image_h": "image_height", "image_w": "image_width", "img_id": "image_id"}


def read_vilbert(path: Path, *, probabilities: bool = False) -> Iterator[ImportedImage]:
    """One image in the format of ViLBERT's extraction script: a pickled dictionary, read by a restricted unpickler."""
    name = path.name.removesuffix(".npy")
    regions = parse_vilbert(load_npy(path), path, None, default_id=name, probabilities=probabilities)
    yield ImportedImage(regions, path)


def parse_vilbert(
    record: Any, path: Path, row: str | None, *, default_id: str, probabilities: bool = False
) -> RegionFeatures:
    """Regions from ViLBERT's dictionary; arrays may be base64, as in LMDB files.

    All rows of ``features`` are imported, as in ViLBERT's own reader: its extraction script puts regions that were
    suppressed in every class at the end and does not count them in ``num_boxes``. :func:`_vilbert_classes` describes
    the classes; with ``probabilities`` all of ``cls_prob`` is imported, too.
    """
    if not isinstance(record, Mapping):
        kind = type(record).__name__
        message = f"contains a {kind}, not a dictionary of arrays"
        raise DataError(message, code="wrong-type", value=kind, path=path, row=row)
    renamed = {_VILBERT_NAMES.get(str(key), str(key)): value for key, value in record.items()}
    demand(renamed, ("features", "boxes", "image_width", "image_height"), path)
    try:
        features, boxes = (_decoded(renamed[name], name) for name in ("features", "boxes"))
        n = whole_number(single_number(renamed.get("num_boxes", len(boxes))), "num_boxes")
        if features.ndim == boxes.ndim == 2 and 0 < n < len(features) == len(boxes):
            n = len(features)
        width, height = (whole_number(single_number(renamed[name]), name) for name in ("image_width", "image_height"))
        name = renamed.get("image_id", default_id)
        text = name.decode() if isinstance(name, bytes) else str(name)
        return RegionFeatures(
            image_id(text),
            width,
            height,
            float_matrix(boxes, n, 4, "boxes"),
            float_matrix(features, n, None, "features"),
            **_vilbert_classes(renamed, n, probabilities),
        )
    except (ValueError, TypeError) as error:
        raise invalid_field(error, path, row) from None


def _vilbert_classes(record: Mapping[str, Any], n: int, keep_probabilities: bool) -> dict[str, NDArray[Any]]:
    """Classes and confidences of the ``n`` regions, those that the dictionary contains.

    ``cls_prob`` (n, 1 + classes) contains each region's probabilities, the background first. The class is the most
    probable one except the background, counted from 0 without it; the confidence is its probability. ``objects`` must
    then be these classes, or columns of ``cls_prob`` (the script's ``--background``). Without probabilities (none, or
    zero everywhere) ``objects`` are the classes and there are no confidences. ``objects`` with one value too few are
    ignored: by default the script drops the first region when it should drop the background.
    """
    objects = None
    if record.get("objects") is not None:
        objects = _decoded(record["objects"], "objects", "int64")
        if objects.size not in (n - 1, n):
            raise FieldError("objects", f"has {objects.size} values for {n} boxes", "wrong-shape")
        objects = None if objects.size < n else flat_field(objects, n, "class_ids")
    stated = None if record.get("cls_prob") is None else _decoded(record["cls_prob"], "cls_prob")
    if stated is None or not np.any(stated):
        if keep_probabilities:
            problem = "is missing" if stated is None else "contains only zeros"
            raise FieldError("cls_prob", problem, "missing-value", "Omit --class-probabilities")
        return {} if objects is None else {"class_ids": objects}
    probabilities = float_matrix(stated, n, None, "cls_prob")
    wrong = not_distributions(probabilities)
    if probabilities.shape[1] < 2 or len(wrong):
        problem = f"of region {wrong[0] if len(wrong) else 0} is not a distribution over background and classes"
        raise FieldError("cls_prob", problem, "out-of-range")
    foreground = probabilities[:, 1:]
    ids, scores = foreground.argmax(axis=1).astype(np.int32), foreground.max(axis=1)
    if objects is not None:
        named_classes = _are_best(objects, foreground)
        if named_classes.all():
            ids = objects  # the file's choice among equally probable classes
        elif not _are_best(objects, probabilities).all():
            row = int(np.flatnonzero(~named_classes)[0])
            problem = f"of region {row} is {objects[row]}, but class {ids[row]} is the most probable in cls_prob"
            raise FieldError("objects", problem, "mismatch")
    stored = {"class_probabilities": probabilities} if keep_probabilities else {}
    return {"class_ids": ids, "class_scores": scores, **stored}


def _are_best(ids: NDArray[Any], probabilities: NDArray[np.float32]) -> NDArray[np.bool_]:
    """True for each row whose named column has the highest value."""
    last = probabilities.shape[1] - 1
    named = probabilities[np.arange(len(ids)), np.clip(ids, 0, last)]
    best: NDArray[np.bool_] = (ids >= 0) & (ids <= last) & (named >= probabilities.max(axis=1))
    return best


def _decoded(value: Any, field: str, dtype: str = "float32") -> NDArray[Any]:
    return base64_array(value, dtype, field) if isinstance(value, bytes | str) else np.asarray(value)


def read_lmdb(path: Path, *, probabilities: bool = False) -> Iterator[ImportedImage]:
    """All images of a database (a folder with ``data.mdb``, or one file), read by a restricted unpickler."""
    require("lmdb", purpose=str(path))
    import lmdb

    file = path / "data.mdb" if path.is_dir() else path
    files.check_readable(file)
    try:
        base = lmdb.open(str(path), subdir=path.is_dir(), readonly=True, lock=False, readahead=False, create=False)
        with base, base.begin(buffers=False) as transaction:
            if (base.info()["last_pgno"] + 1) * base.stat()["psize"] > file.stat().st_size:
                raise lmdb.Error("it is truncated")  # reading beyond the end of a mapped file would be fatal
            for key, value in transaction.cursor():
                if key == b"keys":
                    continue
                name = key.decode("utf-8", "replace")
                place = f"key {name[:60]!r}"
                record = load_pickle(bytes(value), name=f"{path}, {place}")
                regions = parse_vilbert(record, path, place, default_id=name, probabilities=probabilities)
                yield ImportedImage(regions, path, place)
    except lmdb.Error as error:
        raise DataError(f"cannot be read as LMDB ({error})", code="damaged", path=path, hint="Get it again") from error

"""What is here, what is missing, and how to get it: the catalog held against a data folder."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

from capbench.core.errors import CapbenchError, CapbenchWarning, DataError, MissingFileError, UsageError, suggest
from capbench.core.files import cache_dir, lock, read_bytes, read_json, sha256_file, unpack_gzip, write_text
from capbench.datasets.base import dataset_names, load_dataset
from capbench.datasets.catalog import Catalog, Count, DatasetEntry, FileEntry, Need
from capbench.datasets.judgement_files import file_error
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import DataRoot
from capbench.datasets.user.judgements import imported_names

if TYPE_CHECKING:
    from capbench.datasets.download import Progress

__all__ = [
    "CountResult",
    "DatasetStatus",
    "FileReport",
    "FileState",
    "HashRecord",
    "Obtained",
    "Wanted",
    "count_rows",
    "dataset_status",
    "inventory",
    "missing_needs",
    "obtain",
    "resolve_target",
    "verify_file",
    "verify_files",
]


Kind = Literal["published", "captions", "plug-in", "imported"]
State = Literal["here", "partly", "absent", "damaged"]


@dataclass(frozen=True)
class DatasetStatus:
    """One line of ``capbench data list``.

    Attributes:
        name: name of the data set.
        title: its name in prose.
        kind: ``published`` judgements, ``captions`` without judgements, a ``plug-in``'s or an ``imported`` one.
        state: whether what is needed is here; ``damaged`` if it is and cannot be read.
        items: items under the default protocol, None unless they could be read.
        human: what people said of them by aspect or label: number of ratings or pairs.
        protocol: id of the default protocol, ``""`` for captions.
        missing: roles of the needed files that are not here.
        note: one line on what is wrong.
    """

    name: str
    title: str
    kind: Kind
    state: State
    items: int | None = None
    human: dict[str, int] = field(default_factory=dict)
    protocol: str = ""
    missing: tuple[str, ...] = ()
    note: str = ""


def missing_needs(entry: DatasetEntry, root: DataRoot) -> list[Need]:
    """The needs of a data set that are needed and not met."""
    return [need for need in entry.needs if need.needed and need.met(root.path) is None]


def inventory(root: DataRoot, known: Catalog) -> list[DatasetStatus]:
    """The status of every data set: those of the catalog, other registered ones, imported ones.

    Args:
        root: the data folder.
        known: the catalog.
    """
    names = dict.fromkeys([*known.datasets, *dataset_names(), *imported_names(root)])
    return [dataset_status(name, root, known) for name in names]


def dataset_status(name: str, root: DataRoot, known: Catalog) -> DatasetStatus:
    """The status of one data set. Judgements are read under the default protocol to count them.

    What cannot be read does not raise: the status is then ``absent`` or ``damaged`` and says why.

    Args:
        name: of a data set of the catalog, a registered one or an imported one.
        root: the data folder.
        known: the catalog.
    """
    entry = known.datasets.get(name)
    registered = name in dataset_names()
    if entry is not None:
        missing = tuple(need.role for need in missing_needs(entry, root))
        if missing:
            any_here = any(need.needed and need.met(root.path) is not None for need in entry.needs)
            protocol, kind = _default(name) if registered else ("", "captions")
            state: State = "partly" if any_here else "absent"
            return DatasetStatus(name, entry.title, kind, state, protocol=protocol, missing=missing)
        if not registered:
            return DatasetStatus(name, entry.title, "captions", "here")
    kind = "published" if entry is not None else "plug-in" if registered else "imported"
    title = entry.title if entry is not None else name
    try:
        dataset = open_dataset(name, root)
        title, protocol = dataset.title, str(dataset.protocol())
        judgements = dataset.load(dataset.protocol().items)[0]
    except MissingFileError as error:
        state = "damaged" if kind == "imported" else "absent"
        return DatasetStatus(name, title, kind, state, note=str(error))
    except CapbenchError as error:
        return DatasetStatus(name, title, kind, "damaged", note=str(error))
    human = {aspect: len(ratings) for aspect, ratings in judgements.ratings.items()}
    human |= {label: len(pairs) for label, pairs in judgements.preferences.items()}
    return DatasetStatus(name, title, kind, "here", len(judgements.items), human, protocol)


def _default(name: str) -> tuple[str, Kind]:
    try:
        return str(load_dataset(name).protocol()), "published"
    except CapbenchError:
        return "", "published"


@dataclass(frozen=True)
class Wanted:
    """Files to get from one source.

    Attributes:
        source: its name in the catalog.
        paths: paths below the data folder.
    """

    source: str
    paths: tuple[str, ...]


@dataclass(frozen=True)
class Obtained:
    """What a download did, as paths below the data folder.

    Attributes:
        source: name of the source in the catalog.
        written: files that are new.
        kept: files that were there already.
        absent: files that the archive does not hold.
    """

    source: str
    written: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


def resolve_target(target: str, known: Catalog, root: DataRoot) -> list[Wanted]:
    """What ``data download TARGET`` means: a data set's missing files, one file, or all files of a source.

    Raises:
        UsageError: it is none of these; the nearest name and the choices are printed.
    """
    if target in known.datasets:
        return _group(known, (_easiest(known, need) for need in missing_needs(known.datasets[target], root)))
    if target in known.sources:
        return [Wanted(target, tuple(known.of_source(target)))]
    fitting = [path for path in known.files if path == target or PurePosixPath(path).name == target]
    if len(fitting) == 1:
        return [Wanted(known.files[fitting[0]].source, (fitting[0],))]
    if fitting:
        raise UsageError(
            f"'{target}' is the name of several files",
            code="ambiguous",
            value=target,
            hint=f"Choose one: {', '.join(fitting[:4])}, …",
        )
    raise UsageError(
        f"'{target}' is not a data set, source or file that is known",
        code="unknown-name",
        value=target,
        hint=suggest(target, [*known.datasets, *known.sources]),
    )


def _easiest(known: Catalog, need: Need) -> tuple[str, ...]:
    """The alternative to get: the first that can be downloaded whole, else the first."""
    for files in need.any_of:
        if all(known.sources[known.files[file].source].downloadable for file in files):
            return files
    return need.any_of[0]


def _group(known: Catalog, choices: Iterable[tuple[str, ...]]) -> list[Wanted]:
    by_source: dict[str, dict[str, None]] = {}
    for files in choices:
        for file in files:
            by_source.setdefault(known.files[file].source, {})[file] = None
    return [Wanted(source, tuple(paths)) for source, paths in by_source.items()]


def obtain(
    wanted: Wanted, known: Catalog, root: DataRoot, *, url: str | None = None, progress: Progress | None = None
) -> Obtained:
    """Download files of one source into the data folder.

    Args:
        wanted: source and files; those that are here already are kept.
        known: the catalog.
        root: the data folder.
        url: another address than the source's own: of the same archive, or of the one file that is wanted.
        progress: called with bytes so far and in all.

    Raises:
        MissingFileError: there is no address, it is known to be dead or turns out to be; the hint is the manual way.
        UsageError: the data folder is the embedded sample, or ``url`` cannot be matched to one file.
        DataError: what arrived is not what it should be.
    """
    from capbench.datasets.download import fetch, unpack  # here, for it brings the web's protocols with it

    if root.is_sample:
        raise UsageError(
            "published files do not belong into the embedded sample",
            code="unsupported",
            hint="Give --data DIR or set CAPBENCH_DATA to the folder that they shall go to",
        )
    source = known.sources[wanted.source]
    kept = tuple(path for path in wanted.paths if (root.path / path).exists())
    needed = [path for path in wanted.paths if path not in kept]
    if not needed:
        return Obtained(wanted.source, kept=kept)
    address = url or source.url
    if address is None or (url is None and source.dead is not None):
        if source.dead:
            why = f"its published link is dead: {source.dead}"
        elif source.form:
            why = f"it is given out through a form: {source.form}"
        else:
            why = "no open download is published"
        page = f" Page: {source.page}." if source.page else ""
        raise MissingFileError(
            f"{source.title}: {why}",
            code="download-failed",
            value=wanted.source,
            path=root.path / needed[0],
            hint=f"By hand: {source.manual}.{page} A copy that you may use: --url ADDRESS",
        )
    checksum = source.checksum if url is None else None
    zipped = address.split("?")[0].lower().endswith(".zip") or (url is None and source.archive == "zip")
    if not zipped:
        if len(needed) > 1:
            raise UsageError(
                f"--url {address}: one file cannot be {len(needed)} files",
                code="ambiguous",
                value=address,
                hint="Name the file to download",
            )
        known_hash = known.files[needed[0]].sha256
        # Another copy may rightly have another hash than one that was merely observed: verification warns of it.
        official = known_hash.value if known_hash is not None and known_hash.status == "official" else checksum
        fetch(address, root.path / needed[0], sha256=official, manual=source.manual, progress=progress)
        return Obtained(wanted.source, (needed[0],), kept)
    archive = _archive(address)
    fetch(address, archive, sha256=checksum, manual=source.manual, progress=progress)
    written, absent = unpack(archive, {path: known.files[path].member for path in needed}, root.path)
    if not absent:
        archive.unlink(missing_ok=True)
    return Obtained(wanted.source, tuple(written), kept, tuple(absent))


def _archive(url: str) -> Path:
    """Where an archive is kept until it is unpacked."""
    return cache_dir("downloads") / f"{hashlib.sha256(url.encode()).hexdigest()[:16]}.zip"


# Checks files against what the catalog knows: row counts and SHA-256.
#
# A hash that the catalog does not know is recorded the first time that a file is verified (``hashes.json`` in the cache
# folder, by data folder and file); a later difference is reported. A count that is wrong is an error; a hash that
# differs is a warning, because a good copy may differ in line ends or in one mended row.

FileState = Literal["ok", "recorded", "differs", "wrong", "missing"]
"""``ok``; ``recorded``: no hash was known, now one is; ``differs``: another hash than the known one (warning);
``wrong``: a count is wrong or the file cannot be read (error); ``missing``."""

_RECORDED, _NOT_RECORDED = "no hash is known: SHA-256 recorded now", "no hash is known, and none could be recorded"
_IMAGE_ENDINGS = {".jpg", ".jpeg", ".png"}


@dataclass(frozen=True)
class CountResult:
    """What was counted in a file, and what it should be.

    Attributes:
        of: what was counted, in the plural (``captions``).
        found: the count.
        expected: the count that it should be; None where only a minimum is known.
        minimum: the least that it should be, or None.
    """

    of: str
    found: int
    expected: int | None
    minimum: int | None

    @property
    def right(self) -> bool:
        """Whether the count is the expected one, or at least the minimum."""
        return self.found == self.expected if self.expected is not None else self.found >= (self.minimum or 0)

    def __str__(self) -> str:
        if self.right:
            return f"{self.found:,} {self.of}"
        wanted = f"{self.expected:,}" if self.expected is not None else f"at least {self.minimum:,}"
        return f"{self.found:,} {self.of}, not {wanted}"


@dataclass(frozen=True)
class FileReport:
    """The result for one file.

    Attributes:
        path: path below the data folder.
        state: see :data:`State`.
        detail: one line for people.
        counts: what was counted.
        sha256: the file's hash, ``""`` for folders and missing files.
        hash_status: where the hash that it was compared with is from: ``official``, ``observed``, ``first sight`` or
            ``""`` for none.
    """

    path: str
    state: FileState
    detail: str
    counts: tuple[CountResult, ...] = ()
    sha256: str = ""
    hash_status: str = ""


@dataclass
class HashRecord:
    """Hashes of files as they were when they were first verified.

    Attributes:
        path: the JSON file that keeps them; None is ``hashes.json`` in the cache folder.
    """

    path: Path | None = None

    def _file(self) -> Path:
        """Raises UsageError if the cache folder cannot be made."""
        return cache_dir("data") / "hashes.json" if self.path is None else self.path

    def read(self) -> dict[str, dict[str, str]]:
        """All records: data folder → file → hash; empty if nothing was recorded yet, or there is no cache folder.

        Raises:
            DataError: the record is damaged. It is not begun anew, because that would hide differences.
        """
        try:
            path = self._file()
        except UsageError:
            return {}
        if not os.path.isfile(path):  # noqa: PTH113  Path.is_file raises where the folder may not be looked into
            return {}
        record = read_json(path)
        if not isinstance(record, dict) or not all(
            isinstance(files, dict) and all(isinstance(v, str) for v in files.values()) for files in record.values()
        ):
            raise DataError(
                "is not a record of hashes",
                code="wrong-format",
                path=path,
                hint="Remove it: all files are then recorded as if new",
            )
        return record

    def get(self, root: DataRoot, file: str) -> str | None:
        """The recorded hash of a file under a data folder, or None."""
        return self.read().get(_key(root), {}).get(file)

    def add(self, root: DataRoot, hashes: Mapping[str, str]) -> bool:
        """Record hashes of files that have none yet; recorded ones stay.

        Returns:
            Whether they are kept: where the record cannot be written, a warning says so.
        """
        if not hashes:
            return True
        try:
            path = self._file()
            with lock(path):
                records = self.read()
                files = records.setdefault(_key(root), {})
                for file, value in hashes.items():
                    files.setdefault(file, value)
                write_text(path, json.dumps(records, indent=2, sort_keys=True) + "\n")
        except UsageError as error:
            warnings.warn(f"hashes cannot be recorded: {error}", CapbenchWarning, stacklevel=2)
            return False
        return True


def _key(root: DataRoot) -> str:
    return str(root.path.resolve())


def count_rows(path: Path, count: Count) -> int:
    """Count what a file holds in the way that the catalog says.

    Raises:
        DataError: the file is not what the way of counting needs (no JSON, no such key or variable, damaged gzip).
    """
    counters: dict[str, Callable[[Path, Count], int]] = {
        "lines": _lines,
        "rows": _rows,
        "json": _json,
        "json-lists": _json_lists,
        "mat": _mat,
        "folder": _folder,
    }
    return counters[count.how](path, count)


def _read(path: Path) -> str:
    data = read_bytes(path)
    if data[:2] == b"\x1f\x8b":
        data = unpack_gzip(path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise file_error("is not UTF-8", "unreadable", path) from error


def _lines(path: Path, count: Count) -> int:
    return sum(1 for line in _read(path).replace("\r\n", "\n").split("\n") if line.strip())


def _rows(path: Path, count: Count) -> int:
    # In a tab-separated file quotes are text like any other.
    text = io.StringIO(_read(path), newline="")
    if count.delimiter == "\t":
        reader = csv.reader(text, delimiter="\t", quoting=csv.QUOTE_NONE)
    else:
        reader = csv.reader(text, delimiter=count.delimiter)
    try:
        return max(sum(1 for cells in reader if cells) - 1, 0)
    except csv.Error as error:
        raise file_error(f"is not a table ({error})", "wrong-format", path, reader.line_num) from error


def _json(path: Path, count: Count) -> int:
    value = read_json(path)
    if count.at is not None:
        value = value.get(count.at) if isinstance(value, dict) else None
    if not isinstance(value, (dict, list)):
        raise file_error(f"has no list of {count.of}", "missing-key", path, value=count.at)
    return len(value)


def _json_lists(path: Path, count: Count) -> int:
    value = read_json(path)
    entries: list[Any] = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    if count.at is not None:
        entries = [entry.get(count.at) if isinstance(entry, dict) else None for entry in entries]
    if not all(isinstance(entry, list) for entry in entries):
        raise file_error(f"has no lists of {count.of}", "missing-key", path, value=count.at)
    return sum(len(entry) for entry in entries)


def _mat(path: Path, count: Count) -> int:
    import scipy.io

    names = [count.variable] if isinstance(count.variable, str) else count.variable
    try:
        shapes = {name: shape for name, shape, _ in scipy.io.whosmat(path)}
    except Exception as error:  # scipy raises many kinds on damaged files
        raise file_error(f"is not a MATLAB file ({error})", "wrong-format", path) from error
    for name in names:
        if name in shapes:
            # A matrix of triplets has one row a triplet, everything else one element an entry.
            shape = shapes[name]
            return max(shape) if 1 in shape or count.of == "triplets" else int(shape[0] * shape[1])
    raise DataError(
        f"has no variable {' or '.join(names)}",
        code="missing-key",
        value=names[0],
        path=path,
        hint="It may be another release of the file",
    )


def _folder(path: Path, count: Count) -> int:
    if not path.is_dir():
        raise DataError(
            "is not a folder", code="missing-file", path=path, hint="Put the images into a folder of that name"
        )
    return sum(1 for entry in path.iterdir() if entry.suffix.lower() in _IMAGE_ENDINGS)


def verify_file(root: DataRoot, path: str, entry: FileEntry, recorded: str | None) -> FileReport:
    """Check one file. Never raises for what the file holds: the report says it.

    Args:
        root: the data folder. Published counts and hashes do not hold for the embedded sample: there a file is only
            read.
        path: the file below it.
        entry: what the catalog knows of it.
        recorded: the hash recorded at first sight, if there is one.
    """
    full = root.path / path
    if not full.exists():
        return FileReport(path, "missing", "not here")
    counts: list[CountResult] = []
    sha256 = ""
    try:
        for spec in entry.counts:
            rows = count_rows(full, spec)
            if root.is_sample:
                counts.append(CountResult(spec.of, rows, None, 1))
            else:
                counts.append(CountResult(spec.of, rows, spec.expected, spec.minimum))
        if not full.is_dir():
            sha256 = sha256_file(full)
    except CapbenchError as error:
        detail = f"{error.message}. {error.hint}" if error.hint else error.message
        return FileReport(path, "wrong", detail, tuple(counts), sha256)
    state, detail, status = _compare(root, full, entry, recorded, sha256)
    if not all(count.right for count in counts):
        state = "wrong"
    told = ", ".join(str(count) for count in counts)
    return FileReport(
        path, state, "; ".join(remark for remark in (told, detail) if remark), tuple(counts), sha256, status
    )


def _compare(
    root: DataRoot, full: Path, entry: FileEntry, recorded: str | None, sha256: str
) -> tuple[FileState, str, str]:
    if full.is_dir():
        return "ok", "", ""
    if root.is_sample:
        return "ok", "synthetic, so published counts and hashes do not apply", ""
    if entry.sha256 is not None:
        status = entry.sha256.status
        if sha256 == entry.sha256.value:
            return "ok", f"SHA-256 as {status}", status
        where = "the publisher's" if status == "official" else f"the copy's seen in {entry.sha256.seen_in}"
        return "differs", f"SHA-256 {sha256[:12]}… is not {where}, {entry.sha256.value[:12]}…", status
    if recorded is None:
        return "recorded", _RECORDED, "first sight"
    if recorded == sha256:
        return "ok", "SHA-256 as at first sight", "first sight"
    return "differs", f"SHA-256 {sha256[:12]}… is not the one at first sight, {recorded[:12]}…", "first sight"


def verify_files(
    root: DataRoot, known: Catalog, paths: list[str], record: HashRecord, progress: Callable[[int], None]
) -> list[FileReport]:
    """Check files and record the hashes that were not known.

    Args:
        root: the data folder.
        known: the catalog.
        paths: paths below the data folder.
        record: hashes of earlier runs.
        progress: called with the number of files checked since its last call.

    Raises:
        DataError: the record of hashes is damaged.
    """
    before = record.read().get(_key(root), {})
    reports = []
    for path in paths:
        reports.append(verify_file(root, path, known.files[path], before.get(path)))
        progress(1)
    if not record.add(root, {report.path: report.sha256 for report in reports if report.state == "recorded"}):
        reports = [_unrecorded(report) if report.state == "recorded" else report for report in reports]
    return reports


def _unrecorded(report: FileReport) -> FileReport:
    return replace(report, state="ok", detail=report.detail.replace(_RECORDED, _NOT_RECORDED), hash_status="")

"""Compares a data folder with the catalog: status of data sets, downloads, verification of files."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

from capbench.core.errors import CapbenchError, DataError, MissingFileError, UsageError, check_choice
from capbench.core.files import cache_dir, read_json, read_text, sha256_file
from capbench.datasets.base import dataset_names, load_dataset
from capbench.datasets.catalog import Catalog, Count, DatasetEntry, FileEntry, Need
from capbench.datasets.judgement_files import file_error
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import DataRoot
from capbench.datasets.tables import read_table
from capbench.datasets.user.judgements import imported_folders

if TYPE_CHECKING:
    from capbench.core.download import Progress

Kind = Literal["published", "captions", "plug-in", "imported"]
State = Literal["here", "partly", "absent", "damaged"]


@dataclass(frozen=True)
class DatasetStatus:
    """One line of ``capbench data info``."""

    name: str
    title: str
    kind: Kind  # ``published`` judgements, ``captions`` without judgements, from a ``plug-in`` or ``imported``
    # ``here`` if all required files exist, ``partly`` or ``absent`` if some or all are missing, ``damaged`` if
    # they cannot be read
    state: State
    items: int | None = None  # number of items under the default protocol, None unless they could be read
    human: dict[str, int] = field(default_factory=dict)  # number of ratings by aspect, or of pairs by label
    protocol: str = ""  # id of the default protocol, ``""`` for captions
    missing: tuple[str, ...] = ()  # roles of the missing files
    note: str = ""  # one line that describes the problem
    published: str = ""  # number and kind of the published judgements, ``""`` for plug-ins and imported data
    licence: str = ""  # short name of the licence, ``""`` for plug-ins and imported data
    # command that downloads the missing files, or describes how to get them; ``""`` if none are missing
    command: str = ""


def missing_needs(entry: DatasetEntry, root: DataRoot) -> list[Need]:
    """The required needs of a data set whose files are missing."""
    return [need for need in entry.needs if need.needed and need.met(root.locate) is None]


def inventory(root: DataRoot, known: Catalog) -> list[DatasetStatus]:
    """The status of every data set: in the catalog, registered by plug-ins, or imported."""
    names = dict.fromkeys([*known.datasets, *dataset_names(), *imported_folders(root)])
    return [_status(name, root, known) for name in names]


def _status(name: str, root: DataRoot, known: Catalog) -> DatasetStatus:
    """The status of one data set. Judgements are read under the default protocol to count them."""
    entry, registered = known.datasets.get(name), name in dataset_names()
    kinds: tuple[Kind, Kind] = ("plug-in", "imported") if entry is None else ("published", "captions")
    status = DatasetStatus(name, name if entry is None else entry.title, kinds[0] if registered else kinds[1], "here")
    if entry is not None:
        missing = missing_needs(entry, root)
        files = [file for need in missing for file in _easiest(known, need)]
        verb = "download" if all(known.address(file) is not None for file in files) else "info"
        command = f"capbench data {verb} {name}" if files else ""
        status = replace(status, published=entry.judgements, licence=known.licence(name), command=command)
        if missing:
            any_exist = any(need.needed and need.met(root.locate) is not None for need in entry.needs)
            protocol = str(load_dataset(name).protocol()) if registered else ""
            state: State = "partly" if any_exist else "absent"
            return replace(status, state=state, protocol=protocol, missing=tuple(need.role for need in missing))
        if not registered:
            return status
    try:
        dataset = open_dataset(name, root)
        judgements = dataset.load(dataset.protocol().items)[0]
    except CapbenchError as error:
        state = "absent" if isinstance(error, MissingFileError) and status.kind != "imported" else "damaged"
        return replace(status, state=state, note=str(error))
    human = {aspect: len(ratings) for aspect, ratings in judgements.ratings.items()}
    human |= {label: len(pairs) for label, pairs in judgements.preferences.items()}
    items, protocol = len(judgements.items), str(dataset.protocol())
    return replace(status, title=dataset.title, items=items, human=human, protocol=protocol)


@dataclass(frozen=True)
class Wanted:
    """Files to get from one source of the catalog, as paths below the data folder."""

    source: str
    paths: tuple[str, ...]


@dataclass(frozen=True)
class Obtained:
    """The result of a download: new files, files that existed before, and files that are not in the archive."""

    written: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


def resolve_targets(targets: Sequence[str], known: Catalog, root: DataRoot) -> list[Wanted]:
    """Files that ``data download TARGET …`` gets, each once: of data sets without them, of sources, or single ones."""
    paths = dict.fromkeys(path for target in targets for path in _paths_of(target, known, root))
    by_source: dict[str, list[str]] = {}
    for path in paths:
        by_source.setdefault(known.files[path].source, []).append(path)
    return [Wanted(source, tuple(of_source)) for source, of_source in by_source.items()]


def _paths_of(target: str, known: Catalog, root: DataRoot) -> list[str]:
    if target in known.datasets:
        return [path for need in missing_needs(known.datasets[target], root) for path in _easiest(known, need)]
    if target in known.sources:
        return list(known.of_source(target))
    fitting = [path for path in known.files if path == target or PurePosixPath(path).name == target]
    if len(fitting) > 1:
        problem, hint = f"'{target}' is the name of several files", f"Choose one: {', '.join(fitting[:4])}, …"
        raise UsageError(problem, code="ambiguous", value=target, hint=hint)
    if not fitting:
        check_choice("data set, source or file", target, [*known.datasets, *known.sources])
    return fitting


def _easiest(known: Catalog, need: Need) -> tuple[str, ...]:
    """The alternative to get: the first that can be downloaded completely, else the first."""
    complete = (files for files in need.any_of if all(known.address(file) is not None for file in files))
    return next(complete, need.any_of[0])


def obtain(
    wanted: Wanted, known: Catalog, root: DataRoot, *, url: str | None = None, progress: Progress | None = None
) -> Obtained:
    """Download files of one source; ``url``: another address of its archive, or of the one requested file."""
    from capbench.core.download import fetch, unpack  # imported here because it loads the network modules

    if root.is_sample:
        problem, hint = "published files cannot be downloaded into the embedded sample", "Give a folder with --data DIR"
        raise UsageError(problem, code="unsupported", hint=f"{hint} or CAPBENCH_DATA")
    source = known.sources[wanted.source]
    existing = tuple(path for path in wanted.paths if root.locate(path).exists())
    needed = [path for path in wanted.paths if path not in existing]
    if not needed:
        return Obtained(kept=existing)
    if url is None and all(known.files[path].url for path in needed):
        for path in needed:
            file = known.files[path]
            sha256 = file.sha256.value if file.sha256 else None  # the address names a commit, and so a content
            fetch(str(file.url), root.path / path, sha256=sha256, manual=source.manual, progress=progress)
        return Obtained(tuple(needed), existing)
    address = url or source.url
    if address is None or (url is None and source.dead is not None):
        ways = (("its published link is dead", source.dead), ("it is available through a form", source.form))
        why = next((f"{problem}: {fact}" for problem, fact in ways if fact), "there is no open download")
        page = f" Page: {source.page}." if source.page else ""
        hint = f"Manually: {source.manual}.{page} If you have another address: --url ADDRESS"
        first, value = root.path / needed[0], wanted.source
        raise MissingFileError(f"{source.title}: {why}", code="download-failed", value=value, path=first, hint=hint)
    zipped = address.split("?")[0].lower().endswith(".zip") or (url is None and source.archive == "zip")
    if not zipped:
        if len(needed) > 1:
            problem = f"--url {address} is the address of one file, but {len(needed)} files are missing"
            raise UsageError(problem, code="ambiguous", value=address, hint="Name the file to download")
        known_hash = known.files[needed[0]].sha256
        # Only official hashes are enforced: another valid copy may differ from an observed hash. Verification warns.
        official = known_hash.value if known_hash is not None and known_hash.status == "official" else None
        fetch(address, root.path / needed[0], sha256=official, manual=source.manual, progress=progress)
        return Obtained((needed[0],), existing)
    # its place until it is unpacked
    archive = cache_dir("downloads") / f"{hashlib.sha256(address.encode()).hexdigest()[:16]}.zip"
    fetch(address, archive, manual=source.manual, progress=progress)
    written, absent = unpack(archive, {path: known.files[path].member for path in needed}, root.path)
    if not absent:
        archive.unlink(missing_ok=True)
    return Obtained(tuple(written), existing, tuple(absent))


# Verification of files: row counts and SHA-256. A wrong count is an error. A different hash is a warning, because a
# valid copy may differ in line ends or in one corrected row.

FileState = Literal["ok", "differs", "wrong", "missing"]
"""``differs``: the hash differs (warning); ``wrong``: a count is wrong or the file cannot be read (error)."""


@dataclass(frozen=True)
class FileReport:
    """The result of verifying one file below the data folder."""

    path: str
    state: FileState
    detail: str
    sha256: str = ""
    hash_status: str = ""


def count_rows(path: Path, count: Count) -> int:
    """Count the entries of a file with the method in the catalog."""
    match count.how:
        case "lines":
            return sum(1 for line in read_text(path).split("\n") if line.strip())
        case "rows":
            table = read_table(path, quotes=path.suffix == ".csv")
            return len(table.numbers) + table.blank
        case "json" | "json-lists":
            return _entries(path, count)
        case "mat":
            return _elements(path, count)
    if not path.is_dir():
        raise DataError("is not a folder", code="missing-file", path=path, hint="Make a folder of images of that name")
    return sum(1 for entry in path.iterdir() if entry.suffix.lower() in {".jpg", ".jpeg", ".png"})


def _entries(path: Path, count: Count) -> int:
    """The entries of a list or object, or of all lists in it."""
    value, at = read_json(path), count.at
    several = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else [None]
    entries = [value] if count.how == "json" else several
    lists: list[Any] = [entry.get(at) if at is not None and isinstance(entry, dict) else entry for entry in entries]
    if not all(isinstance(value, list | dict) for value in lists):
        raise file_error(f"has no list of {count.of}", "missing-key", path, value=at)
    return sum(map(len, lists))


def _elements(path: Path, count: Count) -> int:
    """The elements of the first existing variable of a MATLAB file; a matrix of triplets has one row per triplet."""
    import scipy.io

    names = [count.variable] if isinstance(count.variable, str) else count.variable
    try:
        shapes = {name: shape for name, shape, _ in scipy.io.whosmat(path)}
    except Exception as error:  # scipy raises many kinds on damaged files
        raise file_error(f"is not a MATLAB file ({error})", "wrong-format", path) from error
    shape = next((shapes[name] for name in names if name in shapes), None)
    if shape is None:
        raise file_error(f"has no variable {' or '.join(names)}", "missing-key", path, value=names[0])
    return max(shape) if 1 in shape or count.of == "triplets" else int(shape[0] * shape[1])


def verify_file(root: DataRoot, path: str, entry: FileEntry) -> FileReport:
    """Verify one file below the data folder. Invalid content does not raise an error but is reported."""
    full = root.locate(path)
    if not full.exists():
        return FileReport(path, "missing", "not here")
    counts: list[str] = []
    right, sha256 = True, ""
    try:
        for count in entry.counts:
            found = count_rows(full, count)
            expected, minimum = (None, 1) if root.is_sample else (count.expected, count.minimum)
            is_right = found == expected if expected is not None else found >= (minimum or 0)
            wanted = f"at least {minimum:,}" if expected is None else f"{expected:,}"
            counts.append(f"{found:,} {count.of}" + ("" if is_right else f", expected {wanted}"))
            right = right and is_right
        if not full.is_dir():
            sha256 = sha256_file(full)
    except CapbenchError as error:
        detail = f"{error.message}. {error.hint}" if error.hint else error.message
        return FileReport(path, "wrong", detail, sha256)
    state, detail, status = _compare(root, full, entry, sha256)
    detail = "; ".join(filter(None, [", ".join(counts), detail]))
    return FileReport(path, state if right else "wrong", detail, sha256, status)


def _compare(root: DataRoot, full: Path, entry: FileEntry, sha256: str) -> tuple[FileState, str, str]:
    if full.is_dir():
        return "ok", "", ""
    if root.is_sample:
        return "ok", "synthetic, so published counts and hashes do not apply", ""
    if entry.sha256 is None:
        return "ok", "no known SHA-256", ""
    status = entry.sha256.status
    if sha256 == entry.sha256.value:
        return "ok", f"SHA-256 as {status}", status
    origin = "the publisher's" if status == "official" else f"that of the copy in {entry.sha256.seen_in}"
    return "differs", f"SHA-256 {sha256[:12]}… is not {origin}, {entry.sha256.value[:12]}…", status

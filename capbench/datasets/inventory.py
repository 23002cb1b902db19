"""What is here, what is missing, and how to get it: the catalog held against a data folder."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal

from capbench.datasets.base import dataset_names, load_dataset
from capbench.datasets.catalog import Catalog, DatasetEntry, Need
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import DataRoot
from capbench.datasets.user.imported import imported_names
from capbench.errors import CapbenchError, MissingFileError, UsageError, suggest
from capbench.files import cache_dir

if TYPE_CHECKING:
    from capbench.datasets.download import Progress

__all__ = [
    "DatasetStatus",
    "Obtained",
    "Wanted",
    "dataset_status",
    "inventory",
    "missing_needs",
    "obtain",
    "resolve_target",
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
    return [need for need in entry.needs if need.needed and need.met(root) is None]


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
            any_here = any(need.needed and need.met(root) is not None for need in entry.needs)
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
        raise UsageError(f"'{target}' is the name of several files", hint=f"Choose one: {', '.join(fitting[:4])}, …")
    raise UsageError(
        f"'{target}' is no data set, source or file that is known",
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
            path=root.path / needed[0],
            hint=f"By hand: {source.manual}.{page} A copy that you may use: --url ADDRESS",
        )
    zipped = address.split("?")[0].lower().endswith(".zip") or (url is None and source.archive == "zip")
    if not zipped:
        if len(needed) > 1:
            raise UsageError(
                f"--url {address}: one file cannot be {len(needed)} files", hint="Name the file to download"
            )
        known_hash = known.files[needed[0]].sha256
        # Another copy may rightly have another hash than one that was merely observed: verification warns of it.
        official = known_hash.value if known_hash is not None and known_hash.status == "official" else None
        fetch(address, root.path / needed[0], sha256=official, manual=source.manual, progress=progress)
        return Obtained(wanted.source, (needed[0],), kept)
    archive = _archive(address)
    fetch(address, archive, manual=source.manual, progress=progress)
    written, absent = unpack(archive, {path: known.files[path].member for path in needed}, root.path)
    if not absent:
        archive.unlink(missing_ok=True)
    return Obtained(wanted.source, tuple(written), kept, tuple(absent))


def _archive(url: str) -> Path:
    """Where an archive is kept until it is unpacked."""
    return cache_dir("downloads") / f"{hashlib.sha256(url.encode()).hexdigest()[:16]}.zip"

"""``capbench.import_data``: import your own judgements as a data set; facts about data sets for ``capbench data``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capbench.api.caller import PYTHON, Caller
from capbench.api.checking import check_arguments, check_name
from capbench.core.errors import CapbenchError, MissingFileError, UsageError

if TYPE_CHECKING:
    from capbench.api.resolve import PathGiven
    from capbench.datasets.base import Dataset
    from capbench.datasets.catalog import Catalog
    from capbench.datasets.inventory import FileReport
    from capbench.datasets.root import DataRoot
    from capbench.studies.judged import ProgressFactory

__all__ = [
    "ImportedData",
    "dataset_info",
    "import_data",
    "imported_info",
    "judgements_of",
    "protocol_facts",
    "variance_facts",
    "verify_data",
]


@dataclass(frozen=True)
class ImportedData:
    """Imported judgements.

    Attributes:
        name: name of the data set, for ``dataset=``.
        folder: its folder.
        items: number of items.
        human: number of ratings by kind, or of preferences.
        preferences: kinds of ``human`` that are preferences.
        protocol: the default protocol.
        references: True if the items have references.
        notes: notes on the judgements, one line each.
        columns: the field of each column that was read under another name.
    """

    name: str
    folder: Path
    items: int
    human: Mapping[str, int]
    preferences: tuple[str, ...]
    protocol: str
    references: bool
    notes: tuple[str, ...]
    columns: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, object]:
        """As JSON."""
        facts = {"ok": True, "dataset": self.name, "folder": str(self.folder), "items": self.items}
        facts |= {"columns": dict(self.columns)} if self.columns else {}
        return facts | {"human": dict(self.human), "protocol": self.protocol}


def import_data(
    file: PathGiven,
    name: str,
    *,
    scale: str | tuple[float, float] | None = None,
    ignore: Sequence[str] = (),
    rating: Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
    replace: bool = False,
    user: bool = False,
    data: PathGiven | None = None,
) -> ImportedData:
    """Import your own judgements as a data set, as ``capbench data import`` does.

    Args:
        file: your judgements, .jsonl, .csv or .tsv; docs/data.md lists the columns.
        name: name of the new data set, for ``dataset=``.
        scale: lowest and highest possible rating, ``"1-5"`` or ``(1, 5)``.
        ignore: columns to ignore.
        rating: columns of ratings; each gives a kind of ratings of its name.
        columns: the column of a field, for names that are not accepted: ``{"image": "file"}``.
        replace: True to replace a data set of that name.
        user: True to store it in your capbench folder (``CAPBENCH_HOME``) instead of the data folder.
        data: the data folder; by default ``CAPBENCH_DATA``, else the embedded sample.

    Raises:
        UsageError: the name or the scale is invalid, or a data set of that name exists.
        DataError: a row is invalid; nothing is stored. All problems are listed.
    """
    check_arguments({"data": data})
    check_name("name", name)
    ignored = (ignore,) if isinstance(ignore, str) else ignore
    ratings = (rating,) if isinstance(rating, str) else rating
    return judgements_of(file, name, PYTHON, scale, ignored, ratings, columns, replace=replace, user=user, data=data)


def judgements_of(
    file: PathGiven,
    name: str,
    caller: Caller,
    scale: str | tuple[float, float] | None,
    ignore: Sequence[str],
    rating: Sequence[str],
    columns: Mapping[str, str] | None = None,
    *,
    replace: bool,
    user: bool,
    data: PathGiven | None,
) -> ImportedData:
    """Import judgements for Python or the command line; see :func:`import_data`."""
    from capbench.datasets.root import find_root
    from capbench.datasets.user.judgement_files import check_columns, parse_scale
    from capbench.datasets.user.judgements import import_file

    root = find_root(data)
    limits = parse_scale(scale) if isinstance(scale, str) else scale
    if scale is not None and limits is None:
        raise UsageError(
            f"{caller.spelled('scale')} {scale}: not a scale",
            code="wrong-value",
            value=scale,
            hint="Pass the lowest and highest rating: 1-5",
        )
    check_columns(caller.spelled("columns"), columns or {}, rating)
    made = import_file(
        Path(file),
        name,
        root,
        replace=replace,
        scale=limits,
        ignore=ignore,
        rating_columns=rating,
        columns=columns,
        in_home=user,
    )
    judgements = made.load(made.protocol().items)[0]
    human = {aspect: len(ratings) for aspect, ratings in judgements.ratings.items()}
    human |= {label: len(pairs) for label, pairs in judgements.preferences.items()}
    return ImportedData(
        name,
        made.path.parent,
        len(judgements.items),
        human,
        tuple(judgements.preferences),
        str(made.protocol()),
        made.table.most_references > 0,
        judgements.notes,
        dict(made.table.columns),
    )


# Facts about data sets for ``capbench data info``.


def dataset_info(name: str, root: DataRoot, known: Catalog) -> dict[str, Any]:
    """All facts in the catalog and the registered class of a data set."""
    from capbench.datasets.base import dataset_names

    entry = known.datasets[name]
    sources: dict[str, Any] = {}
    for path in entry.files:
        source = known.files[path].source
        facts = known.sources[source].model_dump(exclude_none=True)
        sources.setdefault(source, {**facts, "downloadable": False, "files": []})
        sources[source]["downloadable"] |= known.address(path) is not None
        sources[source]["files"].append(path)
    needs = []
    for need in entry.needs:
        met = need.met(root.locate)
        paths = [path for alternative in need.any_of for path in alternative]
        files = [{"path": p, "here": root.locate(p).exists(), **_about(known, p)} for p in paths]
        needs.append(
            {
                "role": need.role,
                "needed": need.needed,
                "why": need.why,
                "met": met is not None,
                "any_of": [list(files) for files in need.any_of],
                "files": files,
            }
        )
    about: dict[str, Any] = {"dataset": name, "title": entry.title, "what": entry.what, "citation": entry.citation}
    terms = known.captions.get(name)
    return about | {
        "captions": terms and terms.model_dump(),
        "needs": needs,
        "sources": sources,
        "protocols": _protocols_of(name) if name in dataset_names() else None,
    }


def _about(known: Catalog, path: str) -> dict[str, Any]:
    return known.files[path].model_dump(include={"what", "note", "source"})


def _protocols_of(name: str) -> dict[str, Any]:
    from capbench.datasets.base import load_dataset

    cls = load_dataset(name)
    return {
        "default": str(cls.protocol()),
        "items": {s.name: _described(s.description, s.source) for s in cls.selections.values()},
        "statistics": {s.name: _described(s.description, s.source) for s in cls.statistics.values()},
    }


def _described(description: str, source: str) -> str:
    return f"{description} ({source})" if source else description


def imported_info(name: str, root: DataRoot) -> dict[str, Any]:
    """All facts of imported judgements; ``folder`` is their folder."""
    from capbench.datasets.opening import open_dataset
    from capbench.datasets.user.judgements import find_imported, read_meta

    folder = find_imported(name, root)
    assert folder is not None
    meta = read_meta(folder)
    opened = open_dataset(name, root)
    return {
        "dataset": name,
        "title": name,
        "what": f"your own {meta['kind']}, {meta['rows']:,} rows",
        "citation": opened.citation,
        "folder": str(folder),
        "meta": meta,
        "protocols": {
            "default": str(opened.protocol()),
            "items": {s.name: s.description for s in opened.selections.values()},
            "statistics": {s.name: s.description for s in opened.statistics.values()},
        },
    }


def protocol_facts(dataset: str | None, root: DataRoot) -> list[dict[str, Any]]:
    """The protocols of a data set, or of all registered ones: items, statistics, groups and versions.

    Raises:
        CapbenchError: there is no such data set, or imported judgements cannot be read.
    """
    from capbench.datasets.base import dataset_names, load_dataset
    from capbench.datasets.opening import open_dataset, spelled

    # The protocols of imported judgements depend on their content.
    return [
        {
            "dataset": cls.name,
            "title": cls.title,
            "default": str(cls.protocol()),
            "items": [
                {"name": s.name, "description": s.description, "draws": s.draws, "seed": s.seed, "source": s.source}
                for s in cls.selections.values()
            ],
            "statistics": [
                {"name": s.name, "description": s.description, "source": s.source} for s in cls.statistics.values()
            ],
            "groups": [spelled(group) for group in cls.groups or ()],
            "beside": [f"{cls.name}@{name}" for name in cls.beside],
            "aliases": dict(cls.aliases),
            "version": cls.version,
            "versions": dict(cls.versions),
        }
        for cls in ([open_dataset(dataset, root)] if dataset else map(load_dataset, dataset_names()))
    ]


def variance_facts(names: Sequence[str], root: DataRoot) -> list[dict[str, Any]]:
    """Shares of the variance of ratings between sources, between images and within both.

    Several ratings of a caption are averaged first. Selections of items that differ only in references are listed once.

    Args:
        names: data sets with ratings; without any, all that are installed.
        root: the data folder.

    Returns:
        For each data set, selection of items and aspect of the ratings: ``dataset``, ``items``, ``aspect`` and the
        fields of :class:`~capbench.stats.variance.VarianceShares`.

    Raises:
        UsageError: a named data set has no ratings of captions.
        CapbenchError: a named data set cannot be loaded.
    """
    from capbench.datasets.base import dataset_names
    from capbench.datasets.opening import open_dataset
    from capbench.datasets.user.judgements import imported_names

    rows: list[dict[str, Any]] = []
    for name in dict.fromkeys(names or [*dataset_names(), *imported_names(root)]):
        try:
            of_dataset = _variance_of(open_dataset(name, root))
        except MissingFileError:
            if names:
                raise
            continue  # it is not installed
        if names and not of_dataset:
            raise UsageError(
                f"{name} has no ratings of captions",
                code="unsupported",
                value=name,
                hint="Choose a data set with ratings, such as composite, thumb or flickr8k-expert",
            )
        rows += of_dataset
    return rows


def _variance_of(dataset: Dataset) -> list[dict[str, Any]]:
    from capbench.stats.pairwise_accuracy import aggregate
    from capbench.stats.variance import variance_shares

    rows: list[dict[str, Any]] = []
    listed = set()
    default = dataset.protocol().items
    selections = [default, *(items for items in dataset.selections.values() if items.name != default.name)]
    for items in selections if any(spec.kind == "correlation" for spec in dataset.statistics.values()) else ():
        if items.seed is not None:
            continue  # samples of references: the captions are those of another selection
        judgements = dataset.load(items)[0]
        captions = tuple(item.candidate_id for item in judgements.items)
        if captions in listed:
            continue
        listed.add(captions)
        for aspect in judgements.ratings:
            ratings = judgements.ratings[aspect]
            places, values = aggregate(ratings.item, ratings.value, "mean")
            rated = [judgements.items[place] for place in places.tolist()]
            shares = variance_shares(values, [item.image for item in rated], [item.system for item in rated])
            rows.append({"dataset": dataset.name, "items": items.name, "aspect": aspect, **asdict(shares)})
    return rows


def verify_data(
    names: Sequence[str], root: DataRoot, known: Catalog, progress: ProgressFactory
) -> dict[str, list[FileReport]]:
    """Check row counts and SHA-256 of installed files, by data set.

    Args:
        names: data sets of the catalog or imported ones; without any all of them, where files of a data set that is
            not installed are omitted.
        root: the data folder.
        known: the catalog.
        progress: reports the progress by file.
    """
    from capbench.datasets.inventory import verify_file
    from capbench.datasets.user.judgements import imported_names

    chosen = list(dict.fromkeys(names)) or [*known.datasets, *imported_names(root)]
    plan = {name: _to_check(name, known, root, requested=bool(names)) for name in chosen if name in known.datasets}
    paths = list(dict.fromkeys(path for files in plan.values() for path in files))
    with progress("verifying", len(paths)) as step:
        reports: dict[str, FileReport] = {}
        for path in paths:
            reports[path] = verify_file(root, path, known.files[path])
            step(1)
    results: dict[str, list[FileReport]] = {name: [reports[path] for path in files] for name, files in plan.items()}
    return results | {name: [_verify_imported(name, root)] for name in chosen if name not in plan}


def _to_check(name: str, known: Catalog, root: DataRoot, *, requested: bool) -> list[str]:
    """All installed files of a data set, and for an unmet need the files of its most complete alternative."""
    entry = known.datasets[name]
    installed = [path for path in entry.files if root.locate(path).exists()]
    # A data set without installed files is an error only if it was requested. Files that it shares with another data
    # set do not count as installed (FOIL's captions are COCO's).
    others = {path for other in known.datasets.values() if other is not entry for path in other.files}
    unshared = [path for path in entry.files if path not in others]
    is_absent = bool(unshared) and not any(path in installed for path in unshared)
    if not requested and (is_absent or not any(need.needed and need.met(root.locate) for need in entry.needs)):
        return installed
    missing: list[str] = []
    for need in entry.needs:
        if need.needed and need.met(root.locate) is None:
            nearest = max(need.any_of, key=lambda files: sum(path in installed for path in files) / len(files))
            missing += [path for path in nearest if path not in installed]
    return list(dict.fromkeys([*installed, *missing]))


def _verify_imported(name: str, root: DataRoot) -> FileReport:
    from capbench.core.files import sha256_file
    from capbench.datasets.inventory import FileReport
    from capbench.datasets.opening import open_dataset
    from capbench.datasets.user.judgements import find_imported, read_meta

    path = f"imported/{name}/judgements.jsonl"
    folder = find_imported(name, root)
    assert folder is not None
    try:
        digest = sha256_file(folder / "judgements.jsonl")
        open_dataset(name, root)
        meta = read_meta(folder)
    except CapbenchError as error:
        return FileReport(path, "wrong", str(error))
    if digest != meta["sha256"]:
        return FileReport(path, "differs", "changed after the import", (), digest, "import")
    return FileReport(path, "ok", f"{meta['rows']:,} rows; SHA-256 as imported", (), digest, "import")

"""``capbench.import_data``: import your own judgements as a data set; facts about data sets for ``capbench data``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import Unpack

from capbench.api.arguments import JudgementSettings
from capbench.api.caller import ProgressGiven, python_caller
from capbench.api.checking import checked
from capbench.core.arguments import PathGiven
from capbench.core.errors import CapbenchError, UsageError

if TYPE_CHECKING:
    from capbench.datasets.base import Dataset
    from capbench.datasets.catalog import Catalog
    from capbench.datasets.inventory import FileReport
    from capbench.datasets.root import DataRoot
    from capbench.studies.scoring import ProgressFactory


@dataclass(frozen=True)
class ImportedData:
    """Imported judgements."""

    name: str  # name of the data set, for ``dataset=``
    folder: Path
    items: int  # number of items
    human: Mapping[str, int]  # number of ratings by kind, or of preferences
    preferences: tuple[str, ...]  # kinds of ``human`` that are preferences
    protocol: str  # the default protocol
    references: bool  # True if the items have references
    notes: tuple[str, ...]
    columns: Mapping[str, str] = field(default_factory=dict)  # the field of each column read under another name

    def to_dict(self) -> dict[str, object]:
        """As JSON."""
        facts = {"ok": True, "dataset": self.name, "folder": str(self.folder), "items": self.items}
        facts |= {"columns": dict(self.columns)} if self.columns else {}
        return facts | {"human": dict(self.human), "protocol": self.protocol}


@checked
def import_data(
    file: PathGiven,
    name: str,
    *,
    columns: Mapping[str, str] | None = None,
    progress: ProgressGiven = False,
    **settings: Unpack[JudgementSettings],
) -> ImportedData:
    """Import your own judgements as a data set, as ``capbench data import`` does.

    Nothing is stored if a row is invalid.
    The file is .jsonl, .csv or .tsv; docs/data.md lists its columns. ``columns`` has the column of a field, for names
    that are not accepted (``{"image": "file"}``).
    """
    from capbench.datasets.root import find_root
    from capbench.datasets.user.judgement_files import check_columns, parse_scale
    from capbench.datasets.user.judgements import import_file

    caller = python_caller(progress)
    scale, ignore, rating = settings.get("scale"), settings.get("ignore", ()), settings.get("rating", ())
    ratings = (rating,) if isinstance(rating, str) else tuple(rating)
    limits = parse_scale(scale) if isinstance(scale, str) else scale
    if scale is not None and limits is None:
        hint = "Pass the lowest and highest rating: 1-5"
        raise UsageError(f"{caller.spelled('scale')} {scale}: not a scale", code="wrong-value", value=scale, hint=hint)
    check_columns(caller.spelled("columns"), columns or {}, ratings)
    made = import_file(
        Path(file),
        name,
        find_root(settings.get("data")),
        replace=settings.get("replace", False),
        scale=limits,
        ignore=(ignore,) if isinstance(ignore, str) else ignore,
        rating_columns=ratings,
        columns=columns,
        in_home=settings.get("user", False),
    )
    judgements = made.load(made.protocol().items)[0]
    human = {aspect: len(values) for aspect, values in judgements.ratings.items()}
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
    """All facts in the catalog and the registered class of a data set, which need not be in the catalog."""
    from capbench.datasets.base import caption_terms, dataset_names, load_dataset
    from capbench.datasets.catalog import DatasetEntry

    entry = known.datasets.get(name)
    if entry is None:
        registered = load_dataset(name)
        what = (registered.__doc__ or "").partition("\n")[0]
        entry = DatasetEntry(title=registered.title, citation=registered.citation, what=what)
    sources: dict[str, Any] = {}
    for path in entry.files:
        source = known.files[path].source
        facts = known.sources[source].model_dump(exclude_none=True)
        sources.setdefault(source, {**facts, "downloadable": False, "files": []})
        sources[source]["downloadable"] |= known.address(path) is not None
        sources[source]["files"].append(path)
    needs = []
    for need in entry.needs:
        files = [
            {
                "path": path,
                "here": root.locate(path).exists(),
                **known.files[path].model_dump(include={"what", "note", "source"}),
            }
            for alternative in need.any_of
            for path in alternative
        ]
        facts = {name: getattr(need, name) for name in ("role", "needed", "why")}
        facts["met"] = need.met(root.locate) is not None
        needs.append({**facts, "any_of": [list(alternative) for alternative in need.any_of], "files": files})
    return {
        "dataset": name,
        "title": entry.title,
        "what": entry.what,
        "citation": entry.citation,
        "captions": caption_terms(name).model_dump(),
        "needs": needs,
        "sources": sources,
        "protocols": _protocols_of(load_dataset(name)) if name in dataset_names() else None,
    }


def imported_info(name: str, root: DataRoot) -> dict[str, Any]:
    """All facts of imported judgements; ``folder`` is their folder."""
    from capbench.datasets.opening import open_dataset
    from capbench.datasets.user.judgements import imported_folders, read_meta

    folder = imported_folders(root).get(name)
    assert folder is not None
    meta = read_meta(folder)
    opened = open_dataset(name, root)
    return {
        "dataset": name,
        "title": name,
        "what": f"your own {meta.kind}, {meta.rows:,} rows",
        "citation": opened.citation,
        "folder": str(folder),
        "meta": meta.model_dump(by_alias=True, exclude_unset=True),
        "protocols": _protocols_of(opened),
    }


def protocol_facts(names: Sequence[str], root: DataRoot) -> list[dict[str, Any]]:
    """The protocols of data sets, or of all registered ones: items, statistics, groups and versions."""
    from capbench.datasets.base import dataset_names, load_dataset
    from capbench.datasets.opening import open_dataset

    # The protocols of imported judgements depend on their content.
    chosen = [open_dataset(name, root) for name in names] or map(load_dataset, dataset_names())
    return list(map(_protocols_of, chosen))


def _protocols_of(cls: Dataset | type[Dataset]) -> dict[str, Any]:
    from capbench.datasets.opening import spelled

    items = ("name", "description", "draws", "seed", "source")
    statistics = ("name", "description", "source")
    return {
        "dataset": cls.name,
        "title": cls.title,
        "default": str(cls.protocol()),
        "items": [{name: getattr(part, name) for name in items} for part in cls.selections.values()],
        "statistics": [{name: getattr(part, name) for name in statistics} for part in cls.statistics.values()],
        "groups": [spelled(group) for group in cls.groups or ()],
        "beside": [f"{cls.name}@{name}" for name in cls.variants],
        "version": cls.version,
        "versions": dict(cls.versions),
    }


def verify_data(
    names: Sequence[str], root: DataRoot, known: Catalog, progress: ProgressFactory
) -> dict[str, list[FileReport]]:
    """Check row counts and SHA-256 of installed files, by data set.

    Without names, of all data sets; files of a data set that is not installed are then omitted.
    """
    from capbench.datasets.inventory import verify_file
    from capbench.datasets.user.judgements import imported_folders

    chosen = list(dict.fromkeys(names)) or [*known.datasets, *imported_folders(root)]
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
    from capbench.datasets.inventory import missing_needs

    entry = known.datasets[name]
    installed = [path for path in entry.files if root.locate(path).exists()]
    # A data set without installed files is an error only if it was requested. Files that it shares with another data
    # set do not count as installed (FOIL's captions are COCO's).
    others = {path for other in known.datasets.values() if other is not entry for path in other.files}
    unshared = [path for path in entry.files if path not in others]
    is_absent = bool(unshared) and not any(path in installed for path in unshared)
    unmet = missing_needs(entry, root)
    if not requested and (is_absent or len(unmet) == sum(need.needed for need in entry.needs)):
        return installed
    nearest = (max(n.any_of, key=lambda files: sum(path in installed for path in files) / len(files)) for n in unmet)
    return list(dict.fromkeys([*installed, *(path for files in nearest for path in files)]))


def _verify_imported(name: str, root: DataRoot) -> FileReport:
    from capbench.core.files import sha256_file
    from capbench.datasets.inventory import FileReport
    from capbench.datasets.opening import open_dataset
    from capbench.datasets.user.judgements import imported_folders, read_meta

    path = f"imported/{name}/judgements.jsonl"
    folder = imported_folders(root).get(name)
    assert folder is not None
    try:
        digest = sha256_file(folder / "judgements.jsonl")
        open_dataset(name, root)
        meta = read_meta(folder)
    except CapbenchError as error:
        return FileReport(path, "wrong", str(error))
    if digest != meta.sha256:
        return FileReport(path, "differs", "changed after the import", digest, "import")
    return FileReport(path, "ok", f"{meta.rows:,} rows; SHA-256 as imported", digest, "import")

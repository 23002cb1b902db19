"""A user's judgements as a data set: imported under a name, or read directly from a file.

``capbench data import`` validates a file and stores it in a normalised form in ``imported/NAME/`` of the data folder
(of ``$CAPBENCH_HOME`` if the data folder is the embedded sample): ``judgements.jsonl`` and ``meta.json``.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from capbench import __version__
from capbench.core.errors import DataError, UsageError
from capbench.core.files import atomic_write, read_json, sha256_file, write_text
from capbench.core.machine import paused_collector
from capbench.core.records import Item, Judgements, Preferences, Ratings
from capbench.datasets.base import Dataset, dataset_names
from capbench.datasets.protocol import (
    Aggregation,
    ItemSelection,
    StatisticSpec,
    accuracy,
    correlations,
    graded_preferences,
    system_statistics,
    within_image_statistics,
    within_source_statistics,
)
from capbench.datasets.root import DataRoot
from capbench.datasets.user.columns import ITEM_FIELDS, PAIR_FIELDS, RATING, UserJudgements, reading_note
from capbench.datasets.user.rows import SUFFIXES

SCHEMA = 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

_AS_GIVEN = ItemSelection("as-given", "every row of the file, with all its references")
_ONE_REFERENCE = ItemSelection("one-reference", "every row of the file, with only the first of its references")


class ImportedDataset(Dataset):
    """A user's judgements. Every file has its own subclass with its name and applicable statistics."""

    under_root = False

    path: Path
    """The file with the judgements."""
    table: UserJudgements
    """The checked rows."""

    def image_places(self) -> tuple[Path, ...]:
        """The folder ``images`` next to the file."""
        return (self.path.parent / "images",)

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """One Judgements; ``one-reference`` keeps the first reference of each item."""
        keep = 1 if selection.name == _ONE_REFERENCE.name else None
        build = _rating_judgements if self.table.kind == "ratings" else _preference_judgements
        items, ratings, preferences = build(self.table, keep)
        notes = [reading_note(dict(self.table.columns))] if self.table.columns else []
        if self.table.kind == "ratings" and not self.table.scale_given:
            several = len(ratings) > 1
            ranges = [
                f"{f'{aspect} ' if several else ''}{of_aspect.scale[0]:g} to {of_aspect.scale[1]:g}"
                for aspect, of_aspect in ratings.items()
            ]
            notes.append(f"the file specifies no scale; observed: {', '.join(ranges)}")
        if not self.table.has_references:
            notes.append("the file has no references: only reference-free metrics can be used")
        return (Judgements(self.name, selection.name, items, ratings, preferences, notes=tuple(notes)),)


@paused_collector()
def _rating_judgements(
    table: UserJudgements, keep: int | None
) -> tuple[tuple[Item, ...], dict[str, Ratings], dict[str, Preferences]]:
    arrays, texts = table.arrays, table.texts
    references = [of_list[:keep] for of_list in table.references]
    numbers = (arrays["row"][arrays["first"]], arrays["references"], *arrays["fields"].T)
    items = tuple(
        Item(
            texts[image],
            texts[candidate],
            references[of_item],
            texts[candidate_id] or f"row-{row}",
            texts[group],
            texts[system],
        )
        for row, of_item, image, candidate, candidate_id, group, system in zip(
            *(np.ascontiguousarray(column).data for column in numbers),  # lists would be as large as the items
            strict=True,
        )
    )
    return items, {aspect: _ratings(table, place) for place, aspect in enumerate(table.aspects)}, {}


def _ratings(table: UserJudgements, place: int) -> Ratings:
    """The ratings of one aspect.

    Raters are numbered by the first occurrence of their names; without names by their position in an item's list.
    """
    arrays = table.arrays
    counts, value = arrays[f"counts-{place}"], np.array(arrays[f"values-{place}"])
    rater = np.repeat(arrays["rater"].astype(np.int64), counts)
    position = np.arange(len(value)) - np.repeat(np.cumsum(counts, dtype=np.int64) - counts, counts)
    scale = table.scale if table.scale_given else (float(value.min()), float(value.max()))
    item = np.repeat(arrays["item"].astype(np.int64), counts)
    return Ratings(item, value, np.where(rater < 0, position, rater), scale)


@paused_collector()
def _preference_judgements(
    table: UserJudgements, keep: int | None
) -> tuple[tuple[Item, ...], dict[str, Ratings], dict[str, Preferences]]:
    items: list[Item] = []
    names: dict[tuple[str, str, str], str] = {}
    groups: list[str] = []
    for row in table.pair_rows():
        groups.append(row.group)
        sides = zip(row.candidates, row.candidate_ids, row.systems, "ab", strict=True)
        for candidate, candidate_id, system, side in sides:
            # A candidate without an id has the id of its first row.
            name = names.setdefault((row.image, system, candidate), candidate_id or f"row-{row.row}-{side}")
            items.append(Item(row.image, candidate, row.references[:keep], candidate_id or name, system=system))
    n = len(table)
    preferences = Preferences(
        np.arange(0, 2 * n, 2, dtype=np.int64),
        np.arange(1, 2 * n, 2, dtype=np.int64),
        table.arrays["preferred"].astype(np.int64),
        tuple(groups),
        np.array(table.arrays["votes"]),
        np.array(table.arrays["grade"][:, 0], dtype=np.float64) if table.arrays["grade"].size else None,
    )
    return tuple(items), {}, {"preference": preferences}


def _make(name: str, path: Path, table: UserJudgements, root: DataRoot, citation: str) -> ImportedDataset:
    statistics: dict[str, StatisticSpec]
    if table.kind == "preferences":
        declare = graded_preferences if table.arrays["grade"].size else accuracy
        statistics, default = declare("preference"), "preference-strict"
    else:
        statistics = {}
        for place, aspect in enumerate(table.aspects):
            statistics |= _statistics(table, place, "" if table.aspects == (RATING,) else aspect)
        default = next(iter(statistics))
    selections = {_AS_GIVEN.name: _AS_GIVEN}
    if table.most_references > 1:
        selections[_ONE_REFERENCE.name] = _ONE_REFERENCE
    fields = ITEM_FIELDS if table.kind == "ratings" else PAIR_FIELDS
    groups = table.arrays["fields"][:, fields.index("group")]
    first = np.sort(np.unique(groups, return_index=True)[1])
    attributes: dict[str, Any] = {
        "__doc__": f"The user's judgements '{name}'.",
        "name": name,
        "title": name,
        "citation": citation,
        "selections": selections,
        "statistics": statistics,
        "default": (_AS_GIVEN.name, default),
        "groups": tuple(table.texts[group] for group in groups[first].tolist() if group),
    }
    made: ImportedDataset = type("Imported", (ImportedDataset,), attributes)(root)
    made.path, made.table = path, table
    return made


def _statistics(table: UserJudgements, place: int, prefix: str) -> dict[str, StatisticSpec]:
    """The applicable statistics for the ratings of one aspect; Kendall's tau-b over captions is the first."""
    aspect, arrays = table.aspects[place], table.arrays
    counts = arrays[f"counts-{place}"]
    ratings_by_item = np.bincount(np.repeat(arrays["item"], counts))
    # With one rating per item there is nothing to aggregate, and ids have no aggregation.
    several = ratings_by_item.max(initial=0) > 1
    aggregations: tuple[Aggregation, ...] = ("unaggregated", "mean", "median", "mode") if several else ("unaggregated",)
    statistics = correlations(aspect, aggregations, prefix)
    if _with_different_means(table, place, "image", at_least=2):
        statistics |= within_image_statistics(aspect, prefix)
    images, systems = (set(np.unique(arrays["fields"][:, ITEM_FIELDS.index(name)])) for name in ("image", "system"))
    if len(systems - {0}) > 1 and len(images) > 1 and _with_different_means(table, place, "system", at_least=1):
        statistics |= within_source_statistics(aspect, prefix)
    if len(systems - {0}) > 2 and len(images) > 1:
        statistics |= system_statistics(aspect, prefix)
    return statistics


def _with_different_means(table: UserJudgements, place: int, field: str, at_least: int) -> bool:
    """True if at least so many images (or systems) have items with different mean ratings of an aspect."""
    arrays = table.arrays
    item = np.repeat(arrays["item"], arrays[f"counts-{place}"])
    label = arrays["fields"][:, ITEM_FIELDS.index(field)][item]
    order = np.lexsort((item, label))
    values, item, label = arrays[f"values-{place}"][order], item[order], label[order]
    ends = [*(np.flatnonzero(np.diff(item)) + 1).tolist(), len(item)]
    begin, found, current, first_mean, counted = 0, 0, -1, 0.0, False
    for end in ends:
        of_item = values[begin:end].tolist()
        mean = math.fsum(of_item) / len(of_item)
        if label[begin] != current:
            current, first_mean, counted = label[begin], mean, False
        elif mean != first_mean and not counted:
            counted = True
            found += 1
            if found == at_least:
                return True
        begin = end
    return False


def open_imported(name: str, root: DataRoot, columns: Mapping[str, str] | None = None) -> ImportedDataset | None:
    """The data set with an imported name or at the path of a ``.jsonl``, ``.csv`` or ``.tsv`` file; None if neither.

    Args:
        name: the name or the path.
        root: the data folder.
        columns: for a file, the column of a field: ``{"image": "file"}``.

    Raises:
        MissingFileError: ``name`` has such an ending and the file does not exist.
        DataError: the file has invalid content.
    """
    from capbench.datasets.user.judgement_files import read_user_file

    if name.lower().endswith(SUFFIXES):
        path = Path(name).expanduser()
        # The name includes the ending and can therefore not be that of a published data set.
        table = read_user_file(path, columns=columns)
        made = _make(path.name, path, table, root, f"the user's file {path.name}")
        made.file_columns = dict(table.all_columns)
        return made
    folder = find_imported(name, root)
    if folder is None:
        return None
    meta = read_meta(folder)
    path = folder / "judgements.jsonl"
    scale = tuple(meta["scale"]) if meta["scale"] is not None else None
    table = read_user_file(path, scale=scale)
    if meta["source"].get("columns"):
        table = table.with_columns(meta["source"]["columns"])
    return _make(name, path, table, root, _origin(meta))


def _origin(meta: dict[str, Any]) -> str:
    return f"imported from {meta['source']['file']} on {meta['imported'][:10]}"


def home_dir() -> Path:
    """The folder for data of the user: ``$CAPBENCH_HOME`` or the system's folder for user data."""
    variable = os.environ.get("CAPBENCH_HOME")
    if variable:
        return Path(variable).expanduser()
    import platformdirs

    return Path(platformdirs.user_data_dir("capbench", appauthor=False))


def _folders(root: DataRoot) -> list[Path]:
    """The folders to search for imported data sets, in this order."""
    in_data_folder = [] if root.is_sample else [root.path / "imported"]
    return [*in_data_folder, home_dir() / "imported"]


def imported_names(root: DataRoot) -> list[str]:
    """Names of all imported data sets that are available with a data folder."""
    entries: set[str] = set()
    for folder in _folders(root):
        with contextlib.suppress(OSError):
            entries.update(entry.name for entry in folder.iterdir() if (entry / "meta.json").is_file())
    return sorted(name for name in entries if _NAME.fullmatch(name))


def find_imported(name: str, root: DataRoot) -> Path | None:
    """The folder of an imported data set, or None."""
    if not _NAME.fullmatch(name):
        return None
    return next((f / name for f in _folders(root) if os.path.isfile(f / name / "meta.json")), None)  # noqa: PTH113


def read_meta(folder: Path) -> dict[str, Any]:
    """The metadata of an imported data set: source, date, SHA-256, scale. Raises DataError if it is damaged."""
    path = folder / "meta.json"
    meta = read_json(path)
    again = "Import the judgements again with --replace"
    if not isinstance(meta, dict) or not isinstance(meta.get("schema"), int):
        raise DataError("does not describe imported judgements", code="wrong-format", path=path, hint=again)
    if meta["schema"] > SCHEMA:
        raise DataError(
            f"was written by a newer capbench (schema {meta['schema']})",
            code="wrong-version",
            value=meta["schema"],
            path=path,
            hint="Update capbench",
        )
    source, scale = meta.get("source"), meta.get("scale")
    if not (
        isinstance(source, dict)
        and isinstance(source.get("file"), str)
        and isinstance(source.get("columns", {}), dict)
        and all(isinstance(name, str) for name in source.get("columns", {}).values())
        and all(isinstance(meta.get(key), str) for key in ("name", "kind", "imported", "sha256"))
        and (scale is None or (isinstance(scale, list) and [type(v) for v in scale] == [float, float]))
    ):
        raise DataError("has a missing field or one of the wrong type", code="missing-key", path=path, hint=again)
    return meta


@paused_collector()
def import_file(
    source: Path,
    name: str,
    root: DataRoot,
    *,
    replace: bool = False,
    scale: tuple[float, float] | None = None,
    ignore: Collection[str] = (),
    rating_columns: Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
    in_home: bool = False,
) -> ImportedDataset:
    """Validate a file of judgements and store it under a name.

    Args:
        source: a ``.jsonl``, ``.csv`` or ``.tsv`` file.
        name: name for ``--dataset``.
        root: the data folder; the embedded sample is never written to.
        replace: True to replace an existing data set of that name.
        scale: lowest and highest possible rating, unless specified in the file.
        ignore: columns to ignore.
        rating_columns: columns with ratings; the name of the column is the aspect.
        columns: the column of a field, for columns with names that are not accepted: ``{"image": "file"}``.
        in_home: True to store it in the user's folder (:func:`home_dir`) even if there is a data folder.

    Raises:
        UsageError: the name is invalid or exists, or the folder cannot be written.
        DataError: the file has invalid content.
    """
    if not _NAME.fullmatch(name) or name.lower().endswith(SUFFIXES):
        raise UsageError(
            f"--name {name}: not a valid name for a data set",
            code="wrong-value",
            value=name,
            hint="Use up to 64 letters, digits, dots, hyphens and underscores, and no file ending",
        )
    if name.lower() in dataset_names():
        raise UsageError(
            f"--name {name}: this is the name of a published data set",
            code="exists",
            value=name,
            hint="Choose another name",
        )
    parent = home_dir() / "imported" if in_home or root.is_sample else root.path / "imported"
    target = parent / name
    if os.path.exists(target) and not replace:  # noqa: PTH110  Path.exists raises in a folder that is closed
        raise UsageError(
            "a data set of this name exists",
            code="exists",
            value=name,
            path=target,
            hint="Choose another name, or give --replace",
        )
    from capbench.datasets.user.judgement_files import keep_stored, read_user_file

    table = read_user_file(source, ignore=ignore, scale=scale, rating_columns=rating_columns, columns=columns)
    try:
        parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(prefix=f".{name}.", suffix=".part", dir=parent))
    except OSError as error:
        hint = "Choose a writable folder, or give --user to store it in your user folder"
        raise UsageError(f"cannot be written ({error.strerror})", code="unwritable", path=parent, hint=hint) from error
    encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
    try:
        with atomic_write(new / "judgements.jsonl") as stream:
            fields: dict[str, None] = {}
            for record in _normal_records(table):
                fields |= dict.fromkeys(record)
                stream.write(encode(record) + "\n")
        meta: dict[str, Any] = {
            "schema": SCHEMA,
            "name": name,
            "kind": table.kind,
            "rows": len(table),
            "scale": [float(v) for v in table.scale] if table.scale_given else None,
            "sha256": sha256_file(new / "judgements.jsonl"),
            "source": {"file": source.name, "sha256": sha256_file(source)}
            | ({"columns": dict(table.columns)} if table.columns else {}),
            "imported": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "capbench": __version__,
        }
        write_text(new / "meta.json", json.dumps(meta, ensure_ascii=False, indent=2) + "\n")
        new.chmod(0o755)
        _swap(new, target)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    # The stored file need not be read again, but its row numbers differ from those of the source.
    table = table.numbered_from_one()
    keep_stored(target / "judgements.jsonl", meta["sha256"], meta["scale"], table, fields)
    return _make(name, target / "judgements.jsonl", table, DataRoot(parent.parent, False, "import"), _origin(meta))


def _swap(new: Path, target: Path) -> None:
    """Move a finished folder to its place; the old one is removed only after that succeeded."""
    old = new.with_suffix(".old")
    try:
        if target.exists():
            target.rename(old)
        try:
            new.rename(target)
        except OSError:
            if old.exists():
                old.rename(target)
            raise
    except OSError as error:
        raise UsageError(
            f"cannot be written ({error.strerror})", code="unwritable", path=target, hint="Nothing was changed"
        ) from error
    shutil.rmtree(old, ignore_errors=True)


def _normal_records(table: UserJudgements) -> Iterator[dict[str, Any]]:
    """The rows in the stored form, with lists and without absent fields."""
    for row in table.rated_rows():
        record: dict[str, Any] = {
            "image": row.image,
            "candidate": row.candidate,
            "references": row.references or "",
            "ratings": row.ratings[0]
            if table.aspects == (RATING,)
            else dict(zip(table.aspects, row.ratings, strict=True)),
            "rater": row.rater,
            "candidate_id": row.candidate_id,
            "system": row.system,
            "group": row.group,
        }
        yield {key: value for key, value in record.items() if value != ""}
    for pair in table.pair_rows():
        record = {
            "image": pair.image,
            "candidate_a": pair.candidates[0],
            "candidate_b": pair.candidates[1],
            "references": pair.references or "",
            "preferred": {1: "a", -1: "b", 0: "tie"}[pair.preferred],
            "candidate_id_a": pair.candidate_ids[0],
            "candidate_id_b": pair.candidate_ids[1],
            "system_a": pair.systems[0],
            "system_b": pair.systems[1],
            "group": pair.group,
        }
        if pair.grade is not None:
            record["grade"] = pair.grade
        if pair.votes is not None:
            record |= {"votes_a": pair.votes[0], "votes_b": pair.votes[1]}
        yield {key: value for key, value in record.items() if value != ""}

"""A user's judgements as a data set: imported under a name, or read directly from a file.

``capbench data import`` validates a file and stores it in a normalised form in ``imported/NAME/`` of the data folder
(of ``$CAPBENCH_HOME`` if the data folder is the embedded sample): ``judgements.jsonl`` and ``meta.json``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import math
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from pydantic import BaseModel, Field

from capbench import __version__
from capbench.core.errors import UsageError, unwritable
from capbench.core.files import atomic_write, home_dir, read_json, sha256_file, write_text
from capbench.core.records import Item, Judgements, Preferences, Ratings
from capbench.core.typed_json import check_version, validated
from capbench.datasets.base import Dataset, dataset_names
from capbench.datasets.judgement_files import paired
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
from capbench.datasets.tables import SUFFIXES
from capbench.datasets.user.judgement_files import RATING, UserJudgements, read_user_file, reading_note

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

_AS_GIVEN = ItemSelection("as-given", "every row of the file, with all its references")
_ONE_REFERENCE = ItemSelection("one-reference", "every row of the file, with only the first of its references")


class ImportedDataset(Dataset):
    """A user's judgements. Every file has its own subclass with its name and applicable statistics."""

    under_root = False

    path: Path  # the file with the judgements
    table: UserJudgements  # the checked rows

    def image_places(self) -> tuple[Path, ...]:
        """The folder ``images`` next to the file."""
        return (self.path.parent / "images",)

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """One Judgements; ``one-reference`` keeps the first reference of each item."""
        table, keep = self.table, 1 if selection.name == _ONE_REFERENCE.name else None
        ratings: dict[str, Ratings] = {}
        preferences: dict[str, Preferences] = {}
        if table.kind == "ratings":
            items = _rated_items(table.frame, keep)
            ratings = {aspect: _ratings(table, aspect) for aspect in table.aspects}
        else:
            items = _paired_items(table.frame, keep)
            preferences = {"preference": _preferences(table.frame)}
        notes = [reading_note(table.columns)] if table.columns else []
        if ratings and table.scale is None:
            ranges = [
                f"{f'{aspect} ' if len(ratings) > 1 else ''}{of_aspect.scale[0]:g} to {of_aspect.scale[1]:g}"
                for aspect, of_aspect in ratings.items()
            ]
            notes.append(f"the file specifies no scale; observed: {', '.join(ranges)}")
        if not table.most_references:
            notes.append("the file has no references: only reference-free metrics can be used")
        return (Judgements(self.name, selection.name, items, ratings, preferences, notes=tuple(notes)),)


def _rated_items(frame: pd.DataFrame, keep: int | None) -> tuple[Item, ...]:
    """One item for each candidate, in the order of their first rows."""
    first = frame.drop_duplicates("item")
    columns = [first[name] for name in ("image", "candidate", "references", "candidate_id", "group", "system")]
    return tuple(
        Item(image, candidate, references[:keep], name or f"row-{row}", group, system)
        for row, image, candidate, references, name, group, system in zip(first.index, *columns, strict=True)
    )


def _ratings(table: UserJudgements, aspect: str) -> Ratings:
    """The ratings of one aspect.

    Raters are numbered by the first occurrence of their names; without names by their position in an item's list.
    """
    frame = table.frame
    values = frame[f"={aspect}"].tolist()
    counts = np.array(list(map(len, values)), dtype=np.int64)
    value = np.array([number for of_row in values for number in of_row], dtype=np.float64)
    position = np.arange(len(value)) - np.repeat(np.cumsum(counts) - counts, counts)
    rater = frame["rater"].factorize()[0].astype(np.int64)
    named = np.repeat((frame["rater"] != "").to_numpy(), counts)
    scale = table.scale or (float(value.min()), float(value.max()))
    item = np.repeat(frame["item"].to_numpy(dtype=np.int64), counts)
    return Ratings(item, value, np.where(named, np.repeat(rater, counts), position), scale)


def _paired_items(frame: pd.DataFrame, keep: int | None) -> tuple[Item, ...]:
    """Two items for each pair. A candidate without an id has the id of its first row."""
    items: list[Item] = []
    names: dict[tuple[str, str, str], str] = {}
    for row, of_row in zip(frame.index, frame.to_dict("records"), strict=True):
        for side in "ab":
            text, candidate_id, system = (of_row[f"{name}_{side}"] for name in ("candidate", "candidate_id", "system"))
            candidate_id = candidate_id or names.setdefault((of_row["image"], system, text), f"row-{row}-{side}")
            items.append(Item(of_row["image"], text, of_row["references"][:keep], candidate_id, system=system))
    return tuple(items)


def _preferences(frame: pd.DataFrame) -> Preferences:
    votes = frame[["votes_a", "votes_b"]].to_numpy(np.int64) if "votes_a" in frame else None
    grade = frame["grade"].to_numpy(np.float64) if "grade" in frame else None
    return paired(frame["group"], preferred=frame["direction"].to_numpy(np.int64), votes=votes, grade=grade)


def _make(name: str, path: Path, table: UserJudgements, root: DataRoot, citation: str) -> ImportedDataset:
    frame = table.frame
    statistics: dict[str, StatisticSpec] = {}
    if table.kind == "preferences":
        statistics = (graded_preferences if "grade" in frame else accuracy)("preference")
        default = "preference-strict"
    else:
        for aspect in table.aspects:
            statistics |= _statistics(frame, aspect, "" if table.aspects == (RATING,) else aspect)
        default = next(iter(statistics))
    selections = {_AS_GIVEN.name: _AS_GIVEN}
    if table.most_references > 1:
        selections[_ONE_REFERENCE.name] = _ONE_REFERENCE
    attributes: dict[str, Any] = {
        "__doc__": f"The user's judgements '{name}'.",
        "name": name,
        "title": name,
        "citation": citation,
        "selections": selections,
        "statistics": statistics,
        "default": (_AS_GIVEN.name, default),
        "groups": tuple(group for group in frame["group"].unique() if group),
    }
    made: ImportedDataset = type("Imported", (ImportedDataset,), attributes)(root)
    made.path, made.table = path, table
    return made


def _statistics(frame: pd.DataFrame, aspect: str, prefix: str) -> dict[str, StatisticSpec]:
    """The applicable statistics for the ratings of one aspect; Kendall's tau-b over captions is the first."""
    ratings: dict[int, list[float]] = {}
    for item, values in zip(frame["item"].tolist(), frame[f"={aspect}"], strict=True):
        ratings.setdefault(item, []).extend(values)
    # With one rating per item there is nothing to aggregate, and ids have no aggregation.
    several = any(len(values) > 1 for values in ratings.values())
    statistics = correlations(aspect, get_args(Aggregation) if several else ("unaggregated",), prefix)
    first = frame.drop_duplicates("item")
    means = [math.fsum(ratings[item]) / len(ratings[item]) for item in first["item"].tolist()]
    if _varying(first, "image", means) > 1:
        statistics |= within_image_statistics(aspect, prefix)
    systems = len(set(first["system"]) - {""})
    images = first["image"].nunique()
    if systems > 1 and images > 1 and _varying(first, "system", means):
        statistics |= within_source_statistics(aspect, prefix)
    if systems > 2 and images > 1:
        statistics |= system_statistics(aspect, prefix)
    return statistics


def _varying(items: pd.DataFrame, label: str, means: Sequence[float]) -> int:
    """The number of images or systems with items of different mean ratings."""
    return int((items.assign(mean=means).groupby(label)["mean"].nunique() > 1).sum())


def open_imported(name: str, root: DataRoot, columns: Mapping[str, str] | None = None) -> ImportedDataset | None:
    """The data set with an imported name or at the path of a file of judgements; None if neither."""
    if name.lower().endswith(SUFFIXES):
        path = Path(name).expanduser()
        # The name includes the ending and can therefore not be that of a published data set.
        table = read_user_file(path, columns=columns)
        made = _make(path.name, path, table, root, f"the user's file {path.name}")
        made.file_columns = table.all_columns
        return made
    folder = imported_folders(root).get(name)
    if folder is None:
        return None
    meta, path = read_meta(folder), folder / "judgements.jsonl"
    table = read_user_file(path, scale=meta.scale)
    table = dataclasses.replace(table, all_columns=meta.source.columns)
    return _make(name, path, table, root, _origin(meta.source.file, meta.imported))


def _origin(file: str, imported: str) -> str:
    return f"imported from {file} on {imported[:10]}"


def imported_folders(root: DataRoot) -> dict[str, Path]:
    """The folders of all imported data sets that are available with a data folder, by name in alphabetical order."""
    folders: dict[str, Path] = {}
    for parent in (home_dir(), *([] if root.is_sample else [root.path])):
        with contextlib.suppress(OSError):
            entries = (parent / "imported").iterdir()
            folders |= {entry.name: entry for entry in entries if (entry / "meta.json").is_file()}
    return {name: folders[name] for name in sorted(folders) if _NAME.fullmatch(name)}


class _Source(BaseModel, extra="allow"):
    file: str
    columns: dict[str, str] = {}


class Meta(BaseModel, extra="allow"):
    """The metadata of an imported data set, as far as they are read."""

    schema_version: int = Field(alias="schema")
    name: str
    kind: str
    rows: int
    scale: tuple[float, float] | None
    sha256: str
    source: _Source
    imported: str


def read_meta(folder: Path) -> Meta:
    """The metadata of an imported data set. Raises DataError if it is damaged."""
    path = folder / "meta.json"
    again = "Import the judgements again with --replace"
    raw = read_json(path)
    if isinstance(raw, dict) and isinstance(raw.get("schema"), int):
        check_version(raw["schema"], SCHEMA, path)
    return validated(Meta, raw, path, code="wrong-format", hint=again)


def import_file(
    source: Path,
    name: str,
    root: DataRoot,
    *,
    replace: bool = False,
    scale: tuple[float, float] | None = None,
    ignore: Collection[str] = (),
    rating_columns: Sequence[str] = (),
    # the column of a field, for columns with names that are not accepted: ``{"image": "file"}``
    columns: Mapping[str, str] | None = None,
    in_home: bool = False,  # True to store it in the user's folder (:func:`home_dir`) even if there is a data folder
) -> ImportedDataset:
    """Validate a file of judgements and store it under a name."""
    if not _NAME.fullmatch(name) or name.lower().endswith(SUFFIXES):
        problem = f"--name {name}: not a valid name for a data set"
        hint = "Use up to 64 letters, digits, dots, hyphens and underscores, and no file ending"
        raise UsageError(problem, code="wrong-value", value=name, hint=hint)
    if name.lower() in dataset_names():
        problem, hint = f"--name {name}: this is the name of a published data set", "Choose another name"
        raise UsageError(problem, code="exists", value=name, hint=hint)
    target = (home_dir() if in_home or root.is_sample else root.path) / "imported" / name
    if os.path.exists(target) and not replace:  # noqa: PTH110  Path.exists raises in a folder that is closed
        problem, hint = "a data set of this name exists", "Choose another name, or give --replace"
        raise UsageError(problem, code="exists", value=name, path=target, hint=hint)
    table = read_user_file(source, ignore=ignore, scale=scale, rating_columns=rating_columns, columns=columns)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(error, target, "Choose a writable folder, or give --user to use your user folder") from error
    path = target / "judgements.jsonl"
    encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
    with atomic_write(path) as stream:
        stream.writelines(encode(record) + "\n" for record in _normal_records(table))
    meta: dict[str, Any] = {
        "schema": SCHEMA,
        "name": name,
        "kind": table.kind,
        "rows": len(table.frame),
        "scale": table.scale,
        "sha256": sha256_file(path),
        "source": {"file": source.name, "sha256": sha256_file(source)}
        | ({"columns": table.columns} if table.columns else {}),
        "imported": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "capbench": __version__,
    }
    write_text(target / "meta.json", json.dumps(meta, ensure_ascii=False, indent=2) + "\n")
    # The stored file need not be read again, but its row numbers differ from those of the source.
    table = dataclasses.replace(table, frame=table.frame.reset_index(drop=True).rename(index=lambda place: place + 1))
    return _make(
        name, path, table, DataRoot(target.parent.parent, False, "import"), _origin(source.name, meta["imported"])
    )


def _normal_records(table: UserJudgements) -> Iterator[dict[str, Any]]:
    """The rows in the stored form, with lists and without absent fields."""
    names = ["image", "candidate", "references", "ratings", "rater", "candidate_id", "system", "group"]
    if table.kind == "preferences":
        sided = [f"{name}_{side}" for name in ("candidate_id", "system") for side in "ab"]
        names = ["image", "candidate_a", "candidate_b", "references", "preferred", *sided, "group"]
        names += ["grade", "votes_a", "votes_b"]
    for row in table.frame.to_dict("records"):
        if table.kind == "preferences":
            row["preferred"] = {1: "a", -1: "b", 0: "tie"}[row["direction"]]
            row |= {name: int(row[name]) for name in ("votes_a", "votes_b") if name in row}
        else:
            ratings = {aspect: row[f"={aspect}"] for aspect in table.aspects}
            row["ratings"] = ratings[RATING] if table.aspects == (RATING,) else ratings
        yield {str(name): row[name] for name in names if name in row and row[name] not in ("", ())}

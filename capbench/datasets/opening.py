"""Opens a data set by name: a registered one, imported judgements, a file or a class; optionally a version or group.

A group (``composite@8k``) is a data set with the items of that group. Items are left out but never changed: references
that a protocol omits or samples are those of the complete data set, and so are corpus statistics (CIDEr's document
frequencies): an item has the same score in the group as in the complete data set.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import MissingFileError, UsageError, suggest
from capbench.core.records import IntArray, Judgements, Preferences, Ratings
from capbench.datasets.base import Dataset, dataset_names, load_dataset
from capbench.datasets.judgement_files import ByName
from capbench.datasets.protocol import ItemSelection
from capbench.datasets.root import DataRoot
from capbench.datasets.tables import OTHER_SPREADSHEETS, SUFFIXES
from capbench.datasets.user.judgements import imported_folders, open_imported

Human = TypeVar("Human", Ratings, Preferences)


def keep_items(
    judgements: Judgements,
    places: IntArray,
    title: str,
    notes: Sequence[str],
    keep_pairs: Callable[[Preferences], Preferences] | None = None,
) -> Judgements:
    """Restrict judgements to the items at some indices, which are ascending.

    ``keep_pairs`` restricts preferences; default: both items are kept.
    """

    def keep_ratings(ratings: Ratings) -> Ratings:
        kept = np.isin(ratings.item, places)
        item = np.searchsorted(places, ratings.item[kept])
        return Ratings(item, ratings.value[kept], ratings.rater[kept], ratings.scale)

    keep_pairs = keep_pairs or (lambda pairs: kept_preferences(pairs, places))
    reverse = judgements.reverse  # both items of a reversed pair are kept, or none
    return replace(
        judgements,
        items=tuple(judgements.items[place] for place in places.tolist()),
        ratings=restrict_by_name(judgements.ratings, keep_ratings, title),
        preferences=restrict_by_name(judgements.preferences, keep_pairs, title),
        notes=(*notes, *judgements.notes),
        reverse=None if reverse is None else np.searchsorted(places, reverse[places]),
        documents=judgements.documents or judgements.items,
    )


def kept_preferences(pairs: Preferences, places: IntArray, chosen: NDArray[np.bool_] | None = None) -> Preferences:
    """Pairs of which both items are at some indices (ascending), restricted to ``chosen`` (a mask) if not None."""
    kept = np.isin(pairs.first, places) & np.isin(pairs.second, places)
    if chosen is not None:
        kept &= chosen
    return Preferences(
        np.searchsorted(places, pairs.first[kept]),
        np.searchsorted(places, pairs.second[kept]),
        pairs.preferred[kept],
        tuple(pairs.group[place] for place in np.flatnonzero(kept).tolist()),
        pairs.votes[kept],
        None if pairs.grade is None else pairs.grade[kept],
    )


def restrict_by_name(human: Mapping[str, Human], restrict: Callable[[Human], Human], title: str) -> ByName[Human]:
    """Restrict ratings or preferences by name; empty ones become absent, like those without a file."""

    def read(name: str) -> Human:
        restricted = restrict(human[name])
        if not len(restricted):
            problem, hint = f"{title} has no '{name}' judgement", "Choose another statistic or group"
            raise MissingFileError(problem, code="missing-data", value=name, hint=hint)
        return restricted

    here = {name: restricted for name, value in human.items() if len(restricted := restrict(value))}
    names = [*human, *(human.later if isinstance(human, ByName) else ())]
    return ByName(here, {name: partial(read, name) for name in names if name not in here})


def spelled(group: str) -> str:
    """A group's name as written in ids, where ``/`` and ``|`` are separators.

    >>> spelled("indoor/night")
    'indoor%2Fnight'
    """
    return group.replace("/", "%2F").replace("|", "%7C")


class GroupDataset(Dataset):
    """The items of one group with their judgements. Every group has its own subclass with its own name.

    The group is one of the items' groups or, if no item has it, one of the pairs' (``flickr8k-swaps@colour``). If all
    items or pairs belong to one group, their ``group`` is empty, because a breakdown by group would be redundant.
    """

    groups = ()

    complete: Dataset  # the complete data set
    group: str  # name of the group as in ids

    def image_places(self) -> tuple[Path, ...]:
        """The image folders of the complete data set."""
        return self.complete.image_places()

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """The judgements of the complete data set, restricted to the group; the first note counts the items."""
        return tuple(self.part(draw) for draw in self.complete.load(self.complete.selections[selection.name]))

    def part(self, judgements: Judgements) -> Judgements:
        """Restrict judgements of the complete data set to the group."""
        by_pairs = not any(self._is_own(item.group) for item in judgements.items)
        places = self.places(judgements)
        kept = keep_items(judgements, places, self.title, (), lambda pairs: self._pairs(pairs, places, by_pairs))
        groups = _if_several(item.group for item in kept.items)
        images, all_images = ({item.image for item in of.items} for of in (kept, judgements))
        notes = [
            f"{self.title}: {len(places):,} of {len(judgements.items):,} items of {self.complete.title}, "
            f"{len(images):,} of {len(all_images):,} images"
        ]
        for label, pairs in judgements.preferences.items():
            inside = np.isin(pairs.first, places).astype(int) + np.isin(pairs.second, places)
            if (inside == 1).any():
                notes.append(
                    f"{(inside == 1).sum():,} {label} pairs with one item outside of {self.title} are left out"
                )
        notes += [f"{self.complete.title}, all groups: {note}" for note in judgements.notes]
        items = tuple(replace(item, group=group) for item, group in zip(kept.items, groups, strict=True))
        return replace(kept, dataset=self.name, items=items, notes=tuple(notes))

    def places(self, judgements: Judgements) -> IntArray:
        """Indices of the group's items in judgements of the complete data set, ascending."""
        places = [place for place, item in enumerate(judgements.items) if self._is_own(item.group)]
        if places:
            return np.array(places, dtype=np.int64)
        labels = judgements.preferences.values()
        chosen = [pairs for pairs in labels if any(map(self._is_own, pairs.group))]
        if not chosen:
            groups = [*judgements.groups, *(group for pairs in labels for group in pairs.group if group)]
            raise _unknown(self.complete, self.group, groups)
        mine = [(pairs, np.array([self._is_own(group) for group in pairs.group])) for pairs in chosen]
        return np.unique(np.concatenate([side[mask] for p, mask in mine for side in (p.first, p.second)]))

    def _is_own(self, group: str) -> bool:
        return bool(group) and spelled(group) == self.group

    def _pairs(self, pairs: Preferences, places: IntArray, by_pairs: bool) -> Preferences:
        is_of_group = np.array([self._is_own(group) for group in pairs.group], dtype=bool)
        # A label without this group among its pairs' groups (components, for a colour) is restricted by items only.
        restricted = kept_preferences(pairs, places, is_of_group if by_pairs and is_of_group.any() else None)
        return replace(restricted, group=_if_several(restricted.group))


def _if_several(groups: Iterable[str]) -> tuple[str, ...]:
    """The groups, or empty names if all are the same."""
    group_names = tuple(groups)
    return group_names if len(set(group_names)) > 1 else ("",) * len(group_names)


def _unknown(complete: Dataset, group: str, groups: Sequence[str]) -> UsageError:
    choices = list(dict.fromkeys(map(spelled, groups)))
    hint = suggest(group, choices) if choices else f"The data set has no groups: use '{complete.name}'"
    return UsageError(f"{complete.name} has no group '{group}'", code="unknown-name", value=group, hint=hint)


def group_of(complete: Dataset, group: str) -> GroupDataset:
    """One group of a data set."""
    name = spelled(group)
    if not group.isprintable():
        problem = f"the group {group!a} of {complete.name} contains unprintable characters"
        raise UsageError(problem, code="wrong-value", value=group, hint="Write the group's name in UTF-8")
    if not name and complete.groups is None:
        hint = "Write the name of the group after '@'"
        raise UsageError(f"'{complete.name}@' has no group", code="missing-value", hint=hint)
    if complete.groups is not None and name not in map(spelled, complete.groups):
        raise _unknown(complete, group, [*complete.groups, *complete.variants])
    selections = {
        key: replace(selection, description=f"only the group {group}; {selection.description}")
        for key, selection in complete.selections.items()
    }
    attributes: dict[str, Any] = {
        "__doc__": f"The group '{group}' of {complete.title}.",
        "name": f"{complete.name}@{name}",
        "title": f"{complete.title}, {next((g for g in complete.groups or () if spelled(g) == name), group)}",
        "selections": selections,
        "group": name,
        **{kept: getattr(complete, kept) for kept in _KEPT_BY_GROUP},
    }
    made: GroupDataset = type("Group", (GroupDataset,), attributes)(complete.root)
    made.complete = complete
    return made


_KEPT_BY_GROUP = (
    *("statistics", "default", "most_references", "with_references", "other_practice"),
    *("judges_images", "under_root", "file_columns", "version", "versions"),
)
_ENDINGS = "|".join(map(re.escape, SUFFIXES))
_FILE = re.compile(rf"(?P<file>.*(?:{_ENDINGS}))(?:@(?P<group>[^/]*))?(?:/(?P<rest>.*))?", re.IGNORECASE | re.DOTALL)


def split_protocol(text: str) -> tuple[str, str | None]:
    """Split a protocol id into the data set (with version and group) and the rest (None if there is none).

    >>> split_protocol("composite@8k/correctness-tau-c")
    ('composite@8k', 'correctness-tau-c')
    >>> split_protocol("my/ratings.csv@outdoor/as-given/tau-b")
    ('my/ratings.csv@outdoor', 'as-given/tau-b')
    >>> split_protocol("composite")
    ('composite', None)
    """
    text = text.strip()
    if text.lower().endswith(SUFFIXES):
        return text, None
    file = _FILE.fullmatch(text)
    if file is not None:
        rest = file["rest"]
        return text if rest is None else text[: -len(rest) - 1], rest
    name, slash, rest = text.partition("/")
    if name.partition("@")[0] not in dataset_names() and _is_path(text):
        return text, None
    return name, rest if slash else None


def _is_path(text: str) -> bool:
    """True for a folder, a file that is not judgements, or a name that only a path can have."""
    if text.startswith(("/", "./", "../", "~")) or text.lower().endswith(OTHER_SPREADSHEETS):
        return True
    return os.path.exists(text)  # noqa: PTH110  # unlike Path.exists, False for a name that is too long


def with_group_of(dataset: str, protocol: str | None) -> str:
    """A data set's name, with the version and group in a protocol's id, if any.

    >>> with_group_of("composite", "composite@8k/all-references/correctness-tau-c")
    'composite@8k'
    """
    named = split_protocol(protocol)[0] if protocol else ""
    return named if named.startswith((f"{dataset}@", f"{dataset}:")) else dataset


def open_dataset(name: str, root: DataRoot, columns: Mapping[str, str] | None = None) -> Dataset:
    """Open a data set by name.

    ``name``: a registered name, with ``:VERSION`` or ``@GROUP``; ``module:Class``; imported judgements, or the path of
    a file of them, of which ``columns`` has the column of a field: ``{"image": "file"}``.
    """
    base, at, group = name, "", ""
    if not name.lower().endswith(SUFFIXES):  # the name of a file may contain "@"
        file = re.fullmatch(rf"(.*(?:{_ENDINGS}))(@)(.*)", name, re.IGNORECASE | re.DOTALL)
        base, at, group = file.groups() if file else name.partition("@")
    if columns and not base.lower().endswith(SUFFIXES):
        problem = f"columns are assigned to fields, and '{name}' is not a file of judgements"
        hint = "Name a file of judgements as the data set; 'capbench data import' assigns columns once"
        raise UsageError(problem, code="conflict", value=name, hint=hint)
    opened = _open(base, root, columns)
    if not at:
        return opened
    if group not in opened.variants:
        return group_of(opened, group)
    different = {"name": f"{opened.name}@{group}", "variants": {}, **opened.variants[group]}
    variant: Dataset = type("Variant", (type(opened),), different)(root)
    return variant


def _open(name: str, root: DataRoot, columns: Mapping[str, str] | None) -> Dataset:
    registered, colon, version = name.partition(":")
    known = load_dataset(registered) if registered in dataset_names() else None
    # ``name:Attribute`` means a class of a plug-in if its module has the registered name.
    if known is not None and (not colon or known.__module__ != registered or version in known.versions):
        if colon or known.versions:
            known = known.of_version(version if colon else known.newest_version(root), root)
        return known(root)
    imported = open_imported(name, root, columns)
    if imported is not None:
        return imported
    if _is_path(name):
        from capbench.datasets.user.judgement_files import read_user_file

        read_user_file(Path(name).expanduser())  # raises an error: a file of judgements was opened above
    if ":" in name:
        return load_dataset(name)(root)
    choices = [*dataset_names(), *imported_folders(root)]
    raise UsageError(f"unknown data set '{name}'", code="unknown-name", value=name, hint=suggest(name, choices))


def judged_images(root: DataRoot, step: Callable[[int], None] = lambda _done: None) -> dict[str, set[str]]:
    """The images of every registered or imported data set with judgements whose files are in the data folder."""
    names = [*dataset_names(), *imported_folders(root)]
    images: dict[str, set[str]] = {}
    for name in names:
        dataset = open_dataset(name, root)
        for selection in () if dataset.generated else dataset.selections.values():
            if selection.draws > 1:  # samples of references
                continue
            with contextlib.suppress(MissingFileError):
                for judgements in dataset.load(selection):
                    if judgements.ratings or judgements.preferences:
                        images.setdefault(name, set()).update(item.image for item in judgements.items)
        step(1)
    return images

"""Opens the data set that a user names: a registered one, imported judgements, a file, a class; a version, a group.

A group (``composite@8k``) is a data set of that group's items. Items are left out, never changed: references that a
protocol leaves out or samples are those of the whole data set. Corpus statistics (CIDEr's document frequencies) count
only the items that are left, as for any other data set.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import CapbenchError, MissingFileError, UsageError, suggest
from capbench.core.records import IntArray, Judgements, Preferences, Ratings
from capbench.datasets.base import Dataset, dataset_names, load_dataset
from capbench.datasets.judgement_files import ByName
from capbench.datasets.protocol import ItemSelection
from capbench.datasets.root import DataRoot
from capbench.datasets.user.judgements import imported_names, open_imported
from capbench.datasets.user.rows import SUFFIXES

__all__ = [
    "GroupDataset",
    "already_read",
    "group_of",
    "keep_items",
    "kept_preferences",
    "kept_ratings",
    "open_dataset",
    "restrict_by_name",
    "spelled",
    "split_protocol",
    "with_group_of",
]


# Judgements of some of the items: what people said of the others is left out, nothing is changed.

Human = TypeVar("Human", Ratings, Preferences)


def keep_items(judgements: Judgements, places: IntArray, title: str, notes: Sequence[str]) -> Judgements:
    """The judgements of some items alone.

    Args:
        judgements: all of them.
        places: indices of the items to keep, ascending.
        title: what is kept in words, for a judgement that nothing is left of.
        notes: what is said of it, before the judgements' own notes.
    """
    return replace(
        judgements,
        items=tuple(judgements.items[place] for place in places.tolist()),
        ratings=restrict_by_name(judgements.ratings, lambda ratings: kept_ratings(ratings, places), title),
        preferences=restrict_by_name(judgements.preferences, lambda pairs: kept_preferences(pairs, places), title),
        notes=(*notes, *judgements.notes),
    )


def kept_ratings(ratings: Ratings, places: IntArray) -> Ratings:
    """Ratings of the kept items, whose places are ascending."""
    kept = np.isin(ratings.item, places)
    item = np.searchsorted(places, ratings.item[kept])
    return Ratings(item, ratings.value[kept], ratings.rater[kept], ratings.scale)


def kept_preferences(pairs: Preferences, places: IntArray, chosen: NDArray[np.bool_] | None = None) -> Preferences:
    """Pairs of which both items are kept, and which are among the chosen ones; the places are ascending."""
    kept = np.isin(pairs.first, places) & np.isin(pairs.second, places)
    if chosen is not None:
        kept &= chosen
    return Preferences(
        np.searchsorted(places, pairs.first[kept]),
        np.searchsorted(places, pairs.second[kept]),
        pairs.preferred[kept],
        tuple(pairs.group[place] for place in np.flatnonzero(kept).tolist()),
        pairs.votes[kept],
    )


def already_read(given: Mapping[str, Human]) -> dict[str, Human]:
    """What was read already; looking up the rest can take long, or fail."""
    return {name: given[name] for name in given}


def restrict_by_name(given: Mapping[str, Human], restrict: Callable[[Human], Human], title: str) -> ByName[Human]:
    """Ratings or preferences by name; those that nothing is left of are absent, like those without a file.

    Args:
        given: all of them.
        restrict: keeps what is to be kept.
        title: what is kept in words.
    """

    def absence(name: str) -> Callable[[], CapbenchError]:
        # A human side that is not there, for a part as for a data set that lacks its file.
        return lambda: MissingFileError(
            f"{title} has no '{name}' judgement",
            code="missing-data",
            value=name,
            hint="Choose another statistic or group",
        )

    def read(name: str) -> Callable[[], Human]:
        def later() -> Human:
            restricted = restrict(given[name])
            if not len(restricted):
                raise absence(name)()
            return restricted

        return later

    here = {name: restrict(value) for name, value in already_read(given).items()}
    absent: dict[str, Callable[[], Exception]] = {name: absence(name) for name in here if not len(here[name])}
    late: Mapping[str, Any] = {}
    if isinstance(given, ByName):
        absent |= given.absent
        late = given.later
    return ByName(
        {name: value for name, value in here.items() if len(value)},
        absent,
        {name: read(name) for name in late if name not in here},
    )


def spelled(group: str) -> str:
    """A group's name as it stands in ids, where ``/`` and ``|`` separate parts.

    >>> spelled("indoor/night")
    'indoor%2Fnight'
    """
    return group.replace("/", "%2F").replace("|", "%7C")


class GroupDataset(Dataset):
    """The items of one group with what people said of them. Every group gets a subclass with its own name.

    A group is one of the items' groups or, if no item has it, one of the pairs' (``flickr8k-swaps@colour``). Where all
    that is kept is of one group, it has no group any more: one column says all.
    """

    groups = ()

    whole: Dataset
    """The data set that the group is a part of."""
    group: str
    """The group's name as it stands in ids."""

    def image_places(self) -> tuple[Path, ...]:
        """The image folders of the whole data set."""
        return self.whole.image_places()

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """What the whole data set gives, without all that is not of the group; the first note counts what is kept.

        Raises:
            UsageError: no item and no pair has that group; the groups that there are are named.
            CapbenchError: as loading the whole data set does.
        """
        return tuple(self.part(draw) for draw in self.whole.load(self.whole.selections[selection.name]))

    def part(self, judgements: Judgements) -> Judgements:
        """The group's part of what the whole data set gave.

        Raises:
            UsageError: no item and no pair has that group.
        """
        by_pairs = not any(self._is_own(item.group) for item in judgements.items)
        places = self._places(judgements, by_pairs)
        kept = [judgements.items[place] for place in places.tolist()]
        groups = _told(item.group for item in kept)
        images = {item.image for item in kept}
        notes = [
            f"{self.title}: {len(kept):,} of {len(judgements.items):,} items of {self.whole.title} are kept, on "
            f"{len(images):,} of {len({item.image for item in judgements.items}):,} images"
        ]
        for label, pairs in already_read(judgements.preferences).items():
            inside = np.isin(pairs.first, places).astype(int) + np.isin(pairs.second, places)
            if (inside == 1).any():
                notes.append(f"{(inside == 1).sum():,} {label} pairs with an item outside of {self.title} are left out")
        notes += [f"{self.whole.title}, all groups: {note}" for note in judgements.notes]
        return replace(
            judgements,
            dataset=self.name,
            items=tuple(replace(item, group=group) for item, group in zip(kept, groups, strict=True)),
            ratings=restrict_by_name(judgements.ratings, lambda ratings: kept_ratings(ratings, places), self.title),
            preferences=restrict_by_name(
                judgements.preferences, lambda pairs: self._pairs(pairs, places, by_pairs), self.title
            ),
            notes=tuple(notes),
        )

    def _is_own(self, group: str) -> bool:
        return bool(group) and spelled(group) == self.group

    def _places(self, judgements: Judgements, by_pairs: bool) -> IntArray:
        """Indices of the kept items, ascending."""
        if not by_pairs:
            places = [place for place, item in enumerate(judgements.items) if self._is_own(item.group)]
            return np.array(places, dtype=np.int64)
        labels = already_read(judgements.preferences).values()
        chosen = [pairs for pairs in labels if any(map(self._is_own, pairs.group))]
        if not chosen:
            groups = [*judgements.groups, *(group for pairs in labels for group in pairs.group if group)]
            raise _unknown(self.whole, self.group, groups)
        mine = [(pairs, np.array([self._is_own(group) for group in pairs.group])) for pairs in chosen]
        return np.unique(np.concatenate([side[mask] for p, mask in mine for side in (p.first, p.second)]))

    def _pairs(self, pairs: Preferences, places: IntArray, by_pairs: bool) -> Preferences:
        is_of_group = np.array([self._is_own(group) for group in pairs.group], dtype=bool)
        # A label that knows the group decides by it; another one (components beside colours) by its items.
        kept = kept_preferences(pairs, places, is_of_group if by_pairs and is_of_group.any() else None)
        return replace(kept, group=_told(kept.group))


def _told(groups: Iterable[str]) -> tuple[str, ...]:
    """Groups that tell things apart: none where all are of one."""
    group_names = tuple(groups)
    return group_names if len(set(group_names)) > 1 else ("",) * len(group_names)


def _unknown(whole: Dataset, group: str, groups: Sequence[str]) -> UsageError:
    choices = list(dict.fromkeys(map(spelled, groups)))
    hint = suggest(group, choices) if choices else "Its items are in no groups: name the data set alone"
    return UsageError(f"{whole.name} has no group '{group}'", code="unknown-name", value=group, hint=hint)


def group_of(whole: Dataset, group: str) -> GroupDataset:
    """One group of a data set.

    Args:
        whole: the data set.
        group: the group's name, as it is or as it stands in ids.

    Raises:
        UsageError: the data set is known not to have that group; one that does not know its groups before its files are
            read says so when it is loaded.
    """
    name = spelled(group)
    if not group.isprintable():
        raise UsageError(
            f"the group {group!a} of {whole.name} holds characters that no text has",
            code="wrong-value",
            value=group,
            hint="Write the group's name in UTF-8",
        )
    if not name and whole.groups is None:
        raise UsageError(
            f"'{whole.name}@' names no group", code="missing-value", hint="Write the group's name behind the '@'"
        )
    if whole.groups is not None and name not in map(spelled, whole.groups):
        raise _unknown(whole, group, [*whole.groups, *whole.beside])
    selections = {
        key: replace(selection, description=f"only what is of the group {group}; {selection.description}")
        for key, selection in whole.selections.items()
    }
    attributes: dict[str, Any] = {
        "__doc__": f"The group '{group}' of {whole.title}.",
        "name": f"{whole.name}@{name}",
        "title": f"{whole.title}, {next((g for g in whole.groups or () if spelled(g) == name), group)}",
        "citation": whole.citation,
        "selections": selections,
        "statistics": whole.statistics,
        "default": whole.default,
        "aliases": whole.aliases,
        "most_references": whole.most_references,
        "under_root": whole.under_root,
        "version": whole.version,
        "versions": whole.versions,
        "group": name,
    }
    made: GroupDataset = type("Group", (GroupDataset,), attributes)(whole.root)
    made.whole = whole
    return made


_ENDINGS = "|".join(map(re.escape, SUFFIXES))
_FILE = re.compile(rf"(?P<file>.*(?:{_ENDINGS}))(?:@(?P<group>[^/]*))?(?:/(?P<rest>.*))?", re.IGNORECASE | re.DOTALL)


def split_protocol(text: str) -> tuple[str, str | None]:
    """The data set of a protocol id as it is given, with version and group, and what stands behind (None for nothing).

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
    return name, rest if slash else None


def with_group_of(dataset: str, protocol: str | None) -> str:
    """A data set's name, with the version and the group that a protocol's id may name.

    >>> with_group_of("composite", "composite@8k/all-references/correctness-tau-c")
    'composite@8k'
    """
    named = split_protocol(protocol)[0] if protocol else ""
    return named if named.startswith((f"{dataset}@", f"{dataset}:")) else dataset


def open_dataset(name: str, root: DataRoot) -> Dataset:
    """The data set that a user means, ready to load.

    Args:
        name: a registered name, ``module:Class``, the name of imported judgements, or the path of a ``.jsonl``,
            ``.csv`` or ``.tsv`` file of judgements; with ``:`` and a version behind a registered name, that version;
            with ``@`` and the name of a group, that group of its items.
        root: the folder that its files are under.

    Raises:
        UsageError: it is none of these, or of no known version; the nearest name and the choices are printed.
        DataError: imported judgements or the file given do not hold what they should.
    """
    whole, group = _split_group(name)
    opened = _open(whole, root)
    if group is None:
        return opened
    return opened.beside[group](root) if group in opened.beside else group_of(opened, group)


def _split_group(name: str) -> tuple[str, str | None]:
    if name.lower().endswith(SUFFIXES):
        return name, None
    file = re.fullmatch(rf"(.*(?:{_ENDINGS}))@(.*)", name, re.IGNORECASE | re.DOTALL)
    if file is not None:
        return file[1], file[2]
    whole, at, group = name.partition("@")
    return whole, group if at else None


def _open(name: str, root: DataRoot) -> Dataset:
    registered, colon, version = name.partition(":")
    if registered in dataset_names() and not (colon and _is_class(registered, version)):
        known = load_dataset(registered)
        if colon or known.versions:
            known = known.of_version(version if colon else known.newest_version(root), root)
        return known(root)
    imported = open_imported(name, root)
    if imported is not None:
        return imported
    if ":" in name:
        return load_dataset(name)(root)
    choices = [*dataset_names(), *imported_names(root)]
    raise UsageError(f"unknown data set '{name}'", code="unknown-name", value=name, hint=suggest(name, choices))


def _is_class(registered: str, attribute: str) -> bool:
    """Whether ``name:Attribute`` means a plug-in's class, whose module has the name that the plug-in is known by."""
    known = load_dataset(registered)
    return known.__module__ == registered and attribute not in known.versions

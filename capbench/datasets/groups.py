"""One group of a data set's items as a data set of its own: ``composite@8k``.

Items are left out, never changed: references that a protocol leaves out or draws are those of the whole data set.
Statistics of a corpus (CIDEr's document frequencies) are of the kept items alone, as for any other data set.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from capbench.datasets.base import Dataset
from capbench.datasets.keeping import already_read, kept_preferences, kept_ratings, restrict_by_name
from capbench.datasets.protocol import ItemSelection
from capbench.errors import UsageError, suggest
from capbench.records import IntArray, Judgements, Preferences

__all__ = ["GroupDataset", "group_of", "spelled"]


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
    return UsageError(f"{whole.name} has no group '{group}'", hint=hint)


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
    if not name and whole.groups is None:
        raise UsageError(f"'{whole.name}@' names no group", hint="Write the group's name behind the '@'")
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

"""Text-component swaps of Flickr8k: does a metric detect a wrong object, action or property?

After TIGEr (Jiang and others, EMNLP-IJCNLP 2019, section 4.6 and Figure 7): one word of a reference is replaced by a
similar one (*walk*, *stroll*) and by a different one (*walk*, *run*), and the metric should score the first higher. The
paper's pairs were written manually and are not published. These pairs were made once by rules from Flickr8k's test
images, were not judged by humans, and have no published results. A table has the places and the words
(:mod:`capbench.datasets.changed_captions`); the captions come from ``flickr8k/Flickr8k.token.txt``.

There is at most one pair per image and component. Pair i has the items 2i (similar word) and 2i + 1 (different word).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from capbench.core.records import Item, Judgements, Preferences
from capbench.datasets.base import Dataset
from capbench.datasets.captions import load_captions
from capbench.datasets.changed_captions import read_changes
from capbench.datasets.judgement_files import paired
from capbench.datasets.protocol import ItemSelection, StatisticSpec, accuracy, by_name

COMPONENTS = ("object", "action", "property")
CATEGORIES = ("colour", "count", "size", "state")  # categories of properties


class Flickr8kSwaps(Dataset):
    """Pairs made from Flickr8k's test captions; the caption with the similar word is always preferred."""

    name: ClassVar[str] = "flickr8k-swaps"
    generated: ClassVar[bool] = True
    title: ClassVar[str] = "Flickr8k swaps"
    image_folders: ClassVar[Sequence[str]] = ("flickr8k/images",)
    version: ClassVar[str] = "1"
    versions: ClassVar[Mapping[str, str]] = {"1": "made by the first rules"}
    selections: ClassVar[Mapping[str, ItemSelection]] = by_name(
        ItemSelection(
            "changed-reference-out",
            "at most one pair a component for each test image; the caption that was changed is left out of the "
            "references",
            source="after TIGEr Figure 7, which does not say what becomes of that caption",
        ),
        ItemSelection(
            "all-references",
            "at most one pair a component for each test image; the caption that was changed stays a reference",
            source="after TIGEr Figure 7, which does not say what becomes of that caption",
        ),
    )
    statistics: ClassVar[Mapping[str, StatisticSpec]] = {**accuracy("component"), **accuracy("attribute")}
    default: ClassVar[tuple[str, str]] = ("changed-reference-out", "component-strict")
    groups: ClassVar[Sequence[str] | None] = (*COMPONENTS, *CATEGORIES)

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """Pairs of items; ``preferences`` has the labels ``component`` and ``attribute``.

        ``component`` has all pairs, grouped by object, action and property; ``attribute`` only those of properties,
        grouped by colour, count, size and state.
        """
        captions = load_captions("flickr8k", self.root)
        rows = read_changes("swaps-flickr8k", captions)
        items = []
        for row in rows:
            image, component, number = row["image"], row["component"], int(row["caption"])
            references = captions[image]
            caption = references[number]
            if selection.name == "changed-reference-out":
                references = references[:number] + references[number + 1 :]
            for kind in ("similar", "different"):
                text = f"{caption[: int(row['start'])]}{row[kind]}{caption[int(row['end']) :]}"
                items.append(Item(image, text, references, f"{image}#{number}#{component}#{kind}", component))
        components, categories = ([row[key] for row in rows] for key in ("component", "category"))
        counts = ", ".join(f"{components.count(component)} {component}" for component in COMPONENTS)
        preferences = {"component": _preferences(components), "attribute": _preferences(categories)}
        notes = (f"{counts} pairs, made by rules; no human judged them",)
        return (Judgements(self.name, selection.name, tuple(items), preferences=preferences, notes=notes),)


def _preferences(groups: Sequence[str]) -> Preferences:
    """Preferences for the similar word of the pairs that have a group."""
    return paired(filter(None, groups), 2 * np.flatnonzero(np.array(groups) != ""))

"""Text-component swaps of Flickr8k: does a metric see that an object, an action or a property is wrong?

After TIGEr (Jiang and others, EMNLP-IJCNLP 2019, section 4.6 and Figure 7): one word of a reference is replaced by a
similar one (*walk*, *stroll*) and by a different one (*walk*, *run*), and the metric should score the first higher. The
paper's pairs were made by hand and are not published; these are made by the rules of :mod:`capbench.text.swaps`
from Flickr8k's test images (``flickr8k/Flickr8k.token.txt``, ``flickr8k/Flickr_8k.testImages.txt``), so no person
judged them and no other number for them exists.

Of each image at most one pair a component is made. Which caption, which word and which replacements is decided by a
hash of the image's id and the component, so the pairs of one image do not depend on the others. For a property first
its category is chosen, among those that the image's captions have.

Pair i has the items 2i (similar word) and 2i + 1 (different word).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from capbench.core.errors import DataError
from capbench.core.records import Item, Judgements, Preferences, caption_key
from capbench.datasets.base import Dataset
from capbench.datasets.captions import split_list
from capbench.datasets.protocol import ItemSelection, StatisticSpec, accuracy
from capbench.datasets.user.caption_readers import Captions, read_token
from capbench.text.swaps import CATEGORIES, COMPONENTS, Component, Swap, find_swaps, lexicon, pick

__all__ = ["Flickr8kSwaps", "SwapPair", "make_pairs"]

_TOKEN = "flickr8k/Flickr8k.token.txt"
_TEST = "flickr8k/Flickr_8k.testImages.txt"


@dataclass(frozen=True)
class SwapPair:
    """A caption of an image with one word replaced in two ways.

    Attributes:
        image: image id.
        place: which of the image's captions, from 0.
        swap: where the word stands, and what it is.
        similar: the caption with a similar word.
        different: the caption with a word that makes it wrong.
    """

    image: str
    place: int
    swap: Swap
    similar: str
    different: str


class Flickr8kSwaps(Dataset):
    """Pairs made from Flickr8k's test captions; the caption with the similar word is always preferred."""

    name: ClassVar[str] = "flickr8k-swaps"
    title: ClassVar[str] = "Flickr8k swaps"
    image_folders: ClassVar[Sequence[str]] = ("flickr8k/images",)
    version: ClassVar[str] = "1"
    versions: ClassVar[Mapping[str, str]] = {"1": "made by the first rules"}
    citation: ClassVar[str] = (
        "After M. Jiang and others: TIGEr: Text-to-Image Grounding for Image Caption Evaluation. EMNLP-IJCNLP 2019, "
        "section 4.6; pairs made by capbench's rules from Flickr8k (Hodosh and others 2013)"
    )
    selections: ClassVar[Mapping[str, ItemSelection]] = {
        selection.name: selection
        for selection in (
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
    }
    statistics: ClassVar[Mapping[str, StatisticSpec]] = {**accuracy("component"), **accuracy("attribute")}
    default: ClassVar[tuple[str, str]] = ("changed-reference-out", "component-strict")
    groups: ClassVar[Sequence[str] | None] = (*COMPONENTS, *CATEGORIES)
    aliases: ClassVar[Mapping[str, str]] = {
        **{rule: f"changed-reference-out/component-{rule}" for rule in ("strict", "ties-right", "ties-half")},
        **{label: f"changed-reference-out/{label}-strict" for label in ("component", "attribute")},
    }

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """Items two by two; ``preferences`` hold ``component`` and ``attribute``.

        ``component`` has all pairs, by object, action and property; ``attribute`` those of properties alone, by colour,
        count, size and state.
        """
        captions = read_token(self.root.file(_TOKEN, what="Flickr8k's captions"))
        test = self._test(captions)
        pairs = make_pairs({image: captions[image] for image in test})
        path = captions.source
        missing = [c for c in COMPONENTS if all(pair.swap.component != c for pair in pairs)]
        if missing:
            raise DataError(
                f"the captions of the {len(test)} test images give no pair with another {missing[0]}",
                code="too-few",
                value=missing[0],
                path=path,
                hint="The rules are for English captions: check the file and the list of test images",
            )
        keep = selection.name == "all-references"
        items = []
        for pair in pairs:
            references = captions[pair.image]
            if not keep:
                references = references[: pair.place] + references[pair.place + 1 :]
            for kind, text in (("similar", pair.similar), ("different", pair.different)):
                name = f"{pair.image}#{pair.place}#{pair.swap.component}#{kind}"
                items.append(Item(pair.image, text, references, name, pair.swap.component))
        counts = ", ".join(f"{sum(p.swap.component == c for p in pairs)} {c}" for c in COMPONENTS)
        words = lexicon()
        notes = (
            f"{counts} pairs of {len(test)} test images, made by rules version {words.version} (lexicon "
            f"{words.fingerprint}); no human judged them",
        )
        preferences = {
            "component": _preferences(pairs, range(len(pairs)), [pair.swap.component for pair in pairs]),
            "attribute": _preferences(
                pairs,
                [i for i, pair in enumerate(pairs) if pair.swap.category],
                [pair.swap.category for pair in pairs if pair.swap.category],
            ),
        }
        return (Judgements(self.name, selection.name, tuple(items), preferences=preferences, notes=notes),)

    def _test(self, captions: Captions) -> list[str]:
        path = self.root.file(_TEST, what="the list of Flickr8k's test images")
        rows = split_list(path, captions)
        for image, row in rows.items():
            if len(captions[image]) < 2:
                raise DataError(
                    f"image '{image}' has one caption: no reference would be left",
                    code="missing-references",
                    value=image,
                    path=path,
                    row=row,
                    hint="Get both files from the same release",
                )
        return list(rows)


def _preferences(pairs: Sequence[SwapPair], chosen: Sequence[int] | range, groups: Sequence[str]) -> Preferences:
    first = 2 * np.array(chosen, dtype=np.int64)
    return Preferences(first, first + 1, np.ones_like(first), tuple(groups), np.zeros((len(first), 0), dtype=np.int64))


def make_pairs(captions: Mapping[str, Sequence[str]]) -> list[SwapPair]:
    """At most one pair of every component for each image: first all objects, then all actions, then all properties.

    Args:
        captions: image id → its captions.
    """
    swaps_by_image: dict[str, list[tuple[int, Swap]]] = {
        image: [(place, swap) for place, text in enumerate(texts) for swap in find_swaps(text, texts)]
        for image, texts in captions.items()
    }
    pairs = []
    for component in COMPONENTS:
        for image, swaps in swaps_by_image.items():
            pair = _choose(image, component, [(p, s) for p, s in swaps if s.component == component], captions[image])
            if pair is not None:
                pairs.append(pair)
    return pairs


def _choose(
    image: str, component: Component, swaps: list[tuple[int, Swap]], captions: Sequence[str]
) -> SwapPair | None:
    if component == "property" and swaps:
        here = [category for category in CATEGORIES if any(s.category == category for _, s in swaps)]
        category = here[pick(here, image, component, "category")]
        swaps = [(place, swap) for place, swap in swaps if swap.category == category]
    taken = {caption_key(text) for text in captions}
    left = list(swaps)
    while left:
        place, swap = left.pop(pick(range(len(left)), image, component, "place", str(len(left))))
        similar = swap.put(swap.similar[pick(swap.similar, image, component, "similar")])
        different = swap.put(swap.different[pick(swap.different, image, component, "different")])
        if not {caption_key(similar), caption_key(different)} & taken:
            return SwapPair(image, place, swap, similar, different)
    return None

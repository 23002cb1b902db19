"""nocaps, validation set: 4,500 images of Open Images with ten captions each, in three domains. No human ratings.

Files in ``nocaps/``: ``nocaps_corpus.json``, or the original ``nocaps_val_4500_captions.json`` in COCO's format
(Agrawal et al. 2019).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from capbench.core.errors import DataError, check_choice
from capbench.core.records import Item, Judgements
from capbench.datasets.base import AS_PUBLISHED, Dataset
from capbench.datasets.judgement_files import require_references
from capbench.datasets.protocol import ItemSelection, StatisticSpec, by_name
from capbench.datasets.user.caption_readers import read_captions_file

DOMAINS = ("in-domain", "near-domain", "out-domain")
_CORPUS = "nocaps/nocaps_corpus.json"
_ORIGINAL = "nocaps/nocaps_val_4500_captions.json"


class Nocaps(Dataset):
    """4,500 images (417 in-domain, 2,670 near-domain, 1,413 out-domain) with ten captions each."""

    name: ClassVar[str] = "nocaps"
    title: ClassVar[str] = "nocaps (validation)"
    image_folders: ClassVar[Sequence[str]] = ("nocaps/images",)
    version, versions = AS_PUBLISHED
    selections: ClassVar[Mapping[str, ItemSelection]] = by_name(
        ItemSelection(
            "first-vs-rest", "the first caption of an image is the candidate, the other nine are the references"
        )
    )
    statistics: ClassVar[Mapping[str, StatisticSpec]] = {
        "mean": StatisticSpec(
            "mean",
            "mean",
            "",
            description="the metric's mean score of human captions, overall and by domain; there are no human ratings",
        )
    }
    default: ClassVar[tuple[str, str]] = ("first-vs-rest", "mean")

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """One item per image, without ratings; ``group`` is the domain."""
        path = self.root.file(_CORPUS, _ORIGINAL, what="nocaps' captions")
        captions = read_captions_file(path)
        for image in captions if captions.groups else ():
            check_choice("domain", captions.groups.get(image, ""), DOMAINS, DataError, path=path, row=f"image {image}")
        numbers = {image: number for number, image in captions.names.items()}  # of the original file
        items = tuple(
            Item(name := numbers.get(image, image), first, tuple(rest), f"{name}#0", captions.groups.get(image, ""))
            for image, (first, *rest) in captions.items()
        )
        require_references(items, selection.name, path)
        notes = ("there are no human ratings: only mean scores can be reported",)
        return (Judgements(self.name, selection.name, items, notes=notes),)

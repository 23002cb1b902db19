"""What is to be explained: an image, its candidates with their references, and where its picture is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from capbench.datasets.base import Dataset
from capbench.datasets.images import all_images, dataset_images
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import DataRoot
from capbench.errors import DataError, UsageError
from capbench.features.images import ImageFile, images_in
from capbench.features.store import FeatureStore
from capbench.records import Item, Judgements, caption_key, image_id

__all__ = ["MOST_CANDIDATES", "Subject", "find_subject", "region_names"]

MOST_CANDIDATES = 5
"""How many of a data set's candidates are explained when none is named."""


@dataclass(frozen=True)
class Subject:
    """An image and captions of it.

    Attributes:
        image: its id in the feature store.
        items: its candidates.
        humans: mean human rating of each, None where it is not known.
        picture: its file, None if there is none.
        under_root: whether a data set below the data folder was read.
        notes: what a reader should know.
    """

    image: str
    items: tuple[Item, ...]
    humans: tuple[float | None, ...]
    picture: Path | None
    under_root: bool
    notes: tuple[str, ...]


def find_subject(
    image: str,
    store: FeatureStore,
    captions: Sequence[str],
    references: Sequence[str],
    dataset: str | None,
    root: DataRoot,
    image_root: Path | None = None,
) -> Subject:
    """Find an image's references, ratings and picture.

    Args:
        image: id, or the picture's file.
        store: must hold its features.
        captions: candidates; none for the first :data:`MOST_CANDIDATES` that the data set judges.
        references: none for those of the data set under its default protocol: a candidate that is judged gets its own
            references, any other the longest list among the image's.
        dataset: its name; None for ``flickr8k-expert`` if captions or references are not given, else for none.
        root: the data folder.
        image_root: where the picture is; by default below the data folder.

    Raises:
        UsageError: a caption or reference is empty, or the data set does not judge the image.
        FeatureError: the store lacks the image.
        CapbenchError: as opening and loading the data set do.
    """
    if not all(text.strip() for text in (*captions, *references)):
        raise UsageError("a caption or reference is empty", hint="Give a text")
    given = Path(image) if Path(image).is_file() else None
    name = image if image in store else image_id(image)
    store.regions(name)  # refuses an image that it lacks
    if dataset is None and not (captions and references):
        dataset = "flickr8k-expert"
    notes: list[str] = []
    opened = None if dataset is None else open_dataset(dataset, root)
    judged = _Judged() if opened is None else _Judged.of(opened, name, needed=not (captions and references))
    texts = list(dict.fromkeys(captions or judged.candidates))
    if not captions and len(texts) > MOST_CANDIDATES:
        notes.append(f"the first {MOST_CANDIDATES} of {len(texts)} candidates; name others with --caption")
        texts = texts[:MOST_CANDIDATES]
    items, humans = [], []
    for text in texts:
        known = judged.find(text)
        own = tuple(references) or (known.references if known is not None else judged.longest)
        items.append(Item(name, text, own))
        humans.append(None if known is None else judged.rating(known))
    picture = given if given is not None else _picture(name, dataset, root, image_root)
    if picture is None:
        where = image_root if image_root is not None else root.path
        notes.append(f"the picture is not below {where}: drawn without it (give its file, or --image-root)")
    under_root = opened is not None and opened.under_root
    return Subject(name, tuple(items), tuple(humans), picture, under_root, tuple(notes))


class _Judged:
    """What a data set has on one image."""

    def __init__(self, judgements: Judgements | None = None, image: str = "") -> None:
        self._judgements = judgements
        self._items = () if judgements is None else tuple(item for item in judgements.items if item.image == image)
        self._image = image

    @classmethod
    def of(cls, dataset: Dataset, image: str, *, needed: bool) -> _Judged:
        judgements = dataset.load(dataset.protocol().items)[0]
        found = cls(judgements, image)
        if needed and not found._items:
            raise UsageError(
                f"{dataset.name} does not judge the image '{image}'",
                hint="Name its data set with --dataset, or give --caption and --reference",
            )
        return found

    @property
    def candidates(self) -> list[str]:
        return list(dict.fromkeys(item.candidate for item in self._items))

    @property
    def longest(self) -> tuple[str, ...]:
        return max((item.references for item in self._items), key=len, default=())

    def find(self, text: str) -> Item | None:
        exact = (item for item in self._items if item.candidate == text)
        alike = (item for item in self._items if caption_key(item.candidate) == caption_key(text))
        return next(exact, None) or next(alike, None)

    def rating(self, wanted: Item) -> float | None:
        """Mean rating under the first aspect."""
        judgements = self._judgements
        if judgements is None or not judgements.ratings:
            return None
        ratings = next(iter(judgements.ratings.values()))
        places = [i for i, item in enumerate(judgements.items) if item.key == wanted.key]
        values = ratings.value[np.isin(ratings.item, places)]
        return float(values.mean()) if len(values) else None


def _picture(image: str, dataset: str | None, root: DataRoot, image_root: Path | None) -> Path | None:
    # A data set can name its pictures otherwise than its judgements do (nocaps), so it is asked first.
    looks: list[Callable[[], list[ImageFile]]] = []
    if dataset is not None:
        looks.append(lambda: dataset_images(dataset, root, image_root)[0])
    looks.append(lambda: all_images(root) if image_root is None else images_in(image_root))
    for look in looks:
        try:
            found = next((entry.path for entry in look() if entry.image == image), None)
        except DataError:  # no pictures there at all
            continue
        if found is not None:
            return found
    return None


def region_names(store: FeatureStore, image: str) -> list[str]:
    """What to call an image's regions: their numbers in the store, counted from 0, and their classes if it has them."""
    regions, names = store[image], store.header.class_names
    if regions.class_ids is None:
        return [str(i) for i in range(len(regions))]
    known = names or ()
    classes = (known[c] if c < len(known) else f"class {c}" for c in regions.class_ids.tolist())
    return [f"{i} {name}" for i, name in enumerate(classes)]

"""PublicSys: captions by five captioners for the same COCO images, each with a human rating from 1 to 5.

REO's Table 1 uses this data set: 2,500 captions with ratings collected by Rohrbach, Hendricks, Burns, Darrell and
Saenko (EMNLP 2018). The ratings have not been published; a user who has them writes a table with a header:

``publicsys/publicsys.csv``: ``image`` (COCO's file name or id), ``candidate``, ``system``, ``rating`` (1 to 5,
fractions allowed), and optionally ``references``, a JSON list (default: COCO's captions of the image).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field

from capbench.core.records import Item, Judgements
from capbench.datasets import judgement_files
from capbench.datasets.base import Dataset
from capbench.datasets.foil import coco_captions
from capbench.datasets.protocol import ItemSelection, StatisticSpec, all_statistics, by_name
from capbench.datasets.row_models import Image, Row, Text, read_rows, text_list

_FILE = "publicsys/publicsys.csv"
_SCALE = (1.0, 5.0)


class PublicSysRow(Row):
    """One rated caption of a captioner; references are empty if the file has none."""

    image: Image
    candidate: Text
    system: Text
    rating: float = Field(ge=1, le=5)
    references: Annotated[tuple[Text, ...], BeforeValidator(text_list), Field(min_length=1)] | None = None


class PublicSys(Dataset):
    """2,500 captions by five captioners for 500 COCO images, one rating each, in a user's file."""

    name: ClassVar[str] = "publicsys"
    title: ClassVar[str] = "PublicSys"
    image_folders: ClassVar[Sequence[str]] = ("publicsys/images", "coco/images")
    version: ClassVar[str] = "1"
    versions: ClassVar[Mapping[str, str]] = {"1": "a user's file"}
    selections: ClassVar[Mapping[str, ItemSelection]] = by_name(
        ItemSelection("all-references", "all captions; all references of the image", source="REO")
    )
    statistics: ClassVar[Mapping[str, StatisticSpec]] = all_statistics("rating")
    default: ClassVar[tuple[str, str]] = ("all-references", "tau-c")
    groups: ClassVar[Sequence[str] | None] = ()

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """Items in the order of the file, with systems; ``ratings["rating"]`` has one rating per item."""
        path = self.root.file(_FILE, what="the ratings of PublicSys, which are not published")
        rows = read_rows(path, PublicSysRow, ["system", "image"])
        captions = {} if all(row.references for row in rows) else coco_captions(self.root)[0]
        hint = "Use COCO's name (COCO_val2014_000000000042), or add a column 'references'"
        items = []
        for row in rows:
            references = row.references or row.references_in(captions, row.image, "COCO", hint)
            items.append(Item(row.image, row.candidate, references, f"{row.image}#{row.system}", system=row.system))
        ratings = {"rating": judgement_files.ratings(range(len(rows)), (row.rating for row in rows), _SCALE)}
        notes = (f"{len({row.system for row in rows})} systems; the ratings are from a user's file",)
        return (Judgements(self.name, selection.name, tuple(items), ratings, notes=notes),)

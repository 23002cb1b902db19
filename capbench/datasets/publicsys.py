"""PublicSys: captions by five captioners for the same COCO images, each with a human rating from 1 to 5.

REO's Table 1 uses this data set: 2,500 captions with ratings collected by Rohrbach, Hendricks, Burns, Darrell and
Saenko (EMNLP 2018). The ratings have not been published; a user who has them writes a table with a header:

``publicsys/publicsys.csv``: ``image`` (COCO's file name or id), ``candidate``, ``system``, ``rating`` (1 to 5,
fractions allowed), and optionally ``references``, a JSON list (default: COCO's captions of the image).
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from capbench.core import files
from capbench.core.errors import DataError, MissingFileError
from capbench.core.records import Item, Judgements
from capbench.datasets import judgement_files
from capbench.datasets.base import Dataset
from capbench.datasets.captions import load_captions
from capbench.datasets.protocol import (
    ItemSelection,
    StatisticSpec,
    correlations,
    system_statistics,
    within_image_statistics,
    within_source_statistics,
)

_FILE = "publicsys/publicsys.csv"
_COLUMNS = ("image", "candidate", "system", "rating")
_SCALE = (1.0, 5.0)


@dataclass(frozen=True)
class PublicSysRow:
    """One rated caption.

    Attributes:
        row: the first line of the row in the file, from 1.
        image: image id.
        candidate: the caption.
        system: the captioner.
        rating: from 1 to 5.
        references: references in the file; empty if there are none.
    """

    row: int
    image: str
    candidate: str
    system: str
    rating: float
    references: tuple[str, ...] = ()


class PublicSys(Dataset):
    """2,500 captions by five captioners for 500 COCO images, one rating each, in a user's file."""

    name: ClassVar[str] = "publicsys"
    title: ClassVar[str] = "PublicSys"
    image_folders: ClassVar[Sequence[str]] = ("publicsys/images", "coco/images")
    version: ClassVar[str] = "1"
    versions: ClassVar[Mapping[str, str]] = {"1": "a user's file"}
    citation: ClassVar[str] = (
        "A. Rohrbach, L. A. Hendricks, K. Burns, T. Darrell, K. Saenko: Object Hallucination in Image Captioning. "
        "EMNLP 2018"
    )
    selections: ClassVar[Mapping[str, ItemSelection]] = {
        "all-references": ItemSelection("all-references", "all captions; all references of the image", source="REO")
    }
    statistics: ClassVar[Mapping[str, StatisticSpec]] = {
        **correlations("rating"),
        **within_image_statistics("rating"),
        **within_source_statistics("rating"),
        **system_statistics("rating"),
    }
    default: ClassVar[tuple[str, str]] = ("all-references", "tau-c")
    groups: ClassVar[Sequence[str] | None] = ()

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """Items in the order of the file, with systems; ``ratings["rating"]`` has one rating per item."""
        path = self.root.file(_FILE, what="the ratings of PublicSys, which are not published")
        rows = read_publicsys(path)
        captions = {} if all(row.references for row in rows) else self._captions()
        items = []
        for row in rows:
            references = row.references or tuple(captions.get(row.image, ()))
            if not references:
                raise DataError(
                    f"the image {row.image} has no captions in COCO",
                    code="missing-references",
                    value=row.image,
                    path=path,
                    row=row.row,
                    hint="Use COCO's name (COCO_val2014_000000000042), or add a column 'references'",
                )
            items.append(Item(row.image, row.candidate, references, f"{row.image}#{row.system}", system=row.system))
        ratings = {"rating": judgement_files.ratings(range(len(rows)), (row.rating for row in rows), _SCALE)}
        notes = (f"{len({row.system for row in rows})} systems; the ratings are from a user's file",)
        return (Judgements(self.name, selection.name, tuple(items), ratings, notes=notes),)

    def _captions(self) -> dict[str, tuple[str, ...]]:
        """COCO's captions, from the existing corpora."""
        captions: dict[str, tuple[str, ...]] = {}
        absent: MissingFileError | None = None
        for name in ("coco-val", "coco-test", "coco-val2014"):
            try:
                captions.update(load_captions(name, self.root))
            except MissingFileError as error:
                absent = error
        if not captions and absent is not None:
            raise absent
        return captions


def read_publicsys(path: Path) -> list[PublicSysRow]:
    """Read the rated captions, in the order of the file.

    Raises:
        DataError: a column is missing, a row has a wrong number of cells, a caption is empty, a rating is not a number
            from 1 to 5, references are not a list of strings, or a system has two captions of one image.
    """
    reader = csv.reader(io.StringIO(files.read_text(path), newline=""), strict=True)
    repeats = judgement_files.Repeats(path, "caption of that system and image")
    rows: list[PublicSysRow] = []
    try:
        header = [name.strip().lower() for name in next(reader, [])]
        for name in _COLUMNS:
            if name not in header:
                hint = f"The first line must name the columns: {','.join(_COLUMNS)}"
                raise DataError(
                    f"has no column '{name}'", code="missing-column", value=name, path=path, row=1, hint=hint
                )
        last = reader.line_num
        for cells in reader:
            number, last = last + 1, reader.line_num  # a quoted cell may contain line breaks
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) != len(header):
                problem = f"has {len(cells)} cells, the header has {len(header)}"
                hint = "Put text with a comma or a quotation mark into double quotes"
                raise DataError(problem, code="wrong-format", value=len(cells), path=path, row=number, hint=hint)
            row = _row(dict(zip(header, cells, strict=True)), number, path)
            if not repeats.check((row.system, row.image), (row.candidate, row.rating), number):
                rows.append(row)
    except csv.Error as error:
        problem, hint = f"is not a well-formed table ({error})", "Check its quotation marks"
        raise DataError(problem, code="wrong-format", path=path, row=reader.line_num, hint=hint) from error
    if not rows:
        raise DataError(
            "contains no rated caption",
            code="missing-value",
            path=path,
            hint="Every row is image, candidate, system, rating",
        )
    return rows


def _row(cells: Mapping[str, str], number: int, path: Path) -> PublicSysRow:
    image = judgement_files.parse_image(cells["image"], "image", path=path, row=number)
    candidate, system = (
        judgement_files.parse_caption(cells[name], name, path=path, row=number) for name in ("candidate", "system")
    )
    try:
        rating = float(cells["rating"])
    except ValueError:
        rating = math.nan
    if not _SCALE[0] <= rating <= _SCALE[1]:  # NaN too
        problem = f"the rating '{cells['rating'].strip()}' is not a number from 1 to 5"
        raise DataError(
            problem, code="out-of-range", value=cells["rating"].strip(), path=path, row=number, hint="Correct that row"
        )
    return PublicSysRow(
        number, image, candidate, system, rating, _references(cells.get("references", ""), number, path)
    )


def _references(cell: str, number: int, path: Path) -> tuple[str, ...]:
    if not cell.strip():
        return ()
    try:
        texts = json.loads(cell)
    except ValueError:
        texts = None
    if not isinstance(texts, list) or not texts:
        raise DataError(
            "'references' is not a list of references",
            code="wrong-type",
            path=path,
            row=number,
            hint='Write it as ["…", "…"]',
        )
    return tuple(
        judgement_files.parse_caption(text, f"reference {place}", path=path, row=number)
        for place, text in enumerate(texts, 1)
    )

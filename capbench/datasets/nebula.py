"""Nebula and Polaris: captions by many systems, each with the mean of several raters' scores, from 0 to 1.

Files: ``nebula/nebula_test.json`` and ``polaris/polaris_test.json``, or the same data as ``.csv`` or ``.parquet``. The
ids of images are hashes.

In tables ``refs`` is a list in JSON or Python syntax (as pandas writes it). A Parquet file that includes the images may
name an image by its path (``img.path``, ``image.path``).

Nebula has two versions. ``1`` is the test set as published. ``spica`` takes its scores from a larger collection of
judgements by the same group: ``nebula/spica_train.csv``, ``spica_val.csv`` and ``spica_test.csv`` (``imgid``, ``mt``,
``score``). The score of a caption is the mean of its rows there; a caption without such rows keeps its published score.
CaptionEvalKit, whose numbers are printed for Nebula, corrects the scores in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator, AliasChoices, BeforeValidator, Field

from capbench.core.records import Item, Judgements
from capbench.datasets import judgement_files
from capbench.datasets.base import AS_PUBLISHED, Dataset
from capbench.datasets.protocol import ItemSelection, StatisticSpec, by_name, correlations
from capbench.datasets.root import DataRoot
from capbench.datasets.row_models import Image, Row, Text, read_rows, text_list

_FEW = 5
_SPICA = tuple(f"nebula/spica_{split}.csv" for split in ("train", "val", "test"))
_BLANKS = str.maketrans("\t\n\r", "   ")
_Caption = Annotated[Text, AfterValidator(lambda text: text.translate(_BLANKS))]
"""A caption in which line breaks and tabs are replaced by spaces."""


class ScoredRow(Row):
    """One caption with the raters' score."""

    image: Image = Field(validation_alias=AliasChoices("imgid", "file_name", "img.path", "image.path"))
    candidate: _Caption = Field(validation_alias=AliasChoices("mt", "cand"))
    score: float = Field(validation_alias=AliasChoices("score", "human_score"), ge=0, le=1)


class RatedRow(ScoredRow):
    """One rated caption with its references."""

    references: Annotated[tuple[_Caption, ...], BeforeValidator(text_list), Field(min_length=1)] = Field(
        validation_alias="refs"
    )


class _RatedCaptions(Dataset):
    """A file of rated captions: every row is an item with one rating."""

    selections: ClassVar[Mapping[str, ItemSelection]] = by_name(
        ItemSelection("all-references", "all rows; all references of each", source="Polos, DENEB, EXPERT"),
        ItemSelection("first-5-references", "all rows; the first five references of each"),
        ItemSelection("last-5-references", "all rows; the last five references of each"),
    )
    statistics: ClassVar[Mapping[str, StatisticSpec]] = correlations("score")
    default: ClassVar[tuple[str, str]] = ("all-references", "tau-c")
    groups: ClassVar[Sequence[str] | None] = ()
    image_folders: ClassVar[Sequence[str]] = ("nebula/images", "polaris/images")
    stem: ClassVar[str]  # path of the data set's file without the ending

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """One item per row in the order of the file; ``ratings["score"]`` has one real-valued rating per item."""
        endings = (".json", ".csv", ".parquet")
        path = self.root.file(*(f"{self.stem}{ending}" for ending in endings), what=f"the rows of {self.title}")
        rows = read_rows(path, RatedRow)
        scores, notes = self._scores(rows)
        slices = {"first-5-references": slice(_FEW), "last-5-references": slice(-_FEW, None)}
        kept = slices.get(selection.name, slice(None))
        items = tuple(
            Item(row.image, row.candidate, row.references[kept], f"row-{number}") for number, row in enumerate(rows, 1)
        )
        more = sum(len(row.references) > _FEW for row in rows)
        if more and selection.name != "all-references":
            notes = [*notes, f"{more:,} items have more than {_FEW} references and keep {_FEW}"]
        ratings = {"score": judgement_files.ratings(range(len(rows)), scores, (0.0, 1.0))}
        return (Judgements(self.name, selection.name, items, ratings, notes=tuple(notes)),)

    def _scores(self, rows: Sequence[RatedRow]) -> tuple[list[float], list[str]]:
        """The rating of each row, and notes."""
        return [row.score for row in rows], []


class Nebula(_RatedCaptions):
    """The test set: 3,298 captions, one per image, each with five or more references."""

    name: ClassVar[str] = "nebula"
    in_default: ClassVar[bool] = True
    title: ClassVar[str] = "Nebula"
    version: ClassVar[str] = "1"
    versions: ClassVar[Mapping[str, str]] = {"1": "as published", "spica": "scores corrected by Spica's judgements"}
    stem: ClassVar[str] = "nebula/nebula_test"

    @classmethod
    def newest_version(cls, root: DataRoot) -> str:
        """``spica`` if all its files exist, else ``1``."""
        return "spica" if all((root.path / name).is_file() for name in _SPICA) else "1"

    def _scores(self, rows: Sequence[RatedRow]) -> tuple[list[float], list[str]]:
        if self.version == "1":
            note = "the scores are those first published; the files of version spica, which corrects them, are missing"
            newest = self.newest_version(self.root) == "1"
            return [row.score for row in rows], [note] if newest and not self.root.is_sample else []
        spica_scores: dict[tuple[str, str], list[float]] = {}
        for name in _SPICA:
            for row in read_rows(self.root.file(name, what="Spica's scores"), ScoredRow):
                spica_scores.setdefault(_key(row), []).append(row.score)
        scores = []
        corrected = 0
        for row in rows:
            of_caption = spica_scores.get(_key(row))
            scores.append(row.score if of_caption is None else sum(of_caption) / len(of_caption))
            corrected += of_caption is not None
        names = ", ".join(Path(name).name for name in _SPICA)
        return scores, [f"{corrected:,} of {len(rows):,} scores are from {names}; the others are as published"]


def _key(row: ScoredRow) -> tuple[str, str]:
    return row.image, " ".join(row.candidate.split())


class Polaris(_RatedCaptions):
    """The test set: 26,122 captions."""

    name: ClassVar[str] = "polaris"
    in_default: ClassVar[bool] = True
    title: ClassVar[str] = "Polaris"
    version, versions = AS_PUBLISHED
    stem: ClassVar[str] = "polaris/polaris_test"

"""Ratings of image descriptions in the context of an article, by sighted and by blind or low-vision readers.

Files in ``context_blv/``, CSV with a header (Kreiss and others 2022): ``sighted_data_criticaltrials.csv`` and
``blv_data_criticaltrials.csv``. A row is one reader's ratings of one description of an image (``img_id``) in one
``context`` (the title of a Wikipedia article), from 1 to 5: ``q_overall``, ``q_relevance`` (does it mention the
relevant?), ``q_irrelevance`` (is it free of irrelevant details?), ``q_reconstructivity`` (can the reader picture the
image?) and ``q_imgfit`` (does it fit the image or, before that is seen, the article?). Sighted readers rated before
(``.preimg``) and after they saw the image (``.postimg``), except reconstructivity, which was rated before only.

The same text in two contexts is two candidates. There are no references.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from capbench.core import files
from capbench.core.errors import DataError
from capbench.core.records import Item, Judgements, Ratings
from capbench.datasets import judgement_files
from capbench.datasets.base import Dataset
from capbench.datasets.protocol import ItemSelection, StatisticSpec, correlations, within_image_statistics

_SCALE = (1, 5)
_QUESTIONS = ("overall", "relevance", "irrelevance", "reconstructivity", "imgfit")


@dataclass(frozen=True)
class ContextRow:
    """One reader's ratings of one description.

    Attributes:
        row: row of the table; the header is row 1.
        image: image id.
        context: title of the article.
        description: the description.
        reader: id of the reader.
        ratings: rating by column, 1 to 5.
    """

    row: int
    image: str
    context: str
    description: str
    reader: str
    ratings: Mapping[str, int]


class _InContext(Dataset):
    """Descriptions of images in articles, rated by several readers each."""

    file_name: ClassVar[str]
    reader_column: ClassVar[str]
    columns: ClassVar[Mapping[str, str]]
    """Aspect of the ratings → column of the file."""
    image_folders: ClassVar[Sequence[str]] = ("context_blv/images",)
    groups: ClassVar[Sequence[str] | None] = ()
    version: ClassVar[str] = "1"
    versions: ClassVar[Mapping[str, str]] = {"1": "as published"}
    citation: ClassVar[str] = (
        "E. Kreiss, C. Bennett, S. Hooshmand, E. Zelikman, M. R. Morris, C. Potts: Context Matters for Image "
        "Descriptions for Accessibility: Challenges for Referenceless Evaluation Metrics. EMNLP 2022"
    )
    selections: ClassVar[Mapping[str, ItemSelection]] = {
        "all-descriptions": ItemSelection("all-descriptions", "all rated descriptions; no references")
    }

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """Items in the order of their first row; ``ratings`` by question."""
        path = self.root.file(self.file_name, what="the ratings")
        rows = read_context_ratings(path, self.reader_column, list(self.columns.values()))
        places: dict[tuple[str, str, str], int] = {}
        rows_of: list[list[ContextRow]] = []
        for row in rows:
            place = places.setdefault((row.image, row.context, row.description), len(rows_of))
            if place == len(rows_of):
                rows_of.append([])
            rows_of[place].append(row)
        items = tuple(
            Item(image, description, (), f"{image}/{context}#{place}")
            for place, (image, context, description) in enumerate(places)
        )
        of_rater = [(place, rater, row) for place, of_item in enumerate(rows_of) for rater, row in enumerate(of_item)]
        item = np.array([place for place, _, _ in of_rater], dtype=np.int64)
        rater = np.array([number for _, number, _ in of_rater], dtype=np.int64)
        ratings = {
            aspect: Ratings(item, np.array([row.ratings[column] for _, _, row in of_rater], np.float64), rater, _SCALE)
            for aspect, column in self.columns.items()
        }
        return (Judgements(self.name, selection.name, items, ratings),)


def _statistics(aspects: Sequence[str]) -> dict[str, StatisticSpec]:
    return {
        name: spec
        for aspect in aspects
        for declared in (
            correlations(aspect, ("mean", "unaggregated"), prefix=aspect),
            within_image_statistics(aspect, prefix=aspect),
        )
        for name, spec in declared.items()
    }


class ContextSighted(_InContext):
    """270 descriptions rated by sighted readers, before and after they saw the image."""

    name: ClassVar[str] = "context-sighted"
    title: ClassVar[str] = "Context, sighted readers"
    file_name: ClassVar[str] = "context_blv/sighted_data_criticaltrials.csv"
    reader_column: ClassVar[str] = "anon_worker_id"
    columns: ClassVar[Mapping[str, str]] = {
        **{question: f"q_{question}.postimg" for question in _QUESTIONS if question != "reconstructivity"},
        **{f"{question}-before": f"q_{question}.preimg" for question in _QUESTIONS},
    }
    statistics: ClassVar[Mapping[str, StatisticSpec]] = _statistics(tuple(columns))
    default: ClassVar[tuple[str, str]] = ("all-descriptions", "overall-mean-pearson")


class ContextBlv(_InContext):
    """68 descriptions rated by four blind or low-vision readers each."""

    name: ClassVar[str] = "context-blv"
    title: ClassVar[str] = "Context, BLV readers"
    file_name: ClassVar[str] = "context_blv/blv_data_criticaltrials.csv"
    reader_column: ClassVar[str] = "participant"
    columns: ClassVar[Mapping[str, str]] = {question: f"q_{question}" for question in _QUESTIONS}
    statistics: ClassVar[Mapping[str, StatisticSpec]] = _statistics(tuple(columns))
    default: ClassVar[tuple[str, str]] = ("all-descriptions", "overall-mean-pearson")


def read_context_ratings(path: Path, reader_column: str, columns: Sequence[str]) -> list[ContextRow]:
    """Read the ratings, in the order of the file.

    Args:
        path: the CSV file.
        reader_column: column of the reader.
        columns: columns of ratings.

    Raises:
        DataError: the file is not a table, a column is missing, a text is missing, a rating is not a whole number from
            1 to 5, or a reader rated a description twice.
    """
    text = files.read_text(path)
    try:
        table = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error as error:
        raise judgement_files.file_error(f"is not a table ({error})", "wrong-format", path) from error
    header = table[0] if table else []
    for column in ("img_id", "context", "description", reader_column, *columns):
        if column not in header:
            raise judgement_files.file_error(f"has no column '{column}'", "missing-key", path, value=column)
    rows: list[ContextRow] = []
    seen: dict[tuple[str, str, str, str], int] = {}
    for number, cells in enumerate(table[1:], 2):
        if len(cells) != len(header):
            raise judgement_files.file_error(
                f"has {len(cells)} columns, not {len(header)}", "wrong-format", path, number
            )
        values = dict(zip(header, cells, strict=True))
        image = judgement_files.parse_image(values["img_id"], "image's id (img_id)", path=path, row=number)
        context, description, reader = (
            judgement_files.parse_caption(values[key], what, path=path, row=number)
            for key, what in (
                ("context", "context"),
                ("description", "description"),
                (reader_column, f"reader ({reader_column})"),
            )
        )
        ratings = {
            column: judgement_files.parse_integer(values[column], *_SCALE, f"rating {column}", path=path, row=number)
            for column in columns
        }
        first = seen.setdefault((image, context, description, reader), number)
        if first != number:
            raise DataError(
                f"the reader {reader} already rated this description in row {first}",
                code="duplicate",
                value=reader,
                path=path,
                row=number,
                hint="Keep one of the two rows",
            )
        rows.append(ContextRow(number, image, context, description, reader, ratings))
    if not rows:
        raise judgement_files.file_error("contains no ratings", "missing-value", path)
    return rows

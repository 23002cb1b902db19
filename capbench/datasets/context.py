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

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeAlias

import numpy as np
from pydantic import Field, create_model

from capbench.core.records import Item, Judgements, Ratings
from capbench.datasets.base import AS_PUBLISHED, Dataset
from capbench.datasets.protocol import ItemSelection, StatisticSpec, by_name, correlations, within_image_statistics
from capbench.datasets.row_models import Image, Row, Text, read_rows

_SCALE = (1, 5)
_Rating: TypeAlias = Annotated[int, Field(ge=1, le=5)]
_QUESTIONS = ("overall", "relevance", "irrelevance", "reconstructivity", "imgfit")


class ContextRow(Row):
    """One reader's ratings of one description in the context of an article; subclasses have the ratings."""

    image: Image = Field(validation_alias="img_id")
    context: Text
    description: Text
    reader: Text


class _InContext(Dataset):
    """Descriptions of images in articles, rated by several readers each."""

    file_name: ClassVar[str]
    reader_column: ClassVar[str]
    columns: ClassVar[Mapping[str, str]]  # aspect of the ratings → column of the file
    image_folders: ClassVar[Sequence[str]] = ("context_blv/images",)
    groups: ClassVar[Sequence[str] | None] = ()
    version, versions = AS_PUBLISHED
    selections: ClassVar[Mapping[str, ItemSelection]] = by_name(
        ItemSelection("all-descriptions", "all rated descriptions; no references")
    )

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """Items in the order of their first row; ``ratings`` by question."""
        path = self.root.file(self.file_name, what="the ratings")
        rows = read_context_ratings(path, self.reader_column, self.columns)
        rows_of: dict[tuple[str, str, str], list[ContextRow]] = {}
        for row in rows:
            rows_of.setdefault((row.image, row.context, row.description), []).append(row)
        items = tuple(
            Item(image, description, (), f"{image}/{context}#{place}")
            for place, (image, context, description) in enumerate(rows_of)
        )
        by_item = enumerate(rows_of.values())
        of_rater = [(place, rater, row) for place, of_item in by_item for rater, row in enumerate(of_item)]
        item = np.array([place for place, _, _ in of_rater], dtype=np.int64)
        rater = np.array([number for _, number, _ in of_rater], dtype=np.int64)
        ratings = {
            aspect: Ratings(item, np.array([getattr(row, aspect) for *_, row in of_rater], np.float64), rater, _SCALE)
            for aspect in self.columns
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


def read_context_ratings(path: Path, reader: str, columns: Mapping[str, str]) -> list[ContextRow]:
    """The ratings by aspect, in the order of the file; ``reader`` and ``columns`` name the columns."""
    ratings: dict[str, Any] = {name: (_Rating, Field(validation_alias=column)) for name, column in columns.items()}
    model = create_model("ContextRow", __base__=ContextRow, reader=(Text, Field(validation_alias=reader)), **ratings)
    seen: set[tuple[str, str, str, str]] = set()
    rows = read_rows(path, model)
    for row in rows:
        key = (row.image, row.context, row.description, row.reader)
        if key in seen:
            raise row.error("duplicate", f"the reader {row.reader} already rated this description", value=row.reader)
        seen.add(key)
    return list(rows)

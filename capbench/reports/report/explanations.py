"""Explanations in a report: whole pages of their own, packed into the one file, which a link opens."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from capbench.analyses.explained_captions import (
    CaptionToExplain,
    Explainer,
    captions_to_explain,
    explain_captions,
)
from capbench.errors import DataError
from capbench.explain.composing import compose
from capbench.explain.heatmaps import make_scene
from capbench.explain.page import page
from capbench.explanations import Explanation, Regions
from capbench.features.images import decode
from capbench.reports.report.elements import Html, tag
from capbench.reports.report.sources import ReportSource
from capbench.studies.item_scores import ItemScores
from capbench.studies.judged import ProgressFactory, no_progress

__all__ = ["MOST_BYTES", "MOST_EXPLANATIONS", "USUAL_NUMBER", "Explained", "dialog", "explained"]

MOST_EXPLANATIONS = 200
"""Explanations in one page."""
MOST_BYTES = 6_000_000
"""What all of them together may add to it."""
USUAL_NUMBER = 5
"""Captions of each row in each list of captions, where nobody says how many."""

FindPictures = Callable[[Iterable[str]], Mapping[str, Path]]


@dataclass
class Explained:
    """The explanations of a page.

    Attributes:
        pages: whole HTML files, gzip in base64.
        places: study, place of the table among the study's, label → point of the table → place of its page.
        explainers: by study, what its metrics say of themselves, or lack.
        left_out: captions for which there was no room.
        problems: why captions could not be explained.
    """

    pages: list[str] = field(default_factory=list)
    places: dict[tuple[int, int, str], dict[int, int]] = field(default_factory=dict)
    explainers: tuple[tuple[Explainer, ...], ...] = ()
    left_out: int = 0
    problems: list[str] = field(default_factory=list)


def explained(
    sources: Sequence[ReportSource],
    number: int,
    pictures: FindPictures | None = None,
    progress: ProgressFactory = no_progress,
) -> Explained:
    """Explain the captions on which metrics and people part most, as far as there is room.

    Args:
        sources: the studies, with what explains their metrics.
        number: captions of each of these metrics' rows in each list.
        pictures: finds the images' files; None for explanations without.
        progress: makes progress bars.
    """
    tables: list[ItemScores] = []
    owners: list[tuple[int, int]] = []  # of each table: its study, and its place among the study's
    known: list[Explainer] = []
    of_tables: list[list[int]] = []
    for study, source in enumerate(sources):
        first = len(known)
        known += source.explainers
        for place, table in enumerate(source.items):
            tables.append(table)
            owners.append((study, place))
            of_tables.append(list(range(first, len(known))))
    made = Explained(explainers=tuple(source.explainers for source in sources))
    chosen = list(captions_to_explain(tables, of_tables, known, number)) if number else []
    if not chosen:
        return made
    images = dict.fromkeys(tables[one.table].images[one.point] for one in chosen)
    paths = {} if pictures is None else pictures(images)
    pages = _Pages(made)
    with progress("explanations", min(len(chosen), MOST_EXPLANATIONS)) as step:
        for one in chosen:
            explainer, table = known[one.explainer], tables[one.table]
            number_of_page = pages.page(explainer, table, one, paths)
            if number_of_page is not None:
                made.places.setdefault((*owners[one.table], explainer.label), {})[one.point] = number_of_page
            step(1)
    return made


class _Pages:
    """Makes pages, each once: studies of one data set share captions."""

    def __init__(self, made: Explained) -> None:
        self._made = made
        self._known: dict[tuple[object, ...], int | None] = {}
        self._bytes = 0

    def page(
        self, explainer: Explainer, table: ItemScores, one: CaptionToExplain, paths: Mapping[str, Path]
    ) -> int | None:
        """The place of a point's page; None if there is no room, or nothing to explain."""
        assert explainer.metric is not None
        point = one.point
        references = tuple(table.reference_lists[table.references[point]])
        other = table.others[point] if table.others else None
        human = None if table.others else table.human[point]
        subject = (table.images[point], table.captions[point], other, references, human)
        key = (explainer.metric.signature(), *subject)
        if key not in self._known:
            self._known[key] = self._new(explainer, table, point, paths)
        return self._known[key]

    def _new(self, explainer: Explainer, table: ItemScores, point: int, paths: Mapping[str, Path]) -> int | None:
        made = self._made
        if len(made.pages) >= MOST_EXPLANATIONS or self._bytes >= MOST_BYTES:
            made.left_out += 1
            return None
        explanation, problem = explain_captions(explainer, table, point, paths)
        if explanation is None:
            made.problems.append(problem)
            return None
        packed = _packed(_html(explanation, paths.get(explanation.image)))
        if self._bytes + len(packed) > MOST_BYTES:
            made.left_out += 1
            return None
        self._bytes += len(packed)
        made.pages.append(packed)
        return len(made.pages) - 1


def _html(explanation: Explanation, path: Path | None) -> str:
    regions = explanation.regions or Regions(())
    try:
        picture = None if path is None else decode(path)
    except DataError:
        picture = None  # which the report says among its pictures
    return page(compose(explanation, make_scene(picture, regions.boxes, regions.size)))


def _packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(), compresslevel=9, mtime=0)).decode("ascii")


def dialog() -> Html:
    """Where the page's script shows an explanation: in a frame that may run and load nothing."""
    bar = tag(
        "div",
        tag("strong", id="why-title"),
        tag("a", "Save as a file", id="why-save", href="#why"),
        tag("button", "Close", type="button", id="why-close"),
        class_="actions",
    )
    frame = tag("iframe", id="why-frame", sandbox="", title="Explanation")
    return tag("dialog", bar, frame, id="why", aria_labelledby="why-title")

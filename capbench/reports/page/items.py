"""Where metric and people part: the captions behind the numbers, for the page's script to list."""

from __future__ import annotations

import base64
import gzip
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from capbench.core import plugins
from capbench.core.errors import DataError
from capbench.core.explanations import Explanation, Regions
from capbench.datasets.protocol import base_name
from capbench.features.images import decode
from capbench.reports.explain.drawing import make_scene
from capbench.reports.explain.page import compose, page
from capbench.reports.page.elements import Html, ReportSource, tag, wide
from capbench.reports.page.overview import copy_buttons, signature_of
from capbench.studies.explained import CaptionToExplain, Explainer, captions_to_explain, explain_captions
from capbench.studies.item_scores import ItemScores, disagreement, human_percentiles, percentiles
from capbench.studies.judged import ProgressFactory, no_progress
from capbench.studies.results import StudyResult

__all__ = [
    "MOST_EXPLANATIONS",
    "MOST_EXPLANATION_BYTES",
    "MOST_ITEMS",
    "MOST_PICTURES",
    "MOST_REFERENCES",
    "MOST_THUMBNAIL_BYTES",
    "USUAL_NUMBER",
    "Explained",
    "dialog",
    "explained",
    "images_listed_first",
    "items_section",
    "panels",
    "thumbnails",
]


# Small pictures of the captions that are listed first, as data in the page.

MOST_PICTURES = 200
"""Pictures in one page."""
MOST_THUMBNAIL_BYTES = 10_000
"""Size of one picture's file."""
_SIDES = (224, 192, 160, 128, 96, 64)  # pixels of the longer side, the first that fits
_QUALITIES = (80, 65, 50)


def images_listed_first(tables: Sequence[ItemScores], number: int = MOST_PICTURES) -> list[str]:
    """The images of the captions on which metrics and people part most: of each metric's list by turns.

    Args:
        tables: the items.
        number: how many images at most.
    """
    lists: list[list[str]] = []
    for table in tables:
        human = human_percentiles(table)
        for name in table.scores:
            places, scores = table.points(name)
            distance = np.abs(percentiles(scores) - human[places])
            order = places[np.argsort(-distance, kind="stable")[: 2 * number]]
            lists.append([table.images[place] for place in order.tolist()])
    chosen: dict[str, None] = {}
    for turn in range(max(map(len, lists), default=0)):
        for images in lists:
            if turn < len(images) and len(chosen) < number:
                chosen[images[turn]] = None
    return list(chosen)


def thumbnails(
    images: Sequence[str], paths: Mapping[str, Path], progress: ProgressFactory = no_progress
) -> tuple[dict[str, str], list[str]]:
    """Data URLs of small JPEG files by image, and what is wrong with pictures that cannot be read.

    Args:
        images: which are wanted.
        paths: their files, as far as they are there.
        progress: makes progress bars.
    """
    urls: dict[str, str] = {}
    problems: list[str] = []
    there = [image for image in images if image in paths]
    with progress("pictures", len(there)) as step:
        for image in there:
            try:
                urls[image] = "data:image/jpeg;base64," + base64.b64encode(_small(paths[image])).decode()
            except DataError as error:
                problems.append(str(error))
            step(1)
    return urls, problems


def _small(path: Path) -> bytes:
    from PIL import Image

    picture = Image.fromarray(decode(path))
    data = b""
    for side in _SIDES:
        small = picture.copy()
        small.thumbnail((side, side), Image.Resampling.LANCZOS)
        for quality in _QUALITIES:
            stream = io.BytesIO()
            small.save(stream, "JPEG", quality=quality, optimize=True)
            data = stream.getvalue()
            if len(data) <= MOST_THUMBNAIL_BYTES:
                return data
    return data


# Explanations in a report: whole pages of their own, packed into the one file, which a link opens.

MOST_EXPLANATIONS = 200
"""Explanations in one page."""
MOST_EXPLANATION_BYTES = 6_000_000
"""What all of them together may add to it."""
USUAL_NUMBER = 5
"""Captions of each row in each list of captions, where nobody says how many."""

FindPictures = Callable[[str, Iterable[str]], Mapping[str, Path]]


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
    images: dict[str, dict[str, None]] = {}
    for one in chosen:
        table = tables[one.table]
        images.setdefault(_dataset(table), {})[table.images[one.point]] = None
    paths = {dataset: pictures(dataset, of) for dataset, of in images.items()} if pictures is not None else {}
    pages = _Pages(made)
    with progress("explanations", min(len(chosen), MOST_EXPLANATIONS)) as step:
        for one in chosen:
            explainer, table = known[one.explainer], tables[one.table]
            number_of_page = pages.page(explainer, table, one, paths.get(_dataset(table), {}))
            if number_of_page is not None:
                made.places.setdefault((*owners[one.table], explainer.label), {})[one.point] = number_of_page
            step(1)
    return made


def _dataset(table: ItemScores) -> str:
    return table.items.split("/")[0]


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
        key = (explainer.metric.signature(), paths.get(table.images[point]), *subject)
        if key not in self._known:
            self._known[key] = self._new(explainer, table, point, paths)
        return self._known[key]

    def _new(self, explainer: Explainer, table: ItemScores, point: int, paths: Mapping[str, Path]) -> int | None:
        made = self._made
        if len(made.pages) >= MOST_EXPLANATIONS or self._bytes >= MOST_EXPLANATION_BYTES:
            made.left_out += 1
            return None
        explanation, problem = explain_captions(explainer, table, point, paths)
        if explanation is None:
            made.problems.append(problem)
            return None
        packed = _packed(_html(explanation, paths.get(explanation.image)))
        if self._bytes + len(packed) > MOST_EXPLANATION_BYTES:
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


MOST_ITEMS = 24_000
"""Captions in one page; each data set has an equal part of them."""
MOST_REFERENCES = 5
"""References of a caption in the page."""


def panels(sources: Sequence[ReportSource], why: Explained | None = None) -> list[dict[str, Any]]:
    """One entry for each human side of each study: lists side by side, percentiles in tenths.

    Args:
        sources: the studies.
        why: the page's explanations.
    """
    why = why or Explained(explainers=tuple(source.explainers for source in sources))
    tables = [
        (study, source.result, place, table)
        for study, source in enumerate(sources)
        for place, table in enumerate(source.items)
        if len(table) and table.scores
    ]
    most = max(MOST_ITEMS // max(len(tables), 1), 1)
    several = len(sources) > 1
    listed = []
    for study, result, place, table in tables:
        pages = {label: of for (at, of_table, label), of in why.places.items() if (at, of_table) == (study, place)}
        explained = _explained(result, why.explainers[study], pages)
        listed.append(_panel(result, table, most, several, explained))
    return listed


def _panel(
    result: StudyResult, table: ItemScores, most: int, several: bool, explained: Mapping[str, _Why]
) -> dict[str, Any]:
    order = np.argsort(-disagreement(table), kind="stable")[:most]
    chosen = np.sort(order).tolist()
    images: dict[str, int] = {}
    lists: dict[int, int] = {}
    metrics = []
    signatures = {cell.column: signature_of(result, cell) for cell in result.cells if cell.protocol in table.protocols}
    at = {point: place for place, point in enumerate(chosen)}
    whys = list(dict.fromkeys(explained.values()))
    for name in (column for column in result.columns if column in table.scores):
        places, scores = table.points(name)
        shares = dict(zip(places.tolist(), np.round(10 * percentiles(scores)).astype(int).tolist(), strict=True))
        values = table.scores[name]
        metrics.append(
            {
                "title": result.columns[name],
                "signature": signatures.get(name, ""),
                "why": whys.index(explained[name]) if name in explained else None,
                "pct": [shares.get(place) for place in chosen],
                "score": [None if values[place] is None else float(f"{values[place]:.4g}") for place in chosen],
            }
        )
    human = np.round(10 * human_percentiles(table)).astype(int)
    title = f"{table.dataset_title}, {table.items.split('/', 1)[-1]}, {table.side}"
    return {
        "title": f"{title} ({result.name})" if several else title,
        "dataset": base_name(table.items.split("/")[0]),
        "pairs": table.kind == "preferences",
        "all": len(table),
        "image": [images.setdefault(table.images[place], len(images)) for place in chosen],
        "images": list(images),
        "caption": [table.captions[place] for place in chosen],
        "other": [table.others[place] for place in chosen] if table.others else [],
        "refs": [lists.setdefault(table.references[place], len(lists)) for place in chosen],
        "refLists": [table.reference_lists[place][:MOST_REFERENCES] for place in lists],
        "refCounts": [len(table.reference_lists[place]) for place in lists],
        "group": [table.groups[place] for place in chosen],
        "system": [table.systems[place] for place in chosen],
        "human": [float(f"{table.human[place]:.4g}") for place in chosen],
        "humanPct": human[chosen].tolist(),
        "ratings": [", ".join(f"{value:g}" for value in table.ratings[place]) for place in chosen],
        "metrics": metrics,
        "whys": [
            {
                "name": why.name,
                "label": why.label,
                "waits": why.waits,
                "pages": {at[point]: page for point, page in why.pages if point in at},
            }
            for why in whys
        ],
    }


@dataclass(frozen=True)
class _Why:
    """What explains some columns: the name that ``capbench explain -m`` takes, what it lacks, and pages by point."""

    name: str
    label: str
    waits: str = ""
    pages: tuple[tuple[int, int], ...] = ()


def _explained(
    result: StudyResult, explainers: Sequence[Explainer], pages: Mapping[str, Mapping[int, int]]
) -> dict[str, _Why]:
    """By column, what explains it; of metrics that nobody readied, that they could."""
    from capbench.metrics.abilities import Explains

    explained: dict[str, _Why] = {}
    known = plugins.names("capbench.metrics")
    able: dict[str, bool] = {}
    for cell in result.cells:
        name = cell.metric
        if name in known and name not in able:
            able[name] = issubclass(plugins.load("capbench.metrics", name), Explains)
        if able.get(name):
            explained[cell.column] = _Why(name, cell.label)
    for explainer in explainers:
        of_label = tuple(pages.get(explainer.label, {}).items())
        why = _Why(explainer.name, explainer.label, explainer.waits, of_label)
        explained |= dict.fromkeys(explainer.columns, why)
    return explained


def items_section(
    listed: Sequence[dict[str, Any]], commands: Sequence[str], pictures: int, why: Explained | None = None
) -> Html:
    """The section, with controls and an empty table; or what to do where there are no items.

    Args:
        listed: what :func:`panels` gave.
        commands: commands that would add the items of studies without.
        pictures: how many pictures the page has.
        why: its explanations.
    """
    head = tag("h2", "Where metric and people part")
    lacking = [
        tag("p", "The results of some studies hold numbers alone. This adds their captions: ", tag("code", command))
        for command in commands
    ]
    if not listed:
        return tag("section", head, *lacking, id="apart")
    held = [
        f"{len(panel['caption']):,} of {panel['all']:,} ({panel['title']})"
        for panel in listed
        if len(panel["caption"]) < panel["all"]
    ]
    if len(held) > 3:
        held = [f"{max(len(panel['caption']) for panel in listed):,} of each of {len(held)} lists"]
    notes = [
        "Percentiles make metrics and people comparable: 90 is higher than 90 % of the same list. The list begins with "
        "the greatest distance. Two metrics are set side by side with “beside”.",
        "Of pairs, the preferred caption comes first, people stand at 100, and a metric stands where its difference "
        "(preferred minus other) ranks: below zero it orders the pair against people."
        if any(panel["pairs"] for panel in listed)
        else "",
        f"The page holds those on which metrics and people part most: {'; '.join(held)}." if held else "",
        f"{pictures} pictures, of the captions that come first." if pictures else "No pictures were at hand.",
        *_told(why),
    ]
    controls = [
        _select("panel", "Judgements"),
        _select("first", "metric"),
        _select("second", "beside"),
        _select("direction", "show"),
        _select("part", "group"),
    ]
    heads = ("caption", "people", "metric", "beside", "distance", "details")
    row = tag("tr", *(tag("th", head, scope="col", class_=None if head == "caption" else "n") for head in heads))
    table = tag("table", tag("thead", row), id="items", class_="items")
    return tag(
        "section",
        head,
        tag("p", " ".join(filter(None, notes)), class_="note"),
        *lacking,
        tag("div", *controls, copy_buttons("items"), class_="tools"),
        wide(table, "Table: captions by disagreement"),
        id="apart",
    )


def _told(why: Explained | None) -> list[str]:
    """What is said about explanations: how many there are, for which there was no room, and what they wait for."""
    if why is None:
        return []
    told = []
    if why.pages:
        told.append(
            f"{len(why.pages)} explanations of the captions that come first are linked as “why”."
            + (f" For {why.left_out} more there was no room." if why.left_out else "")
        )
    told += dict.fromkeys(
        f"Explanations of {explainer.label} wait for {explainer.waits}."
        for of_study in why.explainers
        for explainer in of_study
        if explainer.waits
    )
    return told


def _select(name: str, label: str) -> Html:
    return tag(
        "span", tag("label", label, for_=f"items-{name}"), " ", tag("select", id=f"items-{name}"), class_="field"
    )

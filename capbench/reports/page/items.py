"""Largest disagreements between metrics and human ratings: captions with thumbnails and explanations, as data."""

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
from capbench.core.explanations import Explanation
from capbench.datasets.protocol import base_name
from capbench.features.images import decode
from capbench.reports.explain import page
from capbench.reports.page.elements import Html, ReportSource, tag, wide
from capbench.reports.page.overview import best_first, copy_buttons, signature_of
from capbench.studies.explained import Explainer, captions_to_explain, explain_captions
from capbench.studies.item_scores import ItemScores
from capbench.studies.results import StudyResult
from capbench.studies.score_profiles import disagreement, human_percentiles, percentiles
from capbench.studies.scoring import ProgressFactory, no_progress

# Thumbnails of the captions that are listed first.

MAX_PICTURES = 200
"""Maximum number of pictures in a page."""
MAX_THUMBNAIL_BYTES = 10_000
"""Maximum size of a thumbnail's file."""
_SIDES = (224, 160, 112, 64)  # pixels of the longer side; the first that fits is used


def images_listed_first(tables: Sequence[ItemScores], number: int = MAX_PICTURES) -> list[str]:
    """The images of the captions with the largest disagreements, from the metrics' lists in turn."""
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
    """Data URLs of small JPEG files by image, and the errors of pictures that cannot be read."""
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
    """A JPEG file of the largest size that fits."""
    from PIL import Image

    picture = Image.fromarray(decode(path))
    data = b""
    for side in _SIDES:
        picture.thumbnail((side, side), Image.Resampling.LANCZOS)
        stream = io.BytesIO()
        picture.save(stream, "JPEG", quality=65, optimize=True)
        data = stream.getvalue()
        if len(data) <= MAX_THUMBNAIL_BYTES:
            break
    return data


# Explanations in a report: complete HTML files, packed into the page, which a link opens.

MAX_EXPLANATIONS = 200
"""Maximum number of explanations in a page."""
MAX_EXPLANATION_BYTES = 6_000_000
"""Maximum size of all explanations together."""
USUAL_NUMBER = 5
"""Default number of explained captions of each row in each list."""

FindPictures = Callable[[str, Iterable[str]], Mapping[str, Path]]


@dataclass
class Explained:
    """The explanations of a page."""

    pages: list[str] = field(default_factory=list)  # complete HTML files, gzip in base64
    # study, index of the table in the study, label → point of the table → index of its page
    places: dict[tuple[int, int, str], dict[int, int]] = field(default_factory=dict)
    explainers: tuple[tuple[Explainer, ...], ...] = ()  # by study, explainers of its metrics or what they require
    left_out: int = 0  # number of captions that exceeded the limits
    problems: list[str] = field(default_factory=list)  # errors of captions that could not be explained


def explained(
    sources: Sequence[ReportSource],
    number: int,
    pictures: FindPictures | None = None,
    progress: ProgressFactory = no_progress,
) -> Explained:
    """Explain the captions with the largest disagreements, within the limits."""
    tables: list[ItemScores] = []
    owners: list[tuple[int, int]] = []  # for each table, its study and its index in the study
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
    used = 0
    with progress("explanations", min(len(chosen), MAX_EXPLANATIONS)) as step:
        for one in chosen:
            step(1)
            if len(made.pages) >= MAX_EXPLANATIONS or used >= MAX_EXPLANATION_BYTES:
                made.left_out += 1
                continue
            explainer, table = known[one.explainer], tables[one.table]
            of_images = paths.get(_dataset(table), {})
            explanation, problem = explain_captions(explainer, table, one.point, of_images)
            if explanation is None:
                made.problems.append(problem)
                continue
            text = _html(explanation, of_images.get(explanation.image))
            packed = base64.b64encode(gzip.compress(text.encode(), compresslevel=9, mtime=0)).decode("ascii")
            if used + len(packed) > MAX_EXPLANATION_BYTES:
                made.left_out += 1
                continue
            used += len(packed)
            made.places.setdefault((*owners[one.table], explainer.label), {})[one.point] = len(made.pages)
            made.pages.append(packed)
    return made


def _dataset(table: ItemScores) -> str:
    return table.items.split("/")[0]


def _html(explanation: Explanation, path: Path | None) -> str:
    try:
        picture = None if path is None else decode(path)
    except DataError:
        picture = None  # the report lists the problem among its pictures
    return page(explanation, picture)


def dialog() -> Html:
    """The dialog of explanations: a frame that cannot run scripts or load resources."""
    bar = tag(
        "div",
        tag("strong", id="why-title"),
        tag("a", "Save as a file", id="why-save", href="#why"),
        tag("button", "Close", type="button", id="why-close"),
        class_="actions",
    )
    frame = tag("iframe", id="why-frame", sandbox="", title="Explanation")
    return tag("dialog", bar, frame, id="why", aria_labelledby="why-title")


MAX_ITEMS = 24_000
"""Maximum number of captions in a page; each list has an equal share."""
MAX_REFERENCES = 5
"""Maximum number of references of a caption in the page."""


def panels(sources: Sequence[ReportSource], why: Explained | None = None) -> list[dict[str, Any]]:
    """One entry for each human side of each study: parallel lists, percentiles in tenths."""
    why = why or Explained(explainers=tuple(source.explainers for source in sources))
    tables = [
        (study, source.result, place, table)
        for study, source in enumerate(sources)
        for place, table in enumerate(source.items)
        if len(table) and table.scores
    ]
    most = max(MAX_ITEMS // max(len(tables), 1), 1)
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
    for name in best_first(result, next(iter(table.protocols), "")):
        if name not in table.scores:
            continue
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
        "refLists": [table.reference_lists[place][:MAX_REFERENCES] for place in lists],
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
                "missing": why.missing,
                "pages": {at[point]: page for point, page in why.pages if point in at},
            }
            for why in whys
        ],
    }


@dataclass(frozen=True)
class _Why:
    """An explainer of columns: its name for ``capbench explore explain -m``, what it requires, and pages by point."""

    name: str
    label: str
    missing: str = ""
    pages: tuple[tuple[int, int], ...] = ()


def _explained(
    result: StudyResult, explainers: Sequence[Explainer], pages: Mapping[str, Mapping[int, int]]
) -> dict[str, _Why]:
    """Explainers by column; for metrics that were not prepared, their names only."""
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
        why = _Why(explainer.name, explainer.label, explainer.missing, of_label)
        explained |= dict.fromkeys(explainer.columns, why)
    return explained


def items_section(
    listed: Sequence[dict[str, Any]], commands: Sequence[str], pictures: int, why: Explained | None = None
) -> Html:
    """The section with controls and an empty table, or with instructions if there are no items."""
    head = tag("h2", "Largest disagreements")
    missing = [
        tag(
            "p",
            "Some studies have numbers only. This command adds their captions: ",
            tag("code", command),
        )
        for command in commands
    ]
    if not listed:
        return tag("section", head, *missing, id="apart")
    held = [
        f"{len(panel['caption']):,} of {panel['all']:,} ({panel['title']})"
        for panel in listed
        if len(panel["caption"]) < panel["all"]
    ]
    if len(held) > 3:
        held = [f"{max(len(panel['caption']) for panel in listed):,} of each of {len(held)} lists"]
    notes = [
        "Percentiles make metrics and human ratings comparable: 90 is higher than 90 % of the same list. The list "
        "begins with the largest difference. “compare with” adds a second metric.",
        "In pairs, the preferred caption is first and has the human percentile 100. A metric has the percentile of its "
        "difference (preferred minus other): below zero it contradicts the human raters."
        if any(panel["pairs"] for panel in listed)
        else "",
        f"The page contains the largest disagreements: {'; '.join(held)}." if held else "",
        f"{pictures} pictures, of the captions listed first." if pictures else "No pictures were available.",
        *_explanation_notes(why),
    ]
    controls = [
        _select("panel", "Judgements"),
        _select("first", "metric"),
        _select("second", "compare with"),
        _select("direction", "show"),
        _select("part", "group"),
    ]
    heads = ("caption", "human rating", "metric", "compared metric", "difference", "details")
    row = tag("tr", *(tag("th", head, scope="col", class_=None if head == "caption" else "n") for head in heads))
    table = tag("table", tag("thead", row), id="items", class_="items")
    return tag(
        "section",
        head,
        tag("p", " ".join(filter(None, notes)), class_="note"),
        *missing,
        tag("div", *controls, copy_buttons("items"), class_="tools"),
        wide(table, "Table: captions by disagreement"),
        id="apart",
    )


def _explanation_notes(why: Explained | None) -> list[str]:
    """Notes on explanations: their number, those beyond the limits, and requirements of the others."""
    if why is None:
        return []
    lines = []
    if why.pages:
        lines.append(
            f"{len(why.pages)} explanations of the captions listed first are linked as “why”."
            + (f" {why.left_out} more exceeded the limits of the page." if why.left_out else "")
        )
    lines += dict.fromkeys(
        f"Explanations of {explainer.label} require {explainer.missing}."
        for of_study in why.explainers
        for explainer in of_study
        if explainer.missing
    )
    return lines


def _select(name: str, label: str) -> Html:
    return tag(
        "span", tag("label", label, for_=f"items-{name}"), " ", tag("select", id=f"items-{name}"), class_="field"
    )

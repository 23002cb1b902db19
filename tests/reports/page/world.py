"""Made-up studies for pages: one with ordinary texts, one in which every text tries to break out of where it stands."""

from __future__ import annotations

import numpy as np

from capbench.reports.page import ReportSource
from capbench.studies.item_scores import ItemScores
from capbench.studies.results import Ceiling, Missing, StudyResult
from tests.reports.toy import BOOTSTRAP, pairs_tested, study

METRICS = {"cider": "CIDEr", "meteor": "METEOR", "bleu-4": "BLEU-4"}
VALUES = {"cider": (0.44, 0.39), "meteor": (0.42, 0.38), "bleu-4": (0.31, 0.40)}
HOSTILE = (
    "</script><script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "\"><svg onload=document.title='owned'>",
    "&lt;img src=x onerror=document.title='owned'&gt; & <b>bold</b>",
    '=HYPERLINK("http://example.org","press")',
    "javascript:document.title='owned' <!-- --> ]]> \u2028 \u2029",
    "__proto__",
    "constructor",
)
PROTOCOLS = ("flickr8k-expert/no-own-captions/unaggregated-tau-c", "flickr8k-expert/no-own-captions/mean-tau-b")


def make_source(
    points: int = 60, metrics: dict[str, str] = METRICS, *, items: bool = True, seed: int = 0, name: str = "toy"
) -> ReportSource:
    """A study of two protocols; the seed's items agree with no number of it."""
    result = make_result(metrics, name=name)
    return ReportSource(result, (make_items(points, list(metrics), seed=seed),) if items else ())


def make_result(metrics: dict[str, str] = METRICS, *, name: str = "toy", title: str = "A toy study") -> StudyResult:
    by_column = {column: VALUES.get(column, (0.1 + place / 100, 0.2)) for place, column in enumerate(metrics)}
    values = [{column: of[place] for column, of in by_column.items()} for place in (0, 1)]
    about = "pairs whose caption belongs to the image are left out; every single rating is a data point"
    info: dict[str, object] = {"description": about, "notes": ("2 pairs are left out",), "bootstrap": BOOTSTRAP}
    info |= {"dataset_title": "Flickr8k Expert", "version": "1", "n_items": 60}
    made = study(dict(zip(PROTOCOLS, values, strict=True)), intervals=(0.06, 0.02), info=info)
    first, second = made.protocols
    cells = []
    for cell in made.cells:
        is_first = cell.protocol == first.id
        more: dict[str, object] = {"label": cell.column, "title": metrics[cell.column], "ties": 3}
        more |= {"n": 180 if is_first else 60}
        if cell.column == "cider" and is_first:
            more |= {"published": 0.439, "published_printed": "0.439"}
        cells.append(cell.model_copy(update=more))
        if is_first:  # its group, where all metrics have lower values
            cells.append(cell.model_copy(update=more | {"group": "odd", "value": cell.number - 0.05}))
    order = sorted(metrics, key=lambda column: -values[0][column])
    count = len(order) * (len(order) - 1) // 2
    tests = pairs_tested(
        PROTOCOLS[0],
        {column: values[0][column] for column in order},
        [0.01] * count,
        adjusted=[0.02] * count,
        top=tuple(order[:2]),
        ranks={column: 1 if place < 2 else 2 for place, column in enumerate(order)},
    )
    signed = {column: f"{column}|capbench:0.1.0|tok:ptb" for column in metrics}
    update: dict[str, object] = {
        "name": name,
        "title": title,
        "created": "2026-01-02T03:04:05+00:00",
        "protocols": (first.model_copy(update={"groups": ("odd",)}), second.model_copy(update={"statistic": "τ-b"})),
        "columns": {**metrics, "tiger": "TIGEr"},
        "signatures": {PROTOCOLS[0].rsplit("/", 1)[0]: signed},
        "cells": tuple(cells),
        "ceilings": (Ceiling(protocol=PROTOCOLS[0], value=0.74, n=180, method="leave-one-rater-out"),),
        "comparisons": (tests,),
        "missing": (Missing(column="tiger", title="TIGEr", reason="region features"),),
    }
    return made.model_copy(update=update)


def make_items(points: int, columns: list[str], *, seed: int = 0, texts: tuple[str, ...] = ()) -> ItemScores:
    """Points with three ratings each, four an image; texts take turns as captions, images, references, systems."""
    generator = np.random.default_rng(seed)
    hidden = generator.normal(size=points)
    ratings = np.clip(np.round(2.5 + hidden[:, None] + generator.normal(scale=0.5, size=(points, 3))), 1, 4)

    def text(place: int, otherwise: str) -> str:
        return texts[place % len(texts)] if texts else otherwise

    return ItemScores(
        items="flickr8k-expert/no-own-captions",
        side="expert",
        kind="ratings",
        dataset_title=text(0, "Flickr8k Expert"),
        protocols=PROTOCOLS,
        images=[f"{text(place // 4, 'image')}{'' if texts else place // 4}" for place in range(points)],
        captions=[text(place, f"caption number {place} of a dog") for place in range(points)],
        references=[place // 4 for place in range(points)],
        reference_lists=[[text(i + k, f"reference {i} {k}") for k in range(3)] for i in range(-(-points // 4))],
        groups=[text(place, "odd" if place % 2 else "even") for place in range(points)],
        systems=[text(place + 1, f"system {place % 3}") for place in range(points)],
        human=ratings.mean(axis=1).tolist(),
        ratings=ratings.tolist(),
        scores={
            column: (hidden + generator.normal(scale=0.5 + place, size=points)).tolist()
            for place, column in enumerate(columns)
        },
    )


def make_pairs(points: int, columns: list[str]) -> ItemScores:
    """Pairs: every fifth is ordered against people."""
    scores: list[float | None] = [
        -0.1 * (place + 1) if place % 5 == 0 else 0.1 * (place + 1) for place in range(points)
    ]
    return ItemScores(
        items="pascal-50s/json-5-refs",
        side="direct",
        kind="preferences",
        dataset_title="PASCAL-50S",
        protocols=(),
        images=[f"pair{place}" for place in range(points)],
        captions=[f"better {place}" for place in range(points)],
        others=[f"worse {place}" for place in range(points)],
        references=[0] * points,
        reference_lists=[[]],
        groups=["HC" if place % 2 else "MM" for place in range(points)],
        systems=[""] * points,
        human=[1.0] * points,
        ratings=[[7.0, 1.0]] * points,
        scores=dict.fromkeys(columns, scores),
    )


def hostile_source() -> ReportSource:
    """Every text that a data set, a metric or a study could bring is hostile."""
    metrics = {text: text for text in HOSTILE}
    result = make_result(metrics, title=HOSTILE[0], name=HOSTILE[1])
    infos = tuple(
        info.model_copy(update={"dataset_title": HOSTILE[2], "description": HOSTILE[0], "notes": HOSTILE})
        for info in result.protocols
    )
    result = result.model_copy(
        update={
            "protocols": infos,
            "signatures": {PROTOCOLS[0].rsplit("/", 1)[0]: {text: f"{text}|{text}" for text in HOSTILE}},
            "published": HOSTILE[1],
        }
    )
    return ReportSource(result, (make_items(40, list(metrics), texts=HOSTILE),))

"""Made-up studies for pages: one with ordinary texts, one in which every text tries to break out of where it stands."""

from __future__ import annotations

import numpy as np

from capbench.reports.page import ReportSource
from capbench.stats.pairs import Pair, Tests
from capbench.studies.item_scores import ItemScores
from capbench.studies.results import (
    BootstrapInfo,
    Ceiling,
    Cell,
    Missing,
    ProtocolInfo,
    StudyResult,
)

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
    values = {column: VALUES.get(column, (0.1 + place / 100, 0.2)) for place, column in enumerate(metrics)}
    bootstrap = BootstrapInfo(method="percentile", level=0.95, unit="image", units=20, resamples=100, seed=0)
    infos = tuple(
        ProtocolInfo(
            id=protocol,
            dataset="flickr8k-expert",
            dataset_title="Flickr8k Expert",
            statistic=statistic,
            kind="correlation",
            description="pairs whose caption belongs to the image are left out; every single rating is a data point",
            groups=("odd",) if not place else (),
            notes=("2 pairs are left out",),
            n_items=60,
            bootstrap=bootstrap,
            version="1",
        )
        for place, (protocol, statistic) in enumerate(zip(PROTOCOLS, ("τ-c", "τ-b"), strict=True))
    )
    cells = [
        Cell(
            protocol=protocol,
            metric=column,
            label=column,
            column=column,
            title=title_,
            group=group,
            value=values[column][place] - (0.05 if group else 0),
            low=values[column][place] - 0.06,
            high=values[column][place] + 0.02,
            n=180 if not place else 60,
            ties=3,
            published=0.439 if column == "cider" and not place else None,
            published_printed="0.439" if column == "cider" and not place else None,
        )
        for place, protocol in enumerate(PROTOCOLS)
        for group in (("", "odd") if not place else ("",))
        for column, title_ in metrics.items()
    ]
    order = sorted(metrics, key=lambda column: -values[column][0])
    pairs = tuple(
        Pair(better=a, worse=b, difference=0.1, p_value=0.01, p_adjusted=0.02, significant=True)
        for i, a in enumerate(order)
        for b in order[i + 1 :]
    )
    tests = Tests(
        protocol=PROTOCOLS[0],
        test="permutation",
        correction="holm",
        alpha=0.05,
        unit="image",
        units=20,
        resamples=100,
        seed=0,
        level=0.95,
        top=tuple(order[:2]),
        ranks={column: 1 if place < 2 else 2 for place, column in enumerate(order)},
        pairs=pairs,
    )
    return StudyResult(
        capbench="0.1.0",
        name=name,
        title=title,
        created="2026-01-02T03:04:05+00:00",
        sample=False,
        protocols=infos,
        columns={**metrics, "tiger": "TIGEr"},
        signatures={PROTOCOLS[0].rsplit("/", 1)[0]: {column: f"{column}|capbench:0.1.0|tok:ptb" for column in metrics}},
        cells=tuple(cells),
        ceilings=(Ceiling(protocol=PROTOCOLS[0], value=0.74, n=180, method="leave-one-rater-out"),),
        comparisons=(tests,),
        missing=(Missing(column="tiger", title="TIGEr", reason="region features"),),
        seconds={"total": 1.0},
    )


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

from __future__ import annotations

import csv
import gzip
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import capbench
from capbench.core.errors import UsageError
from capbench.core.progress import progress, together
from capbench.core.records import Item
from capbench.metrics.needs import Parser, Resources
from capbench.metrics.ngram import Cider, Spider
from capbench.metrics.requests import resolve_metrics
from capbench.metrics.scoring import score, slow_work, write_scores
from capbench.metrics.spice import Spice
from capbench.text.spice import parser as spice_parser
from capbench.text.spice.matching import COUNTS
from tests.errors import raises
from tests.installed_parser import installed_parser, parsed
from tests.text.parsed_captions import CAPTIONS

COUCH, CATS = (
    "a couch and a sofa stand in front of three big windows",
    "a gray cat a grey cat and a kitten sleep on the couch",
)
ITEMS = [
    Item("1", COUCH, (COUCH, CATS), "a"),
    Item("2", CATS, (COUCH, "a dog runs"), "b"),
    Item("3", "running quickly", (COUCH,), "c"),
    Item("4", "the boy is very tall", ("running quickly",), "d"),
]


def _statistics(metric: Spice | Spider, items: list[Item]) -> np.ndarray:
    metric.prepare(items)
    if isinstance(metric, Spice):
        metric.open(items)
    return metric.statistics(items, lambda _: None)


def test_counts_and_scores_of_cached_captions() -> None:
    with parsed(CAPTIONS):
        statistics = _statistics(Spice(), ITEMS)
    rows = [dict(zip(COUNTS, row, strict=True)) for row in statistics.astype(int).tolist()]
    # couch and sofa are one object: couch, window, front; big, three; one relation
    assert [rows[0][f"All {count}"] for count in ("tp", "fp", "fn")] == [6, 0, 5]
    # cat, sleep (as the parser has it), couch; and couch, window, front, dog
    assert [rows[1][f"Object {count}"] for count in ("tp", "fp", "fn")] == [1, 2, 3]
    assert [rows[1][f"Color {count}"] for count in ("tp", "fp", "fn")] == [0, 0, 0]  # gray/grey became one attribute
    assert rows[2]["All fp"] == 0
    assert rows[3]["All fp"] == 2
    scores = Spice().scores(statistics)["spice"]
    assert scores.tolist()[0] == pytest.approx(2 * 6 / (6 + 6 + 5), abs=1e-15)
    assert scores.tolist()[2:] == [0.0, 0.0]


def test_categories_are_undefined_where_the_references_have_none(tmp_path: Path) -> None:
    with parsed(CAPTIONS):
        statistics = _statistics(Spice(), ITEMS)
        table = capbench.score(ITEMS, metrics=["cider", "spice"], categories=True)
    found = Spice.categories(statistics)
    assert list(found) == [f"spice-{kind}" for kind in ("object", "attribute", "relation", "color", "count", "size")]
    assert np.isnan(found["spice-size"]).tolist() == [False, False, False, True]
    np.testing.assert_array_equal(table.categories["spice-size"], found["spice-size"])
    assert table.by_category()["spice-size"] == {"mean": pytest.approx(np.nanmean(found["spice-size"])), "n": 3}
    write_scores(table.with_categories, tmp_path / "scores.csv")
    with open(tmp_path / "scores.csv", encoding="utf-8") as stream:
        written = [row["value"] for row in csv.DictReader(stream) if row["column"] == "spice-size"]
    assert [float(value) for value in written] == found["spice-size"][:3].tolist()
    with raises(UsageError, "missing-option"):
        capbench.score(ITEMS, metrics=["cider"], categories=True)


def test_captions_that_never_were_parsed_are_counted_and_parsed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def parse_tuples(captions: Sequence[str]) -> list[str]:
        asked.extend(captions)
        return [f'[["{caption}"]]' for caption in captions]

    monkeypatch.setattr(spice_parser, "parse_tuples", parse_tuples)
    monkeypatch.setattr(Parser, "missing", lambda *_: None)
    items = [Item("1", "A new one.", (COUCH, "Another new one")), Item("2", "a new one", (COUCH,))]
    requests = resolve_metrics(["spice", "spider"])
    with parsed(CAPTIONS):
        works = slow_work(items, requests)
        assert [len(of_label) for of_label in works.values()] == [1, 1]
        (work,) = together(work for of_label in works.values() for work in of_label)
        assert (work.subject, work.units) == ("SPICE parses", frozenset(["a new one", "another new one"]))
        assert asked == []
        with progress("invented", None) as shown:
            score(items, requests, dataset="invented", progress=shown)
        assert sorted(asked) == sorted(work.units)
        assert slow_work(items, requests) == {}


def test_spider_is_the_mean_of_spice_and_cider() -> None:
    with parsed(CAPTIONS):
        spider = Spider(Resources(), sigma=5.0)
        statistics = _statistics(spider, ITEMS)
        cider = Cider(Resources(), sigma=5.0)
        cider.prepare(ITEMS)
        ciders = cider.scores(cider.statistics(ITEMS, lambda _: None))["cider"]
        spices = Spice().scores(_statistics(Spice(), ITEMS))["spice"]
    assert spider.scores(statistics)["spider"].tolist() == ((spices + ciders) / 2).tolist()
    assert spider.corpus_id() == cider.corpus_id() != ""
    assert "sigma:5" in spider.signature()
    assert "parser:" in spider.signature()
    assert {d.name: d.default for d in Spider.option_type.declared()} == {"df": "items", "sigma": 6.0}


@pytest.mark.java
@pytest.mark.real_data
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_counts_are_the_originals_on_flickr8k_expert(real_data: Path, parity: Path) -> None:
    from capbench.datasets.flickr8k import Flickr8kExpert
    from capbench.datasets.root import find_root

    with gzip.open(parity / "spice" / "flickr8k_expert.csv.gz", "rt", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    dataset = Flickr8kExpert(find_root(real_data))
    items = dataset.load(dataset.selections["no-own-captions"])[0].items
    assert [(item.image, item.candidate_id) for item in items] == [
        (row["image"].removesuffix(".jpg"), row["candidate_id"]) for row in rows
    ]
    with installed_parser():
        statistics = _statistics(Spice(), list(items))
    expected = np.array([[float(row[name.replace(" ", "_")]) for name in COUNTS] for row in rows])
    assert (statistics != expected).sum() == 0
    assert Spice().scores(statistics)["spice"].tolist() == [float(row["f"]) for row in rows]

"""Explanations in a report: of which captions they are, what a page with them may do, and how large it becomes."""

from __future__ import annotations

import base64
import gzip
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest

from capbench.metrics.metric_request import MetricRequest
from capbench.metrics.needs import Resources
from capbench.reports.page import ReportSource, items, report_page
from capbench.studies.explained import Explainer, captions_to_explain, explainers
from capbench.studies.score_profiles import human_percentiles, percentiles
from tests.reports.explain.overlap import Overlap
from tests.reports.page.test_page import data_of
from tests.reports.page.world import hostile_source, make_pairs, make_source


def with_overlap(source: ReportSource, metric: Overlap | None = None, **more: object) -> ReportSource:
    """The source, its first column explained."""
    column = next(iter(source.items[0].scores))
    explainer = Explainer("first", "overlap", (column,), metric or Overlap(), **more)  # type: ignore[arg-type]
    return replace(source, explainers=(explainer,))


def unpacked(page: str) -> list[str]:
    return [gzip.decompress(base64.b64decode(text)).decode() for text in data_of(page)["explanations"]]


def test_captions_that_come_first_are_linked_to_pages_of_their_own() -> None:
    source = with_overlap(make_source(120))
    page = report_page([source], explanations=5)
    data = data_of(page)
    (panel,) = data["panels"]
    whole = unpacked(page)
    assert len(whole) == 5
    first = panel["metrics"][0]
    apart = [-abs(one - two) for one, two in zip(first["pct"], panel["humanPct"], strict=True)]
    expected = sorted(range(120), key=lambda place: apart[place])[:5]
    (why,) = panel["whys"]
    assert (first["why"], panel["metrics"][1]["why"]) == (0, None)
    linked = {int(place): number for place, number in why["pages"].items()}
    assert sorted(apart[place] for place in linked) == sorted(apart[place] for place in expected)
    for place, number in linked.items():
        assert panel["caption"][place] in unescape(whole[number])
        assert f"human rating {panel['human'][place]:.2f}" in whole[number]
    assert "5 explanations of the captions listed first" in page
    assert report_page([source], explanations=5) == page  # the same sources, the same page


def test_of_a_pair_both_captions_are_explained() -> None:
    source = make_source(40)
    table = make_pairs(30, ["cider"]).model_copy(update={"reference_lists": [["a better one"]]})
    pairs = ReportSource(source.result, (table,))
    (text, *_) = unpacked(report_page([with_overlap(pairs)], explanations=1))
    assert "A: better 25" in text
    assert "B: worse 25" in text


def test_there_are_no_more_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    source = with_overlap(make_source(120))
    monkeypatch.setattr(items, "MAX_EXPLANATIONS", 3)
    page = report_page([source], explanations=10)
    assert len(unpacked(page)) == 3
    assert "7 more exceeded the limits" in page
    size = len(data_of(page)["explanations"][0])
    monkeypatch.setattr(items, "MAX_EXPLANATION_BYTES", size + 10)
    assert len(unpacked(report_page([source], explanations=10))) == 1


def test_what_is_lacking_is_said_where_the_link_would_stand() -> None:
    source = make_source(40)
    waiting = Explainer("first", "tiger", ("cider",), missing="region features (--features FILE)")
    page = report_page([replace(source, explainers=(waiting,))], explanations=10)
    assert data_of(page)["explanations"] == []
    assert data_of(page)["panels"][0]["whys"] == [
        {"name": "tiger", "label": "first", "missing": "region features (--features FILE)", "pages": {}}
    ]
    assert "Explanations of first require region features (--features FILE)." in unescape(page)
    assert 'id="why"' not in page


class Elements(HTMLParser):
    """Gathers what elements a page has, and what attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}


def test_hostile_texts_are_texts_in_explanations() -> None:
    elements = Elements()
    whole = unpacked(report_page([with_overlap(hostile_source())], explanations=30))
    for text in whole:
        elements.feed(text)
    assert any("alert" in text or "document.title" in text for text in whole)  # as texts
    assert not elements.names & {"script", "iframe", "a"}
    assert {name for name in elements.attributes if name.startswith("on")} == set()
    assert "style" not in elements.attributes  # which the policy of the report would forbid


def test_only_metrics_that_give_the_studys_own_scores_explain_them() -> None:
    source = make_source(8)
    request = MetricRequest(Overlap, ("overlap",))
    metric = request.make(Resources())
    columns = {**source.result.columns, "overlap": "Overlap"}
    for signature, waits in ((metric.signature(), False), (f"{metric.signature()}|else:1", True), ("overlap|x", True)):
        result = source.result.model_copy(
            update={"columns": columns, "signatures": {"flickr8k-expert/no-own-captions": {"overlap": signature}}}
        )
        (explainer,) = explainers(result, [request], Resources())
        assert bool(explainer.missing) == waits
        assert (explainer.metric is None) == waits
    assert explainers(source.result, [request], Resources()) == ()  # the study has no such column


def test_lists_take_turns() -> None:
    tables = [make_source(20).items[0], make_source(20, seed=1).items[0]]
    ready = Explainer("a", "overlap", ("cider", "meteor"), Overlap())
    waiting = Explainer("b", "overlap", ("bleu-4",), missing="something")
    chosen = list(captions_to_explain(tables, [[0, 1], [0]], [ready, waiting], 3))
    assert {one.explainer for one in chosen} == {0}
    assert len(set(chosen)) == len(chosen) <= 12
    assert chosen[0].table == 0
    # A list's first captions are those of the list itself, whatever other columns of the metric say.
    for at, table in enumerate(tables):
        for name in ready.columns:
            places, scores = table.points(name)
            distance = np.abs(percentiles(scores) - human_percentiles(table)[places])
            first = set(places[np.argsort(-distance, kind="stable")][:3].tolist())
            assert first <= {one.point for one in chosen if one.table == at}

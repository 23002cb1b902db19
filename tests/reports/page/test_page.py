"""The text of a report: its policy, its data, what it says where something is lacking."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import replace
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from capbench import correlate
from capbench.core.errors import UsageError
from capbench.reports.page import report_page
from capbench.reports.page.elements import Html, ReportSource, data_block, tag
from capbench.reports.page.items import (
    MAX_ITEMS,
    MAX_PICTURES,
    MAX_REFERENCES,
    MAX_THUMBNAIL_BYTES,
    images_listed_first,
    panels,
    thumbnails,
)
from capbench.reports.page.overview import statistic_words
from tests.errors import raises
from tests.reports.page.world import HOSTILE, hostile_source, make_items, make_result, make_source

VENDOR = Path(__file__).parents[3] / "capbench" / "reports" / "page" / "vendor"


class _Reader(HTMLParser):
    """Every element's name and attributes, and the texts of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.codes: list[tuple[str, str]] = []
        self._in = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._in = tag if tag in ("script", "style") else ""

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in:
            self.codes.append((self._in, data))


def data_of(page: str) -> dict[str, Any]:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert match is not None
    read: dict[str, Any] = json.loads(match[1])
    return read


def test_the_policy_names_the_pages_own_scripts_and_style_and_nothing_else() -> None:
    page = _Reader(report_page([make_source()]))
    (policy,) = [a["content"] for name, a in page.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data:"

    def digest(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    styles = [text for name, text in page.codes if name == "style"]
    scripts = [text for name, text in page.codes if name == "script" and not text.startswith("{")]
    assert [rules["style-src"]] == [digest(text) for text in styles]
    assert rules["script-src"].split() == [digest(text) for text in scripts]
    assert "unsafe" not in policy


@pytest.mark.parametrize("source", [make_source(), hostile_source()], ids=["usual", "hostile"])
def test_no_element_loads_anything_or_carries_a_style_or_a_handler(source: ReportSource) -> None:
    for name, attributes in _Reader(report_page([source])).elements:
        assert not any(key == "style" or key.startswith("on") for key in attributes), (name, attributes)
        for key in ("src", "href", "action", "data", "srcset"):
            value = attributes.get(key)
            assert value is None or value.startswith(("#", "data:")), (name, value)
        assert name not in ("iframe", "object", "embed", "form", "base")


def test_a_hostile_study_has_the_elements_of_a_harmless_one() -> None:
    harmless = {name for name, _ in _Reader(report_page([make_source()])).elements}
    assert {name for name, _ in _Reader(report_page([hostile_source()])).elements} <= harmless
    assert HOSTILE[0] in data_of(report_page([hostile_source()]))["panels"][0]["caption"]  # the very text, as data


def test_the_same_sources_give_the_same_page() -> None:
    assert report_page([make_source()]) == report_page([make_source()])


def _tables(page: str, kind: str) -> list[list[list[str]]]:
    """The texts of the cells of all tables of one class, row by row."""
    found = re.findall(rf'<table class="[^"]*\b{kind}\b[^"]*".*?</table>', page, re.DOTALL)
    rows = [re.findall(r"<tr.*?</tr>", table, re.DOTALL) for table in found]
    cells = [[re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL) for row in table] for table in rows]
    return [
        [[" ".join(unescape(re.sub(r"<[^>]+>", " ", cell)).split()) for cell in row] for row in table]
        for table in cells
    ]


def test_the_overview_has_each_number_with_its_marks_the_best_first() -> None:
    # The first protocol's order is that of the study, the second one's is not: 39, 38, 40. Only the first is tested.
    source = make_source()
    turned = dict(reversed(source.result.columns.items()))
    page = report_page([replace(source, result=source.result.model_copy(update={"columns": turned}))])
    (glance, *_) = _tables(page, "plain")
    assert glance[1:] == [
        ["Flickr8k Expert, Kendall's τ‑c", "CIDEr", "44.0 [38.0, 46.0]", "METEOR", "74.0", "180"],
        ["Flickr8k Expert, Kendall's τ‑b", "BLEU-4", "40.0 [34.0, 42.0]", "not tested", "", "60"],
    ]
    first, second = _tables(page, "forest")
    assert [row[0] for row in first] == ["human ceiling", "CIDEr", "METEOR", "BLEU-4", ""]
    assert [row[2:] for row in first[1:3]] == [["44.0†", "[38.0, 46.0]"], ["42.0†", "[36.0, 44.0]"]]
    assert [row[0] for row in second] == ["BLEU-4", "CIDEr", "METEOR", ""]
    main, by_source = _tables(page, "matrix")
    heads = ["Kendall's τ‑c", "paper", "diff", "Kendall's τ‑b"]
    assert main[0] == ["metric", *(f"Flickr8k Expert {head}" for head in heads)]
    assert [row[0] for row in main[1:]] == ["CIDEr", "BLEU-4", "METEOR", "TIGEr", "human ceiling"]
    assert main[1][1:] == ["44.0† [38.0, 46.0]", "43.9", "+0.1", "39.0 [33.0, 41.0]"]
    assert by_source[1][:2] == ["CIDEr", "39.0 [38.0, 46.0]"]
    # At most three places.
    assert page.count(">44.0†<") == 2


def test_a_study_of_one_column_has_no_further_table() -> None:
    source = make_source()
    (info, *_) = source.result.protocols
    alone = {
        "protocols": (info.model_copy(update={"groups": ()}),),
        "cells": tuple(
            c.model_copy(update={"published": None})
            for c in source.result.cells
            if c.protocol == info.id and not c.group
        ),
    }
    page = report_page([replace(source, result=source.result.model_copy(update=alone))])
    assert not _tables(page, "matrix")
    assert len(_tables(page, "forest")) == 1


def test_a_forest_plot_draws_each_value_in_its_interval_on_one_scale_from_zero() -> None:
    plot = re.findall(r'<table class="forest.*?</table>', report_page([make_source()]), re.DOTALL)[0]
    at = [float(x) for x in re.findall(r'<circle cx="([\d.]+)"', plot)]
    bars = [tuple(map(float, bar)) for bar in re.findall(r'x1="([\d.]+)"[^>]*x2="([\d.]+)"[^>]*class="interval"', plot)]
    values = [0.74, 0.44, 0.42, 0.31]
    assert at == pytest.approx([14 + 212 * value / 0.74 for value in values], abs=0.06)
    assert len(bars) == 3  # the ceiling has no interval
    assert all(low < point < high for point, (low, high) in zip(at[1:], bars, strict=True))
    assert re.findall(r">(\d+)</text>", plot) == ["0", "20", "40", "60"]


@pytest.mark.parametrize(
    ("statistic", "level", "kind", "words"),
    [
        ("within-image difference r", "images", "correlation", "Pearson's r of differences within images"),
        ("system soft accuracy", "systems", "correlation", "soft accuracy over systems"),
        ("mean", "captions", "mean", "mean"),
    ],
)
def test_statistics_have_words(statistic: str, level: str, kind: str, words: str) -> None:
    (info, *_) = make_source().result.protocols
    info = info.model_copy(update={"statistic": statistic, "level": level, "kind": kind})
    assert statistic_words(info) == words


def test_studies_of_one_name_are_told_apart() -> None:
    page = report_page([make_source(), make_source(seed=1)])
    assert len({panel["title"] for panel in data_of(page)["panels"]}) == 2
    assert "toy (2)" in page


def test_what_is_missing_is_said_with_the_reason_and_items_with_the_command_that_adds_them() -> None:
    page = report_page([make_source(items=False)])
    assert "region features" in page
    assert "capbench correlate toy --out results/toy --items" in page
    assert 'id="items"' not in page


def test_provenance_names_files_signatures_and_the_command(tmp_path: Path) -> None:
    from capbench.reports.page import read_source
    from capbench.studies.item_scores import write_items

    source = make_source()
    (tmp_path / "results.json").write_text(source.result.model_dump_json(), encoding="utf-8")
    write_items(source.items, tmp_path / "items.json.gz")
    read = read_source(tmp_path)
    assert read.result == source.result
    assert read.items == source.items
    page = report_page([read], command="capbench figure report 'a b'")
    for name in ("results.json", "items.json.gz"):
        assert hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() in page
    assert "capbench figure report &#x27;a b&#x27;" in page
    assert "cider|capbench:0.1.0|tok:ptb" in page


def test_a_large_study_keeps_the_captions_on_which_metrics_and_people_part_most() -> None:
    from capbench.studies.score_profiles import disagreement

    items = make_items(MAX_ITEMS + 500, ["cider", "meteor"])
    (panel,) = panels([ReportSource(make_result(), (items,))])
    assert panel["all"] == MAX_ITEMS + 500
    assert len(panel["caption"]) == MAX_ITEMS
    distance = disagreement(items)
    kept = {int(text.split()[2]) for text in panel["caption"]}
    left = [value for place, value in enumerate(distance) if place not in kept]
    assert max(left) <= min(distance[place] for place in kept)


def test_references_are_cut_and_counted() -> None:
    items = make_items(8, ["cider"]).model_copy(update={"reference_lists": [["a"] * 9, ["b"]]})
    (panel,) = panels([ReportSource(make_result(), (items,))])
    assert panel["refLists"] == [["a"] * MAX_REFERENCES, ["b"]]
    assert panel["refCounts"] == [9, 1]


def test_a_metric_without_a_score_of_a_caption_leaves_a_gap() -> None:
    items = make_items(8, ["cider"])
    items = items.model_copy(update={"scores": {"cider": [None, *items.scores["cider"][1:]]}})
    page = report_page([ReportSource(make_result(), (items,))])
    (metric,) = data_of(page)["panels"][0]["metrics"]
    assert metric["pct"][0] is None
    assert metric["score"][0] is None
    assert None not in metric["pct"][1:]


def test_pictures_are_small_and_few_and_those_that_cannot_be_read_are_listed(tmp_path: Path) -> None:
    items = make_items(4 * (MAX_PICTURES + 30), ["cider", "meteor"])
    wanted = images_listed_first([items])
    assert len(wanted) == len(set(wanted)) == MAX_PICTURES
    noise = tmp_path / "noise.png"  # what JPEG makes the least of
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (600, 800, 3), dtype=np.uint8)).save(noise)
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(b"no picture")
    urls, problems = thumbnails(wanted[:3], {wanted[0]: noise, wanted[1]: broken})
    assert list(urls) == wanted[:1]
    data = base64.b64decode(urls[wanted[0]].removeprefix("data:image/jpeg;base64,"))
    assert len(data) <= MAX_THUMBNAIL_BYTES
    assert len(problems) == 1
    assert "broken.jpg" in problems[0]


def test_images_of_one_name_in_two_data_sets_keep_their_own_pictures(tmp_path: Path) -> None:
    for name in ("one", "other"):
        Image.new("RGB", (8, 8), "red" if name == "one" else "blue").save(tmp_path / f"{name}.png")
    first = make_items(8, ["cider"])
    second, third = (first.model_copy(update={"items": f"{name}/as-given"}) for name in ("other", "none"))
    image = first.images[0]

    def pictures(dataset: str, images: Iterable[str]) -> dict[str, Path]:
        names = {first.items.split("/")[0]: "one", "other": "other"}
        return {image: tmp_path / f"{names[dataset]}.png"} if dataset in names and image in images else {}

    data = data_of(report_page([ReportSource(make_result(), (first, second, third))], pictures=pictures))
    of_panels = [panel["picture"][panel["images"].index(image)] for panel in data["panels"]]
    assert of_panels[0] == image
    assert of_panels[1] not in (None, image)
    assert of_panels[2] is None
    assert len({data["pictures"][name] for name in of_panels[:2]}) == 2


def test_nothing_to_report_is_refused() -> None:
    with raises(UsageError, "missing-option"):
        report_page([])


def test_texts_are_escaped_and_pieces_of_html_are_not() -> None:
    assert tag("p", "<b>", Html("<i>x</i>"), title='"') == '<p title="&quot;">&lt;b&gt;<i>x</i></p>'
    with pytest.raises(ValueError, match="policy"):
        tag("p", onclick="x")
    block = data_block("d", ["</script>", "\u2028", "<!--"])
    assert block.count("<") == 2  # of the element itself
    assert json.loads(block.partition(">")[2].removesuffix("</script>")) == ["</script>", "\u2028", "<!--"]


def test_what_comes_from_elsewhere_is_unchanged_and_licensed() -> None:
    text = (VENDOR / "README.md").read_text(encoding="utf-8")
    for file in VENDOR.glob("*.js"):
        assert f"`{file.name}`" in text
        assert hashlib.sha256(file.read_bytes()).hexdigest() in text
    assert "MIT License" in (VENDOR / "LICENSE-DataTables.txt").read_text(encoding="utf-8")


def test_the_overview_answers_the_question_with_the_test_of_each_pair(tmp_path: Path) -> None:
    words = ["a", "red", "kite", "flies", "over", "the", "green", "hill", "near", "two", "boats"]
    lines = ["image,candidate,reference_1,rating"]
    for image in range(30):
        for shared in (2, 6, 10):
            text = " ".join([*words[:shared], f"w{image % 3}", *words[: image % 2]])
            lines.append(f"{image}.jpg,{text},{' '.join(words)},{1 + shared // 3 + (image * shared) % 2}")
    (tmp_path / "mine.csv").write_text("\n".join(lines) + "\n")
    result = correlate(tmp_path / "mine.csv", ["bleu-1", "rouge-l", "meteor"])
    page = report_page([ReportSource(result)])
    (answer,) = result.answers
    assert all(escape(line) in page for line in answer.text)
    (table,) = [_tables(page, "plain")[1]]
    (tests,) = result.comparisons
    assert len(table) == 1 + len(tests.pairs)
    for texts, pair in zip(table[1:], tests.pairs, strict=True):
        assert texts[:2] == [result.columns[pair.better], result.columns[pair.worse]]
        assert texts[2] == f"{100 * pair.difference:.1f}"
        assert texts[-1] == ("significant" if pair.significant else "not significant")
    assert "permutation test" in page
    assert "human ceiling" not in page
    assert "mine.csv (mine.csv)" not in page

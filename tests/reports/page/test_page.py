"""The text of a report: its policy, its data, what it says where something is lacking."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from capbench.reports.page import report_page
from capbench.reports.page.elements import Html, ReportSource, data_block, tag
from capbench.reports.page.items import (
    MAX_ITEMS,
    MAX_PICTURES,
    MAX_THUMBNAIL_BYTES,
    images_listed_first,
    panels,
    thumbnails,
)
from tests.reports.golden import assert_golden
from tests.reports.page.world import HOSTILE, hostile_source, make_items, make_result, make_source


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


def test_pages_of_numbers_are_those_of_the_golden_files() -> None:
    source = make_source(items=False)
    turned = dict(reversed(source.result.columns.items()))  # the order of the page is that of the numbers
    whole = replace(source, result=source.result.model_copy(update={"columns": turned}))
    (info, *_) = source.result.protocols
    first = [cell for cell in source.result.cells if cell.protocol == info.id and not cell.group]
    alone = {
        "protocols": (info.model_copy(update={"groups": ()}),),
        "cells": tuple(cell.model_copy(update={"published": None}) for cell in first),
    }
    bare = replace(source, result=source.result.model_copy(update=alone))
    for name, sources in (("page", [whole, source]), ("page-of-one-column", [bare])):
        main = re.findall(r"<main>\n(.*)\n</main>", report_page(sources), re.DOTALL)[0]
        main = re.sub(r'<svg(?=.*?aria-label="([^"]*)").*?</svg>', r"[\1]", main, flags=re.DOTALL)
        assert_golden(f"{name}.html", re.sub(r"(</tr>|</p>|</h\d>|</summary>|</li>)", r"\1\n", main) + "\n")


def test_a_forest_plot_draws_each_value_in_its_interval_on_one_scale_from_zero() -> None:
    plot = re.findall(r'<table class="forest.*?</table>', report_page([make_source()]), re.DOTALL)[0]
    at = [float(x) for x in re.findall(r'<circle cx="([\d.]+)"', plot)]
    bars = [tuple(map(float, bar)) for bar in re.findall(r'x1="([\d.]+)"[^>]*x2="([\d.]+)"[^>]*class="interval"', plot)]
    values = [0.74, 0.44, 0.42, 0.31]
    assert at == pytest.approx([14 + 212 * value / 0.74 for value in values], abs=0.06)
    assert len(bars) == 3  # the ceiling has no interval
    assert all(low < point < high for point, (low, high) in zip(at[1:], bars, strict=True))
    assert re.findall(r">(\d+)</text>", plot) == ["0", "20", "40", "60"]


def test_a_large_study_keeps_the_captions_on_which_metrics_and_people_part_most() -> None:
    from capbench.studies.item_scores import disagreement

    items = make_items(MAX_ITEMS + 500, ["cider", "meteor"])
    (panel,) = panels([ReportSource(make_result(), (items,))])
    assert panel["all"] == MAX_ITEMS + 500
    assert len(panel["caption"]) == MAX_ITEMS
    distance = disagreement(items)
    kept = {int(text.split()[2]) for text in panel["caption"]}
    left = [value for place, value in enumerate(distance) if place not in kept]
    assert max(left) <= min(distance[place] for place in kept)


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


def test_texts_are_escaped_and_pieces_of_html_are_not() -> None:
    assert tag("p", "<b>", Html("<i>x</i>"), title='"') == '<p title="&quot;">&lt;b&gt;<i>x</i></p>'
    with pytest.raises(ValueError, match="policy"):
        tag("p", onclick="x")
    block = data_block("d", ["</script>", "\u2028", "<!--"])
    assert block.count("<") == 2  # of the element itself
    assert json.loads(block.partition(">")[2].removesuffix("</script>")) == ["</script>", "\u2028", "<!--"]

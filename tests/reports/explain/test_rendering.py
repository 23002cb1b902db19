"""Pages and pictures of explanations: whole, legible at the edges, safe, and the same drawings in both."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from capbench.core.explanations import Bars, Explanation, RegionMaps, Scores, Subject, WeightedWords
from capbench.core.records import Item
from capbench.metrics.tiger.metric import attention_span, tiger_candidates
from capbench.reports.explain.drawing import ZOOM, fit, rasterise, text_width, wrap
from capbench.reports.explain.page import (
    WIDTH,
    Composition,
    Row,
    page,
    sheet,
    text_lines,
    write_explanation,
)
from tests.metrics.grounding.models import Files
from tests.reports.explain import explained
from tests.reports.explain.overlap import Overlap

EVIL = 'a <script>alert("dog")</script> & $x_2$ var(--ink) \x01\udc80 runs'
SEEN = EVIL.replace("\x01", "\ufffd").replace("\udc80", "\ufffd")
LONG = "the small red dog and the blue cat sits under the house near two " * 6
UNBROKEN = "dog" * 120


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return explained.make_explained(tmp_path_factory.mktemp("explained"))


@pytest.fixture(scope="module")
def tiger(files: Files) -> Explanation:
    return explained.tiger(files).explain(explained.subject(EVIL, LONG, humans=(1.5, None)))


@pytest.fixture(scope="module")
def reo(files: Files) -> Explanation:
    return explained.reo(files).explain(explained.subject(EVIL, LONG, humans=(1.5, 2.0)))


@pytest.fixture(scope="module")
def overlap() -> Explanation:
    texts = (EVIL, UNBROKEN, "一只狗")
    items = tuple(Item("pond", text, (f"the dog runs {text}",)) for text in texts)
    return Overlap().explain(Subject("pond", items, (1.5, None, None)))


@pytest.fixture(scope="module")
def explanations(tiger: Explanation, reo: Explanation, overlap: Explanation) -> dict[str, Explanation]:
    return {"tiger": tiger, "reo": reo, "overlap": overlap}


@pytest.fixture(scope="module")
def compositions(explanations: dict[str, Explanation]) -> dict[str, Composition]:
    return {name: explained.composed(each, explained.picture()) for name, each in explanations.items()}


def pixels(svg: str) -> NDArray[np.uint8]:
    with Image.open(io.BytesIO(rasterise(svg))) as image:
        assert image.format == "PNG"
        return np.asarray(image.convert("RGB"))


class Page(HTMLParser):
    """Checks that elements nest, and collects what a page would load and all of its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.loads: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in ("meta", "br"):
            self.open.append(tag)
        self._see(attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self._see(attrs)

    def _see(self, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [value or "" for name, value in attrs if name in ("href", "src", "data", "xlink:href")]
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.text += data


NAMES = pytest.mark.parametrize("name", ["tiger", "reo", "overlap"])


# -- the page ---------------------------------------------------------------------------------------------------------


@NAMES
def test_a_page_escapes_captions_and_loads_nothing(name: str, compositions: dict[str, Composition]) -> None:
    text = page(compositions[name])
    text.encode("utf-8")
    read = Page(text)
    assert "script" not in read.tags
    assert "&lt;script&gt;alert(&quot;dog&quot;)&lt;/script&gt; &amp; $x_2$" in text
    assert SEEN in read.text
    assert all(
        load in ("#picture", "#colour-picture") or load.startswith(("data:image/png;", "data:image/jpeg;"))
        for load in read.loads
    )
    assert {load for load in read.loads if load.startswith("#")} == {
        f"#{name}" for name in re.findall(r'<image id="([\w-]+)"', text)
    }
    assert not re.search(r"url\((?!#scale\))|@import|https?://", text)
    assert "prefers-color-scheme: dark" in text
    assert "human rating 1.50" in read.text


@NAMES
def test_the_policy_of_a_page_allows_its_own_style_and_pictures_and_nothing_else(
    name: str, compositions: dict[str, Composition]
) -> None:
    text = page(compositions[name])
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', text)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules == {
        "default-src": "'none'",
        "style-src": f"'sha256-{digest}'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert text.index(policy) < text.index("<style>")
    assert not re.search(r"<[^>]* style=", text)


def test_a_tiger_page_has_all_numbers(files: Files, compositions: dict[str, Composition]) -> None:
    read = Page(page(compositions["tiger"]))
    for candidate in tiger_candidates(explained.tiger(files), explained.subject(EVIL, LONG)):
        for value in candidate.scores.values():
            assert f"{value:.4f}" in read.text
        assert f"{candidate.d_rel:+.4f}" in read.text
        for region in range(7):
            assert f"{candidate.caption.grounding[region]:.4f}" in read.text
    assert all(text in read.text for text in explained.REFERENCES)
    assert read.text.count("attends most to") == 2


def test_a_reo_page_marks_words_and_compares_candidates(reo: Explanation, compositions: dict[str, Composition]) -> None:
    text = page(compositions["reo"])
    read = Page(text)
    assert "All candidates" in read.text
    for candidate in reo.candidates:
        for panel in candidate.panels:
            if isinstance(panel, Bars):
                assert all(f"{bar.value:.3f}" in read.text for bar in panel.bars[:10])
            elif isinstance(panel, Scores):
                assert all(f"{score.value:.4f}" in read.text for score in panel.scores)
    weighted = [panel for c in reo.candidates for panel in c.panels if isinstance(panel, WeightedWords)]
    for tone, number in (("candidate", 2), ("missing", 6)):
        rows = [panel for panel in weighted if panel.tone == tone]
        assert len(rows) == number
        assert text.count(f'<mark class="{tone} w') == sum(len(row.words) for row in rows)


def test_words_are_marked_from_bare_to_full(overlap: Explanation) -> None:
    strengths = re.findall(r'<mark class="reference w(\d+)">', page(explained.composed(overlap)))
    assert set(strengths) == {"60"}  # every word is shared
    row = WeightedWords("x", (("a", -0.5), ("b", 0.5), ("c", 2.0)))
    (candidate, *_) = overlap.candidates
    changed = type(candidate)(candidate.text, (), None, (row,), candidate.details)
    text = page(explained.composed(Explanation("x", "y", (changed,), "s")))
    assert re.findall(r'<mark class="candidate w(\d+)">', text) == ["0", "30", "60"]
    style = text[text.index("<style>") : text.index("</style>")]
    assert all(f".w{step} {{ --share: {step}% }}" in style for step in (0, 30, 60))
    assert "mark.candidate { background: color-mix(in srgb, var(--candidate) var(--share), transparent) }" in style
    assert " style=" not in text


def test_one_candidate_is_not_compared(files: Files) -> None:
    explanation = explained.reo(files).explain(explained.subject("a dog", references=()))
    read = Page(page(explained.composed(explanation)))
    assert "All candidates" not in read.text
    assert "image + references" not in read.text


# -- the picture ------------------------------------------------------------------------------------------------------


@NAMES
def test_page_and_picture_have_the_same_drawings(name: str, compositions: dict[str, Composition]) -> None:
    composition = compositions[name]
    drawings = [
        figure.drawing
        for section in composition.sections
        for block in section.blocks
        if isinstance(block, Row)
        for figure in block.figures
    ]
    html, svg = page(composition), sheet(composition).svg()
    assert len(drawings) >= 5
    for drawing in drawings:
        assert drawing.body in html
        assert drawing.body in svg


@NAMES
def test_nothing_is_cut_off_at_the_edges(name: str, compositions: dict[str, Composition]) -> None:
    drawn = pixels(sheet(compositions[name]).svg())
    assert drawn.shape[1] == WIDTH * ZOOM
    for edge in (drawn[:, :24], drawn[:, -24:], drawn[:24], drawn[-12:]):
        assert (edge == 255).all()
    assert (drawn != 255).any(axis=(1, 2)).mean() > 0.6  # not a white page


@NAMES
def test_drawings_of_a_picture_lie_inside_of_it_and_apart(name: str, compositions: dict[str, Composition]) -> None:
    root = ElementTree.fromstring(sheet(compositions[name]).svg())
    boxes = [
        [float(child.attrib[key]) for key in ("x", "y", "width", "height")]
        for child in root
        if child.tag.endswith("}svg")
    ]
    for i, (x, y, width, height) in enumerate(boxes):
        assert x >= 20
        assert x + width <= WIDTH - 20
        assert y + height <= float(root.attrib["height"]) - 20
        for a, b, wide, high in boxes[:i]:
            assert x >= a + wide or y >= b + high or a >= x + width


def test_text_of_a_picture_is_drawn_and_no_text_is_not(overlap: Explanation) -> None:
    (first, *_) = overlap.candidates
    bare = type(first)("", (), None, (Scores("", ()),), first.details)
    named = type(first)("狗 dog", (), None, (Scores("", ()),), first.details)
    blank, drawn = (pixels(sheet(explained.composed(Explanation("x", "y", (c,), "s"))).svg()) for c in (bare, named))
    assert (drawn < 128).sum() > (blank < 128).sum() + 500


def test_the_same_explanation_gives_the_same_picture(compositions: dict[str, Composition]) -> None:
    import matplotlib as mpl

    svg = sheet(compositions["overlap"]).svg()
    with mpl.rc_context({"font.size": 30, "image.cmap": "hot"}):  # a user's own settings change nothing
        assert sheet(compositions["overlap"]).svg() == svg
        assert rasterise(svg) == rasterise(svg)


# -- what there is to draw --------------------------------------------------------------------------------------------


def test_without_boxes_there_are_charts_and_no_heat(tmp_path: Path) -> None:
    files = explained.make_explained(tmp_path, boxes=False)
    explanation = explained.tiger(files).explain(explained.subject("a dog"))
    composition = explained.composed(explanation, explained.picture())
    read = Page(page(composition))
    assert "image" not in read.tags
    assert "Gain of each position" in read.text
    boxed = explained.tiger(explained.make_explained(tmp_path / "boxed")).explain(explained.subject("a dog"))
    assert pixels(sheet(composition).svg()).shape[0] < pixels(sheet(explained.composed(boxed)).svg()).shape[0]
    assert any("most at" in line for line in text_lines(explanation))


@pytest.mark.parametrize("regions", [1, 2, 80])
def test_any_number_of_regions_can_be_drawn(regions: int, tmp_path: Path) -> None:
    files = explained.make_explained(tmp_path, regions=regions)
    explanation = explained.tiger(files).explain(explained.subject("a dog"))
    write_explanation(explanation, None, tmp_path / "x.html", tmp_path / "deep" / "x.png")
    assert f"<td>{regions - 1} " in (tmp_path / "x.html").read_text(encoding="utf-8")
    assert (tmp_path / "deep" / "x.png").read_bytes()[:4] == b"\x89PNG"


def test_a_caption_without_words_can_be_drawn(files: Files) -> None:
    empty = explained.subject("\u200b \u00a0", references=("a dog",))
    for count_ends in (True, False):
        explanation = explained.tiger(files, count_ends=count_ends).explain(empty)
        assert rasterise(sheet(explained.composed(explanation)).svg())


def test_attention_near_an_equal_share_looks_near_it(files: Files) -> None:
    (candidate,) = tiger_candidates(explained.tiger(files), explained.subject(LONG))
    low, high = attention_span(candidate.caption)
    assert low == pytest.approx(1 / len(candidate.caption.words))
    assert high >= max(2 * low, candidate.caption.attention.max())


def test_all_maps_of_one_panel_have_one_scale(tiger: Explanation, compositions: dict[str, Composition]) -> None:
    for candidate, section in zip(tiger.candidates, compositions["tiger"].sections, strict=True):
        (heat,) = [panel for panel in candidate.panels if isinstance(panel, RegionMaps) and not panel.small]
        row = next(block for block in section.blocks if isinstance(block, Row))
        for figure in row.figures[:2]:
            ends = re.findall(r'class="small">(-?[\d.]+)</text>', figure.drawing.body)
            assert ends == [f"{heat.low:.3f}", f"{heat.high:.3f}"]


# -- text -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [LONG, UNBROKEN, "a " + UNBROKEN + " b", "一只狗" * 40])
def test_lines_are_as_wide_as_they_may_be(text: str) -> None:
    lines = wrap(text, 200, 12)
    assert all(text_width(line, 12) <= 200 for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert text_width(fit(text, 90), 12) <= 90
    assert fit(text, 90).endswith("…")


def test_a_terminal_shows_scores_with_parts_bars_and_tables(overlap: Explanation) -> None:
    lines = text_lines(overlap)
    assert lines[0] == "Words that both have."
    assert [line[:3] for line in lines if not line.startswith("   ")][1:] == ["A: ", "B: ", "C: "]
    assert "   overlap 1.0000 (shared 1)" in lines
    assert f"   shares: {UNBROKEN} 1.000 (of all)" in lines
    assert any(re.fullmatch(r"   word +shared", line) for line in lines)


@pytest.mark.parametrize("kind", [page, sheet])
def test_what_is_drawn_twice_is_equal(kind: Callable[[Composition], str], overlap: Explanation) -> None:
    assert kind(explained.composed(overlap)) == kind(explained.composed(overlap))

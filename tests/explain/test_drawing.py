"""Pictures and pages of explanations: whole, legible at the edges, and safe."""

from __future__ import annotations

import base64
import io
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from capbench.explain.html import reo_html, tiger_html
from capbench.explain.picture import TOP_WORDS, attention_span, highlights, reo_png, tiger_png
from capbench.explain.reo import ReoExplanation, explain_reo
from capbench.explain.tiger import TigerExplanation, explain_tiger
from capbench.reports.heatmaps import GLOW_RGB, Scene, data_uri, glow, heat, label_places, make_scene, weight_map
from tests.explain import explained
from tests.metrics.grounding.models import Files

EVIL = 'a <script>alert("dog")</script> & $x_2$ runs'
LONG = "the small red dog and the blue cat sits under the house near two " * 6


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return explained.make_explained(tmp_path_factory.mktemp("explained"))


@pytest.fixture(scope="module")
def scene(files: Files) -> Scene:
    return explained.scene(files, explained.picture())


@pytest.fixture(scope="module")
def tiger(files: Files) -> TigerExplanation:
    return explain_tiger(explained.tiger(files), explained.items(EVIL, LONG), [1.5, None], ["a <b>note</b>"])


@pytest.fixture(scope="module")
def reo(files: Files) -> ReoExplanation:
    return explain_reo(explained.reo(files), explained.items(EVIL, LONG), [1.5, 2.0])


def pixels(path: Path) -> NDArray[np.uint8]:
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


class Page(HTMLParser):
    """Checks that elements nest, and collects what a page would load and all of its text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.loads: list[str] = []
        self.text = ""
        self.feed(path.read_text(encoding="utf-8"))
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag != "meta":
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


# -- heat -------------------------------------------------------------------------------------------------------------


def test_a_pixel_gets_its_box_and_a_small_box_shows_inside_of_a_large_one() -> None:
    boxes = np.array([[0, 0, 4, 2], [1, 0, 2, 1]], dtype=np.float64)
    found = weight_map(boxes, np.array([1.0, 0.0]), 3, 5)
    assert found[0, 0] == 1
    assert found[0, 1] == pytest.approx((1 / 8) / (1 / 8 + 1))  # counted by 1 / area
    assert np.isnan(found[2]).all()
    assert np.isnan(found[:, 4]).all()


def test_a_grids_cells_keep_their_weights() -> None:
    boxes = np.array([[x, y, x + 1 / 3, y + 1 / 3] for y in (0, 1 / 3, 2 / 3) for x in (0, 1 / 3, 2 / 3)]) * 90
    found = weight_map(boxes, np.arange(9.0), 90, 90)
    np.testing.assert_allclose(found[15::30, 15::30].ravel(), np.arange(9))
    assert np.isfinite(found).all()


def test_a_box_without_size_still_shows() -> None:
    found = weight_map(np.array([[5.0, 5.0, 5.0, 5.0]]), np.array([2.0]), 5, 5)
    assert np.isfinite(found).sum() == 1


def test_heat_is_transparent_where_no_box_is() -> None:
    scene = make_scene(None, np.array([[0, 0, 5, 10]], dtype=np.float32), (10, 10), ["0"], longest=20)
    layer = heat(scene, np.array([0.5]), 0.0, 1.0)
    assert layer.shape == (20, 20, 4)
    assert (layer[:, :10, 3] > 0).all()
    assert (layer[:, 10:, 3] == 0).all()
    shining = glow(scene, np.array([0.5]), 0.5, 1.0)
    assert tuple(shining[0, 0, :3]) == GLOW_RGB
    assert (shining[..., 3] == 0).all()  # an equal share leaves the picture bare
    assert (glow(scene, np.array([0.9]), 0.5, 1.0)[:, :10, 3] > 0).all()


def test_a_scene_has_the_pictures_shape_and_the_boxes_follow() -> None:
    scene = make_scene(explained.picture(), np.array([[60, 0, 120, 80]], np.float32), explained.SIZE, ["0"], longest=60)
    assert (scene.width, scene.height, scene.pictured) == (60, 40, True)
    assert scene.boxes is not None
    assert scene.boxes.tolist() == [[30, 0, 60, 40]]
    assert (scene.pixels[..., 0] == scene.pixels[..., 2]).all()
    assert not (scene.colour[..., 0] == scene.colour[..., 2]).all()
    fractions = make_scene(None, np.array([[0, 0, 0.5, 1]], np.float32), (1, 1), ["0"], longest=40)
    assert (fractions.width, fractions.height, fractions.pictured) == (40, 30, False)
    assert make_scene(None, None, (0, 0), ["0"]).boxes is None


def test_numbers_of_boxes_with_one_corner_do_not_cover_each_other() -> None:
    boxes = np.array([[0, 0, 50, 50], [0, 0, 90, 90], [95, 95, 100, 100]], np.float32)
    scene = make_scene(None, boxes, (100, 100), ["0", "1", "2"], longest=100)
    first, second, third = label_places(scene, [0, 1, 2], 12)
    assert first[0] == second[0]
    assert second[1] - first[1] >= 12
    assert third[0] <= 100 - 1.6 * 12
    assert third[1] <= 100 - 12


def test_attention_near_an_equal_share_looks_near_it(tiger: TigerExplanation) -> None:
    caption = tiger.candidates[0].caption
    low, high = attention_span(caption)
    assert low == pytest.approx(1 / len(caption.words))
    assert high >= 2 * low
    assert high >= caption.attention.max()


# -- PNG --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tiger", "reo"])
def test_nothing_is_cut_off_at_the_edges(
    kind: str, tiger: TigerExplanation, reo: ReoExplanation, scene: Scene, tmp_path: Path
) -> None:
    path = tmp_path / "deep" / "x.png"
    if kind == "tiger":
        tiger_png(tiger, scene, path)
    else:
        reo_png(reo, scene, path)
    drawn = pixels(path)
    assert drawn.shape[1] == 1650
    for edge in (drawn[:, :12], drawn[:, -12:], drawn[:12], drawn[-12:]):
        assert (edge == 255).all()
    assert (drawn != 255).any(axis=(1, 2)).mean() > 0.6  # not a white page


def test_the_same_explanation_gives_the_same_picture(tiger: TigerExplanation, scene: Scene, tmp_path: Path) -> None:
    import matplotlib as mpl

    tiger_png(tiger, scene, tmp_path / "a.png")
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "red"}):  # a user's own settings change nothing
        tiger_png(tiger, scene, tmp_path / "b.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_without_boxes_there_are_charts_and_no_heat(tmp_path: Path) -> None:
    files = explained.make_explained(tmp_path, boxes=False)
    bare = explained.scene(files, explained.picture())
    assert bare.boxes is None
    found = explain_tiger(explained.tiger(files), explained.items("a dog"))
    tiger_png(found, bare, tmp_path / "bare.png")
    boxed = explained.scene(explained.make_explained(tmp_path / "boxed"), explained.picture())
    tiger_png(found, boxed, tmp_path / "boxed.png")
    assert pixels(tmp_path / "bare.png").shape[0] < pixels(tmp_path / "boxed.png").shape[0]
    tiger_html(found, bare, tmp_path / "bare.html")
    page = Page(tmp_path / "bare.html")
    assert "image" not in page.tags
    assert "Gain of each position" in page.text


@pytest.mark.parametrize("regions", [1, 2, 80])
def test_any_number_of_regions_can_be_drawn(regions: int, tmp_path: Path) -> None:
    files = explained.make_explained(tmp_path, regions=regions)
    shown = explained.scene(files)  # and no picture
    found = explain_tiger(explained.tiger(files), explained.items("a dog"))
    tiger_png(found, shown, tmp_path / "x.png")
    tiger_html(found, shown, tmp_path / "x.html")
    assert f"<td>{regions - 1} " in (tmp_path / "x.html").read_text(encoding="utf-8")


def test_a_caption_without_words_can_be_drawn(files: Files, scene: Scene, tmp_path: Path) -> None:
    empty = explained.items("\u200b \u00a0", references=("a dog",))
    for count_ends in (True, False):
        found = explain_tiger(explained.tiger(files, count_ends=count_ends), empty)
        tiger_png(found, scene, tmp_path / "x.png")
        tiger_html(found, scene, tmp_path / "x.html")


# -- HTML -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tiger", "reo"])
def test_a_page_escapes_captions_and_loads_nothing(
    kind: str, tiger: TigerExplanation, reo: ReoExplanation, scene: Scene, tmp_path: Path
) -> None:
    path = tmp_path / "x.html"
    if kind == "tiger":
        tiger_html(tiger, scene, path)
    else:
        reo_html(reo, scene, path)
    text = path.read_text(encoding="utf-8")
    page = Page(path)
    assert "script" not in page.tags
    assert "&lt;script&gt;alert(&quot;dog&quot;)&lt;/script&gt; &amp; $x_2$" in text
    assert EVIL in page.text
    assert page.loads
    assert all(load == "#picture" or load.startswith("data:image/png;base64,") for load in page.loads)
    assert not re.search(r"url\(|@import|https?://", text)
    assert "prefers-color-scheme: dark" in text
    assert "1.50" in page.text  # the rating


def test_a_tiger_page_has_all_numbers(tiger: TigerExplanation, scene: Scene, tmp_path: Path) -> None:
    tiger_html(tiger, scene, tmp_path / "x.html")
    page = Page(tmp_path / "x.html")
    assert "a <b>note</b>" in page.text
    for candidate in tiger.candidates:
        for value in candidate.scores.values():
            assert f"{value:.4f}" in page.text
        assert f"{candidate.d_rel:+.4f}" in page.text
        for region in range(7):
            assert f"{candidate.caption.grounding[region]:.4f}" in page.text
    assert all(text in page.text for text in explained.REFERENCES)
    assert page.text.count("attends most to") == 2


def test_a_reo_page_marks_words_and_compares_candidates(reo: ReoExplanation, scene: Scene, tmp_path: Path) -> None:
    reo_html(reo, scene, tmp_path / "x.html")
    page = Page(tmp_path / "x.html")
    text = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert "All candidates" in page.text
    for candidate in reo.candidates:
        for truth in candidate.truths.values():
            assert all(f"{value:.4f}" in page.text for value in truth.scores.values())
            assert all(f"{share.similarity:.3f}" in page.text for share in truth.missing[:TOP_WORDS])
    extra = sum(len(candidate.truths["image"].extra) for candidate in reo.candidates)
    assert text.count('<mark class="extra"') == extra
    assert text.count('<mark class="missing"') == 2 * sum(
        len(row) for row in reo.candidates[0].truths["image"].references
    )


def test_words_are_marked_by_similarity_never_below_zero(reo: ReoExplanation) -> None:
    candidate = reo.candidates[0]
    rows = highlights(candidate)
    assert [title for title, *_ in rows] == ["extra", *(f"missing, reference {i}" for i in (1, 2, 3))]
    found = candidate.truths["image + references"]
    assert rows[0][1] == [(share.word, max(share.similarity, 0.0)) for share in found.extra]
    assert all(0 <= value <= 1 for _, words, _ in rows for _, value in words)


def test_one_candidate_is_not_compared(files: Files, scene: Scene, tmp_path: Path) -> None:
    found = explain_reo(explained.reo(files), explained.items("a dog", references=()))
    reo_html(found, scene, tmp_path / "x.html")
    reo_png(found, scene, tmp_path / "x.png")
    page = Page(tmp_path / "x.html")
    assert "All candidates" not in page.text
    assert "image + references" not in page.text


def test_a_data_address_holds_the_picture() -> None:
    given = explained.picture()
    head, _, body = data_uri(given).partition(",")
    assert head == "data:image/png;base64"
    with Image.open(io.BytesIO(base64.b64decode(body))) as image:
        np.testing.assert_array_equal(np.asarray(image), given)

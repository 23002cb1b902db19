"""Pages and pictures of explanations: complete, safe, and equal for the same numbers."""

from __future__ import annotations

import base64
import hashlib
import io
import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from PIL import Image

from capbench.core.explanations import Explanation, RegionMaps, Regions, Subject, Table
from capbench.core.records import Item
from capbench.reports.explain import (
    Scene,
    heat,
    make_scene,
    page,
    shown_rows,
    summary_table,
    weight_map,
    write_explanation,
)
from tests.metrics.scan.models import Files
from tests.reports.explain import explained
from tests.reports.explain.overlap import Overlap

EVIL = 'a <script>alert("dog")</script> & $x_2$ \x01\udc80 runs'
SEEN = EVIL.replace("\x01", "\ufffd").replace("\udc80", "\ufffd")
LONG = "the small red dog and the blue cat sits under the house near two men runs on"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return explained.make_explained(tmp_path_factory.mktemp("explained"))


@pytest.fixture(scope="module")
def explanations(files: Files) -> dict[str, Explanation]:
    subject = explained.subject(EVIL, LONG, humans=(1.5, 2.0))
    items = tuple(Item("pond", text, (f"the dog runs {text}",)) for text in (EVIL, "dog" * 120, "котёнок"))
    return {
        "tiger": explained.tiger(files).explain(subject),
        "reo": explained.reo(files).explain(subject),
        "overlap": Overlap().explain(Subject("pond", items, (1.5, None, None))),
    }


@pytest.mark.parametrize("name", ["tiger", "reo", "overlap"])
def test_a_page_has_all_numbers_escapes_captions_and_loads_nothing(
    name: str, explanations: dict[str, Explanation]
) -> None:
    explanation = explanations[name]
    text = page(explanation, explained.picture())
    text.encode("utf-8")
    shown = unescape(text)
    assert not re.search(r"<(script|iframe)\b|<[^>]* (on\w+|style)=", text)
    assert "&lt;script&gt;alert(&quot;dog&quot;)&lt;/script&gt; &amp; $x_2$" in text
    assert SEEN in shown
    assert "human rating 1.50" in shown
    assert all(link == "data:," or link.startswith("#") for link in re.findall(r'href="([^"]*)"', text))
    loads = re.findall(r'(?:src|data)="([^"]*)"', text)
    assert all(load.startswith("data:image/webp;base64,") for load in loads)
    for load in loads:
        with Image.open(io.BytesIO(base64.b64decode(load.partition(",")[2]))) as image:
            image.load()
    for candidate in explanation.candidates:
        assert all(f"{value:.4f}" in shown for value in candidate.scores.values())
        assert all(reference.replace(EVIL, SEEN) in shown for reference in candidate.references)
        for panel in candidate.panels:
            if isinstance(panel, Table):
                assert all(f"{c:.4f}" in shown for row in panel.rows for c in row if isinstance(c, float))
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    assert f'<meta http-equiv="Content-Security-Policy" content="{policy}">' in text


@pytest.mark.parametrize(("kind", "names"), [("svg", ["x-A.svg", "x-all.svg"]), ("pdf", ["x.pdf"])])
def test_the_same_explanation_gives_the_same_picture(kind: str, names: list[str], tmp_path: Path) -> None:
    explanation = Overlap().explain(explained.subject("$x_2$ & \x01\udc80", references=("the $x_2$",)))
    if len(names) == 1:
        explanation = replace(explanation, comparison=())

    def written() -> list[bytes]:
        paths = write_explanation(explanation, explained.picture(), tmp_path / "x.html", tmp_path / f"x.{kind}")
        assert [path.name for path in paths] == names
        return [path.read_bytes() for path in (tmp_path / "x.html", *paths)]

    first = written()  # both formats would hold a date
    with mpl.rc_context({"font.size": 30, "text.color": "red"}):  # a user's own settings change nothing
        assert written() == first


@pytest.mark.parametrize(("regions", "caption"), [(1, "a dog"), (80, "\u200b \u00a0")])
def test_any_number_of_regions_and_words_can_be_drawn(regions: int, caption: str, tmp_path: Path) -> None:
    files = explained.make_explained(tmp_path, regions=regions)
    explanation = explained.tiger(files).explain(explained.subject(caption))
    write_explanation(explanation, None, tmp_path / "x.html", tmp_path / "deep" / "x.png")
    assert f">{regions - 1} " in (tmp_path / "x.html").read_text(encoding="utf-8")
    assert (tmp_path / "deep" / "x.png").read_bytes()[:4] == b"\x89PNG"


def test_the_terminal_has_all_candidates_with_their_scores(explanations: dict[str, Explanation]) -> None:
    table = summary_table(explanations["overlap"])
    assert [row.title for row in table.rows] == ["A", "B", "C"]
    assert [row.cells[0].value for row in table.rows] == ["1.50", "–", "–"]
    assert table.legend[2] == "C: котёнок"


def test_a_pixel_gets_its_box_and_a_small_box_shows_inside_of_a_large_one() -> None:
    boxes = np.array([[0, 0, 4, 2], [1, 0, 2, 1]], dtype=np.float64)
    weights = weight_map(boxes, np.array([1.0, 0.0]), 3, 5)
    assert weights[0, 0] == 1
    assert weights[0, 1] == pytest.approx((1 / 8) / (1 / 8 + 1))  # counted by 1 / area
    assert np.isnan(weights[2]).all()
    assert np.isnan(weights[:, 4]).all()
    grid = np.array([[x, y, x + 1 / 3, y + 1 / 3] for y in (0, 1 / 3, 2 / 3) for x in (0, 1 / 3, 2 / 3)]) * 90
    np.testing.assert_allclose(weight_map(grid, np.arange(9.0), 90, 90)[15::30, 15::30].ravel(), np.arange(9))
    assert np.isfinite(weight_map(np.array([[5.0, 5.0, 5.0, 5.0]]), np.array([2.0]), 5, 5)).sum() == 1


def test_heat_is_drawn_where_boxes_are_and_boxes_follow_the_picture() -> None:
    scene = Scene(np.full((4, 4, 3), (10, 20, 60), np.uint8), np.array([[0.0, 0, 2, 4]]))
    layer = heat(scene, np.array([0.5]), 0.0, 1.0)
    assert (layer[:, 2:] == 30).all()  # grey
    assert (layer[:, :2] != 30).any(axis=2).all()
    boxes = np.array([[60.0, 0, 120, 80]])
    of_picture = make_scene(explained.picture(), Regions(("a",), boxes, explained.SIZE))
    assert of_picture.pixels.shape == (280, 420, 3)
    assert of_picture.boxes is not None
    assert of_picture.boxes.tolist() == [[210, 0, 420, 280]]
    fractions = make_scene(None, Regions(("a",), np.array([[0, 0, 0.5, 1]]), (1, 1)))
    assert fractions.pixels.shape == (315, 420, 3)
    assert make_scene(None, Regions(())).boxes is None


def test_words_below_an_equal_share_have_no_map() -> None:
    weights = np.array([[0.7, 0.1], [0.1, 0.1], [0.1, 0.7], [0.1, 0.1]])
    assert shown_rows(RegionMaps("m", ("dog", "a", "ball", "."), weights)) == [0, 2]
    assert shown_rows(RegionMaps("m", ("references", "candidate", "other"), weights[:3])) == [0, 1, 2]

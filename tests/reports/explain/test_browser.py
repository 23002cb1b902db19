"""Pages of explanations in a real browser, on a phone and on a screen, light and dark."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from html import escape, unescape
from pathlib import Path
from typing import Any

import pytest

from capbench.core.explanations import Subject
from capbench.core.records import Item
from capbench.reports.explain.page import write_explanation
from tests.reports.explain import explained
from tests.reports.explain.overlap import Overlap

BROWSER = shutil.which("chromium")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(BROWSER is None, reason="no chromium on PATH (apt-get install chromium)"),
]
LONG = "the small red dog and the blue cat sits under the house near two " * 3 + "dog" * 60

# Runs in a copy of the page whose policy allows it: the page itself has no script, and its policy allows none.
MEASURE = """
const all = [...document.querySelectorAll("body *")].filter(e => !e.closest(".wide") && !e.closest("svg svg, defs"));
const result = {
  width: innerWidth,
  content: document.documentElement.scrollWidth,
  beyond: all.filter(e => e.getBoundingClientRect().right > innerWidth + 0.5).map(e => e.outerHTML.slice(0, 80)),
  broken: [...document.querySelectorAll(".piece, td, th")].filter(e => e.getClientRects().length > 1)
    .map(e => e.textContent),
  smallest: Math.min(...[...document.querySelectorAll("svg text")].map(
    e => parseFloat(getComputedStyle(e).fontSize) * Math.hypot(e.getScreenCTM().a, e.getScreenCTM().b))),
  pictures: [...document.querySelectorAll("svg[role=img]")].filter(e => e.getBoundingClientRect().width < 50).length,
  ground: getComputedStyle(document.body).backgroundColor,
  ink: getComputedStyle(document.body).color,
};
const told = parent.document.createElement("pre");
told.id = "measured";
told.textContent = JSON.stringify(result);
parent.document.body.append(told);
"""


def measure(page: Path, folder: Path, width: int, *options: str) -> tuple[dict[str, Any], str]:
    """Measurements of a page in a browser of some width, and the browser's complaints."""
    assert BROWSER is not None
    copy = folder / "measured.html"
    digest = base64.b64encode(hashlib.sha256(MEASURE.encode()).digest()).decode()
    policy = "default-src 'none';"
    text = page.read_text(encoding="utf-8").replace(policy, f"{policy} script-src 'sha256-{digest}';", 1)
    text = text.replace("</body>", f"<script>{MEASURE}</script></body>")
    # No window is narrower than 500 pixels, but a frame may be.
    frame = f'<iframe width="{width}" height="900" style="border: 0" srcdoc="{escape(text)}"></iframe>'
    copy.write_text(f'<!doctype html><meta charset="utf-8"><body>{frame}</body>', encoding="utf-8")
    quiet = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic"]
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", *quiet]
    command += [f"--user-data-dir={folder / 'profile'}", "--window-size=1400,1000", "--enable-logging=stderr"]
    ran = subprocess.run(
        [*command, *options, "--dump-dom", copy.as_uri()], capture_output=True, text=True, timeout=300, check=True
    )
    measured = re.search(r'<pre id="measured">(.*?)</pre>', ran.stdout, re.DOTALL)
    assert measured is not None, ran.stdout[-500:]
    return json.loads(unescape(measured[1])), "\n".join(line for line in ran.stderr.splitlines() if "CONSOLE" in line)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("pages")
    files = explained.make_explained(folder / "features", regions=40)
    subject = explained.subject("a dog runs", LONG, humans=(1.5, 2.0))
    short = Subject("pond", tuple(Item("pond", t, ("a dog runs",)) for t in ("a dog", LONG)), (1.0, None))
    explanations = {
        "tiger": explained.tiger(files).explain(subject),
        "reo": explained.reo(files).explain(subject),
        "overlap": Overlap().explain(short),
    }
    for name, explanation in explanations.items():
        write_explanation(explanation, explained.picture(), folder / f"{name}.html", folder / f"{name}.png")
    return [folder / f"{name}.html" for name in explanations]


@pytest.mark.parametrize("width", [420, 1280])
def test_pages_fit_a_phone_and_a_screen_and_break_no_number(pages: list[Path], width: int, tmp_path: Path) -> None:
    for page in pages:
        measured, complaints = measure(page, tmp_path, width)
        assert measured["width"] == width
        assert measured["content"] <= width, page.name
        assert measured["beyond"] == [], page.name
        assert measured["broken"] == [], page.name
        assert measured["smallest"] >= 10, page.name  # pixels
        assert measured["pictures"] == 0
        assert measured["ground"] == "rgb(255, 255, 255)"
        assert complaints == ""


def test_pages_are_dark_where_the_reader_is(pages: list[Path], tmp_path: Path) -> None:
    measured, _ = measure(pages[0], tmp_path, 1280, "--blink-settings=preferredColorScheme=0")
    assert measured["ground"] == "rgb(22, 24, 27)"
    assert measured["ink"] == "rgb(236, 236, 236)"

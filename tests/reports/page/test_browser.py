"""A report in a real browser: what people do with it, and what a hostile data set cannot do."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

from capbench.reports.page import ReportSource, report_page
from tests.reports.page.world import HOSTILE, hostile_source, make_pairs, make_source

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

BROWSER = shutil.which("chromium")
OPEN_ALL = "document.querySelectorAll('details').forEach(part => { part.open = true })"
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (make setup)")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(BROWSER is None, reason="no chromium on PATH (apt-get install chromium)"),
]


@dataclass
class Opened:
    """A page with its messages and requests."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with playwright.sync_playwright() as started:
        # As root, Chromium has no sandbox.
        launched = started.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"])
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    picture = folder / "image3.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (300, 400, 3), dtype=np.uint8)).save(picture)
    usual, made = make_source(120), dict[str, Path]()
    usual = ReportSource(usual.result, (*usual.items, make_pairs(30, ["cider", "meteor"])))
    for name, source in {"usual": usual, "hostile": hostile_source()}.items():
        text = report_page(
            [source],
            command="capbench figure report a.json",
            pictures=lambda _, images: {image: picture for image in images if image == "image3"},
        )
        made[name] = folder / f"{name}.html"
        made[name].write_text(text, encoding="utf-8")
    return made


Open = Callable[..., Opened]


@pytest.fixture
def opened(browser: Browser, pages: dict[str, Path]) -> Iterator[Open]:
    contexts = []

    def open_page(name: str = "usual", *, width: int = 1280, **options: Any) -> Opened:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        opened_page = Opened(context.new_page())
        page = opened_page.page
        page.on("console", lambda said: opened_page.complaints.append(said.text))
        page.on("pageerror", lambda error: opened_page.complaints.append(str(error)))
        page.on("request", lambda request: opened_page.requests.append(request.url))
        page.goto(pages[name].as_uri())
        page.wait_for_selector("html[data-ready]", state="attached", timeout=60_000)
        return opened_page

    yield open_page
    for context in contexts:
        context.close()


def texts(page: Page, selector: str) -> list[str]:
    return [text.strip() for text in page.locator(selector).all_inner_texts()]


def soon(page: Page, read: Callable[[], object], expected: object, *, seconds: float = 30) -> None:
    """Wait until the page shows the expected value: a table is sorted some time after the click."""
    deadline = time.monotonic() + seconds
    while (shown := read()) != expected and time.monotonic() < deadline:
        page.wait_for_timeout(20)
    assert shown == expected


@pytest.mark.parametrize("name", ["usual", "hostile"])
def test_a_page_asks_nobody_for_anything_and_is_no_wider_than_a_phone_or_a_screen(
    opened: Open, pages: dict[str, Path], name: str
) -> None:
    shown = opened(name, width=390)
    page = shown.page
    page.evaluate(OPEN_ALL)
    assert shown.complaints == []
    other = [url for url in shown.requests if not url.startswith(("data:", "blob:"))]
    assert other == [pages[name].as_uri()]
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        beyond = page.evaluate(
            "[...document.querySelectorAll('main *')].filter(e => !e.closest('.wide, svg') && e.getClientRects().length"
            " && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"
        )
        assert beyond == []


def test_a_head_sorts_its_column_by_value_both_ways(opened: Open) -> None:
    page = opened().page
    column = "#matrix-0-0 tbody tr th"
    head = page.locator("#matrix-0-0 thead th", has_text="τ‑b")
    head.click()
    soon(page, lambda: texts(page, column)[:3], ["BLEU-4", "CIDEr", "METEOR"])  # 0.40, 0.39, 0.38
    soon(page, lambda: head.get_attribute("aria-sort"), "descending")
    head.click()
    soon(page, lambda: texts(page, column), ["METEOR", "CIDEr", "BLEU-4", "TIGEr"])  # no number is last in both


def test_every_number_says_what_it_is_under_a_pointer_and_from_the_keyboard(opened: Open) -> None:
    page = opened().page
    cell = page.locator("table.forest tbody td[data-tip]").first
    tip = page.locator("#tip")
    assert not tip.is_visible()
    cell.hover()
    tip.wait_for(state="visible")
    told = tip.inner_text()
    for part in ("CIDEr", "τ-c = 44.0", "95 % interval [38.0, 46.0]", "n = 180"):
        assert part in told
    assert "protocol flickr8k-expert:1/no-own-captions/unaggregated-tau-c" in told
    assert "signature cider|capbench:0.1.0|tok:ptb" in told
    page.mouse.move(5, 5)
    soon(page, tip.is_visible, False)
    cell.focus()
    page.keyboard.press("ArrowDown")
    soon(page, lambda: tip.inner_text().startswith("METEOR"), True)
    assert page.locator(":focus").get_attribute("aria-describedby") == "tip"
    page.keyboard.press("Escape")
    soon(page, tip.is_visible, False)
    # One stop of the tabulator key a table, not one a number.
    assert page.locator("table.forest td[tabindex='0']").count() == 2


def test_a_table_is_copied_as_it_is_shown(opened: Open) -> None:
    page = opened(permissions=["clipboard-read", "clipboard-write"]).page
    page.locator("#matrix-0-0 thead th", has_text="τ‑b").click()
    soon(page, lambda: texts(page, "#matrix-0-0 tbody tr th")[0], "BLEU-4")
    page.locator("#matrix-0-0 tbody tr th").first.evaluate("head => (head.dataset.copy = '*BLEU-4')")
    expected = {
        "LaTeX": r"{}*BLEU-4 & 31.0 [25.0, 33.0] &  &  & 40.0 [34.0, 42.0] \\",
        "Markdown": r"| \*BLEU-4 | 31.0 \[25.0, 33.0\] |  |  | 40.0 \[34.0, 42.0\] |",
        "CSV": '*BLEU-4,"31.0 [25.0, 33.0]",,,"40.0 [34.0, 42.0]"',
    }
    for form, line in expected.items():
        page.locator(f"button[data-copies='matrix-0-0'][data-form='{form.lower()}']").click()
        page.locator("#status", has_text=f"rows as {form}").wait_for(state="attached")
        assert line in page.evaluate("navigator.clipboard.readText()").splitlines()


def test_captions_are_listed_by_distance_and_searched(opened: Open) -> None:
    page = opened().page
    page.select_option("#items-panel", index=0)
    soon(page, page.locator("#items tbody tr").count, 25)
    distances = [abs(int(text.replace("−", "-"))) for text in texts(page, "#items tbody td:nth-last-child(2)")]
    assert distances == sorted(distances, reverse=True)
    assert distances[0] > 30
    page.locator("#items_wrapper input[type=search]").fill('"number 7 of"')
    soon(page, page.locator("#items tbody tr").count, 1)
    page.locator("#items_wrapper input[type=search]").fill("& < nothing like it >")
    soon(page, lambda: "No matches" in page.locator("#items tbody").inner_text(), True)


def test_a_caption_opens_to_references_and_all_scores(opened: Open) -> None:
    page = opened().page
    page.locator("#items_wrapper input[type=search]").fill('"number 12 of"')
    button = page.locator("#items tbody button")
    soon(page, button.count, 1)
    button.click()
    page.locator(".detail").wait_for()
    detail = page.locator(".detail").inner_text()
    assert "reference 3 0" in detail
    assert all(title in detail for title in ("human rating", "CIDEr", "METEOR", "BLEU-4"))
    assert button.get_attribute("aria-expanded") == "true"
    assert page.locator(".case img").count() == 1  # image3 alone has a picture
    soon(page, lambda: page.locator(".case img").evaluate("e => e.complete && e.naturalWidth > 0"), True)
    button.click()
    soon(page, page.locator(".detail").count, 0)


def test_nothing_of_a_hostile_data_set_runs_or_becomes_an_element(opened: Open) -> None:
    shown = opened("hostile", permissions=["clipboard-read", "clipboard-write"])
    page = shown.page
    title = page.title()
    assert "<script>" in title  # as text
    page.evaluate(OPEN_ALL)
    for text in HOSTILE[:6]:
        page.locator("#items_wrapper input[type=search]").fill(text)
        page.wait_for_timeout(20)
    for box in page.locator("input[type=search]").all():
        box.fill("")
    for button in page.locator("#items tbody button").all()[:8]:
        button.click()
    for cell in page.locator("td[data-tip]").all()[:8]:
        cell.focus()
    for place in reversed(range(len(HOSTILE))):
        page.select_option("#items-first", index=place)
        page.select_option("#items-second", index=place)
    assert page.title() == title
    assert page.locator("main img:not([src^='data:']), main b:text-is('bold'), main svg[onload]").count() == 0
    assert page.locator("main script").count() == 0
    assert shown.complaints == []
    page.locator("button[data-copies='items'][data-form='csv']").click()
    page.locator("#status", has_text="rows as").wait_for(state="attached")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert "'=HYPERLINK" in copied
    assert re.search(r'(^|,)"?=HYPERLINK', copied, re.MULTILINE) is None


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_accessibility_check_finds_nothing(opened: Open, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = opened(color_scheme=scheme, bypass_csp=True).page  # the checker itself is a script from outside
    page.evaluate(OPEN_ALL)
    page.locator("#items tbody button").first.click()
    violations = axe.Axe().run(page).response["violations"]
    assert [(v["id"], [node["html"][:120] for node in v["nodes"]][:3]) for v in violations] == []

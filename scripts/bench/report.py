"""Size of an HTML report and time until it is usable: 17,000 judged captions, 12 metrics, without pictures.

Goals: below 15 MB, usable within 2 s of the page's main thread (layout and scripts, by Chromium's counters).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from capbench.core.files import write_text
from capbench.reports.page import ReportSource, report_page
from scripts.bench.common import Goal, MissingError, Row, Settings, Work, child
from tests.reports.page.world import make_items, make_result

METRICS = 12


def generated(points: int) -> ReportSource:
    """A study with three ratings a caption."""
    columns = {f"metric-{place}": f"Metric {place}" for place in range(METRICS)}
    return ReportSource(make_result(columns), (make_items(points, list(columns)),))


def writing(page: Path, points: int) -> Work:
    """Write the report."""
    source = generated(points)
    return lambda: write_text(page, report_page([source]))


def usable(page: Path) -> float:
    """Seconds of the page's main thread until the report is ready.

    Raises MissingError: Chromium or Playwright is not installed.
    """
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise MissingError("playwright is not installed") from error
    browser_path = shutil.which("chromium")
    if browser_path is None:
        raise MissingError("chromium is not installed")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=browser_path, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_page(viewport={"width": 1280, "height": 900})
        counters = tab.context.new_cdp_session(tab)
        counters.send("Performance.enable", {"timeDomain": "threadTicks"})
        tab.goto(page.as_uri())
        tab.wait_for_selector("html[data-ready]", state="attached", timeout=120_000)
        values = {entry["name"]: entry["value"] for entry in counters.send("Performance.getMetrics")["metrics"]}
        browser.close()
    return float(values["TaskDuration"])


def opening(page: Path, repeats: int) -> Row:
    """The row of opening a report."""
    size = Goal(page.stat().st_size / 1e6, 15, "MB on disk")
    try:
        seconds = min(usable(page) for _ in range(repeats))
    except MissingError as error:
        return Row("opening the report", goals=(size,), missing=str(error))
    return Row("opening the report", seconds, goals=(size, Goal(seconds, 2, "s")))


def measure(settings: Settings) -> Iterator[Row]:
    """Writing and opening."""
    points, page = settings.pick(2_000, 17_000), settings.folder / "report.html"
    run = child(writing, page, points)
    yield Row(f"writing a report, {points:,} captions, {METRICS} metrics", run.seconds, megabytes=run.megabytes)
    yield opening(page, settings.repeats)

"""Size of an HTML report and time until it is usable: 17,000 judged captions, 12 metrics, without pictures.

Run: python -m scripts.bench.report [FILE.html]

The time is that of the page's main thread (layout and scripts, by Chromium's counters). With a file, that report is
measured. Goals: below 15 MB, usable within 2 s.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from capbench.core.files import write_text
from capbench.reports.page import ReportSource, report_page
from capbench.studies.item_scores import ItemScores
from scripts.bench.common import Goal, MissingError, Row, Settings, Work, child, main
from tests.reports.page.world import PROTOCOLS, make_result

METRICS = 12
WORDS = ("a", "the", "dog", "cat", "man", "child", "runs", "jumps", "sits", "over", "near", "grass", "water", "red")


def generated(points: int) -> ReportSource:
    """A study with 17 captions an image, five references each, three ratings a caption."""
    generator = np.random.default_rng(0)
    hidden = generator.normal(size=points)
    ratings = np.clip(np.round(2.5 + hidden[:, None] + generator.normal(size=(points, 3))), 1, 4)
    columns = {f"metric-{place}": f"Metric {place}" for place in range(METRICS)}

    def caption() -> str:
        return " ".join(generator.choice(WORDS, 11))

    items = ItemScores(
        items="flickr8k-expert/no-own-captions",
        side="expert",
        kind="ratings",
        dataset_title="Flickr8k Expert",
        protocols=PROTOCOLS,
        images=[f"{1000000000 + place // 17}_0123456789" for place in range(points)],
        captions=[caption() for _ in range(points)],
        references=[place // 17 for place in range(points)],
        reference_lists=[[caption() for _ in range(5)] for _ in range(-(-points // 17))],
        groups=[""] * points,
        systems=[""] * points,
        human=ratings.mean(axis=1).tolist(),
        ratings=ratings.tolist(),
        scores={name: (hidden + generator.normal(size=points)).tolist() for name in columns},
    )
    return ReportSource(make_result(columns), (items,))


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


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1].endswith(".html"):
        print(opening(Path(sys.argv[1]).resolve(), 5))
    else:
        main(measure, __doc__)

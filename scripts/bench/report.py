"""Size of a report and time until it can be used: 17,000 judged captions, 12 metrics, without pictures.

python scripts/bench/report.py [FILE.html]

Without a file, a page of made-up captions is written and measured. Wall-clock time is that of this machine under its
load; the processor time of the page's main thread (layout and scripts, as Chromium's own counters give them) is beside.
Goals: below 15 MB, and usable within 2 s.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from capbench.reports.page import ReportSource, write_report  # noqa: E402
from capbench.studies.item_scores import ItemScores  # noqa: E402
from tests.reports.page.world import PROTOCOLS, make_result  # noqa: E402

POINTS, METRICS, RUNS = 17_000, 12, 5
WORDS = ("a", "the", "dog", "cat", "man", "child", "runs", "jumps", "sits", "over", "near", "grass", "water", "red")


def made_up() -> ReportSource:
    """A study as large as the goal's: 17 captions an image, five references each, three ratings a caption."""
    generator = np.random.default_rng(0)
    hidden = generator.normal(size=POINTS)
    ratings = np.clip(np.round(2.5 + hidden[:, None] + generator.normal(size=(POINTS, 3))), 1, 4)
    columns = {f"metric-{place}": f"Metric {place}" for place in range(METRICS)}

    def caption() -> str:
        return " ".join(generator.choice(WORDS, 11))

    items = ItemScores(
        items="flickr8k-expert/no-own-captions",
        side="expert",
        kind="ratings",
        dataset_title="Flickr8k Expert",
        protocols=PROTOCOLS,
        images=[f"{1000000000 + place // 17}_0123456789" for place in range(POINTS)],
        captions=[caption() for _ in range(POINTS)],
        references=[place // 17 for place in range(POINTS)],
        reference_lists=[[caption() for _ in range(5)] for _ in range(-(-POINTS // 17))],
        groups=[""] * POINTS,
        systems=[""] * POINTS,
        human=ratings.mean(axis=1).tolist(),
        ratings=ratings.tolist(),
        scores={name: (hidden + generator.normal(size=POINTS)).tolist() for name in columns},
    )
    return ReportSource(make_result(columns), (items,))


def measure(page: Path) -> None:
    """Open the page in a fresh browser several times, and say how long it takes."""
    from playwright.sync_api import sync_playwright

    browser_path = shutil.which("chromium")
    if browser_path is None:
        raise SystemExit("no chromium on PATH (apt-get install chromium)")
    walls, busy = [], []
    for _ in range(RUNS):
        with sync_playwright() as started:
            browser = started.chromium.launch(executable_path=browser_path, args=["--no-sandbox", "--disable-gpu"])
            tab = browser.new_page(viewport={"width": 1280, "height": 900})
            counters = tab.context.new_cdp_session(tab)
            counters.send("Performance.enable", {"timeDomain": "threadTicks"})
            began = time.perf_counter()
            tab.goto(page.as_uri())
            tab.wait_for_selector("html[data-ready]", state="attached", timeout=120_000)
            walls.append(time.perf_counter() - began)
            values = {entry["name"]: entry["value"] for entry in counters.send("Performance.getMetrics")["metrics"]}
            busy.append(values["TaskDuration"])
            browser.close()
    print(f"{page.name}: {page.stat().st_size / 1e6:.1f} MB")
    spread = f"median of {RUNS} runs, {min(walls):.2f} to {max(walls):.2f}"
    print(f"usable after {statistics.median(walls):.2f} s ({spread})")
    print(f"of which the page's main thread worked {statistics.median(busy):.2f} s")


def main() -> None:
    """Measure the file that is given, or a made-up page."""
    if len(sys.argv) > 1:
        measure(Path(sys.argv[1]).resolve())
        return
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / f"{POINTS}-captions-{METRICS}-metrics.html"
        began = time.perf_counter()
        write_report([made_up()], page)
        print(f"written in {time.perf_counter() - began:.1f} s")
        measure(page)


if __name__ == "__main__":
    main()

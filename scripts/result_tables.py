"""Write the tables of docs/results/*.md from the results of recipes that are kept in results/.

python scripts/result_tables.py [--check]

A table of a page is replaced by one that is made from the results if their heads agree; of several tables with one head
the first of the page is the first of the results. Text and other tables stay as they are. ``--check`` writes nothing
and fails if a page differs. ``PAGES`` has the results of each page.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from capbench.core.files import read_json, read_text, write_text  # noqa: E402
from scripts import flickr8k_grid_tables, nneval_tables  # noqa: E402
from scripts.flickr8k_grid_tables import HEADS, TITLES, spread, table  # noqa: E402

__all__ = ["PAGES", "Page", "table", "with_numbers", "with_tables", "written"]

Results = Mapping[str, Any]
_TABLE = re.compile(r"(?:^\|.*\n?)+", re.MULTILINE)
NNEVAL_MARK = "## All numbers\n"
SETS = ("expert", "composite-8k")
WAYS = {"all": "all references", "one": "one reference", "none": "no references"}


def _interval(one: Mapping[str, float], between: str = " to ") -> str:
    return f"{one['low']:.4f}{between}{one['high']:.4f}"


# The dual encoder


def dual_encoder(results: Results) -> str:
    """Agreement with intervals, the best row first."""
    parts = []
    for numbers in (results[key] for key in SETS if key in results):
        by_row = numbers["rows"]
        ordered = sorted(by_row, key=lambda row: -np.mean(by_row[row]["tau-c"]))
        rows = {
            row: [
                spread(by_row[row]["tau-c"]),
                _interval(numbers["intervals"][row], " – "),
                spread(by_row[row]["spearman"]),
            ]
            for row in ordered
        }
        head = f"`{numbers['protocol']}`: {numbers['ratings']:,} ratings of {numbers['items']:,} captions"
        parts.append(f"{head}\n\n{table(rows, ('row', 'τ-c', '95 % interval', 'ρ'))}")
    return "\n\n".join(parts) + "\n"


# ViLBERTScore


def vilbert(results: Results) -> str:
    """Agreement, intervals and tests; numbers of networks are mean ± standard deviation over seeds."""
    parts = [f"Seeds {', '.join(map(str, results['seeds']))}."]
    for name in (name for name in HEADS if name in results):
        numbers = results[name]
        cells = {
            TITLES.get(column, column): [spread(values[key]) for key in ("tau-c", "tau-b", "mean-tau-b")]
            for column, values in numbers["agreement"].items()
        }
        parts += [
            f"### {HEADS[name]}: {numbers['ratings']:,} ratings",
            table(cells, ("column", "τ-c", "τ-b", "τ-b with the mean rating")),
        ]
        ranks = numbers["comparison"]["ranks"]
        intervals = {
            column: [f"{one['value']:.4f}", _interval(one), str(ranks[column])]
            for column, one in numbers["intervals"].items()
        }
        parts.append(table(intervals, ("τ-c, mean over seeds", "value", "95 % bootstrap interval (images)", "rank")))
        pairs = {
            f"{pair['better']} over {pair['worse']}": [
                f"{pair['difference']:.4f}",
                _interval(pair),
                f"{pair['p_adjusted']:.3f}",
            ]
            for pair in numbers["comparison"]["pairs"]
        }
        parts.append(table(pairs, ("pair", "difference", "95 % interval", "p (permutation, Holm)")))
    columns = [key for key in next(iter(results["dev"].values())) if key not in ("step", "epoch")]
    dev = {seed: [f"{numbers[key]:.1f}" for key in columns] for seed, numbers in results["dev"].items()}
    parts += ["### Accuracy on dev, %", table(dev, ("", *columns))]
    return "\n\n".join(parts) + "\n"


# FAIEr


def faier(results: Results) -> str:
    """Agreement with all references, with one and without any."""
    parts = []
    for found in (results[key] for key in SETS if key in results):
        rows: dict[str, list[str]] = {}
        for suffix, entries in found["faier"].items():
            for column in ("faier", "faier-object", "faier-relation"):
                if entries and all(column in entry["all"] for entry in entries):
                    cells = [
                        [entry[way][column][c] for entry in entries if column in entry[way]]
                        for c in ("tau-c", "spearman")
                        for way in WAYS
                    ]
                    rows[column + suffix] = [spread(values) if values else "" for values in cells]
        for name, by_coefficient in found["others"].items():
            tau_c, rho = (spread(by_coefficient[c]) for c in ("tau-c", "spearman"))
            rows[name] = [tau_c, "", "", rho, "", ""]
        head = [f"{c}, {text}" for c in ("τ-c", "ρ") for text in WAYS.values()]
        one = found.get("one", "one reference")
        parts.append(f"{found['protocol']} and {one}\n\n{table(rows, ('column', *head))}")
    return "\n\n".join(parts) + "\n"


FAIER_ROWS = {
    "fier": "FIEr",
    "aier-4-ref": "AIEr-4 ref",
    "fier-aier-4-ref": "FIEr+AIEr-4 ref",
    "faier-rel-4-ref": r"FAIEr\rel-4 ref",
    "faier-4-ref": "FAIEr-4 ref",
    "faier-rel-1-ref": r"FAIEr\rel-1 ref",
    "faier-1-ref": "FAIEr-1 ref",
    "faier-rel-r-ref": r"FAIEr\rel-r ref",
    "faier-r-ref": "FAIEr-r ref",
}


def faier_table4(results: Results) -> str:
    """The rows of FAIEr's Table 4 with intervals."""
    parts = []
    for found in (results[key] for key in SETS if key in results):
        rows = {}
        for row, ways in found["rows"].items():
            seeds = results["seeds"][row]
            name = f"{FAIER_ROWS[row]} ({'one seed' if len(seeds) == 1 else f'mean of {len(seeds)} seeds'})"
            cells = [ways.get(way, {}).get(c) for way in ("one", "all", "none") for c in ("tau-c", "spearman")]
            rows[name] = ["" if c is None else f"{c['value']:.3f} [{c['low']:.3f}, {c['high']:.3f}]" for c in cells]
        head = [f"{c}, {WAYS[way]}" for way in ("one", "all", "none") for c in ("τ-c", "ρ")]
        parts.append(f"{found['protocol']}\n\n{table(rows, ('row', *head))}")
    return "\n\n".join(parts) + "\n"


def faier_analysis(results: Results) -> str:
    """Agreement by image, rating, length and triplets."""
    parts = []
    for found in (found for found in results.values() if isinstance(found, Mapping) and "by rating" in found):
        of_image, of_rating, kinds = found["by image"], found["by rating"], list(found["images"])
        rows = {
            name: [
                f"{found['tau-c'][name]:.3f}",
                *(f"{value:.2f}" for value in of_image[name].values()),
                *(_three_digits(found["tau-c by triplets"][which].get(name)) for which in ("triplets", "no triplet")),
                *(_three_digits(found["tau-c by image"][kind].get(name)) for kind in kinds),
            ]
            for name in found["tau-c"]
        }
        counted = [f"{found['captions'][which]:,} captions with {which}" for which in ("triplets", "no triplet")]
        images = [f"{found['images'][kind]:,} images: {kind}" for kind in kinds]
        head = ("column", "τ-c", "share between images", "τ-b between", "τ-b within", *counted, *images)
        parts.append(f"{found['protocol']}\n\n{table(rows, head)}")
        keys = next(iter(of_rating.values()))
        ratings = [key for key in keys if not key.startswith("step")]
        steps = [key for key in keys if key.startswith("step")]
        means = {
            name: [
                *(f"{values[key]:.3f}" for key in ratings),
                ", ".join(f"{values[key]:.2f}" for key in steps),
                f"{found['overrated with length'][name]:.2f}",
            ]
            for name, values in of_rating.items()
        }
        head = ("mean score at rating", *ratings, "steps, in standard deviations", "ρ of words and overrating")
        parts.append(table(means, head))
    return "\n\n".join(parts) + "\n"


def _three_digits(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


# Pages


def with_numbers(page: str, rendered: str) -> tuple[str, int]:
    """The page with the rows of rendered tables, and how many tables were replaced."""
    waiting: dict[str, list[str]] = {}
    for found in _TABLE.findall(rendered):
        waiting.setdefault(_head(found), []).append(found.rstrip("\n"))
    replaced = 0

    def renew(match: re.Match[str]) -> str:
        nonlocal replaced
        old = match.group()
        new = waiting.get(_head(old), [])
        if not new:
            return old
        replaced += 1
        _, _, rows = new.pop(0).partition("\n")
        return old.partition("\n")[0] + "\n" + rows + "\n" * old.endswith("\n")

    return _TABLE.sub(renew, page), replaced


def _head(text: str) -> str:
    """A table's first line without the name of the data set, which the page has in some."""
    head = text.partition("\n")[0]
    for name in HEADS.values():
        head = head.replace(f"| {name}: ", "| ")
    return head


def with_tables(page: str, rendered: str) -> str:
    """The page with rendered tables behind NNEval's mark. Raises ValueError if it has none."""
    text, mark, _ = page.partition(NNEVAL_MARK)
    if not mark:
        raise ValueError(f"the page has no line '{NNEVAL_MARK.strip()}'")
    return f"{text}{mark}\n{rendered}"


@dataclass(frozen=True)
class Page:
    """A results page.

    Attributes:
        name: of the file in ``docs/results``.
        results: file below ``results`` → its tables as Markdown, with how many of them the page has.
        behind_mark: True if all behind NNEval's mark is made from the results.
    """

    name: str
    results: Mapping[str, tuple[Callable[[Results], str], int]]
    behind_mark: bool = False

    @property
    def path(self) -> Path:
        """The file."""
        return ROOT / "docs" / "results" / self.name


PAGES = (
    Page("flickr8k-grid.md", {"flickr8k-grid/results.json": (flickr8k_grid_tables.tables, 14)}),
    Page("nneval.md", {"nneval/results.json": (nneval_tables.tables, 0)}, behind_mark=True),
    Page("dual-encoder-flickr8k.md", {"dual-encoder-flickr8k/results.json": (dual_encoder, 2)}),
    Page("vilbert-flickr8k.md", {"vilbert-flickr8k/results.json": (vilbert, 7)}),
    Page(
        "faier-flickr8k.md",
        {
            "faier-flickr8k/results.json": (faier, 2),
            "faier-flickr8k/table4.json": (faier_table4, 2),
            "faier-flickr8k/analysis.json": (faier_analysis, 4),
        },
    ),
)


def written(page: Page) -> str:
    """The page with the numbers of its results. Raises ValueError if a table of the results has no place there."""
    text = read_text(page.path)
    for file, (tables, number) in page.results.items():
        rendered = tables(read_json(ROOT / "results" / file))
        if page.behind_mark:
            text = with_tables(text, rendered)
            continue
        text, replaced = with_numbers(text, rendered)
        if replaced != number:
            raise ValueError(f"{page.name} has places for {replaced} of {number} tables of {file}")
    return text


def main() -> None:
    """Write all pages, or with ``--check`` name those that differ."""
    unknown = [argument for argument in sys.argv[1:] if argument != "--check"]
    if unknown:
        raise SystemExit(f"unknown arguments: {' '.join(unknown)}")
    changed = [page for page in PAGES if written(page) != read_text(page.path)]
    for page in changed:
        if "--check" not in sys.argv:
            write_text(page.path, written(page))
        print(f"{page.path.relative_to(ROOT)} differs" if "--check" in sys.argv else f"{page.path.relative_to(ROOT)}")
    if changed and "--check" in sys.argv:
        raise SystemExit("write them: python scripts/result_tables.py")


if __name__ == "__main__":
    main()

"""Put the numbers of ``results/flickr8k-grid/results.json`` into the tables of ``docs/results/flickr8k-grid.md``.

A table of the page is one of ``scripts/flickr8k_grid_tables.py`` if their heads agree; of several tables with one head
the first of the page is the first of the results. Text and other tables stay as they are.

Example: python scripts/flickr8k_grid_page.py
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from capbench.core.files import read_json, read_text, write_text  # noqa: E402
from scripts.flickr8k_grid_tables import HEADS, tables  # noqa: E402

PAGE = ROOT / "docs" / "results" / "flickr8k-grid.md"
RESULTS = ROOT / "results" / "flickr8k-grid" / "results.json"
_TABLE = re.compile(r"(?:^\|.*\n?)+", re.MULTILINE)


def with_numbers(page: str, rendered: str) -> tuple[str, int]:
    """The page with the rows of rendered tables, and how many tables got theirs."""
    waiting: dict[str, list[str]] = {}
    for table in _TABLE.findall(rendered):
        waiting.setdefault(_head(table), []).append(table.rstrip("\n"))
    replaced = 0

    def renew(match: re.Match[str]) -> str:
        nonlocal replaced
        old = match.group()
        new = waiting.get(_head(old), [])
        if not new:
            return old
        replaced += 1
        head, _, rows = new.pop(0).partition("\n")
        assert head
        return old.partition("\n")[0] + "\n" + rows + "\n" * old.endswith("\n")

    return _TABLE.sub(renew, page), replaced


def _head(table: str) -> str:
    """A table's first line without the name of the data set, which the page has in some."""
    head = table.partition("\n")[0]
    for name in HEADS.values():
        head = head.replace(f"| {name}: ", "| ")
    return head


def main() -> None:
    """Write the page."""
    page, replaced = with_numbers(read_text(PAGE), tables(read_json(RESULTS)))
    write_text(PAGE, page)
    print(f"{replaced} tables of {PAGE} are written")


if __name__ == "__main__":
    main()

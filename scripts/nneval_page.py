"""Put the tables of ``results/nneval/results.json`` behind the mark of ``docs/results/nneval.md``.

Example: python scripts/nneval_page.py
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from capbench.core.files import read_json, read_text, write_text  # noqa: E402
from scripts.nneval_tables import tables  # noqa: E402

PAGE = ROOT / "docs" / "results" / "nneval.md"
RESULTS = ROOT / "results" / "nneval" / "results.json"
MARK = "## All numbers\n"


def with_tables(page: str, rendered: str) -> str:
    """The page with rendered tables behind its mark. Raises ValueError if it has none."""
    text, mark, _ = page.partition(MARK)
    if not mark:
        raise ValueError(f"the page has no line '{MARK.strip()}'")
    return f"{text}{mark}\n{rendered}"


def main() -> None:
    """Write the page."""
    write_text(PAGE, with_tables(read_text(PAGE), tables(read_json(RESULTS))))
    print(f"{PAGE} is written")


if __name__ == "__main__":
    main()

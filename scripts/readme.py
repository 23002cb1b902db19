"""Write README's picture, its table of results and the numbers of its sentences from committed results.

python scripts/readme.py            # docs/assets/agreement.svg, README's table between two marks, and marked numbers
python scripts/readme.py --check    # exit code 1 if table or numbers differ from what the results give

Marks of numbers are those of ``scripts/page_numbers.py``. Their places are here, which keeps README short.

The results are written by these commands, with real judgements in ``CAPBENCH_DATA``::

    capbench compare bleu-1 bleu-4 rouge-l meteor cider spice FLEUR -d flickr8k-expert --scores FLEUR=FILE --json
    python scripts/leaderboard.py
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from capbench.core.files import atomic_write, read_text  # noqa: E402
from capbench.reports.leaderboard import shown_number  # noqa: E402
from capbench.studies.leaderboard import load_leaderboard  # noqa: E402
from scripts.page_numbers import with_marked_numbers  # noqa: E402

RESULTS = ROOT / "results"
PICTURE = ROOT / "docs" / "assets" / "agreement.svg"
MARKS = ("<!-- results: written by scripts/readme.py -->", "<!-- end of results -->")
COLUMNS = ("flickr8k-expert", "flickr8k-cf", "composite")
PLACES = """<!-- numbers
vilbertscore-gain: [results/image-contribution/results.json, expert, contributions, vilbertscore-f, mean, {times: -1}]
-->
"""


def table() -> str:
    """Rows of ``capbench leaderboard`` as Markdown, the best first: metrics with a number in
    each column, without second-hand numbers, and without metrics that no paper prints."""
    board = load_leaderboard(RESULTS / "leaderboard" / "leaderboard.json")
    columns = board.chosen(COLUMNS)
    heads = ["metric", *(f"{column.title} {column.statistic}" for column in columns)]
    rows = [
        [row.title, *(shown_number(row, column.name) for column in columns)]
        for row in board.sorted(COLUMNS[0])
        if all(name in row.printed and not row.printed[name].second_hand for name in COLUMNS)
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in [heads, ["---", *["---:"] * len(columns)], *rows])


def picture() -> None:
    """The forest plot of Flickr8k Expert."""
    from capbench.cli.app import app

    saved = RESULTS / "flickr8k-expert" / "comparison.json"
    app(["figure", "forest", "--from", str(saved), "--out", str(PICTURE)], standalone_mode=False)


def readme() -> str:
    """README's text with the table and the marked numbers as the results give them."""
    before, _, rest = read_text(ROOT / "README.md").partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    text = f"{before}{MARKS[0]}\n\n{table()}\n\n{MARKS[1]}{after}"
    return with_marked_numbers(text + PLACES).removesuffix(PLACES)


def main(arguments: list[str] | None = None) -> None:
    """Write both, or compare README."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare README, write nothing")
    if parser.parse_args(arguments).check:
        raise SystemExit(0 if readme() == read_text(ROOT / "README.md") else 1)
    with atomic_write(ROOT / "README.md", "w") as file:
        file.write(text := readme())
    picture()
    print(f"README.md: {len(text.split())} words")


if __name__ == "__main__":
    main()

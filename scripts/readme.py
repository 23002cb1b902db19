"""Write README's picture and its table of results from committed results.

python scripts/readme.py            # docs/assets/agreement.svg, and the table between README's two marks
python scripts/readme.py --check    # exit code 1 if the table differs from what the results give

The results are written by these commands, with real judgements in ``CAPBENCH_DATA``::

    capbench compare bleu-1 bleu-4 rouge-l meteor cider spice FLEUR -d flickr8k-expert --scores FLEUR=FILE --json
    capbench correlate tiger-table1
    capbench correlate within-source
    capbench train recipe flickr8k-grid
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from capbench.core.files import atomic_write, read_text  # noqa: E402
from capbench.studies.published import load_published  # noqa: E402

RESULTS = ROOT / "results"
PICTURE = ROOT / "docs" / "assets" / "agreement.svg"
MARKS = ("<!-- results: written by scripts/readme.py -->", "<!-- end of results -->")
COLUMNS = {
    "Flickr8k Expert": "flickr8k-expert/no-own-captions/unaggregated-tau-c",
    "Composite": "composite/same-text-out/correctness-tau-c",
}
MACHINE_ONLY = "composite/no-human/correctness-tau-c"


def _number(value: float, digits: int = 3) -> str:
    return f"{value:.{digits}f}".lstrip("0")


def _read(name: str) -> dict[str, Any]:
    return dict(json.loads(read_text(RESULTS / name)))


def table() -> str:
    """TIGEr's Table 1, Kendall's tau-c: our values next to the paper's, and on machine captions only, as Markdown."""
    machine = {
        cell["title"]: _number(cell["value"])
        for cell in _read("within-source/results.json")["cells"]
        if (cell["protocol"], cell["group"]) == (MACHINE_ONLY, "")
    }
    cells = [cell for cell in _read("tiger-table1/results.json")["cells"] if not cell["group"]]
    heads = [f"{head}, {whose}" for head in COLUMNS for whose in ("ours", "paper")]
    heads.append("Composite, machine captions")
    rows = [["metric", *heads], ["---", *["---:"] * len(heads)]]
    for title in dict.fromkeys(cell["title"] for cell in cells):
        found = {cell["protocol"]: cell for cell in cells if cell["title"] == title}
        if all(found[protocol]["value"] is not None for protocol in COLUMNS.values()):
            row = [title]
            for protocol in COLUMNS.values():
                cell = found[protocol]
                doubt = "" if not cell["published_note"] else "?" if cell["unexplained"] else "*"
                row += [_number(cell["value"]), _number(cell["published"]) + doubt]
            rows.append([*row, machine.get(title, "")])
    grid = _read("flickr8k-grid/results.json")
    ours = {part: grid[part]["tau-c"]["tiger, ensemble"] for part in ("expert", "composite-8k")}
    published = load_published("tiger-table1")
    expert, composite = (published.cell(column, "tiger") for column in ("flickr8k-tau", "composite-tau"))
    assert expert is not None
    assert composite is not None
    rows.append(
        [
            "TIGEr‡",
            _number(sum(ours["expert"]) / len(ours["expert"])),
            _number(expert.number),
            _number(sum(ours["composite-8k"]) / len(ours["composite-8k"])),
            _number(composite.number),
            "",
        ]
    )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def picture() -> None:
    """The forest plot of Flickr8k Expert."""
    from capbench.cli.app import app

    saved = RESULTS / "flickr8k-expert" / "comparison.json"
    app(["figure", "forest", "--from", str(saved), "--out", str(PICTURE)], standalone_mode=False)


def readme() -> str:
    """README's text with the table as the results give it."""
    before, _, rest = read_text(ROOT / "README.md").partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    return f"{before}{MARKS[0]}\n\n{table()}\n\n{MARKS[1]}{after}"


def main(arguments: list[str] | None = None) -> None:
    """Write both, or compare the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare the table, write nothing")
    if parser.parse_args(arguments).check:
        raise SystemExit(0 if readme() == read_text(ROOT / "README.md") else 1)
    with atomic_write(ROOT / "README.md", "w") as file:
        file.write(text := readme())
    picture()
    print(f"README.md: {len(text.split())} words")


if __name__ == "__main__":
    main()

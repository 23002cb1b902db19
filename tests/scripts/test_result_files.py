"""Committed result files: each names what produced its numbers, or is listed as one that does not."""

from __future__ import annotations

import re
from pathlib import Path

from capbench.core.files import read_text

RESULTS = Path(__file__).parents[2] / "results"
MADE_BY = re.compile(r'"[\w-]+\|capbench:[^"]+"|"(?:sha256:)?[0-9a-f]{64}"|"[0-9a-f]{16}"')
"""A signature, or the SHA-256 of a file, whole or its first 16 digits."""


def listed() -> list[str]:
    """Files that the list of results/README.md names."""
    section = read_text(RESULTS / "README.md").partition("\n## ")[2]
    return [
        f"{folder}/{file}"
        for folder, files in re.findall(r"^- `([\w-]+)/`: (.*)$", section, re.MULTILINE)
        for file in re.findall(r"`([\w.-]+\.json)`", files)
    ]


def test_every_file_names_what_produced_it_or_is_listed_and_none_does_both() -> None:
    files = {path.relative_to(RESULTS).as_posix(): path for path in RESULTS.glob("*/*.json")}
    without = {
        name
        for name, path in files.items()
        if not name.startswith("leaderboard/") and not MADE_BY.search(read_text(path))
    }
    assert len(listed()) == len(set(listed()))
    assert without == set(listed())

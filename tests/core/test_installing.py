"""No hint asks an index for capbench itself."""

from __future__ import annotations

import re
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "capbench"


def test_no_hint_asks_an_index_for_capbench_itself() -> None:
    asking = re.compile(r"pip install ['\"]?capbench\b|pip install -[^\n`]* capbench\b|_INSTALL} capbench")
    files = [*PACKAGE.rglob("*.py"), *(PACKAGE.parent / "docs").glob("*.md"), PACKAGE.parent / "README.md"]
    assert [str(file) for file in files if asking.search(file.read_text(encoding="utf-8"))] == []

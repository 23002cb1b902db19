"""Texts that reports write, one file for each format; ``REWRITE_GOLDEN=1 pytest tests/reports`` writes them anew."""

from __future__ import annotations

import os
from pathlib import Path


def assert_golden(name: str, text: str) -> None:
    """A text is that of the file next to this module."""
    path = Path(__file__).with_name(name)
    if os.environ.get("REWRITE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")

"""Phrases without any good use: each with its replacement. ``python -m tests.test_language PATH`` lists them."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHECKED = ("capbench", "configs", "docs", "scripts", "README.md", "CONTRIBUTING.md", "CHANGELOG.md")
"""Files and folders whose text is checked."""

PHRASES = {
    r"\bwaits for\b": "requires; missing:",
    r"\bstands? beside\b|\bprinted beside\b": "is printed next to; is compared with",
    r"(?<!there )\b(?:is|are) no (?!longer\b|more\b|less\b|better\b|worse\b)": "is not a",
    r"\bat hand\b": "available; installed",
    r"\bmend(?:s|ed|ing)?\b(?!\"?:)": "fix",
    r"\bmade-up judgements\b": "pseudo-judgements",
    r"\bas ever\b|\bas always\b": "unchanged",
    r"\bin one's own words\b|\bof one's own\b": "custom; user-defined",
    r"\bgoes with both\b": "applies to both",
    r"\bgoes on where it was\b": "resumes",
    r"\btaken (?:back|out)\b": "removed",
    r"\b(?:is|are|was|were) refused\b": "is rejected; raises",
    r"\bpeople's (?:captions|ratings)\b": "human captions; human ratings",
    r"\bmachines' captions\b": "machine captions",
    r"\bruined captions\b": "corrupted captions",
    r"\bis told in\b": "see",
    r"\blooks? at dev\b": "evaluations on the dev set",
    r"\basked for\b": "requested",
    r"\bnumbers? that (?:is|are) none\b": "NaN and infinity",
    r"\bthe light way\b": "the text-only installation",
    r"\blearnt\b(?![\":])": "learned",  # but "learnt" is a key in signatures
    r"\b(?:told|tell|tells|telling) (?:[\w ]+ )?apart\b": "distinguish",
    r"\ba page of it\b": "a report",
    r"\bhangs? on (?:what|which|how)\b": "depends on",
    r"\bpeople agree\b|\bagreement with people\b": "agreement between human raters; with human ratings",
}
"""Pattern → what to write instead."""

OPENING = re.compile(r"(?:What|How|Whether|Which|Where|When|Why|Who|Whose)\b")


def openings(path: Path) -> Iterator[tuple[int, str]]:
    """Docstrings that open with a question word."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring and OPENING.match(docstring):
                yield getattr(node, "lineno", 1), docstring.splitlines()[0]


def problems(paths: Iterable[Path]) -> Iterator[str]:
    """Each phrase found, with file, line and replacement."""
    for path in paths:
        text = path.read_text(encoding="utf-8")
        lower = text.lower()
        found_here = {pattern: PHRASES[pattern] for pattern in PHRASES if re.search(pattern, lower)}
        for number, line in enumerate(text.splitlines() if found_here else (), start=1):
            for pattern, replacement in found_here.items():
                if found := re.search(pattern, line, flags=re.IGNORECASE):
                    yield f"{path}:{number}: {found[0]!r}: write {replacement!r}"
        if path.suffix == ".py":
            for number, line in openings(path):
                yield f"{path}:{number}: a docstring opens with a question: {line!r}: name the thing, or 'True if ...'"


def files(places: Iterable[str | Path]) -> list[Path]:
    """Python, Markdown and YAML files below some places."""
    found: list[Path] = []
    for place in map(Path, places):
        found += [place] if place.is_file() else sorted(place.rglob("*"))
    return [path for path in found if path.suffix in {".py", ".md", ".yaml"} and path.is_file()]


def test_the_text_is_plain_english() -> None:
    assert list(problems(files(ROOT / place for place in CHECKED))) == []


if __name__ == "__main__":
    print(*problems(files(sys.argv[1:])), sep="\n")

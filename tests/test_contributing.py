"""Files and names in CONTRIBUTING.md exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
CODE = re.compile(r"`([^`\n]+)`")
GENERATED = {"docs/cli/", "build/site", "dist/", "build/"}
PATHS = sorted({word for word in CODE.findall(TEXT) if re.fullmatch(r"[\w./-]*/[\w./-]*", word)} - GENERATED)
CALLS = sorted({word for word in CODE.findall(TEXT) if re.fullmatch(r"[A-Za-z_]\w*(\.\w+)*(\([\w, ]*\))?", word)})


@pytest.mark.parametrize("path", PATHS)
def test_every_path_exists(path: str) -> None:
    assert (ROOT / path).exists() or (ROOT / "capbench" / path).exists(), path


def test_every_name_occurs_in_the_code() -> None:
    places = [*ROOT.glob("capbench/**/*.py"), *ROOT.glob("scripts/**/*.py"), *ROOT.glob("tests/*.py")]
    places += [ROOT / name for name in ("pyproject.toml", "Makefile", ".github/workflows/ci.yml", "tests/faults.yaml")]
    code = "\n".join(path.read_text(encoding="utf-8") for path in places)
    words = set(re.findall(r"\w+", code)) | {path.name for path in ROOT.glob("capbench/*")}
    named = {word.partition("(")[0] for word in CALLS} - {"vX.Y.Z"}
    assert [word for word in named if not set(word.split(".")) <= words] == []

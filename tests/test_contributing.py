"""Files and names in CONTRIBUTING.md exist."""

from __future__ import annotations

import ast
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


def test_public_methods_have_a_docstring_or_inherit_one() -> None:
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in ROOT.glob("capbench/**/*.py")]
    classes = [node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    bases: dict[str, set[str]] = {}
    said: dict[str, set[str]] = {}
    for cls in classes:
        names = {ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in cls.bases}
        bases.setdefault(cls.name, set()).update(names)
        methods = [node for node in cls.body if isinstance(node, ast.FunctionDef)]
        said.setdefault(cls.name, set()).update(method.name for method in methods if ast.get_docstring(method))

    def inherited(name: str) -> set[str]:
        return said.get(name, set()).union(*(inherited(base) for base in bases.get(name, set()) - {name}))

    missing = [
        f"{cls.name}.{node.name}"
        for cls in classes
        if not cls.name.startswith("_") and "Protocol" not in bases[cls.name]
        for node in cls.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
        if node.name not in inherited(cls.name)
    ]
    assert not missing, missing

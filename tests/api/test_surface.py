"""What ``import capbench`` costs, offers, and tells a type checker."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import capbench

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
from collections.abc import Sequence

import capbench
from capbench import Item


def overlap(image: str, candidate: str, references: Sequence[str]) -> float:
    return float(len(candidate))


def together(items: list[Item]) -> list[float]:
    return [float(len(item.candidate)) for item in items]


result = capbench.correlate(
    "flickr8k-expert", metrics=["cider", overlap, together], bootstrap=1000, compare="permutation"
)
value: float = result.value("cider")
score: float = capbench.score({"a": "a dog"}, {"a": ["a dog runs"]}, {"mine": overlap}).corpus_score("mine")
items: tuple[Item, ...] = capbench.load("composite").items
"""


def test_importing_it_imports_nothing_else() -> None:
    code = "import __future__, sys; before = set(sys.modules); import capbench; print(*set(sys.modules) - before)"
    told = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.strip() == "capbench"


def test_names_are_listed_and_there() -> None:
    assert set(capbench.__all__) <= set(dir(capbench))
    for name in capbench.__all__:
        assert getattr(capbench, name).__doc__ or name in ("Progress", "__version__")
    with pytest.raises(AttributeError, match="no attribute 'scor'"):
        capbench.scor  # type: ignore[attr-defined]  # noqa: B018


def test_every_lazy_name_is_one_that_type_checkers_see() -> None:
    source = (ROOT / "capbench" / "__init__.py").read_text(encoding="utf-8")
    (block,) = [n for n in ast.parse(source).body if isinstance(n, ast.If) and isinstance(n.test, ast.Name)]
    seen = {a.name: n.module for n in block.body if isinstance(n, ast.ImportFrom) for a in n.names}
    assert seen == capbench._HOMES


@pytest.mark.slow
def test_a_users_script_passes_strict_type_checks(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy is not installed")
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    (tmp_path / "wrong.py").write_text(
        "import capbench\nx: str = capbench.correlate('a', 3).value(1)\n", encoding="utf-8"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml")]
    # The project's own cache: without it this takes a minute.
    command += ["--cache-dir", str(ROOT / ".mypy_cache"), "--python-executable", sys.executable]
    ran = subprocess.run([*command, "script.py", "wrong.py"], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    # Stubs of other packages may hold what an older mypy does not know; nothing else may be wrong.
    errors = [line for line in ran.stdout.splitlines() if "error:" in line and "site-packages" not in line]
    assert [line.partition(":")[0] for line in errors] == ["wrong.py"] * 3, ran.stdout + ran.stderr

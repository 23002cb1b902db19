"""The Python examples of docs/python.md, of a tutorial and of the notebook run as printed, on the sample."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import capbench

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "examples" / "python.ipynb"


def shown(source: str, namespace: dict[str, Any]) -> Any:
    """Run a cell as a notebook does; gives the value of its last expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<cell>", "exec"), namespace)
    return (
        eval(compile(ast.Expression(last.value), "<cell>", "eval"), namespace) if isinstance(last, ast.Expr) else None
    )


def test_the_examples_of_the_page_run_one_after_the_other(
    sample_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(sample_store, tmp_path)  # to which the example adds nothing: the extraction takes seconds
    monkeypatch.setenv("CAPBENCH_HOME", str(tmp_path / "home"))
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 13
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks:
        shown(block, namespace)
    assert namespace["result"].sample
    assert namespace["comparison"].to_frame()["rank"].iloc[0] == 1
    assert namespace["pairs"].draw == 1
    assert namespace["systems"].baseline == "old"
    assert namespace["systems"].worse() == []
    assert Path("text.json").is_file()
    assert (namespace["mine"].items, dict(namespace["mine"].human)) == (3, {"rating": 3})
    assert namespace["store"].stored == 300
    assert namespace["explained"].files == ()
    assert len(namespace["explained"].explanation.candidates) == 1


def test_the_notebook_is_one_and_its_cells_run_in_order() -> None:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    values = [shown("".join(cell["source"]), namespace) for cell in code]
    pages = [value._repr_html_() for value in values if hasattr(value, "_repr_html_")]
    assert len(pages) >= 5
    for name in ("judgements", "result", "table"):
        assert "embedded synthetic sample" in namespace[name]._repr_html_()


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


def test_it_can_be_imported_from_a_zip_file(tmp_path: Path) -> None:
    archive = tmp_path / "capbench.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for name in ("__init__.py", "__init__.pyi"):
            packed.write(ROOT / "capbench" / name, f"capbench/{name}")
    names = "print(capbench.__file__, *capbench.__all__)"
    code = f"import sys; sys.path.insert(0, {str(archive)!r}); import capbench; {names}"
    told = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.split() == [str(archive / "capbench" / "__init__.py"), *capbench.__all__]


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

"""The Python examples of docs/python.md, of a tutorial and of the notebook run as printed, on the sample."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

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


def test_the_examples_of_the_page_run_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
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
    assert namespace["combination"].saved == Path("text.json")
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

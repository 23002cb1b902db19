"""The table of layers in CONTRIBUTING.md, held against every import: none goes upward, and none in a circle."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import capbench

ROOT = Path(__file__).parents[1]


def layers() -> list[str]:
    """The first column of the table, from the lowest layer to the highest."""
    table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("| layer |")[2].partition("\n\n")[0]
    return re.findall(r"^\| `(\w+)/?`", table, flags=re.MULTILINE)


def layer_of(module: str) -> str:
    """The folder or file right below ``capbench`` that a module is in."""
    return module.split(".")[1]


@cache
def imports() -> dict[str, set[str]]:
    """What each module imports of the package, wherever in the file: in functions and for type checkers, too.

    Except methods of results, which may import the reports that write them.
    """
    folder = Path(capbench.__file__).parent
    names = {path: ".".join(path.relative_to(folder.parent).with_suffix("").parts) for path in folder.rglob("*.py")}
    modules = {name.removesuffix(".__init__"): path for path, name in names.items()}

    def imported(path: Path) -> Iterator[str]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and path.parent.name == "studies"]
        methods = [node for of in classes for node in of.body if isinstance(node, ast.FunctionDef)]
        lazily = {node for method in methods for node in ast.walk(method)}
        for node in ast.walk(tree):
            if node in lazily and isinstance(node, ast.ImportFrom) and str(node.module).startswith("capbench.reports."):
                continue
            if isinstance(node, ast.ImportFrom):
                assert not node.level, f"{path}: relative imports hide what is imported"
                for whole in (f"{node.module}.{alias.name}" for alias in node.names):
                    yield whole if whole in modules else str(node.module)
            elif isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)

    return {name: {found for found in imported(path) if found in modules} for name, path in modules.items()}


def circles(graph: dict[str, set[str]]) -> set[tuple[str, ...]]:
    """Groups of modules each of which reaches all others of its group."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        seen: set[str] = set()
        waiting = list(graph[start])
        while waiting:
            if (module := waiting.pop()) not in seen:
                seen.add(module)
                waiting += graph[module]
        reached[start] = seen
    return {
        tuple(sorted({other for other in reached[module] if module in reached[other]}))
        for module in graph
        if module in reached[module]
    }


def within() -> dict[str, set[str]]:
    """The imports between the layers' modules.

    Two files belong to no layer, and no layer may need them: ``capbench`` itself, which hands out names of every layer,
    and has the version that every layer prints; ``__main__``, which calls the command line.
    """
    outside = {"capbench", "capbench.__main__"}
    graph = {name: found - {"capbench"} for name, found in imports().items() if name not in outside}
    assert {(name, other) for name, found in graph.items() for other in found & outside} == set()
    return graph


def test_the_table_names_what_the_package_holds() -> None:
    known = layers()
    assert len(known) == len(set(known)) > 0
    assert {layer_of(name) for name in within()} == set(known)


def test_the_main_module_calls_the_command_line_alone() -> None:
    assert imports()["capbench.__main__"] == {"capbench.cli.app"}


def test_no_import_goes_upward() -> None:
    place = {layer: number for number, layer in enumerate(layers())}
    found = {
        (name, other)
        for name, others in within().items()
        for other in others
        if place[layer_of(other)] > place[layer_of(name)]
    }
    assert found == set()


def test_no_modules_import_each_other() -> None:
    assert circles(within()) == set()

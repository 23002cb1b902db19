"""Write ``requirements/*.txt``: the dependencies of pyproject.toml without PyTorch, for commands that need no networks.

python scripts/make_requirements.py
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from capbench.core.files import atomic_write, read_text  # noqa: E402

FOLDER = ROOT / "requirements"
NETWORKS = ("torch", "torchvision")
"""Packages that only networks need."""
OVER_NETWORKS = ("bert-score", "transformers")
"""Packages of the tests that are used with networks alone; the first would bring PyTorch along."""
_HEADS = {
    "text.txt": "What capbench needs, but PyTorch",
    "text-tests.txt": "What the tests need beside text.txt",
}


def requirements() -> dict[str, str]:
    """The files' texts by name: pyproject.toml's bounds, as they stand there.

    Raises ValueError if pyproject.toml lists one of the networks' packages no longer.
    """
    project = tomllib.loads(read_text(ROOT / "pyproject.toml"))["project"]
    needed = project["dependencies"]
    without = [line for line in needed if _package(line) not in NETWORKS]
    if len(without) != len(needed) - len(NETWORKS):
        raise ValueError(f"pyproject.toml does not list {' and '.join(NETWORKS)} once each")
    for_tests = [line for line in project["optional-dependencies"]["dev"] if _package(line) not in OVER_NETWORKS]
    lines_by_name = {"text.txt": without, "text-tests.txt": for_tests}
    return {name: _text(_HEADS[name], lines) for name, lines in lines_by_name.items()}


def _package(requirement: str) -> str:
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name is not None, requirement
    return name[0].lower()


def _text(head: str, lines: list[str]) -> str:
    note = f"# {head}. Written by scripts/make_requirements.py from pyproject.toml.\n"
    return note + "".join(f"{line}\n" for line in lines)


def main() -> None:
    """Write the files."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in requirements().items():
        with atomic_write(FOLDER / name, "w") as file:
            file.write(text)
        print(f"{FOLDER / name} is written")


if __name__ == "__main__":
    main()

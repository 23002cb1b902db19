"""Commands that install a package which is not here, with the bounds that capbench declares for it."""

from __future__ import annotations

import re

__all__ = ["install_command"]


def install_command(*packages: str) -> str:
    """The one line that adds packages, also where capbench itself was not installed from an index.

    >>> install_command("a-package-that-capbench-does-not-name")
    "pip install 'a-package-that-capbench-does-not-name'"
    """
    import importlib.metadata  # here, for every start of the program would pay for it

    try:
        declared = importlib.metadata.requires("capbench") or []
    except importlib.metadata.PackageNotFoundError:  # run from a folder, not installed
        declared = []
    bounds: dict[str, str] = {}
    for line in declared:
        requirement = line.partition(";")[0].strip()
        bounds.setdefault(re.split(r"[^A-Za-z0-9._-]", requirement)[0], requirement)
    return "pip install " + " ".join(f"'{bounds.get(name, name)}'" for name in packages)

"""The code of a source checkout."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

_IMPORT = re.compile(
    rb"(?:from|import) (capbench\.(?:text|weights|features|metrics)\b[\w.]*)(?: import (\([^)]*\)|.*))?"
)
"""An import of a module that may compute scores, with the imported names."""
_COMPUTE_NOTHING = frozenset(f"capbench.metrics.{name}" for name in ("abilities", "base", "needs", "registry"))
"""Modules of the contract of metrics, which refer to all others."""


@cache
def code_digest(*modules: str) -> str:
    """16 digits of the SHA-256 of the source of modules and of all that they compute with; ``""`` if installed."""
    if {"site-packages", "dist-packages"} & set(Path(__file__).parts):
        return ""
    sources: dict[str, bytes] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name not in sources and name not in _COMPUTE_NOTHING:
            sources[name], imported = _source(name)
            waiting += imported
    return hashlib.sha256(b"".join(name.encode() + source for name, source in sorted(sources.items()))).hexdigest()[:16]


@cache
def _source(module: str) -> tuple[bytes, frozenset[str]]:
    """The SHA-256 of a module's file, empty if the name is not that of a module, and the names that it imports."""
    path = Path(__file__).parents[2].joinpath(*module.split("."))
    for file in (path / "__init__.py", path.with_suffix(".py")):
        if file.is_file():
            text = file.read_bytes()
            imported = set[bytes]()
            for origin, names in _IMPORT.findall(text):
                # A name imported from a package may be a module.
                imported |= {origin, *(b".".join((origin, name)) for name in re.findall(rb"\w+", names))}
            return hashlib.sha256(text).digest(), frozenset(map(bytes.decode, imported))
    return b"", frozenset()

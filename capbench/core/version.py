"""The version of capbench, and the commit and the code of a source checkout."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

from capbench import __version__

_IMPORT = re.compile(
    rb"(?:from|import) (capbench\.(?:text|weights|features|metrics)\b[\w.]*)(?: import (\([^)]*\)|.*))?"
)
"""An import of a module that may compute scores, with the imported names."""
_COMPUTE_NOTHING = frozenset(f"capbench.metrics.{name}" for name in ("abilities", "base", "needs", "registry"))
"""Modules of the contract of metrics, which refer to all others."""


def version_text(checkout: Path | None = None) -> str:
    """The version for bug reports: ``0.3.0``, or ``0.3.0 (commit 60b455da7)`` in a source checkout."""
    root = Path(__file__).resolve().parents[2] if checkout is None else checkout
    folder = root / ".git"  # a file in a linked worktree
    if not folder.exists():
        return __version__
    import subprocess

    # The explicit folder overrides GIT_DIR, which git sets in hooks; without locks, nothing is written.
    git = ["git", "--no-optional-locks", f"--git-dir={folder}", f"--work-tree={root}"]
    describe = [*git, "describe", "--always", "--dirty", "--abbrev=9", "--exclude=*"]
    try:
        ran = subprocess.run(describe, capture_output=True, text=True, timeout=10, check=True, cwd=root)
    except (OSError, subprocess.SubprocessError):  # no git, or no commit
        return __version__
    return f"{__version__} (commit {ran.stdout.strip()})"


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

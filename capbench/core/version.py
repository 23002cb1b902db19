"""The version of capbench, and the commit of a source checkout."""

from __future__ import annotations

from pathlib import Path

from capbench import __version__


def version_text(checkout: Path | None = None) -> str:
    """The version for bug reports: ``0.2.0``, or ``0.2.0 (commit 60b455da7)`` in a source checkout.

    ``-dirty`` follows the commit if tracked files differ from it.

    Args:
        checkout: the folder of the checkout; by default the folder that contains the package.
    """
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

"""Compiling what the reports give for LaTeX."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

needs_pdflatex = pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")


def assert_compiles(body: str, folder: Path) -> None:
    """Compile a document that holds nothing else."""
    document = r"\documentclass{article}\usepackage{booktabs,threeparttable}\begin{document}" + body + r"\end{document}"
    (folder / "t.tex").write_text(document, encoding="utf-8")
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"],
        cwd=folder,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout.decode()[-2000:]

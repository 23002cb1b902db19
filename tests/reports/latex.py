"""Compiling what the reports give for LaTeX, and what can be said of it where LaTeX is not installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

needs_pdflatex = pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
_ESCAPED = re.compile(r"\\[\\%&$#_{}]")


def assert_compiles(body: str, folder: Path) -> None:
    """Compile a document that holds nothing else."""
    document = r"\documentclass{article}\usepackage{booktabs,graphicx}\begin{document}" + body + r"\end{document}"
    (folder / "t.tex").write_text(document, encoding="utf-8")
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"],
        cwd=folder,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout.decode()[-2000:]


def assert_well_formed(body: str) -> None:
    """See to it that environments nest, braces and ``$`` close on their line, rows have as many cells as the table has
    columns, no text after a row, a rule or ``\\item`` is read as its argument, and every mark of a footnote has one
    footnote of its table, and the other way round."""
    open_environments: list[str] = []
    for line in body.splitlines():
        if line.startswith("%"):
            continue
        plain = _ESCAPED.sub("", line.replace("}{!}{%", "}{!}").replace(r"\end{tabular}}", r"\end{tabular}"))
        assert plain.count("{") == plain.count("}"), line
        assert plain.count("$") % 2 == 0, line
        assert not re.search(r"[#%]", plain), line
        assert "_" not in re.sub(r"\$[^$]*\$|\\(?:label|ref)\{[^}]*\}", "", plain), line
        for verb, name in re.findall(r"\\(begin|end)\{(\w+\*?)\}", line):
            if verb == "begin":
                open_environments.append(name)
            else:
                assert open_environments.pop() == name, line
    assert not open_environments
    argument = re.search(r"(?:\\\\|\\(?:top|mid|bottom)rule)\s*[*\[]|\\item\s+\[", body)
    assert argument is None, body[argument.start() :][:80]
    for table in re.findall(r"\\begin\{table\*?\}.*?\\end\{table\*?\}", body, flags=re.DOTALL):
        (widths,) = re.findall(r"\\begin\{tabular\}\{((?:[^{}]|\{[^{}]*\})+)\}", table)
        columns = re.sub(r"[@>]?\{[^{}]*\}", "", widths)
        rows = [line for line in table.splitlines() if line.endswith(r"\\")]
        assert rows, table
        for row in rows:
            cells = 0
            for cell in re.split(r"(?<!\\)&", row):
                spans = re.findall(r"\\multicolumn\{(\d+)\}", cell)
                cells += int(spans[0]) if spans else 1
            assert cells == len(columns), row
        body, _, notes = table.partition(r"\end{tabular}")
        marks, below = (re.findall(r"\\textsuperscript\{([a-z]+)\}", part) for part in (body, notes))
        assert len(below) == len(set(below)), below
        assert set(marks) == set(below), (marks, below)

"""Writes a result to its folder: CSV, JSON, Markdown and LaTeX."""

from __future__ import annotations

from pathlib import Path

from capbench.files import lock, write_text
from capbench.reports.markup import comparisons_to_csv, to_csv, to_latex, to_markdown
from capbench.studies.results import StudyResult

__all__ = ["write_result"]


def write_result(
    result: StudyResult, folder: Path, *, escape_formulas: bool = False, by_source: bool = True
) -> list[Path]:
    """Write ``results.{json,csv,md,tex}`` into a folder and return their paths.

    With tests between metrics there is ``comparisons.csv``, too, a line a pair; without them an earlier run's is
    removed. Each file is replaced as a whole, and two runs that write the same folder take turns, so that the files
    belong to one run.

    Args:
        result: the result.
        folder: made if it is not there.
        escape_formulas: for CSV files, see :func:`capbench.csv_text.csv_text`.
        by_source: whether Markdown and LaTeX have the tables by source; the other files hold all numbers.

    Raises:
        UsageError: a file cannot be written.
    """
    texts = {
        "results.json": result.model_dump_json(indent=2) + "\n",
        "results.csv": to_csv(result, escape_formulas=escape_formulas),
        "results.md": to_markdown(result, by_source=by_source),
        "results.tex": to_latex(result, by_source=by_source),
    }
    if result.comparisons:
        texts["comparisons.csv"] = comparisons_to_csv(result, escape_formulas=escape_formulas)
    with lock(folder / ".results"):
        if not result.comparisons:
            (folder / "comparisons.csv").unlink(missing_ok=True)
        for name, text in texts.items():
            write_text(folder / name, text)
    return [folder / name for name in texts]

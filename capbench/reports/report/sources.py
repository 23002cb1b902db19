"""What a report is made of: results, with the items behind them where they are at hand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from capbench.analyses.explained_captions import Explainer
from capbench.errors import DataError, MissingFileError
from capbench.files import sha256_file
from capbench.studies.item_scores import ItemScores, items_beside, load_items
from capbench.studies.results import StudyResult, load_result

__all__ = ["ReportSource", "SourceFile", "read_source"]


@dataclass(frozen=True)
class SourceFile:
    """A file that a report was made from.

    Attributes:
        path: as the user named it.
        sha256: of its content.
    """

    path: str
    sha256: str


@dataclass(frozen=True)
class ReportSource:
    """One study of a report.

    Attributes:
        result: its numbers.
        items: the items behind them; none where they were not kept.
        files: the files that both are from; none if they never were in files.
        explainers: what explains its metrics; none where that was not asked for.
    """

    result: StudyResult
    items: tuple[ItemScores, ...] = ()
    files: tuple[SourceFile, ...] = ()
    explainers: tuple[Explainer, ...] = ()


def read_source(path: str | Path) -> ReportSource:
    """Read a ``results.json``, or the folder that holds one, and ``items.json.gz`` beside it where it is.

    Raises:
        MissingFileError: there is no such file.
        DataError: it is no result file, or the items beside it are of another study.
    """
    results = Path(path)
    if results.is_dir():
        results = results / "results.json"
    try:
        result = load_result(results)
    except MissingFileError as error:
        hint = "Give results.json, which 'capbench correlate ... --out DIR' writes, or its folder"
        raise MissingFileError("there are no results", path=results, hint=hint) from error
    files = [SourceFile(str(results), sha256_file(results))]
    items: tuple[ItemScores, ...] = ()
    beside = items_beside(results)
    if beside.is_file():
        items = load_items(beside)
        ids = {info.id for info in result.protocols}
        strange = [name for table in items for name in table.protocols if name not in ids]
        if strange:
            raise DataError(
                f"holds items of {strange[0]}, which {results.name} beside it does not have",
                path=beside,
                hint="Remove it, or make both files again with 'capbench correlate ... --out DIR --items'",
            )
        files.append(SourceFile(str(beside), sha256_file(beside)))
    return ReportSource(result, items, tuple(files))

"""Writes score tables, in one long schema: a row for each item and column of a metric."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from capbench.csv_text import without_formula
from capbench.errors import UsageError
from capbench.files import atomic_write
from capbench.records import ScoreTable, references_hash

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COLUMNS", "check_ending", "to_frame", "write_scores"]

COLUMNS = ("dataset", "image", "candidate_id", "candidate", "references", "metric", "column", "value", "signature")
"""The schema. ``references`` is the hash of the item's references; ``value`` is a number, the rest is text."""

_ENDINGS = (".csv", ".jsonl", ".parquet")


def to_frame(table: ScoreTable) -> pd.DataFrame:
    """A table of scores as a long data frame with the columns :data:`COLUMNS`.

    Items in their order, for one metric column after the other. An item that stands in the table several
    times (same image, candidate and references) has one row.
    """
    import pandas as pd

    places = _places(table)
    items = [table.items[i] for i in places]
    base = {
        "dataset": [table.dataset] * len(items),
        "image": [item.image for item in items],
        "candidate_id": [item.candidate_id for item in items],
        "candidate": [item.candidate for item in items],
        "references": [references_hash(item.references) for item in items],
    }
    parts = [
        pd.DataFrame(
            {
                **base,
                "metric": key.label,
                "column": key.column,
                "value": values[np.array(places, dtype=np.int64)],
                "signature": table.signatures[key.label],
            }
        )
        for key, values in table.values.items()
    ]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=list(COLUMNS))


def write_scores(table: ScoreTable, path: str | Path, *, escape_formulas: bool = False) -> None:
    """Write scores as ``.csv``, ``.jsonl`` or ``.parquet``; the file appears whole or not at all.

    Values are written with all their digits.

    Args:
        table: the scores.
        path: the file.
        escape_formulas: in CSV, put an apostrophe before texts that begin with ``=``, ``+``, ``-``, ``@``, a tab or a
            carriage return, which spreadsheets take for formulas. The texts are then no longer those that were scored.

    Raises:
        UsageError: another ending, or it cannot be written.
    """
    path = Path(path)
    ending = check_ending(path)
    if ending == ".parquet":
        frame = to_frame(table)
        with atomic_write(path, "wb") as stream:
            frame.to_parquet(stream, index=False)
        return
    with atomic_write(path) as stream:
        if ending == ".csv":
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(COLUMNS)
            for row in _rows(table):
                writer.writerow(map(without_formula, row) if escape_formulas else row)
        else:
            for row in _rows(table):
                stream.write(json.dumps(dict(zip(COLUMNS, row, strict=True)), ensure_ascii=False, allow_nan=False))
                stream.write("\n")


def _places(table: ScoreTable) -> list[int]:
    """Where each item stands first; its label is part of it: two names for one caption are two rows."""
    places: dict[tuple[bytes, str], int] = {}
    for i, item in enumerate(table.items):
        places.setdefault((item.key, item.candidate_id), i)
    return list(places.values())


def _rows(table: ScoreTable) -> Iterator[tuple[str | float, ...]]:
    """The rows of :func:`to_frame`, without pandas, which takes longer to import than most tables to write."""
    places = _places(table)
    hashes = [references_hash(table.items[i].references) for i in places]
    for key, values in table.values.items():
        signature = table.signatures[key.label]
        for i, references, value in zip(places, hashes, values[places].tolist(), strict=True):
            item = table.items[i]
            yield (
                *(table.dataset, item.image, item.candidate_id, item.candidate, references),
                *(key.label, key.column, value, signature),
            )


def check_ending(path: Path) -> str:
    """The ending of a file of scores. Raises UsageError if scores are not kept in such files."""
    ending = path.suffix.lower()
    if ending not in _ENDINGS:
        raise UsageError(f"'{path.name}': scores are not kept in '{ending}' files", hint=f"Use {', '.join(_ENDINGS)}")
    return ending

"""A user's own captions for ``capbench score``: from files or standard input, and limits for their corpus scores."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from capbench.cli import common
from capbench.errors import CapbenchError, UsageError, suggest

if TYPE_CHECKING:
    from capbench.datasets.user.captions import UserCaptions
    from capbench.metrics.requests import Row
    from capbench.records import Item, ScoreTable

__all__ = ["below_limits", "own_items", "parse_limits"]

_STDIN = "standard input"


def own_items(candidates: Path, references: Path | None) -> tuple[tuple[Item, ...], str]:
    """Items of a user's files and a name for them; images of the references without a candidate are told on stderr.

    Args:
        candidates: the captions; ``-`` for standard input.
        references: their references; None where all metrics do without.

    Raises:
        MissingFileError, DataError: as :func:`capbench.datasets.user.captions.read_captions` does.
    """
    from capbench.datasets.user.captions import note_without_candidate, read_captions

    if str(candidates) == "-":
        (items, missing_images), name = _from_stdin(references), "stdin"
    else:
        (items, missing_images), name = read_captions(candidates, references), candidates.stem
    note = note_without_candidate(missing_images)
    if note:
        common.note(note)
    return items, name


def _from_stdin(references: Path | None) -> UserCaptions:
    """The captions on standard input: a JSON list, one object a line, or one caption a line."""
    from capbench.datasets.user.captions import read_captions

    content = sys.stdin.buffer.read()
    first = content.lstrip()[:1]
    ending = {b"[": "json", b"{": "jsonl"}.get(first, "txt")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / f"candidates.{ending}"
        copy.write_bytes(content)
        try:
            return read_captions(copy, references)
        except CapbenchError as error:
            message = error.message.replace(str(copy), _STDIN)
            path = _STDIN if error.path == str(copy) else error.path
            raise type(error)(message, path=path, row=error.row, hint=error.hint) from error


def parse_limits(texts: Sequence[str], rows: Sequence[Row]) -> dict[str, float]:
    """Parse ``--fail-under`` arguments, ``METRIC=VALUE``: the least corpus score by the row's name.

    Raises:
        UsageError: one is not of that form, is no finite number, names no row, or names one twice.
    """
    import math

    # A label means its first column, unless a row has that name.
    names = {row.key.label: row.name for row in reversed(rows)} | {row.name: row.name for row in rows}
    limits: dict[str, float] = {}
    for text in texts:
        name, _, value = text.rpartition("=")
        try:
            limit = float(value)
        except ValueError:
            limit = math.nan
        if not name or not math.isfinite(limit):
            raise UsageError(f"--fail-under {text}: not of the form METRIC=VALUE", hint="Example: cider=1.1")
        if name not in names:
            raise UsageError(f"--fail-under {text}: '{name}' is not scored", hint=suggest(name, list(names)))
        if names[name] in limits:
            raise UsageError(f"--fail-under {text}: a second limit for '{names[name]}'", hint="Give one")
        limits[names[name]] = limit
    return limits


def below_limits(table: ScoreTable, rows: Sequence[Row], limits: dict[str, float]) -> list[str]:
    """A line for every corpus score that is lower than its limit."""
    return [
        f"{row.name}: the corpus score {table.corpus[row.key]:.6g} is below {limits[row.name]:g}"
        for row in rows
        if row.name in limits and table.corpus[row.key] < limits[row.name]
    ]

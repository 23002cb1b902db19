"""Results as data: what a study measured, in a typed schema with a version, readable for good.

``results.json`` holds one :class:`StudyResult`. A reader of a later version must go on reading
files of this one; a test keeps an old file for that.
"""

from __future__ import annotations

import os
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from capbench.errors import DataError
from capbench.files import read_json

__all__ = ["RESULT_SCHEMA_VERSION", "Cell", "Missing", "ProtocolInfo", "StudyResult", "load_result"]

RESULT_SCHEMA_VERSION = 1


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ProtocolInfo(_Strict):
    """One protocol of the study.

    Attributes:
        id: ``dataset/items/statistic``.
        dataset: name of the data set.
        dataset_title: its name in tables.
        statistic: short name of the statistic (``τ-c``).
        kind: what ``value`` of its cells is.
        description: the rules in words.
        groups: names of the groups that cells exist for, in order, beside the overall ``""``.
        notes: what was left out, one line each.
        n_items: number of scored items (of one draw).
        draws: number of draws of references.
    """

    id: str
    dataset: str
    dataset_title: str
    statistic: str
    kind: Literal["correlation", "accuracy", "mean"]
    description: str
    groups: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    n_items: int
    draws: int = 1


class Cell(_Strict):
    """One number: one metric column under one protocol, overall (``group`` is ``""``) or in one group.

    Attributes:
        value: the statistic; accuracies are shares in [0, 1]; the mean over draws if there are several.
        sd: sample standard deviation over draws, None for a single one.
        n: data points (ratings or pairs) behind it.
        p_value: two-sided, None where it is not defined (accuracies, several draws).
        ties: tied pairs of the metric's scores: among all pairs of data points for correlations, among the judged pairs
            for accuracies.
        chance: accuracy that is reached by chance under the tie rule, None for other statistics.
        published: the number in the published table, in the unit of ``value``; None if there is none.
        published_digits: decimals that it was printed with.
        published_sd: its printed standard deviation.
        published_note: a remark on the published number (a likely misprint).
    """

    protocol: str
    metric: str
    column: str
    title: str
    group: str = ""
    value: float
    sd: float | None = None
    n: int
    p_value: float | None = None
    ties: int | None = None
    chance: float | None = None
    published: float | None = None
    published_digits: int | None = None
    published_sd: float | None = None
    published_note: str | None = None


class Missing(_Strict):
    """Something that was asked for and could not be computed.

    Attributes:
        protocol: its protocol, ``""`` for all of them.
        column: the metric's column, ``""`` for all metrics.
        title: the column's title, ``""`` for all metrics.
        reason: what it waits for, one sentence.
        planned: True if this version of capbench does not have the metric at all; False for files that are not here.
        published: numbers of that row as the paper prints them, by ``protocol|group``.
    """

    protocol: str = ""
    column: str = ""
    title: str = ""
    reason: str
    planned: bool = False
    published: dict[str, str] = {}


class StudyResult(_Strict):
    """Everything that one run of a study found.

    Attributes:
        schema_version: version of this schema.
        capbench: version of the program.
        name: the study's name.
        title: the study's title.
        created: UTC time in ISO 8601.
        sample: True if the data was the embedded synthetic sample.
        protocols: in the order of the study.
        columns: titles by metric column, in the order of the table's rows, those that could not be computed included.
        signatures: one line by metric and protocol's *dataset/items* (scores depend on these alone).
        cells: all numbers.
        missing: what could not be computed, and why.
        published: citation of the published table, None if there is none.
        seconds: wall-clock time of scoring by *dataset/items*, and of everything as ``total``.
        cached: items whose scores came from the cache, by *dataset/items* and metric as ``dataset/items|metric``.
    """

    schema_version: int = RESULT_SCHEMA_VERSION
    capbench: str
    name: str
    title: str
    created: str
    sample: bool
    protocols: tuple[ProtocolInfo, ...]
    columns: dict[str, str]
    signatures: dict[str, dict[str, str]]
    cells: tuple[Cell, ...]
    missing: tuple[Missing, ...] = ()
    published: str | None = None
    seconds: dict[str, float]
    cached: dict[str, int] = {}

    def cell(self, protocol: str, column: str, group: str = "") -> Cell | None:
        """The cell of a column under a protocol, or None if it could not be computed."""
        found = (c for c in self.cells if (c.protocol, c.column, c.group) == (protocol, column, group))
        return next(found, None)


def load_result(path: str | os.PathLike[str]) -> StudyResult:
    """Read a ``results.json`` of this or an earlier version.

    Raises:
        DataError: it is no result file, or of a later version than this one reads.
    """
    raw = read_json(path)
    version = raw.get("schema_version") if isinstance(raw, dict) else None
    if not isinstance(version, int) or version < 1:
        raise DataError("is no result file of capbench ('schema_version' is missing)", path=path)
    if version > RESULT_SCHEMA_VERSION:
        raise DataError(
            f"has result schema {version}; this version reads up to {RESULT_SCHEMA_VERSION}",
            path=path,
            hint="Update capbench",
        )
    try:
        return StudyResult.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise DataError(f"{where}: {first['msg']} ({error.error_count()} problems)", path=path) from error

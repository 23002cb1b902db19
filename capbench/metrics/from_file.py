"""Score files as metrics: columns of scores that were computed elsewhere, next to capbench's metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from capbench.core.errors import CapbenchError, UsageError
from capbench.core.options import Choice, Options, Text, option
from capbench.core.progress import Progress
from capbench.core.records import FloatArray, Item
from capbench.core.training_record import TrainingRecord
from capbench.metrics.base import Metric
from capbench.metrics.metric_request import FOR_ALL, Asked, MetricRequest
from capbench.metrics.needs import Need, Scores
from capbench.metrics.registry import as_label, metric_columns
from capbench.metrics.score_files import ScoreFile, read_score_file
from capbench.metrics.score_joining import Join, join

_ALL = "all"  # The request for all metrics, which cannot be the name of a row
_NAMELESS = ("score", "scores", "value")
"""Column names that do not name a metric; such a column is named after its file."""


@dataclass(frozen=True)
class FileScoresOptions(Options):
    """Options of a score file."""

    columns: str = option(
        "all", Text("clipscore,refclipscore"), "columns to use, separated by commas; default: all numeric ones"
    )
    higher: str = option("better", Choice("better", "worse"), "better or worse: the meaning of a higher score")
    references: str = option(
        "checked", Choice("checked", "ignored"), "ignored for a reference-free metric: scores fit any references"
    )
    repeats: str = option("refuse", Choice("refuse", "first", "mean"), "treatment of two scores of one caption")


@dataclass(frozen=True)
class ScoresEntry:
    """A score file: scores that were computed elsewhere."""

    file: str  # its path
    label: str = ""  # name of its scores; ``""``: the file's name without its ending, and the names of its columns
    title: str = ""  # title of its first column in tables
    options: dict[str, Any] = field(default_factory=dict)  # values of :class:`FileScoresOptions`
    reads_references: bool | None = None  # True if the metric reads references; None if it is not known
    # True if the metric was trained on human ratings of captions; None if it is not known
    uses_ratings: bool | None = None
    trained_on: Sequence[TrainingRecord] = ()  # records of its training, if they are known


class FileScores(Metric):
    """Columns of one score file. :func:`request_of_file` makes one subclass per file."""

    citation: ClassVar[str] = "Scores that were computed elsewhere"
    needs: ClassVar[tuple[Need, ...]] = (Scores(),)
    option_type = FileScoresOptions
    options: FileScoresOptions
    keeps_statistics = False
    batch_size = 1 << 16
    file: ClassVar[ScoreFile]  # The content of the file
    file_columns: ClassVar[tuple[str, ...]]  # Names of the columns in the file, in the order of ``columns``
    requested: ClassVar[tuple[str, ...]]  # The requested ones of them
    reads_references: ClassVar[bool | None]
    uses_ratings: ClassVar[bool | None]
    trained_on: ClassVar[Sequence[TrainingRecord]]
    _joins: ClassVar[list[Join]]

    @classmethod
    def check_captions(cls, items: Sequence[Item]) -> None:
        """Nothing: a file may have scores of empty captions."""

    def prepare(self, items: Sequence[Item]) -> None:
        """Join the file to the items. Raises DataError if an item has no score, or two different ones."""
        joined = self.joined(items, self.options)
        problem = joined.among(self.requested).complaint()
        if problem is not None:
            raise problem
        self._way = joined.way
        sign = -1.0 if self.options.higher == "worse" else 1.0
        none = np.zeros(len(items))  # scores of a column that was not requested may be missing
        columns = [joined.values[name] if name in self.requested else none for name in self.file_columns]
        scores = sign * np.stack(columns, axis=1)
        self._scores = {item.key: scores[place] for place, item in enumerate(items)}

    @classmethod
    def joined(cls, items: Sequence[Item], options: FileScoresOptions) -> Join:
        """The file joined to items. The last joins are cached, because coverage is checked before scoring."""
        for known in cls._joins:
            if known.items is items:
                return known
        made = join(
            cls.file,
            items,
            cls.file_columns,
            repeats=options.repeats,  # type: ignore[arg-type]  # a Choice of the same words
            check_references=options.references == "checked",
        )
        cls._joins[:] = [made, *cls._joins[:31]]
        return made

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        progress(len(items))
        return np.array([self._scores[item.key] for item in items])

    def training_records(self) -> Sequence[TrainingRecord]:
        return self.trained_on

    def signature(self) -> str:
        """``file:NAME|sha256:…|column:…|joined:…`` and the options that differ from their defaults."""
        parts = [
            f"file:{self.file.path.name}",
            f"sha256:{self.file.digest}",
            f"column:{','.join(self.requested)}",
            f"joined:{self._way}",
        ]
        signed = self.options.signature_parts()
        defaults = FileScoresOptions().signature_parts()
        parts += [f"{key}:{value}" for key, value in signed.items() if key != "columns" and value != defaults[key]]
        if self.file.signatures:
            signatures = {self.file.signatures[name].replace("|", ",") for name in self.requested}
            parts.append(f"of:{'+'.join(sorted(signatures))}")
        return "|".join(parts)


def request_of_file(entry: ScoresEntry) -> MetricRequest:
    """A score file as a metric request.

    A column with the name of one of capbench's (``cider``) is prefixed with the label; ``score`` has the label as name.
    """
    path, label, taken = entry.file, entry.label, _taken()
    if label and label.lower() in taken:
        what = "means all metrics" if label.lower() == _ALL else "is the name of a metric of capbench"
        message = f"--scores {label}={path}: '{label}' {what}"
        raise UsageError(message, code="duplicate", value=label, hint="Choose another name")
    name = label_of_file(path, label)
    values = FileScoresOptions.read(name, entry.options)
    wanted = [] if values.columns == "all" else [text.strip() for text in values.columns.split(",") if text.strip()]
    file = read_score_file(path, wanted, name)
    file_columns = tuple(wanted or file.columns)
    columns = file_columns  # the label is already part of the names of its rows
    if not label:
        nameless = len(file_columns) == 1 and file_columns[0].lower() in _NAMELESS
        named = (f"{name}.{column}" if column.lower() in taken else column for column in file_columns)
        columns = (name,) if nameless else tuple(named)
    worse = " (lower is better)" if values.higher == "worse" else ""
    content: dict[str, Any] = {
        "name": name if not label else f"{label}-file",
        "columns": columns,
        "titles": {column: f"{column}{worse}" for column in columns},
        "file": file,
        "file_columns": file_columns,
        "requested": file_columns,
        "_joins": [],
        "reads_references": entry.reads_references,
        "uses_ratings": entry.uses_ratings,
        "trained_on": entry.trained_on,
    }
    made = type("FileScores", (FileScores,), content)
    return MetricRequest(made, columns, entry.options, name, entry.title or (label + worse if label else ""))


def label_of_file(path: str | Path, label: str = "") -> str:
    """Name of a file's scores: the user's label, or a valid label made from the file's name.

    >>> label_of_file("scores/my run.v2.csv"), label_of_file("cider.csv")
    ('my-run-v2', 'file-cider')
    """
    name = label or as_label(Path(path).name.removesuffix(".gz").rpartition(".")[0], "scores")
    return f"file-{name}" if not label and name.lower() in _taken() else name


def _taken() -> set[str]:
    """Reserved names in lower case: those of capbench's metrics and columns, and ``all``."""
    return {_ALL, *(name.lower() for name in metric_columns())}


def requests_of_files(
    entries: Sequence[ScoresEntry], options: dict[str, dict[str, Any]]
) -> tuple[list[MetricRequest], list[CapbenchError]]:
    """Requests of score files, and the errors of invalid ones; options of their labels are removed."""
    requests: list[MetricRequest] = []
    problems: list[CapbenchError] = []
    names = {declared.name for declared in FileScoresOptions.declared()}
    for_all = {name: value for name, value in options.get(FOR_ALL, {}).items() if name in names}
    for entry in entries:
        given = {**for_all, **entry.options, **options.pop(label_of_file(entry.file, entry.label), {})}
        try:
            requests.append(request_of_file(replace(entry, options=given)))
        except CapbenchError as error:
            problems.append(error)
    return requests, problems


def chosen_of_files(names: Sequence[Asked], stored: Sequence[MetricRequest]) -> tuple[list[Asked], list[MetricRequest]]:
    """The names that are not columns of files, and the files with the requested columns (all if none is requested)."""
    requested: dict[str, list[str]] = {}
    others: list[Asked] = []
    for name in names:
        hits = [(r, row) for r in stored for row in r.rows if name == row.name]
        hits = hits or [(r, row) for r in stored for row in r.rows if name == r.label]
        for request, row in hits:
            requested.setdefault(request.label, []).append(row.key.column)
        if not hits:
            others.append(name)
    if not requested:
        return others, list(stored)
    chosen = ((request, tuple(dict.fromkeys(requested.get(request.label, ())))) for request in stored)
    return others, [with_columns(request, columns) for request, columns in chosen if columns]


def with_columns(request: MetricRequest, columns: Sequence[str]) -> MetricRequest:
    """A request with some of its columns. In the other columns of a score file, scores may be missing."""
    metric = request.metric
    if issubclass(metric, FileScores):
        in_file = dict(zip(metric.columns, metric.file_columns, strict=True))
        metric = type("FileScores", (metric,), {"requested": tuple(in_file[name] for name in columns)})
    return replace(request, metric=metric, columns=tuple(columns))


def collisions(requests: Sequence[MetricRequest]) -> list[str]:
    """Messages about rows of score files with the same name."""
    problems = []
    owners: dict[str, MetricRequest] = {}
    for request in requests:
        for row in request.rows:
            if owners.setdefault(row.name, request) is not request and issubclass(request.metric, FileScores):
                remedy = f"name one (--scores NAME={request.metric.file.path})"
                remedy += ", or put the rows of all data sets into one file"
                problems.append(f"two rows have the name '{row.name}': {remedy}")
    labels = [request.label for request in requests]
    twice = [label for label in labels if labels.count(label) > 1]
    problems += [f"two metrics have the name '{label}'. Rename one of them" for label in twice]
    return list(dict.fromkeys(problems))


def stored_join(request: MetricRequest, items: Sequence[Item]) -> Join:
    """The requested columns of a file (:func:`request_of_file`), joined to items. Errors are those of ``join``."""
    metric = request.metric
    assert issubclass(metric, FileScores)
    return metric.joined(items, FileScoresOptions.read(request.label, request.options)).among(metric.requested)


def by_completeness(request: MetricRequest, joins: Sequence[Join]) -> list[tuple[MetricRequest, list[Join]]]:
    """Split a file's request into one for all complete columns and one for each incomplete column."""
    metric = request.metric
    assert issubclass(metric, FileScores)
    in_file = dict(zip(request.columns, metric.requested, strict=True))
    parts = [[c] for c, name in in_file.items() if any(len(joined.among([name]).missing) for joined in joins)]
    if not parts or len(in_file) == 1:
        return [(request, list(joins))]
    complete = [column for column in in_file if [column] not in parts]
    return [
        (with_columns(request, columns), [joined.among([in_file[column] for column in columns]) for joined in joins])
        for columns in filter(None, [complete, *parts])
    ]

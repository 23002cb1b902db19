"""Scores that were computed elsewhere, as a metric: every column of a file of scores stands beside capbench's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from capbench.core.errors import CapbenchError, MetricError, UsageError
from capbench.core.options import Choice, Options, Text, option
from capbench.core.records import FloatArray, Item
from capbench.metrics.base import Metric, Progress, Resources
from capbench.metrics.needs import Need, Scores
from capbench.metrics.registry import as_label, metric_columns
from capbench.metrics.requests import FOR_ALL, Asked, MetricRequest, resolve_metrics
from capbench.metrics.score_files import ScoreFile, read_score_file
from capbench.metrics.score_joining import Join, join

__all__ = [
    "FileScores",
    "FileScoresOptions",
    "ScoresEntry",
    "asked_metrics",
    "by_completeness",
    "chosen_of_files",
    "collisions",
    "label_of_file",
    "refuse_waiting",
    "request_of_file",
    "requests_of_files",
    "stored_join",
    "with_columns",
    "without_references",
]


_ALL = "all"
"""What stands for all metrics where one is asked for: no row may be called so."""
_NAMELESS = ("score", "scores", "value")
"""Columns that say nothing of the metric: they are called by their file."""


@dataclass(frozen=True)
class FileScoresOptions(Options):
    """How a file of scores is read."""

    columns: str = option(
        "all", Text("clipscore,refclipscore"), "the columns to take, by commas; default: all of numbers"
    )
    higher: str = option("better", Choice("better", "worse"), "whether a higher score is a better caption's")
    references: str = option(
        "checked", Choice("checked", "ignored"), "ignored for a metric that takes none: whose they were plays no part"
    )
    repeats: str = option("refuse", Choice("refuse", "first", "mean"), "what becomes of two scores of one caption")


@dataclass(frozen=True)
class ScoresEntry:
    """A file of scores that were computed elsewhere.

    Attributes:
        file: its path.
        label: what its scores are called; ``""`` for its columns' names.
        title: what its first column is called in tables.
        options: how it is read (:class:`FileScoresOptions`).
    """

    file: str
    label: str = ""
    title: str = ""
    options: dict[str, Any] = field(default_factory=dict)


class FileScores(Metric):
    """Columns of one file of scores. Subclasses are made by :func:`request_of_file`, one for each file."""

    name: ClassVar[str] = ""
    columns: ClassVar[tuple[str, ...]] = ()
    titles: ClassVar[Mapping[str, str]] = {}
    citation: ClassVar[str] = "Scores that were computed elsewhere"
    needs: ClassVar[tuple[Need, ...]] = (Scores(),)
    option_type = FileScoresOptions
    options: FileScoresOptions
    keeps_statistics = False
    batch_size = 1 << 16
    file: ClassVar[ScoreFile]
    """The file's rows."""
    file_columns: ClassVar[tuple[str, ...]] = ()
    """What its columns are called in the file, in the order of ``columns``."""
    asked: ClassVar[tuple[str, ...]] = ()
    """Those of them that were asked for."""
    _joins: ClassVar[list[Join]]

    def prepare(self, items: Sequence[Item]) -> None:
        """Join the file to the items.

        Raises:
            DataError: an item has no score, or two.
        """
        joined = self.joined(items, self.options)
        complaint = joined.among(self.asked).complaint()
        if complaint is not None:
            raise complaint
        self._way = joined.way
        sign = -1.0 if self.options.higher == "worse" else 1.0
        # A column that was not asked for gives a label's rows their names alone, and may lack scores.
        columns = [joined.values[name] if name in self.asked else np.zeros(len(items)) for name in self.file_columns]
        scores = sign * np.stack(columns, axis=1)
        self._scores = {item.key: scores[place] for place, item in enumerate(items)}

    @classmethod
    def joined(cls, items: Sequence[Item], options: FileScoresOptions) -> Join:
        """The file joined to items; the last joins are kept, since coverage is asked for before scores."""
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
        cls._joins[:] = [made, *cls._joins[:7]]
        return made

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """(n, columns) scores."""
        progress(len(items))
        return np.array([self._scores[item.key] for item in items])

    def signature(self) -> str:
        """``file:NAME|sha256:…|column:…|joined:…``, with the options that are not as by default."""
        parts = [
            f"file:{self.file.path.name}",
            f"sha256:{self.file.digest}",
            f"column:{','.join(self.asked)}",
            f"joined:{self._way}",
        ]
        given = self.options.signature_parts()
        plain = FileScoresOptions().signature_parts()
        parts += [f"{key}:{value}" for key, value in given.items() if key != "columns" and value != plain[key]]
        if self.file.signatures:
            said = {self.file.signatures[name].replace("|", ",") for name in self.asked}
            parts.append(f"of:{'+'.join(sorted(said))}")
        return "|".join(parts)


def request_of_file(
    path: str | Path, label: str = "", options: Mapping[str, Any] | None = None, title: str = ""
) -> MetricRequest:
    """A file of scores as a request, as metrics are asked for.

    A column is called as in the file. A column that bears the name of one of capbench's own (``cider``) has the label
    before it, so that nobody takes it for that; one that is called ``score`` is called by the label alone.

    Args:
        path: the file, read by :func:`capbench.metrics.score_files.read_score_file`.
        label: what its scores are called; default: the file's name without its ending.
        options: values of :class:`FileScoresOptions`.
        title: what the first column is called in tables.

    Raises:
        UsageError: the label is a metric's name, or an option does not fit.
        DataError: the file is no file of scores.
    """
    taken = _taken()
    if label.lower() in taken and label:
        what = "stands for all metrics" if label.lower() == _ALL else "is the name of one of capbench's metrics"
        raise UsageError(f"--scores {label}={path}: '{label}' {what}", hint="Choose another name")
    name = label_of_file(path, label)
    values = FileScoresOptions.read(name, options or {})
    wanted = [] if values.columns == "all" else [text.strip() for text in values.columns.split(",") if text.strip()]
    file = read_score_file(path, wanted, name)
    file_columns = tuple(wanted or file.columns)
    # A row of a label is called by it already.
    alone = len(file_columns) == 1
    columns = file_columns if label else tuple(_called(column, name, taken, alone=alone) for column in file_columns)
    worse = " (lower is better)" if values.higher == "worse" else ""
    made = type(
        "FileScores",
        (FileScores,),
        {
            "__doc__": f"Scores of {file.path.name}.",
            "__module__": FileScores.__module__,
            "name": name if not label else f"{label}-file",
            "columns": columns,
            "titles": {column: f"{column}{worse}" for column in columns},
            "file": file,
            "file_columns": file_columns,
            "asked": file_columns,
            "_joins": [],
        },
    )
    return MetricRequest(made, columns, dict(options or {}), name, title or (label + worse if label else ""))


def label_of_file(path: str | Path, label: str = "") -> str:
    """What a file's scores are called: the label that is given, or the file's name as far as it can be one.

    >>> label_of_file("scores/my run.v2.csv"), label_of_file("cider.csv")
    ('my-run-v2', 'file-cider')
    """
    name = label or as_label(Path(path).stem, "scores")
    return f"file-{name}" if not label and name.lower() in _taken() else name


def _taken() -> set[str]:
    """Names in lower case that no file's scores may bear: those of capbench's metrics and columns, and ``all``."""
    return {_ALL, *(name.lower() for name in metric_columns())}


def requests_of_files(
    entries: Sequence[ScoresEntry], options: dict[str, dict[str, Any]]
) -> tuple[list[MetricRequest], list[CapbenchError]]:
    """Files of scores as requests, and what is wrong with files.

    Args:
        entries: the files.
        options: options by label, or for all; those of the files' labels are taken out.
    """
    requests: list[MetricRequest] = []
    problems: list[CapbenchError] = []
    names = {declared.name for declared in FileScoresOptions.declared()}
    for_all = {name: value for name, value in options.get(FOR_ALL, {}).items() if name in names}
    for entry in entries:
        of_label = options.pop(label_of_file(entry.file, entry.label), {})
        given = {**for_all, **entry.options, **of_label}
        try:
            requests.append(request_of_file(entry.file, entry.label, given, entry.title))
        except CapbenchError as error:
            problems.append(error)
    return requests, problems


def chosen_of_files(names: Sequence[Asked], stored: Sequence[MetricRequest]) -> tuple[list[Asked], list[MetricRequest]]:
    """The names that are none of the files', and the files with the columns that names ask for; with all if none does.

    >>> chosen_of_files(["cider"], [])
    (['cider'], [])
    """
    asked: dict[str, list[str]] = {}
    left: list[Asked] = []
    for name in names:
        hits = [(r, row) for r in stored for row in r.rows if name == row.name]
        hits = hits or [(r, row) for r in stored for row in r.rows if name == r.label]
        for request, row in hits:
            asked.setdefault(request.label, []).append(row.key.column)
        if not hits:
            left.append(name)
    if not asked:
        return left, list(stored)
    chosen = ((request, tuple(dict.fromkeys(asked.get(request.label, ())))) for request in stored)
    return left, [with_columns(request, columns) for request, columns in chosen if columns]


def with_columns(request: MetricRequest, columns: Sequence[str]) -> MetricRequest:
    """A request with some of its columns. The others of a file of scores are no longer asked for scores of all items.

    Args:
        request: made by :func:`request_of_file`, or any other.
        columns: columns of it, in the order asked for.
    """
    metric = request.metric
    if issubclass(metric, FileScores):
        of_file = dict(zip(metric.columns, metric.file_columns, strict=True))
        # The first column gives a label's rows their names.
        labelled = request.label != metric.name
        kept = [name for name in metric.columns if name in columns or (labelled and name == metric.columns[0])]
        taken: dict[str, Any] = {
            "__doc__": metric.__doc__,
            "__module__": metric.__module__,
            "columns": tuple(kept),
            "file_columns": tuple(of_file[name] for name in kept),
            "asked": tuple(of_file[name] for name in columns),
            "_joins": [],
        }
        metric = type("FileScores", (metric,), taken)
    return replace(request, metric=metric, columns=tuple(columns))


def collisions(requests: Sequence[MetricRequest]) -> list[str]:
    """What to say of rows of files that are called alike."""
    problems = []
    owners: dict[str, MetricRequest] = {}
    for request in requests:
        for row in request.rows:
            owner = owners.setdefault(row.name, request)
            if owner is not request and request.needs(Scores):
                hint = f"Name one of the files: --scores NAME={request.metric.file.path}"  # type: ignore[attr-defined]
                problems.append(f"two rows are called '{row.name}'. {hint}")
    labels = [request.label for request in requests]
    problems += [
        f"two metrics are called '{label}'. Give one of them another name"
        for label in labels
        if labels.count(label) > 1
    ]
    return list(dict.fromkeys(problems))


def _called(column: str, label: str, taken: set[str], *, alone: bool) -> str:
    if alone and column.lower() in _NAMELESS:
        return label
    return f"{label}.{column}" if column.lower() in taken else column


def stored_join(request: MetricRequest, items: Sequence[Item]) -> Join:
    """The requested columns of a file (:func:`request_of_file`), joined to items. Errors are those of ``join``."""
    metric = request.metric
    assert issubclass(metric, FileScores)
    return metric.joined(items, FileScoresOptions.read(request.label, request.options)).among(metric.asked)


def by_completeness(request: MetricRequest, joins: Sequence[Join]) -> list[tuple[MetricRequest, list[Join]]]:
    """The requests that a file's columns come to: one for all complete columns, and one for each incomplete column.

    Args:
        request: made by :func:`request_of_file`.
        joins: the file joined to the items of each draw.
    """
    metric = request.metric
    assert issubclass(metric, FileScores)
    in_file = dict(zip(request.columns, metric.asked, strict=True))
    parts = [[c] for c, name in in_file.items() if any(len(joined.among([name]).missing) for joined in joins)]
    if not parts or len(in_file) == 1:
        return [(request, list(joins))]
    complete = [column for column in in_file if [column] not in parts]
    return [
        (with_columns(request, columns), [joined.among([in_file[column] for column in columns]) for joined in joins])
        for columns in filter(None, [complete, *parts])
    ]


# The metrics that one command or call asks for: named ones, classes and files of scores, in one list.


def asked_metrics(
    names: Sequence[Asked],
    options: dict[str, dict[str, Any]],
    files: Sequence[ScoresEntry],
    resources_of: Callable[[Sequence[Asked]], Resources],
) -> tuple[tuple[MetricRequest, ...], Resources]:
    """What is asked for, as requests, and what is given to them.

    Args:
        names: metrics, and columns of the files; with none of the latter every column of the files.
        options: options by label, metric or column.
        files: files of scores.
        resources_of: features, weights and the data folder for the names that are no file's.

    Raises:
        UsageError: a name or an option does not fit, or two rows are called alike.
        DataError: a file of scores is none.
    """
    stored, problems = requests_of_files(files, options)
    if problems:
        raise problems[0]
    left, stored = chosen_of_files(names, stored)
    resources = resources_of(left)
    requests = (*resolve_metrics(left, options, resources, beside=stored), *stored)
    for problem in collisions(requests):
        raise UsageError(problem)
    return requests, resources


def without_references(requests: Sequence[MetricRequest], how: str) -> tuple[tuple[MetricRequest, ...], list[str]]:
    """The requests where candidates come without references, and what is to be said.

    Of a metric that was asked for with all its columns, those that need no references stay (``clipscore``, without
    ``refclipscore``); what stays out is said.

    Args:
        requests: the metrics.
        how: references are given (``--references FILE``).

    Raises:
        UsageError: a metric, or a column that was asked for by its name, needs references.
    """
    kept, said, refused = [], [], []
    for request in requests:
        free = tuple(column for column in request.columns if column in request.metric.reference_free())
        left = [column for column in request.columns if column not in free]
        if left and (not free or not set(request.columns).issuperset(request.metric.columns)):
            refused.append(request.label)
        elif left:
            said.append(f"{request.label}: {', '.join(left)} left out, for want of references ({how})")
        kept.append(replace(request, columns=free or request.columns))
    if refused:
        raise UsageError(
            f"{', '.join(refused)}: references are needed ({how})",
            hint="Give them, or take metrics and columns that do without ('capbench metrics NAME' tells)",
        )
    return tuple(kept), said


def refuse_waiting(requests: Sequence[MetricRequest], resources: Resources) -> None:
    """Raise MetricError for the first request that lacks something."""
    for request in requests:
        lacking = request.lacks(resources)
        if lacking:
            raise MetricError(f"{request.label} waits for {lacking}")

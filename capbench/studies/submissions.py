"""Submissions: score files of a metric with a card, checked before they are added to the leaderboard."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import CapbenchError, DataError, MissingFileError
from capbench.core.files import read_lines, sha256_file
from capbench.core.records import Item, image_id
from capbench.core.training_record import TrainingOverlap, TrainingRecord, photographs_of, training_overlap
from capbench.datasets.base import dataset_names
from capbench.datasets.captions import load_split
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import DataRoot
from capbench.metrics.from_file import ScoresEntry
from capbench.metrics.registry import metric_columns
from capbench.metrics.score_files import ScoreFile, read_score_file
from capbench.metrics.score_joining import Join, join
from capbench.stats.ties import is_constant
from capbench.studies.cards import Card, load_card
from capbench.studies.task_file import RankedTask

_REQUIRED = ("paper", "link", "licence", "training_data", "cost", "files")


@dataclass(frozen=True, eq=False)
class Submission:
    """A card with its score files, whose checksums are correct."""

    path: Path  # of the card
    card: Card
    files: tuple[ScoreFile, ...]
    columns: Mapping[Path, tuple[str, ...]]  # of the card, by score file


@dataclass(frozen=True, eq=False)
class Covered:
    """A data set's items that are all scored by a file."""

    items: str  # id of the selection: dataset/items
    dataset: str
    judged: tuple[Item, ...]  # repeats included, of all draws
    joined: str  # identifiers of the joined rows (id, caption)
    file: Path


def load_submission(path: Path) -> Submission:
    """Read the card of a submission, or of the folder with one card, and its score files."""
    if path.is_dir():
        cards = sorted(path.glob("*.yaml"))
        if len(cards) != 1:
            message, hint = f"contains {len(cards)} cards (.yaml) instead of one", "Write one card"
            raise MissingFileError(message, path=path, hint=f"{hint}; see docs/leaderboard.md")
        path = cards[0]
    card = load_card(path)
    absent = [name for name in _REQUIRED if not getattr(card, name)]
    absent += ["ratings"] if card.uses_ratings and not card.ratings else []
    if absent:
        message = f"a submission requires {', '.join(map(repr, absent))}"
        raise DataError(message, code="missing-key", value=absent[0], path=path, hint="See docs/leaderboard.md")
    check_names(card, path, committed_columns(path))
    for name, digest in card.files.items():
        place = path.parent / name
        if not place.is_file():
            message = f"the score file '{name}' does not exist"
            raise MissingFileError(message, value=name, path=path, hint="Put it next to the card, or correct 'files'")
        if (found := sha256_file(place)) != digest:
            message = f"was changed: its SHA-256 is {found}, but the card has {digest}"
            hint = "Restore the file, or submit it as a new version with a new checksum"
            raise DataError(message, code="damaged", value=found, path=place, hint=hint)
    files = tuple(read_score_file(path.parent / name) for name in card.files)
    columns = {file.path: tuple(column for column in card.columns if column in file.columns) for file in files}
    for file in files:
        if not columns[file.path]:
            message = f"has no column of the card ({', '.join(card.columns)}); it has {', '.join(file.columns)}"
            raise DataError(message, code="missing-column", path=file.path, hint="Correct 'columns' of the card")
    if missing := [name for name in card.columns if not any(name in of_file for of_file in columns.values())]:
        message, hint = f"no score file has the column '{missing[0]}'", "Correct 'columns' or 'files'"
        raise DataError(message, code="missing-column", value=missing[0], path=path, hint=hint)
    return Submission(path, card, files, columns)


def check_names(card: Card, path: Path, committed: Iterable[str] = ()) -> None:
    """Raise DataError if a column has the name of a metric of capbench or of a committed column."""
    taken = {name.lower(): "a metric of capbench" for name in ("all", *metric_columns())}
    taken |= {name.lower(): "a column of the leaderboard" for name in committed}
    for name in card.columns:
        if name.lower() in taken:
            message = f"the column '{name}' has the name of {taken[name.lower()]}"
            hint = "Choose another name, in the card and in the score file"
            raise DataError(message, code="duplicate", value=name, path=path, hint=hint)


def committed_columns(path: Path) -> set[str]:
    """Columns of the other cards in the ``results`` folder around a card: submissions and stored scores."""
    submissions = path.resolve().parent.parent
    if submissions.name != "submissions":
        return set()
    cards = [*submissions.glob("*/*.yaml"), *(submissions.parent / "leaderboard" / "scores").glob("*.yaml")]
    return {name for other in cards if other != path.resolve() for name in load_card(other).columns}


def covered_data(submission: Submission, tasks: Sequence[RankedTask], root: DataRoot) -> list[Covered]:
    """The data sets of tasks (those whose files are installed) that the score files cover completely.

    Raises DataError if a file has scores for a part of a data set, a row matches no item, or a column is constant.
    """
    draws: dict[str, tuple[str, list[tuple[Item, ...]]]] = {}
    for task in tasks:
        name = task.spelled.rpartition("/")[0]
        dataset = open_dataset(name.partition("/")[0], root)
        try:
            if name not in draws:
                draws[name] = dataset.name, [judgements.items for judgements in dataset.load(task.protocol.items)]
        except MissingFileError:
            continue
    return [one for file in submission.files for one in _covered(submission, file, draws)]


def _covered(
    submission: Submission, file: ScoreFile, draws: Mapping[str, tuple[str, list[tuple[Item, ...]]]]
) -> list[Covered]:
    columns, unused = submission.columns[file.path], np.ones(len(file), dtype=bool)
    partial: list[tuple[str, list[Join]]] = []
    covered = []
    for name, (dataset, of_draws) in draws.items():
        reads = submission.card.reads_references
        joins = [join(file, items, columns, check_references=reads) for items in of_draws]
        if any(len(joined.missing) for joined in joins):
            partial.append((name, joins))
            continue
        for column in columns:
            if all(is_constant(joined.values[column]) for joined in joins):
                message = f"'{column}' has the same score for all items of {name}"
                raise DataError(message, code="undefined", value=column, path=file.path, hint="Check the scores")
        unused &= ~np.any([_used(joined) for joined in joins], axis=0)
        judged = tuple(item for items in of_draws for item in items)
        covered.append(Covered(name, dataset, judged, joins[0].way, file.path))
    if not unused.any():
        return covered
    # Rows may also match items of a data set that is not submitted: only rows that nothing else explains count.
    counts = [sum(int((_used(joined) & unused).sum()) for joined in joins) for _, joins in partial]
    if any(counts):
        name, joins = partial[int(np.argmax(counts))]
        found = next(problem for joined in joins if (problem := joined.complaint(name)) is not None)
        hint = f"Score all items that 'capbench data items {name}' writes, or remove the rows of this data set"
        raise DataError(found.message, code=found.code, value=found.value, path=file.path, row=found.row, hint=hint)
    for joined in (joined for _, joins in partial for joined in joins):
        if any(unused[row] for row in joined.other_references) and (problem := joined.complaint()) is not None:
            raise problem
    row = int(np.flatnonzero(unused)[0])
    key = next(file.names[kind][row] for kind in ("id", "candidate_id", "caption") if kind in file.names)
    rows = f"{unused.sum():,} of its {len(file):,} rows"
    message = f"{rows} match no item of an installed data set (first: '{key[:60]}')"
    hint = f"Remove these rows, or install their data set; installed: {', '.join(draws) or 'none'}"
    raise DataError(message, code="unknown-item", value=key, path=file.path, row=file.place(row), hint=hint)


def _used(joined: Join) -> NDArray[np.bool_]:
    """(n,) True for the rows that are joined to an item."""
    used = np.ones(len(joined.file), dtype=bool)
    unclear = [row for case in joined.unclear for row in case.rows]
    used[[*joined.strange, *joined.other_references, *unclear]] = False
    return used


def judged_overlaps(
    submission: Submission, covered: Sequence[Covered], root: DataRoot
) -> tuple[list[TrainingOverlap], list[str]]:
    """Photographs that judged images share with training images and rated ones, and notes on what is unknown."""
    card, notes = submission.card, list[str]()
    records = [_images(name, submission.path, root) for name in card.training_images or ()]
    if card.training_images is None:
        notes.append("the card has no 'training_images': contamination is not checked")
    for name in card.ratings:
        try:
            if name not in dataset_names():
                raise MissingFileError(name)
            dataset = open_dataset(name, root)
            rated = {item.image for judged in dataset.load(dataset.protocol().items) for item in judged.items}
            records.append(TrainingRecord(name, fitted=photographs_of(rated)))
        except MissingFileError:
            notes.append(f"ratings of '{name}': not an installed data set, whose photographs are not checked")
    return [training_overlap(card.name, records, one.judged, one.items) for one in covered], notes


def _images(name: str, card: Path, root: DataRoot) -> TrainingRecord:
    path = card.parent / name
    try:
        if path.suffix == ".txt":
            images = [image_id(line.strip()) for line in read_lines(path) if line.strip()]
        else:
            corpus, _, split = name.partition("@")
            images = list(load_split(corpus, split or None, root))
    except CapbenchError as error:
        message = f"training_images: '{name}': {error.message}"
        hint = error.hint or "Name a caption corpus, one of its splits (flickr8k@train), or a list of images (.txt)"
        raise DataError(message, code=error.code, value=name, path=card, hint=hint) from None
    return TrainingRecord(name, photographs=photographs_of(images))


def submission_entries(submission: Submission, *, shown: bool = True) -> list[ScoresEntry]:
    """Score files of a submission for ``scores`` of :func:`capbench.leaderboard`, an entry for each column or row."""
    card = submission.card
    return [
        card.score_entry(path, name)
        for path, columns in submission.columns.items()
        for name in columns
        if card.columns[name].shown or not shown
    ]


def read_submissions(folder: Path) -> list[Submission]:
    """The submissions in the folders below a folder; none if it does not exist. Errors: :func:`load_submission`."""
    return [load_submission(path) for path in sorted(folder.glob("*")) if path.is_dir()]

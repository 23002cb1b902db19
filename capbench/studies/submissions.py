"""Cards of stored score files (``docs/leaderboard.md`` has examples), and submissions: score files with a card."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from capbench.core.errors import CapbenchError, DataError, MissingFileError, count
from capbench.core.files import read_lines, read_text, sha256_file, write_text
from capbench.core.records import Item, image_id
from capbench.core.training_record import TrainingOverlap, TrainingRecord, photographs_of, training_overlap
from capbench.core.typed_json import Strict, validated
from capbench.core.yaml import read_yaml
from capbench.datasets.base import dataset_names
from capbench.datasets.captions import load_split
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import DataRoot
from capbench.metrics.from_file import ScoresEntry
from capbench.metrics.registry import metric_columns
from capbench.metrics.score_files import ScoreFile, read_score_file
from capbench.metrics.score_joining import Join, join
from capbench.stats.ties import is_constant
from capbench.studies.task_file import RankedTask

SUMS = "SHA256SUMS"  # file with the checksums of a folder of cards, in the format of ``sha256sum``
_Text = Annotated[str, Field(pattern=r"\S")]
_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_+-]*$")]
_FileName = Annotated[str, Field(pattern=r"^[^/\\]*[^/\\.][^/\\]*$")]
_Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Cost(Strict):
    """Cost of a metric."""

    seconds_per_caption: Annotated[float, Field(gt=0)]  # processor time
    peak_mb: Annotated[float, Field(gt=0)] | None = None  # of the process, in megabytes of 10⁶ bytes
    machine: str = ""


class CardColumn(Strict):
    """A column of scores."""

    title: str = ""  # by default that of the card
    seeds: tuple[int, ...] = ()
    networks: tuple[str, ...] = ()  # checksums
    image: Literal["own", "mean", "blank", "shuffled", "none"] = "own"  # what the networks see
    twin_of: str = ""  # for a substitute image, the column with the caption's own
    shown: bool = True  # as a row of the leaderboard
    reads_references: bool | None = None  # by default that of the twin, or else of the card


class Card(Strict):
    """A card: of stored scores, or of a submission, which also has ``ratings``, ``training_images`` and ``files``."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    name: _Name
    title: _Text
    kind: Literal["network", "combination", "metric"]
    training_data: str
    uses_ratings: bool
    reads_references: bool
    columns: Annotated[dict[_Name, CardColumn], Field(min_length=1)]
    features: str = ""
    command: str = ""
    paper: str = ""
    link: str = ""
    licence: str = ""
    cost: Cost | None = None
    ratings: tuple[_Text, ...] = ()  # data sets whose human ratings were used for training
    # caption corpora (flickr8k), splits (flickr8k@train), lists of image names next to the card (.txt); None if unknown
    training_images: tuple[_Text, ...] | None = None
    files: dict[_FileName, _Sha256] = Field(default_factory=dict)  # score files next to the card, with SHA-256

    @model_validator(mode="after")
    def _fits(self) -> Card:
        for name, column in self.columns.items():
            if column.twin_of and column.twin_of not in self.columns:
                raise ValueError(f"{name}: twin_of names '{column.twin_of}', which is not a column")
        return self

    def score_entry(self, path: Path, column: str) -> ScoresEntry:
        """A column of a score file, for ``scores`` of :func:`capbench.leaderboard`."""
        about = self.columns[column]
        given = (about, self.columns[about.twin_of or column], self)
        reads = next(entry.reads_references for entry in given if entry.reads_references is not None)
        return ScoresEntry(
            str(path),
            label=column,
            title=about.title or self.title,
            options={"columns": column, "references": "checked" if reads else "ignored"},
            reads_references=reads,
            uses_ratings=self.uses_ratings,
        )


def load_card(path: str | os.PathLike[str]) -> Card:
    """Read a card. Raises DataError, which names the first wrong key."""
    raw = read_yaml(path, "a card (a mapping with 'schema', 'name', 'columns')")
    return validated(Card, raw, path, code="invalid", hint="See docs/leaderboard.md")


def score_file(card: Path) -> Path:
    """The score file of a card: the file next to it with the same name and the ending ``.csv.gz``."""
    return card.with_suffix(".csv.gz")


def read_cards(folder: Path) -> dict[Path, Card]:
    """The cards of a folder by score file, after a check of all checksums; empty if the folder does not exist."""
    found, sums = set(_sums(folder).splitlines()), folder / SUMS
    stored = set(filter(str.strip, read_text(sums).splitlines())) if sums.exists() else set()
    if found != stored:
        names = ", ".join(sorted({line.split()[-1] for line in found ^ stored}))
        hint = "Restore these files, or write the checksums again"
        raise DataError(f"does not have the checksums of {names}", code="damaged", path=sums, hint=hint)
    return {score_file(path): load_card(path) for path in sorted(folder.glob("*.yaml"))}


def _sums(folder: Path) -> str:
    files = sorted(path for path in folder.glob("*") if path.suffix in (".gz", ".yaml"))
    return "".join(f"{sha256_file(path)}  {path.name}\n" for path in files)


def write_sums(folder: Path) -> None:
    """Write the checksums of all cards and score files of a folder."""
    write_text(folder / SUMS, _sums(folder))


def score_entries(cards: Mapping[Path, Card], *, shown: bool = True) -> list[ScoresEntry]:
    """Score files for ``scores`` of :func:`capbench.leaderboard`, an entry for each column or shown row."""
    return [
        card.score_entry(path, name)
        for path, card in cards.items()
        for name, column in card.columns.items()
        if column.shown or not shown
    ]


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
    captions: tuple[Item, ...]  # repeats included, of all draws
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
    files = tuple(read_score_file(path.parent / name, label="") for name in card.files)
    columns = {file.path: tuple(column for column in card.columns if column in file.columns) for file in files}
    counts = Counter(column for of_file in columns.values() for column in of_file)
    wrong = [name for name in card.columns if counts[name] != 1]
    unused = [file.path.name for file in files if not columns[file.path]]
    if wrong or unused:
        told = [f"'{name}' is in {count(counts[name], 'file')}" for name in wrong]
        told += [f"the file '{name}' has none" for name in unused]
        message = f"each column of the card should be in one of its files: {'; '.join(told)}"
        hint = "Correct 'columns' or 'files', and put the rows of all data sets into one file"
        code = "duplicate" if any(counts[name] > 1 for name in wrong) else "missing-column"
        raise DataError(message, code=code, value=[*wrong, *unused][0], path=path, hint=hint)
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
    return [entry for file in submission.files for entry in _covered(submission, file, draws)]


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
        captions = tuple(item for items in of_draws for item in items)
        covered.append(Covered(name, dataset, captions, joins[0].way, file.path))
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
            rated = {item.image for judgements in dataset.load(dataset.protocol().items) for item in judgements.items}
            records.append(TrainingRecord(name, fitted=photographs_of(rated)))
        except MissingFileError:
            notes.append(f"ratings of '{name}': not an installed data set, whose photographs are not checked")
    return [training_overlap(card.name, records, entry.captions, entry.items) for entry in covered], notes


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
    """:func:`score_entries` of a submission."""
    entries = score_entries(dict.fromkeys(submission.columns, submission.card), shown=shown)
    return [entry for entry in entries if entry.label in submission.columns[Path(entry.file)]]


def read_submissions(folder: Path) -> list[Submission]:
    """The submissions in the folders below a folder; none if it does not exist. Errors: :func:`load_submission`."""
    return [load_submission(path) for path in sorted(folder.glob("*")) if path.is_dir()]

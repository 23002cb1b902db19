"""Cards of score files (``docs/leaderboard.md`` has examples): of the stored ones, and of submissions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from capbench.core.errors import CapbenchError, DataError, MissingFileError
from capbench.core.files import read_lines, sha256_file
from capbench.core.records import image_id
from capbench.core.training_record import TrainingRecord, photographs_of
from capbench.core.typed_json import Strict, validated
from capbench.core.yaml import read_yaml
from capbench.datasets.base import dataset_names
from capbench.datasets.captions import load_split
from capbench.datasets.opening import open_dataset
from capbench.datasets.protocol import Protocol
from capbench.datasets.root import DataRoot
from capbench.metrics.from_file import ScoresEntry
from capbench.metrics.score_files import read_score_file
from capbench.metrics.score_joining import Join, join

_HINT = "See docs/leaderboard.md"
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
    twin_of: str = ""  # for a substitute image, which is not a row of the leaderboard, the column with the own one
    reads_references: bool | None = None  # by default that of the twin, or else of the card


class Card(Strict):
    """A card of a score file. That of a submission has ``paper``, ``link``, ``licence`` and ``cost``, too."""

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
    # the score file next to the card, with its SHA-256; empty before the file is stored
    files: Annotated[dict[_FileName, _Sha256], Field(max_length=1)] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _fits(self) -> Card:
        for name, column in self.columns.items():
            if column.twin_of and column.twin_of not in self.columns:
                raise ValueError(f"{name}: twin_of names '{column.twin_of}', which is not a column")
        if self.uses_ratings and not self.ratings:
            raise ValueError("uses_ratings: 'ratings' names no data set")
        return self


def load_card(path: Path, required: Sequence[str] = ()) -> Card:
    """Read a card. Raises DataError, which names the first wrong key, or ``required`` ones without a value."""
    raw = read_yaml(path, "a card (a mapping with 'schema', 'name', 'columns')")
    card = validated(Card, raw, path, code="invalid", hint=_HINT)
    if absent := [name for name in required if not getattr(card, name)]:
        message = f"requires {', '.join(map(repr, absent))}"
        raise DataError(message, code="missing-key", value=absent[0], path=path, hint=_HINT)
    return card


def read_cards(paths: Iterable[Path], required: Sequence[str] = ("files",)) -> dict[Path, Card]:
    """The cards at some paths, in order, by score file. Raises DataError if its SHA-256 is not that of the card."""
    cards = {}
    for path in sorted(paths):
        card = load_card(path, required)
        ((name, digest),) = card.files.items()
        file = path.parent / name
        if (found := sha256_file(file)) != digest:
            message = f"its SHA-256 is {found}, but {path.name} has {digest}"
            raise DataError(message, code="damaged", value=found, path=file, hint="Restore it, or correct the card")
        cards[file] = card
    return cards


def score_entries(
    cards: Mapping[Path, Card], *, twins: bool = False, trained_on: Sequence[TrainingRecord] = ()
) -> list[ScoresEntry]:
    """Cards by score file, as ``scores`` of a leaderboard; ``twins``: with columns of substitute images."""
    entries = []
    for path, card in cards.items():
        for name, column in card.columns.items():
            of_column = (column.reads_references, card.columns[column.twin_of or name].reads_references)
            reads = next((reads for reads in of_column if reads is not None), card.reads_references)
            if twins or not column.twin_of:
                options = {"columns": name, "references": "checked" if reads else "ignored"}
                title = column.title or card.title
                entries.append(ScoresEntry(str(path), name, title, options, reads, card.uses_ratings, trained_on))
    return entries


def load_submission(path: Path) -> tuple[Path, Path, Card]:
    """The path of the card of a submission, or of the folder with one card, its score file, and its content."""
    cards = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    if len(cards) != 1:
        message = f"contains {len(cards)} cards (.yaml) instead of one"
        raise MissingFileError(message, path=path, hint=f"Write one card. {_HINT}")
    ((file, card),) = read_cards(cards, ["paper", "link", "licence", "training_data", "cost", "files"]).items()
    return cards[0], file, card


def covered_items(file: Path, card: Card, protocols: Mapping[str, Protocol], root: DataRoot) -> list[str]:
    """The items (``dataset/items``, each with a protocol) that a score file covers, as far as they are installed.

    Raises DataError if a row matches none of the items, or the file has scores for a part of them only.
    """
    scores = read_score_file(file, tuple(card.columns), label="")
    unused, covered, partial = set(range(len(scores))), list[str](), list[tuple[str, DataError, Join]]()
    for name, protocol in protocols.items():
        try:
            draws = open_dataset(name.partition("/")[0], root).load(protocol.items)
        except MissingFileError:
            continue
        joins = [join(scores, draw.items, check_references=card.reads_references) for draw in draws]
        problems = [(name, error, joined) for joined in joins if (error := joined.complaint(name))]
        partial += problems
        if not problems:
            covered.append(name)
            for joined in joins:
                unclear = (row for case in joined.unclear for row in case.rows)
                unused &= {*joined.strange, *joined.other_references, *unclear}
    if partial:
        # Items of a data set that is not submitted may be those of a submitted one: only other rows count.
        name, error, joined = min(partial, key=lambda entry: len(unused.intersection(entry[2].strange)))
        if not unused.issubset(joined.strange):
            error.hint = f"Score what 'capbench data items {name}' writes, or remove the rows of this data set"
            raise error
    if unused:
        message = f"{len(unused):,} of its {len(scores):,} rows match no item of an installed data set"
        raise scores.error("unknown-item", min(unused), message, "Remove these rows, or install their data set")
    return covered


def training_records(path: Path, card: Card, root: DataRoot) -> list[TrainingRecord]:
    """Records of the images, and of the human ratings, that a metric was trained on; ``path`` is that of the card."""
    records = [TrainingRecord(card.name)] if card.training_images is None else []  # not recorded
    for name in card.training_images or ():
        corpus, _, split = name.partition("@")
        try:
            if name.endswith(".txt"):
                images = [image_id(line.strip()) for line in read_lines(path.parent / name) if line.strip()]
            else:
                images = [*load_split(corpus, split or None, root)]
        except CapbenchError as error:
            raise error.placed(DataError, path, "training_images") from error
        records.append(TrainingRecord(name, photographs=photographs_of(images)))
    for name in card.ratings:
        rated = None  # not recorded
        with contextlib.suppress(MissingFileError):
            if name in dataset_names():
                dataset = open_dataset(name, root)
                draws = dataset.load(dataset.protocol().items)
                rated = photographs_of({item.image for draw in draws for item in draw.items})
        records.append(TrainingRecord(name, fitted=rated))
    return records

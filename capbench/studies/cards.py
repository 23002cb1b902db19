"""Cards: descriptions of score files that are stored with their numbers (``docs/leaderboard.md`` has examples)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from capbench.core.errors import DataError
from capbench.core.files import read_lines, sha256_file, write_text
from capbench.core.typed_json import Strict, validated
from capbench.core.yaml import read_yaml
from capbench.metrics.from_file import ScoresEntry

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
        reads = next(one.reads_references for one in given if one.reads_references is not None)
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
    lines = [line.split() for line in read_lines(folder / SUMS)] if (folder / SUMS).exists() else []
    sums = {name: digest for digest, name in filter(None, lines)}
    present = {path.name: path for path in _files(folder)}
    for name in sorted(present.keys() ^ sums.keys()):
        problem = "has no checksum" if name in present else "is missing"
        hint = f"Write the checksums again, or remove the line from {SUMS}"
        raise DataError(problem, code="mismatch", path=folder / name, hint=hint)
    for name, digest in sums.items():
        if sha256_file(folder / name) != digest:
            message = f"its checksum differs from that in {SUMS}: the file was changed"
            raise DataError(message, code="damaged", path=folder / name, hint="Restore the file")
    cards = {}
    for path in present.values():
        if path.suffix == ".yaml":
            cards[score_file(path)] = load_card(path)
    return cards


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*") if path.suffix in (".gz", ".yaml"))


def write_sums(folder: Path) -> None:
    """Write the checksums of all cards and score files of a folder."""
    write_text(folder / SUMS, "".join(f"{sha256_file(path)}  {path.name}\n" for path in _files(folder)))


def score_entries(cards: Mapping[Path, Card], *, shown: bool = True) -> list[ScoresEntry]:
    """Score files for ``scores`` of :func:`capbench.leaderboard`, an entry for each column or shown row."""
    return [
        card.score_entry(path, name)
        for path, card in cards.items()
        for name, column in card.columns.items()
        if column.shown or not shown
    ]

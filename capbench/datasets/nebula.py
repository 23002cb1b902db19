"""Nebula and Polaris: captions of many systems with the mean of several people's scores, from 0 to 1.

Files: ``nebula/nebula_test.json`` and ``polaris/polaris_test.json``, or the same as ``.csv`` or ``.parquet``
(:mod:`capbench.datasets.judgement_files`). Images are known by ids that are hashes.

Nebula has two versions. ``1`` is the test set as it was published. ``spica`` has the scores of a larger collection of
judgements by the same group: ``nebula/spica_train.csv``, ``spica_val.csv`` and ``spica_test.csv`` (``imgid``, ``mt``,
``score``). A caption's score is the mean of its rows there; one that is not there keeps its own. That is how
CaptionEvalKit, whose numbers are printed for Nebula, corrects the scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from capbench.core.records import Item, Judgements
from capbench.datasets import judgement_files
from capbench.datasets.base import Dataset
from capbench.datasets.judgement_files import RatedRow, read_rated_rows
from capbench.datasets.protocol import ItemSelection, StatisticSpec, correlations
from capbench.datasets.root import DataRoot

__all__ = ["Nebula", "Polaris"]

_FEW = 5
_SPICA = tuple(f"nebula/spica_{split}.csv" for split in ("train", "val", "test"))
_SELECTIONS = (
    ItemSelection("all-references", "all rows; all references of each", source="Polos, DENEB, EXPERT"),
    ItemSelection("first-5-references", "all rows; the first five references of each"),
    ItemSelection("last-5-references", "all rows; the last five references of each"),
)


class _RatedCaptions(Dataset):
    """A file of rated rows: every row is an item with one rating."""

    selections: ClassVar[Mapping[str, ItemSelection]] = {selection.name: selection for selection in _SELECTIONS}
    statistics: ClassVar[Mapping[str, StatisticSpec]] = correlations("score")
    default: ClassVar[tuple[str, str]] = ("all-references", "tau-c")
    groups: ClassVar[Sequence[str] | None] = ()
    image_folders: ClassVar[Sequence[str]] = ("nebula/images", "polaris/images")
    stem: ClassVar[str]
    """Path of its file without the ending."""

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """One item a row in the order of the file; ``ratings["score"]`` holds one real-valued rating an item."""
        endings = (".json", ".csv", ".parquet")
        path = self.root.file(*(f"{self.stem}{ending}" for ending in endings), what=f"the rows of {self.title}")
        rows = read_rated_rows(path)
        scores, notes = self._scores(rows)
        items = tuple(
            Item(row.image, row.candidate, _chosen(row.references, selection.name), f"row-{number}")
            for number, row in enumerate(rows, 1)
        )
        more = sum(len(row.references) > _FEW for row in rows)
        if more and selection.name != "all-references":
            notes = [*notes, f"{more:,} items have more than {_FEW} references and keep {_FEW}"]
        ratings = {"score": judgement_files.ratings(range(len(rows)), scores, (0.0, 1.0))}
        return (Judgements(self.name, selection.name, items, ratings, notes=tuple(notes)),)

    def _scores(self, rows: Sequence[RatedRow]) -> tuple[list[float], list[str]]:
        """The rating of each row, and what is worth knowing of them."""
        return [row.score for row in rows], []


def _chosen(references: tuple[str, ...], selection: str) -> tuple[str, ...]:
    return {"first-5-references": references[:_FEW], "last-5-references": references[-_FEW:]}.get(selection, references)


class Nebula(_RatedCaptions):
    """3,298 captions of the test set, one an image, each with five references or more."""

    name: ClassVar[str] = "nebula"
    title: ClassVar[str] = "Nebula"
    version: ClassVar[str] = "1"
    versions: ClassVar[Mapping[str, str]] = {"1": "as published", "spica": "scores corrected by Spica's judgements"}
    citation: ClassVar[str] = (
        "K. Matsuda, Y. Wada, K. Sugiura: DENEB: A Hallucination-Robust Automatic Evaluation Metric for Image "
        "Captioning. ACCV 2024"
    )
    stem: ClassVar[str] = "nebula/nebula_test"

    @classmethod
    def newest_version(cls, root: DataRoot) -> str:
        """``spica`` if all its files are at hand, else ``1``."""
        return "spica" if all((root.path / name).is_file() for name in _SPICA) else "1"

    def _scores(self, rows: Sequence[RatedRow]) -> tuple[list[float], list[str]]:
        if self.version == "1":
            told = "the scores are those first published; version spica, which corrects them, is not here"
            newest = self.newest_version(self.root) == "1"
            return [row.score for row in rows], [told] if newest and not self.root.is_sample else []
        given: dict[tuple[str, str], list[float]] = {}
        for name in _SPICA:
            for row in read_rated_rows(self.root.file(name, what="Spica's scores"), references=False):
                given.setdefault(_key(row), []).append(row.score)
        scores = []
        corrected = 0
        for row in rows:
            of_caption = given.get(_key(row))
            scores.append(row.score if of_caption is None else sum(of_caption) / len(of_caption))
            corrected += of_caption is not None
        names = ", ".join(Path(name).name for name in _SPICA)
        return scores, [f"{corrected:,} of {len(rows):,} scores are those of {names}; the others are as published"]


def _key(row: RatedRow) -> tuple[str, str]:
    return row.image, " ".join(row.candidate.split())


class Polaris(_RatedCaptions):
    """26,122 captions of the test set."""

    name: ClassVar[str] = "polaris"
    title: ClassVar[str] = "Polaris"
    version: ClassVar[str] = "1"
    versions: ClassVar[Mapping[str, str]] = {"1": "as published"}
    citation: ClassVar[str] = (
        "Y. Wada, K. Kaneda, D. Saito, K. Sugiura: Polos: Multimodal Metric Learning from Human Feedback for Image "
        "Captioning. CVPR 2024"
    )
    stem: ClassVar[str] = "polaris/polaris_test"

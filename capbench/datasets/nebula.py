"""Nebula and Polaris: captions by many systems, each with the mean of several raters' scores, from 0 to 1.

Files: ``nebula/nebula_test.json`` and ``polaris/polaris_test.json``, or the same data as ``.csv`` or ``.parquet``. The
ids of images are hashes.

- ``.json``: a list of objects;
- ``.csv``: a table with a header; ``refs`` is a list in JSON or Python syntax (as pandas writes it), and quoted fields
  may contain line breaks;
- ``.parquet``.

The columns are ``mt`` or ``cand`` (the candidate), ``refs``, ``score`` or ``human_score``, ``imgid`` or ``file_name``.
A Parquet file that includes the images may name an image by its path instead (``img.path``, ``image.path``). Other
columns are ignored.

Nebula has two versions. ``1`` is the test set as published. ``spica`` takes its scores from a larger collection of
judgements by the same group: ``nebula/spica_train.csv``, ``spica_val.csv`` and ``spica_test.csv`` (``imgid``, ``mt``,
``score``). The score of a caption is the mean of its rows there; a caption without such rows keeps its published score.
CaptionEvalKit, whose numbers are printed for Nebula, corrects the scores in the same way.
"""

from __future__ import annotations

import ast
import csv
import io
import json
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from capbench.core import files
from capbench.core.errors import DataError, require
from capbench.core.records import Item, Judgements
from capbench.datasets import judgement_files
from capbench.datasets.base import Dataset
from capbench.datasets.judgement_files import file_error, parse_caption, parse_image
from capbench.datasets.protocol import ItemSelection, StatisticSpec, correlations
from capbench.datasets.root import DataRoot

_FEW = 5
_SPICA = tuple(f"nebula/spica_{split}.csv" for split in ("train", "val", "test"))
_SELECTIONS = (
    ItemSelection("all-references", "all rows; all references of each", source="Polos, DENEB, EXPERT"),
    ItemSelection("first-5-references", "all rows; the first five references of each"),
    ItemSelection("last-5-references", "all rows; the last five references of each"),
)

_CANDIDATE = ("mt", "cand")
_SCORE = ("score", "human_score")
_IMAGE = ("imgid", "file_name", "img.path", "image.path")
_BLANKS = str.maketrans("\t\n\r", "   ")


@dataclass(frozen=True)
class RatedRow:
    """One rated caption.

    Attributes:
        place: the row in the file, for messages (``entry 3``, or the number of its first line).
        image: image id.
        candidate: the caption; line breaks and tabs are replaced by spaces.
        references: the references, cleaned in the same way; empty if they were not read.
        score: the raters' score, from 0 to 1.
    """

    place: int | str
    image: str
    candidate: str
    references: tuple[str, ...]
    score: float


def read_rated_rows(path: Path, *, references: bool = True) -> list[RatedRow]:
    """Read a file of rated captions, in the order of the file.

    Args:
        path: a ``.json``, ``.csv`` or ``.parquet`` file.
        references: False to ignore the column ``refs``, which may then be missing.

    Raises:
        MissingFileError: the file does not exist.
        DataError: the content does not match the file's ending, a column is missing, or a row has an empty caption, no
            reference, no image or a score that is not a number from 0 to 1.
    """
    readers: Mapping[str, Callable[[Path], Iterable[tuple[int | str, Mapping[str, Any]]]]] = {
        ".json": _json_records,
        ".csv": _csv_records,
        ".parquet": _parquet_records,
    }
    rows = []
    for place, record in readers[path.suffix.lower()](path):
        image = parse_image(_one_of(record, _IMAGE, path, place), "image's name", path=path, row=place)
        candidate = _caption(_one_of(record, _CANDIDATE, path, place), "candidate", path, place)
        texts = _references(record, path, place) if references else ()
        score = _score(_one_of(record, _SCORE, path, place), path, place)
        rows.append(RatedRow(place, image, candidate, texts, score))
    if not rows:
        raise file_error("contains no row", "missing-value", path)
    return rows


def _one_of(record: Mapping[str, Any], names: Sequence[str], path: Path, place: int | str) -> Any:
    for name in names:
        if record.get(name) is not None:
            return record[name]
    raise DataError(
        f"has no '{names[0]}'",
        code="missing-key",
        value=names[0],
        path=path,
        row=place,
        hint=f"Every row needs {' or '.join(names)}" if len(names) > 1 else "Download the file again",
    )


def _caption(text: object, what: str, path: Path, place: int | str) -> str:
    return parse_caption(text, what, path=path, row=place).translate(_BLANKS)


def _references(record: Mapping[str, Any], path: Path, place: int | str) -> tuple[str, ...]:
    texts = _one_of(record, ("refs",), path, place)
    if isinstance(texts, str):
        texts = _parse_list(texts)
    if not isinstance(texts, list) or not texts:
        problem, hint = "'refs' is not a list of references", 'Write it as ["…", "…"]'
        raise DataError(problem, code="missing-references", path=path, row=place, hint=hint)
    return tuple(_caption(text, f"reference {n}", path, place) for n, text in enumerate(texts, 1))


def _parse_list(text: str) -> Any:
    """The value of a cell with a list in JSON or Python syntax; None if it cannot be parsed."""
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # raised for a caption with a backslash
            return ast.literal_eval(text.strip())
    except (ValueError, TypeError, SyntaxError):
        return None


def _score(value: object, path: Path, place: int | str) -> float:
    try:
        score = float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        score = math.nan
    if not 0.0 <= score <= 1.0:  # NaN too
        problem = f"the score {value!r} is not a number from 0 to 1"
        raise DataError(problem, code="out-of-range", value=value, path=path, row=place, hint="Correct that row")
    return score


def _json_records(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    data = files.read_json(path)
    if not isinstance(data, list):
        raise file_error("is not a JSON list of rows", "wrong-format", path)
    for number, record in enumerate(data, 1):
        if not isinstance(record, dict):
            raise file_error("is not a JSON object", "wrong-type", path, f"entry {number}")
        yield f"entry {number}", record


def _csv_records(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    reader = csv.reader(io.StringIO(files.read_text(path), newline=""), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        if not any(name in header for name in _CANDIDATE):
            hint = "The first line must name the columns, separated by commas: mt,refs,score,imgid"
            raise DataError("has no column 'mt'", code="missing-column", value="mt", path=path, row=1, hint=hint)
        last = reader.line_num
        for cells in reader:
            row, last = last + 1, reader.line_num  # a quoted cell may contain line breaks
            if len(cells) != len(header):
                hint = "Put text with a comma or a quotation mark into double quotes"
                problem = f"has {len(cells)} cells, the header has {len(header)}"
                raise DataError(problem, code="wrong-format", value=len(cells), path=path, row=row, hint=hint)
            # Empty cells count as missing.
            yield row, {name: cell for name, cell in zip(header, cells, strict=True) if cell.strip()}
    except csv.Error as error:
        problem, hint = f"is not a well-formed table ({error})", "Check its quotation marks"
        raise DataError(problem, code="wrong-format", path=path, row=reader.line_num, hint=hint) from error


def _parquet_records(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    require("pyarrow", purpose=str(path))
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            # The file may include the images: read only the columns of text and numbers.
            leaves = [file.schema.column(i).path for i in range(len(file.schema))]
            plain = (*_CANDIDATE, *_SCORE, *_IMAGE)
            wanted = [leaf for leaf in leaves if leaf.split(".")[0] == "refs" or leaf in plain]
            row = 0
            for batch in file.iter_batches(columns=wanted):
                for record in batch.to_pylist():
                    row += 1
                    for name in ("img", "image"):
                        if isinstance(record.get(name), dict):
                            record[f"{name}.path"] = record[name].get("path")
                    yield row, record
    except Exception as error:  # a damaged file may make pyarrow raise anything
        if not path.is_file():
            files.read_text(path)  # raises a more specific error
        raise file_error(f"is not a Parquet file ({error})", "wrong-format", path) from error


class _RatedCaptions(Dataset):
    """A file of rated captions: every row is an item with one rating."""

    selections: ClassVar[Mapping[str, ItemSelection]] = {selection.name: selection for selection in _SELECTIONS}
    statistics: ClassVar[Mapping[str, StatisticSpec]] = correlations("score")
    default: ClassVar[tuple[str, str]] = ("all-references", "tau-c")
    groups: ClassVar[Sequence[str] | None] = ()
    image_folders: ClassVar[Sequence[str]] = ("nebula/images", "polaris/images")
    stem: ClassVar[str]
    """Path of the data set's file without the ending."""

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """One item per row in the order of the file; ``ratings["score"]`` has one real-valued rating per item."""
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
        """The rating of each row, and notes."""
        return [row.score for row in rows], []


def _chosen(references: tuple[str, ...], selection: str) -> tuple[str, ...]:
    return {"first-5-references": references[:_FEW], "last-5-references": references[-_FEW:]}.get(selection, references)


class Nebula(_RatedCaptions):
    """The test set: 3,298 captions, one per image, each with five or more references."""

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
        """``spica`` if all its files exist, else ``1``."""
        return "spica" if all((root.path / name).is_file() for name in _SPICA) else "1"

    def _scores(self, rows: Sequence[RatedRow]) -> tuple[list[float], list[str]]:
        if self.version == "1":
            note = "the scores are those first published; the files of version spica, which corrects them, are missing"
            newest = self.newest_version(self.root) == "1"
            return [row.score for row in rows], [note] if newest and not self.root.is_sample else []
        spica_scores: dict[tuple[str, str], list[float]] = {}
        for name in _SPICA:
            for row in read_rated_rows(self.root.file(name, what="Spica's scores"), references=False):
                spica_scores.setdefault(_key(row), []).append(row.score)
        scores = []
        corrected = 0
        for row in rows:
            of_caption = spica_scores.get(_key(row))
            scores.append(row.score if of_caption is None else sum(of_caption) / len(of_caption))
            corrected += of_caption is not None
        names = ", ".join(Path(name).name for name in _SPICA)
        return scores, [f"{corrected:,} of {len(rows):,} scores are from {names}; the others are as published"]


def _key(row: RatedRow) -> tuple[str, str]:
    return row.image, " ".join(row.candidate.split())


class Polaris(_RatedCaptions):
    """The test set: 26,122 captions."""

    name: ClassVar[str] = "polaris"
    title: ClassVar[str] = "Polaris"
    version: ClassVar[str] = "1"
    versions: ClassVar[Mapping[str, str]] = {"1": "as published"}
    citation: ClassVar[str] = (
        "Y. Wada, K. Kaneda, D. Saito, K. Sugiura: Polos: Multimodal Metric Learning from Human Feedback for Image "
        "Captioning. CVPR 2024"
    )
    stem: ClassVar[str] = "polaris/polaris_test"

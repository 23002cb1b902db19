"""Published files of judgements: shared checks of rows and numbers, contradictory repeats, draws, and two formats.

Rows of a candidate, its references and a real-valued score (Polaris, Nebula, Spica) have the columns ``mt`` or ``cand``
(the candidate), ``refs``, ``score`` or ``human_score``, ``imgid`` or ``file_name``; a Parquet file with pictures inside
may name an image by their path instead (``img.path``, ``image.path``). Other columns are ignored. Three kinds of file
hold them:

- ``.json``: a list of objects;
- ``.csv``: a table with a header; ``refs`` is a list as JSON or as Python writes it (pandas does), and quoted fields
  may hold line breaks;
- ``.parquet``.

The JSON of CLIPScore (Hessel and others 2021) is an object of images: key → ``human_judgement`` (a list of ``caption``
and ``rating``, one entry per rating), ``ground_truth`` (a list of references) and ``image_path``. Files of this form
are ``flickr8k.json`` (three entries per caption, one for each expert), ``crowdflower_flickr8k.json`` and copies of
Composite.
"""

from __future__ import annotations

import ast
import csv
import io
import json
import math
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from capbench.core import files
from capbench.core.errors import DataError
from capbench.core.records import Item, Ratings, image_id

__all__ = [
    "ByName",
    "JudgedCaption",
    "JudgedImage",
    "RatedRow",
    "Repeats",
    "column_error",
    "draw_references",
    "file_error",
    "grouped",
    "json_lines",
    "parse_caption",
    "parse_image",
    "parse_integer",
    "ratings",
    "read_human_judgements",
    "read_rated_rows",
    "reference_orders",
    "require_references",
    "split_caption_id",
    "table_rows",
]


T = TypeVar("T")
PathLike = str | os.PathLike[str]

_UNFIT = re.compile("[\0\x1f\ud800-\udfff]")
_MOST_DIGITS = 9  # of a caption's number
_DELIMITERS = {"\t": "a tab", ",": "a comma", ";": "a semicolon", "|": "a bar", " ": "a space"}


class ByName(dict[str, T]):
    """Ratings by aspect, or preferences by label, that know why one of them is not here.

    Args:
        here: what was read.
        absent: for a name whose file is missing, a function that returns the error to raise when it is looked up;
            ``in`` says False.
        later: for a name whose file takes long to read, a function that reads it when it is looked up; ``in`` says
            True.
    """

    def __init__(
        self,
        here: Mapping[str, T],
        absent: Mapping[str, Callable[[], Exception]] | None = None,
        later: Mapping[str, Callable[[], T]] | None = None,
    ) -> None:
        super().__init__(here)
        self.absent = dict(absent or {})
        self.later = dict(later or {})

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self.later

    def __reduce__(self) -> tuple[object, ...]:
        # Functions of a reader cannot be pickled: what is read later is read now, and what is absent says so itself.
        for name in self.later:
            self[name]
        absent = {name: partial(_given, error()) for name, error in self.absent.items()}
        return (ByName, (dict(self), absent))

    def __missing__(self, name: str) -> T:
        if name in self.later:
            self[name] = self.later[name]()
            return self[name]
        if name in self.absent:
            raise self.absent[name]()
        raise KeyError(name)


def _given(error: Exception) -> Exception:
    return error


def table_rows(path: PathLike, columns: Sequence[str], delimiter: str = "\t") -> Iterator[tuple[int, list[str]]]:
    """Rows of a delimited text file without quoting, with their numbers from 1; blank rows at the end are skipped.

    Args:
        path: the file; it has no header.
        columns: names of the columns, for error messages.
        delimiter: what separates them.

    Raises:
        DataError: a row does not have exactly these columns; it is named.
    """
    lines = files.read_lines(path)
    while not lines[-1].strip():
        lines.pop()
    for row, line in enumerate(lines, 1):
        fields = line.split(delimiter)
        if len(fields) != len(columns):
            raise column_error(path, row, line, columns, delimiter)
        yield row, fields


def json_lines(path: PathLike) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file of JSON lines with their rows from 1; blank lines at the end are skipped.

    Raises DataError (with the row) for a line that is not a JSON object, NaN and infinities included.
    """

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not a JSON number")

    lines = files.read_lines(path)
    while not lines[-1].strip():
        lines.pop()
    for row, line in enumerate(lines, 1):
        try:
            record = json.loads(line, parse_constant=refuse)
        except (ValueError, RecursionError) as error:
            hint = "Every line is one JSON object: get the file again, or correct the line"
            raise DataError(f"is not JSON ({error})", code="wrong-format", path=path, row=row, hint=hint) from error
        if not isinstance(record, dict):
            raise DataError(
                "is not a JSON object", code="wrong-type", path=path, row=row, hint="Every line is one JSON object: {…}"
            )
        yield row, record


def file_error(
    message: str, code: str, path: PathLike, row: int | str | None = None, *, value: object = None
) -> DataError:
    """The error for a published file with invalid content; arguments as for ``CapbenchError``."""
    return DataError(message, code=code, value=value, path=path, row=row, hint="Get the file again")


def column_error(path: PathLike, row: int, line: str, columns: Sequence[str], delimiter: str) -> DataError:
    """The error for a row with a wrong number of columns; it says so when another delimiter would fit."""
    columns_here = len(line.split(delimiter))
    other = next((d for d in "\t;,|" if d != delimiter and len(line.split(d)) >= len(columns) > columns_here), None)
    if not line.strip():
        hint = "Remove the empty row"
    elif other is not None:
        hint = f"Columns seem to be separated by {_DELIMITERS[other]}: separate them by {_DELIMITERS[delimiter]}"
    else:
        hint = f"The columns are {', '.join(columns)}, separated by {_DELIMITERS[delimiter]}"
    count = f"{columns_here} column{'s' if columns_here != 1 else ''}"
    return DataError(
        f"has {count} where {len(columns)} are expected",
        code="wrong-format",
        value=columns_here,
        path=path,
        row=row,
        hint=hint,
    )


def parse_integer(text: str, low: int, high: int | None, what: str, *, path: PathLike, row: int | str) -> int:
    """Read a whole number, written ``4`` or ``4.0``.

    Args:
        text: as it stands in the file.
        low: the smallest number that fits.
        high: the largest one; None for no upper end.
        what: what it is, for error messages.
        path: the file.
        row: its row there.

    Raises:
        DataError: it is not a whole number from ``low`` to ``high``; file and row are named.
    """
    span = f"{low} to {high}" if high is not None else f"{low} or more"
    try:
        number = float(text.strip())
    except ValueError:
        hint = f"Write a whole number from {span}"
        raise DataError(
            f"the {what} '{text.strip()}' is not a number",
            code="not-a-number",
            value=text.strip(),
            path=path,
            row=row,
            hint=hint,
        ) from None
    if not number.is_integer():  # NaN and infinities too
        raise DataError(
            f"the {what} {text.strip()} is not a whole number",
            code="not-a-number",
            value=text.strip(),
            path=path,
            row=row,
            hint=f"It should be from {span}",
        )
    if number < low or (high is not None and number > high):
        raise DataError(
            f"the {what} {text.strip()} is out of range",
            code="out-of-range",
            value=text.strip(),
            path=path,
            row=row,
            hint=f"It should be from {span}",
        )
    return int(number)


def parse_caption(text: object, what: str, *, path: PathLike, row: int | str) -> str:
    """A caption without the white space around it, as it stands otherwise.

    Args:
        text: what the file holds.
        what: what it is, for error messages (``candidate``).
        path: the file.
        row: its row there.

    Raises:
        DataError: it is not a string, is empty, or holds a control character that separates captions elsewhere in capbench
            (U+001F), a NUL, or half of a surrogate pair, which UTF-8 cannot hold; file and row are named.
    """
    if not isinstance(text, str):
        raise DataError(
            f"the {what} is not a string",
            code="wrong-type",
            value=text,
            path=path,
            row=row,
            hint="Write it as a string",
        )
    stripped = text.strip()
    if not stripped:
        raise DataError(
            f"the {what} is empty",
            code="missing-value",
            path=path,
            row=row,
            hint="Give its text, or remove it with its ratings",
        )
    unfit = _UNFIT.search(stripped)
    if unfit is not None:
        kind = "half of a surrogate pair" if unfit[0] >= "\ud800" else "a control character"
        raise DataError(
            f"the {what} contains {kind}", code="wrong-value", path=path, row=row, hint="Remove that character"
        )
    return stripped


def parse_image(name: object, what: str, *, path: PathLike, row: int | str) -> str:
    """The id of the image that a file name or id names. Raises DataError with file and row if it names none."""
    image = image_id(parse_caption(name, what, path=path, row=row))
    if not image:
        raise DataError(
            f"the {what} names no image",
            code="missing-image",
            value=name,
            path=path,
            row=row,
            hint="Give the image's file name or id",
        )
    return image


def split_caption_id(caption_id: str, *, path: PathLike, row: int) -> tuple[str, int]:
    """``name.jpg#2`` → (``name.jpg``, 2).

    One image of Flickr8k is written ``name.jpg.1#0`` in its caption file and ``name.jpg`` everywhere else: the extra
    ``.1`` is dropped.

    Raises:
        DataError: there is no number; file and row are named.
    """
    name, mark, number = caption_id.strip().rpartition("#")
    if not (mark and name and number.isascii() and number.isdigit() and len(number) <= _MOST_DIGITS):
        raise DataError(
            f"'{caption_id.strip()[:80]}' is not a caption id",
            code="wrong-value",
            value=caption_id.strip()[:80],
            path=path,
            row=row,
            hint="It should be the image's file name, '#' and the caption's number",
        )
    stem, dot, tail = name.rpartition(".")
    if dot and tail.isdigit() and stem.lower().endswith(".jpg"):
        name = stem
    return name, int(number)


class Repeats:
    """Lets a row stand twice if both say the same, and refuses it if they contradict each other.

    Args:
        path: the file, for error messages.
        what: what a row is, for error messages (``pair``).
    """

    def __init__(self, path: PathLike, what: str) -> None:
        self.path = path
        self.what = what
        self._seen: dict[Hashable, tuple[int | str, object]] = {}

    def check(self, key: Hashable, value: object, row: int | str) -> bool:
        """True if ``key`` was seen before with the same value.

        Args:
            key: what may not have two values.
            value: its value.
            row: where it stands.

        Raises:
            DataError: it was seen with another value; both rows are named.
        """
        known = self._seen.setdefault(key, (row, value))
        if known[1] != value:
            first = f"row {known[0]}" if isinstance(known[0], int) else known[0]
            raise DataError(
                f"the {self.what} stands in {first} already, with other values",
                code="duplicate",
                value=key,
                path=self.path,
                row=row,
                hint="Keep the right one of the two",
            )
        return known[0] != row


def ratings(item: Iterable[int], value: Iterable[float], scale: tuple[float, float], raters: int = 1) -> Ratings:
    """Ratings in (item, rater) order, every item rated by the same number of raters.

    Args:
        item: (m,) the rated items.
        value: (m · raters,) their ratings, those of an item one after the other.
        scale: the lowest and the highest possible rating.
        raters: ratings an item.
    """
    values = np.fromiter(value, dtype=np.float64)
    items = np.fromiter(item, dtype=np.int64)
    rater = np.tile(np.arange(raters, dtype=np.int64), len(items))
    return Ratings(np.repeat(items, raters), values, rater, scale)


def require_references(items: Sequence[Item], selection: str, path: Path) -> None:
    """Refuse a selection that leaves an item without references.

    Args:
        items: the items under the selection.
        selection: its name, for the error message.
        path: the file, for the error message.

    Raises:
        DataError: an item has no reference left; its image and candidate are named.
    """
    for item in items:
        if not item.references:
            raise DataError(
                f"image {item.image} has no reference left for candidate {item.candidate_id} under '{selection}'",
                code="missing-references",
                value=item.image,
                path=path,
                hint="Add references for that image, or choose another selection of items",
            )


def draw_references(items: Sequence[Item], count: int, seed: int, draws: int) -> list[tuple[Item, ...]]:
    """For each draw, the items with ``count`` of their references, at random without replacement, in published order.

    The references are the first ones of :func:`reference_orders`. An item with fewer keeps all it has.

    Args:
        items: (n) items with all their references.
        count: references to draw for each item, 1 or more.
        seed: seed of the draws.
        draws: number of draws.
    """
    items_by_draw = []
    for orders in reference_orders(items, seed, draws):
        kept: dict[tuple[str, tuple[str, ...]], tuple[str, ...]] = {}
        for item, order in zip(items, orders, strict=True):
            key = (item.image, item.references)
            if key not in kept:
                kept[key] = tuple(item.references[i] for i in sorted(order[:count]))
        items_by_draw.append(tuple(replace(item, references=kept[item.image, item.references]) for item in items))
    return items_by_draw


def reference_orders(items: Sequence[Item], seed: int, draws: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    """For each draw, the places of every item's references in a random order.

    All items of an image see the same random order of its references, so candidates that are compared with each
    other meet the same references wherever a protocol lets them. The order comes from ``numpy``'s PCG64
    generator seeded with (seed, number of the draw), image after image by sorted id: it depends on nothing else.

    Args:
        items: (n) items with all their references.
        seed: seed of the orders.
        draws: number of draws.

    Returns:
        For each draw, n tuples: an item's places (from 0) in the drawn order.
    """
    named = {references: _numbered(references) for references in {item.references for item in items}}
    pools: dict[str, set[tuple[str, int]]] = {}
    for image, references in dict.fromkeys((item.image, item.references) for item in items):
        pools.setdefault(image, set()).update(named[references])
    # Sorted texts: the draw must not depend on the order in which a file lists an image's references.
    ordered = {image: sorted(pools[image]) for image in sorted(pools)}
    for draw in range(draws):
        generator = np.random.default_rng([seed, draw])
        places = {
            image: dict(zip(pool, generator.permutation(len(pool)).tolist(), strict=True))
            for image, pool in ordered.items()
        }
        known: dict[tuple[str, tuple[str, ...]], tuple[int, ...]] = {}
        for item in items:
            key = (item.image, item.references)
            if key not in known:
                place = [places[item.image][reference] for reference in named[item.references]]
                known[key] = tuple(sorted(range(len(place)), key=place.__getitem__))
        yield tuple(known[item.image, item.references] for item in items)


def _numbered(references: Sequence[str]) -> list[tuple[str, int]]:
    """References as (text, how often it stood before), so that a text that occurs twice can be drawn twice."""
    before: Counter[str] = Counter()
    numbered = []
    for text in references:
        numbered.append((text, before[text]))
        before[text] += 1
    return numbered


_CANDIDATE = ("mt", "cand")
_SCORE = ("score", "human_score")
_IMAGE = ("imgid", "file_name", "img.path", "image.path")
_BLANKS = str.maketrans("\t\n\r", "   ")


@dataclass(frozen=True)
class RatedRow:
    """One row.

    Attributes:
        place: what it is called in the file (``entry 3``, or the number of its first line).
        image: image id.
        candidate: the caption; a line break or tab in it is a space.
        references: likewise; empty where the reader was not asked for them.
        score: what people gave it, from 0 to 1.
    """

    place: int | str
    image: str
    candidate: str
    references: tuple[str, ...]
    score: float


def read_rated_rows(path: Path, *, references: bool = True) -> list[RatedRow]:
    """The rows of a file, in its order.

    Args:
        path: a ``.json``, ``.csv`` or ``.parquet`` file.
        references: False if the references do not matter: ``refs`` need not be there.

    Raises:
        MissingFileError: there is no such file.
        DataError: it is not what its ending says, lacks a column, or a row has an empty caption, no reference, no image
            or a score that is not a number from 0 to 1; the row is named.
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
        hint=f"Every row has {' or '.join(names)}" if len(names) > 1 else "Get the file again",
    )


def _caption(text: object, what: str, path: Path, place: int | str) -> str:
    return parse_caption(text, what, path=path, row=place).translate(_BLANKS)


def _references(record: Mapping[str, Any], path: Path, place: int | str) -> tuple[str, ...]:
    given = _one_of(record, ("refs",), path, place)
    if isinstance(given, str):
        given = _list_in(given)
    if not isinstance(given, list) or not given:
        raise DataError(
            "'refs' is not a list with a reference in it",
            code="missing-references",
            path=path,
            row=place,
            hint='Write it as ["…", "…"]',
        )
    return tuple(_caption(text, f"reference {n}", path, place) for n, text in enumerate(given, 1))


def _list_in(text: str) -> Any:
    """The list that a table's cell holds, as JSON or as Python writes it; None if it holds none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # of a caption with a backslash
            return ast.literal_eval(text.strip())
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _score(given: object, path: Path, place: int | str) -> float:
    try:
        score = float(given) if isinstance(given, (int, float, str)) and not isinstance(given, bool) else math.nan
    except (ValueError, OverflowError):
        score = math.nan
    if not 0.0 <= score <= 1.0:  # NaN too
        raise DataError(
            f"the score {given!r} is not a number from 0 to 1",
            code="out-of-range",
            value=given,
            path=path,
            row=place,
            hint="Correct that row",
        )
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
            hint = "The first line names the columns: mt, refs, score, imgid, separated by commas"
            raise DataError("has no column 'mt'", code="missing-column", value="mt", path=path, row=1, hint=hint)
        last = reader.line_num
        for cells in reader:
            row, last = last + 1, reader.line_num  # a quoted cell may hold line breaks
            if len(cells) != len(header):
                hint = "Put text that holds a comma or a quote into double quotes"
                problem = f"has {len(cells)} cells, the header has {len(header)}"
                raise DataError(problem, code="wrong-format", value=len(cells), path=path, row=row, hint=hint)
            # An empty cell is a column that the row does not have.
            yield row, {name: cell for name, cell in zip(header, cells, strict=True) if cell.strip()}
    except csv.Error as error:
        problem = f"is not a well-formed table ({error})"
        raise DataError(
            problem, code="wrong-format", path=path, row=reader.line_num, hint="Check its quotes"
        ) from error


def _parquet_records(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            # Pictures lie in the same file: only columns of text and numbers are read.
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
            files.read_text(path)  # raises the error that says why
        raise file_error(f"is not a Parquet file ({error})", "wrong-format", path) from error


_LARGEST = 1e6
"""No rating is larger; a number that no float holds is none."""


@dataclass(frozen=True)
class JudgedCaption:
    """One entry of ``human_judgement``: ``rating`` is None where the file says NaN."""

    caption: str
    rating: float | None
    row: str


@dataclass(frozen=True)
class JudgedImage:
    """One image of the file.

    Attributes:
        key: its key.
        image: image id.
        path: its ``image_path``, ``""`` if there is none.
        judgements: its ratings, in the order of the file.
        references: its ``ground_truth``.
    """

    key: str
    image: str
    path: str
    judgements: tuple[JudgedCaption, ...]
    references: tuple[str, ...]


def read_human_judgements(path: Path, data: Any = None) -> list[JudgedImage]:
    """The images of a file, in its order.

    Args:
        path: the file.
        data: what it holds, if it was read already.

    Raises:
        DataError: it is not an object of images, an image has no list ``human_judgement`` or ``ground_truth``, a caption or
            reference is empty, a rating is not a number; the image and the judgement are named.
    """
    if data is None:
        data = files.read_json(path, unique_keys=True, nan=True)
    if not isinstance(data, dict) or not data:
        raise file_error("is not a JSON object of images", "wrong-format", path)
    images: dict[str, JudgedImage] = {}
    for key, entry in data.items():
        row = f"image '{key}'"
        if not isinstance(entry, dict):
            raise file_error("is not a JSON object", "wrong-type", path, row)
        judged, texts = (_list(entry, name, path, row) for name in ("human_judgement", "ground_truth"))
        name = parse_image(key, "image's name", path=path, row=row)
        if name in images:
            raise DataError(
                f"the image {name} already occurs above",
                code="duplicate",
                value=name,
                path=path,
                row=row,
                hint="Keep one of the two",
            )
        where = entry.get("image_path")
        images[name] = JudgedImage(
            key,
            name,
            where if isinstance(where, str) else "",
            tuple(_judgement(one, path, f"{row}, judgement {number}") for number, one in enumerate(judged, 1)),
            tuple(parse_caption(text, f"reference {n}", path=path, row=row) for n, text in enumerate(texts, 1)),
        )
    return list(images.values())


def grouped(image: JudgedImage, size: int, path: Path) -> list[tuple[str, tuple[float, ...]]]:
    """The captions of an image with ``size`` ratings each, which stand one behind the other.

    Raises:
        DataError: the entries do not come in groups of ``size`` with one caption, or a rating is missing.
    """
    captions = []
    for start in range(0, len(image.judgements), size):
        group = image.judgements[start : start + size]
        texts = {one.caption for one in group}
        if len(group) != size or len(texts) != 1:
            hint = f"A caption's {size} ratings stand one behind the other"
            raise DataError(
                f"has not {size} ratings of one caption", code="mismatch", path=path, row=group[0].row, hint=hint
            )
        captions.append((group[0].caption, tuple(_given_rating(one, path) for one in group)))
    return captions


def _given_rating(judgement: JudgedCaption, path: Path) -> float:
    if judgement.rating is None:
        raise file_error("the rating is NaN", "not-a-number", path, judgement.row)
    return judgement.rating


def _list(entry: dict[str, Any], name: str, path: Path, row: str) -> Sequence[object]:
    value = entry.get(name)
    if not isinstance(value, list) or not value:
        raise file_error(f"has no list '{name}'", "missing-key", path, row, value=name)
    return value


def _judgement(entry: object, path: Path, row: str) -> JudgedCaption:
    if not isinstance(entry, dict):
        raise file_error("is not a JSON object", "wrong-type", path, row)
    caption = parse_caption(entry.get("caption"), "caption", path=path, row=row)
    rating = entry.get("rating")
    if isinstance(rating, bool) or not isinstance(rating, (int, float)) or abs(rating) > _LARGEST:
        raise DataError(
            f"the rating {rating!r} is not a number",
            code="not-a-number",
            value=rating,
            path=path,
            row=row,
            hint="Correct that entry",
        )
    return JudgedCaption(caption, None if math.isnan(rating) else float(rating), row)

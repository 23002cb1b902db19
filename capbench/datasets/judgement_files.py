"""Helpers for reading published files of judgements: checks of rows and fields, repeated rows, sampled references.

Also a reader of CLIPScore's JSON (Hessel and others 2021), an object of images: key → ``human_judgement`` (a list of
``caption`` and ``rating``, one entry per rating), ``ground_truth`` (a list of references) and ``image_path``. Files in
this format are ``flickr8k.json`` (three entries per caption, one for each expert), ``crowdflower_flickr8k.json`` and
copies of Composite.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from capbench.core import files
from capbench.core.errors import DataError, count
from capbench.core.records import Item, Ratings, image_id

T = TypeVar("T")
PathLike = str | os.PathLike[str]

_UNFIT = re.compile("[\0\x1f\ud800-\udfff]")
_MOST_DIGITS = 9  # of a caption's number
_DELIMITERS = {"\t": "a tab", ",": "a comma", ";": "a semicolon", "|": "a bar", " ": "a space"}


class ByName(dict[str, T]):
    """Ratings by aspect or preferences by label, with an error for each missing one and slow files read on demand.

    Args:
        here: values that are already read.
        absent: name → function that returns the error to raise on lookup, for names whose file is missing; ``in``
            returns False for these.
        later: name → function that reads the value on first lookup, for files that take long to read; ``in`` returns
            True for these.
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
        # A reader's functions cannot be pickled: read pending values now and store the errors themselves.
        for name in self.later:
            self[name]
        absent = {name: partial(_identity, error()) for name, error in self.absent.items()}
        return (ByName, (dict(self), absent))

    def __missing__(self, name: str) -> T:
        if name in self.later:
            self[name] = self.later[name]()
            return self[name]
        if name in self.absent:
            raise self.absent[name]()
        raise KeyError(name)


def _identity(error: Exception) -> Exception:
    return error


def table_rows(path: PathLike, columns: Sequence[str], delimiter: str = "\t") -> Iterator[tuple[int, list[str]]]:
    """Row numbers (from 1) and fields of a delimited text file without quoting; blank rows at the end are skipped.

    Args:
        path: the file; it has no header.
        columns: names of the columns, for error messages.
        delimiter: separator of the columns.

    Raises:
        DataError: a row has another number of columns.
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
    """Line numbers (from 1) and objects of a JSON Lines file; blank lines at the end are skipped.

    Raises:
        DataError: a line is not a JSON object, or contains NaN or infinity.
    """

    def reject(constant: str) -> Any:
        raise ValueError(f"{constant} is not a JSON number")

    lines = files.read_lines(path)
    while not lines[-1].strip():
        lines.pop()
    for row, line in enumerate(lines, 1):
        try:
            record = json.loads(line, parse_constant=reject)
        except ValueError as error:
            hint = "Every line must be one JSON object: download the file again, or correct the line"
            raise DataError(f"is not JSON ({error})", code="wrong-format", path=path, row=row, hint=hint) from error
        if not isinstance(record, dict):
            hint = "Every line must be one JSON object: {…}"
            raise DataError("is not a JSON object", code="wrong-type", path=path, row=row, hint=hint)
        yield row, record


def file_error(
    message: str, code: str, path: PathLike, row: int | str | None = None, *, value: object = None
) -> DataError:
    """The error for a published file with invalid content; arguments as for :class:`DataError`."""
    return DataError(message, code=code, value=value, path=path, row=row, hint="Download the file again")


def column_error(path: PathLike, row: int, line: str, columns: Sequence[str], delimiter: str) -> DataError:
    """The error for a row with a wrong number of columns; the hint names another delimiter if one would fit."""
    found = len(line.split(delimiter))
    other = next((d for d in "\t;,|" if d != delimiter and len(line.split(d)) >= len(columns) > found), None)
    if not line.strip():
        hint = "Remove the empty row"
    elif other is not None:
        hint = f"Columns seem to be separated by {_DELIMITERS[other]}: separate them by {_DELIMITERS[delimiter]}"
    else:
        hint = f"The columns are {', '.join(columns)}, separated by {_DELIMITERS[delimiter]}"
    message = f"has {count(found, 'column')}, expected {len(columns)}"
    return DataError(message, code="wrong-format", value=found, path=path, row=row, hint=hint)


def parse_integer(text: str, low: int, high: int | None, what: str, *, path: PathLike, row: int | str) -> int:
    """Parse a whole number, written ``4`` or ``4.0``.

    Args:
        text: the field's text.
        low: the smallest valid number.
        high: the largest valid number; None for no upper bound.
        what: name of the field, for error messages.
        path: the file.
        row: the row in the file.

    Raises:
        DataError: the text is not a whole number from ``low`` to ``high``.
    """
    value = text.strip()
    hint = f"Write a whole number from {low} to {high}" if high is not None else f"Write a whole number, {low} or more"
    code = "not-a-number"
    try:
        number = float(value)
    except ValueError:
        problem = f"the {what} '{value}' is not a number"
        raise DataError(problem, code=code, value=value, path=path, row=row, hint=hint) from None
    if not number.is_integer():  # NaN and infinities too
        problem = f"the {what} {value} is not a whole number"
        raise DataError(problem, code=code, value=value, path=path, row=row, hint=hint)
    if number < low or (high is not None and number > high):
        problem = f"the {what} {value} is out of range"
        raise DataError(problem, code="out-of-range", value=value, path=path, row=row, hint=hint)
    return int(number)


def parse_caption(text: object, what: str, *, path: PathLike, row: int | str) -> str:
    """The caption with surrounding white space removed, otherwise unchanged.

    Args:
        text: the value in the file.
        what: name of the field, for error messages (``candidate``).
        path: the file.
        row: the row in the file.

    Raises:
        DataError: the value is not a string, is empty, or contains U+001F (which capbench uses to separate captions),
            a NUL, or an unpaired surrogate, which UTF-8 cannot encode.
    """
    if not isinstance(text, str):
        hint = "Write it as a string"
        raise DataError(f"the {what} is not a string", code="wrong-type", value=text, path=path, row=row, hint=hint)
    stripped = text.strip()
    if not stripped:
        hint = "Fill it in, or remove the row or entry"
        raise DataError(f"the {what} is empty", code="missing-value", path=path, row=row, hint=hint)
    unfit = _UNFIT.search(stripped)
    if unfit is not None:
        kind = "an unpaired surrogate" if unfit[0] >= "\ud800" else "a control character"
        hint = "Remove that character"
        raise DataError(f"the {what} contains {kind}", code="wrong-value", path=path, row=row, hint=hint)
    return stripped


def parse_image(name: object, what: str, *, path: PathLike, row: int | str) -> str:
    """The image id in a file name or id; arguments and errors as for :func:`parse_caption`."""
    image = image_id(parse_caption(name, what, path=path, row=row))
    if not image:
        hint = "Give the image's file name or id"
        raise DataError(f"the {what} names no image", code="missing-image", value=name, path=path, row=row, hint=hint)
    return image


def split_caption_id(caption_id: str, *, path: PathLike, row: int) -> tuple[str, int]:
    """``name.jpg#2`` → (``name.jpg``, 2).

    The caption file of Flickr8k names one image ``name.jpg.1#0`` that all other files name ``name.jpg``: the extra
    ``.1`` is dropped.

    Raises:
        DataError: the id has no number.
    """
    name, mark, number = caption_id.strip().rpartition("#")
    if not (mark and name and number.isascii() and number.isdigit() and len(number) <= _MOST_DIGITS):
        raise DataError(
            f"'{caption_id.strip()[:80]}' is not a caption id",
            code="wrong-value",
            value=caption_id.strip()[:80],
            path=path,
            row=row,
            hint="Write the image's file name, '#' and the caption's number",
        )
    stem, dot, tail = name.rpartition(".")
    if dot and tail.isdigit() and stem.lower().endswith(".jpg"):
        name = stem
    return name, int(number)


class Repeats:
    """Detects repeated rows: accepts identical ones, rejects contradictory ones.

    Args:
        path: the file, for error messages.
        what: name of a row, for error messages (``pair``).
    """

    def __init__(self, path: PathLike, what: str) -> None:
        self.path = path
        self.what = what
        self._seen: dict[Hashable, tuple[int | str, object]] = {}

    def check(self, key: Hashable, value: object, row: int | str) -> bool:
        """True if an earlier row has the same key and value.

        Args:
            key: identity of the row.
            value: the row's content.
            row: the row in the file.

        Raises:
            DataError: an earlier row has the same key and another value.
        """
        known = self._seen.setdefault(key, (row, value))
        if known[1] != value:
            first = f"row {known[0]}" if isinstance(known[0], int) else known[0]
            raise DataError(
                f"the {self.what} is already in {first} with other values",
                code="duplicate",
                path=self.path,
                row=row,
                hint="Keep the correct one of the two",
            )
        return known[0] != row


def ratings(item: Iterable[int], value: Iterable[float], scale: tuple[float, float], raters: int = 1) -> Ratings:
    """Ratings in (item, rater) order; every item has the same number of ratings.

    Args:
        item: (m,) indices of the rated items.
        value: (m · raters,) ratings; those of an item are consecutive.
        scale: the lowest and the highest possible rating.
        raters: ratings per item.
    """
    values = np.fromiter(value, dtype=np.float64)
    items = np.fromiter(item, dtype=np.int64)
    rater = np.tile(np.arange(raters, dtype=np.int64), len(items))
    return Ratings(np.repeat(items, raters), values, rater, scale)


def require_references(items: Sequence[Item], selection: str, path: Path) -> None:
    """Raise DataError if an item has no references under a selection.

    Args:
        items: the items under the selection.
        selection: name of the selection, for the error message.
        path: the file, for the error message.
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
    """Items with ``count`` references sampled without replacement, once per draw; references stay in published order.

    The sample consists of the first references in :func:`reference_orders`. An item with fewer references keeps all.

    Args:
        items: (n) items with all their references.
        count: references to sample for each item, 1 or more.
        seed: random seed.
        draws: number of draws.
    """
    items_by_draw = []
    for orders in reference_orders(items, seed, draws):
        sampled: dict[tuple[str, tuple[str, ...]], tuple[str, ...]] = {}
        for item, order in zip(items, orders, strict=True):
            key = (item.image, item.references)
            if key not in sampled:
                sampled[key] = tuple(item.references[i] for i in sorted(order[:count]))
        items_by_draw.append(tuple(replace(item, references=sampled[item.image, item.references]) for item in items))
    return items_by_draw


def reference_orders(items: Sequence[Item], seed: int, draws: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Random orders of every item's references, one per draw.

    All items of an image get the same random order of its references, so that candidates that are compared with each
    other get the same references where the protocol allows it. The order comes from numpy's PCG64 generator seeded
    with (seed, number of the draw) and depends on nothing else; images are processed in the order of their ids.

    Args:
        items: (n) items with all their references.
        seed: random seed.
        draws: number of draws.

    Returns:
        For each draw, n tuples: indices (from 0) of an item's references in random order.
    """
    named = {references: _numbered(references) for references in {item.references for item in items}}
    pools: dict[str, set[tuple[str, int]]] = {}
    for image, references in dict.fromkeys((item.image, item.references) for item in items):
        pools.setdefault(image, set()).update(named[references])
    # Sorted, so that the order in which a file lists an image's references does not matter.
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
    """References as (text, number of earlier occurrences), so that a text that occurs twice can be sampled twice."""
    before: Counter[str] = Counter()
    numbered = []
    for text in references:
        numbered.append((text, before[text]))
        before[text] += 1
    return numbered


_LARGEST = 1e6
"""The largest valid rating; it also excludes integers that exceed the range of a float."""


@dataclass(frozen=True)
class JudgedCaption:
    """One entry of ``human_judgement``; ``rating`` is None for NaN in the file."""

    caption: str
    rating: float | None
    row: str


@dataclass(frozen=True)
class JudgedImage:
    """One image of CLIPScore's JSON.

    Attributes:
        key: the image's key in the file.
        image: image id.
        path: the image's ``image_path``, ``""`` if there is none.
        judgements: the ratings of its captions, in the order of the file.
        references: the image's ``ground_truth``.
    """

    key: str
    image: str
    path: str
    judgements: tuple[JudgedCaption, ...]
    references: tuple[str, ...]


def read_human_judgements(path: Path, data: Any = None) -> list[JudgedImage]:
    """Read the images of CLIPScore's JSON, in the order of the file.

    Args:
        path: the file.
        data: its parsed content, if it was already read.

    Raises:
        DataError: the file is not an object of images, an image has no list ``human_judgement`` or ``ground_truth``, a
            caption or reference is empty, or a rating is not a number.
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
    """The captions of an image with their ``size`` consecutive ratings.

    Raises:
        DataError: the entries are not in groups of ``size`` with one caption, or a rating is missing.
    """
    captions = []
    for start in range(0, len(image.judgements), size):
        group = image.judgements[start : start + size]
        texts = {one.caption for one in group}
        if len(group) != size or len(texts) != 1:
            problem = f"does not begin {size} ratings of one caption"
            hint = f"The {size} ratings of a caption must be consecutive"
            raise DataError(problem, code="mismatch", path=path, row=group[0].row, hint=hint)
        captions.append((group[0].caption, tuple(_rating(one, path) for one in group)))
    return captions


def _rating(judgement: JudgedCaption, path: Path) -> float:
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

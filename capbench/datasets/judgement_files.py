"""Helpers of the readers of published judgements: checks of texts, ratings by name."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from capbench.core.errors import CapbenchError, DataError
from capbench.core.records import FloatArray, IntArray, Item, Preferences, Ratings, image_id
from capbench.datasets.tables import plain_text

T = TypeVar("T")
PathLike = str | os.PathLike[str]
_UNFIT = re.compile("[\0\x1f\ud800-\udfff]")


class ByName(dict[str, T]):
    """Ratings by aspect or preferences by label; ``later`` reads others on first lookup, or is why they are absent.

    ``in`` and iteration know only those that are already read.
    """

    def __init__(self, here: Mapping[str, T], later: Mapping[str, Callable[[], T] | CapbenchError]) -> None:
        super().__init__(here)
        self.later = dict(later)

    def __reduce__(self) -> tuple[object, ...]:
        # A reader's functions cannot be pickled: read pending values now and store the errors.
        errors: dict[str, CapbenchError] = {}
        for name in self.later:
            try:
                self[name]
            except CapbenchError as error:
                errors[name] = error
        return (ByName, (dict(self), errors))

    def __missing__(self, name: str) -> T:
        if isinstance(later := self.later[name], CapbenchError):
            raise later
        self[name] = later()
        return self[name]


def file_error(
    message: str, code: str, path: PathLike, row: int | str | None = None, *, value: object = None
) -> DataError:
    """The error for a published file with invalid content; arguments as for :class:`DataError`."""
    return DataError(message, code=code, value=value, path=path, row=row, hint="Download the file again")


def parse_caption(
    text: object, what: str, *, path: PathLike, row: int | str, user: bool = False, empty: bool = False
) -> str:
    """The caption with surrounding white space removed; ``what`` names the field, ``empty`` allows an empty one.

    Published captions are otherwise unchanged; see :func:`capbench.datasets.tables.plain_text` for those of users.
    """
    bad = partial(DataError, path=path, row=row, hint="Correct or remove the row or entry")
    if not isinstance(text, str):
        raise bad(f"the {what} is not a string", code="wrong-type", value=text)
    stripped, unfit = plain_text(text) if user else (text.strip(), "")
    if not stripped and not empty:
        raise bad(f"the {what} is empty", code="missing-value")
    if not user and not stripped.isprintable() and (found := _UNFIT.search(stripped)):
        unfit = "an unpaired surrogate" if found[0] >= "\ud800" else "a control character"
    if unfit:
        raise bad(f"the {what} contains {unfit}", code="wrong-value")
    return stripped


def parse_image(name: object, what: str, *, path: PathLike, row: int | str) -> str:
    """The image id in a file name or id; arguments and errors as for :func:`parse_caption`."""
    image = image_id(parse_caption(name, what, path=path, row=row))
    if not image:
        hint = "Give the image's file name or id"
        raise DataError(f"the {what} names no image", code="missing-image", value=name, path=path, row=row, hint=hint)
    return image


def split_caption_id(caption_id: str) -> tuple[str, int] | None:
    """``name.jpg#2`` → (``name.jpg``, 2); None for another text.

    The caption file of Flickr8k names one image ``name.jpg.1#0`` that all other files name ``name.jpg``: the extra
    ``.1`` is dropped.
    """
    name, mark, number = caption_id.strip().rpartition("#")
    if not (mark and name and number.isascii() and number.isdigit() and len(number) <= 9):
        return None
    stem, dot, tail = name.rpartition(".")
    return (stem if dot and tail.isdigit() and stem.lower().endswith(".jpg") else name), int(number)


def ratings(item: Iterable[int], value: Iterable[float], scale: tuple[float, float], raters: int = 1) -> Ratings:
    """Ratings in (item, rater) order: (m,) indices of items, (m · raters,) ratings, those of an item consecutive."""
    values = np.fromiter(value, dtype=np.float64)
    items = np.fromiter(item, dtype=np.int64)
    rater = np.tile(np.arange(raters, dtype=np.int64), len(items))
    return Ratings(np.repeat(items, raters), values, rater, scale)


def require_references(items: Sequence[Item], selection: str, path: Path) -> None:
    """Raise DataError if a selection has no items, or an item without references."""
    if not items:
        hint = "Choose another selection of items, or get the files again"
        raise DataError(f"nothing is left under '{selection}'", code="too-few", value=selection, path=path, hint=hint)
    for item in items:
        if not item.references:
            problem = f"image {item.image} has no reference left for candidate {item.candidate_id} under '{selection}'"
            hint = "Add references for that image, or choose another selection of items"
            raise DataError(problem, code="missing-references", value=item.image, path=path, hint=hint)


def paired(
    groups: Iterable[str],
    first: ArrayLike | None = None,
    second: ArrayLike | None = None,
    preferred: ArrayLike = 1,
    votes: IntArray | None = None,
    grade: FloatArray | None = None,
) -> Preferences:
    """A preference for each group (n); by default between items 2i and 2i + 1, of which the first is preferred.

    Items ``first``, ``second`` (n,), ``preferred`` (n,) 1, -1 or 0 (a tie), ``votes`` (n, 2), ``grade`` (n,).
    """
    names = tuple(groups)
    at = 2 * np.arange(len(names), dtype=np.int64) if first is None else np.asarray(first, dtype=np.int64)
    other = at + 1 if second is None else np.asarray(second, dtype=np.int64)
    chosen = np.full(len(names), preferred, dtype=np.int64)
    return Preferences(at, other, chosen, names, np.zeros((len(names), 0), np.int64) if votes is None else votes, grade)

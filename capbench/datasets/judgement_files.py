"""Helpers of the readers of published judgements: checks of texts, ratings by name, sampled references."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NoReturn, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from capbench.core.errors import CapbenchError, DataError
from capbench.core.records import FloatArray, IntArray, Item, Judgements, Preferences, Ratings, image_id
from capbench.datasets.protocol import ItemSelection
from capbench.datasets.tables import plain_text

T = TypeVar("T")
PathLike = str | os.PathLike[str]
_UNFIT = re.compile("[\0\x1f\ud800-\udfff]")


class ByName(dict[str, T]):
    """Ratings by aspect or preferences by label; ``later`` reads others on first lookup, or raises why they are absent.

    ``in`` and iteration know only those that are already read.
    """

    def __init__(self, here: Mapping[str, T], later: Mapping[str, Callable[[], T]] | None = None) -> None:
        super().__init__(here)
        self.later = dict(later or {})

    def __reduce__(self) -> tuple[object, ...]:
        # A reader's functions cannot be pickled: read pending values now and store the errors themselves.
        errors: dict[str, Callable[[], T]] = {}
        for name in self.later:
            try:
                self[name]
            except CapbenchError as error:
                errors[name] = partial(_raise, error)
        return (ByName, (dict(self), errors))

    def __missing__(self, name: str) -> T:
        if name not in self.later:
            raise KeyError(name)
        self[name] = self.later[name]()
        return self[name]


def _raise(error: Exception) -> NoReturn:
    raise error


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


def drawn(judgements: Judgements, selection: ItemSelection, count: int = 1) -> tuple[Judgements, ...]:
    """The judgements, or one per draw of ``count`` references if the selection samples them."""
    if selection.seed is None:
        return (judgements,)
    draws = draw_references(judgements.items, count, selection.seed, selection.draws)
    return tuple(replace(judgements, items=items, draw=draw) for draw, items in enumerate(draws))


def draw_references(items: Sequence[Item], count: int, seed: int, draws: int) -> list[tuple[Item, ...]]:
    """Items with the first ``count`` references of each in :func:`reference_orders`, in published order, per draw."""
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
    """Random orders of every item's references (n tuples of indices from 0), one per draw.

    All items of an image get the same random order of its references, so that candidates that are compared with each
    other get the same references where the protocol allows it. The order comes from numpy's PCG64 generator seeded
    with (seed, number of the draw) and depends on nothing else; images are processed in the order of their ids.
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

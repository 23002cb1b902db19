"""Strict join of a file's scores to items, with a report of rows that do not fit; export of items to score elsewhere.

A row is joined to an item by the first of these identifiers that it has and that matches: the **id** of
``capbench data items``; the data set's **candidate id** (and the image, if the row has one); **image and caption**,
letter by letter; image and the caption's **text key** (:func:`capbench.core.records.caption_key`).

Captions of different meaning can have the same text key. Rows are therefore joined by text key only if it belongs to
exactly one text of the image and to exactly one text of the rows, with one score. Otherwise none of the rows with this
key is joined, and all are reported.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal, TypeVar

import numpy as np

from capbench.core.coco_names import CocoNames
from capbench.core.errors import DataError, count
from capbench.core.files import atomic_write
from capbench.core.records import FloatArray, IntArray, Item, caption_key, image_id, references_hash
from capbench.metrics.score_files import ScoreFile

K = TypeVar("K")

Repeats = Literal["refuse", "first", "mean"]
"""Treatment of two different scores of one item: reject them, use the first, or use their mean."""

_WAYS = {"id": "id", "candidate id": "candidate id", "caption": "image and caption", "text key": "image and text key"}
_ID = re.compile(r".*:[0-9a-f]{8}:[0-9a-f]{8}", re.DOTALL)


def item_id(item: Item) -> str:
    """A stable id of an item: its image, and eight digits each for the candidate and the references.

    >>> item_id(Item("dog", "A dog.", ("a dog runs",))) == item_id(Item("dog", "A dog.", ("a dog runs",), "other", "x"))
    True
    """
    return f"{_caption_id(item)}:{references_hash(item.references)[:8]}"


def _caption_id(item: Item) -> str:
    """An item's id without the digits of its references."""
    return f"{item.image}:{hashlib.blake2b(item.candidate.encode(), digest_size=4).hexdigest()}"


@dataclass(frozen=True)
class Unclear:
    """Rows of one text key that are not joined because the key is ambiguous."""

    image: str  # the image's id
    rows: tuple[int, ...]  # the rows, ascending
    texts: tuple[str, ...]  # the distinct captions of the image that have this key, in the order of the items


@dataclass(frozen=True, eq=False)
class Join:
    """Scores of a file joined to items."""

    file: ScoreFile  # the file
    items: Sequence[Item]  # (n) the items
    values: Mapping[str, FloatArray]  # by column, (n) scores; NaN for items without a score
    ways: Mapping[str, int]  # identifier of joined rows (``id``, ``caption``) → number of items
    missing: IntArray  # indices of items without a score in at least one column, ascending
    emptied: Mapping[int, int]  # row of an item with an empty cell, by the item's index
    strange: tuple[int, ...]  # rows that match no item
    other_references: tuple[int, ...]  # rows that match an item's caption but not its references
    unclear: tuple[Unclear, ...] = ()  # rows with an ambiguous text key, which are not joined
    # number of the items' draw of references, and number of draws; ``(1, 1)`` without draws
    draw: tuple[int, int] = (1, 1)

    @property
    def is_empty(self) -> bool:
        """True if no row matches any item."""
        return not self.ways and not self.unclear

    @property
    def scored(self) -> int:
        """Number of items with scores in all columns."""
        return len(self.items) - len(self.missing)

    def scored_of(self, group: str) -> tuple[int, int]:
        """Number of a group's items with scores in all columns, and number of all its items."""
        missing = set(self.missing.tolist())
        places = [place for place, item in enumerate(self.items) if item.group == group]
        return sum(place not in missing for place in places), len(places)

    def among(self, columns: Sequence[str]) -> Join:
        """The join restricted to some of the columns."""
        values = {name: self.values[name] for name in columns}
        return replace(self, values=values, missing=_without_score(values))

    @property
    def way(self) -> str:
        """Identifiers of the joined rows, for signatures: ``id``, ``caption+text key``."""
        return "+".join(self.ways)

    def note(self) -> str:
        """Summary of joined and unmatched rows, in one line."""
        joined = " and ".join(f"{number:,} items by {_WAYS[way]}" for way, number in self.ways.items()) or "0 items"
        line = f"{self.file.path.name}: scores of {joined}{self._draw_in_words()}"
        if self.strange:
            line += f"; {count(len(self.strange), 'row')} without an item (first: {_where(self.file, self.strange[0])})"
        if self.other_references:
            first = _where(self.file, self.other_references[0])
            line += f"; {len(self.other_references):,} scores with other references are not used (first: {first})"
        if self.unclear:
            line += f"; {self._unclear_in_words()}"
        if self.file.ignored:
            line += f"; unused columns: {', '.join(self.file.ignored)}"
        return line

    def complaint(self, items: str = "", *, words: str = "") -> DataError | None:
        """The error about items without a score; None if there are none.

        ``items``: argument of ``capbench data items``, if there is one; ``words``: description of the items otherwise.
        """
        if not len(self.missing):
            return None
        of_what = (items or words or "these captions") + self._draw_in_words()
        command = f"'capbench data items {items or 'DATASET'}'"
        path, file = self.file.path, self.file
        if self.other_references:
            number = f"{len(self.other_references):,}"
            message = f"{number} scores were computed with other references than those of {of_what}"
            hint = f"Score the output of {command}"
            if file.label:
                hint += f"; if it reads none, add {file.option('references', 'ignored')}"
            return file.error("mismatch", self.other_references[0], message, hint)
        if self.is_empty and len(self.strange) == len(file):
            named = f"; its data set is {', '.join(file.datasets)}" if file.datasets else ""
            first = f"first: {_row_in_words(file, 0)}"
            message = f"none of its {len(file):,} rows matches an item of {of_what}{named} ({first})"
            return DataError(message, code="unknown-item", path=path, hint=f"Use the ids that {command} writes")
        item = self.items[int(self.missing[0])]
        row = self.emptied.get(int(self.missing[0]))
        without = len({self.items[i].key for i in self.missing.tolist()})
        total = len({item.key for item in self.items})
        added = f"Add them ({command} writes all)" if items else "Add them"
        left = f"{self.scored:,} of {len(self.items):,} items are left"
        hint = f"{added}, or leave these items out for all metrics with --allow-missing ({left})"
        if self.strange:
            hint += f"; a row that matches no item: {_row_in_words(file, self.strange[0])}"
        unclear = ""
        if self.unclear:
            row = self.unclear[0].rows[0] if row is None else row
            unclear = f"; {self._unclear_in_words()}"
            hint = f"Copy these captions letter by letter, or use the ids of {command}. {hint}"
        first = f"first: '{item.candidate[:60]}' of image '{item.image}'"
        message = f"{without:,} of the {total:,} items of {of_what} have no score ({first}){unclear}"
        at = None if row is None else file.place(row)
        return DataError(message, code="missing-scores", value=item.image, path=path, row=at, hint=hint)

    def _unclear_in_words(self) -> str:
        rows, first = count(sum(len(case.rows) for case in self.unclear), "row"), self.unclear[0]
        texts = " or ".join(f"'{text[:200]}'" for text in first.texts[:2])
        named = f"{_row_in_words(self.file, first.rows[0])} for {texts} of image '{first.image}'"
        return f"{rows} not joined, because the text key is ambiguous (first: {named})"

    def _draw_in_words(self) -> str:
        number, draws = self.draw
        return f" (draw {number} of {draws})" if draws > 1 else ""


def _where(file: ScoreFile, row: int) -> str:
    place = file.place(row)
    return f"row {place}" if isinstance(place, int) else place


def _row_in_words(file: ScoreFile, row: int) -> str:
    names = ", ".join(f"{name} '{texts[row][:60]}'" for name, texts in file.names.items() if name != "references_hash")
    return f"{_where(file, row)}, {names}"


def join(
    file: ScoreFile,  # the scores
    items: Sequence[Item],  # the items, repeats included
    columns: Sequence[str] = (),  # the columns; default: all
    *,
    repeats: Repeats = "refuse",  # treatment of two different scores of one item
    check_references: bool = True,  # False for a reference-free metric: scores match items with any references
) -> Join:
    """Join scores to items."""
    return _Joining(file, items, columns or tuple(file.columns), repeats, check_references).run()


def _places(names: Iterable[K]) -> dict[K, list[int]]:
    """Places by name."""
    places: dict[K, list[int]] = {}
    for place, name in enumerate(names):
        places.setdefault(name, []).append(place)
    return places


def _without_score(values: Mapping[str, FloatArray]) -> IntArray:
    """Indices of items without a score in at least one column, ascending."""
    return np.flatnonzero(np.any([np.isnan(of_column) for of_column in values.values()], axis=0))


class _Distinct:
    """The distinct ones of some items, with their identifiers."""

    _last: ClassVar[list[_Distinct]] = []

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        places: dict[tuple[str, str, tuple[str, ...]], int] = {}
        keys = ((item.image, item.candidate, item.references) for item in items)
        self.index = np.array([places.setdefault(key, len(places)) for key in keys], dtype=np.int64)  # of each item
        self.first: list[int] = np.unique(self.index, return_index=True)[1].tolist()  # index of each distinct item
        self.distinct = [items[place] for place in self.first]
        self.images = dict.fromkeys(item.image for item in self.distinct)
        self.coco = CocoNames(self.images)

    @classmethod
    def of(cls, items: Sequence[Item]) -> _Distinct:
        """Those of some items. The last ones are kept: a study joins each of its files to the same items."""
        for known in cls._last:
            if known.items is items:
                return known
        made = cls(items)
        if isinstance(items, tuple):  # a list may be changed
            cls._last[:] = [made, *cls._last[:4]]
        return made

    @cached_property
    def by_id(self) -> dict[str, list[int]]:
        return _places(map(item_id, self.distinct))

    @cached_property
    def by_caption_id(self) -> dict[str, list[int]]:
        """Distinct items by their ids without the digits of their references."""
        return _places(map(_caption_id, self.distinct))

    @cached_property
    def by_text(self) -> dict[tuple[str, str], list[int]]:
        return _places((item.image, item.candidate) for item in self.distinct)

    @cached_property
    def by_key(self) -> dict[tuple[str, str], dict[str, list[int]]]:
        """Distinct items by image and text key, then by their text."""
        made: dict[tuple[str, str], dict[str, list[int]]] = {}
        for (image, text), places in self.by_text.items():
            made.setdefault((image, caption_key(text)), {})[text] = places
        return made

    @cached_property
    def by_candidate_id(self) -> dict[str, dict[int, None]]:
        """Distinct items by the data set's own ids of their captions."""
        of_name: dict[str, dict[int, None]] = {}
        for place, item in zip(self.index.tolist(), self.items, strict=True):
            if item.candidate_id:
                of_name.setdefault(item.candidate_id, {})[place] = None
        return of_name


class _Joining:
    """One pass over the rows of a file for each kind of identifier."""

    def __init__(
        self, file: ScoreFile, items: Sequence[Item], columns: Sequence[str], repeats: Repeats, check_references: bool
    ) -> None:
        self.file, self.items, self.columns, self.repeats = file, items, columns, repeats
        self.check_references = check_references
        self.known = _Distinct.of(items)
        self.distinct = self.known.distinct
        self.row_of = [-1] * len(self.distinct)
        self.more_rows: dict[int, list[int]] = {}
        self.other_references: set[int] = set()
        self.unclear: list[Unclear] = []
        self.ways = dict.fromkeys(_WAYS, 0)
        self.named = [name for name in ("image", "caption") if name in file.names]
        self.hashes = file.names.get("references_hash") if check_references else None

    def run(self) -> Join:
        """Join the remaining rows by each kind of identifier in turn."""
        names = self.file.names
        left: Sequence[int] = range(len(self.file))
        if any(_ID.fullmatch(text) for text in names.get("id", ())[:1000]):
            left = self._join_ids(left)
        if left and ("candidate_id" in names or "id" in names):
            left = self._join_candidate_ids(left)
        if left and "image" in names and "caption" in names:
            left = self._join_captions(left)
            if left:
                left = self._join_keys(left)
        of_distinct, emptied = self._values()
        values = {name: of_column[self.known.index] for name, of_column in of_distinct.items()}
        return Join(
            self.file,
            self.items,
            values,
            {way: count for way, count in self.ways.items() if count},
            _without_score(values),
            {self.known.first[place]: row for place, row in emptied.items()},
            tuple(row for row in left if row not in self.other_references),
            tuple(sorted(self.other_references)),
            tuple(self.unclear),
        )

    def _join_ids(self, rows: Sequence[int]) -> list[int]:
        ids, by_id, by_caption_id = self.file.names["id"], self.known.by_id, self.known.by_caption_id
        left = []
        for row in rows:
            alike = by_caption_id.get(ids[row].rpartition(":")[0])  # with any references
            if alike is None:
                left.append(row)
            elif places := by_id.get(ids[row]) if self.check_references else alike:
                self._take(row, places, "id", self.named)
            else:  # must not be joined to other references by its caption
                self.other_references.add(row)
        return left

    def _join_candidate_ids(self, rows: Sequence[int]) -> list[int]:
        names, by_candidate_id = self.file.names, self.known.by_candidate_id
        ids = names.get("candidate_id") or names["id"]
        left = []
        for row in rows:
            if (found := by_candidate_id.get(ids[row])) is None:
                left.append(row)
                continue
            places = [*found]
            if "image" in names:
                image = self._image(row)
                places = [place for place in places if self.distinct[place].image == image]
            captions = {(self.distinct[place].image, self.distinct[place].candidate) for place in places}
            if len(captions) > 1 and "caption" in names:
                places = [place for place in places if self.distinct[place].candidate == names["caption"][row]]
            elif len(captions) > 1:
                message = f"the id '{ids[row]}' belongs to {len(captions)} captions of this data set"
                hint = "Add 'image' and 'caption', or use the ids that 'capbench data items' writes"
                raise self.file.error("ambiguous", row, message, hint, ids[row])
            if places:
                self._take(row, places, "candidate id", self.named)
            else:
                left.append(row)
        return left

    def _join_captions(self, rows: Sequence[int]) -> list[int]:
        names, captions, by_text = self.file.names["image"], self.file.names["caption"], self.known.by_text
        images, before = self._images(rows), self.row_of.copy()
        left = []
        for row in rows:
            free = [p for p in by_text.get((images[names[row]] or "", captions[row]), ()) if before[p] < 0]
            if same := self._with_references(row, free) if self.hashes else free:
                self._take(row, same, "caption")
                continue
            if free:
                self.other_references.add(row)
            left.append(row)
        return left

    def _join_keys(self, rows: Sequence[int]) -> list[int]:
        """Join by image and text key if the key belongs to one text of the image and to one text of the rows."""
        captions, row_of = self.file.names["caption"], self.row_of
        images = self._images(rows)
        rows_of: dict[tuple[str, str], list[int]] = {}
        left = []
        for row in rows:
            key = (images[self.file.names["image"][row]] or "", caption_key(captions[row]))
            places = [place for places in self.known.by_key.get(key, {}).values() for place in places]
            same = self._with_references(row, places)
            if any(row_of[place] < 0 for place in same):
                rows_of.setdefault(key, []).append(row)
                continue
            if places and not same:
                self.other_references.add(row)
            left.append(row)
        for key, here in rows_of.items():
            texts = self.known.by_key[key]
            places = next(iter(texts.values()))
            written = {captions[row] for row in here} | {captions[row_of[p]] for p in places if row_of[p] >= 0}
            unjoined = [place for place in places if row_of[place] < 0]
            if len(texts) > 1 or len(written) > 1 or not self._is_one_score(here, unjoined):
                self.unclear.append(Unclear(key[0], tuple(here), tuple(texts)))
                continue
            for row in here:
                self._take(row, self._with_references(row, unjoined), "text key")
        return left

    def _is_one_score(self, rows: Sequence[int], places: Sequence[int]) -> bool:
        """True if rows of one text give no item two scores, or ``repeats`` decides between them."""
        if self.repeats != "refuse" or len(rows) == 1:
            return True
        of_place: dict[int, list[int]] = {}
        for row in rows:
            for place in self._with_references(row, places):
                of_place.setdefault(place, []).append(row)
        given = [self.file.columns[name][same] for name in self.columns for same in of_place.values()]
        return all(len(np.unique(scores[~np.isnan(scores)])) <= 1 for scores in given)

    def _with_references(self, row: int, places: Sequence[int]) -> Sequence[int]:
        """The items with the row's references; all items if the row has no hash of references."""
        if self.hashes is None:
            return places
        return [place for place in places if references_hash(self.distinct[place].references) == self.hashes[row]]

    def _take(self, row: int, places: Sequence[int], way: str, checked: Sequence[str] = ()) -> None:
        """Join a row to items, whose image or caption, if ``checked``, must be those of the row."""
        for place in places:
            for name in checked:
                item = self.distinct[place]
                if not (self._image(row) == item.image if name == "image" else self._is_caption(row, item)):
                    here, other = item.image if name == "image" else item.candidate, self.file.names[name][row]
                    message = f"its {way} belongs to the {name} '{here[:60]}', but its {name} is '{other[:60]}'"
                    hint = "Correct one of the two, or remove the wrong column"
                    raise self.file.error("mismatch", row, message, hint, other)
            if self.row_of[place] < 0:
                self.ways[way] += 1
                self.row_of[place] = row
            else:
                self.more_rows.setdefault(place, []).append(row)

    def _is_caption(self, row: int, item: Item) -> bool:
        """True if the row's caption equals the item's, or has its text key and no other text of the image has it."""
        text = self.file.names["caption"][row]
        key = (item.image, caption_key(text))
        return text == item.candidate or (key[1] == caption_key(item.candidate) and len(self.known.by_key[key]) == 1)

    def _image(self, row: int) -> str | None:
        """The image of a row; None if no item has this image."""
        text = self.file.names["image"][row]
        found = next((name for name in (text, image_id(text)) if name in self.known.images), None)
        return found or self.known.coco.find(text, self.file.path, self.file.place(row))

    def _images(self, rows: Sequence[int]) -> dict[str, str | None]:
        """The images of all image names in some rows."""
        names = self.file.names["image"]
        first = {names[row]: row for row in reversed(rows)}
        return {text: self._image(row) for text, row in sorted(first.items(), key=lambda named: named[1])}

    def _values(self) -> tuple[dict[str, FloatArray], dict[int, int]]:
        """Scores of the distinct items by column, and rows with empty cells by item."""
        single = np.array(self.row_of, dtype=np.int64)
        several = [(place, [self.row_of[place], *rows]) for place, rows in self.more_rows.items()]
        values: dict[str, FloatArray] = {}
        emptied: dict[int, int] = {}
        for name in self.columns:
            given = self.file.columns[name]
            taken = np.where(single >= 0, given[single], np.nan)
            for place, rows in several:
                taken[place] = self._one_of(name, given, rows, self.distinct[place])
            for place in np.flatnonzero(np.isnan(taken) & (single >= 0)).tolist():
                emptied.setdefault(place, int(single[place]))
            values[name] = taken
        return values, emptied

    def _one_of(self, name: str, given: FloatArray, rows: Sequence[int], item: Item) -> float:
        """The score of an item with several rows."""
        scores = [(float(given[row]), row) for row in rows if not np.isnan(given[row])]
        if not scores:
            return float("nan")
        first, first_row = scores[0]
        if self.repeats == "mean":
            return math.fsum(score for score, _ in scores) / len(scores)
        for score, row in scores if self.repeats == "refuse" else ():
            if score != first:
                message = f"a second '{name}' of '{item.candidate[:60]}' of image '{item.image}': {score!r}, after "
                message += f"{first!r} in {_where(self.file, first_row)}"
                hint = "Keep one of them"
                if self.file.label:
                    hint += f", or add {self.file.option('repeats', 'first')} (or mean)"
                if self.file.label and (others := [column for column in self.columns if column != name]):
                    columns = self.file.option("columns", ",".join(others))
                    hint += f"; if '{name}' is not a metric, select the metrics: {columns}"
                raise self.file.error("duplicate", row, message, hint, item.candidate)
        return first


# Export of items to score elsewhere: every distinct item once, with a stable id.

PREDICTIONS, REFERENCES = "predictions.jsonl", "references.jsonl"
"""Names of the two files, which CaptionEvalKit's ``score`` reads."""


def write_items(items: Iterable[Item], folder: str | Path, images: Mapping[str, Path]) -> int:
    """Write ``predictions.jsonl`` (id, caption, image) and ``references.jsonl`` (id, references), in the same order.

    Repeats (same image, candidate and references) are written once. ``images``: paths of image files by image id.
    """
    folder = Path(folder)
    distinct = {item.key: item for item in items}
    with atomic_write(folder / PREDICTIONS) as predictions, atomic_write(folder / REFERENCES) as references:
        for item in distinct.values():
            name = item_id(item)
            row = {"id": name, "caption": item.candidate, "image": str(images.get(item.image, item.image))}
            predictions.write(json.dumps(row, ensure_ascii=False) + "\n")
            references.write(json.dumps({"id": name, "references": item.references}, ensure_ascii=False) + "\n")
    return len(distinct)

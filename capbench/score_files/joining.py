"""Joins scores of a file to items, strictly: an item gets its score by a name of its own, and what was done is said.

A row belongs to an item by the first of these that it has and that fits: the **id** of ``capbench items``; the data
set's **candidate id** (with the image, where the row names it); **image and caption**, letter by letter; image and the
caption's **text key** (lower case, only ``[a-z0-9]``).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from capbench.errors import DataError
from capbench.records import FloatArray, IntArray, Item, caption_key, references_hash
from capbench.score_files.image_names import ImageNames
from capbench.score_files.reading import ScoreFile

__all__ = ["Join", "Repeats", "item_id", "join"]

Repeats = Literal["refuse", "first", "mean"]
"""What to do with two different scores of one item: refuse them, take the first, or their mean."""

_WAYS = ("id", "candidate id", "caption", "text key")
_ID = re.compile(r".*:[0-9a-f]{8}:[0-9a-f]{8}", re.DOTALL)


def item_id(item: Item) -> str:
    """A stable name of an item: its image, and eight digits each for the candidate and for the references.

    >>> item_id(Item("dog", "A dog.", ("a dog runs",))) == item_id(Item("dog", "A dog.", ("a dog runs",), "other", "x"))
    True
    """
    return f"{_caption_id(item)}:{references_hash(item.references)[:8]}"


def _caption_id(item: Item) -> str:
    """An item's id without the digits of its references."""
    return f"{item.image}:{hashlib.blake2b(item.candidate.encode(), digest_size=4).hexdigest()}"


@dataclass(frozen=True, eq=False)
class Join:
    """Scores of a file joined to items.

    Attributes:
        file: the file.
        items: (n) the items.
        values: by column, (n) scores; NaN where an item has none.
        ways: how rows were joined (``id``, ``caption``): numbers of items.
        missing: places of the items that lack a score of any column, ascending.
        emptied: the row of an item that is in the file with an empty cell, by the item's place.
        strange: rows that belong to no item.
        other_references: rows whose caption is an item's, but whose references are not.
        draw: which draw of references the items have, and of how many; ``(1, 1)`` if none are drawn.
    """

    file: ScoreFile
    items: Sequence[Item]
    values: Mapping[str, FloatArray]
    ways: Mapping[str, int]
    missing: IntArray
    emptied: Mapping[int, int]
    strange: tuple[int, ...]
    other_references: tuple[int, ...]
    draw: tuple[int, int] = (1, 1)

    @property
    def is_empty(self) -> bool:
        """Whether no row belongs to any of the items."""
        return not self.ways

    @property
    def way(self) -> str:
        """How rows were joined, for signatures: ``id``, ``caption+text key``."""
        return "+".join(self.ways)

    def note(self) -> str:
        """What was joined and what was not, in one line."""
        joined = " and ".join(f"{count:,} items by {_in_words(way)}" for way, count in self.ways.items())
        line = f"{self.file.path.name}: scores of {joined}{self._draw_in_words()}"
        if self.strange:
            rows, verb = (f"{len(self.strange):,} rows", "belong") if len(self.strange) > 1 else ("1 row", "belongs")
            line += f"; {rows} {verb} to none of the items (first: {_where(self.file, self.strange[0])})"
        if self.other_references:
            first = _where(self.file, self.other_references[0])
            line += f"; {len(self.other_references):,} scores with other references are not taken (first: {first})"
        if self.file.ignored:
            line += f"; columns that are not taken: {', '.join(self.file.ignored)}"
        return line

    def complaint(self, items: str = "", *, words: str = "") -> DataError | None:
        """What to say of items that lack a score; None if there are none.

        Args:
            items: as ``capbench items`` takes them (``flickr8k-expert/no-own-captions``), if it knows them.
            words: the items in words, if it does not.
        """
        of_what = (items or words or "these captions") + self._draw_in_words()
        command = f"'capbench items {items or 'DATASET'}'"
        if not len(self.missing):
            return None
        path, file = self.file.path, self.file
        if self.other_references:
            return DataError(
                f"{len(self.other_references):,} scores were computed with other references than those of {of_what}",
                path=path,
                row=file.place(self.other_references[0]),
                hint=f"Score what {command} writes; for a metric that "
                "takes no references set its option 'references' to 'ignored'",
            )
        if self.is_empty and len(self.strange) == len(file):
            named = f"; it holds scores of {', '.join(file.datasets)}" if file.datasets else ""
            first = _row_in_words(file, 0)
            return DataError(
                f"none of its {len(file):,} rows is a score of an item of {of_what}{named} (first: {first})",
                path=path,
                hint=f"{command} writes the items with their ids",
            )
        place = int(self.missing[0])
        item = self.items[place]
        row = self.emptied.get(place)
        lacking = len({self.items[i].key for i in self.missing.tolist()})
        total = len({item.key for item in self.items})
        written = f"those of all {self.draw[1]} draws" if self.draw[1] > 1 else f"all {total:,}"
        added = f"Add them ({command} writes {written})" if items else "Add them"
        hint = f"{added}, or leave these items out for all metrics with --allow-missing"
        if self.strange:
            hint += f"; a row that belongs to no item: {_row_in_words(file, self.strange[0])}"
        return DataError(
            f"{lacking:,} of the {total:,} items of {of_what} lack a score, the first '{item.candidate[:60]}' of "
            f"image '{item.image}'",
            path=path,
            row=None if row is None else file.place(row),
            hint=hint,
        )

    def _draw_in_words(self) -> str:
        number, draws = self.draw
        return f" (draw {number} of {draws})" if draws > 1 else ""


def _in_words(way: str) -> str:
    return {"caption": "image and caption", "text key": "image and text key"}.get(way, way)


def _where(file: ScoreFile, row: int) -> str:
    place = file.place(row)
    return f"row {place}" if isinstance(place, int) else place


def _row_in_words(file: ScoreFile, row: int) -> str:
    said = ", ".join(f"{name} '{texts[row][:60]}'" for name, texts in file.names.items() if name != "references_hash")
    return f"{_where(file, row)}, {said}"


def join(
    file: ScoreFile,
    items: Sequence[Item],
    columns: Sequence[str] = (),
    *,
    repeats: Repeats = "refuse",
    check_references: bool = True,
) -> Join:
    """Join scores to items.

    Args:
        file: the scores.
        items: the items, repeats included.
        columns: the columns; default: all.
        repeats: what to do with two different scores of one item.
        check_references: False for a metric that takes no references: whose the references were plays no part.

    Raises:
        DataError: an item has two different scores; a row's id is one item's and its image or caption another's; or a
            candidate id names several items.
    """
    return _Joining(file, items, columns or tuple(file.columns), repeats, check_references).run()


class _Joining:
    """One pass over the rows of a file for each way in which rows can be joined."""

    def __init__(
        self, file: ScoreFile, items: Sequence[Item], columns: Sequence[str], repeats: Repeats, check_references: bool
    ) -> None:
        self.file, self.items, self.columns, self.repeats = file, items, columns, repeats
        self.check_references = check_references
        # Scores belong to distinct items; index: the distinct item of each item; first: each one's first place.
        places: dict[tuple[str, str, tuple[str, ...]], int] = {}
        keys = ((item.image, item.candidate, item.references) for item in items)
        self.index = np.array([places.setdefault(key, len(places)) for key in keys], dtype=np.int64)
        self.first: list[int] = np.unique(self.index, return_index=True)[1].tolist()
        del places
        self.distinct = [items[place] for place in self.first]
        self.row_of = [-1] * len(self.distinct)
        self.more_rows: dict[int, list[int]] = {}
        self.images = ImageNames(item.image for item in self.distinct)
        self.other_references: set[int] = set()

    def run(self) -> Join:
        """Join what has not been joined yet, one way after the other."""
        names, ways = self.file.names, dict.fromkeys(_WAYS, 0)
        left: Sequence[int] = range(len(self.file))
        if "id" in names:
            left = self._join_ids(left, ways)
        if left and ("candidate_id" in names or "id" in names):
            left = self._join_candidate_ids(left, ways)
        if left and "image" in names and "caption" in names:
            left = self._join_captions(left, ways, "caption", str)
            if left:
                left = self._join_captions(left, ways, "text key", caption_key)
        values, emptied = self._values()
        lacking = np.zeros(len(self.distinct), dtype=bool)
        for of_column in values.values():
            lacking |= np.isnan(of_column)
        return Join(
            self.file,
            self.items,
            {name: of_column[self.index] for name, of_column in values.items()},
            {way: count for way, count in ways.items() if count},
            np.flatnonzero(lacking[self.index]),
            {self.first[place]: row for place, row in emptied.items()},
            tuple(row for row in left if row not in self.other_references),
            tuple(sorted(self.other_references)),
        )

    def _join_ids(self, rows: Iterable[int], ways: dict[str, int]) -> list[int]:
        ids = self.file.names["id"]
        if not any(_ID.fullmatch(text) for text in ids[:1000]):
            return list(rows)
        by_id: dict[str, int | list[int]] = {}
        hashes: dict[tuple[str, ...], str] = {}
        for place, item in enumerate(self.distinct):
            # Many items share their references, which are hashed but once.
            name = _caption_id(item)
            if self.check_references:
                hashed = hashes.get(item.references)
                if hashed is None:
                    hashes[item.references] = hashed = references_hash(item.references)[:8]
                name = f"{name}:{hashed}"
            _add(by_id, name, place)
        unnamed = {"image", "caption"}.isdisjoint(self.file.names)
        left = []
        joined = 0
        for row in rows:
            places = by_id.get(ids[row] if self.check_references else _without_references(ids[row]))
            if isinstance(places, int) and unnamed and self.row_of[places] < 0:
                self.row_of[places] = row
                joined += 1
            elif places is not None:
                self._take(row, [places] if isinstance(places, int) else places, ways, "id")
            else:
                left.append(row)
        ways["id"] += joined
        if left and self.check_references:
            captions = set(map(_caption_id, self.distinct))
            self.other_references.update(row for row in left if _without_references(ids[row]) in captions)
        return left

    def _join_candidate_ids(self, rows: Iterable[int], ways: dict[str, int]) -> list[int]:
        names = self.file.names
        given = names.get("candidate_id") or names["id"]
        of_name: dict[str, dict[int, None]] = {}
        for place, item in zip(self.index.tolist(), self.items, strict=True):
            if item.candidate_id:
                of_name.setdefault(item.candidate_id, {})[place] = None
        left = []
        for row in rows:
            places = list(of_name.get(given[row], ()))
            if places and "image" in names:
                image = self.images.find(names["image"][row])
                places = [place for place in places if self.distinct[place].image == image]
            captions = {(self.distinct[place].image, self.distinct[place].candidate) for place in places}
            if len(captions) > 1 and "caption" in names:
                places = [place for place in places if self.distinct[place].candidate == names["caption"][row]]
            elif len(captions) > 1:
                raise DataError(
                    f"the id '{given[row]}' names {len(captions)} captions of this data set",
                    path=self.file.path,
                    row=self.file.place(row),
                    hint="Give 'image' and 'caption', too, or the ids that 'capbench items' writes",
                )
            if places:
                self._take(row, places, ways, "candidate id")
            else:
                left.append(row)
        return left

    def _join_captions(
        self, rows: Iterable[int], ways: dict[str, int], way: str, key: Callable[[str], str]
    ) -> list[int]:
        names, row_of = self.file.names, self.row_of
        hashes = names.get("references_hash") if self.check_references else None
        of_image: dict[str, dict[str, int | list[int]]] = {}
        for place, item in enumerate(self.distinct):
            if row_of[place] < 0:
                captions = of_image.setdefault(item.image, {})
                _add(captions, key(item.candidate), place)
        left = []
        joined = 0
        of_file = {text: of_image.get(self.images.find(text) or "") for text in set(names["image"])}
        for row in rows:
            captions_here = of_file[names["image"][row]]
            places = None if captions_here is None else captions_here.get(key(names["caption"][row]))
            if isinstance(places, int) and hashes is None and row_of[places] < 0:
                row_of[places] = row
                joined += 1
                continue
            several = [] if places is None else [places] if isinstance(places, int) else places
            if several and hashes is not None:
                same = [p for p in several if references_hash(self.distinct[p].references) == hashes[row]]
                if not same:
                    self.other_references.add(row)
                several = same
            if several:
                self._take(row, several, ways, way, check=False)
            else:
                left.append(row)
        ways[way] += joined
        return left

    def _take(self, row: int, places: Sequence[int], ways: dict[str, int], way: str, *, check: bool = True) -> None:
        """Give items a row, which must not name another image or caption."""
        names = self.file.names
        for place in places:
            item = self.distinct[place]
            checks = (("image", item.image, self._is_image), ("caption", item.candidate, _is_caption)) if check else ()
            for name, here, is_same in checks:
                if name in names and not is_same(names[name][row], here):
                    raise DataError(
                        f"its {way} is that of the {name} '{here[:60]}', but its {name} is '{names[name][row][:60]}'",
                        path=self.file.path,
                        row=self.file.place(row),
                        hint="Mend one of the two, or leave out the column that is wrong",
                    )
            if self.row_of[place] < 0:
                ways[way] += 1
                self.row_of[place] = row
            else:
                self.more_rows.setdefault(place, []).append(row)

    def _is_image(self, text: str, image: str) -> bool:
        return self.images.find(text) == image

    def _values(self) -> tuple[dict[str, FloatArray], dict[int, int]]:
        """Scores of the distinct items by column, and rows with an empty cell by item."""
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
        """The score of an item that has several rows."""
        scores = [(float(given[row]), row) for row in rows if not np.isnan(given[row])]
        if not scores:
            return float("nan")
        first, first_row = scores[0]
        if self.repeats == "mean":
            return math.fsum(score for score, _ in scores) / len(scores)
        if self.repeats == "refuse":
            for score, row in scores:
                if score != first:
                    raise DataError(
                        f"a second '{name}' of '{item.candidate[:60]}' of image '{item.image}': {score!r}, after "
                        f"{first!r} in {_where(self.file, first_row)}",
                        path=self.file.path,
                        row=self.file.place(row),
                        hint="Keep one, or set the option 'repeats' of these scores to 'first' or 'mean'",
                    )
        return first


def _add(places: dict[str, int | list[int]], name: str, place: int) -> None:
    """Note a place under a name; of a million names nearly all have one place, which needs no list."""
    known = places.setdefault(name, place)
    if isinstance(known, list):
        known.append(place)
    elif known != place:
        places[name] = [known, place]


def _without_references(name: str) -> str:
    """An item's id without the digits of its references."""
    return name.rpartition(":")[0]


def _is_caption(text: str, caption: str) -> bool:
    return text == caption or caption_key(text) == caption_key(caption)

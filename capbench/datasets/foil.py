"""FOIL: does a metric prefer the correct caption to one with a wrong noun?

``foil/valse_foil-it.json`` contains 1,000 pairs of FOIL-COCO's test set (Shekhar and others 2017) as published by VALSE
(Parcalabescu and others 2022), with the two nouns and the votes of three raters. The references are COCO's captions of
the image, from ``coco/captions_val2014.json`` or ``coco/dataset_coco.json``, which contain all images, or else from
Karpathy's test and validation splits, which contain only part of them. Pairs whose image has no captions there are left
out and counted in a note.

``foil/foilv1.0_test_2017.json`` is the complete test set of FOIL-COCO in COCO's format. Annotations with one ``id``
are a correct caption and its foils; each foil makes a pair.

Pair i has the items 2i (correct caption) and 2i + 1 (foil).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, ClassVar, TypeVar

from pydantic import AliasChoices, AliasPath, Field

from capbench.core.errors import DataError
from capbench.core.records import Item, Judgements, caption_key
from capbench.datasets.base import AS_PUBLISHED, Dataset
from capbench.datasets.judgement_files import file_error, paired, require_references
from capbench.datasets.protocol import ItemSelection, StatisticSpec, accuracy, by_name
from capbench.datasets.reference_draws import drawn
from capbench.datasets.root import DataRoot
from capbench.datasets.row_models import Image, Row, Text, parsed, read_rows
from capbench.datasets.user.caption_readers import read_captions_file

_PAIRS = "foil/valse_foil-it.json"
_CAPTION_FILES = ("coco/captions_val2014.json", "coco/annotations/captions_val2014.json", "coco/dataset_coco.json")
_SPLITS = ("coco/karpathy_test_captions.json", "coco/karpathy_val_captions.json")
_MAJORITY = 2
P = TypeVar("P", bound="VotedPair")


class VotedPair(Row):
    """A correct caption and its changed copy.

    ``votes`` is the number of annotators who chose the correct caption, None if there was no vote.
    """

    name: str = Field(validation_alias="id")
    image: Image = Field(validation_alias=AliasChoices("image_file", "filename"))
    caption: Text
    foil: Text = Field(validation_alias=AliasChoices("foil", "negative_caption"))
    votes: Annotated[int, Field(ge=0, strict=True)] | None = Field(
        default=None, validation_alias=AliasPath("mturk", "caption")
    )


def confirmed(pairs: Sequence[P]) -> list[P]:
    """The pairs for which at least two of three annotators chose the caption."""
    for pair in pairs:
        if pair.votes is None:
            hint = "Download the file again, or choose another selection of items"
            raise pair.error("missing-key", "has no votes ('mturk')", hint)
    return [pair for pair in pairs if pair.votes is not None and pair.votes >= _MAJORITY]


def left_out_note(kept: int, pairs: int, sources: Sequence[str]) -> list[str]:
    """The note on pairs without captions of their images."""
    files = ", ".join(sources)
    without = f"{pairs - kept:,} of {pairs:,} pairs are left out: their images have no captions in {files}"
    return [without] if kept < pairs else []


class FoilPair(VotedPair):
    """A correct caption and the same caption with a wrong noun; both nouns."""

    right: Text = Field(validation_alias="classes")
    wrong: Text = Field(validation_alias="classes_foil")


class _Image(Row):
    id: int | str
    image: Image = Field(validation_alias="file_name")


class _Annotation(Row):
    """A correct caption or a foil of the modified COCO caption ``id``."""

    id: int | str
    image: int | str = Field(validation_alias="image_id")
    text: Text = Field(validation_alias="caption")
    foil: bool = Field(strict=True)
    right: Text | None = Field(default=None, validation_alias="target_word")
    wrong: Text | None = Field(default=None, validation_alias="foil_word")


class Foil(Dataset):
    """1,000 pairs of a correct caption and the same with one wrong noun; the correct one is always preferred."""

    name: ClassVar[str] = "foil"
    in_default: ClassVar[bool] = True
    title: ClassVar[str] = "FOIL"
    image_folders: ClassVar[Sequence[str]] = ("foil/images", "coco/images")
    version, versions = AS_PUBLISHED
    file_name: ClassVar[str] = _PAIRS
    selections: ClassVar[Mapping[str, ItemSelection]] = by_name(
        ItemSelection(
            "own-caption-out",
            "all pairs whose image has COCO captions; the caption that the pair was made from is left out of the "
            "references",
        ),
        ItemSelection(
            "one-reference",
            "as own-caption-out, with one of the remaining references at random",
            draws=5,
            seed=0,
        ),
        ItemSelection(
            "first-reference",
            "as own-caption-out, with the first of the remaining references in the order of COCO's file",
        ),
        ItemSelection(
            "validated",
            "as own-caption-out, but only pairs for which at least two of three raters chose the caption",
        ),
        ItemSelection(
            "all-references", "all pairs whose image has COCO captions; the pair's own caption is a reference"
        ),
    )
    statistics: ClassVar[Mapping[str, StatisticSpec]] = accuracy("right")
    default: ClassVar[tuple[str, str]] = ("own-caption-out", "right-strict")
    groups: ClassVar[Sequence[str] | None] = ()

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """Pairs of items, the correct caption first; ``preferences["right"]`` prefers it in every pair."""
        path = self.root.file(self.file_name, what="the pairs")
        pairs = self._read(path)
        captions, sources = coco_captions(self.root)
        covered = [pair for pair in pairs if pair.image in captions]
        notes = left_out_note(len(covered), len(pairs), sources)
        if not covered:
            problem = f"none of the images of the {len(pairs):,} pairs has captions in {', '.join(sources)}"
            hint = f"Get captions_val2014.json, which contains all of them (see 'capbench data info {self.name}')"
            raise DataError(problem, code="missing-references", path=path, hint=hint)
        selected = covered
        if selection.name == "validated":
            selected = confirmed(covered)
            notes.append(f"{len(covered) - len(selected)} pairs are left out: fewer than two raters chose the caption")
            if not selected:
                problem, hint = "no pair is left under 'validated'", "Choose another selection"
                raise DataError(problem, code="too-few", value=selection.name, path=path, hint=hint)
        same = sum(caption_key(pair.caption) == caption_key(pair.foil) for pair in selected)
        if same:
            notes.append(f"{same} foils have the text of the right caption: no metric can distinguish these pairs")
        items, changed, unknown = _items(selected, captions, keep_own=selection.name == "all-references")
        if changed:
            notes.append(
                f"{changed} right captions differ from all captions of their image: the caption that differs from the "
                "foil by one word is used instead"
            )
        if unknown:
            notes.append(f"{unknown} pairs were made from unknown captions: all references of their images are used")
        require_references(items, selection.name, path)
        if selection.name == "first-reference":
            items = tuple(replace(item, references=item.references[:1]) for item in items)
        preferences = {"right": paired([""] * len(selected))}
        judgements = Judgements(self.name, selection.name, items, preferences=preferences, notes=tuple(notes))
        return drawn(judgements, selection)

    def _read(self, path: Path) -> list[FoilPair]:
        pairs = read_rows(path, FoilPair)
        for pair in pairs:
            if caption_key(pair.caption) == caption_key(pair.foil):
                raise pair.error("duplicate", "caption and foil are the same text", value=pair.foil)
        return pairs


class FoilFull(Foil):
    """Every foil of FOIL-COCO's test set, paired with its correct caption, which is always preferred."""

    name: ClassVar[str] = "foil-full"
    in_default: ClassVar[bool] = False
    title: ClassVar[str] = "FOIL, full test set"
    # These pairs have no votes.
    selections: ClassVar[Mapping[str, ItemSelection]] = {
        name: selection for name, selection in Foil.selections.items() if name != "validated"
    }
    file_name: ClassVar[str] = "foil/foilv1.0_test_2017.json"

    def _read(self, path: Path) -> list[FoilPair]:
        return read_foil_annotations(path)


def coco_captions(root: DataRoot) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """Captions of COCO's validation images by image, and the names of the files."""
    for name in _CAPTION_FILES:
        if (root.path / name).is_file():
            return dict(read_captions_file(root.path / name)), [Path(name).name]
    splits = [name for name in _SPLITS if (root.path / name).is_file()]
    if not splits:
        root.file(*_CAPTION_FILES, *_SPLITS, what="COCO's captions")
    captions_by_image: dict[str, tuple[str, ...]] = {}
    for name in splits:
        captions_by_image.update(read_captions_file(root.path / name))
    return captions_by_image, [Path(name).name for name in splits]


def read_foil_annotations(path: Path) -> list[FoilPair]:
    """Read the pairs of ``foilv1.0_test_2017.json``, in the order of the foils.

    The name of a pair is the ``id`` of the annotations and the foil's number within that id, from 1.
    """
    images = {image.id: image.image for image in read_rows(path, _Image, at="images")}
    annotations = read_rows(path, _Annotation, at="annotations")
    right: dict[int | str, str] = {}
    image_of: dict[int | str, int | str] = {}
    for row in annotations:
        if row.image not in images:
            raise row.error("unknown-item", f"its image {row.image} is not in 'images'", value=row.image)
        if image_of.setdefault(row.id, row.image) != row.image:
            raise row.error("mismatch", f"its image {row.image} differs from that of the id {row.id}", value=row.image)
        if not row.foil and right.setdefault(row.id, row.text) != row.text:
            raise row.error("duplicate", f"the id {row.id} has another right caption above", value=row.id)
    counted: Counter[int | str] = Counter()
    pairs = []
    for row in annotations:
        if not row.foil:
            continue
        if row.id not in right:
            raise row.error("missing-caption", f"the id {row.id} has no right caption", value=row.id)
        if row.right is None or row.wrong is None:
            raise row.error("wrong-type", "has no 'target_word' or 'foil_word'")
        counted[row.id] += 1
        texts = {"image": images[row.image], "caption": right[row.id], "foil": row.text}
        texts |= {"right": row.right, "wrong": row.wrong, "name": f"{row.id}.{counted[row.id]}"}
        pairs.append(parsed(FoilPair, texts, path, row.row))
    if not pairs:
        raise file_error("contains no foil", "missing-value", path)
    return pairs


def own_captions(pair: FoilPair, references: Sequence[str]) -> set[int]:
    """Indices in ``references`` of the captions that a pair was made from.

    This is the caption with the same text as the correct caption (by :func:`capbench.core.records.caption_key`). A few
    published correct captions are damaged: every occurrence of the wrong noun, even inside of words, was replaced by
    the correct one. For these, it is the caption that results from replacing one whole word of the foil.
    """
    keys = [caption_key(text) for text in references]
    own_key = caption_key(pair.caption)
    if own_key in keys:
        return {place for place, key in enumerate(keys) if key == own_key}
    made_from = {
        caption_key(pair.foil[: match.start()] + pair.right + pair.foil[match.end() :])
        for match in re.finditer(rf"\b{re.escape(pair.wrong)}\b", pair.foil)
    }
    return {place for place, key in enumerate(keys) if key in made_from}


def _items(
    pairs: Sequence[FoilPair], captions: Mapping[str, tuple[str, ...]], keep_own: bool
) -> tuple[tuple[Item, ...], int, int]:
    """The items of the pairs, and the numbers of pairs whose own caption differs from the correct one or is unknown."""
    items = []
    changed = unknown = 0
    for pair in pairs:
        references = captions[pair.image]
        captions_of_pair = own_captions(pair, references)
        unknown += not captions_of_pair
        changed += any(caption_key(references[place]) != caption_key(pair.caption) for place in captions_of_pair)
        if not keep_own:
            references = tuple(text for place, text in enumerate(references) if place not in captions_of_pair)
        for kind, candidate in (("caption", pair.caption), ("foil", pair.foil)):
            items.append(Item(pair.image, candidate, references, f"{pair.name}#{kind}"))
    return tuple(items), changed, unknown

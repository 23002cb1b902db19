"""FOIL: does a metric prefer the correct caption to one with a wrong noun?

``foil/valse_foil-it.json`` contains 1,000 pairs of FOIL-COCO's test set (Shekhar and others 2017) as published by VALSE
(Parcalabescu and others 2022): an object of entries with ``image_file``, ``caption``, ``foil``, the two nouns
(``classes``, ``classes_foil``) and the votes of three raters (``mturk``). The references are COCO's captions of the
image, from ``coco/captions_val2014.json`` or ``coco/dataset_coco.json``, which contain all images, or else from
Karpathy's test and validation splits, which contain only part of them. Pairs whose image has no captions there are left
out and counted in a note.

``foil/foilv1.0_test_2017.json`` is the complete test set of FOIL-COCO in COCO's format: ``images`` (``id``,
``file_name``) and ``annotations`` with ``id`` (that of the modified COCO caption), ``image_id``, ``caption``, ``foil``
(true or false) and, for foils, ``target_word`` (the correct noun) and ``foil_word`` (the wrong one). The annotations
with one ``id`` are a correct caption and its foils; each foil makes a pair.

Pair i has the items 2i (correct caption) and 2i + 1 (foil).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from capbench.core import files
from capbench.core.errors import DataError
from capbench.core.records import Item, Judgements, Preferences, caption_key, image_id
from capbench.datasets import judgement_files
from capbench.datasets.base import Dataset
from capbench.datasets.protocol import ItemSelection, StatisticSpec, accuracy
from capbench.datasets.root import DataRoot
from capbench.datasets.user.caption_readers import Captions, read_coco_annotations, read_karpathy, read_split_captions

_PAIRS = "foil/valse_foil-it.json"
_FULL = "foil/foilv1.0_test_2017.json"
_WHOLE: Mapping[str, Callable[[Path], Captions]] = {
    "coco/captions_val2014.json": read_coco_annotations,
    "coco/annotations/captions_val2014.json": read_coco_annotations,
    "coco/dataset_coco.json": read_karpathy,
}
_SPLITS = ("coco/karpathy_test_captions.json", "coco/karpathy_val_captions.json")
_MAJORITY = 2


@dataclass(frozen=True)
class FoilPair:
    """A correct caption and its foil.

    Attributes:
        name: the entry's key in the file.
        image: image id.
        caption: the correct caption.
        foil: the same caption with a wrong noun.
        nouns: the correct noun and the wrong one.
        votes: votes for the caption and for the foil; None if the file has none.
    """

    name: str
    image: str
    caption: str
    foil: str
    nouns: tuple[str, str]
    votes: tuple[int, int] | None = None


class Foil(Dataset):
    """1,000 pairs of a correct caption and the same with one wrong noun; the correct one is always preferred."""

    name: ClassVar[str] = "foil"
    title: ClassVar[str] = "FOIL"
    image_folders: ClassVar[Sequence[str]] = ("foil/images", "coco/images")
    version: ClassVar[str] = "1"
    versions: ClassVar[Mapping[str, str]] = {"1": "as published"}
    citation: ClassVar[str] = (
        "R. Shekhar and others: FOIL it! Find One mismatch between Image and Language caption. ACL 2017; "
        "L. Parcalabescu and others: VALSE. ACL 2022"
    )
    file_name: ClassVar[str] = _PAIRS
    selections: ClassVar[Mapping[str, ItemSelection]] = {
        selection.name: selection
        for selection in (
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
    }
    statistics: ClassVar[Mapping[str, StatisticSpec]] = accuracy("right")
    default: ClassVar[tuple[str, str]] = ("own-caption-out", "right-strict")
    groups: ClassVar[Sequence[str] | None] = ()
    aliases: ClassVar[Mapping[str, str]] = {
        rule: f"own-caption-out/right-{rule}" for rule in ("strict", "ties-right", "ties-half")
    }

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """Pairs of items, the correct caption first; ``preferences["right"]`` prefers it in every pair."""
        path = self.root.file(self.file_name, what="the pairs")
        pairs = self._read(path)
        captions, sources = coco_captions(self.root)
        notes = []
        covered = [pair for pair in pairs if pair.image in captions]
        if len(covered) < len(pairs):
            notes.append(
                f"{len(pairs) - len(covered):,} of {len(pairs):,} pairs are left out: their images have no captions in "
                f"{', '.join(sources)}"
            )
        if not covered:
            raise DataError(
                f"none of the images of the {len(pairs):,} pairs has captions in {', '.join(sources)}",
                code="missing-references",
                path=path,
                hint=f"Get captions_val2014.json, which contains all of them (see 'capbench data info {self.name}')",
            )
        selected = covered
        if selection.name == "validated":
            selected = [pair for pair in covered if _votes(pair, path)[0] >= _MAJORITY]
            notes.append(f"{len(covered) - len(selected)} pairs are left out: fewer than two raters chose the caption")
            if not selected:
                raise DataError(
                    "no pair is left under 'validated'",
                    code="too-few",
                    value=selection.name,
                    path=path,
                    hint="Choose another selection",
                )
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
        judgement_files.require_references(items, selection.name, path)
        if selection.name == "first-reference":
            items = tuple(replace(item, references=item.references[:1]) for item in items)
        pairs_left = len(selected)
        first = 2 * np.arange(pairs_left, dtype=np.int64)
        no_votes = np.zeros((pairs_left, 0), dtype=np.int64)
        preferences = {"right": Preferences(first, first + 1, np.ones_like(first), ("",) * pairs_left, no_votes)}
        if selection.seed is None:
            return (Judgements(self.name, selection.name, items, preferences=preferences, notes=tuple(notes)),)
        notes.append(f"one reference per image is sampled (seed {selection.seed})")
        return tuple(
            Judgements(self.name, selection.name, drawn, preferences=preferences, draw=draw, notes=tuple(notes))
            for draw, drawn in enumerate(judgement_files.draw_references(items, 1, selection.seed, selection.draws))
        )

    def _read(self, path: Path) -> list[FoilPair]:
        return read_foil(path)


class FoilFull(Foil):
    """Every foil of FOIL-COCO's test set, paired with its correct caption, which is always preferred."""

    name: ClassVar[str] = "foil-full"
    title: ClassVar[str] = "FOIL, full test set"
    citation: ClassVar[str] = (
        "R. Shekhar and others: FOIL it! Find One mismatch between Image and Language caption. ACL 2017"
    )
    # These pairs have no votes.
    selections: ClassVar[Mapping[str, ItemSelection]] = {
        name: selection for name, selection in Foil.selections.items() if name != "validated"
    }
    file_name: ClassVar[str] = _FULL

    def _read(self, path: Path) -> list[FoilPair]:
        return read_foil_annotations(path)


def coco_captions(root: DataRoot) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """Captions of COCO's validation images by image, and the names of the files.

    They come from a file with all images or, if there is none, from the existing splits of Karpathy.

    Raises:
        MissingFileError: there is no file of COCO's captions.
        DataError: a file has invalid content.
    """
    for name, read in _WHOLE.items():
        if (root.path / name).is_file():
            return dict(read(root.path / name)), [Path(name).name]
    splits = [name for name in _SPLITS if (root.path / name).is_file()]
    if not splits:
        root.file(*_WHOLE, *_SPLITS, what="COCO's captions")
    captions_by_image: dict[str, tuple[str, ...]] = {}
    for name in splits:
        captions_by_image.update(read_split_captions(root.path / name))
    return captions_by_image, [Path(name).name for name in splits]


def read_foil(path: Path) -> list[FoilPair]:
    """Read the pairs of VALSE's ``foil-it.json``, in the order of the file.

    Raises:
        DataError: the file is not an object of entries, a text is missing or empty, caption and foil are the same, or
            counts of votes are not whole numbers.
    """
    data = files.read_json(path, unique_keys=True)
    if not isinstance(data, dict) or not data:
        raise judgement_files.file_error("is not a JSON object of pairs", "wrong-format", path)
    return [_pair(name, entry, path) for name, entry in data.items()]


def read_foil_annotations(path: Path) -> list[FoilPair]:
    """Read the pairs of ``foilv1.0_test_2017.json``, in the order of the foils.

    The name of a pair is the ``id`` of the annotations and the foil's number within that id, from 1.

    Raises:
        DataError: a list ``images`` or ``annotations`` is missing, a field is missing or of another type, an image is
            not in ``images``, or an ``id`` does not have exactly one image and one correct caption.
    """
    data = files.read_json(path)
    image_entries = data.get("images") if isinstance(data, dict) else None
    annotations = data.get("annotations") if isinstance(data, dict) else None
    if not isinstance(image_entries, list) or not isinstance(annotations, list) or not annotations:
        raise judgement_files.file_error("contains no lists 'images' and 'annotations'", "missing-key", path)
    images: dict[object, str] = {}
    for number, image in enumerate(image_entries, 1):
        row = f"image {number}"
        if not isinstance(image, dict) or type(image.get("id")) not in (int, str):
            raise judgement_files.file_error("has no 'id'", "missing-key", path, row)
        name = judgement_files.parse_image(image.get("file_name"), "image's name (file_name)", path=path, row=row)
        images[image["id"]] = name
    right: dict[object, str] = {}
    image_of: dict[object, object] = {}
    foils: list[tuple[str, dict[str, Any]]] = []
    for number, annotation in enumerate(annotations, 1):
        row = f"annotation {number}"
        if not isinstance(annotation, dict) or type(annotation.get("id")) not in (int, str):
            raise judgement_files.file_error("has no 'id'", "missing-key", path, row)
        if type(annotation.get("foil")) is not bool:
            raise judgement_files.file_error("'foil' is neither true nor false", "wrong-type", path, row)
        if type(annotation.get("image_id")) not in (int, str) or annotation["image_id"] not in images:
            problem = f"its image {annotation.get('image_id')} is not in 'images'"
            raise judgement_files.file_error(problem, "unknown-item", path, row, value=annotation.get("image_id"))
        if image_of.setdefault(annotation["id"], annotation["image_id"]) != annotation["image_id"]:
            problem = f"its image {annotation['image_id']} differs from the image of the id {annotation['id']} above"
            raise judgement_files.file_error(problem, "mismatch", path, row, value=annotation["image_id"])
        if annotation["foil"]:
            foils.append((row, annotation))
            continue
        text = judgement_files.parse_caption(annotation.get("caption"), "right caption (caption)", path=path, row=row)
        if right.setdefault(annotation["id"], text) != text:
            problem = f"the id {annotation['id']} has another right caption above"
            raise DataError(
                problem, code="duplicate", value=annotation["id"], path=path, row=row, hint="Keep one of the two"
            )
    if not foils:
        raise judgement_files.file_error("contains no foil", "missing-value", path)
    counted: dict[object, int] = {}
    pairs = []
    for row, annotation in foils:
        key = annotation["id"]
        if key not in right:
            raise judgement_files.file_error(
                f"the id {key} has no right caption", "missing-caption", path, row, value=key
            )
        counted[key] = number = counted.get(key, 0) + 1
        foil, *nouns = (
            judgement_files.parse_caption(annotation.get(name), what, path=path, row=row)
            for name, what in (
                ("caption", "foil (caption)"),
                ("target_word", "right noun (target_word)"),
                ("foil_word", "wrong noun (foil_word)"),
            )
        )
        image = images[annotation["image_id"]]
        pairs.append(FoilPair(f"{key}.{number}", image, right[key], foil, (nouns[0], nouns[1])))
    return pairs


def _pair(name: str, entry: Any, path: Path) -> FoilPair:
    row = f"entry '{name}'"
    if not isinstance(entry, dict):
        raise judgement_files.file_error("is not a JSON object", "wrong-type", path, row)
    texts = {
        key: judgement_files.parse_caption(entry.get(key), what, path=path, row=row)
        for key, what in (
            ("image_file", "image's name (image_file)"),
            ("caption", "right caption (caption)"),
            ("foil", "foil (foil)"),
            ("classes", "right noun (classes)"),
            ("classes_foil", "wrong noun (classes_foil)"),
        )
    }
    if caption_key(texts["caption"]) == caption_key(texts["foil"]):
        raise DataError(
            "caption and foil are the same text",
            code="duplicate",
            value=texts["foil"],
            path=path,
            row=row,
            hint="Remove or correct the entry",
        )
    counts = entry.get("mturk")
    votes: tuple[int, int] | None = None
    if counts is not None:
        right, wrong = (counts.get(key) if isinstance(counts, dict) else None for key in ("caption", "foil"))
        if not (type(right) is int and type(wrong) is int and min(right, wrong) >= 0):
            raise DataError(
                "'mturk' has no counts 'caption' and 'foil'",
                code="wrong-type",
                path=path,
                row=row,
                hint="Correct the entry",
            )
        votes = (right, wrong)
    nouns = (texts["classes"], texts["classes_foil"])
    return FoilPair(name, image_id(texts["image_file"]), texts["caption"], texts["foil"], nouns, votes)


def _votes(pair: FoilPair, path: Path) -> tuple[int, int]:
    if pair.votes is None:
        hint = "Download the file again, or choose another selection of items"
        raise DataError("has no votes ('mturk')", code="missing-key", path=path, row=f"entry '{pair.name}'", hint=hint)
    return pair.votes


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
    right, wrong = pair.nouns
    made_from = {
        caption_key(pair.foil[: match.start()] + right + pair.foil[match.end() :])
        for match in re.finditer(rf"\b{re.escape(wrong)}\b", pair.foil)
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

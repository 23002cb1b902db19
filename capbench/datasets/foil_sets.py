"""Foil sets in several parts, VALSE and SugarCrepe: does a metric prefer the correct caption to a changed copy?

``valse/PART.json`` (Parcalabescu and others 2022), ten parts: an object of entries with ``image_file``, ``caption``,
``foil`` and the votes of three annotators (``mturk``: ``caption``, ``foil``, ``other``). ``orig_caption`` (plurals) and
``only_caption`` (coreference) are the COCO caption that the correct caption was made from. VALSE's eleventh part is the
data set ``foil``.

``sugarcrepe/PART.json`` (Hsieh and others 2023), seven parts: an object of entries with ``filename`` (an image of
COCO's val2017), ``caption`` and ``negative_caption``.

The files contain no references. Where an image is a COCO image, COCO's captions of it can be references, from the same
files as FOIL's; ``captions_train2014.json`` adds those of training images. The selections with references contain only
these pairs; all others have none, and only reference-free metrics and score files run on them.

Pair i has the items 2i (correct caption) and 2i + 1 (foil). Parts are the groups of items and pairs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from capbench.core import files
from capbench.core.errors import DataError
from capbench.core.records import Item, Judgements, Preferences, caption_key, image_id
from capbench.datasets import judgement_files
from capbench.datasets.base import Dataset
from capbench.datasets.foil import coco_captions
from capbench.datasets.protocol import ItemSelection, StatisticSpec, accuracy
from capbench.datasets.user.caption_readers import read_coco_annotations

_TRAIN = "coco/captions_train2014.json"
_COCO_NUMBER = re.compile(r"(?:COCO_(?:train|val)2014_)?(\d{12})")
_MAJORITY = 2


@dataclass(frozen=True)
class PartPair:
    """A correct caption and its foil.

    Attributes:
        part: name of the part.
        name: the entry's key in the part's file.
        image: image id.
        caption: the correct caption.
        foil: the changed copy.
        source: the COCO caption that the correct caption was made from; mostly the correct caption itself.
        votes: number of annotators who chose the correct caption; None if there was no vote.
    """

    part: str
    name: str
    image: str
    caption: str
    foil: str
    source: str
    votes: int | None = None


class FoilSet(Dataset):
    """Pairs of a correct caption and a foil in several parts, each of them a file."""

    parts: ClassVar[Sequence[str]]
    """Names of the parts, which are those of the files."""
    folder: ClassVar[str]
    """Folder of the files."""
    statistics: ClassVar[Mapping[str, StatisticSpec]] = accuracy("right")
    version: ClassVar[str] = "1"
    versions: ClassVar[Mapping[str, str]] = {"1": "as published"}
    with_references: ClassVar[str] = "own-caption-out"

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """Pairs of items, the correct caption first; ``preferences["right"]`` prefers it in every pair."""
        paths = {part: self.root.file(f"{self.folder}/{part}.json", what=f"the pairs of {part}") for part in self.parts}
        pairs = [pair for part, path in paths.items() for pair in self._read(part, path)]
        notes = []
        if selection.name.endswith("confirmed"):
            chosen = [pair for pair in pairs if pair.votes is not None and pair.votes >= _MAJORITY]
            notes.append(
                f"{len(pairs) - len(chosen):,} of {len(pairs):,} pairs are left out: fewer than two of three "
                "annotators chose the caption"
            )
            pairs = chosen
        references: Sequence[tuple[str, ...]] = [()] * len(pairs)
        if selection.name.startswith(self.with_references):
            pairs, references, notes_of_captions = self._referenced(pairs)
            notes += notes_of_captions
        if not pairs:
            raise DataError(
                f"no pair is left under '{selection.name}'",
                code="too-few",
                value=selection.name,
                path=next(iter(paths.values())).parent,
                hint=f"Choose another selection, or add captions (see 'capbench data info {self.name}')",
            )
        same = sum(pair.caption == pair.foil for pair in pairs)
        if same:
            notes.append(f"{same} foils have the text of the right caption: no metric can distinguish these pairs")
        items = tuple(
            Item(pair.image, text, texts, f"{pair.part}/{pair.name}#{kind}", pair.part)
            for pair, texts in zip(pairs, references, strict=True)
            for kind, text in (("caption", pair.caption), ("foil", pair.foil))
        )
        first = 2 * np.arange(len(pairs), dtype=np.int64)
        no_votes = np.zeros((len(pairs), 0), dtype=np.int64)
        groups = tuple(pair.part for pair in pairs)
        right = Preferences(first, first + 1, np.ones_like(first), groups, no_votes)
        return (Judgements(self.name, selection.name, items, preferences={"right": right}, notes=tuple(notes)),)

    def _read(self, part: str, path: Path) -> list[PartPair]:
        """The pairs of one part, in the order of its file."""
        raise NotImplementedError

    def _referenced(self, pairs: Sequence[PartPair]) -> tuple[list[PartPair], list[tuple[str, ...]], list[str]]:
        """The pairs whose images have captions, their references without the pair's own caption, and notes."""
        captions, sources = coco_captions(self.root)
        if (self.root.path / _TRAIN).is_file():
            captions |= read_coco_annotations(self.root.path / _TRAIN)
            sources.append(Path(_TRAIN).name)
        by_number = {match[1]: texts for image, texts in captions.items() if (match := _COCO_NUMBER.fullmatch(image))}
        kept: list[PartPair] = []
        references: list[tuple[str, ...]] = []
        unknown = 0
        for pair in pairs:
            match = _COCO_NUMBER.fullmatch(pair.image)
            texts = by_number.get(match[1]) if match is not None else None
            if texts is None:
                continue
            others = tuple(text for text in texts if caption_key(text) != caption_key(pair.source))
            if not others:
                continue
            unknown += len(others) == len(texts)
            kept.append(pair)
            references.append(others)
        notes = []
        if len(kept) < len(pairs):
            notes.append(
                f"{len(pairs) - len(kept):,} of {len(pairs):,} pairs are left out: their images have no captions in "
                f"{', '.join(sources)}"
            )
        if unknown:
            notes.append(f"{unknown} pairs were made from unknown captions: all references of their images are used")
        return kept, references, notes


class Valse(FoilSet):
    """7,782 pairs in ten parts, from existence to coreference, each judged by three annotators."""

    name: ClassVar[str] = "valse"
    title: ClassVar[str] = "VALSE"
    citation: ClassVar[str] = (
        "L. Parcalabescu, M. Cafagna, L. Muradjan, A. Frank, I. Calixto, A. Gatt: VALSE: A Task-Independent Benchmark "
        "for Vision and Language Models Centered on Linguistic Phenomena. ACL 2022"
    )
    folder: ClassVar[str] = "valse"
    image_folders: ClassVar[Sequence[str]] = ("valse/images", "coco/images")
    parts: ClassVar[Sequence[str]] = (
        "existence",
        "plurals",
        "counting-hard",
        "counting-small-quant",
        "counting-adversarial",
        "relations",
        "action-replacement",
        "actant-swap",
        "coreference-standard",
        "coreference-hard",
    )
    groups: ClassVar[Sequence[str] | None] = parts
    selections: ClassVar[Mapping[str, ItemSelection]] = {
        selection.name: selection
        for selection in (
            ItemSelection(
                "confirmed",
                "pairs for which at least two of three annotators chose the caption; no references",
                source="VALSE",
            ),
            ItemSelection("all-pairs", "all pairs; no references"),
            ItemSelection(
                "own-caption-out",
                "all pairs whose image has COCO captions, which are the references; the caption that the pair was made "
                "from is left out of them",
            ),
            ItemSelection(
                "own-caption-out-confirmed",
                "as own-caption-out, but only pairs for which at least two of three annotators chose the caption",
            ),
        )
    }
    default: ClassVar[tuple[str, str]] = ("confirmed", "right-strict")

    def _read(self, part: str, path: Path) -> list[PartPair]:
        pairs = []
        for name, entry, row in _entries(path):
            image, caption, foil = _texts(entry, ("image_file", "caption", "foil"), path, row)
            sources = [entry[key] for key in ("orig_caption", "only_caption") if key in entry]
            source = judgement_files.parse_caption(sources[0], "COCO caption", path=path, row=row) if sources else ""
            counts = entry.get("mturk")
            votes = counts.get("caption") if isinstance(counts, dict) else None
            if type(votes) is not int or votes < 0:
                raise DataError(
                    "'mturk' has no count 'caption'", code="wrong-type", path=path, row=row, hint="Correct the entry"
                )
            pairs.append(PartPair(part, name, image, caption, foil, source or caption, votes))
        return pairs


class SugarCrepe(FoilSet):
    """7,511 pairs of a COCO caption and a fluent hard negative in seven parts: replaced, swapped or added words."""

    name: ClassVar[str] = "sugarcrepe"
    title: ClassVar[str] = "SugarCrepe"
    citation: ClassVar[str] = (
        "C.-Y. Hsieh, J. Zhang, Z. Ma, A. Kembhavi, R. Krishna: SugarCrepe: Fixing Hackable Benchmarks for "
        "Vision-Language Compositionality. NeurIPS 2023"
    )
    folder: ClassVar[str] = "sugarcrepe"
    image_folders: ClassVar[Sequence[str]] = ("sugarcrepe/images", "coco/images")
    parts: ClassVar[Sequence[str]] = (
        "replace_obj",
        "replace_att",
        "replace_rel",
        "swap_obj",
        "swap_att",
        "add_obj",
        "add_att",
    )
    groups: ClassVar[Sequence[str] | None] = parts
    selections: ClassVar[Mapping[str, ItemSelection]] = {
        selection.name: selection
        for selection in (
            ItemSelection("all-pairs", "all pairs; no references", source="SugarCrepe"),
            ItemSelection(
                "own-caption-out",
                "all pairs whose image has COCO captions, which are the references; the correct caption is not one",
            ),
        )
    }
    default: ClassVar[tuple[str, str]] = ("all-pairs", "right-strict")

    def _read(self, part: str, path: Path) -> list[PartPair]:
        pairs = []
        for name, entry, row in _entries(path):
            image, caption, foil = _texts(entry, ("filename", "caption", "negative_caption"), path, row)
            pairs.append(PartPair(part, name, image, caption, foil, caption))
        return pairs


def _entries(path: Path) -> list[tuple[str, dict[str, Any], str]]:
    """Key, entry and row of each pair.

    Raises:
        DataError: the file is not an object of objects.
    """
    data = files.read_json(path, unique_keys=True)
    if not isinstance(data, dict) or not data:
        raise judgement_files.file_error("is not a JSON object of pairs", "wrong-format", path)
    entries = []
    for name, entry in data.items():
        row = f"entry '{name}'"
        if not isinstance(entry, dict):
            raise judgement_files.file_error("is not a JSON object", "wrong-type", path, row)
        entries.append((name, entry, row))
    return entries


def _texts(entry: Mapping[str, Any], keys: tuple[str, str, str], path: Path, row: str) -> tuple[str, str, str]:
    """Image id, correct caption and foil of an entry.

    Raises:
        DataError: one of them is missing or empty.
    """
    image, caption, foil = (
        judgement_files.parse_caption(entry.get(key), f"{what} ({key})", path=path, row=row)
        for key, what in zip(keys, ("image's name", "right caption", "foil"), strict=True)
    )
    return image_id(image), caption, foil

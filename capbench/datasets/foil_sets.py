"""Foil sets in several parts, VALSE and SugarCrepe: does a metric prefer the correct caption to a changed copy?

``valse/PART.json`` (Parcalabescu and others 2022), ten parts with the votes of three annotators; ``orig_caption``
(plurals) and ``only_caption`` (coreference) are the COCO caption that the correct caption was made from. VALSE's
eleventh part is the data set ``foil``. ``sugarcrepe/PART.json`` (Hsieh and others 2023): seven parts with images of
COCO's val2017.

The files contain no references. Where an image is a COCO image, COCO's captions of it can be references, from the same
files as FOIL's; ``captions_train2014.json`` adds those of training images. The selections with references contain only
these pairs; all others have none, and only reference-free metrics and score files run on them.

Pair i has the items 2i (correct caption) and 2i + 1 (foil). Parts are the groups of items and pairs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from pydantic import AliasChoices, Field

from capbench.core.errors import DataError
from capbench.core.records import Item, Judgements, caption_key
from capbench.datasets.base import AS_PUBLISHED, Dataset
from capbench.datasets.foil import VotedPair, coco_captions, confirmed, left_out_note
from capbench.datasets.judgement_files import paired
from capbench.datasets.protocol import ItemSelection, StatisticSpec, accuracy, by_name
from capbench.datasets.row_models import Text, read_rows
from capbench.datasets.user.caption_readers import read_captions_file

_TRAIN = "coco/captions_train2014.json"
_COCO_NUMBER = re.compile(r"(?:COCO_(?:train|val)2014_)?(\d{12})")


class PartPair(VotedPair):
    """A pair of a part, and the COCO caption that it was made from (mostly its caption) or None."""

    part: str = ""
    source: Text | None = Field(default=None, validation_alias=AliasChoices("orig_caption", "only_caption"))


class FoilSet(Dataset):
    """Pairs of a correct caption and a foil in several parts, each of them a file."""

    groups: ClassVar[Sequence[str] | None]  # names of the parts, which are those of the files
    folder: ClassVar[str]  # folder of the files
    statistics: ClassVar[Mapping[str, StatisticSpec]] = accuracy("right")
    version, versions = AS_PUBLISHED
    with_references: ClassVar[str] = "own-caption-out"

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """Pairs of items, the correct caption first; ``preferences["right"]`` prefers it in every pair."""
        names = {part: f"{self.folder}/{part}.json" for part in self.groups or ()}
        paths = {part: self.root.file(name, what=f"the pairs of {part}") for part, name in names.items()}
        pairs = [p.model_copy(update={"part": part}) for part, path in paths.items() for p in read_rows(path, PartPair)]
        notes = []
        if selection.name.endswith("confirmed"):
            chosen = confirmed(pairs)
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
            problem, folder = f"no pair is left under '{selection.name}'", next(iter(paths.values())).parent
            hint = f"Choose another selection, or add captions (see 'capbench data info {self.name}')"
            raise DataError(problem, code="too-few", value=selection.name, path=folder, hint=hint)
        same = sum(pair.caption == pair.foil for pair in pairs)
        if same:
            notes.append(f"{same} foils have the text of the right caption: no metric can distinguish these pairs")
        items = tuple(
            Item(pair.image, text, texts, f"{pair.part}/{pair.name}#{kind}", pair.part)
            for pair, texts in zip(pairs, references, strict=True)
            for kind, text in (("caption", pair.caption), ("foil", pair.foil))
        )
        right = paired([pair.part for pair in pairs])
        return (Judgements(self.name, selection.name, items, preferences={"right": right}, notes=tuple(notes)),)

    def _referenced(self, pairs: Sequence[PartPair]) -> tuple[list[PartPair], list[tuple[str, ...]], list[str]]:
        """The pairs whose images have captions, their references without the pair's own caption, and notes."""
        captions, sources = coco_captions(self.root)
        if (self.root.path / _TRAIN).is_file():
            captions |= read_captions_file(self.root.path / _TRAIN)
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
            others = tuple(text for text in texts if caption_key(text) != caption_key(pair.source or pair.caption))
            if not others:
                continue
            unknown += len(others) == len(texts)
            kept.append(pair)
            references.append(others)
        notes = left_out_note(len(kept), len(pairs), sources)
        if unknown:
            notes.append(f"{unknown} pairs were made from unknown captions: all references of their images are used")
        return kept, references, notes


class Valse(FoilSet):
    """7,782 pairs in ten parts, from existence to coreference, each judged by three annotators."""

    name: ClassVar[str] = "valse"
    title: ClassVar[str] = "VALSE"
    folder: ClassVar[str] = "valse"
    image_folders: ClassVar[Sequence[str]] = ("valse/images", "coco/images")
    groups: ClassVar[Sequence[str] | None] = (
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
    selections: ClassVar[Mapping[str, ItemSelection]] = by_name(
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
    default: ClassVar[tuple[str, str]] = ("confirmed", "right-strict")


class SugarCrepe(FoilSet):
    """7,511 pairs of a COCO caption and a fluent hard negative in seven parts: replaced, swapped or added words."""

    name: ClassVar[str] = "sugarcrepe"
    title: ClassVar[str] = "SugarCrepe"
    folder: ClassVar[str] = "sugarcrepe"
    image_folders: ClassVar[Sequence[str]] = ("sugarcrepe/images", "coco/images")
    groups: ClassVar[Sequence[str] | None] = (
        "replace_obj",
        "replace_att",
        "replace_rel",
        "swap_obj",
        "swap_att",
        "add_obj",
        "add_att",
    )
    selections: ClassVar[Mapping[str, ItemSelection]] = by_name(
        ItemSelection("all-pairs", "all pairs; no references", source="SugarCrepe"),
        ItemSelection(
            "own-caption-out",
            "all pairs whose image has COCO captions, which are the references; the correct caption is not one",
        ),
    )
    default: ClassVar[tuple[str, str]] = ("all-pairs", "right-strict")

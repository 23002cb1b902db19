"""Flickr8k: expert ratings (1 to 4, three per pair) and CrowdFlower votes (yes or no) of captions for its test images.

Files: ``flickr8k/Flickr8k.token.txt``, ``flickr8k/ExpertAnnotations.txt``, ``flickr8k/CrowdFlowerAnnotations.txt``
(Hodosh, Young and Hockenmaier 2013). Candidates are captions of Flickr8k images, most of them of other images.

If a file of ratings is missing, ``flickr8k/flickr8k.json`` or ``flickr8k/crowdflower_flickr8k.json`` is read instead,
as CLIPScore (Hessel and others 2021) makes them: an object of images with ``human_judgement``, a list of ``caption``
and ``rating`` with one entry for each rating (three per caption for the experts), and ``ground_truth``, the references.
These are sufficient only for the default protocols of the literature: the experts' file omits pairs whose caption
belongs to the image, the crowd's file omits references that are rated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, TypeAlias

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from capbench.core.errors import MissingFileError
from capbench.core.records import Item, Judgements, image_id
from capbench.datasets import judgement_files
from capbench.datasets.base import AS_PUBLISHED, Dataset
from capbench.datasets.judgement_files import require_references, split_caption_id
from capbench.datasets.protocol import ItemSelection, StatisticSpec, by_name, correlations, within_image_statistics
from capbench.datasets.reference_draws import drawn
from capbench.datasets.row_models import Image, Row, Text, read_rows, wrong
from capbench.datasets.user.caption_readers import Captions, read_token

_CAPTIONS = "flickr8k/Flickr8k.token.txt"


def _caption_id(text: object) -> tuple[str, int, str]:
    split = split_caption_id(str(text))
    if split is None:
        raise wrong("wrong-value", f"'{text}' is not an image's file name, '#' and the caption's number")
    return image_id(split[0]), split[1], split[0]


class _Pair(Row):
    """One row of a file of annotations: an image and a caption rated for it."""

    image: Image
    # image of the caption, its number there, and the image's file name
    caption: Annotated[tuple[str, int, str], BeforeValidator(_caption_id)]

    @property
    def is_own(self) -> bool:
        return self.image == self.caption[0]


Score: TypeAlias = Annotated[int, Field(ge=1, le=4)]


class _Expert(_Pair):
    """The scores of three experts."""

    first: Score
    second: Score
    third: Score

    @property
    def values(self) -> tuple[float, ...]:
        return float(self.first), float(self.second), float(self.third)


class _Crowd(_Pair):
    """The share of raters who say that the caption describes the image, and their votes."""

    share: float = Field(ge=0, le=1)
    yes: int = Field(ge=0)
    no: int = Field(ge=0)

    @property
    def values(self) -> tuple[float, ...]:
        return (self.share,)

    @model_validator(mode="after")
    def _counted(self) -> _Crowd:
        if self.yes + self.no == 0:
            raise wrong("missing-value", "this pair has no votes")
        if abs(self.share - self.yes / (self.yes + self.no)) > 1e-6:
            raise wrong("mismatch", f"the share of yes {self.share} does not match {self.yes} yes and {self.no} no")
        return self


class _JudgedCaption(BaseModel):
    caption: Text
    rating: float = Field(strict=True, allow_inf_nan=False)


class _JudgedImage(Row):
    """One image of CLIPScore's JSON: the ratings of its captions, and its references."""

    image: Image = Field(validation_alias="id")
    judgements: tuple[_JudgedCaption, ...] = Field(validation_alias="human_judgement", min_length=1)
    references: tuple[Text, ...] = Field(validation_alias="ground_truth", min_length=1)

    def grouped(self, size: int) -> Iterator[tuple[str, tuple[float, ...]]]:
        """The captions with their ``size`` consecutive ratings."""
        for start in range(0, len(self.judgements), size):
            group = self.judgements[start : start + size]
            if len(group) != size or len({judgement.caption for judgement in group}) != 1:
                problem = f"judgement {start + 1} does not begin {size} ratings of one caption"
                raise self.error("mismatch", problem, f"The {size} ratings of a caption must be consecutive")
            yield group[0].caption, tuple(judgement.rating for judgement in group)


class _Flickr8k(Dataset):
    image_folders: ClassVar[Sequence[str]] = ("flickr8k/images",)
    version, versions = AS_PUBLISHED
    groups: ClassVar[Sequence[str] | None] = ()
    model: ClassVar[type[_Expert | _Crowd]]
    aspect: ClassVar[str]
    raters: ClassVar[int]
    levels: ClassVar[Sequence[float]]  # the possible ratings, or the ends of their range
    file_name: ClassVar[str]
    json_name: ClassVar[str]  # the same judgements in CLIPScore's JSON
    in_json: ClassVar[tuple[str, ...]]  # the selections for which the JSON is sufficient
    json_note: ClassVar[str]

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """Items in the order of the file; the ratings of an item (three of experts, one share of yes) are together."""
        released = all((self.root.path / name).is_file() for name in (self.file_name, _CAPTIONS))
        path = self.root.path / self.json_name
        read = self._from_release if released or not path.is_file() else self._from_json
        items, values, notes = read(selection)
        scale = self.levels[0], self.levels[-1]
        ratings = {self.aspect: judgement_files.ratings(range(len(items)), values, scale, self.raters)}
        judgements = Judgements(self.name, selection.name, items, ratings, notes=tuple(notes))
        return drawn(judgements, selection)

    def _from_release(self, selection: ItemSelection) -> tuple[tuple[Item, ...], list[float], list[str]]:
        path, captions, pairs = self._read()
        own_pairs = {(pair.image, pair.caption[1]) for pair in pairs if pair.is_own}
        without_own = selection.name not in ("all-pairs", "own-reference-out")
        selected = [pair for pair in pairs if not pair.is_own] if without_own else pairs
        dropped = own_pairs if selection.name == "own-reference-out" else set()
        notes = []
        if own_pairs and without_own:
            notes.append(f"{len(pairs) - len(selected)} pairs whose caption belongs to the image are left out")
        elif dropped:
            notes.append(f"{len(own_pairs)} rated captions of the image itself are left out of its references")
        references = {
            image: tuple(text for n, text in enumerate(captions[image]) if (image, n) not in dropped)
            for image in {pair.image for pair in selected}
        }
        items = tuple(
            Item(pair.image, captions[of][number], references[pair.image], f"{name}#{number}")
            for pair in selected
            for of, number, name in [pair.caption]
        )
        require_references(items, selection.name, path)
        return items, [value for pair in selected for value in pair.values], notes

    def _from_json(self, selection: ItemSelection) -> tuple[tuple[Item, ...], list[float], list[str]]:
        """Items and ratings of the JSON; candidate ids are image and number."""
        path = self.root.path / self.json_name
        if selection.name not in self.in_json:
            problem = f"'{selection.name}' requires the original files, and some are missing"
            hint = f"Get {self.file_name} and {_CAPTIONS}, or choose {' or '.join(self.in_json)}"
            raise MissingFileError(problem, value=selection.name, path=path, hint=hint)
        items: list[Item] = []
        values: list[float] = []
        for image in read_rows(path, _JudgedImage, ["image"]):
            numbers: dict[str, int] = {}
            for caption, ratings in image.grouped(self.raters):
                number = numbers.setdefault(caption, len(numbers) + 1)
                items.append(Item(image.image, caption, image.references, f"{image.image}#json-{number}"))
                wrong_one = next((rating for rating in ratings if not self._fits(rating)), None)
                if wrong_one is not None:
                    raise image.error("out-of-range", f"the rating {wrong_one:g} is not possible", value=wrong_one)
                values += ratings
        return tuple(items), values, [f"read from {path.name}, {self.json_note}"]

    def _fits(self, rating: float) -> bool:
        low, *between, high = self.levels
        return rating in self.levels if between else low <= rating <= high

    def _read(self) -> tuple[Path, Captions, Sequence[_Expert | _Crowd]]:
        captions = read_token(self.root.file(_CAPTIONS, what="Flickr8k's captions"))
        path = self.root.file(self.file_name, self.json_name, what=f"the ratings of {self.title}")
        header = [name for name in self.model.model_fields if name not in Row.model_fields]
        pairs = read_rows(path, self.model, header=header)
        seen: dict[tuple[str, str, int], tuple[float, ...]] = {}
        hint = "Both files must be from the same release of Flickr8k"
        for pair in pairs:
            of, number, name = pair.caption
            if pair.image not in captions or number >= len(captions.get(of, ())):
                what = pair.image if pair.image not in captions else f"{name}#{number}"
                raise pair.error("unknown-item", f"'{what}' is not in {captions.source.name}", hint, value=what)
            if seen.setdefault((pair.image, of, number), pair.values) != pair.values:
                raise pair.error("duplicate", "the pair is already in an earlier row with other values")
        return path, captions, pairs


class Flickr8kExpert(_Flickr8k):
    """5,822 pairs of image and caption, each rated by three experts from 1 (unrelated) to 4 (describes the image)."""

    name: ClassVar[str] = "flickr8k-expert"
    in_default: ClassVar[bool] = True
    title: ClassVar[str] = "Flickr8k Expert"
    file_name: ClassVar[str] = "flickr8k/ExpertAnnotations.txt"
    model, aspect, raters, levels = _Expert, "expert", 3, (1.0, 2.0, 3.0, 4.0)
    json_name: ClassVar[str] = "flickr8k/flickr8k.json"
    in_json: ClassVar[tuple[str, ...]] = ("no-own-captions", "one-reference")
    json_note: ClassVar[str] = "which omits pairs whose caption belongs to the image"
    selections: ClassVar[Mapping[str, ItemSelection]] = by_name(
        ItemSelection(
            "no-own-captions",
            "pairs whose caption belongs to the image are left out; all five references stay",
            source="SPICE, TIGEr Table 1",
        ),
        ItemSelection("all-pairs", "all 5,822 pairs; a candidate may be one of its five references"),
        ItemSelection(
            "one-reference",
            "pairs whose caption belongs to the image are left out; one of the image's five references, at random",
            draws=5,
            seed=0,
            source="FAIEr Table 1",
        ),
    )
    statistics: ClassVar[Mapping[str, StatisticSpec]] = {
        **correlations("expert", ("unaggregated", "mean", "median", "mode")),
        **within_image_statistics("expert"),
    }
    default: ClassVar[tuple[str, str]] = ("no-own-captions", "unaggregated-tau-c")


class Flickr8kCrowdFlower(_Flickr8k):
    """47,830 pairs of image and caption with the share of raters who say that the caption describes the image."""

    name: ClassVar[str] = "flickr8k-crowdflower"
    in_default: ClassVar[bool] = True
    title: ClassVar[str] = "Flickr8k CrowdFlower"
    file_name: ClassVar[str] = "flickr8k/CrowdFlowerAnnotations.txt"
    model, aspect, raters, levels = _Crowd, "share-of-yes", 1, (0.0, 1.0)
    json_name: ClassVar[str] = "flickr8k/crowdflower_flickr8k.json"
    in_json: ClassVar[tuple[str, ...]] = ("own-reference-out",)
    json_note: ClassVar[str] = "whose references omit rated captions of the image itself"
    selections: ClassVar[Mapping[str, ItemSelection]] = by_name(
        ItemSelection(
            "own-reference-out",
            "all 47,830 pairs; rated captions of the image itself are left out of the references of all its candidates",
        ),
        ItemSelection(
            "no-own-captions",
            "pairs whose caption belongs to the image are left out; all five references stay",
        ),
    )
    statistics: ClassVar[Mapping[str, StatisticSpec]] = {
        **correlations("share-of-yes"),
        **within_image_statistics("share-of-yes"),
    }
    default: ClassVar[tuple[str, str]] = ("own-reference-out", "tau-b")

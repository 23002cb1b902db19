"""Flickr8k: expert ratings (1 to 4, three per pair) and CrowdFlower votes (yes or no) of captions for its test images.

Files: ``flickr8k/Flickr8k.token.txt``, ``flickr8k/ExpertAnnotations.txt``, ``flickr8k/CrowdFlowerAnnotations.txt``
(Hodosh, Young and Hockenmaier 2013). Candidates are captions of Flickr8k images, most of them of other images.

If a file of ratings is missing, ``flickr8k/flickr8k.json`` or ``flickr8k/crowdflower_flickr8k.json`` is read instead
(:mod:`capbench.datasets.clipscore_json`). These are sufficient only for the default protocols of the literature: the
experts' file omits pairs whose caption belongs to the image, the crowd's file omits references that are rated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from capbench.core.errors import MissingFileError
from capbench.core.records import Item, Judgements, image_id
from capbench.datasets import judgement_files
from capbench.datasets.base import AS_PUBLISHED, Dataset
from capbench.datasets.clipscore_json import JudgedImage, read_human_judgements
from capbench.datasets.judgement_files import drawn, file_error, require_references, split_caption_id
from capbench.datasets.protocol import ItemSelection, StatisticSpec, by_name, correlations, within_image_statistics
from capbench.datasets.row_models import Image, Row, read_rows, wrong
from capbench.datasets.user.caption_readers import Captions, read_token

_CAPTIONS = "flickr8k/Flickr8k.token.txt"
_COEFFICIENTS = ("tau-b", "tau-c", "spearman", "pearson")
_AGGREGATIONS = ("unaggregated", "mean", "median", "mode")


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


class _Flickr8k(Dataset):
    image_folders: ClassVar[Sequence[str]] = ("flickr8k/images",)
    version, versions = AS_PUBLISHED
    groups: ClassVar[Sequence[str] | None] = ()
    model: ClassVar[type[_Expert | _Crowd]]
    file_name: ClassVar[str]
    json_name: ClassVar[str]  # the same judgements in CLIPScore's JSON
    in_json: ClassVar[tuple[str, ...]]  # the selections for which the JSON is sufficient

    def _json(self, selection: ItemSelection) -> tuple[Path, list[JudgedImage]] | None:
        """Path and content of the JSON, or None if the original files exist or the JSON does not."""
        path = self.root.path / self.json_name
        whole = all((self.root.path / name).is_file() for name in (self.file_name, _CAPTIONS))
        if whole or not path.is_file():
            return None
        if selection.name not in self.in_json:
            problem = f"'{selection.name}' requires the original files, and some are missing"
            hint = f"Get {self.file_name} and {_CAPTIONS}, or choose {' or '.join(self.in_json)}"
            raise MissingFileError(problem, value=selection.name, path=path, hint=hint)
        return path, read_human_judgements(path)

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


def _json_items(images: list[JudgedImage], raters: int) -> tuple[tuple[Item, ...], list[float]]:
    """The items in a JSON file and their ratings, ``raters`` per item; candidate ids are image and number."""
    items: list[Item] = []
    values: list[float] = []
    for image in images:
        numbers: dict[str, int] = {}
        for caption, ratings in image.grouped(raters):
            number = numbers.setdefault(caption, len(numbers) + 1)
            items.append(Item(image.image, caption, image.references, f"{image.image}#json-{number}"))
            values += ratings
    return tuple(items), values


def _item(pair: _Pair, captions: Captions, references: tuple[str, ...]) -> Item:
    of, number, name = pair.caption
    return Item(pair.image, captions[of][number], references, f"{name}#{number}")


class Flickr8kExpert(_Flickr8k):
    """5,822 pairs of image and caption, each rated by three experts from 1 (unrelated) to 4 (describes the image)."""

    name: ClassVar[str] = "flickr8k-expert"
    licence: ClassVar[str] = "research and education, not commercial"
    in_default: ClassVar[bool] = True
    title: ClassVar[str] = "Flickr8k Expert"
    file_name: ClassVar[str] = "flickr8k/ExpertAnnotations.txt"
    model = _Expert
    json_name: ClassVar[str] = "flickr8k/flickr8k.json"
    in_json: ClassVar[tuple[str, ...]] = ("no-own-captions", "one-reference")
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
    aliases: ClassVar[Mapping[str, str]] = {
        f"{aggregation}/{coefficient}": f"no-own-captions/{aggregation}-{coefficient}"
        for aggregation in _AGGREGATIONS
        for coefficient in _COEFFICIENTS
    }

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """Items in the order of the file; ``ratings["expert"]`` has three ratings per item, in row-major order."""
        as_json = self._json(selection)
        if as_json is None:
            items, values, notes = self._from_release(selection)
        else:
            items, values, notes = self._from_json(*as_json)
        ratings = {"expert": judgement_files.ratings(range(len(items)), values, (1.0, 4.0), raters=3)}
        if selection.seed is not None:
            notes.append(f"one reference per image is sampled (seed {selection.seed})")
        judged = Judgements(self.name, selection.name, items, ratings, notes=tuple(notes))
        return drawn(judged, selection)

    def _from_release(self, selection: ItemSelection) -> tuple[tuple[Item, ...], list[float], list[str]]:
        path, captions, pairs = self._read()
        selected = pairs if selection.name == "all-pairs" else [pair for pair in pairs if not pair.is_own]
        if not selected:
            raise file_error(f"no pair is left under '{selection.name}'", "too-few", path, value=selection.name)
        items = tuple(_item(pair, captions, captions[pair.image]) for pair in selected)
        left_out = len(pairs) - len(selected)
        notes = [f"{left_out} pairs whose caption belongs to the image are left out"] if left_out else []
        return items, [value for pair in selected for value in pair.values], notes

    def _from_json(self, path: Path, images: list[JudgedImage]) -> tuple[tuple[Item, ...], list[float], list[str]]:
        items, values = _json_items(images, 3)
        for image in images:
            if any(one.rating not in (1, 2, 3, 4) for one in image.judgements):
                raise image.error("out-of-range", "an expert's score is not a whole number from 1 to 4")
        return items, values, [f"read from {path.name}, which omits pairs whose caption belongs to the image"]


class Flickr8kCrowdFlower(_Flickr8k):
    """47,830 pairs of image and caption with the share of raters who say that the caption describes the image."""

    name: ClassVar[str] = "flickr8k-crowdflower"
    licence: ClassVar[str] = "research and education, not commercial"
    in_default: ClassVar[bool] = True
    title: ClassVar[str] = "Flickr8k CrowdFlower"
    file_name: ClassVar[str] = "flickr8k/CrowdFlowerAnnotations.txt"
    model = _Crowd
    json_name: ClassVar[str] = "flickr8k/crowdflower_flickr8k.json"
    in_json: ClassVar[tuple[str, ...]] = ("own-reference-out",)
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

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """Items in the order of the file; ``ratings["share-of-yes"]`` has one value from 0 to 1 per item."""
        as_json = self._json(selection)
        if as_json is not None:
            return (self._from_json(*as_json),)
        path, captions, pairs = self._read()
        own_captions = {(pair.image, pair.caption[1]) for pair in pairs if pair.is_own}
        if selection.name == "no-own-captions":
            selected, dropped = [pair for pair in pairs if not pair.is_own], set[tuple[str, int]]()
            note = f"{len(pairs) - len(selected)} pairs whose caption belongs to the image are left out"
        else:
            selected, dropped = list(pairs), own_captions
            note = f"{len(own_captions)} rated captions of the image itself are left out of its references"
        if not selected:
            raise file_error(f"no pair is left under '{selection.name}'", "too-few", path, value=selection.name)
        references = {
            image: tuple(text for n, text in enumerate(captions[image]) if (image, n) not in dropped)
            for image in {pair.image for pair in selected}
        }
        items = tuple(_item(pair, captions, references[pair.image]) for pair in selected)
        require_references(items, selection.name, path)
        ratings = {
            "share-of-yes": judgement_files.ratings(
                range(len(selected)), (pair.values[0] for pair in selected), (0.0, 1.0)
            )
        }
        return (Judgements(self.name, selection.name, items, ratings, notes=(note,) if own_captions else ()),)

    def _from_json(self, path: Path, images: list[JudgedImage]) -> Judgements:
        items, values = _json_items(images, 1)
        for image in images:
            if any(one.rating is None or not 0 <= one.rating <= 1 for one in image.judgements):
                raise image.error("out-of-range", "a share of yes is not a number from 0 to 1")
        ratings = {"share-of-yes": judgement_files.ratings(range(len(items)), values, (0.0, 1.0))}
        note = f"read from {path.name}, whose references omit rated captions of the image itself"
        return Judgements(self.name, "own-reference-out", items, ratings, notes=(note,))

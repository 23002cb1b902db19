"""Flickr8k: expert ratings (1 to 4, three per pair) and CrowdFlower votes (yes or no) of captions for its test images.

Files: ``flickr8k/Flickr8k.token.txt``, ``flickr8k/ExpertAnnotations.txt``, ``flickr8k/CrowdFlowerAnnotations.txt``
(Hodosh, Young and Hockenmaier 2013). Candidates are captions of Flickr8k images, most of them of other images.

If a file of ratings is missing, ``flickr8k/flickr8k.json`` or ``flickr8k/crowdflower_flickr8k.json`` is read instead
(:mod:`capbench.datasets.judgement_files`). These are sufficient only for the default protocols of the literature: the
experts' file omits pairs whose caption belongs to the image, the crowd's file omits references that are rated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from capbench.core.errors import DataError, MissingFileError
from capbench.core.records import Item, Judgements, image_id
from capbench.datasets import judgement_files
from capbench.datasets.base import Dataset
from capbench.datasets.judgement_files import JudgedImage, grouped, read_human_judgements
from capbench.datasets.protocol import ItemSelection, StatisticSpec, correlations, within_image_statistics
from capbench.datasets.user.caption_readers import Captions, read_token

_CITATION = (
    "M. Hodosh, P. Young, J. Hockenmaier: Framing Image Description as a Ranking Task. "
    "Journal of Artificial Intelligence Research 47, 2013"
)
_CAPTIONS = "flickr8k/Flickr8k.token.txt"
_COEFFICIENTS = ("tau-b", "tau-c", "spearman", "pearson")
_AGGREGATIONS = ("unaggregated", "mean", "median", "mode")


@dataclass(frozen=True)
class _Pair:
    """One row of a file of annotations: an image and a caption rated for it."""

    image: str
    caption_id: str
    caption_image: str
    caption_number: int
    values: tuple[float, ...]

    @property
    def is_own(self) -> bool:
        return self.image == self.caption_image


class _Flickr8k(Dataset):
    citation: ClassVar[str] = _CITATION
    image_folders: ClassVar[Sequence[str]] = ("flickr8k/images",)
    columns: ClassVar[tuple[str, ...]]
    file_name: ClassVar[str]
    json_name: ClassVar[str]
    """The same judgements in CLIPScore's JSON."""
    in_json: ClassVar[tuple[str, ...]]
    """The selections for which the JSON is sufficient."""

    def _json(self, selection: ItemSelection) -> tuple[Path, list[JudgedImage]] | None:
        """Path and content of the JSON, or None if the original files exist or the JSON does not.

        Raises:
            MissingFileError: the JSON is not sufficient for the selection.
        """
        path = self.root.path / self.json_name
        whole = all((self.root.path / name).is_file() for name in (self.file_name, _CAPTIONS))
        if whole or not path.is_file():
            return None
        if selection.name not in self.in_json:
            raise MissingFileError(
                f"'{selection.name}' requires the original files, and some are missing",
                value=selection.name,
                path=path,
                hint=f"Get {self.file_name} and {_CAPTIONS}, or choose {' or '.join(self.in_json)}",
            )
        return path, read_human_judgements(path)

    def _read(self) -> tuple[Path, Captions, list[_Pair]]:
        captions = read_token(self.root.file(_CAPTIONS, what="Flickr8k's captions"))
        path = self.root.file(self.file_name, self.json_name, what=f"the ratings of {self.title}")
        repeats = judgement_files.Repeats(path, "pair")
        pairs = []
        for row, (image_name, caption_id, *fields) in judgement_files.table_rows(path, self.columns):
            image = image_id(image_name.strip())
            name, number = judgement_files.split_caption_id(caption_id, path=path, row=row)
            caption_image = image_id(name)
            if image not in captions:
                raise DataError(
                    f"image '{image_name}' has no captions in {captions.source.name}",
                    code="unknown-item",
                    value=image_name,
                    path=path,
                    row=row,
                    hint="Both files must be from the same release of Flickr8k",
                )
            if number >= len(captions.get(caption_image, ())):
                raise DataError(
                    f"caption '{caption_id}' is not in {captions.source.name}",
                    code="unknown-item",
                    value=caption_id,
                    path=path,
                    row=row,
                    hint="Both files must be from the same release of Flickr8k",
                )
            values = self._values(fields, path, row)
            repeats.check((image, caption_image, number), values, row)
            pairs.append(_Pair(image, f"{name}#{number}", caption_image, number, values))
        return path, captions, pairs

    def _values(self, fields: list[str], path: Path, row: int) -> tuple[float, ...]:
        raise NotImplementedError


def _json_items(path: Path, images: list[JudgedImage], raters: int) -> tuple[tuple[Item, ...], list[float]]:
    """The items in a JSON file and their ratings, ``raters`` per item; candidate ids are image and number."""
    items: list[Item] = []
    values: list[float] = []
    for image in images:
        numbers: dict[str, int] = {}
        for caption, ratings in grouped(image, raters, path):
            number = numbers.setdefault(caption, len(numbers) + 1)
            items.append(Item(image.image, caption, image.references, f"{image.image}#json-{number}"))
            values += ratings
    return tuple(items), values


def _item(pair: _Pair, captions: Captions, references: tuple[str, ...]) -> Item:
    return Item(pair.image, captions[pair.caption_image][pair.caption_number], references, pair.caption_id)


class Flickr8kExpert(_Flickr8k):
    """5,822 pairs of image and caption, each rated by three experts from 1 (unrelated) to 4 (describes the image)."""

    name: ClassVar[str] = "flickr8k-expert"
    title: ClassVar[str] = "Flickr8k Expert"
    version: ClassVar[str] = "1"
    versions: ClassVar[Mapping[str, str]] = {"1": "as published"}
    file_name: ClassVar[str] = "flickr8k/ExpertAnnotations.txt"
    columns: ClassVar[tuple[str, ...]] = ("image", "caption id", "score 1", "score 2", "score 3")
    json_name: ClassVar[str] = "flickr8k/flickr8k.json"
    in_json: ClassVar[tuple[str, ...]] = ("no-own-captions", "one-reference")
    selections: ClassVar[Mapping[str, ItemSelection]] = {
        selection.name: selection
        for selection in (
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
    }
    statistics: ClassVar[Mapping[str, StatisticSpec]] = {
        **correlations("expert", ("unaggregated", "mean", "median", "mode")),
        **within_image_statistics("expert"),
    }
    default: ClassVar[tuple[str, str]] = ("no-own-captions", "unaggregated-tau-c")
    groups: ClassVar[Sequence[str] | None] = ()
    aliases: ClassVar[Mapping[str, str]] = {
        f"{aggregation}/{coefficient}": f"no-own-captions/{aggregation}-{coefficient}"
        for aggregation in _AGGREGATIONS
        for coefficient in _COEFFICIENTS
    }

    def _values(self, fields: list[str], path: Path, row: int) -> tuple[float, ...]:
        return tuple(
            float(judgement_files.parse_integer(f, 1, 4, "expert's score", path=path, row=row)) for f in fields
        )

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """Items in the order of the file; ``ratings["expert"]`` has three ratings per item, in row-major order."""
        as_json = self._json(selection)
        if as_json is None:
            items, values, notes = self._from_release(selection)
        else:
            items, values, notes = self._from_json(*as_json)
        ratings = {"expert": judgement_files.ratings(range(len(items)), values, (1.0, 4.0), raters=3)}
        if selection.seed is None:
            return (Judgements(self.name, selection.name, items, ratings, notes=tuple(notes)),)
        notes.append(f"one reference per image is sampled (seed {selection.seed})")
        return tuple(
            Judgements(self.name, selection.name, drawn, ratings, draw=draw, notes=tuple(notes))
            for draw, drawn in enumerate(judgement_files.draw_references(items, 1, selection.seed, selection.draws))
        )

    def _from_release(self, selection: ItemSelection) -> tuple[tuple[Item, ...], list[float], list[str]]:
        path, captions, pairs = self._read()
        selected = pairs if selection.name == "all-pairs" else [pair for pair in pairs if not pair.is_own]
        if not selected:
            raise judgement_files.file_error(
                f"no pair is left under '{selection.name}'", "too-few", path, value=selection.name
            )
        items = tuple(_item(pair, captions, captions[pair.image]) for pair in selected)
        left_out = len(pairs) - len(selected)
        notes = [f"{left_out} pairs whose caption belongs to the image are left out"] if left_out else []
        return items, [value for pair in selected for value in pair.values], notes

    def _from_json(self, path: Path, images: list[JudgedImage]) -> tuple[tuple[Item, ...], list[float], list[str]]:
        items, values = _json_items(path, images, 3)
        for image in images:
            for one in image.judgements:
                judgement_files.parse_integer(f"{one.rating:g}", 1, 4, "expert's score", path=path, row=one.row)
        return items, values, [f"read from {path.name}, which omits pairs whose caption belongs to the image"]


class Flickr8kCrowdFlower(_Flickr8k):
    """47,830 pairs of image and caption with the share of raters who say that the caption describes the image."""

    name: ClassVar[str] = "flickr8k-crowdflower"
    title: ClassVar[str] = "Flickr8k CrowdFlower"
    version: ClassVar[str] = "1"
    versions: ClassVar[Mapping[str, str]] = {"1": "as published"}
    file_name: ClassVar[str] = "flickr8k/CrowdFlowerAnnotations.txt"
    columns: ClassVar[tuple[str, ...]] = ("image", "caption id", "share of yes", "number of yes", "number of no")
    json_name: ClassVar[str] = "flickr8k/crowdflower_flickr8k.json"
    in_json: ClassVar[tuple[str, ...]] = ("own-reference-out",)
    selections: ClassVar[Mapping[str, ItemSelection]] = {
        selection.name: selection
        for selection in (
            ItemSelection(
                "own-reference-out",
                "all 47,830 pairs; rated captions of the image itself are left out of the references of all its "
                "candidates",
            ),
            ItemSelection(
                "no-own-captions",
                "pairs whose caption belongs to the image are left out; all five references stay",
            ),
        )
    }
    statistics: ClassVar[Mapping[str, StatisticSpec]] = {
        **correlations("share-of-yes"),
        **within_image_statistics("share-of-yes"),
    }
    default: ClassVar[tuple[str, str]] = ("own-reference-out", "tau-b")
    groups: ClassVar[Sequence[str] | None] = ()

    def _values(self, fields: list[str], path: Path, row: int) -> tuple[float, ...]:
        text, yes_text, no_text = fields
        yes = judgement_files.parse_integer(yes_text, 0, None, "number of yes", path=path, row=row)
        no = judgement_files.parse_integer(no_text, 0, None, "number of no", path=path, row=row)
        try:
            share = float(text)
        except ValueError:
            share = float("nan")
        if not 0.0 <= share <= 1.0:
            raise DataError(
                f"the share of yes '{text.strip()}' is not a number from 0 to 1",
                code="out-of-range",
                value=text.strip(),
                path=path,
                row=row,
                hint="Correct that row",
            )
        if yes + no == 0:
            raise DataError("this pair has no votes", code="missing-value", path=path, row=row, hint="Remove the row")
        if abs(share - yes / (yes + no)) > 1e-6:
            raise DataError(
                f"the share of yes {text.strip()} does not match {yes} yes and {no} no",
                code="mismatch",
                value=text.strip(),
                path=path,
                row=row,
                hint=f"The share of these counts is {yes / (yes + no):.6g}",
            )
        return (share, float(yes), float(no))

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """Items in the order of the file; ``ratings["share-of-yes"]`` has one value from 0 to 1 per item."""
        as_json = self._json(selection)
        if as_json is not None:
            return (self._from_json(*as_json),)
        path, captions, pairs = self._read()
        own_captions = {(pair.image, pair.caption_number) for pair in pairs if pair.is_own}
        if selection.name == "no-own-captions":
            selected, dropped = [pair for pair in pairs if not pair.is_own], set[tuple[str, int]]()
            note = f"{len(pairs) - len(selected)} pairs whose caption belongs to the image are left out"
        else:
            selected, dropped = pairs, own_captions
            note = f"{len(own_captions)} rated captions of the image itself are left out of its references"
        if not selected:
            raise judgement_files.file_error(
                f"no pair is left under '{selection.name}'", "too-few", path, value=selection.name
            )
        references = {
            image: tuple(text for n, text in enumerate(captions[image]) if (image, n) not in dropped)
            for image in {pair.image for pair in selected}
        }
        items = tuple(_item(pair, captions, references[pair.image]) for pair in selected)
        judgement_files.require_references(items, selection.name, path)
        ratings = {
            "share-of-yes": judgement_files.ratings(
                range(len(selected)), (pair.values[0] for pair in selected), (0.0, 1.0)
            )
        }
        return (Judgements(self.name, selection.name, items, ratings, notes=(note,) if own_captions else ()),)

    def _from_json(self, path: Path, images: list[JudgedImage]) -> Judgements:
        items, values = _json_items(path, images, 1)
        for image in images:
            for one in image.judgements:
                if one.rating is None or not 0.0 <= one.rating <= 1.0:
                    problem = f"the share of yes {one.rating} is not a number from 0 to 1"
                    raise DataError(
                        problem,
                        code="out-of-range",
                        value=one.rating,
                        path=path,
                        row=one.row,
                        hint="Correct that entry",
                    )
        ratings = {"share-of-yes": judgement_files.ratings(range(len(items)), values, (0.0, 1.0))}
        note = f"read from {path.name}, whose references omit rated captions of the image itself"
        return Judgements(self.name, "own-reference-out", items, ratings, notes=(note,))

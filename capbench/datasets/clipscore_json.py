"""CLIPScore's JSON (Hessel and others 2021), an object of images with their ratings, references and ``image_path``.

``human_judgement`` is a list of ``caption`` and ``rating``, one entry per rating, ``ground_truth`` one of references.
Files in this format are ``flickr8k.json`` (three entries per caption, one for each expert) and
``crowdflower_flickr8k.json``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field

from capbench.core import files
from capbench.datasets.judgement_files import file_error
from capbench.datasets.row_models import Image, Row, Text, distinct, parsed


def _nan_as_none(rating: object) -> object:
    return None if isinstance(rating, float) and math.isnan(rating) else rating


class JudgedCaption(BaseModel):
    """One entry of ``human_judgement``; ``rating`` is None for NaN in the file."""

    caption: Text
    rating: Annotated[Annotated[float, Field(ge=-1e6, le=1e6, strict=True)] | None, BeforeValidator(_nan_as_none)]


class JudgedImage(Row):
    """One image of CLIPScore's JSON: its key and path in the file, the ratings of its captions, its references."""

    key: str
    image: Image
    image_path: str = ""
    judgements: tuple[JudgedCaption, ...] = Field(validation_alias="human_judgement", min_length=1)
    references: tuple[Text, ...] = Field(validation_alias="ground_truth", min_length=1)

    def grouped(self, size: int) -> Iterator[tuple[str, tuple[float, ...]]]:
        """The captions with their ``size`` consecutive ratings."""
        for start in range(0, len(self.judgements), size):
            group = self.judgements[start : start + size]
            if len(group) != size or len({one.caption for one in group}) != 1:
                hint = f"The {size} ratings of a caption must be consecutive"
                problem = f"judgement {start + 1} does not begin {size} ratings of one caption"
                raise self.error("mismatch", problem, hint)
            ratings = tuple(one.rating for one in group if one.rating is not None)
            if len(ratings) < size:
                raise self.error("not-a-number", f"a rating of judgement {start + 1} is NaN")
            yield group[0].caption, ratings


def read_human_judgements(path: Path, data: Any = None) -> list[JudgedImage]:
    """Read the images of CLIPScore's JSON, in the order of the file; ``data`` is its content, if already read."""
    if data is None:
        data = files.read_json(path, unique_keys=True, nan=True)
    if not isinstance(data, dict) or not all(isinstance(entry, dict) for entry in data.values()) or not data:
        raise file_error("is not a JSON object of images", "wrong-format", path)
    images = (parsed(JudgedImage, {**e, "key": key, "image": key}, path, f"image '{key}'") for key, e in data.items())
    return distinct(images, ["image"], path)

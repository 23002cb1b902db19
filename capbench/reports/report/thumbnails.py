"""Small pictures of the captions that are listed first, as data in the page."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from capbench.analyses.item_profiles import human_percentiles, percentiles
from capbench.errors import DataError
from capbench.features.images import decode
from capbench.studies.item_scores import ItemScores
from capbench.studies.judged import ProgressFactory, no_progress

__all__ = ["MOST_BYTES", "MOST_PICTURES", "images_listed_first", "thumbnails"]

MOST_PICTURES = 200
"""Pictures in one page."""
MOST_BYTES = 10_000
"""Size of one picture's file."""
_SIDES = (224, 192, 160, 128, 96, 64)  # pixels of the longer side, the first that fits
_QUALITIES = (80, 65, 50)


def images_listed_first(tables: Sequence[ItemScores], number: int = MOST_PICTURES) -> list[str]:
    """The images of the captions on which metrics and people part most: of each metric's list by turns.

    Args:
        tables: the items.
        number: how many images at most.
    """
    lists: list[list[str]] = []
    for table in tables:
        human = human_percentiles(table)
        for name in table.scores:
            places, scores = table.points(name)
            distance = np.abs(percentiles(scores) - human[places])
            order = places[np.argsort(-distance, kind="stable")[: 2 * number]]
            lists.append([table.images[place] for place in order.tolist()])
    chosen: dict[str, None] = {}
    for turn in range(max(map(len, lists), default=0)):
        for images in lists:
            if turn < len(images) and len(chosen) < number:
                chosen[images[turn]] = None
    return list(chosen)


def thumbnails(
    images: Sequence[str], paths: Mapping[str, Path], progress: ProgressFactory = no_progress
) -> tuple[dict[str, str], list[str]]:
    """Data URLs of small JPEG files by image, and what is wrong with pictures that cannot be read.

    Args:
        images: which are wanted.
        paths: their files, as far as they are there.
        progress: makes progress bars.
    """
    urls: dict[str, str] = {}
    problems: list[str] = []
    there = [image for image in images if image in paths]
    with progress("pictures", len(there)) as step:
        for image in there:
            try:
                urls[image] = "data:image/jpeg;base64," + base64.b64encode(_small(paths[image])).decode()
            except DataError as error:
                problems.append(str(error))
            step(1)
    return urls, problems


def _small(path: Path) -> bytes:
    from PIL import Image

    picture = Image.fromarray(decode(path))
    data = b""
    for side in _SIDES:
        small = picture.copy()
        small.thumbnail((side, side), Image.Resampling.LANCZOS)
        for quality in _QUALITIES:
            stream = io.BytesIO()
            small.save(stream, "JPEG", quality=quality, optimize=True)
            data = stream.getvalue()
            if len(data) <= MOST_BYTES:
                return data
    return data

"""The files of images, for metrics that look at the pictures themselves."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from capbench.errors import MetricError, MissingFileError
from capbench.metrics.base import Resources

__all__ = ["find_pictures"]


def find_pictures(images: Iterable[str], resources: Resources) -> dict[str, Path]:
    """The file of each image.

    Args:
        images: ids.
        resources: with a way to look pictures up (:func:`capbench.scoring.complete` hands it in).

    Raises:
        MetricError: there is no such way.
        MissingFileError: some are not there; they are counted.
    """
    if resources.pictures is None:
        raise MetricError("no way to find pictures was handed in", hint="Score by 'capbench score'")
    wanted = list(dict.fromkeys(images))
    paths = dict(resources.pictures(wanted))
    missing = [image for image in wanted if image not in paths]
    if missing:
        first = ", ".join(f"'{image}'" for image in missing[:3]) + (", ..." if len(missing) > 3 else "")
        raise MissingFileError(
            f"there are no pictures of {len(missing):,} of {len(wanted):,} images: {first}",
            path=resources.images or resources.data,
            hint="Say where they are with --image-root; a picture's id is its file's name without the ending",
        )
    return paths

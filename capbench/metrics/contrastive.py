"""The formulas of CLIPScore over any two encoders whose vectors lie in one space.

CLIPScore of an image and a candidate is w · max(cos, 0). RefCLIPScore is the harmonic mean of that and of the largest
cosine between the candidate and a reference, which is not scaled (Hessel et al., EMNLP 2021, sections 3 and 3.1). A
negative largest cosine counts as 0, as in the paper; the mean is then 0, as it is where both sides are 0.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench.errors import MetricError
from capbench.metrics.base import Metric, Progress
from capbench.options import Options, Positive, option
from capbench.records import FloatArray, Item

__all__ = ["ContrastiveMetric", "ContrastiveOptions", "harmonic_mean", "unit_rows"]


@dataclass(frozen=True)
class ContrastiveOptions(Options):
    """Options of every metric with these formulas."""

    scale: float = option(
        2.5, Positive(), "w, by which cosines of images and captions are multiplied", sign_as="w", recombines=True
    )


class ContrastiveMetric(Metric):
    """A metric of two columns, without references and with them, over vectors of images and of captions."""

    option_type = ContrastiveOptions
    options: Any

    @abc.abstractmethod
    def image_vectors(self, images: Sequence[str]) -> FloatArray:
        """(images, D) vectors of images by their ids, of any length but 0."""

    @abc.abstractmethod
    def text_vectors(self, texts: Sequence[str]) -> FloatArray:
        """(texts, D) vectors of captions, of any length but 0."""

    @classmethod
    def reference_free(cls) -> frozenset[str]:
        """The first column."""
        return frozenset(cls.columns[:1])

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """(n, 3): number of references, cosine of image and candidate, largest cosine of candidate and reference.

        The third is 0 where there are no references.
        """
        images = list(dict.fromkeys(item.image for item in items))
        texts = list(dict.fromkeys(text for item in items for text in (item.candidate, *item.references)))
        image_place = {image: place for place, image in enumerate(images)}
        text_place = {text: place for place, text in enumerate(texts)}
        of_images, of_texts = unit_rows(self.image_vectors(images)), unit_rows(self.text_vectors(texts))
        candidates = of_texts[[text_place[item.candidate] for item in items]]
        rows = np.zeros((len(items), 3))
        rows[:, 1] = (of_images[[image_place[item.image] for item in items]] * candidates).sum(axis=1)
        for row, item, candidate in zip(rows, items, candidates, strict=True):
            row[0] = len(item.references)
            if item.references:
                row[2] = (of_texts[[text_place[text] for text in item.references]] @ candidate).max()
        progress(len(items))
        return rows

    def scores(self, statistics: FloatArray) -> dict[str, FloatArray]:
        """Both columns; the one with references is NaN for items without any."""
        count, cosines, of_references = statistics.T
        scaled = self.options.scale * np.maximum(cosines, 0.0)
        mean = harmonic_mean(scaled, np.maximum(of_references, 0.0))
        return dict(zip(self.columns, (scaled, np.where(count > 0, mean, np.nan)), strict=True))

    def matrix(
        self,
        images: Sequence[str],
        captions: Sequence[str],
        references: Mapping[str, Sequence[str]],
        column: str,
        progress: Progress,
    ) -> FloatArray | None:
        """(n, m) scores of every caption against every image, each side encoded once."""
        of_captions = unit_rows(self.text_vectors(list(captions)))
        cosines = unit_rows(self.image_vectors(list(images))) @ of_captions.T
        scaled: FloatArray = self.options.scale * np.maximum(cosines, 0.0)
        if column == self.columns[0]:
            progress(len(images))
            return scaled
        bare = next((image for image in images if not references.get(image)), None)
        if bare is not None:
            raise MetricError(f"{column} needs references, and the image '{bare}' has none")
        texts = list(dict.fromkeys(text for image in images for text in references[image]))
        of_references = dict(zip(texts, unit_rows(self.text_vectors(texts)), strict=True))
        for row, image in zip(scaled, images, strict=True):
            of_image = np.stack([of_references[text] for text in references[image]])
            row[:] = harmonic_mean(row, np.maximum((of_image @ of_captions.T).max(axis=0), 0.0))
            progress(1)
        return scaled


def unit_rows(vectors: NDArray[Any]) -> FloatArray:
    """Rows (n, D) of length 1, in float64. Raises MetricError if a row is all zeros."""
    rows = np.asarray(vectors, dtype=np.float64)
    lengths = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    if not (lengths > 0).all():
        raise MetricError("an image or a caption has a vector of zeros, which has no direction")
    unit: FloatArray = rows / lengths
    return unit


def harmonic_mean(first: FloatArray, second: FloatArray) -> FloatArray:
    """2ab / (a + b) of numbers from 0 on; 0 where both are 0."""
    total = first + second
    mean: FloatArray = 2 * first * second / np.where(total > 0, total, 1.0)
    return mean

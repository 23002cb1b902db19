"""TIGEr: similarity of a caption's and its references' grounding in the image (Jiang et al., EMNLP 2019)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from capbench.core.explanations import Explanation, Subject
from capbench.core.options import Choice, Flag, Positive, option
from capbench.core.records import FloatArray, IntArray, Item
from capbench.metrics.abilities import ReferenceSweep
from capbench.metrics.base import Progress
from capbench.metrics.grounding.grounding import (
    D_RELS,
    STATISTICS,
    GroundedMetric,
    GroundingOptions,
    compare,
    d_rel,
    grounding,
    one_thread,
    pad,
    portions,
    wds,
)

__all__ = ["Tiger"]

_PLACE = {name: place for place, name in enumerate(STATISTICS)}


@dataclass(frozen=True)
class TigerOptions(GroundingOptions):
    """Options of TIGEr."""

    tau: float = option(1.5, Positive(), "τ of WDS", recombines=True)
    minmax: bool = option(True, Flag(), "map the references' vector to [0, 1] before computing gains", recombines=True)
    d_rel: str = option(
        "released",
        Choice(*D_RELS),
        "vectors whose lengths D_rel uses: the grounding vectors (released), (1 + s)/2 (half) or max(0, s) (clip)",
        recombines=True,
    )


class Tiger(GroundedMetric):
    """TIGEr = (RRS + WDS)/2, its two halves, and the candidate's mean grounding.

    RRS compares the rankings of the image's regions by candidate and references (NDCG); WDS compares their
    distributions over the regions (KL divergence, and the ratio of their lengths). ``grounding`` is the mean of the
    candidate's grounding vector and is reference-free. Defaults are those of the released run. Under an ensemble, a
    caption's grounding vector is the mean of the networks' grounding vectors; all other values follow from it.

    Statistics do not depend on the batch (bitwise, on one machine).

    Values that the original leaves undefined: RRS against a constant reference vector is 1 (every order is ideal); RRS
    of a constant candidate vector is its mean over all orders of the regions; with one region both are 1; D_rel is 0 if
    a length is 0; a caption without words (without ends) has grounding 0 in all regions. An item without references has
    no TIGEr, RRS and WDS: requesting these is an error.
    """

    name: ClassVar[str] = "tiger"
    columns: ClassVar[tuple[str, ...]] = ("tiger", "rrs", "wds", "grounding")
    titles: ClassVar[Mapping[str, str]] = {"tiger": "TIGEr", "rrs": "RRS", "wds": "WDS", "grounding": "Mean grounding"}
    citation: ClassVar[str] = "Jiang et al., TIGEr: text-to-image grounding for image caption evaluation, EMNLP 2019"
    order: ClassVar[int] = 100

    option_type = TigerOptions
    options: TigerOptions

    @classmethod
    def reference_free(cls) -> frozenset[str]:
        """The mean grounding."""
        return frozenset({"grounding"})

    def facts(self) -> Mapping[str, object]:
        """Those of :class:`GroundedMetric`, and the combination of several references."""
        return {**super().facts(), "refs": "mean"}

    def image_statistics(
        self, image: str, items: Sequence[Item], encodings: Mapping[str, NDArray[np.float32]]
    ) -> FloatArray:
        """(items, 11), the columns of :data:`~capbench.metrics.grounding.grounding.STATISTICS`."""
        vectors = self.grounding_vectors(image, [t for i in items for t in (i.candidate, *i.references)], encodings)
        return _compare(items, [item.references for item in items], vectors)

    def grounding_vectors(
        self, image: str, texts: Sequence[str], words: Mapping[str, NDArray[np.float32]] | None = None
    ) -> dict[str, FloatArray]:
        """Grounding vectors (n,) of distinct captions in an image; for an ensemble, the means of its networks.

        Args:
            image: its id.
            texts: captions, repeats allowed.
            words: their word vectors, if known.

        Raises:
            FeatureError: the image is not in the store.
        """
        distinct = sorted(dict.fromkeys(texts))
        words = self.encode(distinct) if words is None else words
        distinct.sort(key=lambda text: len(words[text]))  # less padding
        regions = self.source.regions(image)
        by_text: dict[str, FloatArray] = {}
        for rows in portions([len(words[text]) for text in distinct], alike=True):
            batch = distinct[rows]
            of_networks = zip(*(self.source.parts(words[text]) for text in batch), strict=True)
            vectors = [
                grounding(seen, pad(captions, self.attention), self.attention)
                for seen, captions in zip(self.source.parts(regions), of_networks, strict=True)
            ]
            by_text.update(zip(batch, np.mean(vectors, axis=0), strict=True))
        return by_text

    def sweep(self, sweep: ReferenceSweep, progress: Progress) -> Iterator[FloatArray] | None:
        """(counts, n, 11) for each draw; every caption is grounded once. With a count of 0, only ``grounding``."""
        return self._sweep(sweep, progress)

    def _sweep(self, sweep: ReferenceSweep, progress: Progress) -> Iterator[FloatArray]:
        by_image: dict[str, list[int]] = {}
        for place, item in enumerate(sweep.items):
            by_image.setdefault(item.image, []).append(place)
        self.source.store.require(list(by_image))
        draws = [np.empty((len(sweep.counts), len(sweep.items), len(STATISTICS))) for _ in sweep.orders]
        grouped = {image: [sweep.items[place] for place in places] for image, places in by_image.items()}
        with one_thread():
            for image, items, words in self.images(grouped):
                places = by_image[image]
                texts = [text for item in items for text in (item.candidate, *item.references)]
                vectors = self.grounding_vectors(image, texts, words)
                for draw, orders in zip(draws, sweep.orders, strict=True):
                    for step, count in enumerate(sweep.counts):
                        chosen = [[sweep.items[p].references[r] for r in orders[p][:count]] for p in places]
                        draw[step, places] = _compare(items, chosen, vectors)
                    progress(len(items))
        yield from draws

    def matrix(
        self,
        images: Sequence[str],
        captions: Sequence[str],
        references: Mapping[str, Sequence[str]],
        column: str,
        progress: Progress,
    ) -> FloatArray:
        """(n, m) scores of a column; captions are encoded in batches for all images."""
        scores = np.empty((len(images), len(captions)))
        self.store.require(images)
        batches = range(0, len(captions), self.texts_at_once)
        with one_thread():
            for start in batches:
                batch = captions[start : start + self.texts_at_once]
                words = self.encode(set(batch))
                for row, image in enumerate(images):
                    of_image = tuple(references[image])
                    vectors = self.grounding_vectors(
                        image, [*batch, *of_image], {**words, **self.encode(set(of_image))}
                    )
                    items = [Item(image, caption, of_image) for caption in batch]
                    statistics = _compare(items, [of_image] * len(items), vectors)
                    scores[row, start : start + len(batch)] = self.scores(statistics)[column]
                    if start == batches[-1]:
                        progress(1)
        return scores

    def scores(self, statistics: FloatArray) -> dict[str, FloatArray]:
        """TIGEr, RRS and WDS, NaN for items without references; and the mean grounding."""

        def column(name: str) -> FloatArray:
            return np.ascontiguousarray(statistics[:, _PLACE[name]])

        none = column("references") == 0
        rrs = np.where(none, np.nan, column("rrs" if self.options.minmax else "rrs_plain"))
        levels = d_rel(column(f"norm_reference_{self.options.d_rel}"), column(f"norm_candidate_{self.options.d_rel}"))
        weights = np.where(none, np.nan, wds(column("kl") + levels, self.options.tau))
        return {"tiger": (rrs + weights) / 2, "rrs": rrs, "wds": weights, "grounding": column("grounding")}

    def explain(self, subject: Subject) -> Explanation:
        """See :func:`capbench.metrics.tiger.explain.explain_tiger`."""
        from capbench.metrics.tiger.explain import explain_tiger

        return explain_tiger(self, subject)


def _compare(
    items: Sequence[Item], references: Sequence[Sequence[str]], vectors: Mapping[str, FloatArray]
) -> FloatArray:
    """Statistics of items of one image against the mean vectors of references."""
    candidates = np.stack([vectors[item.candidate] for item in items])
    counts: IntArray = np.array([len(texts) for texts in references], dtype=np.int64)
    means: dict[tuple[str, ...], FloatArray] = {}
    rows = np.zeros_like(candidates)
    for row, texts in zip(rows, references, strict=True):
        key = tuple(texts)
        if key and key not in means:
            means[key] = np.mean([vectors[text] for text in key], axis=0)
        if key:
            row[:] = means[key]
    return compare(candidates, rows, counts)

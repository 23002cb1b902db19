"""TIGEr: similarity of a caption's and its references' grounding in the image (Jiang et al., EMNLP 2019).

Explanations show all intermediate values between a caption and its score. The values are those of the metric, with the
gain at each rank and each word's attention. For REO see :mod:`capbench.metrics.reo.explain`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import UsageError
from capbench.core.explanations import ExplainedCandidate, Explanation, Panel, RegionMaps, Subject, Table
from capbench.core.options import Choice, Flag, Positive, option
from capbench.core.progress import Progress
from capbench.core.records import FloatArray, IntArray, Item
from capbench.features.class_names import regions_of
from capbench.metrics.abilities import ReferenceSweep
from capbench.metrics.grounding.grounding import (
    D_RELS,
    STATISTICS,
    GroundedMetric,
    GroundingOptions,
    attend,
    compare,
    d_rel,
    grounding,
    one_thread,
    pad,
    portions,
    wds,
)
from capbench.metrics.image_metric import unknown_words

if TYPE_CHECKING:
    from capbench.metrics.grounding.grounding import GroundedMetric

_SIDES = ("reference", "candidate")
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
        """Both grounding vectors and each word's attention over the image, and RRS region by region (Figures 1 and 6).

        Under an ensemble, attention and grounding are means over its networks.

        Raises:
            UsageError: a candidate has no references.
            FeatureError: the image is not in the store.
        """
        image, items = subject.image, subject.items
        if not all(item.references for item in items):
            message = f"TIGEr requires references, but '{image}' has none"
            raise UsageError(message, code="missing-references", value=image, hint="Add --reference")
        texts = list(dict.fromkeys(text for item in items for text in (item.candidate, *item.references)))
        words, shown = self.encode(texts), regions_of(self.store, image)
        vectors = self.grounding_vectors(image, texts, words)
        statistics = self.image_statistics(image, items, words)
        scores = self.scores(statistics)
        candidates = []
        for row, (item, human) in enumerate(zip(items, subject.humans, strict=True)):
            candidate, reference = vectors[item.candidate], np.mean([vectors[t] for t in item.references], axis=0)
            order, ideal = (np.argsort(-vector, kind="stable") for vector in (candidate, reference))
            low, spread = (reference.min(), np.ptp(reference) or 1.0) if self.options.minmax else (0.0, 1.0)
            gains = (reference - low) / spread
            discounts = 1 / np.log2(np.arange(2, len(order) + 2))
            kl, norms = statistics[row, _PLACE["kl"]], [f"norm_{side}_{self.options.d_rel}" for side in _SIDES]
            terms = {
                "DCG": gains[order] @ discounts,
                "ideal DCG": gains[ideal] @ discounts,
                "KL": kl,
                "D_rel": d_rel(*(statistics[[row], _PLACE[name]] for name in norms))[0],
            }
            ranks = np.argsort(ideal, kind="stable") + 1
            columns = (ranks[order], gains[order], gains[order] * discounts, reference[order], candidate[order])
            panels: list[Panel] = [
                RegionMaps(
                    "Grounding of each region", ("references", "candidate"), np.stack([reference, candidate]), 3
                ),
                Table(
                    "Regions by the candidate's grounding (RRS)",
                    ("region", "references' rank", "relevance", "gain", "references' grounding", "grounding"),
                    tuple((shown.names[r], *row) for r, row in zip(order, np.stack(columns, 1).tolist(), strict=True)),
                ),
            ]
            if names := words_of(self, item.candidate):
                panels.append(
                    RegionMaps(
                        "Attention of each region to a word", names, self._attention_of(image, words[item.candidate])
                    )
                )
            of_item = {name: float(values[row]) for name, values in scores.items()}
            of_item |= {name: float(value) for name, value in terms.items()}
            candidates.append(ExplainedCandidate(item.candidate, item.references, human, of_item, tuple(panels)))
        notes = tuple(unknown_words([model.vocabulary for model in self.source.models], texts))
        return Explanation("TIGEr", image, tuple(candidates), self.signature(), shown, notes=notes)

    def _attention_of(self, image: str, words: NDArray[np.float32]) -> FloatArray:
        """(m, n) attention of the regions to a caption's words."""
        pairs = zip(self.source.parts(self.source.regions(image)), self.source.parts(words), strict=True)
        weights = [attend(regions, pad([of], self.attention), self.attention)[0][0] for regions, of in pairs]
        return np.asarray(np.mean(weights, axis=0), dtype=np.float64)


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


def words_of(metric: GroundedMetric, text: str) -> tuple[str, ...]:
    """A caption's words, one for each vector that counts, with ``<start>`` and ``<end>`` if they count."""
    from capbench.text.vocabulary import END, SPECIAL, START, tokenize_caption

    tokens = tokenize_caption(text)
    return (SPECIAL[START], *tokens, SPECIAL[END]) if metric.attention.count_ends else tuple(tokens)

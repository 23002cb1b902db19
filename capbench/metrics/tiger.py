"""TIGEr: do a caption and its references ground in the same regions of the image? (Jiang et al., EMNLP 2019)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from capbench.errors import UsageError, suggest
from capbench.explanations import Explanation, Subject
from capbench.metrics.base import Progress, ReferenceSweep, Resources
from capbench.metrics.grounding.base import GroundedMetric, one_thread
from capbench.metrics.grounding.vectors import D_RELS, STATISTICS, compare, d_rel, grounding, pad, portions, wds
from capbench.metrics.tokens import positive_number
from capbench.records import FloatArray, IntArray, Item

__all__ = ["Tiger"]

_PLACE = {name: place for place, name in enumerate(STATISTICS)}


class Tiger(GroundedMetric):
    """TIGEr = (RRS + WDS)/2, its two halves, and the candidate's mean grounding.

    RRS compares how candidate and references rank the image's regions (NDCG), WDS how they spread over them (KL
    divergence, and the ratio of their lengths). ``grounding`` is the mean of the candidate's grounding vector and
    looks at no references. Defaults are the released run's. The grounding vector of a caption under an ensemble is the
    mean of the networks' grounding vectors, and everything else follows from it.

    Options:
        lambda_softmax: λ of the attention; the model's own by default (9 in the released run).
        norm: how products are normalised before the attention: ``clipped_l2norm``, ``l2norm``, ``clipped``,
            ``softmax``, ``no_norm``; the model's own by default.
        clip: ``leaky`` (LeakyReLU 0.1, as released) or ``relu`` (max(0, ·), as printed).
        count_ends: whether ``<start>`` and ``<end>`` count as words.
        tau: τ of WDS.
        minmax: whether the references' vector is mapped to [0, 1] before it gives gains.
        d_rel: what D_rel takes lengths of: the grounding vectors (``released``), (1 + s)/2 (``half``) or max(0, s)
            (``clip``).
        vocabulary: the vocabulary JSON of a released checkpoint that it does not lie beside.
        any_features: take features of another fingerprint than the model was trained on.

    Values that the original leaves undefined: RRS against a constant reference vector is 1 (every order is ideal),
    RRS of a constant candidate vector is its mean over all orders of the regions, both also with one region (1);
    D_rel is 0 where a length is 0; a caption without words (ends left out) has grounding 0 in all regions. An item
    without references has no TIGEr, RRS and WDS: asking for these is an error, ``grounding`` alone is not.
    """

    name: ClassVar[str] = "tiger"
    columns: ClassVar[tuple[str, ...]] = ("tiger", "rrs", "wds", "grounding")
    titles: ClassVar[Mapping[str, str]] = {"tiger": "TIGEr", "rrs": "RRS", "wds": "WDS", "grounding": "Mean grounding"}
    citation: ClassVar[str] = "Jiang et al., TIGEr: text-to-image grounding for image caption evaluation, EMNLP 2019"
    order: ClassVar[int] = 100

    def __init__(
        self,
        resources: Resources | None = None,
        *,
        lambda_softmax: float | None = None,
        norm: str | None = None,
        clip: str = "leaky",
        count_ends: bool = True,
        tau: float = 1.5,
        minmax: bool = True,
        d_rel: str = "released",
        vocabulary: str | None = None,
        any_features: bool = False,
    ) -> None:
        self._tau = positive_number(self.name, "tau", tau)
        if not isinstance(minmax, bool):
            raise UsageError(f"tiger.minmax={minmax}: not true or false", hint="Write true or false")
        if d_rel not in D_RELS:
            raise UsageError(f"tiger.d_rel={d_rel}: unknown", hint=suggest(str(d_rel), list(D_RELS)))
        self._minmax = minmax
        self._d_rel = d_rel
        attention = {"smoothing": lambda_softmax, "norm": norm, "clip": clip, "count_ends": count_ends}
        super().__init__(resources, attention, vocabulary, any_features)

    @classmethod
    def reference_free(cls) -> frozenset[str]:
        """The mean grounding."""
        return frozenset({"grounding"})

    def statistics_signature(self) -> str:
        """The signature without τ, the gains' mapping and D_rel's, which only recombine statistics."""
        left_out = (f"|tau:{self._tau:g}", f"|minmax:{_word(self._minmax)}", f"|d_rel:{self._d_rel}")
        signature = self.signature()
        for part in left_out:
            signature = signature.replace(part, "")
        return signature

    def signature_parts(self) -> Mapping[str, object]:
        """Those of :class:`GroundedMetric`, τ, and how gains and D_rel are made."""
        own = {"tau": f"{self._tau:g}", "minmax": _word(self._minmax), "d_rel": self._d_rel, "refs": "mean"}
        return {**super().signature_parts(), **own}

    def image_statistics(
        self, image: str, items: Sequence[Item], words: Mapping[str, NDArray[np.float32]]
    ) -> FloatArray:
        """(items, 11), the columns of :data:`~capbench.metrics.grounding.vectors.STATISTICS`."""
        vectors = self.grounding_vectors(image, [t for i in items for t in (i.candidate, *i.references)], words)
        return _compare(items, [item.references for item in items], vectors)

    def grounding_vectors(
        self, image: str, texts: Sequence[str], words: Mapping[str, NDArray[np.float32]] | None = None
    ) -> dict[str, FloatArray]:
        """Grounding vectors (n,) of captions in an image, each distinct caption once: an ensemble's means.

        Args:
            image: its id.
            texts: captions, repeats allowed.
            words: their word vectors if they are known.

        Raises:
            FeatureError: the store lacks the image.
        """
        distinct = sorted(dict.fromkeys(texts))
        words = self.encode(distinct) if words is None else words
        distinct.sort(key=lambda text: len(words[text]))  # less padding
        regions = self.source.regions(image)
        found: dict[str, FloatArray] = {}
        for some in portions([len(words[text]) for text in distinct]):
            part = distinct[some]
            own = zip(*(self.source.parts(words[text]) for text in part), strict=True)
            vectors = [
                grounding(seen, pad(captions, self.attention), self.attention)
                for seen, captions in zip(self.source.parts(regions), own, strict=True)
            ]
            found.update(zip(part, np.mean(vectors, axis=0), strict=True))
        return found

    def sweep(self, sweep: ReferenceSweep, progress: Progress) -> Iterator[FloatArray] | None:
        """(counts, n, 11) for each draw; every caption is grounded once. A count may be 0: grounding alone."""
        return self._sweep(sweep, progress)

    def _sweep(self, sweep: ReferenceSweep, progress: Progress) -> Iterator[FloatArray]:
        by_image: dict[str, list[int]] = {}
        for place, item in enumerate(sweep.items):
            by_image.setdefault(item.image, []).append(place)
        self.source.store.require(list(by_image))
        draws = [np.empty((len(sweep.counts), len(sweep.items), len(STATISTICS))) for _ in sweep.orders]
        grouped = {image: [sweep.items[place] for place in places] for image, places in by_image.items()}
        with one_thread():
            for image, items, words in self.by_image(grouped):
                places = by_image[image]
                texts = [text for item in items for text in (item.candidate, *item.references)]
                vectors = self.grounding_vectors(image, texts, words)
                for draw, orders in zip(draws, sweep.orders, strict=True):
                    for step, count in enumerate(sweep.counts):
                        chosen = [[sweep.items[p].references[r] for r in orders[p][:count]] for p in places]
                        draw[step, places] = _compare(items, chosen, vectors)
                    progress(len(items))
        yield from draws

    def scores(self, statistics: FloatArray) -> dict[str, FloatArray]:
        """TIGEr, RRS and WDS, NaN for items without references; and the mean grounding."""

        def column(name: str) -> FloatArray:
            return np.ascontiguousarray(statistics[:, _PLACE[name]])

        none = column("references") == 0
        rrs = np.where(none, np.nan, column("rrs" if self._minmax else "rrs_plain"))
        levels = d_rel(column(f"norm_reference_{self._d_rel}"), column(f"norm_candidate_{self._d_rel}"))
        weights = np.where(none, np.nan, wds(column("kl") + levels, self._tau))
        return {"tiger": (rrs + weights) / 2, "rrs": rrs, "wds": weights, "grounding": column("grounding")}

    def explain(self, subject: Subject) -> Explanation:
        """What TIGEr saw: see :func:`capbench.explain.tiger.explain_tiger`."""
        from capbench.explain.tiger import explain_tiger

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


def _word(value: bool) -> str:
    return "true" if value else "false"

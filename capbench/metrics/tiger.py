"""TIGEr: similarity of a caption's and its references' grounding in the image (Jiang et al., EMNLP 2019)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, ClassVar

import numpy as np

from capbench.core.errors import UsageError
from capbench.core.explanations import ExplainedCandidate, Explanation, Panel, RegionMaps, Subject, Table
from capbench.core.options import Choice, Flag, Positive, option
from capbench.core.records import FloatArray
from capbench.features.class_names import regions_of
from capbench.metrics.image_metric import unknown_words
from capbench.metrics.pair_metric import Pair
from capbench.metrics.scan.encode import GroundedMetric, GroundingOptions, chunks

_AT_ONCE = 64  # captions that are grounded together
_CONSTANT = 1e-12  # relative spread of a vector below which it counts as constant


def rrs(candidate: FloatArray, reference: FloatArray, minmax: bool = True) -> float:
    """Region rank similarity of grounding vectors s(V, C) and s(V, R) (n,), an NDCG (eq. 8-10).

    Regions are ranked by the candidate, ties in region order; a region's gain is its reference value, mapped to [0, 1]
    with ``minmax``, as in the released code. The original divides by zero if a vector is constant: RRS against a
    constant reference is 1, because every order is ideal; that of a constant candidate is the mean over all orders. An
    ideal DCG of 0 or less, without ``minmax``, gives 0.
    """
    if is_constant(reference):
        return 1.0
    gains, discounts = gains_of(reference, minmax)
    ideal = np.sort(gains)[::-1] @ discounts  # eq. 9
    if is_constant(candidate):
        dcg = gains.mean() * discounts.sum()
    else:
        dcg = gains[np.argsort(-candidate, kind="stable")] @ discounts  # eq. 8
    return float(dcg / ideal) if ideal > 0 else 0.0  # eq. 10


def gains_of(reference: FloatArray, minmax: bool) -> tuple[FloatArray, FloatArray]:
    """Graded relevance of each region, and the discount of each position, 1 / log2(position + 1): (n,) each."""
    low, spread = (reference.min(), np.ptp(reference) or 1.0) if minmax else (0.0, 1.0)
    return (reference - low) / spread, 1.0 / np.log2(np.arange(2, len(reference) + 2))


def is_constant(values: FloatArray) -> bool:
    """True if all values are equal up to rounding."""
    return bool(np.ptp(values) <= _CONSTANT * max(1.0, np.abs(values).max()))


def divergence(candidate: FloatArray, reference: FloatArray) -> float:
    """KL divergence Σ P ln(P / Q) of two grounding vectors' softmax (n,), P of the reference (eq. 11)."""
    log_p, log_q = (x - x.max() - np.log(np.exp(x - x.max()).sum()) for x in (reference, candidate))
    return float(np.exp(log_p) @ (log_p - log_q))


D_RELS = {"released": lambda s: s, "half": lambda s: (1.0 + s) / 2.0, "clip": lambda s: np.maximum(s, 0.0)}
"""Mapping of grounding vectors before D_rel's norms: s, (1 + s)/2, or max(0, s)."""


def d_rel(candidate: FloatArray, reference: FloatArray, mapping: str = "released") -> float:
    """D_rel = ln(‖reference‖ / ‖candidate‖) (eq. 12), 0 if either norm is 0."""
    of_candidate, of_reference = (float(np.linalg.norm(D_RELS[mapping](s))) for s in (candidate, reference))
    return float(np.log(of_reference / of_candidate)) if of_reference > 0 and of_candidate > 0 else 0.0


def wds(candidate: FloatArray, reference: FloatArray, tau: float = 1.5, mapping: str = "released") -> float:
    """Weight distribution similarity 1 - sigmoid(τ (KL + D_rel)) (eq. 13)."""
    x = tau * (divergence(candidate, reference) + d_rel(candidate, reference, mapping))
    small = float(np.exp(-abs(x)))  # no overflow
    return (small if x > 0 else 1.0) / (1.0 + small)


@dataclass(frozen=True)
class TigerOptions(GroundingOptions):
    """Options of TIGEr."""

    tau: float = option(1.5, Positive(), "τ of WDS")
    minmax: bool = option(True, Flag(), "map the references' vector to [0, 1] before computing gains")
    d_rel: str = option(
        "released",
        Choice(*D_RELS),
        "vectors whose lengths D_rel uses: the grounding vectors (released), (1 + s)/2 (half) or max(0, s) (clip)",
    )


class Tiger(GroundedMetric):
    """TIGEr = (RRS + WDS)/2 (eq. 14), its two halves, and the candidate's mean grounding.

    RRS compares the rankings of the image's regions by candidate and references (NDCG); WDS compares their
    distributions over the regions (KL divergence, and the ratio of their lengths). ``grounding`` is the mean of the
    candidate's grounding vector and is reference-free. Defaults are those of the released run. Under an ensemble, a
    caption's grounding vector is the mean of the networks' grounding vectors; all other values follow from it. A
    caption without words (without ends) has grounding 0 in all regions.
    """

    name = "tiger"
    columns = ("tiger", "rrs", "wds", "grounding")
    titles: ClassVar[Mapping[str, str]] = {"tiger": "TIGEr", "rrs": "RRS", "wds": "WDS", "grounding": "Mean grounding"}
    citation = "Jiang et al., TIGEr: text-to-image grounding for image caption evaluation, EMNLP 2019"
    option_type = TigerOptions
    options: TigerOptions

    @classmethod
    def reference_free(cls) -> frozenset[str]:
        return frozenset({"grounding"})

    def grounding(self, image: str, texts: Sequence[str], words: Mapping[str, Any]) -> dict[str, FloatArray]:
        """Grounding vectors s(V, C) (n,) of captions: cosines of regions and their contexts (eq. 1-6)."""
        import torch

        from capbench.metrics.scan.network import context_cosines

        regions = [torch.from_numpy(part)[None] for part in self.source.parts(self.source.regions(image))]
        distinct = sorted(dict.fromkeys(texts), key=lambda text: len(words[text]))  # little padding
        vectors: dict[str, FloatArray] = {}
        for batch in chunks(distinct, _AT_ONCE):
            captions = zip(*(self.source.parts(words[text]) for text in batch), strict=True)
            of_networks = [
                context_cosines(self.attention, seen, *self.options.padded(of))[0]
                for seen, of in zip(regions, captions, strict=True)
            ]
            vectors |= zip(batch, torch.stack(of_networks).mean(dim=0).numpy(), strict=True)
        return vectors

    def pairs(self, pairs: Sequence[Pair], encodings: Mapping[str, Any]) -> Iterator[FloatArray]:
        """Grounding vectors (n,), the candidate's for its pair with the image, otherwise the reference's."""
        for image, of_image in groupby(pairs, key=lambda pair: pair.image):
            texts = [pair.candidate if pair.reference is None else pair.reference for pair in of_image]
            vectors = self.grounding(image, texts, encodings)
            yield from (vectors[text] for text in texts)

    def reduce(self, rows: Sequence[FloatArray]) -> FloatArray:
        """(4,): number of references, RRS and WDS against the mean of their vectors (eq. 7), mean grounding."""
        candidate, *references = rows
        if not references:
            return np.array([0.0, 0.0, 0.0, candidate.mean()])
        o, reference = self.options, np.mean(references, axis=0)
        both = rrs(candidate, reference, o.minmax), wds(candidate, reference, o.tau, o.d_rel)
        return np.array([len(references), *both, candidate.mean()])

    def scores(self, statistics: FloatArray) -> dict[str, FloatArray]:
        count, of_ranks, of_weights, grounding = statistics.T
        of_ranks, of_weights = (np.where(count > 0, values, np.nan) for values in (of_ranks, of_weights))
        return {"tiger": (of_ranks + of_weights) / 2, "rrs": of_ranks, "wds": of_weights, "grounding": grounding.copy()}

    def explain(self, subject: Subject) -> Explanation:
        """Both grounding vectors and each word's attention over the image, and RRS region by region (Figures 1, 6)."""
        image, o = subject.image, self.options
        texts = list(dict.fromkeys(text for item in subject.items for text in (item.candidate, *item.references)))
        words, shown = self.encode(texts), regions_of(self.store, image)
        vectors, candidates = self.grounding(image, texts, words), []
        for item, human in zip(subject.items, subject.humans, strict=True):
            if not item.references:
                message = f"TIGEr requires references, but '{image}' has none"
                raise UsageError(message, code="missing-references", value=image, hint="Add --reference")
            rows = [vectors[text] for text in (item.candidate, *item.references)]
            s, mean = rows[0], np.mean(rows[1:], axis=0)
            order, ideal = (np.argsort(-vector, kind="stable") for vector in (s, mean))
            gains, discounts = gains_of(mean, o.minmax)
            scores = {name: float(values[0]) for name, values in self.scores(self.reduce(rows)[None]).items()}
            scores |= {"DCG": float(gains[order] @ discounts), "ideal DCG": float(gains[ideal] @ discounts)}
            scores |= {"KL": divergence(s, mean), "D_rel": d_rel(s, mean, o.d_rel)}
            columns = (np.argsort(ideal)[order] + 1, gains[order], gains[order] * discounts, mean[order], s[order])
            heads = ("region", "references' rank", "relevance", "gain", "references' grounding", "grounding")
            ranked = zip(order, np.stack(columns, axis=1).tolist(), strict=True)
            panels: list[Panel] = [
                RegionMaps("Grounding of each region", ("references", "candidate"), np.stack([mean, s]), top=3),
                Table("Regions by grounding", heads, tuple((shown.names[region], *row) for region, row in ranked)),
            ]
            if names := o.words(item.candidate):
                weights = self._attention(image, words[item.candidate])
                panels.append(RegionMaps("Attention of each region to a word", names, weights))
            candidates.append(ExplainedCandidate(item.candidate, item.references, human, scores, tuple(panels)))
        notes = tuple(unknown_words([model.vocabulary for model in self.source.models], texts))
        return Explanation("TIGEr", image, tuple(candidates), self.signature(), shown, notes=notes)

    def _attention(self, image: str, words: Any) -> FloatArray:
        """(m, n) attention of the regions to a caption's words (eq. 2), the mean over the networks."""
        import torch

        from capbench.metrics.scan.network import attend

        both = zip(self.source.parts(self.source.regions(image)), self.source.parts(words), strict=True)
        weights = [attend(self.attention, torch.from_numpy(v)[None], *self.options.padded([w]))[0] for v, w in both]
        return np.asarray(torch.stack(weights).mean(dim=0)[0, :, 0].T, dtype=np.float64)

"""TIGEr: similarity of a caption's and its references' grounding in the image (Jiang et al., EMNLP 2019).

Explanations show all intermediate values between a caption and its score. The values are those of the metric, with the
gain at each rank and each word's attention. For REO see :mod:`capbench.metrics.reo.explain`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import UsageError
from capbench.core.explanations import (
    Chart,
    ExplainedCandidate,
    Explanation,
    Link,
    Matching,
    Matrix,
    Panel,
    RegionMap,
    RegionMaps,
    Score,
    Scores,
    Series,
    Subject,
    Table,
)
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
        """See :func:`explain_tiger`."""
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


_BOXES = 3
_RANKS = 12
_GAINS = 30


@dataclass(frozen=True, eq=False)
class GroundedCaption:
    """A caption over the regions of one image.

    Attributes:
        text: the caption.
        words: (m) the network's words, with ``<start>`` and ``<end>`` if they count.
        attention: (n, m) float64 attention of region i to the words (TIGEr, equation 2); rows sum to 1.
        grounding: (n,) float64, the grounding vector (equation 5).

    Under an ensemble, attention and grounding are means over its networks.
    """

    text: str
    words: tuple[str, ...]
    attention: FloatArray
    grounding: FloatArray


@dataclass(frozen=True, eq=False)
class TigerCandidate:
    """One candidate against its references.

    Attributes:
        caption: the candidate.
        references: its references.
        reference: (n,) the mean of the references' grounding vectors (equation 7).
        relevance: (n,) the graded relevance of each region in RRS.
        order: (n,) regions by the candidate's grounding, highest first; ties by lower index.
        ideal_order: (n,) regions by relevance, highest first; ties by lower index.
        gains: (n,) contribution of each position of ``order`` to the DCG (equation 8).
        ideal_gains: (n,) contribution of each position of ``ideal_order`` to the ideal DCG (equation 9).
        kl: divergence of the candidate's distribution from the references' (equation 11), natural logarithm.
        d_rel: difference of the levels (equation 12).
        scores: column → score of the metric.
        human: mean human rating of this candidate; None if unknown.
    """

    caption: GroundedCaption
    references: tuple[GroundedCaption, ...]
    reference: FloatArray
    relevance: FloatArray
    order: IntArray
    ideal_order: IntArray
    gains: FloatArray
    ideal_gains: FloatArray
    kl: float
    d_rel: float
    scores: Mapping[str, float]
    human: float | None = None


def rank_gains(candidate: FloatArray, relevance: FloatArray) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
    """RRS position by position (TIGEr, equations 8 and 9).

    Args:
        candidate: (n,) grounding of the candidate.
        relevance: (n,) graded relevance of the regions.

    Returns:
        Regions by the candidate and by relevance, highest first with ties by lower index; and the contributions of
        both orders' positions to the DCG: relevance / log2(position + 1).
    """
    order = np.argsort(-candidate, kind="stable")
    ideal = np.argsort(-relevance, kind="stable")
    discounts = np.log2(np.arange(2, len(candidate) + 2))
    return order, ideal, relevance[order] / discounts, relevance[ideal] / discounts


def explain_tiger(metric: GroundedMetric, subject: Subject) -> Explanation:
    """Explanation of one image's candidates, after Figures 1 and 6 of the paper; details are TigerCandidate.

    Args:
        metric: TIGEr with its model, features and options.
        subject: candidates, each with references.

    Raises:
        UsageError: a candidate has no references.
        FeatureError: the image is not in the store.
    """
    candidates = tiger_candidates(metric, subject)
    regions = regions_of(metric.source.store, subject.image)
    explained = [
        ExplainedCandidate(
            candidate.caption.text,
            item.references,
            candidate.human,
            _panels(candidate, regions.names),
            candidate,
        )
        for candidate, item in zip(candidates, subject.items, strict=True)
    ]
    texts = [text for item in subject.items for text in (item.candidate, *item.references)]
    notes = tuple(unknown_words([model.vocabulary for model in metric.source.models], texts))
    return Explanation("TIGEr", subject.image, tuple(explained), metric.signature(), regions, notes=notes)


def tiger_candidates(metric: GroundedMetric, subject: Subject) -> tuple[TigerCandidate, ...]:
    """All intermediate values of candidates; arguments and errors are those of :func:`explain_tiger`."""
    image, items = subject.image, subject.items
    if not all(item.references for item in items):
        message = f"TIGEr requires references, but '{image}' has none"
        raise UsageError(message, code="missing-references", value=image, hint="Add --reference")
    texts = list(dict.fromkeys(text for item in items for text in (item.candidate, *item.references)))
    regions, words = metric.source.regions(image), metric.encode(texts)
    captions = {text: _ground(metric, regions, text, words[text]) for text in texts}
    statistics = metric.image_statistics(image, items, words)
    scores = metric.scores(statistics)
    options: Any = metric.options  # TIGEr's own
    columns = dict(zip(STATISTICS, statistics.T, strict=True))
    levels = d_rel(columns[f"norm_reference_{options.d_rel}"], columns[f"norm_candidate_{options.d_rel}"])
    candidates = []
    for i, (item, human) in enumerate(zip(items, subject.humans, strict=True)):
        references = tuple(captions[text] for text in item.references)
        reference = np.mean([caption.grounding for caption in references], axis=0)
        relevance = _to_unit(reference) if options.minmax else reference
        caption = captions[item.candidate]
        candidates.append(
            TigerCandidate(
                caption,
                references,
                reference,
                relevance,
                *rank_gains(caption.grounding, relevance),
                kl=float(columns["kl"][i]),
                d_rel=float(levels[i]),
                scores={name: float(values[i]) for name, values in scores.items()},
                human=human,
            )
        )
    return tuple(candidates)


def attention_span(caption: GroundedCaption) -> tuple[float, float]:
    """The scale of a caption's word maps: from an equal share of attention to the maximum of a word in a region.

    The maximum is at least twice an equal share, so that small differences look small.
    """
    equal = 1.0 / len(caption.words)
    return equal, max(float(caption.attention.max()), 2 * equal)


def _panels(candidate: TigerCandidate, names: Sequence[str]) -> tuple[Panel, ...]:
    panels = [_scores(candidate), _heat(candidate), ranking_panel(candidate, names), *_charts(candidate, names)]
    if candidate.caption.words:
        panels += _attention(candidate, names)
    return (*panels, _regions(candidate, names))


def _scores(candidate: TigerCandidate) -> Scores:
    values = candidate.scores
    dcg = [Score("DCG", float(candidate.gains.sum())), Score("ideal DCG", float(candidate.ideal_gains.sum()))]
    levels = (Score("KL", candidate.kl, form=".5f"), Score("D_rel", candidate.d_rel, form="+.4f"))
    halves = (Score("rrs", values["rrs"], tuple(dcg)), Score("wds", values["wds"], levels))
    return Scores("", (Score("tiger", values["tiger"], halves), Score("grounding", values["grounding"])))


def _heat(candidate: TigerCandidate) -> RegionMaps:
    """Both grounding vectors over the image on one scale, so that shape and level can be compared."""
    reference, grounded = candidate.reference, candidate.caption.grounding
    maps = (
        (f"Grounding of the references, mean of {len(candidate.references)}", reference, candidate.ideal_order),
        ("Grounding of the candidate", grounded, candidate.order),
    )
    low, high = float(min(reference.min(), grounded.min())), float(max(reference.max(), grounded.max()))
    shown = tuple(RegionMap(title, weights, tuple(order[:_BOXES].tolist())) for title, weights, order in maps)
    return RegionMaps("Grounding of each region", shown, low, high)


def ranking_panel(candidate: TigerCandidate, names: Sequence[str]) -> Matching:
    """The best regions by the references and by the candidate, whose rankings RRS compares.

    A region that only one side shows has its rank on the other side in brackets.
    """
    sides = [order.tolist() for order in (candidate.ideal_order, candidate.order)]
    ranks = [{region: rank for rank, region in enumerate(side)} for side in sides]
    best = [side[:_RANKS] for side in sides]
    labels = []
    for side, other in ((0, 1), (1, 0)):
        places = [(names[region], ranks[other][region]) for region in best[side]]
        labels.append(tuple(name if rank < _RANKS else f"{name[:12]} (there {rank + 1})" for name, rank in places))
    links = tuple(Link(rank, ranks[1][region]) for rank, region in enumerate(best[0]) if ranks[1][region] < _RANKS)
    return Matching(
        "Regions by grounding",
        "references",
        labels[0],
        "candidate",
        labels[1],
        links,
        "in brackets: the rank on the other side" if len(links) < len(best[0]) else "",
    )


def _charts(candidate: TigerCandidate, names: Sequence[str]) -> list[Panel]:
    """Gain of each position, and both grounding vectors."""
    gains, ideal = candidate.gains[:_GAINS], candidate.ideal_gains[:_GAINS]
    order = candidate.order.tolist()
    gain_hints = tuple(
        f"position {k + 1}: region {names[order[k]]} gains {gain:.3f}, the ideal {best:.3f}"
        for k, (gain, best) in enumerate(zip(gains.tolist(), ideal.tolist(), strict=True))
    )
    by_relevance = candidate.ideal_order
    reference, grounded = candidate.reference[by_relevance], candidate.caption.grounding[by_relevance]
    vector_hints = tuple(
        f"region {names[region]}: references {a:.3f}, candidate {b:.3f}"
        for region, a, b in zip(by_relevance.tolist(), reference.tolist(), grounded.tolist(), strict=True)
    )
    return [
        Chart(
            f"Gain of each position: DCG {candidate.gains.sum():.3f} of {candidate.ideal_gains.sum():.3f}",
            tuple(str(k + 1) for k in range(len(gains))),
            (Series("candidate", gains), Series("ideal", ideal, "steps", "neutral")),
            "position",
            gain_hints,
        ),
        Chart(
            "Grounding vectors: shape and level",
            tuple(str(k + 1) for k in range(len(reference))),
            (
                *(Series("references", c.grounding[by_relevance], "thin", "neutral") for c in candidate.references),
                Series("their mean", reference, "line", "reference"),
                Series("candidate", grounded, "dots"),
            ),
            "region, in the references' order",
            vector_hints,
        ),
    ]


def _attention(candidate: TigerCandidate, names: Sequence[str]) -> list[Panel]:
    """Attention to each word, at the candidate's best regions and over the image."""
    caption = candidate.caption
    low, high = attention_span(caption)
    best = candidate.order[:_RANKS].tolist()
    columns = tuple(names[region] for region in best)
    title = "Attention of the candidate's best regions"
    matrix = Matrix(title, caption.words, columns, caption.attention[best].T, 0.0, high)
    maps = []
    for word, weights in zip(caption.words, caption.attention.T, strict=True):
        region = int(np.argmax(weights))
        if weights[region] <= weights.min():
            maps.append(RegionMap(word, weights, note="the same everywhere"))
        elif weights[region] <= low:
            maps.append(RegionMap(word, weights, note="nowhere more than an equal share"))
        else:
            maps.append(RegionMap(word, weights, (region,), f"most at {names[region]}, {weights[region]:.2f}"))
    title = "Where each word gets more of a region's attention than an equal share"
    return [matrix, RegionMaps(title, tuple(maps), low, high, small=True)]


def _regions(candidate: TigerCandidate, names: Sequence[str]) -> Table:
    order, words = candidate.order, candidate.caption.words
    places = np.argsort(candidate.ideal_order, kind="stable") + 1
    rows = []
    for rank, region in enumerate(order.tolist()):
        numbers = [candidate.relevance[region], candidate.gains[rank], candidate.ideal_gains[rank]]
        numbers += [candidate.reference[region], candidate.caption.grounding[region]]
        most = words[int(np.argmax(candidate.caption.attention[region]))] if words else ""
        rows.append((names[region], str(rank + 1), str(places[region]), *(f"{value:.4f}" for value in numbers), most))
    heads = ("region", "rank", "references' rank", "relevance", "gain", "ideal gain", "references' grounding")
    return Table("All regions", (*heads, "grounding", "attends most to"), tuple(rows))


def _ground(metric: GroundedMetric, regions: FloatArray, text: str, words: NDArray[np.float32]) -> GroundedCaption:
    names = words_of(metric, text)
    weights, vectors = [], []
    for network_regions, network_words in zip(metric.source.parts(regions), metric.source.parts(words), strict=True):
        padded = pad([network_words], metric.attention)
        weights.append(attend(network_regions, padded, metric.attention)[0][0, : len(names)].T)
        vectors.append(grounding(network_regions, padded, metric.attention)[0])
    return GroundedCaption(text, names, np.mean(weights, axis=0), np.mean(vectors, axis=0))


def words_of(metric: GroundedMetric, text: str) -> tuple[str, ...]:
    """A caption's words, one for each vector that counts, with ``<start>`` and ``<end>`` if they count."""
    from capbench.text.vocabulary import END, SPECIAL, START, tokenize_caption

    tokens = tokenize_caption(text)
    return (SPECIAL[START], *tokens, SPECIAL[END]) if metric.attention.count_ends else tuple(tokens)


def _to_unit(values: FloatArray) -> FloatArray:
    low, spread = values.min(), values.max() - values.min()
    return (values - low) / spread if spread > 0 else np.zeros_like(values)

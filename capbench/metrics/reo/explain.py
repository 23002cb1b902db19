"""Explanations of REO's scores: the words of extra and missing content.

The scores are those of the metric. Extra content is a⊥, the contexts of a candidate without their projections on the
ground truth; missing content is g⊥, the ground truth without its projections on the candidate's contexts. Contexts are
sums of word vectors, so the lengths of a⊥ and g⊥ are sums over words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from capbench.core.explanations import (
    Bar,
    Bars,
    Chart,
    ExplainedCandidate,
    Explanation,
    Panel,
    RegionMap,
    RegionMaps,
    Score,
    Scores,
    Series,
    Subject,
    Tone,
    WeightedWords,
    letter,
)
from capbench.core.records import FloatArray
from capbench.features.class_names import regions_of
from capbench.metrics.grounding.grounding import attend, contexts, pad
from capbench.metrics.image_metric import unknown_words
from capbench.metrics.tiger.metric import words_of
from capbench.text.vocabulary import tokenize_caption

if TYPE_CHECKING:
    from capbench.metrics.grounding.grounding import GroundedMetric

_ROUNDING = 1e-9


@dataclass(frozen=True)
class PhraseSimilarity:
    """A phrase that humans marked, and sim(x, y) of Figure 3, "the average cosine similarity between the
    machine-identified error (a⊥ and g⊥) and the true error description": the mean over regions and references.

    The paper does not define the vectors of a description; here a phrase is encoded as a caption of the same network.

    Attributes:
        rest: the same for the rest of the text that contains the phrase; None if there is no rest. Words of a caption
            are similar in the network's space, so ``similarity`` is meaningful only in comparison with ``rest``.
    """

    phrase: str
    similarity: float
    rest: float | None


def rests_of(phrases: Sequence[str], texts: Sequence[str]) -> dict[str, list[str]]:
    """The marked phrases, each with the rests of the texts that contain it.

    >>> rests_of(["on a table"], ["a dog on a table", "a dog"])
    {'on a table': ['a dog']}
    """
    rests: dict[str, list[str]] = {phrase: [] for phrase in phrases}
    for phrase, text in product(rests, texts):
        words, named = tokenize_caption(text), tokenize_caption(phrase)
        n = len(named)
        at = next((at for at in range(len(words)) if n and words[at : at + n] == named), len(words))
        rest = [*words[:at], *words[at + n :]]
        if at < len(words) and any(word.isalnum() for word in rest):
            rests[phrase].append(" ".join(rest))
    return rests


def compared(
    phrases: Mapping[str, Sequence[str]],
    errors: Sequence[tuple[FloatArray, FloatArray]],
    captions: Mapping[str, _InContext],
) -> tuple[PhraseSimilarity, ...]:
    """Similarity of phrases with rests to pairs of (n, D) vectors a⊥ or g⊥ and the (n, D) vectors before projection."""

    def similarity(text: str) -> float:
        contexts = captions[text].contexts
        lengths = np.linalg.norm(contexts, axis=1, keepdims=True)
        units = contexts / np.where(lengths > 0, lengths, 1.0)
        return float(np.mean([(_unit(rest, whole) * units).sum(axis=1).mean() for rest, whole in errors]))

    return tuple(
        PhraseSimilarity(phrase, similarity(phrase), float(np.mean([*map(similarity, rests)])) if rests else None)
        for phrase, rests in phrases.items()
    )


IMAGE = "image"
REFERENCES = "image + references"
"""Names of REO's two ground truths in the paper."""


@dataclass(frozen=True)
class WordShare:
    """Share of a word in extra or missing content.

    Words are ranked by similarity, as in the paper's Figure 3: unlike the contribution, it does not depend on the
    word's attention and frequency.

    Attributes:
        word: the word as the network reads it.
        similarity: mean cosine over regions of its vector and the orthogonal context vectors (:func:`similarities`).
        contribution: its part of their mean length (:func:`contributions`); None if they are not sums of words (missing
            content of the image).
    """

    word: str
    similarity: float
    contribution: float | None = None


@dataclass(frozen=True, eq=False)
class ReoTruth:
    """One candidate against one ground truth.

    Attributes:
        scores: the metric's relevance, extraness and omission; low extraness means much extra content, low omission
            much missing content.
        extra: the candidate's words in their order, compared with a⊥: its contexts without their projections on the
            ground truth; means over references.
        missing: the references' distinct words, most similar first, compared with g⊥: the ground truth without its
            projections on the candidate's contexts. For a repeated word, similarities are averaged and contributions
            summed; contributions are means over references.
        references: the words of each reference in their order.
        extra_phrases: phrases that humans marked as extra, compared with a⊥.
        missing_phrases: phrases that humans marked as missing, compared with g⊥.
    """

    scores: Mapping[str, float]
    extra: tuple[WordShare, ...]
    missing: tuple[WordShare, ...]
    references: tuple[tuple[WordShare, ...], ...]
    extra_phrases: tuple[PhraseSimilarity, ...] = ()
    missing_phrases: tuple[PhraseSimilarity, ...] = ()

    @property
    def extra_words(self) -> tuple[WordShare, ...]:
        """The candidate's distinct words, most similar first; contributions of a repeated word are summed."""
        return distinct_words([self.extra])


@dataclass(frozen=True, eq=False)
class ReoCandidate:
    """One candidate of an image.

    Attributes:
        text: the caption.
        references: its references.
        truths: :data:`IMAGE` and, if there are references, :data:`REFERENCES` → the comparison with it.
        human: mean human rating of this candidate; None if unknown.
    """

    text: str
    references: tuple[str, ...]
    truths: Mapping[str, ReoTruth]
    human: float | None = None


def scaled(candidates: Sequence[ReoCandidate]) -> dict[str, dict[str, tuple[float, ...]]]:
    """Every score scaled to 0..1 over the candidates (REO's Figure 4): ground truth → score → one value each.

    A score that is equal for all candidates becomes 0.5. Human ratings are added as ``people`` if every candidate has
    one.
    """
    by_truth: dict[str, dict[str, tuple[float, ...]]] = {}
    for truth in candidates[0].truths:
        columns = [candidate.truths[truth].scores for candidate in candidates]
        by_truth[truth] = {name: _min_max([scores[name] for scores in columns]) for name in columns[0]}
        humans = [candidate.human for candidate in candidates if candidate.human is not None]
        if len(humans) == len(candidates):
            by_truth[truth]["people"] = _min_max(humans)
    return by_truth


def _min_max(values: Sequence[float]) -> tuple[float, ...]:
    low, spread = min(values), max(values) - min(values)
    return tuple((value - low) / spread if spread > 0 else 0.5 for value in values)


def orthogonal(vectors: FloatArray, onto: FloatArray) -> FloatArray:
    """Each row without its projection on the other's row (REO, equations 5 and 8): (n, D) and (n, D) to (n, D).

    A row is unchanged if the other row is zero.
    """
    squares = (onto * onto).sum(axis=1, keepdims=True)
    shares = (vectors * onto).sum(axis=1, keepdims=True) / np.where(squares > 0, squares, 1.0)
    return np.asarray(vectors - shares * onto, dtype=np.float64)


def contributions(rest: FloatArray, whole: FloatArray, words: FloatArray, weights: FloatArray) -> FloatArray:
    """Contributions of words to the length of the orthogonal vectors r_i of n contexts c_i.

    A context is a weighted sum of word vectors, c_i = Σ_j α_ij h_j, and subtracting a projection is linear and
    symmetric, so |r_i| = Σ_j α_ij (h_j · r_i) / |r_i|. A word's contribution is the mean of its term over regions; the
    contributions of a caption's words add up to the mean length of the r_i.

    Args:
        rest: (n, D) r_i.
        whole: (n, D) c_i; an r_i that is only rounding error counts as zero.
        words: (m, D) h_j.
        weights: (m, n) α.

    Returns:
        (m,).
    """
    return np.asarray((weights * (words @ _unit(rest, whole).T)).mean(axis=1), dtype=np.float64)


def similarities(rest: FloatArray, whole: FloatArray, words: FloatArray) -> FloatArray:
    """(m,) means over regions of cos(h_j, r_i); arguments are those of :func:`contributions`."""
    norms = np.linalg.norm(words, axis=1, keepdims=True)
    return np.asarray((words / np.where(norms > 0, norms, 1.0) @ _unit(rest, whole).T).mean(axis=1), dtype=np.float64)


def _unit(rest: FloatArray, whole: FloatArray) -> FloatArray:
    lengths = np.linalg.norm(rest, axis=1)
    real = lengths > _ROUNDING * np.linalg.norm(whole, axis=1)
    return np.where(real[:, None], rest / np.where(real, lengths, 1.0)[:, None], 0.0)


def explain_reo(metric: GroundedMetric, subject: Subject) -> Explanation:
    """Explanation of one image's candidates, after Figures 3 and 4 of the paper; details are ReoCandidate.

    Args:
        metric: REO with its model, features and options.
        subject: candidates; unless all have references, they are explained against the image only.

    Raises:
        ModelError: the model is an ensemble; shares of words are lengths in a single network's space.
        FeatureError: the image is not in the store.
    """
    candidates = reo_candidates(metric, subject)
    explained = [
        ExplainedCandidate(candidate.text, candidate.references, candidate.human, _panels(candidate), candidate)
        for candidate in candidates
    ]
    texts = [text for item in subject.items for text in (item.candidate, *item.references)]
    return Explanation(
        "REO",
        subject.image,
        tuple(explained),
        metric.signature(),
        regions_of(metric.source.store, subject.image),
        opening=(RegionMaps("The image", (RegionMap("The image"),)),),
        comparison=_comparison(candidates),
        notes=tuple(unknown_words([model.vocabulary for model in metric.source.models], texts)),
    )


def reo_candidates(metric: GroundedMetric, subject: Subject) -> tuple[ReoCandidate, ...]:
    """All values of an explanation; arguments and errors are those of :func:`explain_reo`."""
    _ = metric.source.model  # raises for an ensemble
    image, items = subject.image, subject.items
    captioned = [text for item in items for text in (item.candidate, *item.references)]
    named = subject.errors or ({},) * len(items)
    phrases = [
        (rests_of(errors.get("extra", ()), [item.candidate]), rests_of(errors.get("missing", ()), item.references))
        for item, errors in zip(items, named, strict=True)
    ]
    described = [t for pair in phrases for rests in pair for phrase in rests for t in (phrase, *rests[phrase])]
    texts = list(dict.fromkeys([*captioned, *described]))
    regions, words = metric.source.regions(image), metric.encode(texts)
    captions = {text: _in_context(metric, regions, text, words[text]) for text in texts}
    scores = metric.scores(metric.image_statistics(image, items, words))
    against = [IMAGE, REFERENCES] if all(item.references for item in items) else [IMAGE]
    candidates = []
    for i, item in enumerate(items):
        caption, references = captions[item.candidate], [captions[text] for text in item.references]
        truths = {}
        for truth in against:
            prefix = "reo-image-" if truth == IMAGE else "reo-"
            values = {name: float(scores[prefix + name][i]) for name in ("relevance", "extraness", "omission")}
            of_image = truth == IMAGE
            onto = [regions] if of_image else [reference.contexts for reference in references]
            extra = _extra(caption, onto)
            rows = _missing(caption, references, regions if of_image else None)
            truths[truth] = ReoTruth(
                values,
                extra,
                distinct_words(rows),
                tuple(rows),
                compared(phrases[i][0], [(orthogonal(caption.contexts, g), caption.contexts) for g in onto], captions),
                compared(phrases[i][1], [(orthogonal(g, caption.contexts), g) for g in onto], captions),
            )
        candidates.append(ReoCandidate(item.candidate, item.references, truths, subject.humans[i]))
    return tuple(candidates)


def _phrase_panels(candidate: ReoCandidate) -> list[Panel]:
    """sim(x, y) of the phrases that humans marked, by kind and ground truth."""
    found = {
        f"{kind}, sim(x, y) against {truth}": phrases
        for kind in ("extra", "missing")
        for truth, against in candidate.truths.items()
        if (phrases := getattr(against, f"{kind}_phrases"))
    }
    return [Scores(title, tuple(map(_phrase_score, phrases))) for title, phrases in found.items()]


def _phrase_score(entry: PhraseSimilarity) -> Score:
    rest = () if entry.rest is None else (Score("the rest of the text", entry.rest, form=".3f"),)
    return Score(f"“{entry.phrase}”", entry.similarity, rest, form=".3f")


def _panels(candidate: ReoCandidate) -> tuple[Panel, ...]:
    panels: list[Panel] = []
    for truth, against in candidate.truths.items():
        panels.append(Scores(f"against {truth}", tuple(Score(*score) for score in against.scores.items())))
    panels += _phrase_panels(candidate)
    # Against image and references if there are references, otherwise against the image.
    last = list(candidate.truths.values())[-1]
    panels.append(_weighted("extra", last.extra, "candidate"))
    for i, words in enumerate(last.references):
        panels.append(_weighted(f"missing, reference {i + 1}", words, "missing"))
    for truth, against in candidate.truths.items():
        panels.append(_bars(f"extra, against {truth}", against.extra_words, "candidate", "a⊥"))
        if against.missing:
            panels.append(_bars(f"missing, against {truth}", against.missing, "missing", "g⊥"))
    return tuple(panels)


def _weighted(title: str, words: Sequence[WordShare], tone: Tone) -> WeightedWords:
    return WeightedWords(title, tuple((share.word, share.similarity) for share in words), tone)


def _bars(title: str, words: Sequence[WordShare], tone: Tone, side: str) -> Bars:
    bars = [
        Bar(share.word, share.similarity, percent) for share, percent in zip(words, percentages(words), strict=True)
    ]
    in_brackets = " (part of its length)" if words and words[0].contribution is not None else ""
    return Bars(title, tuple(bars), tone, f"similarity to {side}{in_brackets}")


_TONES: Mapping[str, Tone] = {"relevance": "reference", "extraness": "candidate", "omission": "missing"}


def _comparison(candidates: Sequence[ReoCandidate]) -> tuple[Panel, ...]:
    if len(candidates) < 2:
        return ()
    positions = tuple(letter(i) for i in range(len(candidates)))
    return tuple(
        Chart(
            f"Against {truth}, scaled to 0..1",
            positions,
            tuple(
                Series(name, np.array(values), "bars", _TONES.get(name, "neutral")) for name, values in columns.items()
            ),
        )
        for truth, columns in scaled(candidates).items()
    )


@dataclass(frozen=True, eq=False)
class _InContext:
    """A caption's words (m), their vectors (m, D) and weights (m, n), and its contexts (n, D)."""

    names: tuple[str, ...]
    words: FloatArray
    weights: FloatArray
    contexts: FloatArray


def _in_context(metric: GroundedMetric, regions: FloatArray, text: str, words: NDArray[np.float32]) -> _InContext:
    padded = pad([words], metric.attention)
    weights, _ = attend(regions, padded, metric.attention)
    names = words_of(metric, text)
    m = len(names)
    return _InContext(names, padded.vectors[0, :m], weights[0, :m], contexts(weights, padded)[0])


def _extra(caption: _InContext, truths: Sequence[FloatArray]) -> tuple[WordShare, ...]:
    """The candidate's words against ground truths (n, D), averaged over these."""
    rests = [orthogonal(caption.contexts, truth) for truth in truths]
    lengths = np.mean([contributions(rest, caption.contexts, caption.words, caption.weights) for rest in rests], axis=0)
    alike = np.mean([similarities(rest, caption.contexts, caption.words) for rest in rests], axis=0)
    return tuple(map(WordShare, caption.names, alike.tolist(), lengths.tolist()))


def _missing(
    caption: _InContext, references: Sequence[_InContext], image: FloatArray | None
) -> list[tuple[WordShare, ...]]:
    """The words of each reference, against the image's vectors, or against its contexts if ``image`` is None."""
    rows = []
    for reference in references:
        whole = reference.contexts if image is None else image
        rest = orthogonal(whole, caption.contexts)
        lengths: list[float | None] = [None] * len(reference.names)
        if image is None:
            lengths = contributions(rest, whole, reference.words, reference.weights).tolist()
        alike = similarities(rest, whole, reference.words).tolist()
        rows.append(tuple(map(WordShare, reference.names, alike, lengths)))
    return rows


def distinct_words(rows: Sequence[Sequence[WordShare]]) -> tuple[WordShare, ...]:
    """Distinct words of captions, most similar first; contributions are means over the captions."""
    by_word: dict[str, list[WordShare]] = {}
    for share in (share for row in rows for share in row):
        by_word.setdefault(share.word, []).append(share)
    distinct = []
    for word, shares in by_word.items():
        lengths = [share.contribution for share in shares if share.contribution is not None]
        similarity = sum(share.similarity for share in shares) / len(shares)
        distinct.append(WordShare(word, similarity, sum(lengths) / len(rows) if lengths else None))
    return tuple(sorted(distinct, key=lambda share: -share.similarity))


def percentages(words: Sequence[WordShare]) -> list[str]:
    """Each word's part of the total length (``31%``); ``""`` without contributions."""
    total = sum(share.contribution or 0.0 for share in words)
    if total <= 0:
        return [""] * len(words)
    return ["" if share.contribution is None else f"{share.contribution / total:.0%}" for share in words]

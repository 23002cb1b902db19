"""Explanations of ViLBERTScore: matches of words, and attention of words to image regions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from capbench.core.errors import UsageError
from capbench.core.explanations import (
    ExplainedCandidate,
    Explanation,
    Matrix,
    Note,
    Panel,
    RegionMap,
    RegionMaps,
    Score,
    Scores,
    Subject,
    Table,
    WeightedWords,
)
from capbench.core.progress import Progress
from capbench.core.records import FloatArray, Item
from capbench.features.class_names import regions_of
from capbench.features.store import FeatureStore
from capbench.metrics.vilbertscore.choosing import LONGEST, Choosing
from capbench.metrics.vilbertscore.files import VilbertModel
from capbench.metrics.vilbertscore.source import MOST_REGIONS, Encoder, ImageRows
from capbench.text.greedy_matching import Tokens, greedy_matching, similarities

_MATRICES = 5  # maximum number of references shown as matrices


class WordStates(Protocol):
    """The attributes and methods of ViLBERTScore that an explanation uses."""

    options: Any
    models: tuple[VilbertModel, ...]
    encoders: list[Encoder]
    layers: tuple[int, ...]

    @property
    def store(self) -> FeatureStore:
        """The region features."""

    def choosing(self, network: int) -> Choosing:
        """Selection of matched states for one of the networks."""

    def references_of(self, item: Item) -> tuple[str, ...]:
        """The references of an item that the metric uses."""

    def tokens(self, network: int, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Tokens]:
        """Matched states of captions with images, for one of the networks."""

    def rows(self, image: str) -> ImageRows:
        """The network's input for an image."""

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """Statistics of items."""

    def scores(self, statistics: FloatArray) -> dict[str, FloatArray]:
        """Scores by column."""

    def signature(self) -> str:
        """The metric's signature."""


@dataclass(frozen=True, eq=False)
class MatchedReference:
    """A candidate compared with one reference, in the explained layer.

    Attributes:
        text: the reference.
        words: (n) its matched tokens.
        similarity: (m, n) float64 similarities of the candidate's and the reference's tokens.
        matched: (m) index of the reference's token that is most similar to each candidate token.
        matched_back: (n) index of the candidate's token that is most similar to each reference token.
        precision: mean over the candidate's tokens.
        recall: mean over the reference's tokens.
        f: their harmonic mean.
    """

    text: str
    words: tuple[str, ...]
    similarity: FloatArray
    matched: tuple[int, ...]
    matched_back: tuple[int, ...]
    precision: float
    recall: float
    f: float


@dataclass(frozen=True, eq=False)
class ViLBERTScoreCandidate:
    """One candidate.

    Attributes:
        text: the candidate's text.
        words: (m) its matched tokens.
        layer: the explained layer, the last requested one.
        references: in their order.
        attention: (m, n) float64 attention of each token to the image's regions in that layer's connection, mean over
            heads; the share of the mean row is omitted.
        scores: column → score of the metric.
        human: mean human rating; None if unknown.
    """

    text: str
    words: tuple[str, ...]
    layer: int
    references: tuple[MatchedReference, ...]
    attention: FloatArray
    scores: dict[str, float]
    human: float | None


def explain_vilbertscore(metric: WordStates, subject: Subject) -> Explanation:
    """Matches of the candidates' and references' tokens; details are :class:`ViLBERTScoreCandidate`.

    Raises:
        UsageError: a candidate has no references, the metric uses idf (which depends on a whole set of references), or
            its model is an ensemble.
        FeatureError: the store does not contain the image.
    """
    if len(metric.models) > 1:
        raise UsageError(
            f"the matching of an ensemble of {len(metric.models)} networks cannot be shown",
            code="unsupported",
            value=len(metric.models),
            hint=f"Use one of them, such as {metric.models[0].path}",
        )
    if metric.options.idf != "none":
        raise UsageError(
            "document frequencies (idf) depend on a whole set of references",
            code="unsupported",
            value=metric.options.idf,
            hint="Remove the option idf",
        )
    for item in subject.items:
        if not item.references:
            raise UsageError(
                f"'{item.candidate}' has no references",
                code="missing-references",
                value=item.candidate,
                hint="Add some with --reference",
            )
    statistics = metric.statistics(subject.items, lambda _: None)
    columns = metric.scores(statistics)
    candidates = [
        _candidate(metric, item, {name: float(values[row]) for name, values in columns.items()}, human)
        for row, (item, human) in enumerate(zip(subject.items, subject.humans, strict=True))
    ]
    regions = regions_of(metric.store, subject.image)
    notes = [f"matches and attention are from layer {metric.layers[-1]}"]
    if len(regions.names) > MOST_REGIONS:
        notes.append(f"the network reads the first {MOST_REGIONS} of {len(regions.names)} regions")
    explained = tuple(
        ExplainedCandidate(c.text, tuple(r.text for r in c.references), c.human, _panels(c, regions.names), c)
        for c in candidates
    )
    return Explanation(
        "ViLBERTScore", subject.image, explained, metric.signature(), regions=regions, notes=tuple(notes)
    )


def _candidate(metric: WordStates, item: Item, scores: dict[str, float], human: float | None) -> ViLBERTScoreCandidate:
    choosing, pieces, encoder = metric.choosing(0), metric.models[0].pieces, metric.encoders[0]
    texts = (item.candidate, *metric.references_of(item))
    tokens = {
        text: _last_layer(of_text) for (_, text), of_text in metric.tokens(0, [(item.image, t) for t in texts]).items()
    }
    words = {text: tuple(choosing.names(pieces.sequence(text, LONGEST))) for text in texts}
    candidate = tokens[item.candidate]
    matched = []
    for text in texts[1:]:
        values = similarities(candidate, tokens[text])
        precision, recall, f = greedy_matching([candidate], [tokens[text]])[0].tolist()
        best, best_back = (values.argmax(axis=axis).tolist() if values.size else [] for axis in (1, 0))
        matched.append(MatchedReference(text, words[text], values, tuple(best), tuple(best_back), precision, recall, f))
    ids = pieces.sequence(item.candidate, LONGEST)
    store = metric.store
    attention = encoder.attention(metric.rows(item.image), ids, metric.layers[-1])[choosing.matched(ids), 1:]
    weights = np.zeros((len(attention), store.regions(item.image)))
    weights[:, : attention.shape[1]] = attention
    return ViLBERTScoreCandidate(
        item.candidate, words[item.candidate], metric.layers[-1], tuple(matched), weights, scores, human
    )


def _last_layer(tokens: Tokens) -> Tokens:
    return Tokens(tokens.vectors[-1], tokens.weights, tokens.scale, tokens.padded)


def _panels(candidate: ViLBERTScoreCandidate, names: tuple[str, ...]) -> tuple[Panel, ...]:
    panels: list[Panel] = [Scores("", tuple(Score(name, value) for name, value in candidate.scores.items()))]
    if not candidate.words:
        return (*panels, Note("the candidate has no words"))
    best = np.array([r.similarity.max(axis=1) for r in candidate.references if r.words])
    if len(best):
        title = "Similarity of each word to its match (mean over references)"
        words = zip(candidate.words, best.mean(axis=0).tolist(), strict=True)
        panels.append(WeightedWords(title, tuple(words)))
    low = min((float(r.similarity.min()) for r in candidate.references if r.words), default=0.0)
    for number, reference in enumerate(candidate.references[:_MATRICES], 1):
        title = (
            f"Reference {number}: P {reference.precision:.3f}, R {reference.recall:.3f}, F {reference.f:.3f}; outlined:"
            " the match of each word of the candidate"
        )
        marked = tuple(enumerate(reference.matched)) if reference.words else ()
        panels.append(Matrix(title, candidate.words, reference.words, reference.similarity, min(low, 0.0), 1.0, marked))
    if len(candidate.references) > _MATRICES:
        panels.append(Note(f"the first {_MATRICES} of {len(candidate.references)} references are shown"))
    return (*panels, _attention_maps(candidate, names), _matches(candidate))


def _attention_maps(candidate: ViLBERTScoreCandidate, names: tuple[str, ...]) -> RegionMaps:
    maps = []
    for word, weights in zip(candidate.words, candidate.attention, strict=True):
        region = int(np.argmax(weights))
        even = weights[region] <= weights.min()
        note = "the same everywhere" if even else f"maximum at {names[region]}: {weights[region]:.2f}"
        maps.append(RegionMap(word, weights, () if even else (region,), note))
    title = "Attention of each word to the image's regions (mean over the heads of the layer's connection)"
    high = float(max(candidate.attention.max(), 1e-6))
    return RegionMaps(title, tuple(maps), float(candidate.attention.min()) * 0.999, high, small=True)


def _matches(candidate: ViLBERTScoreCandidate) -> Table:
    rows = []
    for number, reference in enumerate(candidate.references, 1):
        for place, word in enumerate(candidate.words if reference.words else ()):
            match = reference.matched[place]
            back = "both ways" if reference.matched_back[match] == place else ""
            rows.append((str(number), word, reference.words[match], f"{reference.similarity[place, match]:.4f}", back))
    return Table("All matches", ("reference", "word", "matched with", "cosine", ""), tuple(rows))

"""Explanations of ViLBERTScore: matches of words, and attention of words to image regions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from capbench.core.errors import UsageError
from capbench.core.explanations import ExplainedCandidate, Explanation, Matrix, Panel, RegionMaps, Subject
from capbench.core.progress import Progress
from capbench.core.records import FloatArray, Item
from capbench.features.class_names import regions_of
from capbench.features.store import FeatureStore
from capbench.metrics.vilbertscore.choosing import LONGEST, Choosing
from capbench.metrics.vilbertscore.files import VilbertModel
from capbench.metrics.vilbertscore.source import MOST_REGIONS, Encoder, ImageRows
from capbench.text.greedy_matching import Tokens, greedy_matching, similarities


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


def explain_vilbertscore(metric: WordStates, subject: Subject) -> Explanation:
    """Matches of the candidates' and references' tokens.

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
    columns = metric.scores(metric.statistics(subject.items, lambda _: None))
    candidates = tuple(
        _candidate(metric, item, {name: float(values[row]) for name, values in columns.items()}, human)
        for row, (item, human) in enumerate(zip(subject.items, subject.humans, strict=True))
    )
    regions = regions_of(metric.store, subject.image)
    notes = [f"matches and attention are from layer {metric.layers[-1]}"]
    if len(regions.names) > MOST_REGIONS:
        notes.append(f"the network reads the first {MOST_REGIONS} of {len(regions.names)} regions")
    return Explanation("ViLBERTScore", subject.image, candidates, metric.signature(), regions, notes=tuple(notes))


def _candidate(metric: WordStates, item: Item, scores: dict[str, float], human: float | None) -> ExplainedCandidate:
    """Similarities with the words of each reference, and attention to regions in the last layer's connection."""
    choosing, pieces, encoder = metric.choosing(0), metric.models[0].pieces, metric.encoders[0]
    texts = (item.candidate, *metric.references_of(item))
    tokens = {
        text: _last_layer(of_text) for (_, text), of_text in metric.tokens(0, [(item.image, t) for t in texts]).items()
    }
    words = {text: tuple(choosing.names(pieces.sequence(text, LONGEST))) for text in texts}
    names = words[item.candidate]
    if not names:
        return ExplainedCandidate(
            item.candidate, item.references, human, scores, notes=("the candidate has no words: its scores are 0",)
        )
    panels: list[Panel] = []
    for number, text in enumerate(texts[1:], 1):
        alike = similarities(tokens[item.candidate], tokens[text]).astype(np.float64)
        precision, recall, f = greedy_matching([tokens[item.candidate]], [tokens[text]])[0].tolist()
        title = f"Reference {number}: P {precision:.3f}, R {recall:.3f}, F {f:.3f}; outlined: the match of each word"
        marked = tuple(enumerate(alike.argmax(axis=1).tolist())) if alike.size else ()
        panels.append(Matrix(title, names, words[text], alike, marked))
    ids, store = pieces.sequence(item.candidate, LONGEST), metric.store
    attention = encoder.attention(metric.rows(item.image), ids, metric.layers[-1])[choosing.matched(ids), 1:]
    weights = np.zeros((len(attention), store.regions(item.image)))
    weights[:, : attention.shape[1]] = attention
    title = "Attention of each word to the image's regions (mean over the heads of the layer's connection)"
    panels.append(RegionMaps(title, names, weights))
    return ExplainedCandidate(item.candidate, item.references, human, scores, tuple(panels))


def _last_layer(tokens: Tokens) -> Tokens:
    return Tokens(tokens.vectors[-1], tokens.weights, tokens.scale, tokens.padded)

"""Explanations of REO's scores: the words and phrases that are most similar to extra and missing content (Figure 3).

Extra content is a⊥, the contexts of a candidate without their projections on the ground truth (equation 5); missing
content is g⊥, the ground truth without its projections on the candidate's contexts (equation 8).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from capbench.core.explanations import Bars, ExplainedCandidate, Explanation, Matrix, Panel, Subject, letter
from capbench.core.records import FloatArray
from capbench.features.class_names import regions_of
from capbench.metrics.grounding.grounding import attend, contexts, pad
from capbench.metrics.image_metric import unknown_words
from capbench.metrics.tiger.metric import words_of
from capbench.text.vocabulary import tokenize_caption

if TYPE_CHECKING:
    from capbench.metrics.grounding.grounding import GroundedMetric

TRUTHS = {"image": "reo-image-", "image + references": "reo-"}
"""REO's two ground truths, as the paper names them, and the prefixes of their columns."""
_SCORES = ("relevance", "extraness", "omission")


def orthogonal(vectors: FloatArray, onto: FloatArray) -> FloatArray:
    """The direction of each row (n, D) without its projection on the other's row (n, D), equations 5 and 8.

    0 if nothing is left but rounding; a row is not changed by a zero row.
    """
    squares = (onto * onto).sum(axis=1, keepdims=True)
    rest = vectors - (vectors * onto).sum(axis=1, keepdims=True) / np.where(squares > 0, squares, 1.0) * onto
    lengths = np.linalg.norm(rest, axis=1, keepdims=True)
    real = lengths > 1e-9 * np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.where(real, rest / np.where(real, lengths, 1.0), 0.0)


def unit(vectors: FloatArray) -> FloatArray:
    """Rows of length 1; zero rows remain zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1.0))


def rests_of(phrase: str, texts: Iterable[str]) -> list[str]:
    """The texts that contain a phrase, without it.

    >>> rests_of("on a table", ["a dog on a table", "a dog"])
    ['a dog']
    """
    named, rests = tokenize_caption(phrase), []
    for words in map(tokenize_caption, texts):
        places = [at for at in range(len(words)) if named and words[at : at + len(named)] == named]
        rest = [*words[: places[0]], *words[places[0] + len(named) :]] if places else []
        if any(word.isalnum() for word in rest):
            rests.append(" ".join(rest))
    return rests


def explain_reo(metric: GroundedMetric, subject: Subject) -> Explanation:
    """Words and marked phrases by similarity to a⊥ and g⊥ (Figure 3), and all candidates' scores (Figure 4).

    sim(x, y) of Figure 3 is "the average cosine similarity between the machine-identified error (a⊥ and g⊥) and the
    true error description": a mean over regions and references. The paper does not define the vectors of a description;
    here a phrase is encoded as a caption of the same network, so that its contexts are compared. As words of a caption
    are similar in the network's space, a phrase's similarity has a meaning in comparison with that of the rest of its
    caption. Unless all candidates have references, they are explained against the image only.

    Raises:
        ModelError: the model is an ensemble, whose networks have different spaces.
        FeatureError: the image is not in the store.
    """
    _ = metric.source.model  # raises for an ensemble
    image, items = subject.image, subject.items
    regions = metric.source.regions(image)
    seen: dict[str, tuple[FloatArray, FloatArray]] = {}

    def of(text: str) -> tuple[FloatArray, FloatArray]:
        """Directions of a text's words (m, D), and its contexts (n, D)."""
        if text not in seen:
            padded = pad([metric.encode([text])[text]], metric.attention)
            seen[text] = unit(padded.vectors[0]), contexts(attend(regions, padded, metric.attention)[0], padded)[0]
        return seen[text]

    def words(text: str, errors: Sequence[FloatArray]) -> list[tuple[str, float]]:
        similarities = np.mean([of(text)[0] @ error.mean(axis=0) for error in errors], axis=0)
        return list(zip(words_of(metric, text), similarities.tolist(), strict=False))

    def phrases(marked: Sequence[str], texts: Sequence[str], errors: Sequence[FloatArray]) -> list[tuple[str, float]]:
        def similarity(text: str) -> float:
            return float(np.mean([(error * unit(of(text)[1])).sum(axis=1).mean() for error in errors]))

        rows = []
        for phrase in marked:
            rows.append((f"“{phrase}”", similarity(phrase)))
            if rests := rests_of(phrase, texts):
                rows.append((f"without “{phrase}”", float(np.mean([*map(similarity, rests)]))))
        return rows

    texts = [text for item in items for text in (item.candidate, *item.references)]
    scores = metric.scores(metric.image_statistics(image, items, metric.encode(set(texts))))
    truths = [truth for truth in TRUTHS if truth == "image" or all(item.references for item in items)]
    candidates = []
    for row, (item, human) in enumerate(zip(items, subject.humans, strict=True)):
        marked = subject.errors[row] if subject.errors else {}
        a, panels = of(item.candidate)[1], []
        for truth in truths:
            ground = [regions] if truth == "image" else [of(text)[1] for text in item.references]
            extra, missing = [orthogonal(a, g) for g in ground], [orthogonal(g, a) for g in ground]
            back = missing * len(item.references) if truth == "image" else missing
            missed = [pair for text, error in zip(item.references, back, strict=True) for pair in words(text, [error])]
            panels += [
                bars(
                    f"Extra phrases: sim(x, y) with a⊥ against {truth}",
                    phrases(marked.get("extra", ()), [item.candidate], extra),
                ),
                bars(
                    f"Missing phrases: sim(x, y) with g⊥ against {truth}",
                    phrases(marked.get("missing", ()), item.references, missing),
                ),
                bars(f"Extra words: similarity to a⊥ against {truth}", by_word(words(item.candidate, extra))),
                bars(f"Missing words: similarity to g⊥ against {truth}", by_word(missed)),
            ]
        of_item = {f"{TRUTHS[t]}{name}": float(scores[f"{TRUTHS[t]}{name}"][row]) for t in truths for name in _SCORES}
        shown: tuple[Panel, ...] = tuple(panel for panel in panels if panel.rows)
        candidates.append(ExplainedCandidate(item.candidate, item.references, human, of_item, shown))
    return Explanation(
        "REO",
        image,
        tuple(candidates),
        metric.signature(),
        regions_of(metric.source.store, image),
        comparison=tuple(scaled(candidates, truth) for truth in truths) if len(candidates) > 1 else (),
        notes=tuple(unknown_words([metric.source.model.vocabulary], texts)),
    )


def bars(title: str, rows: Sequence[tuple[str, float]]) -> Bars:
    """Named numbers in their order."""
    return Bars(title, tuple(name for name, _ in rows), np.array([value for _, value in rows]))


def by_word(rows: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """Distinct words, the highest mean number first."""
    found: dict[str, list[float]] = {}
    for word, value in rows:
        found.setdefault(word, []).append(value)
    return sorted(((word, sum(of) / len(of)) for word, of in found.items()), key=lambda row: -row[1])


def scaled(candidates: Sequence[ExplainedCandidate], truth: str) -> Matrix:
    """Every score scaled to 0..1 over the candidates (Figure 4), with human ratings if every candidate has one.

    A score that is equal for all candidates is 0.5.
    """
    rows = {name: [candidate.scores[TRUTHS[truth] + name] for candidate in candidates] for name in _SCORES}
    humans = [candidate.human for candidate in candidates if candidate.human is not None]
    if len(humans) == len(candidates):
        rows["people"] = humans
    values = np.array(list(rows.values()))
    low, spread = values.min(axis=1, keepdims=True), np.ptp(values, axis=1, keepdims=True)
    values = np.where(spread > 0, (values - low) / np.where(spread > 0, spread, 1.0), 0.5)
    columns = tuple(map(letter, range(len(candidates))))
    return Matrix(f"Against {truth}, scaled to 0..1", tuple(rows), columns, values)

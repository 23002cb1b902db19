"""Why TIGEr gave a caption its score: everything that lies between a caption and the number, kept.

The numbers are the metric's own; what is added is how they come about: the gain at each rank, and each word's
attention. :mod:`capbench.explain.reo` does the same for REO.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from capbench.errors import UsageError
from capbench.metrics.grounding.vectors import STATISTICS, attend, d_rel, grounding, pad
from capbench.records import FloatArray, IntArray, Item

if TYPE_CHECKING:
    from capbench.metrics.grounding.base import GroundedMetric
    from capbench.metrics.tiger import Tiger

__all__ = [
    "GroundedCaption",
    "TigerCandidate",
    "TigerExplanation",
    "explain_tiger",
    "letter",
    "one_image",
    "rank_gains",
    "to_dict",
    "unknown_words",
    "words_of",
]


def letter(number: int) -> str:
    """A name for a candidate, counted from 0: A, B, ... Z, A2, B2, ...

    >>> letter(1), letter(27)
    ('B', 'B2')
    """
    return chr(65 + number % 26) + (str(number // 26 + 1) if number >= 26 else "")


@dataclass(frozen=True, eq=False)
class GroundedCaption:
    """A caption over the regions of one image.

    Attributes:
        text: as given.
        words: (m) as the network reads them; ``<start>`` and ``<end>`` among them if they count.
        attention: (n, m) float64, how region i divides its attention over the words (TIGEr, equation 2): rows sum
            to 1.
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
        order: (n,) regions by the candidate's grounding, highest first; at a tie the lower index.
        ideal_order: (n,) regions by relevance, highest first; at a tie the lower index.
        gains: (n,) what each position of ``order`` adds to the DCG (equation 8).
        ideal_gains: (n,) what each position of ``ideal_order`` adds to the ideal DCG (equation 9).
        kl: divergence of the candidate's distribution from the references' (equation 11), natural logarithm.
        d_rel: difference of the levels (equation 12).
        scores: column → score, as the metric gives it.
        human: mean human rating of this candidate, None if it is not known.
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


@dataclass(frozen=True, eq=False)
class TigerExplanation:
    """What TIGEr saw in one image's captions."""

    image: str
    candidates: tuple[TigerCandidate, ...]
    signature: str
    notes: tuple[str, ...] = ()


def rank_gains(candidate: FloatArray, relevance: FloatArray) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
    """RRS position by position (TIGEr, equations 8 and 9).

    Args:
        candidate: (n,) grounding of the candidate.
        relevance: (n,) graded relevance of the regions.

    Returns:
        Regions by the candidate and by relevance, highest first, at a tie the lower index; and what each position of
        both adds to the DCG: relevance / log2(position + 1).
    """
    order = np.argsort(-candidate, kind="stable")
    ideal = np.argsort(-relevance, kind="stable")
    discounts = np.log2(np.arange(2, len(candidate) + 2))
    return order, ideal, relevance[order] / discounts, relevance[ideal] / discounts


def explain_tiger(
    metric: Tiger, items: Sequence[Item], humans: Sequence[float | None] | None = None, notes: Sequence[str] = ()
) -> TigerExplanation:
    """What TIGEr saw in candidates of one image.

    Args:
        metric: with its model, features and options.
        items: of one image, each with references.
        humans: their mean human ratings, None where unknown.
        notes: what a reader should know.

    Raises:
        UsageError: there are no items, they are of different images, or one has no references.
        FeatureError: the store lacks the image.
    """
    image = one_image(items)
    if not all(item.references for item in items):
        raise UsageError(f"TIGEr compares with references, and '{image}' has none", hint="Give --reference")
    texts = list(dict.fromkeys(text for item in items for text in (item.candidate, *item.references)))
    regions, words = metric.source.regions(image), metric.encode(texts)
    captions = {text: _ground(metric, regions, text, words[text]) for text in texts}
    statistics = metric.image_statistics(image, items, words)
    scores = metric.scores(statistics)
    parts = {**metric.facts(), **metric.options.signature_parts()}
    columns = dict(zip(STATISTICS, statistics.T, strict=True))
    levels = d_rel(columns[f"norm_reference_{parts['d_rel']}"], columns[f"norm_candidate_{parts['d_rel']}"])
    found = []
    for i, item in enumerate(items):
        references = tuple(captions[text] for text in item.references)
        reference = np.mean([caption.grounding for caption in references], axis=0)
        relevance = _to_unit(reference) if parts["minmax"] == "true" else reference
        own = captions[item.candidate]
        found.append(
            TigerCandidate(
                own,
                references,
                reference,
                relevance,
                *rank_gains(own.grounding, relevance),
                kl=float(columns["kl"][i]),
                d_rel=float(levels[i]),
                scores={name: float(values[i]) for name, values in scores.items()},
                human=None if humans is None else humans[i],
            )
        )
    return TigerExplanation(image, tuple(found), metric.signature(), (*notes, *unknown_words(metric, texts)))


def one_image(items: Sequence[Item]) -> str:
    """The image of items. Raises UsageError if there is none, or more than one."""
    images = dict.fromkeys(item.image for item in items)
    if len(images) != 1:
        raise UsageError(f"captions of {len(images)} images are to be explained together", hint="Give those of one")
    return next(iter(images))


def _ground(metric: GroundedMetric, regions: FloatArray, text: str, words: NDArray[np.float32]) -> GroundedCaption:
    names = words_of(metric, text)
    weights, vectors = [], []
    for seen, own in zip(metric.source.parts(regions), metric.source.parts(words), strict=True):
        padded = pad([own], metric.attention)
        weights.append(attend(seen, padded, metric.attention)[0][0, : len(names)].T)
        vectors.append(grounding(seen, padded, metric.attention)[0])
    return GroundedCaption(text, names, np.mean(weights, axis=0), np.mean(vectors, axis=0))


def words_of(metric: GroundedMetric, text: str) -> tuple[str, ...]:
    """A caption's words, one for each vector that counts: ``<start>`` and ``<end>`` among them if they do."""
    from capbench.text.vocabulary import END, SPECIAL, START, tokenize_caption

    tokens = tokenize_caption(text)
    return (SPECIAL[START], *tokens, SPECIAL[END]) if metric.attention.count_ends else tuple(tokens)


def unknown_words(metric: GroundedMetric, texts: Sequence[str]) -> list[str]:
    """One note that names the words which the model does not know, or none."""
    from capbench.text.vocabulary import tokenize_caption

    known = [model.vocabulary for model in metric.source.models]
    distinct = dict.fromkeys(word for text in texts for word in tokenize_caption(text))
    words = [word for word in distinct if any(word not in vocabulary for vocabulary in known)]
    whose = "the model's vocabulary" if len(known) == 1 else "the vocabularies of all networks"
    return [f"not in {whose}, read as <unk>: {', '.join(words)}"] if words else []


def _to_unit(values: FloatArray) -> FloatArray:
    low, spread = values.min(), values.max() - values.min()
    return (values - low) / spread if spread > 0 else np.zeros_like(values)


def to_dict(value: Any) -> Any:
    """An explanation as JSON values: dataclasses become objects, arrays lists."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_dict(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: to_dict(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_dict(item) for item in value]
    return value

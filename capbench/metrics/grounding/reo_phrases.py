"""Errors that people name, beside those that REO finds (Figure 3 of its paper).

The paper marks what is wrong with a caption as phrases, extra ones in the candidate (E_C) and missing ones in the
references (O_C), and gives sim(x, y), "the average cosine similarity between the machine-identified error (a⊥ and g⊥)
and the true error description" over regions. The text at hand does not say how a description becomes vectors. Here a
phrase is read as a caption of its own: by the same network, with contexts e_i by the same attention.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from capbench.explanations import NamedErrors, Score, Scores, Tone, WeightedWords
from capbench.records import FloatArray, Item
from capbench.text.vocabulary import tokenize_caption

__all__ = ["PhraseSimilarity", "compared", "described", "marked", "phrase_scores", "similarity", "without_phrase"]

_ROUNDING = 1e-9


@dataclass(frozen=True)
class PhraseSimilarity:
    """How like what REO found a phrase is that people name.

    Attributes:
        phrase: as named.
        similarity: sim(x, y): mean over regions, and over references where there are some, of the cosine.
        rest: the same of the text that the phrase stands in without it, which is no error; None where it stands in
            none, or is all of it. Words of one caption are alike in the network's space: the number says something
            only beside this one.
    """

    phrase: str
    similarity: float
    rest: float | None = None


def similarity(rests: Sequence[tuple[FloatArray, FloatArray]], contexts: FloatArray) -> float:
    """sim(x, y): mean over pairs and regions of the cosine of r_i and e_i.

    Args:
        rests: pairs of (n, D) orthogonal vectors r and (n, D) what they are left of; an r_i that is nothing but
            rounding beside it counts with a cosine of 0.
        contexts: (n, D) e, of a phrase.
    """
    lengths = np.linalg.norm(contexts, axis=1)
    units = contexts / np.where(lengths > 0, lengths, 1.0)[:, None]
    cosines = []
    for rest, whole in rests:
        norms = np.linalg.norm(rest, axis=1)
        real = norms > _ROUNDING * np.linalg.norm(whole, axis=1)
        found = np.where(real[:, None], rest / np.where(real, norms, 1.0)[:, None], 0.0)
        cosines.append(float((found * units).sum(axis=1).mean()))
    return float(np.mean(cosines))


def _place(words: Sequence[str], phrase: Sequence[str]) -> int | None:
    """Where a phrase begins among words; None if it does not stand there."""
    places = range(len(words) - len(phrase) + 1)
    return next((at for at in places if list(words[at : at + len(phrase)]) == list(phrase)), None) if phrase else None


def without_phrase(words: Sequence[str], phrase: Sequence[str]) -> tuple[str, ...] | None:
    """Words without those of a phrase, where it first stands; None if it does not, or is all of them.

    >>> without_phrase(["a", "dog", "on", "a", "table"], ["on", "a", "table"])
    ('a', 'dog')
    """
    at = _place(words, phrase)
    if at is None:
        return None
    left = (*words[:at], *words[at + len(phrase) :])
    return left if any(word.isalnum() for word in left) else None


def _rests(phrase: str, texts: Sequence[str]) -> list[str]:
    """Texts without a phrase, those in which it stands."""
    words = tokenize_caption(phrase)
    left = (without_phrase(tokenize_caption(text), words) for text in texts)
    return [" ".join(rest) for rest in left if rest is not None]


def described(item: Item, errors: NamedErrors) -> Iterator[str]:
    """The texts behind named errors: the phrases, and the texts that they stand in without them."""
    for phrases, texts in ((errors.extra, (item.candidate,)), (errors.missing, item.references)):
        for phrase in phrases:
            yield phrase
            yield from _rests(phrase, texts)


def compared(
    phrases: Sequence[str],
    texts: Sequence[str],
    rests: Sequence[tuple[FloatArray, FloatArray]],
    contexts: Mapping[str, FloatArray],
) -> tuple[PhraseSimilarity, ...]:
    """Named phrases beside what REO found.

    Args:
        phrases: of one candidate.
        texts: in which they may stand.
        rests: see :func:`similarity`.
        contexts: (n, D) by text, of all that :func:`described` names.
    """
    similarities = []
    for phrase in phrases:
        others = [similarity(rests, contexts[text]) for text in _rests(phrase, texts)]
        rest = float(np.mean(others)) if others else None
        similarities.append(PhraseSimilarity(phrase, similarity(rests, contexts[phrase]), rest))
    return tuple(similarities)


def marked(title: str, words: Sequence[str], phrases: Sequence[Sequence[str]], tone: Tone) -> WeightedWords | None:
    """A text with the words of phrases marked; None if none of them stands in it."""
    weights = [0.0] * len(words)
    for phrase in phrases:
        at = _place(words, phrase)
        if at is not None:
            weights[at : at + len(phrase)] = [1.0] * len(phrase)
    return WeightedWords(title, tuple(zip(words, weights, strict=True)), tone) if any(weights) else None


def phrase_scores(title: str, phrases: Sequence[PhraseSimilarity]) -> Scores:
    """The similarities as a row of numbers."""
    return Scores(
        title,
        tuple(
            Score(
                f"“{entry.phrase}”",
                entry.similarity,
                () if entry.rest is None else (Score("the rest of the text", entry.rest, form=".3f"),),
                form=".3f",
            )
            for entry in phrases
        ),
    )

"""Word Mover's Distance and its similarity exp(-d), as NNEval uses them (Kusner et al. 2015; Sharif et al. 2018)."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import MetricError
from capbench.core.options import File, Options, option
from capbench.core.progress import Progress
from capbench.core.records import FloatArray, Item
from capbench.metrics.base import Metric
from capbench.metrics.needs import References, Resources
from capbench.metrics.needs import WordVectors as WordVectorsNeed
from capbench.metrics.tokens import require_references
from capbench.text import ptb
from capbench.text.vocabulary import ENGLISH
from capbench.text.word_vectors import WordVectors

FARTHEST: Final = 2.0  # The largest distance that vectors of length 1 can have
for _backend in ("PYTORCH", "JAX", "CUPY", "TENSORFLOW"):
    os.environ.setdefault(f"POT_BACKEND_DISABLE_{_backend}", "1")  # POT would import these


def word_movers_distance(
    first: Sequence[str], second: Sequence[str], vectors: Mapping[str, NDArray[np.floating[Any]]]
) -> float:
    """Word Mover's Distance of two bags of words (Kusner et al. 2015, equation 1); infinite if one of them is empty.

    Each occurrence of a word with a vector (d,) has the same mass; moving it costs the Euclidean distance.
    """
    from ot import emd2
    from scipy.spatial.distance import cdist

    bags = [Counter(word for word in bag if word in vectors) for bag in (first, second)]
    if not all(bags):
        return math.inf
    first_mass, second_mass = (np.array([*bag.values()]) / bag.total() for bag in bags)
    first_words, second_words = (np.stack([vectors[word] for word in bag]) for bag in bags)
    return float(emd2(first_mass, second_mass, cdist(first_words, second_words)))


opened_vectors = lru_cache(maxsize=4)(WordVectors)  # path → word vectors, opened once in a process


def known_vectors(file: WordVectors, words: Collection[str]) -> dict[str, NDArray[np.float32]]:
    """Word → (d,) vector of length 1 for the known words; at least one must be known."""
    vectors = file.unit_vectors(words)
    if words and not vectors:
        message = f"none of the {len(words)} words of these captions has one of the {len(file)} word vectors"
        hint = "Captions are in lower case: use vectors of English words in lower case"
        raise MetricError(message, code="missing-value", value=len(words), path=file.path, hint=hint)
    return vectors


@dataclass(frozen=True)
class WmdOptions(Options):
    """Options of Word Mover's Distance."""

    vectors: str | None = option(
        None, File("word vectors"), "the word vectors: word2vec .bin, GloVe text or gensim KeyedVectors"
    )


class Wmd(Metric):
    """Word Mover's similarity exp(-d) and distance d to the nearest reference.

    Captions are PTB-tokenised and split again by NLTK's ``word_tokenize`` with ``preserve_line=True``. Stop words are
    removed; the other words form a bag with vectors of length 1. The distance of a caption without any word vector is
    infinite: its similarity is 0, as in NNEval, and its distance is reported as 2, the maximum.
    """

    name = "wmd"
    columns = ("wmd", "wmd-distance")
    titles: ClassVar[Mapping[str, str]] = {"wmd": "WMD", "wmd-distance": "WMD distance"}
    lower_is_better = frozenset({"wmd-distance"})
    citation = "Kusner et al. 2015, From Word Embeddings To Document Distances (ICML)"
    needs = (References(), WordVectorsNeed())
    packages = ("ot", "nltk")

    option_type = WmdOptions
    options: WmdOptions

    def __init__(self, resources: Resources | None = None, **options: Any) -> None:
        super().__init__(resources, **options)
        self.vectors = opened_vectors(str(self.options.vectors))

    def facts(self) -> Mapping[str, object]:
        import nltk

        tokens = f"{ptb.VERSION}+nltk-{nltk.__version__}"
        return {"vectors": self.vectors.sha256[:16], "dim": self.vectors.dimension, "tokens": tokens, "refs": "min"}

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """(n, 1): distance to the nearest reference; -1 where it is infinite."""
        require_references(self.name, items)
        texts = list(dict.fromkeys(text for item in items for text in (item.candidate, *item.references)))
        bags = dict(zip(texts, _bags(texts), strict=True))
        words = dict.fromkeys(word for bag in bags.values() for word in bag)
        vectors = known_vectors(self.vectors, words)
        # Words without a vector are ignored, so bags that differ only in them are equal.
        known = {text: tuple(sorted(word for word in bag if word in vectors)) for text, bag in bags.items()}

        @cache
        def distance(first: tuple[str, ...], second: tuple[str, ...]) -> float:
            return word_movers_distance(first, second, vectors)

        out = np.empty((len(items), 1))
        for row, item in enumerate(items):
            nearest = min(distance(*sorted((known[item.candidate], known[text]))) for text in item.references)
            out[row, 0] = nearest if math.isfinite(nearest) else -1.0  # stored statistics must be finite
            progress(1)
        return out

    def scores(self, statistics: FloatArray) -> dict[str, FloatArray]:
        distance = np.ascontiguousarray(statistics[:, 0])
        infinite = distance < 0
        similarity = np.where(infinite, 0.0, np.exp(-np.abs(distance)))
        return {"wmd": similarity, "wmd-distance": np.where(infinite, FARTHEST, distance)}


def _bags(texts: Sequence[str]) -> list[list[str]]:
    from nltk.tokenize import NLTKWordTokenizer

    split = NLTKWordTokenizer().tokenize  # as word_tokenize(preserve_line=True), which needs no data package
    return [[word for word in split(text) if word not in ENGLISH] for text in ptb.tokenize(texts)]

"""Word Mover's Distance and its similarity exp(-d), as NNEval uses them (Kusner et al. 2015; Sharif et al. 2018)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import MetricError, ModelError
from capbench.core.options import Choice, File, Flag, Options, option
from capbench.core.progress import Progress
from capbench.core.records import FloatArray, Item
from capbench.metrics.base import Metric, terms_of_means
from capbench.metrics.needs import Need, References, Resources, WordVectors
from capbench.text import ptb, vocabulary, word_vectors

# Exact earth mover's distance between two bags of words, without an extra dependency.

_LARGEST_ASSIGNMENT = 400  # units of mass above which a linear program is faster (measured)


def word_movers_distance(
    first: Sequence[str], second: Sequence[str], vectors: Mapping[str, NDArray[np.float32]]
) -> float:
    """Word Mover's Distance of two bags of words (Kusner et al. 2015, equation 1).

    Each occurrence of a word has the same mass; the cost of moving mass between two words is the Euclidean distance of
    their vectors. Since this is a metric, mass of a word that both bags share is not moved. Masses are integer
    multiples of 1/lcm(n, m), so that the problem is an assignment of equal units, which
    ``scipy.optimize.linear_sum_assignment`` solves exactly; HiGHS solves problems with many units as linear programs.

    Args:
        first: words, repeats included; words without a vector are ignored.
        second: words of the other bag, in the same form.
        vectors: word → (d,) vector.

    Returns:
        The distance; infinite if one of the bags has no word with a vector.
    """
    first = [word for word in first if word in vectors]
    second = [word for word in second if word in vectors]
    if not first or not second:
        return math.inf
    units = math.lcm(len(first), len(second))
    left = {word: count * (units // len(first)) for word, count in Counter(first).items()}
    right = {word: count * (units // len(second)) for word, count in Counter(second).items()}
    for word in [word for word in left if word in right]:
        stays = min(left[word], right[word])
        for bag in (left, right):
            bag[word] -= stays
            if not bag[word]:
                del bag[word]
    if not left:
        return 0.0

    from scipy.spatial.distance import cdist

    costs = cdist(np.stack([vectors[word] for word in left]), np.stack([vectors[word] for word in right]))
    step = math.gcd(*left.values(), *right.values())
    supply = np.array([count // step for count in left.values()])
    demand = np.array([count // step for count in right.values()])
    return _cost(costs, supply, demand) * step / units


def _cost(costs: FloatArray, supply: NDArray[np.int64], demand: NDArray[np.int64]) -> float:
    if len(supply) == 1 or len(demand) == 1:
        return float((costs * (demand if len(supply) == 1 else supply[:, None])).sum())
    if supply.sum() > _LARGEST_ASSIGNMENT:
        return _linear_program(costs, supply, demand)
    from scipy.optimize import linear_sum_assignment

    rows = np.repeat(np.arange(len(supply)), supply)
    columns = np.repeat(np.arange(len(demand)), demand)
    unit_costs = costs[np.ix_(rows, columns)]
    chosen = linear_sum_assignment(unit_costs)
    return float(unit_costs[chosen].sum())


def _linear_program(costs: FloatArray, supply: NDArray[np.int64], demand: NDArray[np.int64]) -> float:
    from scipy.optimize import linprog
    from scipy.sparse import eye_array, kron, vstack

    n, m = costs.shape
    sent = kron(eye_array(n), np.ones((1, m)))
    received = kron(np.ones((1, n)), eye_array(m))
    total = supply.sum()
    # The last row follows from the others; without it the constraints are independent.
    constraints: Any = vstack([sent, received]).tocsr()[:-1]
    amounts = np.concatenate([supply, demand])[:-1] / total
    solution = linprog(costs.ravel(), A_eq=constraints, b_eq=amounts, method="highs")
    if solution.fun is None:  # only after a numerical failure: the program is feasible and bounded
        raise MetricError(f"Word Mover's Distance was not solved: {solution.message}", code="not-converged")
    return float(solution.fun) * int(total)


_FARTHEST = 2.0
"""The largest distance that vectors of length 1 can have."""


@lru_cache(maxsize=4)
def opened_vectors(path: str) -> word_vectors.WordVectors:
    """A file of word vectors, opened once in a process. Raises as :class:`WordVectors` does."""
    return word_vectors.WordVectors(path)


@dataclass(frozen=True)
class WmdOptions(Options):
    """Options of Word Mover's Distance."""

    vectors: str | None = option(
        None, File("word vectors"), "the word vectors: word2vec .bin, GloVe text or gensim KeyedVectors"
    )
    tokens: str = option("nltk", Choice("nltk", "ptb"), "tokenisation: nltk (NLTK on top of PTB) or ptb")
    keep_stop_words: bool = option(False, Flag(("nltk-179", "kept")), "keep stop words", sign_as="stop")
    unit: bool = option(True, Flag(), "scale vectors to length 1")


class Wmd(Metric):
    """Word Mover's similarity exp(-d) and distance d to the nearest reference.

    Captions are PTB-tokenised as for the other text metrics and split again by NLTK's ``word_tokenize`` with
    ``preserve_line=True``, which changes few of them. Stop words are removed; the other words form a bag with vectors
    of length 1. The distance of a caption without any word vector is infinite: its similarity is 0, as in NNEval, and
    its distance is reported as 2, the maximum for vectors of length 1.

    Raises:
        UsageError: an invalid option.
        MetricError: no vectors.
        DataError: the vectors cannot be read.
    """

    name: ClassVar[str] = "wmd"
    columns: ClassVar[tuple[str, ...]] = ("wmd", "wmd-distance")
    titles: ClassVar[Mapping[str, str]] = {"wmd": "WMD", "wmd-distance": "WMD distance"}
    lower_is_better: ClassVar[frozenset[str]] = frozenset({"wmd-distance"})
    citation: ClassVar[str] = "Kusner et al. 2015, From Word Embeddings To Document Distances (ICML)"
    needs: ClassVar[tuple[Need, ...]] = (References(), WordVectors())
    order: ClassVar[int] = 60

    option_type = WmdOptions
    options: WmdOptions

    def __init__(self, resources: Resources | None = None, **options: Any) -> None:
        super().__init__(resources, **options)
        self._vectors = opened_vectors(str(self.options.vectors))

    @property
    def vectors(self) -> word_vectors.WordVectors:
        """The word vectors."""
        return self._vectors

    def facts(self) -> Mapping[str, object]:
        """First 16 digits of the vectors' SHA-256, their dimension, and the tokenisation."""
        tokens = f"{ptb.VERSION}+nltk-{_nltk_version()}" if self.options.tokens == "nltk" else ptb.VERSION
        vectors = self._vectors
        return {"vectors": vectors.sha256[:16], "dim": vectors.dimension, "tokens": tokens, "refs": "min"}

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """(n, 1): distance to the nearest reference; -1 where it is infinite.

        Raises:
            MetricError: an item has no references, or no word of any caption has a vector.
        """
        for item in items:
            if not item.references:
                raise MetricError(
                    f"wmd requires references, but '{item.candidate_id or item.image}' has none",
                    code="missing-references",
                    value=item.image,
                )
        texts = list(dict.fromkeys(text for item in items for text in (item.candidate, *item.references)))
        bags = dict(zip(texts, self._bags(texts), strict=True))
        words = dict.fromkeys(word for bag in bags.values() for word in bag)
        vectors = self._vectors.unit_vectors(words) if self.options.unit else self._vectors.vectors(words)
        if words and not vectors:
            raise MetricError(
                f"none of the {len(words)} words of these captions has one of the {len(self._vectors)} word vectors",
                code="missing-value",
                value=len(words),
                path=self._vectors.path,
                hint="Captions are in lower case: use vectors of English words in lower case",
            )
        # Words without a vector are ignored, so bags that differ only in them are equal.
        known = {text: tuple(sorted(word for word in bag if word in vectors)) for text, bag in bags.items()}
        solved: dict[tuple[tuple[str, ...], tuple[str, ...]], float] = {}
        out = np.empty((len(items), 1))
        for row, item in enumerate(items):
            candidate = known[item.candidate]
            nearest = math.inf
            for reference in dict.fromkeys(known[text] for text in item.references):
                pair = (candidate, reference) if candidate <= reference else (reference, candidate)
                if pair not in solved:
                    solved[pair] = word_movers_distance(*pair, vectors)
                nearest = min(nearest, solved[pair])
            # Stored statistics must be finite; -1 is not a distance.
            out[row, 0] = nearest if math.isfinite(nearest) else -1.0
            progress(1)
        return out

    def scores(self, statistics: FloatArray) -> dict[str, FloatArray]:
        """Similarity exp(-d), 0 for infinite d; and d, with 2 (without ``unit``: the maximum) for infinite d."""
        distance = np.ascontiguousarray(statistics[:, 0])
        infinite = distance < 0
        similarity = np.where(infinite, 0.0, np.exp(-np.abs(distance)))
        farthest = _FARTHEST if self.options.unit else max(_FARTHEST, float(distance.max(initial=0.0)))
        return {"wmd": similarity, "wmd-distance": np.where(infinite, farthest, distance)}

    def corpus_terms(self, statistics: FloatArray) -> FloatArray | None:
        """Scores and a one; None without ``unit``, where a distance may depend on those of other items."""
        return terms_of_means(self, statistics) if self.options.unit else None

    def _bags(self, texts: Sequence[str]) -> list[list[str]]:
        tokenised = ptb.tokenize(texts)
        if self.options.tokens == "nltk":
            split = _word_tokenize()
            bags = [split(text) for text in tokenised]
        else:
            bags = [text.split() for text in tokenised]
        if self.options.keep_stop_words:
            return bags
        return [[word for word in bag if word not in vocabulary.ENGLISH] for bag in bags]


def _word_tokenize() -> Any:
    nltk = _nltk()
    # word_tokenize(preserve_line=True) creates the same tokeniser on its first call, without a data package.
    return nltk.tokenize.NLTKWordTokenizer().tokenize


def _nltk_version() -> str:
    return str(_nltk().__version__)


def _nltk() -> Any:
    try:
        import nltk
        import nltk.tokenize
    except ImportError as error:
        raise ModelError(
            "wmd.tokens=nltk requires the package nltk",
            code="missing-package",
            value="nltk",
            hint="Run 'pip install nltk', or add --option wmd.tokens=ptb",
        ) from error
    return nltk

"""BLEU, ROUGE-L, CIDEr and SPIDEr of single captions and of a corpus, as in pycocoevalcap 1.2.

The equations are those of :mod:`capbench.text.ngrams`.
"""

from __future__ import annotations

import hashlib
import warnings
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from capbench.core.errors import CapbenchWarning, MetricError
from capbench.core.options import Options, Positive, Text, option
from capbench.core.progress import Progress
from capbench.core.records import FloatArray, IntArray, Item
from capbench.metrics.abilities import ReferenceSweep
from capbench.metrics.base import CombinedMetric, Metric
from capbench.metrics.needs import Columns, References, Resources
from capbench.metrics.tokens import TokenMetric
from capbench.text import ptb

if TYPE_CHECKING:
    from capbench.text.ngrams import Corpus, DocumentFrequencies

_last: list[tuple[tuple[Item, ...], Corpus]] = []


class NgramMetric(TokenMetric):
    """A metric on n-grams or subsequences of tokens. Metrics on the same items share a corpus."""

    def facts(self) -> Mapping[str, object]:
        return {"engine": "native-1", "tok": ptb.VERSION}

    @abstractmethod
    def counted(self, corpus: Corpus, steps: Sequence[int], rank: IntArray | None) -> FloatArray:
        """(steps, n) or (steps, n, k) statistics with the references of rank below each step."""

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """(n, k): the statistics with all references."""
        from capbench.text.ngrams import ALL

        statistics: FloatArray = self.counted(self.corpus(items), ALL, None)[0]
        progress(len(items))
        return statistics.reshape(len(items), -1)

    def sweep(self, sweep: ReferenceSweep, progress: Progress) -> Iterator[FloatArray] | None:
        """(counts, n, k) for each draw; the corpus is counted once."""
        corpus = self.corpus(sweep.items)

        def of_draw(orders: Sequence[Sequence[int]]) -> FloatArray:
            statistics = self.counted(corpus, sweep.counts, corpus.rank(orders))
            progress(len(sweep.items))
            return statistics.reshape(len(sweep.counts), len(sweep.items), -1)

        return map(of_draw, sweep.orders)

    def corpus(self, items: Sequence[Item]) -> Corpus:
        """Tokenised items; the last one is kept. Raises the errors of :meth:`tokenize`."""
        from capbench.text.ngrams import Corpus

        if not _last or _last[0][0] != tuple(items):
            _last.clear()
            _last.append((tuple(items), Corpus(*self.tokenize(items))))
        return _last[0][1]


class Bleu(NgramMetric):
    """BLEU (Papineni et al., 2002) as in pycocoevalcap, with the reference length closest to the candidate's.

    As in pycocoevalcap, an empty candidate scores 0 and a candidate whose references are empty after tokenisation
    scores less than 1e-3 (there is no brevity penalty).
    """

    name = "bleu"
    columns = ("bleu-1", "bleu-2", "bleu-3", "bleu-4")
    titles: ClassVar[Mapping[str, str]] = {f"bleu-{n}": f"BLEU-{n}" for n in (1, 2, 3, 4)}
    citation = "Papineni et al., BLEU: a method for automatic evaluation of machine translation, ACL 2002"

    def facts(self) -> Mapping[str, object]:
        return {**super().facts(), "n": 4, "length": "closest"}

    def counted(self, corpus: Corpus, steps: Sequence[int], rank: IntArray | None) -> FloatArray:
        """(steps, n, 10): clipped matches of 1- to 4-grams, numbers of 1- to 4-grams, length, reference length."""
        from capbench.text.ngrams import bleu_counts

        return bleu_counts(corpus, steps, rank)

    def scores(self, statistics: FloatArray) -> dict[str, FloatArray]:
        from capbench.text.ngrams import bleu

        return dict(zip(self.columns, bleu(statistics).T, strict=True))

    def corpus_scores(self, statistics: FloatArray) -> dict[str, float]:
        return {column: float(score) for column, (score,) in self.scores(statistics.sum(axis=0, keepdims=True)).items()}

    def corpus_terms(self, statistics: FloatArray) -> FloatArray:
        return statistics

    def corpus_of_sums(self, sums: FloatArray) -> dict[str, FloatArray]:
        return self.scores(sums)


@dataclass(frozen=True)
class RougeOptions(Options):
    """Options of ROUGE-L."""

    beta: float = option(1.2, Positive(), "weight of recall")


class RougeL(NgramMetric):
    """ROUGE-L (Lin, 2004) as pycocoevalcap computes it.

    F-measure of the best precision and the best recall over all references, which may come from different references.
    As in pycocoevalcap, an empty candidate counts as one empty word and scores 1 against an empty reference.
    """

    name = "rouge-l"
    columns = ("rouge-l",)
    titles: ClassVar[Mapping[str, str]] = {"rouge-l": "ROUGE-L"}
    citation = "Lin, ROUGE: a package for automatic evaluation of summaries, ACL workshop 2004"
    option_type = RougeOptions
    options: RougeOptions

    def counted(self, corpus: Corpus, steps: Sequence[int], rank: IntArray | None) -> FloatArray:
        """(steps, n): the scores."""
        from capbench.text.ngrams import rouge_l

        return rouge_l(corpus, steps, rank, beta=self.options.beta)


@dataclass(frozen=True)
class CiderOptions(Options):
    """Options of CIDEr."""

    sigma: float = option(6.0, Positive(), "width of the length penalty")
    df: str = option(
        "items",
        Text("coco-val"),
        "source of the document frequencies: items (the references of each evaluated item are one document, repeats "
        "included, as in published scores), images (the references of each image are one document), a corpus, or a "
        "file of captions",
    )


class Cider(NgramMetric):
    """CIDEr-D (Vedantam et al., 2015) as in pycocoevalcap: σ = 6, times 10.

    n-grams are weighted by inverse document frequency; a document is the set of all references of one item or image.
    A candidate or reference without tokens scores 0. With a single document, every weight is log(1/1) = 0 and every
    score is 0.
    """

    name = "cider"
    columns = ("cider",)
    titles: ClassVar[Mapping[str, str]] = {"cider": "CIDEr"}
    citation = "Vedantam et al., CIDEr: consensus-based image description evaluation, CVPR 2015"
    option_type = CiderOptions
    options: CiderOptions

    def __init__(self, resources: Resources | None = None, **options: Any) -> None:
        super().__init__(resources, **options)
        self._documents: Counter[tuple[str, ...]] = Counter()  # → number of occurrences
        self._corpus_id = ""
        self._frequencies: DocumentFrequencies | None = None

    def prepare(self, items: Sequence[Item]) -> None:
        source = self.options.df
        if source == "items":
            self._documents = Counter(item.references or ("",) for item in items)
        elif source == "images":
            by_image: dict[str, dict[str, None]] = {}
            for item in items:
                by_image.setdefault(item.image, {}).update(dict.fromkeys(item.references))
            self._documents = Counter(tuple(texts) or ("",) for texts in by_image.values())
        elif self.resources.captions is None:
            message = f"the corpus '{source}' cannot be looked up without a data folder"
            raise MetricError(message, code="unsupported", value=source, hint="Use cider.df=items")
        else:
            self._documents = Counter(tuple(texts) or ("",) for texts in self.resources.captions(source).values())
        if not any(map(any, self._documents)):
            message = f"CIDEr's document frequencies require captions, but '{source}' has none"
            raise MetricError(message, code="missing-references", value=source, hint="Choose another value of cider.df")
        documents = self._documents.total()
        label = Path(source).name if "/" in source or "\\" in source else source
        self._corpus_id = f"{label}({documents} documents, {_fingerprint(self._documents)})"
        self._frequencies = None
        if documents == 1:
            message = "all CIDEr scores are 0, because every n-gram occurs in the only document"
            hint = "Take document frequencies from a corpus: --option cider.df=coco-val"
            warnings.warn(f"{message}. {hint}", CapbenchWarning, stacklevel=3)

    def corpus_id(self) -> str:
        return self._corpus_id

    def facts(self) -> Mapping[str, object]:
        return {**super().facts(), "n": 4} | ({"df": self._corpus_id} if self._corpus_id else {})

    def counted(self, corpus: Corpus, steps: Sequence[int], rank: IntArray | None) -> FloatArray:
        """(steps, n): the scores with the documents of :meth:`prepare`, or in a sweep with the references of a step."""
        from capbench.text.ngrams import cider_d

        of_step = rank is not None and self.options.df == "items"
        return cider_d(corpus, steps, rank, df=None if of_step else self._counted_documents(), sigma=self.options.sigma)

    def sweep(self, sweep: ReferenceSweep, progress: Progress) -> Iterator[FloatArray] | None:
        """(counts, n, 1) for each draw; None with ``df=images``, where every set must be scored separately."""
        return None if self.options.df == "images" else super().sweep(sweep, progress)

    def _counted_documents(self) -> DocumentFrequencies:
        from capbench.text.ngrams import DocumentFrequencies

        if not self._documents:
            raise MetricError("CIDEr has no document frequencies", code="missing-value", hint="Call prepare(items)")
        if self._frequencies is None:
            tokens = iter(ptb.tokenize([text for document in self._documents for text in document]))
            documents = [[next(tokens) for _ in document] for document in self._documents]
            self._frequencies = DocumentFrequencies.count(documents, list(self._documents.values()))
        return self._frequencies


def _fingerprint(documents: Mapping[tuple[str, ...], int]) -> str:
    """Eight hex digits of the documents and their counts, independent of their order."""
    texts = ("\x1f".join((str(count), *document)) for document, count in documents.items())
    hashes = sorted(hashlib.blake2b(text.encode(), digest_size=16).digest() for text in texts)
    return hashlib.blake2b(b"".join(hashes), digest_size=4).hexdigest()


class Spider(CombinedMetric):
    """SPIDEr (Liu et al., 2017): (SPICE + CIDEr) / 2, with CIDEr on its published scale of 0 to 10."""

    name = "spider"
    columns = ("spider",)
    titles: ClassVar[Mapping[str, str]] = {"spider": "SPIDEr"}
    citation = "Liu et al., Improved image captioning via policy gradient optimization of SPIDEr, ICCV 2017"
    needs = (References(), Columns("spice", "cider"))
    option_type = CiderOptions
    options: CiderOptions

    def __init__(self, resources: Resources | None = None, **options: Any) -> None:
        from capbench.metrics.spice import Spice

        super().__init__(resources, **options)
        self._inputs = (Spice(resources), Cider(resources, **options))

    @classmethod
    def check_captions(cls, items: Sequence[Item]) -> None:
        """An empty candidate scores 0."""

    def inputs(self) -> Sequence[Metric]:
        return self._inputs

    def combine(self, columns: Mapping[str, FloatArray]) -> FloatArray:
        """(n, 1): the means."""
        return ((columns["spice"] + columns["cider"]) / 2)[:, None]

    def facts(self) -> Mapping[str, object]:
        spice, cider = self._inputs
        return {**spice.facts(), **cider.facts()}

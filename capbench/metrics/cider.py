"""CIDEr of single captions: the variant CIDEr-D, which published code and tables call CIDEr."""

from __future__ import annotations

import hashlib
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from capbench.core.errors import CapbenchWarning, MetricError
from capbench.core.options import Options, Positive, Text, option
from capbench.core.progress import Progress
from capbench.core.records import FloatArray, Item
from capbench.metrics.abilities import ReferenceSweep
from capbench.metrics.needs import Resources
from capbench.metrics.tokens import TokenMetric, ngram_engine, ngram_sweep
from capbench.text import ptb


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


class Cider(TokenMetric):
    """CIDEr-D (Vedantam et al., 2015) as in pycocoevalcap: σ = 6, times 10.

    n-grams are weighted by inverse document frequency; a document is the set of all references of one item or image.
    Scores depend on these documents, so the signature identifies them.

    A candidate or reference without tokens scores 0. With a single document, every weight is log(1/1) = 0 and every
    score is 0; a warning reports this.
    """

    name: ClassVar[str] = "cider"
    columns: ClassVar[tuple[str, ...]] = ("cider",)
    titles: ClassVar[Mapping[str, str]] = {"cider": "CIDEr"}
    citation: ClassVar[str] = "Vedantam et al., CIDEr: consensus-based image description evaluation, CVPR 2015"
    order: ClassVar[int] = 40
    option_type = CiderOptions
    options: CiderOptions

    def __init__(self, resources: Resources | None = None, **options: Any) -> None:
        super().__init__(resources, **options)
        self._documents: Counter[tuple[str, ...]] | None = None  # → number of occurrences
        self._corpus_id = ""
        self._frequencies: Any = None

    def prepare(self, items: Sequence[Item]) -> None:
        """Collect the documents.

        Raises:
            MetricError: the corpus has no captions, or cannot be looked up without a data folder.
            DataError, UsageError: the corpus is unknown or cannot be read.
        """
        documents: Iterable[Iterable[str]]
        if self.options.df == "items":
            documents = (item.references for item in items)
        elif self.options.df == "images":
            by_image: dict[str, dict[str, None]] = {}
            for item in items:
                by_image.setdefault(item.image, {}).update(dict.fromkeys(item.references))
            documents = by_image.values()
        else:
            documents = self._look_up().values()
        self._documents = Counter(tuple(document) or ("",) for document in documents)
        if not any(map(any, self._documents)):
            raise MetricError(
                f"CIDEr's document frequencies require captions, but '{self.options.df}' has none",
                code="missing-references",
                value=self.options.df,
                hint="Choose another value of cider.df",
            )
        n_documents = self._documents.total()
        label = (
            self.options.df
            if "/" not in self.options.df and "\\" not in self.options.df
            else Path(self.options.df).name
        )
        self._corpus_id = f"{label}({n_documents} documents, {_fingerprint(self._documents)})"
        self._frequencies = None
        if n_documents == 1:
            warnings.warn(
                "all CIDEr scores are 0, because there is a single document: every n-gram occurs in all documents. "
                "Take document frequencies from a corpus: --option cider.df=coco-val",
                CapbenchWarning,
                stacklevel=3,
            )

    def _look_up(self) -> Mapping[str, Sequence[str]]:
        if self.resources.captions is None:
            raise MetricError(
                f"the corpus '{self.options.df}' cannot be looked up without a data folder",
                code="unsupported",
                value=self.options.df,
                hint="Use cider.df=items",
            )
        return self.resources.captions(self.options.df)

    def corpus_id(self) -> str:
        """Source, number and fingerprint of the documents."""
        return self._corpus_id

    def facts(self) -> Mapping[str, object]:
        """Engine, tokeniser, n-gram orders and the documents (``df:items(5664 documents, a1b2c3d4)``)."""
        facts: dict[str, object] = {"engine": ngram_engine().version, "tok": ptb.VERSION, "n": 4}
        return facts | ({"df": self._corpus_id} if self._corpus_id else {})

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """(n, 1): the scores. Raises MetricError if :meth:`prepare` was not called."""
        if self._documents is None:
            raise MetricError(
                "CIDEr has no document frequencies", code="missing-value", hint="Call prepare(items) first"
            )
        frequencies = self._document_frequencies()
        scores = ngram_engine().cider(self.encode(items), frequencies, self._documents.total(), self.options.sigma)
        progress(len(items))
        return scores[:, None]

    def sweep(self, sweep: ReferenceSweep, progress: Progress) -> Iterator[FloatArray] | None:
        """(counts, n, 1) for each draw.

        With ``df=items`` the documents are the references used at each count. None with ``df=images``, where every set
        must be scored separately.
        """
        if self.options.df == "images" or self._documents is None:
            return None
        from capbench.text.ngrams.statistics import cider_d_sweep

        fixed = None if self.options.df == "items" else self._document_frequencies()
        sigma = self.options.sigma
        return ngram_sweep(self, sweep, lambda c, o: cider_d_sweep(c, o, fixed, sigma=sigma)[..., None], progress)

    def _document_frequencies(self) -> Any:
        if self._frequencies is None:
            self._frequencies = self._count_documents(self._documents or Counter())
        return self._frequencies

    def _count_documents(self, documents: Counter[tuple[str, ...]]) -> Any:
        from capbench.text.ngrams.frequencies import DocumentWords

        encoder = ptb.caption_encoder(cache=self.resources.cache)
        encoded = DocumentWords.of_captions(documents, encoder)
        counts = np.array(list(documents.values()), dtype=np.int64)
        return ngram_engine().document_frequencies(encoded, counts)


def _fingerprint(documents: Mapping[tuple[str, ...], int]) -> str:
    """Eight hex digits of the documents and their counts, independent of their order."""
    texts = ("\x1f".join((str(count), *document)) for document, count in documents.items())
    hashes = sorted(hashlib.blake2b(text.encode(), digest_size=16).digest() for text in texts)
    return hashlib.blake2b(b"".join(hashes), digest_size=4).hexdigest()

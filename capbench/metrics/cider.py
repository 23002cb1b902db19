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
from capbench.core.records import FloatArray, IntArray, Item, cut_references, first_places, joined_references
from capbench.metrics.abilities import ReferenceSweep
from capbench.metrics.needs import Resources
from capbench.metrics.tokens import TokenMetric, ngram_engine, ngram_sweep
from capbench.text import ptb

_HASH_BYTES = 16


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
        self._documents: _Documents | None = None
        self._corpus_id = ""
        self._frequencies: Any = None

    def prepare(self, items: Sequence[Item]) -> None:
        """Collect the documents.

        Raises:
            MetricError: the corpus has no captions, or cannot be looked up without a data folder.
            DataError, UsageError: the corpus is unknown or cannot be read.
        """
        if self.options.df == "items":
            self._documents = _Documents.of_items(items)
        elif self.options.df == "images":
            by_image: dict[str, dict[str, None]] = {}
            for item in items:
                by_image.setdefault(item.image, {}).update(dict.fromkeys(item.references))
            self._documents = _Documents.of_texts(map(joined_references, by_image.values()))
        else:
            self._documents = _Documents.of_texts(map(joined_references, self._look_up().values()))
        if not any(any(cut_references(document)) for document in self._documents):
            raise MetricError(
                f"CIDEr's document frequencies require captions, but '{self.options.df}' has none",
                code="missing-references",
                value=self.options.df,
                hint="Choose another value of cider.df",
            )
        n_documents = self._documents.total
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
        scores = ngram_engine().cider(self.encode(items), frequencies, self._documents.total, self.options.sigma)
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
            self._frequencies = self._count_documents(self._documents or _Documents.of_texts(()))
        return self._frequencies

    def _count_documents(self, documents: _Documents) -> Any:
        from capbench.text.ngrams.frequencies import DocumentWords

        encoder = ptb.caption_encoder(cache=self.resources.cache)
        encoded = DocumentWords.of_captions(map(cut_references, documents), encoder)
        return ngram_engine().document_frequencies(encoded, documents.counts)


class _Documents:
    """Distinct documents, in the order of their first occurrence; iterates over their joined references.

    Args:
        sources: texts, or items whose references are documents.
        places: indices of the distinct documents among the sources.
        counts: number of occurrences of each.
    """

    def __init__(self, sources: Sequence[str] | Sequence[Item], places: IntArray, counts: IntArray) -> None:
        self._sources, self._places, self.counts = sources, places, counts

    @classmethod
    def of_items(cls, items: Sequence[Item]) -> _Documents:
        """The references of each item as one document."""
        # The texts may be on disk.
        hashes = (hashlib.blake2b(item.document.encode(), digest_size=_HASH_BYTES).digest() for item in items)
        return cls(items, *first_places(hashes))

    @classmethod
    def of_texts(cls, texts: Iterable[str]) -> _Documents:
        """Each text as one document."""
        counts = Counter(texts)
        return cls(list(counts), np.arange(len(counts)), np.array(list(counts.values()), dtype=np.int64))

    def __iter__(self) -> Iterator[str]:
        for place in self._places.tolist():
            source = self._sources[place]
            yield source if isinstance(source, str) else source.document

    def __reduce__(self) -> tuple[Any, ...]:
        # A worker needs the documents, not all items.
        return type(self), (list(self), np.arange(len(self._places)), self.counts)

    @property
    def total(self) -> int:
        """Number of documents, repeats included."""
        return int(self.counts.sum())


def _fingerprint(documents: _Documents) -> str:
    """Eight hex digits of the documents and their counts, independent of their order."""
    hashes = bytearray()
    for count, document in zip(documents.counts.tolist(), documents, strict=True):
        joined = joined_references((str(count), document))
        hashes += hashlib.blake2b(joined.encode(), digest_size=_HASH_BYTES).digest()
    return hashlib.blake2b(np.sort(np.frombuffer(hashes, f"S{_HASH_BYTES}")).tobytes(), digest_size=4).hexdigest()

"""CIDEr (which, in the field's code and tables, is CIDEr-D) of single captions."""

from __future__ import annotations

import hashlib
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from capbench.errors import CapbenchWarning, MetricError, UsageError
from capbench.metrics.base import Progress, ReferenceSweep, Resources
from capbench.metrics.engines import get_engine, is_native
from capbench.metrics.tokens import TokenMetric, ngram_sweep, positive_number
from capbench.records import FloatArray, Item
from capbench.text import ptb

__all__ = ["Cider"]


class Cider(TokenMetric):
    """CIDEr-D (Vedantam et al., 2015) as pycocoevalcap computes it: σ = 6, times 10.

    n-grams are weighted by how few *documents* they stand in; a document is all references of one item or image.
    Scores depend on these documents, so the signature names them.

    Options:
        df: where the documents come from: ``items`` (each evaluated item's references are one document, repeats
            included, as published scores have it), ``images`` (each image's references are one document), the name
            of a corpus (``coco-val``), or a file of captions.
        sigma: width of the length penalty.
        engine: ``native`` (this package's), or ``reference`` (pycocoevalcap's counting, slower, the same numbers).

    A candidate or reference without tokens scores 0. With a single document every n-gram stands in all
    documents, every weight is log(1/1) = 0 and so is every score: that is warned of.
    """

    name: ClassVar[str] = "cider"
    columns: ClassVar[tuple[str, ...]] = ("cider",)
    titles: ClassVar[Mapping[str, str]] = {"cider": "CIDEr"}
    citation: ClassVar[str] = "Vedantam et al., CIDEr: consensus-based image description evaluation, CVPR 2015"
    needs: ClassVar[frozenset[str]] = frozenset({"references"})
    order: ClassVar[int] = 40
    uses_corpus: ClassVar[bool] = True

    def __init__(
        self,
        resources: Resources | None = None,
        *,
        df: str = "items",
        sigma: float = 6.0,
        engine: str = "native",
    ) -> None:
        super().__init__(resources)
        if not isinstance(df, str) or not df:
            raise UsageError(f"cider.df is {df!r}", hint="Give 'items', 'images', a corpus (coco-val), or a file")
        self._df = df
        self._sigma = positive_number(self.name, "sigma", sigma)
        self._engine = get_engine(self.name, engine)
        self._documents: dict[tuple[str, ...], int] | None = None
        self._corpus_id = ""
        self._frequencies: Any = None

    def prepare(self, items: Sequence[Item]) -> None:
        """Collect the documents.

        Raises:
            MetricError: the corpus has no captions, or nobody can look it up.
            DataError, UsageError: it is unknown or cannot be read.
        """
        if self._df == "items":
            self._documents = dict(Counter(item.references for item in items))
        elif self._df == "images":
            by_image: dict[str, dict[str, None]] = {}
            for item in items:
                by_image.setdefault(item.image, {}).update(dict.fromkeys(item.references))
            self._documents = dict(Counter(tuple(captions) for captions in by_image.values()))
        else:
            self._documents = dict(Counter(tuple(captions) for captions in self._look_up().values()))
        if not any(any(document) for document in self._documents):
            raise MetricError(
                f"CIDEr's document frequencies need captions, and '{self._df}' has none", hint="Choose another cider.df"
            )
        n_documents = sum(self._documents.values())
        label = self._df if "/" not in self._df and "\\" not in self._df else Path(self._df).name
        self._corpus_id = f"{label}({n_documents} documents, {_fingerprint(self._documents.items())})"
        self._frequencies = None
        if n_documents == 1:
            warnings.warn(
                "CIDEr is 0 on a single image: every n-gram then stands in all documents and weighs nothing. "
                "Take document frequencies from a corpus: --option cider.df=coco-val",
                CapbenchWarning,
                stacklevel=3,
            )

    def _look_up(self) -> Mapping[str, Sequence[str]]:
        if self.resources.captions is None:
            raise MetricError(f"the corpus '{self._df}' cannot be looked up here", hint="Use cider.df=items")
        return self.resources.captions(self._df)

    def corpus_id(self) -> str:
        """Source, number and fingerprint of the documents."""
        return self._corpus_id

    def signature_parts(self) -> Mapping[str, object]:
        """Engine, tokeniser, orders, σ, and the documents (``df:items(5664 documents, a1b2c3d4)``)."""
        return {
            "engine": self._engine.version,
            "tok": ptb.VERSION,
            "n": 4,
            "sigma": f"{self._sigma:g}",
            "df": self._corpus_id or self._df,
        }

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """(n, 1): the scores. Raises MetricError if :meth:`prepare` was not called."""
        if self._documents is None:
            raise MetricError("CIDEr has no document frequencies yet", hint="Call prepare(items) first")
        candidates, references = self.tokenize(items)
        found = self._engine.cider(
            candidates, references, self._document_frequencies(), sum(self._documents.values()), self._sigma
        )
        progress(len(items))
        return found[:, None]

    def sweep(self, sweep: ReferenceSweep, progress: Progress) -> Iterator[FloatArray] | None:
        """(counts, n, 1) for each draw, by the native engine.

        With ``df=items`` the documents are the references used at each count. With ``df=images``, whose documents
        differ from draw to draw in another way, every set is scored anew.
        """
        if not is_native(self._engine) or self._df == "images" or self._documents is None:
            return None
        from capbench.text.ngrams.sweep import cider_d_sweep

        fixed = None if self._df == "items" else self._document_frequencies()
        return ngram_sweep(
            self, sweep, lambda c, order: cider_d_sweep(c, order, fixed, sigma=self._sigma)[..., None], progress
        )

    def _document_frequencies(self) -> Any:
        if self._frequencies is None:
            self._frequencies = self._count_documents(self._documents or {})
        return self._frequencies

    def _count_documents(self, documents: Mapping[tuple[str, ...], int]) -> Any:
        tokenised: list[list[str]] = []
        waiting = list(documents)
        for start in range(0, len(waiting), self.batch_size):  # so that few captions are in hand at once
            part = waiting[start : start + self.batch_size]
            tokens = iter(ptb.tokenize([text for document in part for text in document], cache=self.resources.cache))
            tokenised += [[next(tokens) for _ in document] for document in part]
        return self._engine.document_frequencies(tokenised, np.array(list(documents.values()), dtype=np.int64))


def _fingerprint(documents: Iterable[tuple[tuple[str, ...], int]]) -> str:
    """Eight hex digits that name the documents and how often each counts, in any order."""
    each = sorted(
        hashlib.blake2b("\x1f".join((str(count), *document)).encode(), digest_size=16).digest()
        for document, count in documents
    )
    return hashlib.blake2b(b"".join(each), digest_size=4).hexdigest()

"""SPIDEr: the mean of SPICE and CIDEr."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np

from capbench.metrics.base import Metric, Progress, ReferenceSweep, Resources
from capbench.metrics.cider import Cider
from capbench.metrics.spice import Spice
from capbench.records import FloatArray, Item
from capbench.text.spice import COUNTS

__all__ = ["Spider"]


class Spider(Metric):
    """SPIDEr (Liu et al., 2017): (SPICE + CIDEr) / 2, with CIDEr on its published scale of 0 to 10.

    Options:
        df, sigma: as for CIDEr.
    """

    name: ClassVar[str] = "spider"
    columns: ClassVar[tuple[str, ...]] = ("spider",)
    titles: ClassVar[Mapping[str, str]] = {"spider": "SPIDEr"}
    citation: ClassVar[str] = (
        "Liu et al., Improved image captioning via policy gradient optimization of SPIDEr, ICCV 2017"
    )
    needs: ClassVar[frozenset[str]] = Spice.needs | Cider.needs
    order: ClassVar[int] = 55
    uses_corpus: ClassVar[bool] = True

    def __init__(self, resources: Resources | None = None, *, df: str = "items", sigma: float = 6.0) -> None:
        super().__init__(resources)
        self._spice = Spice(resources)
        self._cider = Cider(resources, df=df, sigma=sigma)

    @classmethod
    def is_set_up(cls) -> bool:
        """As for SPICE."""
        return Spice.is_set_up()

    def prepare(self, items: Sequence[Item]) -> None:
        """Collect CIDEr's documents. Raises what CIDEr raises."""
        self._cider.prepare(items)

    def corpus_id(self) -> str:
        """CIDEr's documents."""
        return self._cider.corpus_id()

    def signature_parts(self) -> Mapping[str, object]:
        """What can change SPICE, then what can change CIDEr; the tokeniser is the same."""
        return {**self._spice.signature_parts(), **self._cider.signature_parts()}

    def open(self, items: Sequence[Item]) -> None:
        """Tokenise everything at once."""
        self._spice.open(items)
        self._cider.open(items)

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """(n, 21 + k): SPICE's counts, then CIDEr's statistics."""
        spice = self._spice.statistics(items, progress)
        cider = self._cider.statistics(items, lambda _: None)
        return np.hstack([spice, cider])

    def sweep(self, sweep: ReferenceSweep, progress: Progress) -> Iterator[FloatArray] | None:
        """(counts, n, 21 + k) for each draw, unless CIDEr's documents forbid it."""
        cider = self._cider.sweep(sweep, lambda _: None)
        spice = self._spice.sweep(sweep, progress)
        if cider is None or spice is None:
            return None
        return (np.concatenate(parts, axis=2) for parts in zip(spice, cider, strict=True))

    def scores(self, statistics: FloatArray) -> dict[str, FloatArray]:
        """Mean of both scores."""
        spice = self._spice.scores(statistics[:, : len(COUNTS)])["spice"]
        cider = self._cider.scores(statistics[:, len(COUNTS) :])["cider"]
        return {"spider": (spice + cider) / 2}

"""SPIDEr: the mean of SPICE and CIDEr."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from capbench.core.records import FloatArray
from capbench.metrics.base import CombinedMetric, Metric
from capbench.metrics.cider import Cider, CiderOptions
from capbench.metrics.needs import Columns, Need, References, Resources
from capbench.metrics.spice import Spice


class Spider(CombinedMetric):
    """SPIDEr (Liu et al., 2017): (SPICE + CIDEr) / 2, with CIDEr on its published scale of 0 to 10.

    The options are those of CIDEr.
    """

    name: ClassVar[str] = "spider"
    columns: ClassVar[tuple[str, ...]] = ("spider",)
    titles: ClassVar[Mapping[str, str]] = {"spider": "SPIDEr"}
    citation: ClassVar[str] = (
        "Liu et al., Improved image captioning via policy gradient optimization of SPIDEr, ICCV 2017"
    )
    needs: ClassVar[tuple[Need, ...]] = (References(), Columns("spice", "cider"))
    order: ClassVar[int] = 55
    option_type = CiderOptions
    options: CiderOptions

    def __init__(self, resources: Resources | None = None, **options: Any) -> None:
        super().__init__(resources, **options)
        self._inputs = (Spice(resources), Cider(resources, **options))

    def inputs(self) -> Sequence[Metric]:
        """SPICE, and CIDEr with these options."""
        return self._inputs

    def combine(self, columns: Mapping[str, FloatArray]) -> FloatArray:
        """(n, 1): the means."""
        return ((columns["spice"] + columns["cider"]) / 2)[:, None]

    def facts(self) -> Mapping[str, object]:
        """Facts of SPICE, then of CIDEr; the tokeniser is the same."""
        spice, cider = self._inputs
        return {**spice.facts(), **cider.facts()}

"""Metrics that this version knows by name and cannot compute yet: each says what it waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from capbench.errors import MetricError
from capbench.metrics.base import Metric, Progress
from capbench.metrics.needs import Need, References, Unavailable
from capbench.records import FloatArray, Item

__all__ = ["Faier", "ViLBERTScore"]


class _Planned(Metric):
    """A metric whose row in a table says what it waits for. Making one raises MetricError."""

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """Raise MetricError."""
        raise MetricError(f"{self.name} waits for {self.lacks(self.resources)}")


class Faier(_Planned):
    """FAIEr (Wang et al., 2021): fidelity and adequacy over scene graphs of image and captions."""

    name: ClassVar[str] = "faier"
    columns: ClassVar[tuple[str, ...]] = ("faier",)
    titles: ClassVar[Mapping[str, str]] = {"faier": "FAIEr"}
    citation: ClassVar[str] = "Wang et al., FAIEr: fidelity and adequacy ensured image caption evaluation, CVPR 2021"
    needs: ClassVar[tuple[Need, ...]] = (
        References(),
        Unavailable("region features, scene graphs and a trained model, which this version lacks"),
    )
    order: ClassVar[int] = 130


class ViLBERTScore(_Planned):
    """ViLBERTScore (Lee et al., 2020): BERTScore's matching over image-conditioned embeddings."""

    name: ClassVar[str] = "vilbertscore"
    columns: ClassVar[tuple[str, ...]] = ("vilbertscore-f", "vilbertscore-p", "vilbertscore-r")
    titles: ClassVar[Mapping[str, str]] = {
        "vilbertscore-f": "ViLBERTScore-F",
        "vilbertscore-p": "ViLBERTScore-P",
        "vilbertscore-r": "ViLBERTScore-R",
    }
    citation: ClassVar[str] = "Lee et al., ViLBERTScore: evaluating image caption using vision-and-language BERT, 2020"
    needs: ClassVar[tuple[Need, ...]] = (
        References(),
        Unavailable("region features and ViLBERT weights, which this version cannot read yet"),
    )
    order: ClassVar[int] = 140

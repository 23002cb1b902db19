"""Metrics that this version knows by name and cannot compute yet: each says what it waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from capbench.errors import MetricError
from capbench.metrics.base import Metric, Progress
from capbench.metrics.needs import Need, References, Unavailable
from capbench.records import FloatArray, Item

__all__ = ["NNEval", "ViLBERTScore"]


class _Planned(Metric):
    """A metric whose row in a table says what it waits for. Making one raises MetricError."""

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """Raise MetricError."""
        raise MetricError(f"{self.name} waits for {self.lacks(self.resources)}")


class NNEval(_Planned):
    """NNEval (Sharif et al., 2018): a small network over other metrics' scores."""

    name: ClassVar[str] = "nneval"
    columns: ClassVar[tuple[str, ...]] = ("nneval",)
    titles: ClassVar[Mapping[str, str]] = {"nneval": "NNEval"}
    citation: ClassVar[str] = "Sharif et al., NNEval: neural network based evaluation metric, ECCV 2018"
    needs: ClassVar[tuple[Need, ...]] = (
        References(),
        Unavailable("its trained weights, which this version cannot read yet"),
    )
    order: ClassVar[int] = 120


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

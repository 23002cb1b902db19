"""Metrics that this version knows by name and cannot compute yet: each says what it waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from capbench.errors import MetricError
from capbench.metrics.base import Metric, Progress, Resources
from capbench.records import FloatArray, Item

__all__ = ["Faier", "NNEval", "Reo", "Tiger", "ViLBERTScore"]


class _Planned(Metric):
    """A metric whose row in a table says what it waits for. Making one raises MetricError."""

    def __init__(self, resources: Resources | None = None) -> None:
        super().__init__(resources)
        self._refuse()

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """Raise MetricError."""
        return self._refuse()

    def _refuse(self) -> FloatArray:
        raise MetricError(f"{self.titles[self.columns[0]]} waits for {self.waits_for}")


class Tiger(_Planned):
    """TIGEr (Jiang et al., 2019): how well a caption's words ground in the image's regions."""

    name: ClassVar[str] = "tiger"
    columns: ClassVar[tuple[str, ...]] = ("tiger", "rrs", "wds")
    titles: ClassVar[Mapping[str, str]] = {"tiger": "TIGEr", "rrs": "RRS", "wds": "WDS"}
    citation: ClassVar[str] = "Jiang et al., TIGEr: text-to-image grounding for image caption evaluation, EMNLP 2019"
    needs: ClassVar[frozenset[str]] = frozenset({"references", "features", "weights"})
    order: ClassVar[int] = 100
    waits_for: ClassVar[str | None] = (
        "region features and a trained grounding model (SCAN), which this version cannot read yet"
    )


class Reo(_Planned):
    """REO (Jiang et al., 2019): relevance, extraness and omission of a caption's content."""

    name: ClassVar[str] = "reo"
    columns: ClassVar[tuple[str, ...]] = ("reo-relevance", "reo-extraness", "reo-omission")
    titles: ClassVar[Mapping[str, str]] = {
        "reo-relevance": "REO relevance",
        "reo-extraness": "REO extraness",
        "reo-omission": "REO omission",
    }
    citation: ClassVar[str] = "Jiang et al., REO-Relevance, Extraness, Omission, EMNLP 2019"
    needs: ClassVar[frozenset[str]] = frozenset({"references", "features", "weights"})
    order: ClassVar[int] = 110
    waits_for: ClassVar[str | None] = (
        "region features and a trained grounding model (SCAN), which this version cannot read yet"
    )


class NNEval(_Planned):
    """NNEval (Sharif et al., 2018): a small network over other metrics' scores."""

    name: ClassVar[str] = "nneval"
    columns: ClassVar[tuple[str, ...]] = ("nneval",)
    titles: ClassVar[Mapping[str, str]] = {"nneval": "NNEval"}
    citation: ClassVar[str] = "Sharif et al., NNEval: neural network based evaluation metric, ECCV 2018"
    needs: ClassVar[frozenset[str]] = frozenset({"references", "java", "weights"})
    order: ClassVar[int] = 120
    waits_for: ClassVar[str | None] = "its trained weights, which this version cannot read yet"


class Faier(_Planned):
    """FAIEr (Wang et al., 2021): fidelity and adequacy over scene graphs of image and captions."""

    name: ClassVar[str] = "faier"
    columns: ClassVar[tuple[str, ...]] = ("faier",)
    titles: ClassVar[Mapping[str, str]] = {"faier": "FAIEr"}
    citation: ClassVar[str] = "Wang et al., FAIEr: fidelity and adequacy ensured image caption evaluation, CVPR 2021"
    needs: ClassVar[frozenset[str]] = frozenset({"references", "features", "weights"})
    order: ClassVar[int] = 130
    waits_for: ClassVar[str | None] = "region features, scene graphs and a trained model, which this version lacks"


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
    needs: ClassVar[frozenset[str]] = frozenset({"references", "features", "weights"})
    order: ClassVar[int] = 140
    waits_for: ClassVar[str | None] = "region features and ViLBERT weights, which this version cannot read yet"

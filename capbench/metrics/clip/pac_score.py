"""PAC-S and RefPAC-S (Sarto et al., CVPR 2023)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from capbench.core.options import Positive, option
from capbench.metrics.clip.metric import ClipMetric, ClipOptions
from capbench.metrics.needs import Images, Need, PublishedWeights, References


@dataclass(frozen=True)
class PacScoreOptions(ClipOptions):
    """Options of PAC-S."""

    scale: float = option(
        2.0, Positive(), "w, the factor of the cosines of images and captions", sign_as="w", recombines=True
    )


class PacScore(ClipMetric):
    """PAC-S and RefPAC-S: CLIPScore's formulas with w = 2, over a CLIP whose projections were fine-tuned with
    generated captions and images.

    Prefix, truncation and preprocessing are those of CLIPScore, as in the released code. The checkpoint has no word
    pieces: these are next to it, or passed with the option ``tokenizer``. PAC-S is reference-free.
    """

    name: ClassVar[str] = "pac-s"
    columns: ClassVar[tuple[str, ...]] = ("pac-s", "refpac-s")
    titles: ClassVar[Mapping[str, str]] = {"pac-s": "PAC-S", "refpac-s": "RefPAC-S"}
    citation: ClassVar[str] = (
        "Sarto et al., Positive-augmented contrastive learning for image and video captioning evaluation, CVPR 2023"
    )
    needs: ClassVar[tuple[Need, ...]] = (References(), Images(), PublishedWeights("PAC-S's CLIP", "pac-s-vit-b32"))
    order: ClassVar[int] = 175

    option_type = PacScoreOptions
    options: PacScoreOptions

"""CLIPScore and RefCLIPScore (Hessel et al., EMNLP 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from capbench.metrics.clip_metric import ClipMetric
from capbench.metrics.needs import Images, Need, PublishedWeights, References

__all__ = ["ClipScore"]


class ClipScore(ClipMetric):
    """CLIPScore, 2.5 · max(cos(image, candidate), 0) in CLIP's space, and RefCLIPScore, its harmonic mean with the
    largest cosine of the candidate and a reference, which is not scaled.

    As in the released code, "A photo depicts" stands before candidates and references, captions are cut at 77 word
    pieces with the end token kept, and pictures are resized (bicubic) and their middle is cut out. The papers take
    OpenAI's ViT-B/32. CLIPScore alone needs no references. Each picture and each caption is encoded once, and its
    vector kept in the cache folder.
    """

    name: ClassVar[str] = "clipscore"
    columns: ClassVar[tuple[str, ...]] = ("clipscore", "refclipscore")
    titles: ClassVar[Mapping[str, str]] = {"clipscore": "CLIPScore", "refclipscore": "RefCLIPScore"}
    citation: ClassVar[str] = (
        "Hessel et al., CLIPScore: a reference-free evaluation metric for image captioning, EMNLP 2021"
    )
    needs: ClassVar[tuple[Need, ...]] = (References(), Images(), PublishedWeights("a CLIP", "clip-vit-b32"))
    order: ClassVar[int] = 170

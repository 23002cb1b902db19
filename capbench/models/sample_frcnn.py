"""A small Faster R-CNN for the synthetic scenes of the embedded sample: 160 x 160 pixels, 21 classes, 11 colours.

Ren et al., Faster R-CNN, NeurIPS 2015; Lin et al., Feature Pyramid Networks, CVPR 2017 (one merged level);
He et al., Mask R-CNN, ICCV 2017 (RoIAlign). Colours take the place that attributes have in Anderson et al., CVPR 2018.

Some 0.6 million parameters. ``scripts/train_sample_models.py`` trains it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor, nn

__all__ = ["SampleFRCNN", "SampleOutputs"]


@dataclass(frozen=True)
class SampleOutputs:
    """What the second stage says of r regions.

    Attributes:
        features: (r, 128), not negative.
        classes: (r, classes + 1) logits, the background last.
        boxes: (r, 4) deltas, the same for every class.
        colours: (r, colours) logits.
    """

    features: Tensor
    classes: Tensor
    boxes: Tensor
    colours: Tensor


def _conv(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )


class SampleFRCNN(nn.Module):
    """The network, in three steps: :meth:`features`, :meth:`propose`, :meth:`describe`."""

    stride_proposals = 8
    stride_regions = 4
    pooled = 7
    anchor_sizes = (22.0, 40.0, 66.0)
    anchor_ratios = (0.6, 1.0, 1.6)
    feature_size = 128

    def __init__(self, classes: int, colours: int) -> None:
        super().__init__()
        anchors = len(self.anchor_sizes) * len(self.anchor_ratios)
        self.stem = nn.Sequential(_conv(3, 16, 2), _conv(16, 32, 2), _conv(32, 48))
        self.deep = nn.Sequential(_conv(48, 96, 2), _conv(96, 96), _conv(96, 96))
        self.lateral = nn.Conv2d(48, 64, 1)
        self.top_down = nn.Conv2d(96, 64, 1)
        self.merge = _conv(64, 64)
        self.rpn = nn.Sequential(nn.Conv2d(96, 64, 3, padding=1), nn.ReLU(inplace=True))
        self.objectness = nn.Conv2d(64, anchors, 1)
        self.anchor_deltas = nn.Conv2d(64, 4 * anchors, 1)
        self.region = _conv(64, 64)
        self.hidden = nn.Linear(64 * self.pooled**2, self.feature_size)
        self.class_score = nn.Linear(self.feature_size, classes + 1)
        self.box_deltas = nn.Linear(self.feature_size, 4)
        self.colour_score = nn.Linear(self.feature_size, colours)

    def features(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Images (n, 3, h, w), RGB from -1 to 1, to maps for regions and for proposals.

        Returns:
            (n, 64, h/4, w/4) and (n, 96, h/8, w/8).
        """
        shallow = self.stem(images)  # (n, 48, h/4, w/4)
        deep = self.deep(shallow)  # (n, 96, h/8, w/8)
        above = F.interpolate(self.top_down(deep), size=shallow.shape[-2:], mode="nearest")
        return self.merge(self.lateral(shallow) + above), deep

    def propose(self, deep: Tensor) -> tuple[Tensor, Tensor]:
        """Objectness logits (n, 9, h/8, w/8) and anchor deltas (n, 36, h/8, w/8)."""
        hidden = self.rpn(deep)
        return self.objectness(hidden), self.anchor_deltas(hidden)

    def pool(self, regions: Tensor, boxes: list[Tensor]) -> Tensor:
        """RoIAlign of boxes in pixels, one tensor (r_i, 4) an image: (r, 64, 7, 7)."""
        from torchvision.ops import roi_align

        pooled: Tensor = roi_align(
            regions.float(), boxes, self.pooled, 1 / self.stride_regions, sampling_ratio=2, aligned=True
        )
        return pooled

    def describe(self, pooled: Tensor) -> SampleOutputs:
        """Pooled regions (r, 64, 7, 7) to features, class and colour logits, box deltas."""
        features = F.relu(self.hidden(torch.flatten(self.region(pooled), 1)))
        return SampleOutputs(
            features, self.class_score(features), self.box_deltas(features), self.colour_score(features)
        )

"""The sample detector: a small Faster R-CNN, included in capbench, for the synthetic scenes of the embedded sample.

Ren et al., Faster R-CNN, NeurIPS 2015, with one merged level of a feature pyramid (Lin et al., CVPR 2017) and RoIAlign
(He et al., ICCV 2017). There are 21 classes and 11 colours, which correspond to attributes.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor, nn

from capbench.core.errors import ModelError
from capbench.core.files import read_json
from capbench.core.options import Count, option
from capbench.features.detectors import boxes as bx
from capbench.features.detectors.base import HFSelection, Network
from capbench.features.detectors.bottom_up_network import HeadOutputs
from capbench.features.detectors.box_selection import hf_chosen, propose
from capbench.features.detectors.images import Prepared, SamplePreparation, pad_batch
from capbench.weights.checkpoints import Checkpoint, fit_state

if TYPE_CHECKING:
    from capbench.features.records import RegionFeatures


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
        """Images (n, 3, h, w), RGB from -1 to 1, to maps for regions and for proposals."""
        shallow = self.stem(images)  # (n, 48, h/4, w/4)
        deep = self.deep(shallow)  # (n, 96, h/8, w/8)
        above = F.interpolate(self.top_down(deep), size=shallow.shape[-2:], mode="nearest")
        return self.merge(self.lateral(shallow) + above), deep  # (n, 64, h/4, w/4)

    def propose(self, deep: Tensor) -> tuple[Tensor, Tensor]:
        """Objectness logits (n, 9, h/8, w/8) and anchor deltas (n, 36, h/8, w/8)."""
        hidden = self.rpn(deep)
        return self.objectness(hidden), self.anchor_deltas(hidden)

    def pool(self, regions: Tensor, boxes: list[Tensor]) -> Tensor:
        """RoIAlign of boxes in pixels, one tensor (r_i, 4) per image: (r, 64, 7, 7)."""
        from torchvision.ops import roi_align

        pooled: Tensor = roi_align(
            regions.float(), boxes, self.pooled, 1 / self.stride_regions, sampling_ratio=2, aligned=True
        )
        return pooled

    def describe(self, pooled: Tensor) -> HeadOutputs:
        """Pooled regions (r, 64, 7, 7) to features (r, 128), class logits, box deltas (r, 4), colour logits."""
        features = F.relu(self.hidden(torch.flatten(self.region(pooled), 1)))
        return HeadOutputs(features, self.class_score(features), self.box_deltas(features), self.colour_score(features))


@dataclass(frozen=True)
class SampleOptions(HFSelection):
    """Options of the sample detector."""

    min_boxes: int = option(12, Count(1), "minimum number of regions per image")
    max_boxes: int = option(12, Count(1), "maximum number of regions per image")
    proposals: int = option(60, Count(1), "boxes of the first stage")


def sample_weights() -> Path:
    """The file of the weights in capbench."""
    return Path(str(importlib.resources.files("capbench.weights") / "sample" / "sample_detector.safetensors"))


def sample_card() -> dict[str, Any]:
    """The record of the weights' training: class and colour names, SHA-256, mAP, settings."""
    card: dict[str, Any] = read_json(sample_weights().with_suffix(".json"))
    return card


class SampleDetector(Network):
    """Detects the sample's objects and their colours (as attributes)."""

    name = "sample"
    options_class = SampleOptions
    options: SampleOptions

    def __init__(self, name: str, network: SampleFRCNN, sha256: str, device: str, options: SampleOptions) -> None:
        super().__init__(name, network, sha256, device, options)
        o, card = options, sample_card()
        self.feature_size = network.feature_size
        self.class_names, self.attribute_names = tuple(card["classes"]), tuple(card["colours"])
        self.preprocessor: SamplePreparation = SamplePreparation()
        self.preprocessing = f"rgb / 127.5 - 1, bilinear longer side {self.preprocessor.side}"
        self.mode = f"{o.mode()}, rpn 0.7 400-{o.proposals}"

    @classmethod
    def weights_file(cls, name: str) -> Path:
        return sample_weights()

    @classmethod
    def build(cls, options: Any, variant: str, checkpoint: Checkpoint | None) -> SampleFRCNN:
        card = sample_card()
        network = SampleFRCNN(len(card["classes"]), len(card["colours"]))
        if checkpoint is not None:
            if checkpoint.path == sample_weights() and checkpoint.sha256 != card["sha256"]:
                message, hint = "differs from the published file", "Install capbench again"
                raise ModelError(message, code="damaged", path=checkpoint.path, hint=hint)
            fit_state(network, checkpoint.tensors, checkpoint.path)
        return network

    def regions(self, prepared: Sequence[Prepared]) -> list[RegionFeatures]:
        batch = torch.from_numpy(pad_batch(prepared, 8)).to(self.device)
        maps, deep = self.network.features(batch)
        logits, deltas = self.network.propose(deep)
        stride = self.network.stride_proposals
        anchors = bx.centred_anchors(self.network.anchor_sizes, self.network.anchor_ratios).to(self.device) + stride / 2
        limits: dict[str, Any] = {"stride": stride, "before": 400, "after": self.options.proposals, "min_size": 4.0}
        records = []
        for i, image in enumerate(prepared):
            _, h, w = image.pixels.shape
            regions, _ = propose(logits[i], deltas[i], anchors, (h, w), **limits)
            if len(regions) < self.options.min_boxes:
                regions = torch.cat([regions, regions.new_tensor([[0, 0, w, h]])])  # the whole image
            outputs = self.network.describe(self.network.pool(maps[i : i + 1], [regions]))
            chosen = hf_chosen(image, self.options, regions, outputs.classes, outputs.boxes)
            colours = outputs.attributes[chosen.rows].float().softmax(dim=1).max(dim=1)
            more = {"attribute_ids": colours.indices, "attribute_scores": colours.values}
            records.append(chosen.record(image, outputs.features, **more))
        return records

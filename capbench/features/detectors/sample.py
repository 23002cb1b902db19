"""The sample detector: a small Faster R-CNN, included in capbench, for the synthetic scenes of the embedded sample.

It allows trying every step without a download; it is not trained on photographs.

Images have 160 x 160 pixels. There are 21 classes and 11 colours, which correspond to the attributes of Anderson et
al., CVPR 2018. The network has 0.6 million parameters; its card says how it was trained.

References:
    Ren et al., Faster R-CNN, NeurIPS 2015.
    Lin et al., Feature Pyramid Networks, CVPR 2017 (one merged level).
    He et al., Mask R-CNN, ICCV 2017 (RoIAlign).
"""

from __future__ import annotations

import dataclasses
import importlib.resources
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor, nn

from capbench.core.errors import ModelError
from capbench.core.options import Count, option
from capbench.features.detectors import boxes as bx
from capbench.features.detectors.base import (
    Network,
    NetworkOptions,
    Numbers,
    random_seed,
    region_features,
)
from capbench.features.detectors.bottom_up import hf_detections, hf_proposals
from capbench.features.detectors.images import Prepared, SamplePreparation, pad_batch
from capbench.weights.checkpoints import fit_state, read_checkpoint

if TYPE_CHECKING:
    from capbench.features.records import RegionFeatures


@dataclass(frozen=True)
class SampleOutputs:
    """Outputs of the second stage for r regions."""

    features: Tensor  # (r, 128), not negative
    classes: Tensor  # (r, classes + 1) logits, the background last
    boxes: Tensor  # (r, 4) deltas, the same for every class
    colours: Tensor  # (r, colours) logits


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

        Returns (n, 64, h/4, w/4) and (n, 96, h/8, w/8).
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
        """RoIAlign of boxes in pixels, one tensor (r_i, 4) per image: (r, 64, 7, 7)."""
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


DELTA_WEIGHTS = (10.0, 10.0, 5.0, 5.0)


@dataclasses.dataclass(frozen=True)
class SampleOptions(NetworkOptions):
    """Options of the sample detector."""

    min_boxes: int = option(12, Count(1), "minimum number of regions per image")
    max_boxes: int = option(12, Count(1), "maximum number of regions per image")
    nms: tuple[float, ...] = option((0.5, 0.6, 0.7), Numbers(maximum=1), "maximum IoU of regions, tried in turn")
    proposals: int = option(60, Count(1), "boxes of the first stage")


def sample_weights() -> Path:
    """The file of the weights in capbench."""
    return Path(str(importlib.resources.files("capbench.weights") / "sample" / "sample_detector.safetensors"))


def sample_card(weights: Path | None = None) -> dict[str, Any]:
    """The record of the weights' training: class and colour names, SHA-256, mAP, settings."""
    path = (weights or sample_weights()).with_suffix(".json")
    try:
        card: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(
            f"the record of the weights cannot be read ({error})",
            code="unreadable",
            path=path,
            hint="Reinstall capbench",
        ) from error
    return card


def proposals(logits: Tensor, deltas: Tensor, size: tuple[int, int], count: int) -> Tensor:
    """The first stage's boxes (at most ``count``, 4) of one image; see :func:`hf_proposals`."""
    stride = SampleFRCNN.stride_proposals
    anchors = bx.centred_anchors(SampleFRCNN.anchor_sizes, SampleFRCNN.anchor_ratios).to(logits.device) + stride / 2
    return hf_proposals(logits, deltas, anchors, size, stride=stride, before=400, after=count, nms=0.7, min_size=4.0)[0]


class SampleDetector(Network):
    """Detects the sample's objects and their colours (as attributes)."""

    name = "sample"
    options_class = SampleOptions
    options: SampleOptions

    def __init__(
        self,
        network: SampleFRCNN,
        classes: Sequence[str],
        colours: Sequence[str],
        sha256: str,
        device: str,
        options: SampleOptions,
    ) -> None:
        super().__init__(options, name=type(self).name, weights_sha256=sha256, device=device)
        self.network = network.to(device).eval()
        self.feature_size = network.feature_size
        self.class_names = tuple(classes)
        self.attribute_names = tuple(colours)
        self.preprocessor: SamplePreparation = SamplePreparation()

    @classmethod
    def open(cls, options: Any, *, weights: str | os.PathLike[str] | None, device: str, variant: str) -> Self:
        """Load the network; see :func:`capbench.features.detectors.base.load_detector`."""
        card = sample_card()
        classes, colours = card["classes"], card["colours"]
        seed = random_seed(weights)
        if seed is not None:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                network = SampleFRCNN(len(classes), len(colours))
            return cls(network, classes, colours, f"random:{seed}", device, options)
        checkpoint = read_checkpoint(sample_weights() if weights is None else weights)
        if weights is None and checkpoint.sha256 != card["sha256"]:
            raise ModelError(
                f"these are other weights: expected SHA-256 {card['sha256']}, found {checkpoint.sha256}",
                code="wrong-weights",
                value=checkpoint.sha256,
                path=checkpoint.path,
                hint="Reinstall capbench",
            )
        network = SampleFRCNN(len(classes), len(colours))
        fit_state(network, checkpoint.tensors, checkpoint.path)
        return cls(network, classes, colours, checkpoint.sha256, device, options)

    def preprocessing_line(self) -> str:
        """The preprocessing, for the fingerprint."""
        return f"rgb / 127.5 - 1, bilinear longer side {self.preprocessor.side}"

    def mode_line(self) -> str:
        """The post-processing, for the fingerprint."""
        o = self.options
        return f"hf nms {','.join(f'{t:g}' for t in o.nms)} {o.min_boxes}-{o.max_boxes}, rpn 0.7 400-{o.proposals}"

    def regions(self, prepared: Sequence[Prepared]) -> list[RegionFeatures]:
        """The regions of prepared images."""
        batch = torch.from_numpy(pad_batch(prepared, 8)).to(self.device)
        maps, deep = self.network.features(batch)
        logits, deltas = self.network.propose(deep)
        return [self._one(maps[i : i + 1], logits[i], deltas[i], p) for i, p in enumerate(prepared)]

    def _one(self, maps: Tensor, logits: Tensor, deltas: Tensor, image: Prepared) -> RegionFeatures:
        o = self.options
        _, h, w = image.pixels.shape
        regions = proposals(logits, deltas, (h, w), o.proposals)
        whole = torch.tensor([[0.0, 0.0, float(w), float(h)]], device=regions.device)
        regions = torch.cat([regions, whole]) if len(regions) < o.min_boxes else regions
        outputs = self.network.describe(self.network.pool(maps, [regions]))
        chosen = hf_detections(
            regions,
            outputs.classes,
            outputs.boxes,
            (h, w),
            (image.scale_y, image.scale_x),
            nms=o.nms,
            min_boxes=o.min_boxes,
            max_boxes=o.max_boxes,
            delta_weights=DELTA_WEIGHTS,
        )
        colours = outputs.colours[chosen.rows].float().softmax(dim=1).max(dim=1)
        return region_features(
            image,
            chosen.boxes,
            outputs.features[chosen.rows],
            class_ids=chosen.class_ids,
            class_scores=chosen.class_scores,
            attribute_ids=colours.indices,
            attribute_scores=colours.values,
        )

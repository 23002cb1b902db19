"""The sample detector: a small Faster R-CNN that comes with capbench and knows the embedded sample's synthetic scenes.

It lets every step be tried without a download. It knows nothing of photographs.
"""

from __future__ import annotations

import dataclasses
import importlib.resources
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from capbench.errors import ModelError
from capbench.features.detectors import boxes as bx
from capbench.features.detectors.base import (
    Network,
    forward_pass,
    numpy32,
    random_seed,
    region_features,
)
from capbench.features.detectors.bottom_up.selection import hf_detections, hf_proposals
from capbench.features.detectors.images import Prepared, SamplePreparation, pad_batch
from capbench.features.detectors.options import NetworkOptions, Numbers
from capbench.models.checkpoints import fit_state, read_checkpoint
from capbench.models.sample_frcnn import SampleFRCNN
from capbench.options import Count, option

if TYPE_CHECKING:
    from capbench.features.records import RegionFeatures

__all__ = [
    "SampleDetector",
    "SampleOptions",
    "SamplePreparation",
    "proposals",
    "sample_card",
    "sample_weights",
]

DELTA_WEIGHTS = (10.0, 10.0, 5.0, 5.0)


@dataclasses.dataclass(frozen=True)
class SampleOptions(NetworkOptions):
    """Options of the sample detector."""

    min_boxes: int = option(12, Count(1), "the fewest regions of an image")
    max_boxes: int = option(12, Count(1), "the most")
    nms: tuple[float, ...] = option((0.5, 0.6, 0.7), Numbers(most=1), "largest IoU of regions, tried in turn")
    proposals: int = option(60, Count(1), "boxes of the first stage")


def sample_weights() -> Path:
    """The file of the weights that come with capbench."""
    return Path(str(importlib.resources.files("capbench.models") / "weights" / "sample_detector.safetensors"))


def sample_card(weights: Path | None = None) -> dict[str, Any]:
    """What was written down when the weights were trained: names of classes and colours, SHA-256, mAP, how."""
    path = (weights or sample_weights()).with_suffix(".json")
    try:
        card: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(
            f"the weights' card cannot be read ({error})", path=path, hint="Install capbench again"
        ) from error
    return card


def proposals(logits: Tensor, deltas: Tensor, size: tuple[int, int], count: int) -> Tensor:
    """The first stage's boxes (at most ``count``, 4) of one image; see :func:`hf_proposals`."""
    stride = SampleFRCNN.stride_proposals
    anchors = bx.centred_anchors(SampleFRCNN.anchor_sizes, SampleFRCNN.anchor_ratios).to(logits.device) + stride / 2
    return hf_proposals(logits, deltas, anchors, size, stride=stride, before=400, after=count, nms=0.7, min_size=4.0)[0]


class SampleDetector(Network):
    """Finds the sample's objects and their colours (as attributes)."""

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
        """Fill the network; see :func:`capbench.features.detectors.base.load_detector`."""
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
                path=checkpoint.path,
                hint="Install capbench again",
            )
        network = SampleFRCNN(len(classes), len(colours))
        fit_state(network, checkpoint.tensors, checkpoint.path)
        return cls(network, classes, colours, checkpoint.sha256, device, options)

    def preprocessing_line(self) -> str:
        """How a picture is prepared, in words."""
        return f"rgb / 127.5 - 1, bilinear longer side {self.preprocessor.side}"

    def mode_line(self) -> str:
        """What is done with the network's outputs, in words."""
        o = self.options
        return f"hf nms {','.join(f'{t:g}' for t in o.nms)} {o.min_boxes}-{o.max_boxes}, rpn 0.7 400-{o.proposals}"

    def detect(self, prepared: Sequence[Prepared]) -> list[RegionFeatures]:
        """The regions of prepared pictures; see :meth:`Detector.detect`."""
        self.check_batch(len(prepared))
        if not prepared:
            return []
        with forward_pass(self.device, self.precision):
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
            image.height,
            image.width,
            numpy32(chosen.boxes),
            numpy32(outputs.features[chosen.rows]),
            class_ids=chosen.class_ids.int().cpu().numpy(),
            class_scores=numpy32(chosen.class_scores),
            attribute_ids=colours.indices.int().cpu().numpy(),
            attribute_scores=numpy32(colours.values),
        )

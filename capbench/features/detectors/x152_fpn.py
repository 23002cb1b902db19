"""fc6 features of the ResNeXt-152 FPN detector, as they were extracted for ViLBERT (Lu et al., CVPR 2020).

Images of 800/1333 pixels, padded to multiples of 32; inclusive boxes; of 1000 proposals the 100 with the best class
scores after class-wise suppression at 0.5 are kept, with no least confidence.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from capbench.errors import UsageError
from capbench.features.detectors import boxes as bx
from capbench.features.detectors.base import (
    Network,
    forward_pass,
    numpy32,
    random_seed,
    read_names,
    region_features,
    weights_file,
)
from capbench.features.detectors.images import Prepared, ShortestEdge, pad_batch
from capbench.features.detectors.options import NetworkOptions
from capbench.models.checkpoints import read_checkpoint
from capbench.models.x152_fpn import X152FPN, X152Config, load_x152, random_x152
from capbench.options import Count, File, Number, option

if TYPE_CHECKING:
    from capbench.features.records import RegionFeatures

__all__ = ["X152Detector", "X152Options", "level_proposals", "select"]

_ANCHOR_SIZES = (32, 64, 128, 256, 512)


@dataclasses.dataclass(frozen=True)
class X152Options(NetworkOptions):
    """Options, with the values of the published extraction."""

    shorter: int = option(800, Count(1), "pixels of an image's shorter side")
    longer: int = option(1333, Count(1), "the most pixels of its longer side")
    boxes: int = option(100, Count(1), "regions of an image")
    nms: float = option(0.5, Number(0, 1), "largest IoU of regions within a class")
    rpn_nms: float = option(0.7, Number(0, 1), "largest IoU of proposals within a level")
    rpn_before: int = option(1000, Count(1), "proposals of a level that go into suppression")
    rpn_after: int = option(1000, Count(1), "proposals that come out of it, and in the end of all levels together")
    classes: str | None = option(None, File("class names"), "one name a line, in the weights' order")


def level_proposals(
    outputs: Sequence[tuple[Tensor, Tensor]],
    size: tuple[int, int],
    *,
    before: int = 1000,
    after: int = 1000,
    nms: float = 0.7,
) -> Tensor:
    """Proposals of one image over all pyramid levels, best first.

    Args:
        outputs: of each level objectness logits (3, h, w) and deltas (12, h, w).
        size: height and width of the image in the network's pixels, without padding.
        before: proposals of a level that go into its suppression.
        after: proposals that come out of each level, and in the end of all together.
        nms: largest IoU within a level.

    Returns:
        Inclusive boxes (n, 4).
    """
    level_boxes, level_scores = [], []
    for (logits, deltas), stride, side in zip(outputs, X152FPN.strides, _ANCHOR_SIZES, strict=True):
        count = len(logits)
        anchors = bx.caffe_anchors(stride, scales=(side / stride,)).to(logits.device)
        values = logits.float().permute(1, 2, 0).reshape(-1)
        moves = deltas.float().reshape(count, 4, *deltas.shape[1:]).permute(2, 3, 0, 1).reshape(-1, 4)
        order = values.sort(descending=True, stable=True).indices[:before]
        cells = bx.grid(anchors, logits.shape[1], logits.shape[2], stride)[order]
        boxes = bx.clip(bx.decode(cells, moves[order], inclusive=True, last_pixel=True), *size, inclusive=True)
        scores = values[order]
        wide = bx.wide_enough(boxes, 0.0, inclusive=True)
        boxes, scores = boxes[wide], scores[wide]
        keep = bx.nms(boxes, scores, nms, inclusive=True)[:after]
        level_boxes.append(boxes[keep])
        level_scores.append(scores[keep])
    best = torch.cat(level_scores).sort(descending=True, stable=True).indices[:after]
    return torch.cat(level_boxes)[best]


def select(regions: Tensor, probabilities: Tensor, *, nms: float = 0.5, count: int = 100) -> Tensor:
    """The rows of the ``count`` regions with the best class scores after class-wise suppression, best first.

    Args:
        regions: inclusive boxes (n, 4) in pixels of the original image.
        probabilities: (n, classes), without the background.
        nms: largest IoU within a class.
        count: how many to keep; equal scores stand in the regions' order.
    """
    best = bx.best_class_scores(regions, probabilities, nms, inclusive=True)
    return best.sort(descending=True, stable=True).indices[:count]


class X152Detector(Network):
    """The detector ``x152-fpn``."""

    name = "x152-fpn"
    options_class = X152Options
    options: X152Options

    def __init__(self, network: X152FPN, sha256: str, device: str, options: X152Options) -> None:
        super().__init__(options, name=type(self).name, weights_sha256=sha256, device=device)
        if options.boxes > options.rpn_after:
            raise UsageError(f"x152-fpn: boxes={options.boxes} is not between 1 and rpn_after={options.rpn_after}")
        self.feature_size = network.config.hidden
        self.class_names = read_names(options.classes, network.config.outputs - 1, "classes")
        self.network = network.to(device).eval()
        self.preprocessor: ShortestEdge = ShortestEdge(
            options.shorter, options.longer, caffe=True, multiple=X152FPN.multiple
        )

    @classmethod
    def open(cls, options: Any, *, weights: str | os.PathLike[str] | None, device: str, variant: str) -> Self:
        """Build the network that the weights are of; see :func:`capbench.features.detectors.base.load_detector`."""
        seed = random_seed(weights)
        if seed is not None:
            return cls(random_x152(X152Config(), seed), f"random:{seed}", device, options)
        checkpoint = read_checkpoint(weights_file(cls.name, weights))
        return cls(load_x152(checkpoint.tensors, checkpoint.path), checkpoint.sha256, device, options)

    def preprocessing_line(self) -> str:
        """How a picture is prepared, in words."""
        return self.preprocessor.line()

    def mode_line(self) -> str:
        """What is done with the network's outputs, in words."""
        o = self.options
        return f"fc6 nms {o.nms:g} {o.boxes}, rpn {o.rpn_nms:g} {o.rpn_before}-{o.rpn_after}"

    def detect(self, prepared: Sequence[Prepared]) -> list[RegionFeatures]:
        """The regions of prepared pictures; see :meth:`Detector.detect`."""
        self.check_batch(len(prepared))
        if not prepared:
            return []
        with forward_pass(self.device, self.precision):
            batch = torch.from_numpy(pad_batch(prepared, X152FPN.multiple)).to(self.device)
            levels = self.network.features(batch)
            outputs = self.network.propose(levels)
            records = []
            for i, image in enumerate(prepared):
                image_outputs = [(logits[i], deltas[i]) for logits, deltas in outputs]
                records.append(self._one([level[i : i + 1] for level in levels], image_outputs, image))
        return records

    def _one(
        self, levels: Sequence[Tensor], outputs: Sequence[tuple[Tensor, Tensor]], image: Prepared
    ) -> RegionFeatures:
        o = self.options
        _, h, w = image.pixels.shape
        regions = level_proposals(outputs, (h, w), before=o.rpn_before, after=o.rpn_after, nms=o.rpn_nms)
        second = self.network.describe(self.network.pool(levels, regions))
        probabilities = second.classes.float().softmax(dim=1)[:, 1:]
        original = regions / image.scale
        rows = select(original, probabilities, nms=o.nms, count=o.boxes)
        scores, ids = probabilities[rows].max(dim=1)
        return region_features(
            image.height,
            image.width,
            numpy32(original[rows]),
            numpy32(second.features[rows]),
            class_ids=ids.int().cpu().numpy(),
            class_scores=numpy32(scores),
        )

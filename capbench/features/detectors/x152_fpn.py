"""fc6 features of the ResNeXt-152 FPN detector, as they were extracted for ViLBERT (Lu et al., CVPR 2020).

Images of 800/1333 pixels, padded to multiples of 32; inclusive boxes; of 1000 proposals the 100 with the best class
scores after class-wise suppression at 0.5 are kept, with no least confidence.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

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
    settings,
    weights_file,
)
from capbench.features.detectors.images import Prepared, ShortestEdge, pad_batch
from capbench.models.checkpoints import read_checkpoint
from capbench.models.x152_fpn import X152FPN, X152Config, load_x152, random_x152

if TYPE_CHECKING:
    from capbench.features.records import RegionFeatures

__all__ = ["X152Settings", "level_proposals", "load", "select"]

_ANCHOR_SIZES = (32, 64, 128, 256, 512)


@dataclasses.dataclass(frozen=True)
class X152Settings:
    """Options, with the values of the published extraction."""

    shorter: int = 800
    longer: int = 1333
    boxes: int = 100
    nms: float = 0.5
    rpn_nms: float = 0.7
    rpn_before: int = 1000
    rpn_after: int = 1000
    classes: str = ""
    batch: int = 1
    precision: str = "float32"


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
    every, scores = [], []
    for (logits, deltas), stride, side in zip(outputs, X152FPN.strides, _ANCHOR_SIZES, strict=True):
        count = len(logits)
        anchors = bx.caffe_anchors(stride, scales=(side / stride,)).to(logits.device)
        values = logits.float().permute(1, 2, 0).reshape(-1)
        moves = deltas.float().reshape(count, 4, *deltas.shape[1:]).permute(2, 3, 0, 1).reshape(-1, 4)
        order = values.sort(descending=True, stable=True).indices[:before]
        cells = bx.grid(anchors, logits.shape[1], logits.shape[2], stride)[order]
        found = bx.clip(bx.decode(cells, moves[order], inclusive=True, last_pixel=True), *size, inclusive=True)
        values = values[order]
        wide = bx.wide_enough(found, 0.0, inclusive=True)
        found, values = found[wide], values[wide]
        keep = bx.nms(found, values, nms, inclusive=True)[:after]
        every.append(found[keep])
        scores.append(values[keep])
    best = torch.cat(scores).sort(descending=True, stable=True).indices[:after]
    return torch.cat(every)[best]


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


class _X152(Network):
    def __init__(self, network: X152FPN, sha256: str, device: str, options: X152Settings) -> None:
        super().__init__(
            name="x152-fpn", weights_sha256=sha256, device=device, batch=options.batch, precision=options.precision
        )
        if not 1 <= options.boxes <= options.rpn_after:
            raise UsageError(f"x152-fpn: boxes={options.boxes} is not between 1 and rpn_after={options.rpn_after}")
        self.options = options
        self.feature_size = network.config.hidden
        self.class_names = read_names(options.classes, network.config.outputs - 1, "classes")
        self.network = network.to(device).eval()
        self.preprocessor: ShortestEdge = ShortestEdge(
            options.shorter, options.longer, caffe=True, multiple=X152FPN.multiple
        )

    def preprocessing_line(self) -> str:
        """How a picture is prepared, in words."""
        return self.preprocessor.line()

    def mode_line(self) -> str:
        """What is done with the network's outputs, in words."""
        o = self.options
        return f"fc6 nms {o.nms:g} {o.boxes}, rpn {o.rpn_nms:g} {o.rpn_before}-{o.rpn_after}"

    def detect(self, prepared: Sequence[Prepared]) -> list[RegionFeatures]:
        """The regions of some prepared pictures; see :meth:`Detector.detect`."""
        self.check_batch(len(prepared))
        if not prepared:
            return []
        with forward_pass(self.device, self.precision):
            batch = torch.from_numpy(pad_batch(prepared, X152FPN.multiple)).to(self.device)
            levels = self.network.features(batch)
            outputs = self.network.propose(levels)
            found = []
            for i, image in enumerate(prepared):
                mine = [(logits[i], deltas[i]) for logits, deltas in outputs]
                found.append(self._one([level[i : i + 1] for level in levels], mine, image))
        return found

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


def load(*, weights: str | os.PathLike[str] | None, device: str, options: Mapping[str, Any]) -> Network:
    """Open ``x152-fpn``; see :func:`capbench.features.detectors.base.load_detector`."""
    chosen = settings(X152Settings, "x152-fpn", options)
    seed = random_seed(weights)
    if seed is not None:
        return _X152(random_x152(X152Config(), seed), f"random:{seed}", device, chosen)
    found = read_checkpoint(weights_file("x152-fpn", weights))
    return _X152(load_x152(found.tensors, found.path), found.sha256, device, chosen)

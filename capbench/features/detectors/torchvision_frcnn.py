"""Box-head features of torchvision's ``fasterrcnn_resnet50_fpn_v2`` (COCO), a maintained network with public weights.

Li et al., Benchmarking Detection Transfer Learning with Vision Transformers, 2021 (the improved recipe). A region is
the regressed box of a proposal's best class, selected as in HF mode of the bottom-up detector; its feature is the box
head's output for the proposal (1024-d).
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from capbench.core.options import Count, option
from capbench.features.detectors.base import (
    Network,
    NetworkOptions,
    Numbers,
    check_box_limits,
    random_seed,
    region_features,
    weights_file,
)
from capbench.features.detectors.bottom_up import hf_detections
from capbench.features.detectors.images import Prepared, TorchvisionPreparation, pad_batch
from capbench.weights.checkpoints import fit_state, read_checkpoint

if TYPE_CHECKING:
    from capbench.features.records import RegionFeatures

_MULTIPLE = 32


@dataclasses.dataclass(frozen=True)
class TorchvisionOptions(NetworkOptions):
    """Options of the torchvision detector."""

    shorter: int = option(800, Count(1), "pixels of an image's shorter side")
    longer: int = option(1333, Count(1), "maximum pixels of its longer side")
    min_boxes: int = option(36, Count(1), "minimum number of regions per image")
    max_boxes: int = option(36, Count(1), "maximum number of regions per image")
    nms: tuple[float, ...] = option((0.5, 0.6, 0.7), Numbers(maximum=1), "maximum IoU of regions, tried in turn")


class TorchvisionFRCNN(Network):
    """The detector ``torchvision-frcnn``."""

    name = "torchvision-frcnn"
    options_class = TorchvisionOptions
    options: TorchvisionOptions

    def __init__(self, network: Any, sha256: str, device: str, options: TorchvisionOptions) -> None:
        super().__init__(options, name=type(self).name, weights_sha256=sha256, device=device)
        check_box_limits(type(self).name, options.min_boxes, options.max_boxes)
        from torchvision.models.detection import FasterRCNN_ResNet50_FPN_V2_Weights

        self.network = network.to(device).eval()
        self.feature_size = network.roi_heads.box_predictor.cls_score.in_features
        self.class_names = tuple(FasterRCNN_ResNet50_FPN_V2_Weights.COCO_V1.meta["categories"][1:])
        self.preprocessor: TorchvisionPreparation = TorchvisionPreparation(options.shorter, options.longer)

    @classmethod
    def open(cls, options: Any, *, weights: str | os.PathLike[str] | None, device: str, variant: str) -> Self:
        """Load torchvision's network; see :func:`capbench.features.detectors.base.load_detector`."""
        from torchvision.models.detection import fasterrcnn_resnet50_fpn_v2

        seed = random_seed(weights)
        checkpoint = None if seed is not None else read_checkpoint(weights_file(cls.name, weights))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed or 0)
            network = fasterrcnn_resnet50_fpn_v2(weights=None, weights_backbone=None)
        if checkpoint is None:
            return cls(network, f"random:{seed}", device, options)
        fit_state(network, checkpoint.tensors, checkpoint.path)
        return cls(network, checkpoint.sha256, device, options)

    def preprocessing_line(self) -> str:
        """The preprocessing, for the fingerprint."""
        o = self.options
        return f"rgb ImageNet mean/std, bilinear floor {o.shorter}/{o.longer} pad {_MULTIPLE}"

    def mode_line(self) -> str:
        """The post-processing, for the fingerprint."""
        o = self.options
        return f"hf nms {','.join(f'{t:g}' for t in o.nms)} {o.min_boxes}-{o.max_boxes}, torchvision rpn"

    def regions(self, prepared: Sequence[Prepared]) -> list[RegionFeatures]:
        """The regions of prepared images."""
        from torchvision.models.detection.image_list import ImageList

        network = self.network
        batch = torch.from_numpy(pad_batch(prepared, _MULTIPLE)).to(self.device)
        sizes = [(p.pixels.shape[1], p.pixels.shape[2]) for p in prepared]
        # torchvision's RoIAlign and NMS have no reduced precision on every device.
        maps = {name: level.float() for name, level in network.backbone(batch).items()}
        regions, _ = network.rpn(ImageList(batch, sizes), maps)
        records = []
        for i, image in enumerate(prepared):
            image_maps = {name: level[i : i + 1] for name, level in maps.items()}
            boxes = regions[i].float()
            if len(boxes) == 0:
                boxes = torch.tensor([[0.0, 0.0, float(sizes[i][1]), float(sizes[i][0])]], device=batch.device)
            pooled = network.roi_heads.box_roi_pool(image_maps, [boxes], [sizes[i]])
            features = network.roi_heads.box_head(pooled)
            classes, deltas = network.roi_heads.box_predictor(features)
            records.append(self._record(boxes, features, classes, deltas, image))
        return records

    def _record(
        self, boxes: Tensor, features: Tensor, classes: Tensor, deltas: Tensor, image: Prepared
    ) -> RegionFeatures:
        o = self.options
        _, h, w = image.pixels.shape
        chosen = hf_detections(
            boxes,
            torch.cat([classes[:, 1:], classes[:, :1]], dim=1),  # the background moves from first to last
            deltas[:, 4:],
            (h, w),
            (image.scale_y, image.scale_x),
            nms=o.nms,
            min_boxes=o.min_boxes,
            max_boxes=o.max_boxes,
        )
        return region_features(
            image, chosen.boxes, features[chosen.rows], class_ids=chosen.class_ids, class_scores=chosen.class_scores
        )

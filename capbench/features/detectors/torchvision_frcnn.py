"""Box-head features of torchvision's ``fasterrcnn_resnet50_fpn_v2`` (COCO), a maintained network with public weights.

Li et al., Benchmarking Detection Transfer Learning with Vision Transformers, 2021 (the improved recipe). A region is
the regressed box of a proposal's best class, selected as in HF mode of the bottom-up detector; its feature is the box
head's output for the proposal (1024-d).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from capbench.features.detectors.base import HFOptions, Network, check_box_limits
from capbench.features.detectors.box_selection import hf_chosen
from capbench.features.detectors.images import Prepared, TorchvisionPreparation, pad_batch
from capbench.weights.checkpoints import Checkpoint, fit_state

if TYPE_CHECKING:
    from capbench.features.records import RegionFeatures

_MULTIPLE = 32


class TorchvisionFRCNN(Network):
    """The detector ``torchvision-frcnn``."""

    name = "torchvision-frcnn"
    options_class = HFOptions
    options: HFOptions

    def __init__(self, name: str, network: Any, sha256: str, device: str, options: HFOptions) -> None:
        from torchvision.models.detection import FasterRCNN_ResNet50_FPN_V2_Weights

        super().__init__(name, network, sha256, device, options)
        o = options
        check_box_limits(name, o.min_boxes, o.max_boxes)
        self.feature_size = network.roi_heads.box_predictor.cls_score.in_features
        self.class_names = tuple(FasterRCNN_ResNet50_FPN_V2_Weights.COCO_V1.meta["categories"][1:])
        self.preprocessor: TorchvisionPreparation = TorchvisionPreparation(o.shorter, o.longer)
        self.preprocessing = f"rgb ImageNet mean/std, bilinear floor {o.shorter}/{o.longer} pad {_MULTIPLE}"
        self.mode = f"{o.mode()}, torchvision rpn"

    @classmethod
    def build(cls, options: Any, variant: str, checkpoint: Checkpoint | None) -> Any:
        from torchvision.models.detection import fasterrcnn_resnet50_fpn_v2

        network = fasterrcnn_resnet50_fpn_v2(weights=None, weights_backbone=None)
        if checkpoint is not None:
            fit_state(network, checkpoint.tensors, checkpoint.path)
        return network

    def regions(self, prepared: Sequence[Prepared]) -> list[RegionFeatures]:
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
            height, width = sizes[i]
            boxes = regions[i].float()
            if len(boxes) == 0:
                boxes = boxes.new_tensor([[0, 0, width, height]])  # the whole image
            features = network.roi_heads.box_head(network.roi_heads.box_roi_pool(image_maps, [boxes], [sizes[i]]))
            classes, deltas = network.roi_heads.box_predictor(features)
            # The background moves from first to last.
            logits = torch.cat([classes[:, 1:], classes[:, :1]], dim=1)
            chosen = hf_chosen(image, self.options, boxes, logits, deltas[:, 4:])
            records.append(chosen.record(image, features))
        return records

"""Faster R-CNN with a ResNet-101 C4 backbone and an attribute head, as trained on Visual Genome.

Anderson et al., Bottom-Up and Top-Down Attention for Image Captioning and Visual Question Answering, CVPR 2018
(Section 3.1); Ren et al., Faster R-CNN, NeurIPS 2015; He et al., Deep Residual Learning, CVPR 2016.

``capbench/features/detectors/bottom_up.py`` selects boxes from its outputs, in the two published ways. Parameters have
the names of the published weights in detectron2's form; every size is read from the weights.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor, nn

from capbench.core.errors import ModelError
from capbench.weights.checkpoints import Sizes, bottom_up_names, fit_state, is_bottom_up

_ATTRIBUTE_NAMES = {"cls_embed": "cls_embedding", "attr_linear1": "fc_attr", "attr_linear2": "attr_score"}


@dataclasses.dataclass(frozen=True)
class BottomUpConfig:
    """Sizes of the network; defaults of the published weights (ResNet-101, 1600 classes, 400 attributes)."""

    blocks: tuple[int, int, int] = (3, 4, 23)  # residual blocks of res2, res3, res4
    stem: int = 64  # channels of the first convolution
    bottleneck: int = 64  # channels inside res2's blocks; they double from stage to stage
    res2: int = 256  # output channels of res2; they double from stage to stage
    groups: int = 1  # groups of the 3 x 3 convolutions
    rpn: int = 512  # channels of the proposal network
    anchors: int = 12  # anchors per cell
    objectness: int = 1  # logits per anchor: 1 (sigmoid), or 2 (softmax; all background logits first)
    outputs: int = 1601  # class logits, background included
    box_outputs: int = 1600  # sets of four box deltas: ``outputs``, ``outputs - 1``, or 1 (class-agnostic)
    embedding: int = 256  # size of a class's embedding in the attribute head; 0: no attribute head
    attribute_hidden: int = 512  # hidden units of the attribute head
    attribute_outputs: int = 401  # attribute logits, "no attribute" included

    @property
    def feature_size(self) -> int:
        """Channels of res5: the size of a region's feature."""
        return 8 * self.res2

    @property
    def background_first(self) -> bool:
        """True if class 0 is the background, as in Caffe; such weights have class-wise boxes for it."""
        return self.box_outputs == self.outputs


class HeadOutputs(NamedTuple):
    """Outputs of the second stage for r regions."""

    features: Tensor  # (r, d), res5 averaged over space
    classes: Tensor  # logits (r, outputs)
    boxes: Tensor  # deltas (r, 4 * box_outputs)
    attributes: Tensor | None  # logits (r, attribute_outputs)


class _Conv(nn.Conv2d):
    """A convolution without bias, then batch normalisation."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, dilation: int = 1, groups: int = 1):
        padding = dilation * (kernel // 2)
        super().__init__(inputs, outputs, kernel, stride, padding, dilation, groups, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        normalised: Tensor = self.norm(super().forward(x))
        return normalised


class _Block(nn.Module):
    """Convolutions of 1 x 1 (with the stride, as in Caffe), 3 x 3 and 1 x 1, with a shortcut."""

    def __init__(self, inputs: int, inner: int, outputs: int, stride: int, dilation: int, groups: int) -> None:
        super().__init__()
        self.shortcut = _Conv(inputs, outputs, 1, stride) if inputs != outputs else None
        self.conv1 = _Conv(inputs, inner, 1, stride)
        self.conv2 = _Conv(inner, inner, 3, 1, dilation, groups)
        self.conv3 = _Conv(inner, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.conv1(x))
        y = F.relu(self.conv2(y))
        y = self.conv3(y)
        return F.relu(y + (x if self.shortcut is None else self.shortcut(x)))


def _stage(config: BottomUpConfig, number: int, blocks: int, stride: int, dilation: int = 1) -> nn.Sequential:
    """Stage res2 (``number`` 0) to res5 (3)."""
    outputs, inner = config.res2 << number, config.bottleneck << number
    inputs = config.stem if number == 0 else outputs // 2
    make = (dilation, config.groups)
    first = _Block(inputs, inner, outputs, stride, *make)
    return nn.Sequential(first, *(_Block(outputs, inner, outputs, 1, *make) for _ in range(blocks - 1)))


class _Stem(nn.Module):
    def __init__(self, config: BottomUpConfig) -> None:
        super().__init__()
        self.conv1 = _Conv(3, config.stem, 7, 2)

    def forward(self, x: Tensor) -> Tensor:
        # Caffe's pooling has no padding and rounds up.
        return F.max_pool2d(F.relu(self.conv1(x)), 3, 2, padding=0, ceil_mode=True)


def _backbone(config: BottomUpConfig) -> nn.Sequential:
    """Images (n, 3, h, w) to res4 (n, 1024, h/16, w/16)."""
    parts: dict[str, nn.Module] = {"stem": _Stem(config)}  # (n, 64, h/4, w/4)
    parts["res2"] = _stage(config, 0, config.blocks[0], 1)  # (n, 256, h/4, w/4)
    parts["res3"] = _stage(config, 1, config.blocks[1], 2)  # (n, 512, h/8, w/8)
    parts["res4"] = _stage(config, 2, config.blocks[2], 2)
    return nn.Sequential(OrderedDict(parts))


class _ProposalHead(nn.Module):
    def __init__(self, config: BottomUpConfig) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4 * config.res2, config.rpn, 3, padding=1)
        self.objectness_logits = nn.Conv2d(config.rpn, config.anchors * config.objectness, 1)
        self.anchor_deltas = nn.Conv2d(config.rpn, config.anchors * 4, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = F.relu(self.conv(x))
        return self.objectness_logits(hidden), self.anchor_deltas(hidden)


class _Predictor(nn.Module):
    def __init__(self, config: BottomUpConfig) -> None:
        super().__init__()
        size = config.feature_size
        self.cls_score = nn.Linear(size, config.outputs)
        self.bbox_pred = nn.Linear(size, 4 * config.box_outputs)
        self.has_attributes = config.embedding > 0
        if self.has_attributes:
            self.cls_embedding = nn.Embedding(config.outputs, config.embedding)
            self.fc_attr = nn.Linear(size + config.embedding, config.attribute_hidden)
            self.attr_score = nn.Linear(config.attribute_hidden, config.attribute_outputs)

    def forward(self, features: Tensor) -> HeadOutputs:
        classes = self.cls_score(features)  # (r, 1601)
        attributes = None
        if self.has_attributes:
            # The attribute head receives the arg-max class, including the background.
            embedded = self.cls_embedding(classes.argmax(dim=1))  # (r, 256)
            hidden = F.relu(self.fc_attr(torch.cat([features, embedded], dim=1)))  # (r, 2304) -> (r, 512)
            attributes = self.attr_score(hidden)  # (r, 401)
        return HeadOutputs(features, classes, self.bbox_pred(features), attributes)


class BottomUp(nn.Module):
    """The network, in three steps: :meth:`features`, :meth:`propose`, :meth:`describe`."""

    stride = 16
    pooled = 14
    min_side = 3  # Caffe's pooling requires two rows, which the first convolution computes from three pixels

    def __init__(self, config: BottomUpConfig) -> None:
        super().__init__()
        self.config = config
        self.backbone = _backbone(config)
        # Parts by the names of the published weights. The anchors of the weights are all zeros without any.
        anchors = nn.Module()
        anchors.register_buffer("0", torch.zeros(config.anchors, 4))
        generator = nn.ModuleDict({"cell_anchors": anchors})
        self.proposal_generator = nn.ModuleDict({"anchor_generator": generator, "rpn_head": _ProposalHead(config)})
        res5 = _stage(config, 3, 3, stride=1, dilation=2)
        self.roi_heads = nn.ModuleDict({"res5": res5, "box_predictor": _Predictor(config)})

    @property
    def cell_anchors(self) -> Tensor:
        """Anchors in the weights, (anchors, 4); all zeros if there are none."""
        return self.get_buffer("proposal_generator.anchor_generator.cell_anchors.0")

    def features(self, images: Tensor) -> Tensor:
        """Images (n, 3, h, w), BGR minus the mean, to res4 (n, 1024, h/16, w/16)."""
        res4: Tensor = self.backbone(images)
        return res4

    def propose(self, res4: Tensor) -> tuple[Tensor, Tensor]:
        """Objectness logits (n, anchors * objectness, h, w) and anchor deltas (n, anchors * 4, h, w)."""
        logits, deltas = self.proposal_generator["rpn_head"](res4)
        return logits, deltas

    def pool(self, res4: Tensor, boxes: list[Tensor]) -> Tensor:
        """RoIPool: regions (r, 1024, 14, 14) of boxes in pixels of the network's input, (r_i, 4) for each image."""
        from torchvision.ops import roi_pool

        # torchvision's kernel has no reduced precision on the CPU.
        pooled: Tensor = roi_pool(res4.float(), [b.float() for b in boxes], self.pooled, 1 / self.stride)
        return pooled.to(res4.dtype)

    def describe(self, pooled: Tensor) -> HeadOutputs:
        """Pooled regions (r, 1024, 14, 14) to features, class and attribute logits, box deltas."""
        res5 = self.roi_heads["res5"](pooled)  # (r, 2048, 14, 14)
        outputs: HeadOutputs = self.roi_heads["box_predictor"](res5.mean(dim=(2, 3)))
        return outputs


def _sizes(tensors: Mapping[str, Tensor], path: str | os.PathLike[str]) -> BottomUpConfig:
    """The network's sizes, from its weights."""
    sizes = Sizes(tensors, path, "Pass the weights of the Visual Genome Faster R-CNN in detectron2's names")
    predictor, rpn, res2 = "roi_heads.box_predictor.", "proposal_generator.rpn_head.", "backbone.res2."
    inner, in_group = sizes.width(res2 + "0.conv2.norm.weight"), sizes.shape(res2 + "0.conv2.weight", 4)[1]
    anchors, logits = sizes.width(rpn + "anchor_deltas.bias", 4), sizes.width(rpn + "objectness_logits.bias")
    outputs, box_outputs = sizes.width(predictor + "cls_score.bias"), sizes.width(predictor + "bbox_pred.bias", 4)
    for name, size, valid in (
        (f"{rpn}objectness_logits.bias", logits, (anchors, 2 * anchors)),
        (f"{predictor}bbox_pred.bias", 4 * box_outputs, (4, 4 * (outputs - 1), 4 * outputs)),
    ):
        if size not in valid:
            message = f"'{name}' has shape ({size},), which is none of {', '.join(f'({n},)' for n in valid)}"
            raise ModelError(message, code="wrong-weights", value=name, path=path)
    attributes = predictor + "cls_embedding.weight" in tensors
    return BottomUpConfig(
        blocks=(sizes.blocks("backbone.res2"), sizes.blocks("backbone.res3"), sizes.blocks("backbone.res4")),
        stem=sizes.width("backbone.stem.conv1.norm.weight"),
        bottleneck=inner,
        groups=inner // in_group if inner % in_group == 0 else 1,
        res2=sizes.width(res2 + "0.conv3.norm.weight"),
        rpn=sizes.width(rpn + "conv.bias"),
        anchors=anchors,
        objectness=logits // anchors,
        outputs=outputs,
        box_outputs=box_outputs,
        embedding=sizes.shape(predictor + "cls_embedding.weight", 2)[1] if attributes else 0,
        attribute_hidden=sizes.width(predictor + "fc_attr.bias") if attributes else 0,
        attribute_outputs=sizes.width(predictor + "attr_score.bias") if attributes else 0,
    )


def _network_name(name: str) -> str:
    """A published parameter name in the form of this network."""
    name = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))
    for theirs, ours in _ATTRIBUTE_NAMES.items():
        name = name.replace(f".box_predictor.{theirs}.", f".box_predictor.{ours}.")
    # Names without their module's prefix, which detectron2's suffix matching accepts.
    if re.match(r"(stem|res[234])\.", name):
        return f"backbone.{name}"
    if re.match(r"(res5|box_predictor)\.", name):
        return f"roi_heads.{name}"
    if re.match(r"(rpn_head|anchor_generator)\.", name):
        return f"proposal_generator.{name}"
    if re.match(r"(cls_score|bbox_pred|cls_embedding|fc_attr|attr_score)\.", name):
        return f"roi_heads.box_predictor.{name}"
    return name


_NOT_NEEDED = re.compile(r"(^|\.)(pixel_mean|pixel_std)$|^(iteration|__author__)$")


def load_bottom_up(tensors: Mapping[str, Tensor], path: str | os.PathLike[str] = "weights") -> BottomUp:
    """The network of weights with the names of detectron2's ports (``unc-nlp/frcnn-vg-finetuned``,
    ``faster_rcnn_from_caffe_attr.pkl``), or of the original Caffe net."""
    if is_bottom_up(tensors):
        tensors = bottom_up_names(tensors)
    renamed = {_network_name(name): tensor for name, tensor in tensors.items() if not _NOT_NEEDED.search(name)}
    network = BottomUp(_sizes(renamed, path))
    fit_state(network, renamed, path, optional=("cell_anchors.0",))
    return network

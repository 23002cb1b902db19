"""fc6 features of the ResNeXt-152 FPN detector, as extracted for ViLBERT (Lu et al., CVPR 2020).

Images have 800/1333 pixels, padded to multiples of 32; boxes are inclusive. Of 1000 proposals, the 100 with the best
class scores after class-wise suppression at 0.5 are selected, without a minimum confidence.

The network is a Faster R-CNN with a ResNeXt-152-32x8d backbone and a feature pyramid. Parameters have the names of
maskrcnn-benchmark's checkpoints; :func:`load_x152` also reads Detectron's blobs. All sizes follow from the weights.

References:
    Xie et al., Aggregated Residual Transformations, CVPR 2017.
    Lin et al., Feature Pyramid Networks, CVPR 2017.
    Lu et al., 12-in-1: Multi-Task Vision and Language Representation Learning, CVPR 2020 (used these features).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor, nn

from capbench.core.options import Count, File, Number, option
from capbench.features.detectors import boxes as bx
from capbench.features.detectors.base import Network, NetworkOptions, read_names, region_features
from capbench.features.detectors.box_selection import propose
from capbench.features.detectors.images import Prepared, ShortestEdge, pad_batch
from capbench.weights.checkpoints import Checkpoint, Sizes, fit_state

if TYPE_CHECKING:
    from capbench.features.records import RegionFeatures


@dataclass(frozen=True)
class X152Config:
    """Sizes of the network; the defaults are those of the published weights."""

    blocks: tuple[int, int, int, int] = (3, 8, 36, 3)  # residual blocks of the four stages
    stem: int = 64  # channels of the first convolution
    groups: int = 32  # groups of the 3 x 3 convolutions
    inner: int = 256  # channels inside the first stage's blocks (32 groups of 8); they double from stage to stage
    outer: int = 256  # output channels of the first stage; they double from stage to stage
    pyramid: int = 512  # channels of every pyramid level
    anchors: int = 3  # anchors per cell, on each of five levels
    hidden: int = 2048  # size of fc6 and fc7, and therefore of a region's feature
    outputs: int = 1601  # class logits, the background first
    box_outputs: int = 1601  # sets of four box deltas
    pooled: int = 7  # side of a pooled region


class _FrozenNorm(nn.Module):
    """Batch normalisation with fixed statistics and without epsilon, as in maskrcnn-benchmark."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        for name, value in (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)):
            self.register_buffer(name, torch.full((channels,), value))

    def forward(self, x: Tensor) -> Tensor:
        scale = self.get_buffer("weight") * self.get_buffer("running_var").rsqrt()
        shift = self.get_buffer("bias") - self.get_buffer("running_mean") * scale
        return x * scale[:, None, None].to(x.dtype) + shift[:, None, None].to(x.dtype)


def _plain(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)


class _Block(nn.Module):
    def __init__(self, inputs: int, inner: int, outputs: int, stride: int, groups: int) -> None:
        super().__init__()
        self.downsample: nn.Sequential | None = None
        if inputs != outputs:
            self.downsample = nn.Sequential(_plain(inputs, outputs, 1, stride), _FrozenNorm(outputs))
        self.conv1, self.bn1 = _plain(inputs, inner, 1), _FrozenNorm(inner)
        # ResNeXt has the stride in the 3 x 3 convolution.
        self.conv2, self.bn2 = _plain(inner, inner, 3, stride, groups), _FrozenNorm(inner)
        self.conv3, self.bn3 = _plain(inner, outputs, 1), _FrozenNorm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class _Stem(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = _plain(3, channels, 7, 2), _FrozenNorm(channels)

    def forward(self, x: Tensor) -> Tensor:
        return F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, padding=1)


class _Body(nn.Module):
    def __init__(self, config: X152Config) -> None:
        super().__init__()
        self.stem = _Stem(config.stem)
        inputs = config.stem
        for i, count in enumerate(config.blocks):
            outputs, inner = config.outer << i, config.inner << i
            first = _Block(inputs, inner, outputs, 1 if i == 0 else 2, config.groups)
            rest = (_Block(outputs, inner, outputs, 1, config.groups) for _ in range(count - 1))
            self.add_module(f"layer{i + 1}", nn.Sequential(first, *rest))
            inputs = outputs

    def forward(self, x: Tensor) -> list[Tensor]:
        x = self.stem(x)  # (n, 64, h/4, w/4)
        maps = []
        for i in range(1, 5):
            x = self.get_submodule(f"layer{i}")(x)  # (n, 256 * 2^(i-1), h/2^(i+1), w/2^(i+1))
            maps.append(x)
        return maps


class _Pyramid(nn.Module):
    def __init__(self, config: X152Config) -> None:
        super().__init__()
        for i in range(1, 5):
            self.add_module(f"fpn_inner{i}", nn.Conv2d(config.outer << (i - 1), config.pyramid, 1))
            self.add_module(f"fpn_layer{i}", nn.Conv2d(config.pyramid, config.pyramid, 3, padding=1))

    def forward(self, maps: Sequence[Tensor]) -> list[Tensor]:
        """Five levels (n, 512, h/4 ... h/64, w/4 ... w/64), finest first."""
        above: Tensor = self.get_submodule("fpn_inner4")(maps[3])
        levels = [self.get_submodule("fpn_layer4")(above)]
        for i in (3, 2, 1):
            above = self.get_submodule(f"fpn_inner{i}")(maps[i - 1]) + F.interpolate(above, scale_factor=2.0)
            levels.insert(0, self.get_submodule(f"fpn_layer{i}")(above))
        return [*levels, F.max_pool2d(levels[-1], 1, 2)]


class _ProposalHead(nn.Module):
    def __init__(self, config: X152Config) -> None:
        super().__init__()
        self.conv = nn.Conv2d(config.pyramid, config.pyramid, 3, padding=1)
        self.cls_logits = nn.Conv2d(config.pyramid, config.anchors, 1)
        self.bbox_pred = nn.Conv2d(config.pyramid, 4 * config.anchors, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = F.relu(self.conv(x))
        return self.cls_logits(hidden), self.bbox_pred(hidden)


class X152FPN(nn.Module):
    """The network, in three steps: :meth:`features`, :meth:`propose`, :meth:`describe`."""

    strides = (4, 8, 16, 32, 64)
    multiple = 32

    def __init__(self, config: X152Config) -> None:
        super().__init__()
        self.config = config
        self.backbone = nn.ModuleDict({"body": _Body(config), "fpn": _Pyramid(config)})
        self.rpn = nn.ModuleDict({"head": _ProposalHead(config)})
        size, hidden = config.pyramid * config.pooled**2, config.hidden
        extractor = nn.ModuleDict({"fc6": nn.Linear(size, hidden), "fc7": nn.Linear(hidden, hidden)})
        predictor = nn.ModuleDict({"cls_score": nn.Linear(hidden, config.outputs)})
        predictor["bbox_pred"] = nn.Linear(hidden, 4 * config.box_outputs)
        self.roi_heads = nn.ModuleDict({"box": nn.ModuleDict({"feature_extractor": extractor, "predictor": predictor})})

    def features(self, images: Tensor) -> list[Tensor]:
        """Images (n, 3, h, w), BGR minus the mean, sides multiples of 32, to five pyramid levels, finest first."""
        levels: list[Tensor] = self.backbone["fpn"](self.backbone["body"](images))
        return levels

    def propose(self, levels: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """Objectness logits (n, 3, h, w) and anchor deltas (n, 12, h, w) of each level."""
        return [self.rpn["head"](level) for level in levels]

    def pool(self, levels: Sequence[Tensor], boxes: Tensor) -> Tensor:
        """RoIAlign (r, 512, 7, 7) of inclusive boxes (r, 4), each on the level (1, 512, h, w) for its size."""
        from torchvision.ops import roi_align

        side = (boxes[:, 2:] - boxes[:, :2] + 1.0).prod(dim=1).clamp(min=0.0).sqrt()
        # Lin et al., equation 1, for levels 2 to 5.
        which = (4 + torch.log2(side / 224.0 + 1e-6)).floor().clamp(2, 5).long() - 2
        size = (len(boxes), levels[0].shape[1], self.config.pooled, self.config.pooled)
        result = torch.zeros(size, dtype=torch.float32, device=boxes.device)
        for i in range(4):
            rows = (which == i).nonzero()[:, 0]
            if len(rows):
                level, chosen = levels[i].float(), [boxes[rows].float()]
                scale = 1 / self.strides[i]
                result[rows] = roi_align(level, chosen, self.config.pooled, scale, sampling_ratio=2, aligned=False)
        return result

    def describe(self, pooled: Tensor) -> tuple[Tensor, Tensor]:
        """Pooled regions (r, 512, 7, 7) to fc6 features (after the ReLU) and class logits."""
        fc6 = F.relu(self.get_submodule("roi_heads.box.feature_extractor.fc6")(pooled.flatten(1)))  # (r, 2048)
        fc7 = F.relu(self.get_submodule("roi_heads.box.feature_extractor.fc7")(fc6))  # (r, 2048)
        return fc6, self.get_submodule("roi_heads.box.predictor.cls_score")(fc7)


_BRANCHES = {
    "1": ("downsample.0", "downsample.1"),
    "2a": ("conv1", "bn1"),
    "2b": ("conv2", "bn2"),
    "2c": ("conv3", "bn3"),
}
_HEADS = {
    "conv_rpn_fpn2": "rpn.head.conv",
    "rpn_cls_logits_fpn2": "rpn.head.cls_logits",
    "rpn_bbox_pred_fpn2": "rpn.head.bbox_pred",
    "fc6": "roi_heads.box.feature_extractor.fc6",
    "fc7": "roi_heads.box.feature_extractor.fc7",
    "cls_score": "roi_heads.box.predictor.cls_score",
    "bbox_pred": "roi_heads.box.predictor.bbox_pred",
}
_NOT_USED = re.compile(r"\.cell_anchors\.|attr|\.mask\.|\.keypoint\.")
_ENDS = {"w": "weight", "s": "weight", "b": "bias"}


def _from_detectron(name: str) -> str | None:
    """The network's name for one of Detectron's blobs; None for blobs that inference does not use."""
    if name == "conv1_w":
        return "backbone.body.stem.conv1.weight"
    if match := re.fullmatch(r"res_conv1_bn_([sb])", name):
        return f"backbone.body.stem.bn1.{_ENDS[match[1]]}"
    if match := re.fullmatch(r"res([2-5])_(\d+)_branch(1|2[abc])(_bn)?_([wsb])", name):
        layer = _BRANCHES[match[3]][1 if match[4] else 0]
        return f"backbone.body.layer{int(match[1]) - 1}.{match[2]}.{layer}.{_ENDS[match[5]]}"
    if match := re.fullmatch(r"fpn_(inner_)?res([2-5])_\d+_sum(?:_lateral)?_([wb])", name):
        return f"backbone.fpn.fpn_{'inner' if match[1] else 'layer'}{int(match[2]) - 1}.{_ENDS[match[3]]}"
    head, _, end = name.rpartition("_")
    return f"{_HEADS[head]}.{_ENDS[end]}" if head in _HEADS and end in ("w", "b") else None


def load_x152(tensors: Mapping[str, Tensor], path: str | os.PathLike[str] = "weights") -> X152FPN:
    """The network of weights with maskrcnn-benchmark's names, or Detectron's (``res2_0_branch2a_w``)."""
    detectron = "conv1_w" in tensors
    if detectron:
        names = {name: _from_detectron(name) for name in tensors}
    else:  # anchors are computed; attribute, mask and keypoint heads are not used
        names = {name: None if _NOT_USED.search(name) else name for name in tensors}
    renamed = {parameter: tensors[name] for name, parameter in names.items() if parameter is not None}
    hint = "Pass the weights of a Faster R-CNN with ResNeXt and FPN of maskrcnn-benchmark or Detectron"
    sizes, body, box = Sizes(renamed, path, hint), "backbone.body.", "roi_heads.box."
    inner, in_group = sizes.width(body + "layer1.0.bn2.weight"), sizes.shape(body + "layer1.0.conv2.weight", 4)[1]
    inputs = sizes.shape(box + "feature_extractor.fc6.weight", 2)[1]
    pyramid = sizes.width("backbone.fpn.fpn_inner1.bias")
    first, second, third, fourth = (sizes.blocks(f"{body}layer{layer}") for layer in range(1, 5))
    network = X152FPN(
        X152Config(
            blocks=(first, second, third, fourth),
            stem=sizes.width(body + "stem.bn1.weight"),
            groups=inner // in_group if inner % in_group == 0 else 1,
            inner=inner,
            outer=sizes.width(body + "layer1.0.bn3.weight"),
            pyramid=pyramid,
            anchors=sizes.width("rpn.head.cls_logits.bias"),
            hidden=sizes.width(box + "feature_extractor.fc6.bias"),
            outputs=sizes.width(box + "predictor.cls_score.bias"),
            box_outputs=sizes.width(box + "predictor.bbox_pred.bias", 4),
            pooled=max(round((inputs / pyramid) ** 0.5), 1),
        )
    )
    # Detectron folded the statistics into scale and shift.
    fit_state(network, renamed, path, optional=("running_mean", "running_var") if detectron else ())
    return network


_ANCHOR_SIZES = (32, 64, 128, 256, 512)


@dataclass(frozen=True)
class X152Options(NetworkOptions):
    """Options, with the values of the published extraction."""

    shorter: int = option(800, Count(1), "pixels of an image's shorter side")
    longer: int = option(1333, Count(1), "maximum pixels of its longer side")
    boxes: int = option(100, Count(1), "regions per image")
    nms: float = option(0.5, Number(0, 1), "maximum IoU of regions within a class")
    rpn_after: int = option(1000, Count(1), "maximum number of proposals after it, of each level and in total")
    classes: str | None = option(None, File("class names"), "one name per line, in the weights' order")


def level_proposals(
    outputs: Sequence[tuple[Tensor, Tensor]],  # objectness logits (3, h, w) and deltas (12, h, w) of each level
    size: tuple[int, int],  # height and width of the image in the network's pixels, without padding
    *,
    before: int = 1000,  # number of proposals of a level before suppression
    after: int = 1000,  # maximum number of proposals after suppression, of each level and in total
) -> Tensor:
    """Proposals of one image over all pyramid levels, best first: inclusive boxes (n, 4)."""
    levels = []
    for (logits, deltas), stride, side in zip(outputs, X152FPN.strides, _ANCHOR_SIZES, strict=True):
        anchors = bx.caffe_anchors(stride, scales=(side / stride,)).to(logits.device)
        levels.append(propose(logits, deltas, anchors, size, "detectron", stride=stride, before=before, after=after))
    boxes, scores = map(torch.cat, zip(*levels, strict=True))
    return boxes[scores.sort(descending=True, stable=True).indices[:after]]


class X152Detector(Network):
    """The detector ``x152-fpn``."""

    name = "x152-fpn"
    random = "random-2"
    options_class = X152Options
    options: X152Options

    def __init__(self, name: str, network: X152FPN, sha256: str, device: str, options: X152Options) -> None:
        super().__init__(name, network, sha256, device, options)
        o = options
        self.feature_size = network.config.hidden
        self.class_names = read_names(o.classes, network.config.outputs - 1, "classes")
        self.preprocessor: ShortestEdge = ShortestEdge(o.shorter, o.longer, caffe=True)
        self.preprocessing = f"{self.preprocessor.line()} pad {X152FPN.multiple}"
        self.mode = f"fc6 nms {o.nms:g} {o.boxes}, rpn 0.7 1000-{o.rpn_after}"

    @classmethod
    def build(cls, options: Any, variant: str, checkpoint: Checkpoint | None) -> X152FPN:
        if checkpoint is None:
            return X152FPN(X152Config())
        return load_x152(checkpoint.tensors, checkpoint.path)

    def regions(self, prepared: Sequence[Prepared]) -> list[RegionFeatures]:
        batch = torch.from_numpy(pad_batch(prepared, X152FPN.multiple)).to(self.device)
        levels = self.network.features(batch)
        outputs = self.network.propose(levels)
        records = []
        for i, image in enumerate(prepared):
            _, h, w = image.pixels.shape
            of_image = [(logits[i], deltas[i]) for logits, deltas in outputs]
            regions = level_proposals(of_image, (h, w), after=self.options.rpn_after)
            pooled = self.network.pool([level[i : i + 1] for level in levels], regions)
            features, classes = self.network.describe(pooled)
            probabilities = classes.float().softmax(dim=1)[:, 1:]
            boxes = regions / image.scale
            best = bx.best_class_scores(boxes, probabilities, self.options.nms, inclusive=True)
            rows = best.sort(descending=True, stable=True).indices[: self.options.boxes]
            scores, ids = probabilities[rows].max(dim=1)
            records.append(region_features(image, boxes[rows], features[rows], class_ids=ids, class_scores=scores))
        return records

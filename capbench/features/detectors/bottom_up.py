"""Bottom-up attention features (Anderson et al., CVPR 2018) in the two published families of post-processing.

*Caffe mode* is the authors' own: images of 600/1000 pixels and inclusive boxes; a region is a proposal, selected by its
best class score after class-wise suppression. *HF mode* is that of detectron2's and LXMERT's ports: 800/1333 pixels and
continuous boxes; a region is the regressed box of its best class, selected by suppression over all classes at
increasing thresholds. The features of the two differ, so the mode is part of the fingerprint.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor

from capbench.core.errors import ModelError, UsageError
from capbench.core.options import Count, File, Number, option
from capbench.features.detectors import boxes as bx
from capbench.features.detectors.base import HFOptions, Network, NetworkOptions, check_box_limits, read_names
from capbench.features.detectors.bottom_up_network import (
    BottomUp,
    BottomUpConfig,
    HeadOutputs,
    load_bottom_up,
)
from capbench.features.detectors.box_selection import (
    DELTA_WEIGHTS,
    Chosen,
    caffe_selection,
    hf_chosen,
    propose,
)
from capbench.features.detectors.images import Prepared, ShortestEdge, pad_batch
from capbench.weights.checkpoints import Checkpoint

if TYPE_CHECKING:
    from capbench.features.records import RegionFeatures


_REGIONS_AT_ONCE = 100  # in the second stage: limits memory; constant, so that results do not depend on it


@dataclasses.dataclass(frozen=True)
class BottomUpOptions(NetworkOptions):
    """Options of both modes."""

    rpn_after: int = option(300, Count(1), "maximum number of proposals after suppression")
    classes: str | None = option(None, File("class names"), "one name per line, in the weights' order")
    attributes: str | None = option(None, File("attribute names"), "one name per line, in the weights' order")


@dataclasses.dataclass(frozen=True)
class CaffeOptions(BottomUpOptions):
    """Options of Caffe mode, with the values of the published extraction of 10 to 100 boxes (the other has 36)."""

    shorter: int = option(600, Count(1), "pixels of an image's shorter side")
    longer: int = option(1000, Count(1), "maximum pixels of its longer side")
    min_boxes: int = option(10, Count(1), "minimum number of regions per image")
    max_boxes: int = option(100, Count(1), "maximum number of regions per image")
    threshold: float = option(0.2, Number(0, 1), "minimum class score of a region")
    nms: float = option(0.3, Number(0, 1), "maximum IoU of regions within a class")
    rpn_min_size: float = option(16.0, Number(0), "minimum side of a proposal in pixels of the image")

    def mode(self) -> str:
        """A description for a fingerprint."""
        return f"caffe {self.threshold:g} nms {self.nms:g} {self.min_boxes}-{self.max_boxes}"


@dataclasses.dataclass(frozen=True)
class BottomUpHFOptions(HFOptions, BottomUpOptions):
    """Options of HF mode."""

    rpn_min_size: float = option(0.0, Number(0), "minimum side of a proposal in the network's pixels")


class _BottomUp(Network):
    """Common part of both modes: preprocessing, first and second stage; a mode proposes and selects regions."""

    options: CaffeOptions | BottomUpHFOptions
    preprocessor: ShortestEdge
    random = "random-2"
    code: ClassVar[Literal["caffe", "detectron2"]]
    deltas: ClassVar[str] = ""  # how boxes are moved, for the fingerprint
    default_anchors: Tensor
    untrained: ClassVar[BottomUpConfig]

    def __init__(self, name: str, network: BottomUp, sha256: str, device: str, options: Any) -> None:
        super().__init__(name, network, sha256, device, options)
        o, config = options, network.config
        check_box_limits(name, o.min_boxes, o.max_boxes)
        if o.rpn_after < o.min_boxes:
            message = f"{name}: rpn_after={o.rpn_after} is less than min_boxes={o.min_boxes}"
            raise UsageError(message, code="conflict", value=o.rpn_after)
        # Ports of the Caffe weights contain the anchors.
        of_weights = bool(network.cell_anchors.any())
        anchors = network.cell_anchors.float() if of_weights else self.default_anchors
        if len(anchors) != config.anchors:
            message = f"the network has {config.anchors} anchors per cell, but its weights contain none"
            raise ModelError(message, code="wrong-weights", value=config.anchors)
        self.anchors = anchors.to(device)
        self.feature_size = config.feature_size
        self.class_names = read_names(o.classes, config.outputs - 1, "classes")
        self.attribute_names = read_names(o.attributes, max(config.attribute_outputs - 1, 0), "attributes")
        self.preprocessor = ShortestEdge(o.shorter, o.longer, caffe=self.code == "caffe")
        self.preprocessing = self.preprocessor.line()
        self.mode = f"{o.mode()}, rpn 0.7 6000-{o.rpn_after} min {o.rpn_min_size:g}{self.deltas}"
        self.mode += ", anchors of the weights" if of_weights else ""

    @classmethod
    def build(cls, options: Any, variant: str, checkpoint: Checkpoint | None) -> BottomUp:
        if checkpoint is None:
            return BottomUp(cls.untrained)
        return load_bottom_up(checkpoint.tensors, checkpoint.path)

    def regions(self, prepared: Sequence[Prepared]) -> list[RegionFeatures]:
        batch = torch.from_numpy(pad_batch(prepared, minimum=self.network.min_side)).to(self.device)
        res4 = self.network.features(batch)
        logits, deltas = self.network.propose(res4)
        records = []
        for i, image in enumerate(prepared):
            _, h, w = image.pixels.shape
            side = self.options.rpn_min_size * (image.scale if self.code == "caffe" else 1.0)
            limits: Any = {"after": self.options.rpn_after, "min_size": side}
            regions, _ = propose(logits[i], deltas[i], self.anchors, (h, w), self.code, **limits)
            if len(regions) == 0:
                # No proposals (a blank or tiny image): the whole image is the one region.
                regions = regions.new_tensor([[0, 0, w, h]])
            blocks = torch.split(regions, _REGIONS_AT_ONCE)
            parts = [self.network.describe(self.network.pool(res4[i : i + 1], [b])) for b in blocks]
            columns: list[Any] = [None if of[0] is None else torch.cat(of) for of in zip(*parts, strict=True)]
            outputs = HeadOutputs(*columns)
            chosen = self.choose(regions, outputs, image)
            more = {}
            if outputs.attributes is not None:
                scores, ids = self.attributes(outputs.attributes[chosen.rows].float()).max(dim=1)
                more = {"attribute_ids": ids, "attribute_scores": scores}
            records.append(chosen.record(image, outputs.features, **more))
        return records

    @abc.abstractmethod
    def choose(self, regions: Tensor, outputs: HeadOutputs, image: Prepared) -> Chosen:
        """The selected regions."""

    @abc.abstractmethod
    def attributes(self, logits: Tensor) -> Tensor:
        """Probabilities (n, attributes) of attributes from logits with "no attribute"."""


class BottomUpCaffe(_BottomUp):
    """Caffe mode."""

    name = "bottom-up-caffe"
    code = "caffe"
    options_class = CaffeOptions
    options: CaffeOptions
    default_anchors = bx.caffe_anchors()
    untrained = BottomUpConfig(objectness=2, box_outputs=1601)

    def choose(self, regions: Tensor, outputs: HeadOutputs, image: Prepared) -> Chosen:
        limits = {name: getattr(self.options, name) for name in ("threshold", "nms", "min_boxes", "max_boxes")}
        # Only the whole image as a region can exceed it, since its sides in pixels are rounded.
        original = bx.clip(regions / image.scale, image.height, image.width)
        probabilities = self._foreground(outputs.classes.float().softmax(dim=1))
        rows, _ = caffe_selection(original, probabilities, **limits)
        scores, ids = probabilities[rows].max(dim=1)
        return Chosen(rows, original[rows], ids, scores)

    def attributes(self, logits: Tensor) -> Tensor:
        """The logit "no attribute" is removed after the softmax."""
        return self._foreground(logits.softmax(dim=1))

    def _foreground(self, values: Tensor) -> Tensor:
        # Weights ported to detectron2 number the background last; a class-agnostic head gives no indication.
        config = self.network.config
        return values[:, :-1] if config.box_outputs == config.outputs - 1 else values[:, 1:]


class BottomUpHF(_BottomUp):
    """HF mode."""

    name = "bottom-up-hf"
    code = "detectron2"
    deltas = f", deltas {','.join(f'{weight:g}' for weight in DELTA_WEIGHTS)}"
    options_class = BottomUpHFOptions
    options: BottomUpHFOptions
    default_anchors = bx.centred_anchors()
    untrained = BottomUpConfig()

    @classmethod
    def build(cls, options: Any, variant: str, checkpoint: Checkpoint | None) -> BottomUp:
        network = super().build(options, variant, checkpoint)
        if network.config.background_first:
            message = "these weights number the background first, as Caffe's do"
            raise ModelError(message, code="wrong-weights", hint="Use the detector bottom-up-caffe")
        return network

    def choose(self, regions: Tensor, outputs: HeadOutputs, image: Prepared) -> Chosen:
        return hf_chosen(image, self.options, regions, outputs.classes, outputs.boxes)

    def attributes(self, logits: Tensor) -> Tensor:
        """The logit "no attribute", the last one, is removed before the softmax."""
        return logits[:, :-1].softmax(dim=1)

"""Bottom-up attention features (Anderson et al., CVPR 2018) in the two published families of post-processing.

*Caffe mode* is the authors' own: images of 600/1000 pixels, inclusive boxes, a region is a proposal, chosen by its best
class score after class-wise suppression. *HF mode* is that of detectron2's port and of LXMERT's: 800/1333 pixels,
continuous boxes, a region is its best class's regressed box, chosen by suppression over all classes at growing
thresholds. The features of the two differ, so the mode is part of the fingerprint.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from capbench.errors import ModelError, UsageError
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
from capbench.features.detectors.bottom_up_boxes import (
    Chosen,
    caffe_proposals,
    caffe_selection,
    hf_detections,
    hf_proposals,
)
from capbench.features.detectors.images import Prepared, ShortestEdge, pad_batch
from capbench.models.bottom_up import BottomUp, BottomUpConfig, HeadOutputs, load_bottom_up, random_bottom_up
from capbench.models.checkpoints import read_checkpoint

if TYPE_CHECKING:
    from capbench.features.records import RegionFeatures

__all__ = ["CaffeSettings", "HFSettings", "load_caffe", "load_hf"]

_REGIONS_AT_ONCE = 100  # of the second stage: bounds memory; the same for every image, so results do not depend on it


@dataclasses.dataclass(frozen=True)
class _Common:
    batch: int = 1
    precision: str = "float32"
    rpn_nms: float = 0.7
    rpn_before: int = 6000
    rpn_after: int = 300
    stride_in_1x1: bool = True
    caffe_pool: bool = True
    halve_res5: bool = False
    classes: str = ""
    attributes: str = ""


@dataclasses.dataclass(frozen=True)
class CaffeSettings(_Common):
    """Options of Caffe mode, with the values of the published extraction of 10 to 100 boxes (the other has 36)."""

    shorter: int = 600
    longer: int = 1000
    min_boxes: int = 10
    max_boxes: int = 100
    threshold: float = 0.2
    nms: float = 0.3
    rpn_min_size: float = 16.0


@dataclasses.dataclass(frozen=True)
class HFSettings(_Common):
    """Options of HF mode, with the values of the published configuration."""

    shorter: int = 800
    longer: int = 1333
    min_boxes: int = 36
    max_boxes: int = 36
    nms: tuple[float, ...] = (0.5, 0.6, 0.7)
    rpn_min_size: float = 0.0
    delta_weights: tuple[float, ...] = (10.0, 10.0, 5.0, 5.0)


class _BottomUp(Network):
    """Both modes: prepare, first stage, second stage; what is kept is the mode's."""

    default_anchors: Tensor
    background_first: bool

    def __init__(self, name: str, network: BottomUp, sha256: str, device: str, options: CaffeSettings | HFSettings):
        super().__init__(
            name=name, weights_sha256=sha256, device=device, batch=options.batch, precision=options.precision
        )
        config = network.config
        if not 1 <= options.min_boxes <= options.max_boxes:
            raise UsageError(f"{name}: min_boxes={options.min_boxes} and max_boxes={options.max_boxes} do not fit")
        if options.rpn_after < options.min_boxes:
            raise UsageError(f"{name}: rpn_after={options.rpn_after} is less than min_boxes={options.min_boxes}")
        own = network.cell_anchors
        # The anchors of the checkpoint, if there are any: ports of the Caffe weights carry them along.
        self.anchors_of_weights = bool(own.any())
        anchors = own.float() if self.anchors_of_weights else self.default_anchors
        if len(anchors) != config.anchors:
            raise ModelError(f"the network has {config.anchors} anchors a cell and comes without them")
        self.anchors = anchors.to(device)
        self.feature_size = config.feature_size
        self.class_names = read_names(options.classes, config.outputs - 1, "classes")
        self.attribute_names = read_names(options.attributes, max(config.attribute_outputs - 1, 0), "attributes")
        self.network = network.to(device).eval()
        self.preprocessor: ShortestEdge

    def preprocessing_line(self) -> str:
        """How a picture is prepared, in words."""
        return self.preprocessor.line()

    def detect(self, prepared: Sequence[Prepared]) -> list[RegionFeatures]:
        """The regions of some prepared pictures; see :meth:`Detector.detect`."""
        self.check_batch(len(prepared))
        if not prepared:
            return []
        with forward_pass(self.device, self.precision):
            batch = torch.from_numpy(pad_batch(prepared, least=self.network.least)).to(self.device)
            res4 = self.network.features(batch)
            logits, deltas = self.network.propose(res4)
            found = []
            for i, image in enumerate(prepared):
                regions = self._propose(logits[i], deltas[i], image)
                if len(regions) == 0:
                    # Nothing proposed (a blank or tiny picture): the whole picture is the one region.
                    _, h, w = image.pixels.shape
                    regions = torch.tensor([[0.0, 0.0, float(w), float(h)]], device=res4.device)
                parts = []
                for part in torch.split(regions, _REGIONS_AT_ONCE):
                    parts.append(self.network.describe(self.network.pool(res4[i : i + 1], [part])))
                chosen = self._choose(regions, _join(parts), image)
                found.append(self._record(chosen, _join(parts), image))
        return found

    def _propose(self, logits: Tensor, deltas: Tensor, image: Prepared) -> Tensor:
        raise NotImplementedError

    def _choose(self, regions: Tensor, outputs: HeadOutputs, image: Prepared) -> Chosen:
        raise NotImplementedError

    def _attributes(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def _record(self, chosen: Chosen, outputs: HeadOutputs, image: Prepared) -> RegionFeatures:
        rows = chosen.rows
        flat: dict[str, Any] = {}
        if outputs.attributes is not None:
            scores, ids = self._attributes(outputs.attributes[rows].float())
            flat = {"attribute_ids": ids.int().cpu().numpy(), "attribute_scores": numpy32(scores)}
        return region_features(
            image.height,
            image.width,
            numpy32(chosen.boxes),
            numpy32(outputs.features[rows]),
            class_ids=chosen.class_ids.int().cpu().numpy(),
            class_scores=numpy32(chosen.class_scores),
            **flat,
        )


def _join(parts: Sequence[HeadOutputs]) -> HeadOutputs:
    attributes = [p.attributes for p in parts if p.attributes is not None]
    return HeadOutputs(
        torch.cat([p.features for p in parts]),
        torch.cat([p.classes for p in parts]),
        torch.cat([p.boxes for p in parts]),
        torch.cat(attributes) if attributes else None,
    )


class _CaffeMode(_BottomUp):
    default_anchors = bx.caffe_anchors()

    def __init__(self, network: BottomUp, sha256: str, device: str, options: CaffeSettings) -> None:
        super().__init__("bottom-up-caffe", network, sha256, device, options)
        self.options = options
        self.preprocessor = ShortestEdge(options.shorter, options.longer, caffe=True)
        # Weights that were ported to detectron2 number the background last; a class-agnostic head does not tell.
        self.background_first = network.config.box_outputs != network.config.outputs - 1

    def mode_line(self) -> str:
        """What is done with the network's outputs, in words."""
        o = self.options
        line = f"caffe {o.threshold:g} nms {o.nms:g} {o.min_boxes}-{o.max_boxes}"
        line += f", rpn {o.rpn_nms:g} {o.rpn_before}-{o.rpn_after} min {o.rpn_min_size:g}"
        return line + _architecture(o) + (", anchors of the weights" if self.anchors_of_weights else "")

    def _foreground(self, values: Tensor) -> Tensor:
        return values[:, 1:] if self.background_first else values[:, :-1]

    def _propose(self, logits: Tensor, deltas: Tensor, image: Prepared) -> Tensor:
        o = self.options
        _, h, w = image.pixels.shape
        return caffe_proposals(
            logits,
            deltas,
            self.anchors,
            (h, w),
            image.scale,
            before=o.rpn_before,
            after=o.rpn_after,
            nms=o.rpn_nms,
            min_size=o.rpn_min_size,
        )[0]

    def _choose(self, regions: Tensor, outputs: HeadOutputs, image: Prepared) -> Chosen:
        o = self.options
        # Only the whole picture, where nothing was proposed, can end beyond it: its sides in pixels are rounded.
        original = bx.clip(regions / image.scale, image.height, image.width)
        probabilities = self._foreground(outputs.classes.float().softmax(dim=1))
        rows, _ = caffe_selection(
            original,
            probabilities,
            threshold=o.threshold,
            nms=o.nms,
            min_boxes=o.min_boxes,
            max_boxes=o.max_boxes,
        )
        scores, ids = probabilities[rows].max(dim=1)
        return Chosen(rows, original[rows], ids, scores)

    def _attributes(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        scores, ids = self._foreground(logits.softmax(dim=1)).max(dim=1)
        return scores, ids


class _HFMode(_BottomUp):
    default_anchors = bx.centred_anchors()

    def __init__(self, network: BottomUp, sha256: str, device: str, options: HFSettings) -> None:
        if network.config.background_first:
            raise ModelError(
                "these weights number the background first, as Caffe's do",
                hint="Use the detector bottom-up-caffe",
            )
        super().__init__("bottom-up-hf", network, sha256, device, options)
        if len(options.delta_weights) != 4:
            raise UsageError(f"bottom-up-hf: delta_weights has {len(options.delta_weights)} numbers, not 4")
        self.options = options
        self.preprocessor = ShortestEdge(options.shorter, options.longer)

    def mode_line(self) -> str:
        """What is done with the network's outputs, in words."""
        o = self.options
        line = f"hf nms {','.join(f'{t:g}' for t in o.nms)} {o.min_boxes}-{o.max_boxes}"
        line += f", rpn {o.rpn_nms:g} {o.rpn_before}-{o.rpn_after} min {o.rpn_min_size:g}"
        line += f", deltas {','.join(f'{w:g}' for w in o.delta_weights)}"
        return line + _architecture(o) + (", anchors of the weights" if self.anchors_of_weights else "")

    def _propose(self, logits: Tensor, deltas: Tensor, image: Prepared) -> Tensor:
        o = self.options
        _, h, w = image.pixels.shape
        return hf_proposals(
            logits,
            deltas,
            self.anchors,
            (h, w),
            before=o.rpn_before,
            after=o.rpn_after,
            nms=o.rpn_nms,
            min_size=o.rpn_min_size,
        )[0]

    def _choose(self, regions: Tensor, outputs: HeadOutputs, image: Prepared) -> Chosen:
        o = self.options
        return hf_detections(
            regions,
            outputs.classes,
            outputs.boxes,
            image.pixels.shape[1:],
            (image.scale_y, image.scale_x),
            nms=o.nms,
            min_boxes=o.min_boxes,
            max_boxes=o.max_boxes,
            delta_weights=o.delta_weights,
        )

    def _attributes(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        # The last logit, "no attribute", leaves before the softmax.
        scores, ids = logits[:, :-1].softmax(dim=1).max(dim=1)
        return scores, ids


def _architecture(options: _Common) -> str:
    usual = _Common()
    names = ("stride_in_1x1", "caffe_pool", "halve_res5")
    return "".join(f", {n}={getattr(options, n)}" for n in names if getattr(options, n) != getattr(usual, n))


def _open(
    weights: str | os.PathLike[str] | None, name: str, options: _Common, untrained: BottomUpConfig
) -> tuple[BottomUp, str]:
    shape = {n: getattr(options, n) for n in ("stride_in_1x1", "caffe_pool", "halve_res5")}
    seed = random_seed(weights)
    if seed is not None:
        return random_bottom_up(dataclasses.replace(untrained, **shape), seed), f"random:{seed}"
    found = read_checkpoint(weights_file(name, weights))
    return load_bottom_up(found.tensors, found.path, **shape), found.sha256


def load_caffe(*, weights: str | os.PathLike[str] | None, device: str, options: Mapping[str, Any]) -> Network:
    """Open ``bottom-up-caffe``; see :func:`capbench.features.detectors.base.load_detector`."""
    chosen = settings(CaffeSettings, "bottom-up-caffe", options)
    untrained = BottomUpConfig(objectness=2, box_outputs=1601)
    network, sha256 = _open(weights, "bottom-up-caffe", chosen, untrained)
    return _CaffeMode(network, sha256, device, chosen)


def load_hf(*, weights: str | os.PathLike[str] | None, device: str, options: Mapping[str, Any]) -> Network:
    """Open ``bottom-up-hf``; see :func:`capbench.features.detectors.base.load_detector`."""
    chosen = settings(HFSettings, "bottom-up-hf", options)
    network, sha256 = _open(weights, "bottom-up-hf", chosen, BottomUpConfig())
    return _HFMode(network, sha256, device, chosen)

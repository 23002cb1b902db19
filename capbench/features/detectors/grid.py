"""Grid features: the last feature map of a torchvision classification backbone, as n x n cells of the image.

Jiang et al., In Defense of Grid Features for Visual Question Answering, CVPR 2020, propose cells instead of boxes; the
backbone of this detector is trained on ImageNet. The whole image is resized to a square, which the cells tile.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from numpy.typing import NDArray
from torch import Tensor, nn

from capbench.core.errors import UsageError
from capbench.core.options import Count, option
from capbench.features.detectors.base import Network, NetworkOptions, forward_pass, region_features
from capbench.features.detectors.images import GridPreparation, Prepared, pad_batch
from capbench.weights.checkpoints import Checkpoint, fit_state
from capbench.weights.registry import entry

if TYPE_CHECKING:
    from capbench.features.records import RegionFeatures

# Modules whose output is the last feature map of a backbone; each family of backbones has one of them.
_LAST = ("layer4", "trunk_output", "conv5", "inception5b", "Mixed_7c", "permute", "blocks", "layers", "features")
_TOKENS = "encoder"  # of vision transformers


@dataclasses.dataclass(frozen=True)
class GridOptions(NetworkOptions):
    """Options of grid features."""

    cells: int = option(7, Count(1), "cells per side: 6 are 36 regions")
    size: int = option(224, Count(32), "pixels per side of the network's input")


class Grid(Network):
    """The detectors ``grid:BACKBONE``."""

    name = "grid"
    options_class = GridOptions
    variants = ("backbone", "resnet50")
    options: GridOptions

    def __init__(self, name: str, network: Any, sha256: str, device: str, options: GridOptions) -> None:
        super().__init__(name, network, sha256, device, options)
        from torchvision import models

        children = dict(network.named_children())
        self._last = next((module for module in (*_LAST, _TOKENS) if module in children), "")
        if not self._last:
            message = f"{name}: the last feature map of this backbone is not known"
            raise UsageError(message, code="unsupported", value=name)
        self._seen: list[Tensor] = []
        last = network.get_submodule(self._last)
        # A list of blocks is never called itself, only its blocks.
        last = last[-1] if isinstance(last, nn.ModuleList) else last
        last.register_forward_hook(lambda _m, _i, output: self._seen.append(output))
        usual = models.get_model_weights(name.partition(":")[2]).DEFAULT.transforms()
        self.preprocessor: GridPreparation = GridPreparation(options.size, tuple(usual.mean), tuple(usual.std))
        means, deviations = (",".join(f"{v:g}" for v in values) for values in (usual.mean, usual.std))
        self.preprocessing = f"rgb - {means} / {deviations}, smooth {options.size}x{options.size}"
        self.mode = f"grid {options.cells}x{options.cells} of {self._last}"
        with forward_pass(device, "float32"):
            maps = self._maps(torch.zeros(1, 3, options.size, options.size, device=device))
        self.feature_size, rows, columns = maps.shape[1:]
        n = options.cells
        if n > max(rows, columns, GridOptions().cells):
            message = f"{name}: cells={n} is {n} per side, but the feature map has {rows} x {columns}"
            raise UsageError(message, code="out-of-range", value=n, hint="Use fewer, such as 6 for 36 regions")

    @classmethod
    def build(cls, options: Any, variant: str, checkpoint: Checkpoint | None) -> nn.Module:
        from torchvision import models

        entry(f"{cls.name}:{variant}")  # raises for names that torchvision does not have
        # Inception and GoogLeNet have side branches for training, and convert ImageNet's normalisation to their own.
        extra: dict[str, Any] = {}
        if variant in ("inception_v3", "googlenet"):
            extra = {"aux_logits": False, "transform_input": True, "init_weights": False}
        network: nn.Module = models.get_model(variant, weights=None, **extra)
        if checkpoint is not None:
            fit_state(network, checkpoint.tensors, checkpoint.path, rename=_torchvision_name)
        return network

    def _maps(self, batch: Tensor) -> Tensor:
        """The last feature map (n, d, rows, columns)."""
        self._seen.clear()
        try:
            self.network(batch)
        except (AssertionError, RuntimeError) as error:
            message = f"{self.name} does not accept {self.options.size} pixels ({' '.join(str(error).split())[:120]})"
            hint = "Set the option size to the input size of this backbone"
            raise UsageError(message, code="unsupported", value=self.options.size, hint=hint) from error
        output = self._seen.pop()
        if self._last == _TOKENS:
            tokens = output[:, 1:]  # without the class token
            side = round(tokens.shape[1] ** 0.5)
            return tokens.transpose(1, 2).reshape(len(tokens), -1, side, side)
        # DenseNet applies a ReLU to the map outside of any module.
        return F.relu(output) if type(self.network).__name__ == "DenseNet" else output

    def regions(self, prepared: Sequence[Prepared]) -> list[RegionFeatures]:
        n = self.options.cells
        maps = self._maps(torch.from_numpy(pad_batch(prepared)).to(self.device)).float()
        if maps.shape[2:] != (n, n):
            maps = F.adaptive_avg_pool2d(maps, n)
        cells = maps.flatten(2).transpose(1, 2)  # (pictures, n * n, d)
        return [
            region_features(p, torch.from_numpy(_tiles(n, p.height, p.width)), cells[i]) for i, p in enumerate(prepared)
        ]


def _tiles(cells: int, height: int, width: int) -> NDArray[np.float32]:
    """Boxes (cells * cells, 4) that tile an image, row by row."""
    x, y = np.linspace(0, width, cells + 1), np.linspace(0, height, cells + 1)
    boxes = np.empty((cells, cells, 4), dtype=np.float32)
    boxes[:, :, 0], boxes[:, :, 2] = x[:-1], x[1:]
    boxes[:, :, 1], boxes[:, :, 3] = y[:-1, None], y[1:, None]
    return boxes.reshape(-1, 4)


def _torchvision_name(name: str) -> str | None:
    """The network's name for a parameter of the file; None for side branches. Accepts DenseNet's old layer names."""
    if name.startswith(("aux1.", "aux2.", "AuxLogits.")):
        return None
    return re.sub(r"(denselayer\d+\.(?:norm|conv))\.([12]\.)", r"\1\2", name)

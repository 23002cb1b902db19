from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import nn

from capbench.features.detectors.bottom_up_network import BottomUp, BottomUpConfig
from capbench.features.detectors.x152_fpn import X152FPN, X152Config

SMALL = BottomUpConfig(
    blocks=(1, 1, 2), stem=4, bottleneck=2, res2=8, rpn=6, outputs=6, box_outputs=5, embedding=3, attribute_hidden=4,
    attribute_outputs=5,
)  # fmt: skip
CAFFE = dataclasses.replace(SMALL, objectness=2, box_outputs=6)


@torch.no_grad()
def drawn(config: BottomUpConfig | X152Config, seed: int) -> Any:
    network = (X152FPN(config) if isinstance(config, X152Config) else BottomUp(config)).eval()
    generator = torch.Generator().manual_seed(seed)
    for name, module in network.named_modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.weight.normal_(0.0, (2.0 / module.weight[0].numel()) ** 0.5, generator=generator)
            if module.bias is not None:
                module.bias.zero_()
            if name.endswith(("anchor_deltas", "bbox_pred")):
                module.weight.mul_(0.05)
            elif name.endswith("stem.conv1"):  # of pixels up to 150
                module.weight.div_(60.0)
        elif isinstance(module, nn.Embedding):
            module.weight.normal_(0.0, 1.0, generator=generator)
        elif name.endswith(("conv3.norm", "bn3")):  # residual branches must not double the variance
            module.state_dict()["weight"].fill_(0.2)
    return network

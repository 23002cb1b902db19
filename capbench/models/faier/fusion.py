"""FAIEr's attention fusion layer (section 3.2, eq. 2): image nodes look at references and take in what they see."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from capbench.models.faier.graphs import Nodes
from capbench.models.faier.options import FaierOptions
from capbench.models.packed_gru import Packing, recurrence

__all__ = ["Fusion"]


class _Level(nn.Module):
    """W_a and W_u of a level."""

    def __init__(self, options: FaierOptions) -> None:
        super().__init__()
        size = options.embed_dim
        self.attention = nn.Linear(size, 1, bias=False)  # W_a
        self.union = nn.Linear(2 * size, size, bias=options.union_bias)  # W_u


class Fusion(nn.Module):
    """Both levels of the layer."""

    def __init__(self, options: FaierOptions) -> None:
        super().__init__()
        self.options = options
        number = 2 if options.relations else 1
        self.levels = nn.ModuleList(_Level(options) for _ in range(1 if options.levels == "shared" else number))
        self.grus = nn.ModuleList(nn.GRU(options.embed_dim, options.embed_dim, batch_first=True) for _ in range(number))

    def forward(self, level: int, images: Nodes, references: Nodes, counts: Tensor) -> Tensor:
        """z of a level before its bound.

        Args:
            level: 0 for objects, 1 for relations.
            images: nodes (B, R, d).
            references: nodes (B, J, K, d). A reference without nodes gives a = 0.
            counts: (B,) numbers of references, 1 to J.

        Returns:
            (B, R, d).
        """
        layer = self.levels[level if len(self.levels) > 1 else 0]
        assert isinstance(layer, _Level)
        gru = self.grus[level]
        assert isinstance(gru, nn.GRU)
        if self.options.empty_references == "skip":
            references, counts = _without_empty(references, counts)
        weights = attention(images.vectors * layer.attention.weight[0], references)  # (B, J, R, K)
        seen = self._memory(gru, weights, references.vectors, counts)
        z: Tensor = layer.union(torch.cat([images.vectors, seen], dim=-1))
        return z

    def _memory(self, gru: nn.GRU, weights: Tensor, vectors: Tensor, counts: Tensor) -> Tensor:
        """m (B, R, d): the last state of a GRU over what was attended in each reference, a = Σ_k α_k·h_k."""
        batch, _, regions, nodes = weights.shape
        of_inputs, of_states, bias, bias_of_states = gru.all_weights[0]
        if nodes < regions:  # W(Σ α·h) = Σ α·(W·h): the nodes of a reference are fewer than the regions
            gates = weights @ functional.linear(vectors, of_inputs)
        else:
            gates = functional.linear(weights @ vectors, of_inputs)
        present = counts.cpu()
        some = present > 0  # an image whose references all are skipped remembers nothing
        kept = some.nonzero()[:, 0]
        memory = weights.new_zeros(batch, regions, gru.hidden_size)
        if not len(kept):
            return memory
        packing = Packing(present[kept].repeat_interleave(regions))
        image, region = packing.captions // regions, packing.captions % regions
        device = gates.device
        packed = gates[kept[image].to(device), packing.steps.to(device), region.to(device)] + bias
        states = recurrence(packed, of_states, bias_of_states, packing)
        last = states[packing.ends.to(device)].view(len(kept), regions, -1)
        return last if len(kept) == batch else memory.index_copy(0, kept.to(device), last)


def attention(queries: Tensor, references: Nodes) -> Tensor:
    """α: queries W_a ⊙ v (B, R, d), references (B, J, K, d) → (B, J, R, K); 0 in a reference without nodes."""
    batch, number, nodes, size = references.vectors.shape
    flat = references.vectors.reshape(batch, number * nodes, size)
    logits = (queries @ flat.mT).view(batch, -1, number, nodes).transpose(1, 2)
    absent = ~references.mask[:, :, None, :]
    empty = absent.all(dim=-1, keepdim=True)
    # A row of nothing but −∞ would become NaN, whose gradient is NaN too.
    weights = logits.masked_fill(absent & ~empty, -math.inf).softmax(dim=-1)
    return weights.masked_fill(empty, 0.0)


def _without_empty(references: Nodes, counts: Tensor) -> tuple[Nodes, Tensor]:
    """References that have nodes, moved to the front in their order, and how many they are."""
    number = references.mask.shape[1]
    there = torch.arange(number, device=counts.device) < counts[:, None]
    kept = references.mask.any(dim=-1) & there.to(references.mask.device)
    order = torch.argsort((~kept).to(torch.int8), dim=1, stable=True)
    rows = torch.arange(len(order), device=order.device)[:, None]
    return references[rows, order], kept.sum(dim=1)

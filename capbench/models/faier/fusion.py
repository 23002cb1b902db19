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

    def forward(self, level: int, images: Nodes, references: Nodes, prefixes: Tensor) -> Tensor:
        """z of a level before its bound, for one or several numbers of references: the GRU steps over them once.

        Args:
            level: 0 for objects, 1 for relations.
            images: nodes (B, R, d).
            references: nodes (B, J, K, d). A reference without nodes gives a = 0.
            prefixes: (P, B) numbers of references, 1 to J: z is made of so many of an image's first.

        Returns:
            (P, B, R, d).
        """
        layer = self.levels[level if len(self.levels) > 1 else 0]
        assert isinstance(layer, _Level)
        gru = self.grus[level]
        assert isinstance(gru, nn.GRU)
        if self.options.empty_references == "skip":
            references, prefixes = _without_empty(references, prefixes)
        weights = attention(images.vectors * layer.attention.weight[0], references)  # (B, J, R, K)
        seen = self._memory(gru, weights, references.vectors, prefixes.cpu())
        of_images, of_references = layer.union.weight.chunk(2, dim=1)
        z: Tensor = functional.linear(images.vectors, of_images, layer.union.bias)
        return z + functional.linear(seen, of_references)

    def _memory(self, gru: nn.GRU, weights: Tensor, vectors: Tensor, prefixes: Tensor) -> Tensor:
        """m (P, B, R, d): states of a GRU over what was attended in each reference, a = Σ_k α_k·h_k."""
        batch, _, regions, nodes = weights.shape
        of_inputs, of_states, bias, bias_of_states = gru.all_weights[0]
        if nodes < regions:  # W(Σ α·h) = Σ α·(W·h): the nodes of a reference are fewer than the regions
            gates = weights @ functional.linear(vectors, of_inputs)
        else:
            gates = functional.linear(weights @ vectors, of_inputs)
        steps = prefixes.max(dim=0).values
        kept = (steps > 0).nonzero()[:, 0]
        shape = (len(prefixes), batch, regions, gru.hidden_size)
        if not len(kept):
            return weights.new_zeros(shape)
        device = gates.device
        packing = Packing(steps[kept].repeat_interleave(regions))
        image, region = packing.captions // regions, packing.captions % regions
        packed = gates[kept[image].to(device), packing.steps.to(device), region.to(device)] + bias
        states = recurrence(packed, of_states, bias_of_states, packing)
        if len(kept) == batch and bool((prefixes > 0).all()):
            last = (prefixes - 1).repeat_interleave(regions, dim=1)  # (P, B·R)
            rows = packing.row(torch.arange(batch * regions).expand_as(last), last)
            return states[rows.to(device)].view(shape)
        # An image whose references all are skipped remembers nothing.
        prefix, there = (prefixes[:, kept] > 0).nonzero(as_tuple=True)
        last = prefixes[prefix, kept[there]] - 1
        sequences = there[:, None] * regions + torch.arange(regions)
        chosen = states[packing.row(sequences, last[:, None].expand_as(sequences)).to(device)]  # (·, R, d)
        memory = weights.new_zeros(shape)
        return memory.index_put((prefix.to(device), kept[there].to(device)), chosen)


def attention(queries: Tensor, references: Nodes) -> Tensor:
    """α: queries W_a ⊙ v (B, R, d), references (B, J, K, d) → (B, J, R, K); 0 in a reference without nodes."""
    batch, number, nodes, size = references.vectors.shape
    flat = references.vectors.reshape(batch, number * nodes, size)
    logits = (queries @ flat.mT).view(batch, queries.shape[1], number, nodes).transpose(1, 2)
    absent = ~references.mask[:, :, None, :]
    empty = absent.all(dim=-1, keepdim=True)
    # A row of nothing but −∞ would become NaN, whose gradient is NaN too.
    weights = logits.masked_fill(absent & ~empty, -math.inf).softmax(dim=-1)
    return weights.masked_fill(empty, 0.0)


def _without_empty(references: Nodes, prefixes: Tensor) -> tuple[Nodes, Tensor]:
    """References that have nodes, moved to the front in their order, and how many of each prefix they are."""
    number = references.mask.shape[1]
    kept = references.mask.any(dim=-1)  # (B, J)
    order = torch.argsort((~kept).to(torch.int8), dim=1, stable=True)
    rows = torch.arange(len(order), device=order.device)[:, None]
    inside = torch.arange(number, device=kept.device) < prefixes.to(kept.device)[:, :, None]  # (P, B, J)
    return references[rows, order], (inside & kept).sum(dim=2)

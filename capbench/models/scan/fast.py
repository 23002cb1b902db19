"""SCAN computed quickly: the network of :mod:`capbench.models.scan.network`, with the same weights and the same numbers
but for rounding.

On a CPU captions go through :func:`capbench.models.scan.packed_gru.packed_gru`, and everywhere similarities are those
of :func:`capbench.models.scan.attention.similarities`, which forms no context. Training and metrics use this one.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from capbench.models.scan.attention import Products, similarities
from capbench.models.scan.network import Scan, TextEncoder
from capbench.models.scan.packed_gru import Packing, packed_gru

__all__ = ["FastScan", "FastTextEncoder"]


class FastTextEncoder(TextEncoder):
    """The text encoder with :func:`packed_gru` on a CPU; on a GPU ``nn.GRU`` is fast."""

    def forward(self, ids: Tensor, lengths: Tensor, dropout: float = 0.0) -> Tensor:
        """As :meth:`TextEncoder.forward`: ids (b, m) int64, lengths (b,) → (b, m, D)."""
        if ids.device.type != "cpu":
            return super().forward(ids, lengths, dropout)
        packing = Packing(lengths)
        packed_ids = ids[packing.captions, packing.steps]  # (T,): the words of all captions
        if dropout and self.training:
            rows = functional.dropout(self.embed(packed_ids), dropout)
            which = torch.arange(len(packed_ids))
        else:  # the same word is multiplied once
            distinct, which = torch.unique(packed_ids, return_inverse=True)
            rows = self.embed(distinct)
        x = self.common(packed_gru(self.rnn, rows, which, packing))  # (T, D)
        padded = x.new_zeros(ids.shape[0] * ids.shape[1], x.shape[1])
        padded = padded.index_copy(0, packing.captions * ids.shape[1] + packing.steps, x)
        return padded.view(*ids.shape, -1)


class FastScan(Scan):
    """The network with the quick text encoder and the quick similarities."""

    text_encoder = FastTextEncoder

    def similarities(self, images: Tensor, captions: Tensor, lengths: Tensor, products: Products = "float32") -> Tensor:
        """As :meth:`Scan.similarities`; ``products`` as in :func:`capbench.models.scan.attention.similarities`."""
        return similarities(self.options, images, captions, lengths, products)

"""SCAN computed quickly: the network of :mod:`capbench.models.scan.network`, with the same weights and the same numbers
but for rounding.

On a CPU captions go through :func:`capbench.models.packed_gru.packed_gru`, and everywhere similarities are those
of :func:`capbench.models.scan.attention.similarities`, which forms no context. Training and metrics use this one.
"""

from __future__ import annotations

from torch import Tensor

from capbench.models.packed_gru import packed_captions
from capbench.models.scan.attention import Products, similarities
from capbench.models.scan.network import Scan, TextEncoder

__all__ = ["FastScan", "FastTextEncoder"]


class FastTextEncoder(TextEncoder):
    """The text encoder with :func:`packed_captions` on a CPU; on a GPU ``nn.GRU`` is fast."""

    def forward(self, ids: Tensor, lengths: Tensor, dropout: float = 0.0) -> Tensor:
        """As :meth:`TextEncoder.forward`: ids (b, m) int64, lengths (b,) → (b, m, D)."""
        if ids.device.type != "cpu":
            return super().forward(ids, lengths, dropout)
        states, packing = packed_captions(self.rnn, self.embed, ids, lengths, dropout if self.training else 0.0)
        x = self.common(states)  # (T, D)
        padded = x.new_zeros(ids.shape[0] * ids.shape[1], x.shape[1])
        padded = padded.index_copy(0, packing.captions * ids.shape[1] + packing.steps, x)
        return padded.view(*ids.shape, -1)


class FastScan(Scan):
    """The network with the quick text encoder and the quick similarities."""

    text_encoder = FastTextEncoder

    def similarities(self, images: Tensor, captions: Tensor, lengths: Tensor, products: Products = "float32") -> Tensor:
        """As :meth:`Scan.similarities`; ``products`` as in :func:`capbench.models.scan.attention.similarities`."""
        return similarities(self.options, images, captions, lengths, products)

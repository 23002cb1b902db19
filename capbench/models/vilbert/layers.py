"""The parts of ViLBERT: attention, a layer of one stream, and the connection in which the two attend to each other.

References and letters for shapes are those of :mod:`capbench.models.vilbert.network`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from capbench.models.vilbert.options import VilbertOptions

__all__ = ["EPSILON", "Connection", "Layer", "Projected", "Streams", "attend", "mask_of"]

EPSILON = 1e-12
"""Of all layer normalisations."""
_MASKED = -10_000.0  # added to what may not be attended to


@dataclass(frozen=True)
class Streams:
    """Both streams: text (b, m, T) and image (b, n, V)."""

    text: Tensor
    image: Tensor


@dataclass(frozen=True)
class Projected:
    """An image stream as a connection attends to it, (..., n, B) each; queries are None if nothing needs them."""

    queries: Tensor | None
    keys: Tensor
    values: Tensor


def mask_of(present: Tensor | None, dtype: torch.dtype = torch.float32) -> Tensor | None:
    """Truth values of tokens or regions (b, k) → what is added to attention before the softmax, (b, 1, 1, k).

    None where all are present, which takes no adding.
    """
    if present is None or bool(present.all()):
        return None
    return ((1.0 - present.to(dtype)) * _MASKED)[:, None, None, :]


def attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    heads: int,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    maps: list[Tensor] | None = None,
) -> Tensor:
    """Attention of several heads.

    Args:
        queries: (b, q, D).
        keys: (b, k, D).
        values: (b, k, D).
        heads: of them each has D / heads components.
        mask: (b, 1, 1, k), of :func:`mask_of`.
        dropout: share of weights that are dropped.
        maps: gets the weights, (b, heads, q, k), if given.

    Returns:
        (b, q, D).
    """
    q, k, v = (x.view(*x.shape[:2], heads, -1).transpose(1, 2) for x in (queries, keys, values))  # (b, heads, ., d)
    if maps is None:
        contexts = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
    else:
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        weights = (scores if mask is None else scores + mask).softmax(dim=-1)
        maps.append(weights)
        contexts = functional.dropout(weights, dropout) @ v
    return contexts.transpose(1, 2).flatten(-2)


class _Rest(nn.Module):
    """x → LN(x + dropout(linear(y))): how every part of a layer ends."""

    def __init__(self, inputs: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.norm = nn.LayerNorm(outputs, eps=EPSILON)
        self.dropout = dropout

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        normed: Tensor = self.norm(x + functional.dropout(self.linear(y), self.dropout, self.training))
        return normed


class _Feed(nn.Module):
    """The two linear layers with a GELU between them."""

    def __init__(self, dim: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.inner = nn.Linear(dim, inner)
        self.outer = _Rest(inner, dim, dropout)

    def forward(self, x: Tensor) -> Tensor:
        fed: Tensor = self.outer(x, functional.gelu(self.inner(x)))
        return fed


class Layer(nn.Module):
    """A layer of BERT: self-attention, then the feed-forward part; (b, k, D) → (b, k, D)."""

    def __init__(self, dim: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query, self.key, self.value = (nn.Linear(dim, dim) for _ in range(3))
        self.attended = _Rest(dim, dim, dropout)
        self.feed = _Feed(dim, inner, dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None, maps: list[Tensor] | None = None) -> Tensor:
        """``mask`` (b, 1, 1, k) of :func:`mask_of`; ``maps`` gets the attention, (b, heads, k, k)."""
        dropout = self.dropout if self.training else 0.0
        contexts = attend(self.query(x), self.key(x), self.value(x), self.heads, mask, dropout, maps)
        fed: Tensor = self.feed(self.attended(x, contexts))
        return fed


class Connection(nn.Module):
    """Co-attention (section 2.2): tokens attend to regions, regions to tokens, each then through its own feed-forward.

    Which regions may be attended to is masked, and which tokens; that is all (the released code's mask of pairs is
    never applied).
    """

    def __init__(self, options: VilbertOptions) -> None:
        super().__init__()
        text, image, common, dropout = options.text_dim, options.image_dim, options.common_dim, options.dropout
        self.heads, self.dropout = options.common_heads, dropout
        self.image_query, self.image_key, self.image_value = (nn.Linear(image, common) for _ in range(3))
        self.text_query, self.text_key, self.text_value = (nn.Linear(text, common) for _ in range(3))
        self.image_attended = _Rest(common, image, dropout)
        self.text_attended = _Rest(common, text, dropout)
        self.image_feed = _Feed(image, options.image_inner, dropout)
        self.text_feed = _Feed(text, options.text_inner, dropout)

    def project(self, image: Tensor, *, queries: bool = True) -> Projected:
        """The image stream (..., n, V) as it takes part here; without queries if its next value is not asked for."""
        return Projected(self.image_query(image) if queries else None, self.image_key(image), self.image_value(image))

    def text_of(
        self, text: Tensor, projected: Projected, image_mask: Tensor | None, maps: list[Tensor] | None = None
    ) -> Tensor:
        """The text stream (b, m, T) after it attended to the image; ``maps`` gets the weights (b, heads, m, n)."""
        dropout = self.dropout if self.training else 0.0
        queries = self.text_query(text)
        contexts = attend(queries, projected.keys, projected.values, self.heads, image_mask, dropout, maps)
        fed: Tensor = self.text_feed(self.text_attended(text, contexts))
        return fed

    def image_of(
        self,
        image: Tensor,
        queries: Tensor,
        text: Tensor,
        text_mask: Tensor | None,
        maps: list[Tensor] | None = None,
    ) -> Tensor:
        """The image stream (b, n, V) after it attended to the text; ``maps`` gets the weights (b, heads, n, m).

        Texts behind the b-th are read by nothing.
        """
        dropout = self.dropout if self.training else 0.0
        keys, values = self.text_key(text)[: len(image)], self.text_value(text)[: len(image)]
        contexts = attend(queries, keys, values, self.heads, text_mask, dropout, maps)
        fed: Tensor = self.image_feed(self.image_attended(image, contexts))
        return fed

    def forward(
        self, streams: Streams, text_mask: Tensor | None, image_mask: Tensor | None, maps: list[Tensor] | None = None
    ) -> Streams:
        """Both streams, each from the other as it was before; ``maps`` gets tokens over regions, then the reverse."""
        projected = self.project(streams.image)
        assert projected.queries is not None
        text = self.text_of(streams.text, projected, image_mask, maps)
        return Streams(text, self.image_of(streams.image, projected.queries, streams.text, text_mask, maps))

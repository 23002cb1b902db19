"""The dual encoder: an image's regions and a caption's words, each pooled to one vector of a common space.

It has the form of CLIP (Radford et al., ICML 2021: two encoders, cosines, InfoNCE with a learned temperature) at a size
that can be trained on thousands of images: regions pass through one layer and are pooled by attention or by their mean;
words are read by a bidirectional GRU, or as a bag. It is not a published network.

Shapes: a images of n regions, b captions of at most m words; D components of the common space.
"""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from capbench import Choice, Count, Options, option

__all__ = ["LARGEST_SCALE", "DualEncoder", "DualEncoderOptions"]

LARGEST_SCALE = math.log(100.0)
"""Upper bound of the learned logarithm of the inverse temperature, as in CLIP."""

_EPSILON = 1e-8


@dataclass(frozen=True)
class DualEncoderOptions(Options):
    """Sizes and form of the network."""

    vocabulary_size: int = option(MISSING, Count(1), "words, including the four special ones")
    image_dim: int = option(MISSING, Count(1), "components of a region feature")
    word_dim: int = option(256, Count(1), "components of a word")
    hidden_dim: int = option(512, Count(1), "units of the layers between features, or words, and the common space")
    embed_dim: int = option(256, Count(1), "components of the common space, D")
    pooling: Literal["attention", "mean"] = option(
        "attention", Choice("attention", "mean"), "pooling of regions: by learned weights, or their mean"
    )
    text: Literal["gru", "bag"] = option(
        "gru", Choice("gru", "bag"), "pooling of words: the mean of a GRU's states, or of the word vectors"
    )

    def __post_init__(self) -> None:
        self.checked("dual-encoder", vars(self))

    @property
    def parameters(self) -> int:
        """Approximate number of weights of the network."""
        words = self.vocabulary_size * self.word_dim
        image = self.image_dim * self.hidden_dim + self.hidden_dim * (self.embed_dim + 1)
        recurrent = 6 * self.hidden_dim * (self.word_dim + self.hidden_dim + 2) if self.text == "gru" else 0
        text = (self.hidden_dim if self.text == "gru" else self.word_dim) * self.hidden_dim
        return words + image + recurrent + text + self.hidden_dim * self.embed_dim


class DualEncoder(nn.Module):
    """The network.

    Args:
        options: its sizes and form.
        generator: random generator of the initial weights; by default the global one.
        temperature: initial temperature.
    """

    kind: ClassVar = "capbench.dual-encoder/1"  # of weight files

    def __init__(
        self, options: DualEncoderOptions, generator: torch.Generator | None = None, temperature: float = 0.07
    ) -> None:
        super().__init__()
        self.options = options
        self.region = nn.Linear(options.image_dim, options.hidden_dim)
        self.attention = nn.Linear(options.hidden_dim, 1)
        self.image_out = nn.Linear(options.hidden_dim, options.embed_dim)
        self.word = nn.Embedding(options.vocabulary_size, options.word_dim)
        if options.text == "gru":
            self.gru = nn.GRU(options.word_dim, options.hidden_dim, batch_first=True, bidirectional=True)
        wide = options.hidden_dim if options.text == "gru" else options.word_dim
        self.text_hidden = nn.Linear(wide, options.hidden_dim)
        self.text_out = nn.Linear(options.hidden_dim, options.embed_dim)
        self.log_scale = nn.Parameter(torch.tensor(-math.log(temperature)))
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Initialise: Xavier-uniform matrices, biases 0, words U(-0.1, 0.1), the GRU ±1/√hidden."""
        recurrent = {id(weight) for weight in self.gru.parameters()} if self.options.text == "gru" else set()
        bound = 1 / math.sqrt(self.options.hidden_dim)
        for weight in self.parameters():
            if weight is self.log_scale:
                continue
            if id(weight) in recurrent:
                weight.uniform_(-bound, bound, generator=generator)
            elif weight is self.word.weight:
                weight.uniform_(-0.1, 0.1, generator=generator)
            elif weight.ndim == 2:
                limit = math.sqrt(6 / sum(weight.shape))
                weight.uniform_(-limit, limit, generator=generator)
            else:
                weight.zero_()

    def encode_images(self, regions: Tensor, dropout: float = 0.0) -> Tensor:
        """(a, n, image_dim) → (a, D), l2-normalised; ``dropout`` has an effect in training mode only.

        Region features are first scaled to length √image_dim, so that their original scale does not matter.
        """
        scaled = functional.normalize(regions, dim=-1, eps=_EPSILON) * math.sqrt(self.options.image_dim)
        dropped = functional.dropout(scaled, dropout, self.training)
        hidden = functional.gelu(self.region(dropped))  # (a, n, hidden)
        if self.options.pooling == "attention":
            weights = self.attention(hidden).softmax(dim=1)
            pooled = (weights * hidden).sum(dim=1)
        else:
            pooled = hidden.mean(dim=1)
        return functional.normalize(self.image_out(pooled), dim=-1, eps=_EPSILON)

    def encode_captions(self, ids: Tensor, lengths: Tensor, dropout: float = 0.0) -> Tensor:
        """ids (b, m), lengths (b) with ``<start>`` and ``<end>`` → (b, D), l2-normalised.

        ``dropout`` applies to word vectors, in training mode only.
        """
        vectors = functional.dropout(self.word(ids), dropout, self.training)
        if self.options.text == "gru":
            packed = pack_padded_sequence(vectors, lengths.cpu(), batch_first=True, enforce_sorted=False)
            forward, backward = pad_packed_sequence(self.gru(packed)[0], batch_first=True)[0].chunk(2, dim=-1)
            sums = ((forward + backward) / 2).sum(dim=1)
        else:
            place = torch.arange(ids.shape[1])[None, :] < lengths[:, None]
            sums = (vectors * place[..., None].to(vectors)).sum(dim=1)
        pooled = sums / lengths[:, None].to(sums)
        hidden = functional.gelu(self.text_hidden(pooled))
        return functional.normalize(self.text_out(hidden), dim=-1, eps=_EPSILON)

    def similarities(self, images: Tensor, captions: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Cosines (a, b) of images (a, D) and captions (b, D); ``lengths`` is not used."""
        return images @ captions.t()

    def scale(self) -> Tensor:
        """1 / temperature."""
        return self.log_scale.clamp(max=LARGEST_SCALE).exp()

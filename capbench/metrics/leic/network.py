"""LEIC's network (Cui et al., CVPR 2018): classifies a caption of an image as human or machine, given a reference.

An LSTM reads the caption and a reference. Its states after their last words are concatenated with a linear layer of
the image's vector and enter a layer of rectified units, which is followed by two classes, human and machine.

The released code uses the state at ``<eos>``, so that captions which fill all steps have a zero state; here, long
captions are truncated and end with ``<end>``.
"""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from dataclasses import MISSING, dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from capbench.core.options import Count, Options, Positive, option
from capbench.core.records import FloatArray
from capbench.text.vocabulary import END, PAD, Vocabulary, pad_rows, tokenize_caption
from capbench.weights.files import TrainedModel

HUMAN = 0  # The class of human captions

_SIZE = Count(1, 1 << 20)
_BATCH = 512  # captions encoded at once


@dataclass(frozen=True)
class LeicOptions(Options):
    """Sizes of the network; the published ones by default."""

    vocabulary_size: int = option(MISSING, Count(1), "number of words, including the four special ones")
    image_dim: int = option(2048, _SIZE, "size of the image's vector")
    word_dim: int = option(300, _SIZE, "size of a word's vector")
    state_dim: int = option(512, _SIZE, "size of the LSTM's state and of the image's layer")
    hidden_dim: int = option(512, _SIZE, "number of hidden units")
    steps: int = option(15, Count(2, 1000), "maximum number of words, <end> included; longer captions are truncated")
    image_scale: float = option(1.0, Positive(), "factor of the image's vector")

    def __post_init__(self) -> None:
        self.checked("leic", vars(self))


def encode_words(text: str, vocabulary: Vocabulary, steps: int) -> list[int]:
    """Ids of :func:`words_of`, then ``<end>``; at most ``steps`` in total."""
    return [*(vocabulary.number(word) for word in words_of(text)[: steps - 1]), END]


def words_of(text: str) -> list[str]:
    """A caption's words without punctuation marks, not truncated."""
    return [word for word in tokenize_caption(text) if word not in string.punctuation]


class Leic(nn.Module):
    """The network; ``generator`` draws the initial weights, uniform in ±1/√inputs, those of words in ±0.1."""

    kind: ClassVar = "capbench.leic/1"  # of weight files

    def __init__(self, options: LeicOptions, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.options = options
        state, words = options.state_dim, options.word_dim
        self.words = nn.Embedding(options.vocabulary_size, words, padding_idx=PAD)
        self.lstm = nn.LSTM(words, state, batch_first=True)
        self.image = nn.Linear(options.image_dim, state)
        self.hidden = nn.Linear(3 * state, options.hidden_dim)
        self.classes = nn.Linear(options.hidden_dim, 2)
        with torch.no_grad():
            self.words.weight.uniform_(-0.1, 0.1, generator=generator)
            self.words.weight[PAD] = 0
            inputs = {"lstm": state, "image": options.image_dim, "hidden": 3 * state, "classes": options.hidden_dim}
            for name, weight in self.named_parameters():
                if name != "words.weight":
                    limit = 1 / math.sqrt(inputs[name.split(".")[0]])
                    weight.uniform_(-limit, limit, generator=generator)
            # A positive bias of the forget gate, as in the released code.
            lstm = dict(self.lstm.named_parameters())
            lstm["bias_ih_l0"][state : 2 * state] = 1.0
            lstm["bias_hh_l0"][state : 2 * state] = 0.0

    def states(self, ids: Tensor, lengths: Tensor, dropout: float = 0.0) -> Tensor:
        """(b, state_dim) states after the last words of captions (b, m) of (b,) words with ``<end>``."""
        vectors = functional.dropout(self.words(ids), dropout, self.training)
        states, _ = self.lstm(vectors)
        last = (lengths - 1).to(ids.device)[:, None, None].expand(-1, 1, states.shape[2])
        return functional.dropout(states.gather(1, last)[:, 0], dropout, self.training)

    def logits(self, images: Tensor, references: Tensor, candidates: Tensor, dropout: float = 0.0) -> Tensor:
        """(b, 2) class scores from (b, image_dim) images and (b, state_dim) states of references and candidates."""
        seen = self.image(images * self.options.image_scale)
        hidden = functional.relu(self.hidden(torch.cat([seen, references, candidates], dim=1)))
        scores: Tensor = self.classes(functional.dropout(hidden, dropout, self.training))
        return scores


class LeicModel(TrainedModel[Leic, LeicOptions]):
    """A trained network with its vocabulary."""

    title, network_type, option_type = "LEIC", Leic, LeicOptions

    def summary(self) -> dict[str, object]:
        facts = {"words": len(self.vocabulary), "embed_dim": self.options.state_dim, "features": self.features}
        return {**facts, "metric": "leic"}

    @torch.inference_mode()
    def states(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(n, state_dim) states of captions; those of the same words are encoded once."""

        def encode(batch: Sequence[tuple[int, ...]]) -> NDArray[np.float32]:
            states: NDArray[np.float32] = self.network.states(*pad_rows(batch)).numpy()
            return states

        of_texts = [tuple(encode_words(text, self.vocabulary, self.options.steps)) for text in texts]
        states = self.encodings.of(of_texts, encode, _BATCH)
        return np.stack([states[ids] for ids in of_texts])

    @torch.inference_mode()
    def human(self, images: NDArray[Any], references: NDArray[Any], candidates: NDArray[Any]) -> FloatArray:
        """(n,) probabilities that captions are human-written, from vectors of images and states of captions."""
        image, reference, candidate = map(torch.from_numpy, (images, references, candidates))
        logits = self.network.logits(image, reference, candidate)
        human: FloatArray = logits.double().softmax(dim=1)[:, HUMAN].numpy()
        return human


def mean_vector(features: NDArray[Any]) -> NDArray[np.float32]:
    """(D) mean of an image's region features (n, D), the network's vector of an image."""
    mean: NDArray[np.float32] = np.asarray(features, dtype=np.float64).mean(axis=0).astype(np.float32)
    return mean

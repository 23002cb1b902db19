"""FAIEr's network: scene graphs of image and captions, their fusion, and the match of candidates with it; weight files.

A caption has two *levels*. Its objects are all its words. Its relations are the triplets of its scene graph: ⟨subject,
relation, object⟩ from SPICE's parser, in base forms, each read as its words in this order ("kid stand in grass").

Wang, Yao, Wang, Wu and Chen, "FAIEr: Fidelity and Adequacy Ensured Image Caption Evaluation", CVPR 2021: nodes in
section 3.1 (eq. 1), fusion in 3.2 (eq. 2), matching in 3.3 (eq. 3), variants in 4.2. They published no weights.

Shapes: B images have R regions each, C captions K nodes of a level (words or triplets, padded), an image J references
(padded), of which the first are read, for each of P numbers; a node has d components.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from capbench.core.errors import FeatureError
from capbench.core.options import Choice, Count, Options, Positive, option
from capbench.features.records import RegionFeatures
from capbench.metrics.scan.network import l2norm
from capbench.text.spice.scene_graph import Triplet
from capbench.text.vocabulary import UNKNOWN, Vocabulary, pad_rows, tokenize_caption
from capbench.weights.files import TrainedModel

VARIANTS = tuple(f"{parts}{levels}" for parts in ("faier", "fier", "aier", "fier+aier") for levels in ("", "-object"))
"""The paper's FAIEr and FAIEr\\rel, FIEr, AIEr and FIEr+AIEr; ``-object`` variants have no relation level."""

NO_REFERENCE = "."  # Reference of an image without references (section 3.1). It has no triplets.

_SIZE = Count(1, 1 << 20)


@dataclass(frozen=True)
class FaierOptions(Options):
    """Sizes of the network, by default the published ones, and its variant."""

    removed: ClassVar[Mapping[str, object]] = {
        "z": "linear",
        "image_bias": False,
        "relation_bias": False,
        "union_bias": False,
        "directions": "mean",
        "reference_encoder": "shared",
        "triplet_encoder": "separate",
        "triplet_embedding": "shared",
        "triplet_state": "final",
        "levels": "separate",
        "empty_references": "step",
        "ends": "read",
        "boxes": "normalised",
    }

    vocabulary_size: int = option(MISSING, Count(1), "number of words, including the four special ones")
    word_dim: int = option(300, _SIZE, "components of a word vector")
    embed_dim: int = option(512, _SIZE, "components of a node (d)")
    image_dim: int = option(2048, _SIZE, "components of a region feature")
    variant: str = option(
        "faier",
        Choice(*VARIANTS),
        "inputs of the union nodes: image and references (faier), the image only (fier), references only (aier), or"
        " both separately (fier+aier); -object: without the relation level",
    )
    similarity: Literal["dot", "cosine"] = option(
        "dot", Choice("dot", "cosine"), "similarity of a union node and a candidate's node; dot as in the paper"
    )
    image_scale: float = option(
        1.0, Positive(), "factor of the features before W1: its tanh saturates on large features"
    )

    def __post_init__(self) -> None:
        self.checked("faier", vars(self))

    @property
    def relations(self) -> bool:
        """True if there is a relation level."""
        return not self.variant.endswith("-object")

    @property
    def parts(self) -> str:
        """The variant without its suffix: ``faier``, ``fier``, ``aier`` or ``fier+aier``."""
        return self.variant.removesuffix("-object")

    @property
    def sees_images(self) -> bool:
        """True if the network reads images."""
        return self.parts != "aier"

    @property
    def reads_references(self) -> bool:
        """True if the network reads references."""
        return self.parts != "fier"


# Inputs of the network: captions as ids of words and triplets, boxes.


class CaptionCode(NamedTuple):
    """Ids of a caption's words, with ``<start>`` and ``<end>``, and of the words of each triplet, one or more."""

    words: tuple[int, ...]
    triplets: tuple[tuple[int, ...], ...] = ()


class CaptionBatch(NamedTuple):
    """Captions as tensors, on the CPU."""

    words: tuple[Tensor, Tensor]  # ids (C, m), padded, and lengths (C,)
    triplets: tuple[Tensor, Tensor]  # ids (T, w) of the distinct triplets, padded, and lengths (T,)
    triplets_of: Tensor  # (C, K) each caption's rows among the triplets, padded with -1


def caption_code(text: str, triplets: Sequence[Triplet], vocabulary: Vocabulary, options: FaierOptions) -> CaptionCode:
    """Ids of a caption's words and triplets; no triplets without a relation level."""
    numbers = (tuple(map(vocabulary.number, triplet_words(triplet))) for triplet in triplets if options.relations)
    return CaptionCode(tuple(vocabulary.encode(text)), tuple(of_triplet or (UNKNOWN,) for of_triplet in numbers))


@functools.lru_cache(1 << 16)  # many captions share triplets
def triplet_words(triplet: Triplet) -> tuple[str, ...]:
    """The words of ⟨subject, relation, object⟩, tokenised like a caption."""
    return tuple(tokenize_caption(" ".join(triplet)))


def collate(captions: Sequence[CaptionCode], drop: Callable[[Tensor], Tensor] = lambda ids: ids) -> CaptionBatch:
    """Captions as tensors; each distinct triplet of the batch occurs once. ``drop``: replaces ids of words."""
    distinct = list(dict.fromkeys(triplet for caption in captions for triplet in caption.triplets))
    place = {triplet: number for number, triplet in enumerate(distinct)}
    ids, lengths = pad_rows([caption.words for caption in captions])
    triplets_of, _ = pad_rows([[place[triplet] for triplet in caption.triplets] for caption in captions], -1)
    return CaptionBatch((drop(ids), lengths), pad_rows(distinct), triplets_of)


def region_boxes(regions: RegionFeatures) -> NDArray[np.float32]:
    """(R, 4) boxes x1, y1, x2, y2 as fractions of the image's sides; the paper does not say which unit."""
    if regions.boxes is None:
        raise boxes_missing()
    width, height = regions.width, regions.height
    return np.asarray(regions.boxes / np.array([width, height, width, height], np.float32), np.float32)


def boxes_missing(path: Path | None = None) -> FeatureError:
    """The error for region features without boxes."""
    message = "there are no boxes, but FAIEr's relation level requires them"
    hint = "Use a store with boxes, or a model without a relation level (variant faier-object)"
    return FeatureError(message, code="wrong-features", path=path, hint=hint)


# The network.


@dataclass(frozen=True)
class Nodes:
    """Nodes of one level: vectors (..., K, d), and mask (..., K) bool, False for padding."""

    vectors: Tensor
    mask: Tensor

    def __getitem__(self, index: Any) -> Nodes:
        """Nodes at these indices of the first axes: (B, J) indices of C captions give references (B, J, K, d)."""
        return Nodes(self.vectors[index], self.mask[index])


Levels = tuple[Nodes, ...]
"""Objects, and relations if there are any: regions before and after the graph convolution, or words and triplets."""


class Union(NamedTuple):
    """Sets of nodes (B, J, R, d) that candidates are matched with, by level, and their weights (P, B, J) in a score."""

    sets: Levels
    weights: Tensor


class _Level(nn.Module):
    """Weights of eq. 2. No bias is printed; each level has its own weights."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.attention = nn.Linear(size, 1, bias=False)  # W_a
        self.union = nn.Linear(2 * size, size, bias=False)  # W_u


class _Fusion(nn.Module):
    def __init__(self, size: int, levels: int) -> None:
        super().__init__()
        self.levels = nn.ModuleList(_Level(size) for _ in range(levels))
        self.grus = nn.ModuleList(nn.GRU(size, size, batch_first=True) for _ in range(levels))


def fuse(layer: Any, gru: Any, v: Tensor, references: Nodes, places: Tensor, counts: Tensor) -> Tensor:
    """z (B, P, R, d) of a level (eq. 2), for several numbers of references.

    Image nodes v (B, R, d) attend to the nodes h (C, K, d) of each reference; a GRU, which starts at 0, reads the
    attended vectors; z is linear as printed. A reference without nodes, such as "." at the relation level, is a step
    with a zero input. ``layer``: W_a and W_u; ``places``: (B, J) rows of each image's references, arbitrary for
    padding; ``counts``: (P, B) numbers of first references that are read.
    """
    h, mask = references.vectors[places], references.mask[places][:, :, None]  # (B, J, K, d), (B, J, 1, K)
    logits = torch.einsum("brd,bjkd->bjrk", v * layer.attention.weight[0], h)
    alpha = logits.masked_fill(~mask, -1e9).softmax(-1) * mask  # −1e9: gradients without nodes are 0 and not NaN
    # The GRU's product with a = Σ_k α_k·h_k is formed as Σ_k α_k·(W·h_k): a caption has fewer nodes than the image.
    inputs = alpha @ functional.linear(references.vectors, gru.weight_ih_l0)[places] + gru.bias_ih_l0  # (B, J, R, 3d)
    m, states = torch.zeros_like(v), []
    for step, of_step in enumerate(inputs.unbind(1)):
        reads = counts.max(0).values > step  # the images that have as many references
        last = m[reads]
        x_r, x_u, x_n = of_step[reads].chunk(3, -1)
        h_r, h_u, h_n = functional.linear(last, gru.weight_hh_l0, gru.bias_hh_l0).chunk(3, -1)
        new = torch.tanh(x_n + torch.sigmoid(x_r + h_r) * h_n)
        m = m.index_put((reads,), torch.lerp(new, last, torch.sigmoid(x_u + h_u)))
        states.append(m)
    m = torch.stack(states)[counts - 1, torch.arange(len(v))].transpose(0, 1)  # (B, P, R, d)
    of_v, of_m = layer.union.weight.chunk(2, 1)
    return functional.linear(v, of_v)[:, None] + functional.linear(m, of_m)


class Faier(nn.Module):
    """The network of one variant; ``generator`` draws the initial weights."""

    kind: ClassVar = "capbench.faier/1"  # of weight files

    def __init__(self, options: FaierOptions, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.options = options
        size, levels = options.embed_dim, 2 if options.relations else 1
        if options.sees_images:
            self.image_hidden = nn.Linear(options.image_dim, size, bias=False)  # W1
            self.image_out = nn.Linear(size, size, bias=False)  # W2
            if options.relations:
                self.offset = nn.Linear(4, 1, bias=False)  # W_Δ
                self.relation = nn.Linear(size, size, bias=False)  # W_r
        self.embed = nn.Embedding(options.vocabulary_size, options.word_dim)
        self.word_gru = nn.GRU(options.word_dim, size, batch_first=True, bidirectional=True)
        if options.relations:
            self.triplet_gru = nn.GRU(options.word_dim, size, batch_first=True, bidirectional=True)
        if options.parts == "faier":
            self.fusion = _Fusion(size, levels)
        if options.parts == "fier+aier":
            self.merge = nn.Linear(2, 1)  # w, b
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw initial weights: Xavier-uniform layers with bias 0, words in U(−0.1, 0.1), GRUs in U(±1/√d).

        FIEr+AIEr starts with the mean of its two scores.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear):
                bound = math.sqrt(6 / (module.in_features + module.out_features))
                module.weight.uniform_(-bound, bound, generator=generator)
            elif isinstance(module, nn.Embedding):
                module.weight.uniform_(-0.1, 0.1, generator=generator)
            elif isinstance(module, nn.GRU):
                bound = 1 / math.sqrt(module.hidden_size)
                for weight in module.parameters():
                    weight.uniform_(-bound, bound, generator=generator)
        if self.options.parts == "fier+aier":
            self.merge.weight.fill_(0.5)
            self.merge.bias.zero_()

    def encode_images(self, features: Tensor, boxes: Tensor | None, dropout: float = 0.0) -> Levels:
        """(B, R, d) objects v = W2·tanh(W1·u) and relations Σ_j γ_ij·W_r·v_j, γ_ij = softmax_j(tanh(W_Δ(b_i − b_j)))
        (eq. 1), from features u (B, R, image_dim) and boxes b (B, R, 4), fractions of the image's sides. No biases are
        printed."""
        u = functional.dropout(features * self.options.image_scale, dropout, self.training)
        v = self.image_out(torch.tanh(self.image_hidden(u)))
        mask = torch.ones(v.shape[:2], dtype=torch.bool, device=v.device)
        if boxes is None:
            return (Nodes(v, mask),)
        place = self.offset(boxes)[..., 0]  # (B, R)
        gamma = torch.tanh(place[:, :, None] - place[:, None, :]).softmax(-1)  # (B, R, R)
        return Nodes(v, mask), Nodes(gamma @ self.relation(v), mask)

    def encode_captions(self, captions: CaptionBatch, dropout: float = 0.0) -> Levels:
        """Candidates or references → a node per word (C, K, d) and per triplet (C, K', d).

        A word's node is its state of a bidirectional GRU, which also reads ``<start>`` and ``<end>``; a triplet's node
        is the final state of another one. The paper does not say how the directions are combined: by their mean.
        """
        device = self.embed.weight.device
        states, _ = self._read(self.word_gru, *captions.words, dropout)
        words = states[:, 1:-1] if states.shape[1] > 2 else states[:, :1]  # one column at least
        present = torch.arange(words.shape[1]) < captions.words[1][:, None] - 2
        objects = Nodes(words, present.to(device))
        if not self.options.relations:
            return (objects,)
        triplets = words.new_zeros(1, words.shape[2])
        if len(captions.triplets[0]):
            _, triplets = self._read(self.triplet_gru, *captions.triplets, dropout)
        places = captions.triplets_of.to(device)
        return objects, Nodes(triplets[places.clamp_min(0)], places >= 0)

    def _read(self, gru: nn.GRU, ids: Tensor, lengths: Tensor, dropout: float) -> tuple[Tensor, Tensor]:
        """Texts (C, m) → states (C, m, d) and final states (C, d), means of both directions."""
        vectors = self.embed(ids.to(self.embed.weight.device))
        packed = pack_padded_sequence(vectors, lengths, batch_first=True, enforce_sorted=False)
        packed = packed._replace(data=functional.dropout(packed.data, dropout, self.training))
        states, final = gru(packed)
        states, _ = pad_packed_sequence(states, batch_first=True, total_length=ids.shape[1])
        forward, backward = states.chunk(2, -1)
        return (forward + backward) / 2, final.mean(0)

    def fuse(self, images: Levels | None, references: Levels | None, places: Tensor, counts: Tensor) -> list[Union]:
        """The nodes that candidates are matched with, by variant (section 4.2).

        FAIEr's are z of image and references (eq. 2), FIEr's those of the image, AIEr's those of each reference, with
        the mean over references as its score. FIEr+AIEr has the last two. ``places`` and ``counts``, from 1 to J and on
        the CPU, as in :func:`fuse`.
        """
        if self.options.parts == "faier" and images is not None and references is not None:
            levels = zip(self.fusion.levels, self.fusion.grus, images, references, strict=True)
            z = [Nodes(fuse(layer, gru, v.vectors, h, places, counts), v.mask[:, None]) for layer, gru, v, h in levels]
            return [Union(tuple(z), torch.eye(len(counts)).to(z[0].vectors)[:, None])]
        union = []
        if images is not None:
            union.append(Union(tuple(v[:, None] for v in images), images[0].vectors.new_ones(*counts.shape, 1)))
        if references is not None:
            weights = (torch.arange(places.shape[1]) < counts[..., None]).to(references[0].vectors)
            union.append(Union(tuple(h[places] for h in references), weights / weights.sum(-1, keepdim=True)))
        return union

    def scores(self, union: Sequence[Union], candidates: Levels) -> Tensor:
        """(P, B, C, 3): S = S^o + S^r, S^o and S^r of every candidate with every image; S^r is 0 without relations.

        For FIEr+AIEr, each level is w·[S_F; S_A], and S has the bias b.
        """
        parts = [
            [
                torch.einsum("pbj,bjc->pbc", weights.expand(-1, len(z.mask), -1), self.match(z, h))
                for z, h in zip(sets, candidates, strict=True)
            ]
            for sets, weights in union
        ]
        levels: list[Tensor] = parts[0]
        bias: Tensor | float = 0.0
        if len(parts) == 2:
            (w_f, w_a), bias = self.merge.weight[0], self.merge.bias
            levels = [w_f * fidelity + w_a * adequacy for fidelity, adequacy in zip(*parts, strict=True)]
        objects, relations = (*levels, torch.zeros_like(levels[0]))[:2]
        return torch.stack([objects + relations + bias, objects, relations], -1)

    def match(self, z: Nodes, h: Nodes) -> Tensor:
        """S (B, J, C) of a level (eq. 3): mean over a candidate's nodes h (C, K, d) of the product with the best union
        node z (B, J, R, d). It is 0 for a candidate without nodes, and for a set without nodes."""
        products = self.products(z.vectors, h.vectors).masked_fill(~z.mask[..., None, None], -math.inf)
        there = h.mask & z.mask.any(-1)[..., None, None]
        return torch.where(there, products.max(2).values, 0.0).sum(-1) / h.mask.sum(-1).clamp_min(1)

    def products(self, z: Tensor, h: Tensor) -> Tensor:
        """z (B, J, R, d), h (C, K, d) → (B, J, R, C, K) dot products as in the paper, or cosines."""
        if self.options.similarity == "cosine":
            z, h = l2norm(z), l2norm(h)
        return torch.einsum("bjrd,ckd->bjrck", z, h)


# Weight files.


class FaierModel(TrainedModel[Faier, FaierOptions]):
    """A trained FAIEr with its vocabulary."""

    title, network_type, option_type = "FAIEr", Faier, FaierOptions

    @property
    def shared(self) -> tuple[str, ...]:
        scores = "scores by dot product" if self.options.similarity == "dot" else "scores by cosine"
        return *super().shared, f"is of the variant {self.options.variant}", scores

    def signature_parts(self) -> dict[str, str]:
        parts = super().signature_parts()
        return {"model": parts["model"], "variant": self.options.variant, **parts}

    def summary(self) -> dict[str, object]:
        return {**super().summary(), "variant": self.options.variant, "similarity": self.options.similarity}

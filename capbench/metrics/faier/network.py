"""FAIEr's network: scene graphs of image and captions, their fusion, and the match of candidates with it; weight files.

The paper's authors published no weights.

References:
    Wang, Yao, Wang, Wu and Chen, "FAIEr: Fidelity and Adequacy Ensured Image Caption Evaluation", CVPR 2021: nodes in
        section 3.1 (eq. 1), fusion in 3.2 (eq. 2), matching in 3.3 (eq. 3), variants in 4.2.

Shapes: B images have R regions each (padded), C captions K nodes of a level (words or triplets, padded), an image J
references (padded); a node has d components. Order of the calls::

    images = network.encode_images(features, boxes, counts)        # Graph (B, R, d)
    captions = network.encode_captions(collate(codes))             # Graph (C, K, d), each distinct caption once
    union = network.fuse(images, captions[places], references)     # places (B, J), references (B,)
    scores = network.scores(union, captions)                       # (B, C): objects, relations, total

An image without references gets the reference :data:`~capbench.metrics.faier.graphs.NO_REFERENCE`. All steps are
differentiable and vectorised over regions, captions and pairs.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from capbench.core.errors import ModelError, UsageError
from capbench.metrics.faier.graphs import CaptionBatch, CaptionCode, FaierOptions, Graph, Nodes, caption_code
from capbench.metrics.grounding.scan import l2norm
from capbench.text.spice.scene_graph import Triplet
from capbench.text.vocabulary import Vocabulary
from capbench.weights.arrays import read_metadata
from capbench.weights.ensembles import network_files
from capbench.weights.files import Family, TrainedModel, load_trained, write_trained
from capbench.weights.packed_gru import Packing, packed_captions, recurrence

# Attention fusion layer (section 3.2, eq. 2): image nodes attend to references.


class _Level(nn.Module):
    """Weights W_a and W_u of a level."""

    def __init__(self, options: FaierOptions) -> None:
        super().__init__()
        size = options.embed_dim
        self.attention = nn.Linear(size, 1, bias=False)  # W_a
        self.union = nn.Linear(2 * size, size, bias=options.union_bias)  # W_u


class Fusion(nn.Module):
    """Attention fusion layer for both levels."""

    def __init__(self, options: FaierOptions) -> None:
        super().__init__()
        self.options = options
        number = 2 if options.relations else 1
        self.levels = nn.ModuleList(_Level(options) for _ in range(1 if options.levels == "shared" else number))
        self.grus = nn.ModuleList(nn.GRU(options.embed_dim, options.embed_dim, batch_first=True) for _ in range(number))

    def forward(self, level: int, images: Nodes, references: Nodes, prefixes: Tensor) -> Tensor:
        """z of a level before the optional tanh, for several numbers of references in one pass of the GRU.

        Args:
            level: 0 for objects, 1 for relations.
            images: nodes (B, R, d).
            references: nodes (B, J, K, d). A reference without nodes has a = 0.
            prefixes: (P, B) numbers of references, 1 to J: each z uses this many of an image's first references.

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
        memory = self._memory(gru, weights, references.vectors, prefixes.cpu())
        of_images, of_references = layer.union.weight.chunk(2, dim=1)
        z: Tensor = functional.linear(images.vectors, of_images, layer.union.bias)
        return z + functional.linear(memory, of_references)

    def _memory(self, gru: nn.GRU, weights: Tensor, vectors: Tensor, prefixes: Tensor) -> Tensor:
        """m (P, B, R, d): states of a GRU over the attended means of the references, a = Σ_k α_k·h_k."""
        batch, _, regions, nodes = weights.shape
        of_inputs, of_states, bias, bias_of_states = gru.all_weights[0]
        if nodes < regions:  # W(Σ α·h) = Σ α·(W·h) is cheaper if a reference has fewer nodes than the image regions
            gates = weights @ functional.linear(vectors, of_inputs)
        else:
            gates = functional.linear(weights @ vectors, of_inputs)
        steps = prefixes.max(dim=0).values
        present = (steps > 0).nonzero()[:, 0]
        shape = (len(prefixes), batch, regions, gru.hidden_size)
        if not len(present):
            return weights.new_zeros(shape)
        device = gates.device
        packing = Packing(steps[present].repeat_interleave(regions))
        image, region = packing.captions // regions, packing.captions % regions
        packed = gates[present[image].to(device), packing.steps.to(device), region.to(device)] + bias
        states = recurrence(packed, of_states, bias_of_states, packing)
        if len(present) == batch and bool((prefixes > 0).all()):
            last = (prefixes - 1).repeat_interleave(regions, dim=1)  # (P, B·R)
            rows = packing.row(torch.arange(batch * regions).expand_as(last), last)
            return states[rows.to(device)].view(shape)
        # The memory of an image whose references are all skipped stays 0.
        prefix, there = (prefixes[:, present] > 0).nonzero(as_tuple=True)
        last = prefixes[prefix, present[there]] - 1
        sequences = there[:, None] * regions + torch.arange(regions)
        chosen = states[packing.row(sequences, last[:, None].expand_as(sequences)).to(device)]  # (·, R, d)
        memory = weights.new_zeros(shape)
        return memory.index_put((prefix.to(device), present[there].to(device)), chosen)


def attention(queries: Tensor, references: Nodes) -> Tensor:
    """α: queries W_a ⊙ v (B, R, d), references (B, J, K, d) → (B, J, R, K); 0 in a reference without nodes."""
    batch, number, nodes, size = references.vectors.shape
    flat = references.vectors.reshape(batch, number * nodes, size)
    logits = (queries @ flat.mT).view(batch, queries.shape[1], number, nodes).transpose(1, 2)
    absent = ~references.mask[:, :, None, :]
    empty = absent.all(dim=-1, keepdim=True)
    # The softmax of a row of −∞ would be NaN, and its gradient too.
    weights = logits.masked_fill(absent & ~empty, -math.inf).softmax(dim=-1)
    return weights.masked_fill(empty, 0.0)


def _without_empty(references: Nodes, prefixes: Tensor) -> tuple[Nodes, Tensor]:
    """References with nodes moved to the front, in their order, and the number of them in each prefix."""
    number = references.mask.shape[1]
    nonempty = references.mask.any(dim=-1)  # (B, J)
    order = torch.argsort((~nonempty).to(torch.int8), dim=1, stable=True)
    rows = torch.arange(len(order), device=order.device)[:, None]
    inside = torch.arange(number, device=nonempty.device) < prefixes.to(nonempty.device)[:, :, None]  # (P, B, J)
    return references[rows, order], (inside & nonempty).sum(dim=2)


# Matching (section 3.3, eq. 3): mean over a candidate's nodes of the product with the best union node.

# Maximum number of products of union nodes and candidate nodes formed at once.
_AT_ONCE = 1 << 23


@dataclass(frozen=True)
class Scores:
    """Scores of pairs; all tensors have the same shape.

    Attributes:
        objects: S^o.
        relations: S^r; None without a relation level.
        total: S.
    """

    objects: Tensor
    relations: Tensor | None
    total: Tensor


def level_scores(union: Nodes, candidates: Nodes, *, cosine: bool) -> Tensor:
    """S of a level for every pair: union nodes (B, R, d), candidates (C, K, d) → (B, C), differentiable.

    Products are formed for a few images at a time; the backward pass stores only the index of the best node. The score
    is 0 for a candidate without nodes, and for all candidates if there are no union nodes.
    """
    images, regions, size = union.vectors.shape
    captions = candidates.mask.shape[0]
    rows, counts = _present(candidates)
    words = candidates.vectors.flatten(0, 1)[rows]
    if not len(words) or not images:
        return union.vectors.new_zeros(images, captions)
    z = union.vectors
    if cosine:
        z, words = l2norm(z), l2norm(words)
    full = bool(union.mask.all())
    best = []
    step = max(1, _AT_ONCE // (regions * len(words)))
    for start in range(0, images, step):
        part = z[start : start + step]
        products = (part.reshape(-1, size) @ words.t()).view(len(part), regions, len(words))
        best.append(_best(products, None if full else union.mask[start : start + step, :, None], dim=1))
    owners = rows // candidates.mask.shape[1]
    sums = z.new_zeros(images, captions).index_add(1, owners, torch.cat(best))
    return sums / counts.clamp_min(1)


def paired_level_scores(union: Nodes, candidates: Nodes, images: Tensor, *, cosine: bool) -> Tensor:
    """S of a level for candidates (C, K, d), each with one image: indices (C,) → (C,)."""
    z, h = union.vectors, candidates.vectors
    if cosine:
        z, h = l2norm(z), l2norm(h)
    regions, nodes, size = z.shape[1], h.shape[1], h.shape[2]
    parts = []
    step = max(1, _AT_ONCE // (regions * max(nodes, size)))
    for start in range(0, len(images), step):
        owners = images[start : start + step]
        mask = candidates.mask[start : start + step]
        products = z[owners] @ h[start : start + step].mT  # (c, R, K)
        best = _best(products, union.mask[owners][:, :, None], dim=1)
        parts.append(torch.where(mask, best, 0.0).sum(dim=1) / mask.sum(dim=1).clamp_min(1))
    return torch.cat(parts) if parts else z.new_zeros(0)


def mean_over_references(scores: Tensor, counts: Tensor) -> Tensor:
    """Scores with each reference (B, J, C), numbers of references (B,) → mean scores (B, C)."""
    counts = counts.to(scores.device)
    there = torch.arange(scores.shape[1], device=scores.device) < counts[:, None]
    return torch.where(there[:, :, None], scores, 0.0).sum(dim=1) / counts[:, None]


def _present(nodes: Nodes) -> tuple[Tensor, Tensor]:
    """Flat indices of nodes that are not padding, and their number for each caption."""
    return nodes.mask.flatten().nonzero()[:, 0], nodes.mask.sum(dim=1)


def _best(products: Tensor, mask: Tensor | None, dim: int) -> Tensor:
    """Largest product along an axis; 0 if all are masked."""
    if mask is None:
        return products.max(dim=dim).values
    best = products.masked_fill(~mask, -math.inf).max(dim=dim).values
    return torch.where(mask.any(dim=dim).expand_as(best), best, 0.0)


@dataclass(frozen=True)
class Union:
    """Nodes of B images that candidates are matched with.

    Attributes:
        fused: union nodes z (B, R, d) of both levels; for FIEr the image's nodes; None for AIEr.
        references: nodes (B, J, K, d) of the references for AIEr and FIEr+AIEr; else None.
        counts: (B,) numbers of references; None if there are none.
    """

    fused: Graph | None
    references: Graph | None
    counts: Tensor | None


class Faier(nn.Module):
    """The network of one variant.

    Args:
        options: sizes and variant.
        generator: draws the initial weights; the global one if None.
    """

    def __init__(self, options: FaierOptions, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.options = options
        size = options.embed_dim
        if options.sees_images:
            self.image_hidden = nn.Linear(options.image_dim, size, bias=options.image_bias)  # W1
            self.image_out = nn.Linear(size, size, bias=options.image_bias)  # W2
            if options.relations:
                self.offset = nn.Linear(4, 1, bias=options.relation_bias)  # W_Δ
                self.relation = nn.Linear(size, size, bias=options.relation_bias)  # W_r
        self.embed = nn.Embedding(options.vocabulary_size, options.word_dim)
        self.word_gru = self._gru()
        others = options.reads_references and options.reference_encoder == "separate"
        if others:
            self.reference_word_gru = self._gru()
        if options.relations:
            if options.triplet_embedding == "separate":
                self.triplet_embed = nn.Embedding(options.vocabulary_size, options.word_dim)
            if options.triplet_encoder == "separate":
                self.triplet_gru = self._gru()
                if others:
                    self.reference_triplet_gru = self._gru()
        if options.parts == "faier":
            self.fusion = Fusion(options)
        if options.parts == "fier+aier":
            self.merge = nn.Linear(2, 1)  # w, b
        self.reset_parameters(generator)

    def _gru(self) -> nn.GRU:
        options = self.options
        size = options.embed_dim // 2 if options.directions == "concat" else options.embed_dim
        return nn.GRU(options.word_dim, size, batch_first=True, bidirectional=True)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw initial weights: Xavier-uniform layers with bias 0, words in U(−0.1, 0.1), GRUs in U(±1/√d).

        FIEr+AIEr starts with the mean of its two scores.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear):
                bound = math.sqrt(6 / (module.in_features + module.out_features))
                module.weight.uniform_(-bound, bound, generator=generator)
                if module.bias is not None:
                    module.bias.zero_()
            elif isinstance(module, nn.Embedding):
                module.weight.uniform_(-0.1, 0.1, generator=generator)
            elif isinstance(module, nn.GRU):
                bound = 1 / math.sqrt(module.hidden_size)
                for weight in module.parameters():
                    weight.uniform_(-bound, bound, generator=generator)
        if self.options.parts == "fier+aier":
            self.merge.weight.fill_(0.5)

    def encode_images(
        self, features: Tensor, boxes: Tensor | None, counts: Tensor | None = None, dropout: float = 0.0
    ) -> Graph:
        """Region features → nodes of both levels (eq. 1).

        Args:
            features: (B, R, image_dim).
            boxes: (B, R, 4) in the options' unit; None without a relation level.
            counts: (B,) number of regions of each image, 1 to R; None for R.
            dropout: of the features, in training mode only.

        Returns:
            Objects W2·tanh(W1·u) and relations Σ_j γ_ij·W_r·v_j, (B, R, d); rows of padding are undefined.

        Raises:
            UsageError: the variant reads no images, or has a relation level and there are no boxes.
        """
        options = self.options
        if not options.sees_images:
            message = f"the variant {options.variant} reads no images"
            raise UsageError(message, code="unsupported", value=options.variant)
        batch, regions = features.shape[:2]
        mask = torch.ones(batch, regions, dtype=torch.bool, device=features.device)
        if counts is not None:
            mask = torch.arange(regions, device=features.device) < counts.to(features.device)[:, None]
        if options.image_scale != 1:
            features = features * options.image_scale
        hidden = torch.tanh(self.image_hidden(functional.dropout(features, dropout, self.training)))
        objects = self.image_out(hidden)
        if not options.relations:
            return Graph(Nodes(objects, mask), None)
        if boxes is None:
            raise UsageError(
                f"the variant {options.variant} requires boxes",
                code="wrong-features",
                value=options.variant,
                hint="Use the variant faier-object",
            )
        # W_Δ(b_i − b_j) = W_Δ·b_i − W_Δ·b_j avoids forming the offsets.
        place = functional.linear(boxes, self.offset.weight)[..., 0]  # (B, R)
        logits = place[:, :, None] - place[:, None, :]
        if self.offset.bias is not None:
            logits = logits + self.offset.bias
        weights = torch.tanh(logits).masked_fill(~mask[:, None, :], -math.inf).softmax(dim=-1)
        return Graph(Nodes(objects, mask), Nodes(weights @ self.relation(objects), mask))

    def encode_captions(self, captions: CaptionBatch, dropout: float = 0.0, *, references: bool = False) -> Graph:
        """Captions → words (C, K, d) and triplets (C, K', d).

        Args:
            captions: word ids.
            dropout: of word vectors, in training mode only.
            references: True uses the encoders of references, if these are separate.
        """
        words = self.encode_words(captions.ids, captions.lengths, dropout, references=references)
        if not self.options.relations:
            return Graph(words, None)
        triplets = self.encode_triplets(captions.triplet_ids, captions.triplet_lengths, dropout, references=references)
        mask = captions.triplets_of >= 0
        if not len(triplets):
            shape = (*mask.shape, self.options.embed_dim)
            return Graph(words, Nodes(words.vectors.new_zeros(shape), mask))
        return Graph(words, Nodes(triplets[captions.triplets_of.clamp_min(0)], mask))

    def encode_words(self, ids: Tensor, lengths: Tensor, dropout: float = 0.0, *, references: bool = False) -> Nodes:
        """ids (C, m), lengths (C,) from 0 → nodes (C, K, d), one per word; ``<start>`` and ``<end>`` as in ``ends``."""
        separate = references and self.options.reference_encoder == "separate"
        gru = self.reference_word_gru if separate else self.word_gru
        states = self._combined(self._states(gru, self.embed, ids, lengths.clamp_min(1), dropout))
        if self.options.ends == "read":
            # At least one column, for captions without words.
            states, lengths = states[:, 1:-1] if ids.shape[1] > 2 else states[:, :1], lengths - 2
        present = torch.arange(states.shape[1], device=ids.device) < lengths.to(ids.device)[:, None]
        return Nodes(states, present)

    def encode_triplets(
        self, ids: Tensor, lengths: Tensor, dropout: float = 0.0, *, references: bool = False
    ) -> Tensor:
        """ids (T, w), lengths (T,) from 1 → states (T, d)."""
        options = self.options
        embedding = self.triplet_embed if options.triplet_embedding == "separate" else self.embed
        if not len(ids):
            return embedding.weight.new_zeros(0, options.embed_dim)
        separate = references and options.reference_encoder == "separate"
        if options.triplet_encoder == "shared":
            gru = self.reference_word_gru if separate else self.word_gru
        else:
            gru = self.reference_triplet_gru if separate else self.triplet_gru
        states = self._states(gru, embedding, ids, lengths, dropout)
        rows = torch.arange(len(ids), device=ids.device)
        last = states[rows, lengths.to(ids.device) - 1]
        if options.triplet_state == "last":
            return self._combined(last)
        return self._combined(torch.cat([last[:, : gru.hidden_size], states[:, 0, gru.hidden_size :]], dim=1))

    def _states(self, gru: nn.GRU, embedding: nn.Embedding, ids: Tensor, lengths: Tensor, dropout: float) -> Tensor:
        """States of both directions (C, m, 2·hidden), zero beyond a length."""
        dropout = dropout if self.training else 0.0
        if ids.device.type != "cpu":
            words = functional.dropout(embedding(ids), dropout, self.training)
            packed = pack_padded_sequence(words, lengths.cpu(), batch_first=True, enforce_sorted=False)
            return pad_packed_sequence(gru(packed)[0], batch_first=True, total_length=ids.shape[1])[0]
        states, packing = packed_captions(gru, embedding, ids, lengths, dropout)
        padded = states.new_zeros(ids.shape[0] * ids.shape[1], states.shape[1])
        padded = padded.index_copy(0, packing.captions * ids.shape[1] + packing.steps, states)
        return padded.view(*ids.shape, -1)

    def _combined(self, states: Tensor) -> Tensor:
        """States of two directions (…, 2·hidden) → (…, d)."""
        if self.options.directions == "concat":
            return states
        forward, backward = states.chunk(2, dim=-1)
        return (forward + backward) / 2 if self.options.directions == "mean" else forward + backward

    def fuse(self, images: Graph | None, references: Graph | None, counts: Tensor | None) -> Union:
        """The nodes that candidates are matched with: z of both levels (eq. 2), or the variant's replacement.

        Args:
            images: nodes (B, R, d); ignored by AIEr.
            references: nodes (B, J, K, d), encoded as references; ignored by FIEr.
            counts: (B,) numbers of references, 1 to J; ignored by FIEr.

        Raises:
            UsageError: an image has no references; use :data:`~capbench.metrics.faier.graphs.NO_REFERENCE`.
        """
        (union,) = self.fuse_prefixes(images, references, None if counts is None else counts[None])
        return union

    def fuse_prefixes(self, images: Graph | None, references: Graph | None, prefixes: Tensor | None) -> list[Union]:
        """:meth:`fuse` for several numbers of references: each row of (P, B) has the numbers of first references."""
        options = self.options
        if options.reads_references:
            if references is None or prefixes is None or int(prefixes.min()) < 1:
                raise UsageError(
                    "an image has no references", code="missing-references", hint='Use "." as its reference'
                )
        else:
            references = None
        if options.sees_images and images is None:
            message = f"the variant {options.variant} requires images"
            raise UsageError(message, code="missing-features", value=options.variant)
        number = 1 if prefixes is None else len(prefixes)
        fused: list[Graph | None] = [None] * number
        if options.sees_images and options.parts != "faier":
            assert images is not None
            fused = [_graph([Nodes(self._bounded(n.vectors), n.mask) for n in images.levels])] * number
        elif options.sees_images:
            assert images is not None
            assert references is not None
            assert prefixes is not None
            levels = [
                self._bounded(self.fusion(level, nodes, texts, prefixes))
                for level, (nodes, texts) in enumerate(zip(images.levels, references.levels, strict=True))
            ]
            mask = images.objects.mask
            fused = [_graph([Nodes(z[prefix], mask) for z in levels]) for prefix in range(number)]
        matched = references if options.parts in ("aier", "fier+aier") else None
        return [Union(z, matched, None if prefixes is None else prefixes[row]) for row, z in enumerate(fused)]

    def _bounded(self, z: Tensor) -> Tensor:
        return torch.tanh(z) if self.options.z == "tanh" else z

    def scores(self, union: Union, candidates: Graph) -> Scores:
        """Scores (B, C) of every candidate with every image (eq. 3), in bounded memory.

        Args:
            union: result of :meth:`fuse`.
            candidates: nodes (C, K, d).
        """
        cosine = self.options.similarity == "cosine"
        fidelity, adequacy = [], []
        if union.fused is not None:
            pairs = zip(union.fused.levels, candidates.levels, strict=True)
            fidelity = [level_scores(z, h, cosine=cosine) for z, h in pairs]
        if union.references is not None:
            assert union.counts is not None
            for nodes, h in zip(union.references.levels, candidates.levels, strict=True):
                batch, number = nodes.mask.shape[:2]
                flat = level_scores(Nodes(nodes.vectors.flatten(0, 1), nodes.mask.flatten(0, 1)), h, cosine=cosine)
                adequacy.append(mean_over_references(flat.view(batch, number, -1), union.counts))
        return self._merged(fidelity, adequacy)

    def paired_scores(self, union: Union, candidates: Graph, images: Tensor) -> Scores:
        """Scores (C,) of candidates, each with one image.

        Args:
            union: result of :meth:`fuse`.
            candidates: nodes (C, K, d).
            images: (C,) int64, index of each candidate's image in B.
        """
        cosine = self.options.similarity == "cosine"
        fidelity, adequacy = [], []
        if union.fused is not None:
            pairs = zip(union.fused.levels, candidates.levels, strict=True)
            fidelity = [paired_level_scores(z, h, images, cosine=cosine) for z, h in pairs]
        if union.references is not None:
            assert union.counts is not None
            number = union.references.objects.mask.shape[1]
            steps = torch.arange(number, device=images.device)
            of_references = (images[:, None] * number + steps).flatten()  # (C·J,)
            repeated = torch.arange(len(images), device=images.device).repeat_interleave(number)
            for nodes, h in zip(union.references.levels, candidates.levels, strict=True):
                flat = Nodes(nodes.vectors.flatten(0, 1), nodes.mask.flatten(0, 1))
                scores = paired_level_scores(flat, h[repeated], of_references, cosine=cosine)
                by_reference = scores.view(len(images), number, 1)
                adequacy.append(mean_over_references(by_reference, union.counts[images.to(union.counts.device)])[:, 0])
        return self._merged(fidelity, adequacy)

    def _merged(self, fidelity: list[Tensor], adequacy: list[Tensor]) -> Scores:
        """Scores of levels → objects, relations and their sum; for FIEr+AIEr S = w·[S_F; S_A] + b."""
        levels, bias = fidelity or adequacy, None
        if fidelity and adequacy:
            weight, bias = self.merge.weight[0], self.merge.bias
            levels = [weight[0] * f + weight[1] * a for f, a in zip(fidelity, adequacy, strict=True)]
        relations = levels[1] if len(levels) > 1 else None
        total = levels[0] if relations is None else levels[0] + relations
        return Scores(levels[0], relations, total if bias is None else total + bias)


def _graph(levels: list[Nodes]) -> Graph:
    return Graph(levels[0], levels[1] if len(levels) > 1 else None)


FloatArray32 = NDArray[np.float32]

KIND = "capbench.faier/1"
"""Value of ``kind`` in a weight file's metadata."""
_FAMILY = Family(KIND, "FAIEr", "FAIEr model", "capbench train faier")


class FaierModel(TrainedModel[Faier, FaierOptions]):
    """A trained FAIEr with its vocabulary; its options include the variant and choices that the paper leaves open."""

    @property
    def alike(self) -> tuple[str, ...]:
        """Properties that networks of an ensemble must share."""
        options = self.options
        scores = f"scores by {options.similarity} product" if options.similarity == "dot" else "scores by cosine"
        return "is a FAIEr network", f"is of the variant {options.variant}", scores

    def signature_parts(self) -> dict[str, str]:
        """All properties of the model that can change a score, for a metric's signature."""
        return {
            "model": f"faier-{self.sha256[:16]}",
            "variant": self.options.variant,
            "vocabulary": self.words_signature,
        }

    def summary(self) -> dict[str, object]:
        """The model's properties in listings."""
        options = self.options
        trained = {"variant": options.variant, "similarity": options.similarity}
        return {"words": len(self.vocabulary), "embed_dim": options.embed_dim, "features": self.features, **trained}

    def code(self, text: str, triplets: Sequence[Triplet] = ()) -> CaptionCode:
        """The ids of a caption's words and triplets."""
        return caption_code(text, triplets, self.vocabulary, self.options)

    @torch.inference_mode()
    def encode_image(
        self, features: NDArray[Any], boxes: FloatArray32 | None
    ) -> tuple[FloatArray32, FloatArray32 | None]:
        """Object nodes and relation nodes (R, d) of an image; the latter None without a relation level.

        Args:
            features: (R, image_dim).
            boxes: (R, 4) in the network's unit; None without a relation level.

        Raises:
            ModelError: there are no regions, or features have another size or contain NaN or infinity.
        """
        array = np.asarray(features, dtype=np.float32)
        width = self.options.image_dim
        if array.ndim != 2 or array.shape[1] != width or not len(array):
            raise ModelError(
                f"the features of an image have shape {array.shape}, but the model reads (regions, {width})",
                code="wrong-shape",
                value=array.shape,
                path=self.path,
                hint="Use the kind of features that the model was trained on",
            )
        if not np.isfinite(array).all():
            message = "the features of an image contain NaN or infinity"
            raise ModelError(message, code="not-a-number", hint="Extract them again")
        places = None if boxes is None else torch.from_numpy(np.asarray(boxes, dtype=np.float32)[None]).to(self.device)
        graph = self.network.encode_images(torch.from_numpy(array[None]).to(self.device), places)
        objects, *others = (nodes.vectors[0].cpu().numpy() for nodes in graph.levels)
        return objects, others[0] if others else None


def save_faier(
    path: str | os.PathLike[str],
    network: Faier,
    vocabulary: Vocabulary,
    training: Mapping[str, Any],
) -> None:
    """Write one self-contained ``.safetensors``; arguments and errors are those of
    :func:`capbench.weights.files.write_trained`."""
    write_trained(path, KIND, network, network.options, vocabulary, training)


def load_faier(path: str | os.PathLike[str], device: str = "cpu") -> FaierModel:
    """Load a model that :func:`save_faier` wrote.

    Args:
        path: the file.
        device: ``cpu`` or ``cuda``.

    Raises:
        MissingFileError: the file does not exist.
        ModelError: the file is not a FAIEr model (but, for example, an ensemble or a SCAN model), is damaged, or its
            parts are inconsistent.
    """
    return load_trained(path, _FAMILY, FaierOptions, Faier, FaierModel, device)


def stored_options(path: str | os.PathLike[str]) -> FaierOptions | None:
    """Options of a network, or of an ensemble's first one, without loading weights; None if the file has none.

    Raises ModelError if an ensemble is damaged or incomplete.
    """
    metadata = read_metadata(network_files(path)[0]) or {}
    if metadata.get("kind") != KIND:
        return None
    try:
        return FaierOptions(**json.loads(metadata["options"]))
    except (KeyError, TypeError, ValueError, UsageError):
        return None

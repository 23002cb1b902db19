"""Nodes of captions and images by FAIEr's networks, and scores of rows of captions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from capbench.core.records import FloatArray, Item
from capbench.features.store import FeatureStore
from capbench.metrics.faier.network import (
    CaptionCode,
    FaierModel,
    Levels,
    Nodes,
    Union,
    caption_code,
    collate,
    region_boxes,
)
from capbench.text.spice.scene_graph import Triplet

Triplets = Mapping[str, tuple[Triplet, ...]]  # Text → its triplets
Encoded = Mapping[CaptionCode, NDArray[np.float32]]  # (k, d) nodes of a caption: its words, then its triplets

_BATCH = 256  # captions that are encoded or matched at once


class Encoder:
    """A network with a feature store."""

    def __init__(self, model: FaierModel, store: FeatureStore) -> None:
        self.model, self._store = model, store

    @torch.inference_mode()
    def scores(self, items: Sequence[Item], counts: Sequence[int], triplets: Triplets) -> FloatArray:
        """(counts, items, 3): S, S^o and S^r with so many of the first references.

        Captions that the network reads alike have equal scores."""
        codes, encoded = self._captions({t for item in items for t in (item.candidate, *item.references)}, triplets)
        groups: dict[tuple[str, tuple[CaptionCode, ...]], dict[CaptionCode, list[int]]] = {}
        for place, item in enumerate(items):
            group = groups.setdefault((item.image, tuple(codes[text] for text in item.references)), {})
            group.setdefault(codes[item.candidate], []).append(place)
        scores = np.empty((len(counts), len(items), 3))
        for (image, references), candidates in groups.items():
            union = self._union(image, references, counts, encoded)
            matched = self.model.network.scores(union, self._padded([*candidates], encoded))[:, 0].double().numpy()
            for column, places in enumerate(candidates.values()):
                scores[:, places] = matched[:, column, None]
        return scores

    @torch.inference_mode()
    def matrix(
        self, references: Mapping[str, Sequence[str]], captions: Sequence[str], triplets: Triplets
    ) -> Iterator[FloatArray]:
        """For each image with its references (captions, 3) scores of all captions."""
        codes, encoded = self._captions({*captions, *(t for texts in references.values() for t in texts)}, triplets)
        order = sorted(range(len(captions)), key=lambda place: len(codes[captions[place]].words))
        batches = [order[start : start + _BATCH] for start in range(0, len(order), _BATCH)]
        padded = [self._padded([codes[captions[place]] for place in batch], encoded) for batch in batches]
        for image, texts in references.items():
            union = self._union(image, [codes[text] for text in texts], [len(texts)], encoded)
            scores = np.empty((len(captions), 3))
            for batch, levels in zip(batches, padded, strict=True):
                scores[batch] = self.model.network.scores(union, levels)[0, 0].double().numpy()
            yield scores

    @torch.inference_mode()
    def products(self, item: Item, triplets: Triplets, *, fused: bool = True) -> list[FloatArray]:
        """(nodes, regions) products of the candidate's words and triplets with ``fused`` nodes or the image's alone."""
        codes, encoded = self._captions({item.candidate, *item.references}, triplets)
        sets = tuple(nodes[:, None] for nodes in self._image(item.image) or ())
        if fused:
            references = [codes[text] for text in item.references]
            sets = self._union(item.image, references, [len(references)], encoded)[0].sets
        products = []
        for z, h in zip(sets, self._padded([codes[item.candidate]], encoded), strict=True):
            of_level = self.model.network.products(z.vectors, h.vectors)[0, 0, :, 0]  # (R, K)
            products.append(of_level.T[h.mask[0]].double().numpy())
        return products

    def _union(
        self, image: str, references: Sequence[CaptionCode], counts: Sequence[int], encoded: Encoded
    ) -> list[Union]:
        of_references = self._padded(references, encoded) if self.model.options.reads_references else None
        numbers = torch.tensor([[max(1, min(number, len(references)))] for number in counts])
        return self.model.network.fuse(self._image(image), of_references, torch.arange(len(references))[None], numbers)

    def _captions(self, texts: Iterable[str], triplets: Triplets) -> tuple[dict[str, CaptionCode], Encoded]:
        """The ids of texts, and the nodes of each distinct caption."""
        model = self.model
        codes = {text: caption_code(text, triplets.get(text, ()), model.vocabulary, model.options) for text in texts}

        def encode(batch: Sequence[CaptionCode]) -> Iterator[NDArray[np.float32]]:
            levels = model.network.encode_captions(collate(batch))
            for row in range(len(batch)):
                yield torch.cat([level.vectors[row, level.mask[row]] for level in levels]).numpy()

        return codes, model.encodings.of(codes.values(), encode, _BATCH, lambda code: len(code.words))

    def _image(self, image: str) -> Levels | None:
        """Nodes (1, R, d) of an image; None for AIEr."""
        options = self.model.options
        if not options.sees_images:
            return None
        regions = self._store[image]
        features = torch.from_numpy(regions.features[None].astype(np.float32))
        boxes = torch.from_numpy(region_boxes(regions)[None]) if options.relations else None
        return self.model.network.encode_images(features, boxes)

    def _padded(self, captions: Sequence[CaptionCode], encoded: Encoded) -> Levels:
        """Nodes (C, K, d) of captions, padded."""
        levels = []
        for level in range(2 if self.model.options.relations else 1):
            parts = [np.split(encoded[code], [len(code.words) - 2])[level] for code in captions]
            mask = np.arange(max([1, *map(len, parts)])) < np.array([*map(len, parts)])[:, None]
            vectors = np.zeros((*mask.shape, self.model.options.embed_dim), dtype=np.float32)
            vectors[mask] = np.concatenate(parts)
            levels.append(Nodes(torch.from_numpy(vectors), torch.from_numpy(mask)))
        return tuple(levels)

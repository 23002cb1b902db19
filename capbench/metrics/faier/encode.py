"""Nodes of captions and images by FAIEr's networks, each computed once, and scores of rows of captions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from capbench.core.errors import FeatureError
from capbench.core.records import FloatArray
from capbench.features.store import FeatureStore
from capbench.metrics.faier.network import (
    CaptionCode,
    FaierModel,
    Levels,
    Nodes,
    Union,
    caption_code,
    collate,
    load_faier,
    region_boxes,
)
from capbench.metrics.image_metric import check_features, opened_networks, store_key
from capbench.text.spice.scene_graph import Triplet
from capbench.weights.encodings import Encodings
from capbench.weights.ensembles import check_together

Triplets = Mapping[str, tuple[Triplet, ...]]  # Text → its triplets
Encoded = Mapping[CaptionCode, NDArray[np.float32]]  # (k, d) nodes of a caption: its words, then its triplets

_BATCH = 256  # captions that are encoded or matched at once
_OPENED = 2


class Row(NamedTuple):
    """A candidate with references, the first of which are read: as many as each number in ``counts``, from 1."""

    image: str
    candidate: str
    references: tuple[str, ...]
    counts: tuple[int, ...]


class Encoder:
    """A network with a cache of the nodes of captions and images."""

    def __init__(self, model: FaierModel, store: FeatureStore) -> None:
        self.model, self._store, self._kept = model, store, Encodings()
        self._code = partial(caption_code, vocabulary=model.vocabulary, options=model.options)

    @torch.inference_mode()
    def scores(self, rows: Sequence[Row], triplets: Triplets) -> FloatArray:
        """(rows, counts, 3): S, S^o and S^r. Captions that the network reads alike have equal scores."""
        codes, encoded = self._captions({text for row in rows for text in (row.candidate, *row.references)}, triplets)
        groups: dict[tuple[str, tuple[CaptionCode, ...], tuple[int, ...]], dict[CaptionCode, list[int]]] = {}
        for place, row in enumerate(rows):
            group = groups.setdefault((row.image, tuple(codes[text] for text in row.references), row.counts), {})
            group.setdefault(codes[row.candidate], []).append(place)
        scores = np.empty((len(rows), len(rows[0].counts), 3))
        for (image, references, counts), candidates in groups.items():
            union = self._union(image, references, counts, encoded)
            matched = self.model.network.scores(union, self._padded([*candidates], encoded))[:, 0].double().numpy()
            for column, places in enumerate(candidates.values()):
                scores[places] = matched[:, column]
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
            union = self._union(image, [codes[text] for text in texts], (max(1, len(texts)),), encoded)
            scores = np.empty((len(captions), 3))
            for batch, levels in zip(batches, padded, strict=True):
                scores[batch] = self.model.network.scores(union, levels)[0, 0].double().numpy()
            yield scores

    @torch.inference_mode()
    def products(self, row: Row, triplets: Triplets, *, fused: bool = True) -> list[FloatArray]:
        """(nodes, regions) products of the candidate's words and triplets with ``fused`` nodes or the image's alone."""
        codes, encoded = self._captions({row.candidate, *row.references}, triplets)
        sets = tuple(nodes[:, None] for nodes in self._image(row.image) or ())
        if fused:
            sets = self._union(row.image, [codes[text] for text in row.references], row.counts, encoded)[0].sets
        products = []
        for z, h in zip(sets, self._padded([codes[row.candidate]], encoded), strict=True):
            of_level = self.model.network.products(z.vectors, h.vectors)[0, 0, :, 0]  # (R, K)
            products.append(of_level.T[h.mask[0]].double().numpy())
        return products

    def _union(
        self, image: str, references: Sequence[CaptionCode], counts: Sequence[int], encoded: Encoded
    ) -> list[Union]:
        of_references = self._padded(references, encoded) if self.model.options.reads_references else None
        places = torch.arange(len(references))[None]
        return self.model.network.fuse(self._image(image), of_references, places, torch.tensor(counts)[:, None])

    def _captions(self, texts: Iterable[str], triplets: Triplets) -> tuple[dict[str, CaptionCode], Encoded]:
        """The ids of texts, and the nodes of each distinct caption."""
        codes = {text: self._code(text, triplets.get(text, ())) for text in texts}
        encoded = {code: nodes for code in codes.values() if (nodes := self._kept.get(code)) is not None}
        new = sorted({*codes.values()} - {*encoded}, key=lambda code: (len(code.words), code))
        for start in range(0, len(new), _BATCH):
            batch = new[start : start + _BATCH]
            levels = self.model.network.encode_captions(collate(batch))
            for row, code in enumerate(batch):
                encoded[code] = torch.cat([level.vectors[row, level.mask[row]] for level in levels]).numpy()
                self._kept.put(code, encoded[code])
        return codes, encoded

    def _image(self, image: str) -> Levels | None:
        """Nodes (1, R, d) of an image; None for AIEr."""
        if not self.model.options.sees_images:
            return None
        nodes = self._kept.get(image)
        if nodes is None:
            regions = self._store[image]
            features = torch.from_numpy(regions.features[None].astype(np.float32))
            boxes = torch.from_numpy(region_boxes(regions)[None]) if self.model.options.relations else None
            levels = self.model.network.encode_images(features, boxes)
            nodes = np.concatenate([level.vectors.numpy() for level in levels])
            self._kept.put(image, nodes)
        return tuple(Nodes(level[None], torch.ones(1, len(level)).bool()) for level in torch.from_numpy(nodes))

    def _padded(self, captions: Sequence[CaptionCode], encoded: Encoded) -> Levels:
        """Nodes (C, K, d) of captions, padded."""
        levels = []
        for level in range(2 if self.model.options.relations else 1):
            parts = [np.split(encoded[code], [len(code.words) - 2])[level] for code in captions]
            mask = np.arange(max(1, *map(len, parts), 1)) < np.array([*map(len, parts)])[:, None]
            vectors = np.zeros((*mask.shape, self.model.options.embed_dim), dtype=np.float32)
            vectors[mask] = np.concatenate(parts)
            levels.append(Nodes(torch.from_numpy(vectors), torch.from_numpy(mask)))
        return tuple(levels)


_open: dict[tuple[object, ...], tuple[Encoder, ...]] = {}


def open_faier(store: FeatureStore, model: str, *, any_features: bool = False) -> tuple[Encoder, ...]:
    """The networks of a FAIEr model or an ensemble with region features; the last two are cached in the process."""
    files = opened_networks(model, "faier")
    key = (files.sha256, store_key(store))
    encoders = _open.pop(key, ()) or tuple(Encoder(load_faier(path), store) for path in files.paths)
    models = [encoder.model for encoder in encoders]
    if len(models) > 1:
        check_together(models)
    for network in models if models[0].options.sees_images else ():
        check_features(network, store, network.options.image_dim, any_features)
        if network.options.relations and not store.header.boxes:
            message = f"has no boxes, but the relation level of {network.path} requires them"
            hint = "Use a store with boxes, or a model without a relation level (variant faier-object)"
            raise FeatureError(message, code="wrong-features", path=store.paths[0], hint=hint)
    _open[key] = encoders
    if len(_open) > _OPENED:
        del _open[next(iter(_open))]
    return encoders

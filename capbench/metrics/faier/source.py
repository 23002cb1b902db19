"""A FAIEr network, or an ensemble of some, with the feature store that it looks at: what it encoded is kept.

Captions and images are encoded once each. Images with their references are fused some at a time, and their candidates
matched together.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import FeatureError
from capbench.core.records import FloatArray
from capbench.features.store import FeatureStore, open_store
from capbench.metrics.image_metric import check_features, opened_networks, signed_together, store_key
from capbench.text.spice.scene_graph import Triplet
from capbench.text.vocabulary import UNKNOWN
from capbench.weights.encodings import Encodings, Key, encode_by_length

if TYPE_CHECKING:
    from torch import Tensor

    from capbench.metrics.faier.files import FaierModel
    from capbench.metrics.faier.graphs import CaptionCode, Graph
    from capbench.metrics.faier.network import Scores, Union

__all__ = ["COLUMNS", "Array", "Encoder", "FaierSource", "Group", "Triplets", "open_faier_source"]


# What one FAIEr network makes of texts and images: nodes, each encoded once and kept, and their union.

Array = NDArray[np.float32]
Triplets = Mapping[str, Sequence[Triplet]]
"""Triplets of texts, by text."""

_CODES = 100_000  # captions whose numbers are remembered


class Encoder:
    """One network, and what it has encoded so far.

    Args:
        model: the network.
        store: the region features that it looks at.

    Attributes:
        encoded_texts: texts whose words were read, so far.
        encoded_images: images likewise.
    """

    def __init__(self, model: FaierModel, store: FeatureStore) -> None:
        self.model, self.store = model, store
        self.encoded_texts = 0
        self.encoded_images = 0
        self._kept = Encodings()
        self._codes: dict[str, CaptionCode] = {}

    def image(self, image: str) -> Array:
        """Nodes (levels, R, d) of an image. Raises FeatureError if the store lacks it, or boxes that are needed."""
        nodes = self._kept.get(("image", image))
        if nodes is None:
            from capbench.metrics.faier.graphs import region_boxes

            regions, options = self.store[image], self.model.options
            boxes = None
            if options.relations:
                try:
                    boxes = region_boxes(regions.boxes, regions.width, regions.height, options)
                except FeatureError as error:
                    raise FeatureError(error.message, path=self.store.paths[0], hint=error.hint) from error
            objects, relations = self.model.encode_image(regions.features, boxes)
            nodes = np.stack([objects] if relations is None else [objects, relations])
            self.encoded_images += 1
            self._kept.put(("image", image), nodes)
        return nodes

    def texts(self, texts: Collection[str], triplets: Triplets, *, references: bool) -> dict[str, list[Array]]:
        """Nodes of texts by level: words (m, d), and triplets (t, d) where there is a relation level."""
        options = self.model.options
        codes = {text: self._code(text, triplets.get(text, ())) for text in dict.fromkeys(texts)}
        role = "reference" if references and options.reference_encoder == "separate" else "candidate"
        words = self._encoded(
            {code.words for code in codes.values()},
            ("words", role),
            lambda ids, lengths: self.model.network.encode_words(ids, lengths, references=references).vectors,
        )
        ends = 2 if options.ends == "read" else 0
        nodes = {text: [words[code.words][: len(code.words) - ends]] for text, code in codes.items()}
        if options.relations:
            encoded = self._encoded(
                {triplet for code in codes.values() for triplet in code.triplets},
                ("triplet", role),
                lambda ids, lengths: self.model.network.encode_triplets(ids, lengths, references=references),
            )
            none = np.zeros((0, options.embed_dim), dtype=np.float32)
            for text, code in codes.items():
                nodes[text].append(np.stack([encoded[t] for t in code.triplets]) if code.triplets else none)
        return nodes

    def _code(self, text: str, triplets: Sequence[Triplet]) -> CaptionCode:
        """A caption as numbers; a text has the same triplets always, and stands as candidate and as reference."""
        code = self._codes.get(text)
        if code is None:
            if len(self._codes) >= _CODES:
                self._codes.clear()
            code = self._codes[text] = self.model.code(text, triplets)
        return code

    def _encoded(
        self, keys: Collection[Key], place: tuple[str, str], network: Callable[[Tensor, Tensor], Tensor]
    ) -> dict[Key, Array]:
        import torch

        def encode(batch: Sequence[Key]) -> Array:
            with torch.inference_mode():
                ids = torch.tensor(batch, dtype=torch.int64, device=self.model.device)
                lengths = torch.full((len(batch),), ids.shape[1], dtype=torch.int64)
                encoded: Array = network(ids, lengths).float().cpu().numpy()
            return encoded

        full = sorted(key for key in keys if key)
        encoded, number = encode_by_length(full, self._kept, encode, UNKNOWN, lambda key: (*place, key))
        self.encoded_texts += number if place[0] == "words" else 0
        if () in keys:  # a caption without words, whose ends are not read
            encoded[()] = np.zeros((0, self.model.options.embed_dim), dtype=np.float32)
        return encoded

    def graph(self, rows: Sequence[Sequence[Array]]) -> Graph:
        """Nodes by level of several images or texts, padded to (rows, K, d)."""
        import torch

        from capbench.metrics.faier.graphs import Graph, Nodes

        levels = []
        for level in range(2 if self.model.options.relations else 1):
            arrays = [row[level] for row in rows]
            most = max(1, *(len(array) for array in arrays)) if arrays else 1
            vectors = np.zeros((len(arrays), most, self.model.options.embed_dim), dtype=np.float32)
            mask = np.zeros((len(arrays), most), dtype=bool)
            for row, array in enumerate(arrays):
                vectors[row, : len(array)], mask[row, : len(array)] = array, True
            device = self.model.device
            levels.append(Nodes(torch.from_numpy(vectors).to(device), torch.from_numpy(mask).to(device)))
        return Graph(levels[0], levels[1] if len(levels) > 1 else None)

    def unions(
        self, images: Sequence[str], references: Sequence[Sequence[str]], prefixes: Sequence[Sequence[int]], texts: Any
    ) -> list[Union]:
        """What candidates of images are matched with, one for each prefix; ``texts`` are references' nodes."""
        import torch

        options = self.model.options
        seen = self.graph([list(self.image(image)) for image in images]) if options.sees_images else None
        counts = torch.tensor(prefixes, dtype=torch.int64).t()  # (P, B)
        if not options.reads_references:
            # An image is the same whatever its references.
            return self.model.network.fuse_prefixes(seen, None, None) * len(counts)
        distinct = {text: place for place, text in enumerate(dict.fromkeys(t for r in references for t in r))}
        most = max(len(of_image) for of_image in references)
        places = [[*(distinct[text] for text in r), *[0] * (most - len(r))] for r in references]
        nodes = self.graph([texts[text] for text in distinct])[torch.tensor(places)]
        return self.model.network.fuse_prefixes(seen, nodes, counts)


COLUMNS = ("total", "objects", "relations")
"""What of :class:`~capbench.metrics.faier.network.Scores` is told, in this order."""

_SOURCES = 2
_ROWS = 576  # regions of images that are fused at once: sixteen images of 36
_CAPTIONS = 512  # captions that are matched with a batch of images at once


@dataclass(frozen=True)
class Group:
    """Candidates of one image that share references.

    Attributes:
        image: its id.
        references: one or more, ``"."`` where there are none.
        prefixes: of how many of the first references there shall be scores.
        candidates: one or more.
    """

    image: str
    references: tuple[str, ...]
    prefixes: tuple[int, ...]
    candidates: tuple[str, ...]


class FaierSource:
    """FAIEr networks, and the features they look at; made by :func:`open_faier_source`.

    Scores under an ensemble are the means of the networks' scores, column by column.

    Args:
        models: one network, or an ensemble's.
        store: the region features.

    Attributes:
        models: as given.
        store: as given.
    """

    def __init__(self, models: Sequence[FaierModel], store: FeatureStore) -> None:
        self.models = tuple(models)
        self.store = store
        self.encoders = tuple(Encoder(model, store) for model in models)

    @property
    def relations(self) -> bool:
        """Whether the networks have a relation level: all of an ensemble are of one variant."""
        return self.models[0].options.relations

    @property
    def reads_references(self) -> bool:
        """Whether the networks read references."""
        return self.models[0].options.reads_references

    def signature_parts(self) -> dict[str, object]:
        """Networks, variant, vocabulary, and what computed the features."""
        return {**signed_together(self.models), "features": self.store.signature()}

    def scores(self, groups: Sequence[Group], triplets: Triplets) -> list[FloatArray]:
        """Scores of each group's candidates: (prefixes, candidates, columns) of :data:`COLUMNS`.

        Args:
            groups: all of equally many prefixes.
            triplets: of all texts, as far as there are any.
        """
        shape = [(len(group.prefixes), len(group.candidates), len(COLUMNS)) for group in groups]
        means = [np.zeros(size) for size in shape]
        for encoder in self.encoders:
            for places, scores in self._of_network(encoder, groups, triplets):
                for place, of_group in zip(places, scores, strict=True):
                    means[place] += of_group / len(self.encoders)
        return means

    def _of_network(
        self, encoder: Encoder, groups: Sequence[Group], triplets: Triplets
    ) -> Iterator[tuple[list[int], list[FloatArray]]]:
        import torch

        candidates = encoder.texts({t for group in groups for t in group.candidates}, triplets, references=False)
        references = self._references(encoder, [group.references for group in groups], triplets)
        for places in self._batches(groups):
            batch = [groups[place] for place in places]
            with torch.inference_mode():
                unions = encoder.unions(
                    [g.image for g in batch], [g.references for g in batch], [g.prefixes for g in batch], references
                )
                nodes = encoder.graph([candidates[text] for group in batch for text in group.candidates])
                sizes = [len(group.candidates) for group in batch]
                owners = torch.repeat_interleave(torch.tensor(sizes)).to(encoder.model.device)
                network = encoder.model.network
                scores = np.stack([_columns(network.paired_scores(union, nodes, owners)) for union in unions])
            yield places, np.split(scores, np.cumsum(sizes)[:-1], axis=1)

    def _references(
        self, encoder: Encoder, references: Sequence[Sequence[str]], triplets: Triplets
    ) -> dict[str, list[Array]]:
        if not encoder.model.options.reads_references:
            return {}
        return encoder.texts({text for of_image in references for text in of_image}, triplets, references=True)

    def _batches(self, groups: Sequence[Group]) -> Iterator[list[int]]:
        """Places of groups that are worked on together; those of equally many references, to fill up little."""
        batch: list[int] = []
        rows = 0
        for place in sorted(range(len(groups)), key=lambda place: len(groups[place].references)):
            regions = self.store.regions(groups[place].image)
            if batch and rows + regions > _ROWS:
                yield batch
                batch, rows = [], 0
            batch.append(place)
            rows += regions
        if batch:
            yield batch

    def matrix(
        self,
        references: Mapping[str, Sequence[str]],
        captions: Sequence[str],
        triplets: Triplets,
        column: int,
        progress: Callable[[int], None],
    ) -> FloatArray:
        """Scores (images, captions) of one of :data:`COLUMNS`, every caption with every image.

        Args:
            references: of each image, one or more.
            captions: candidates.
            triplets: of all texts, as far as there are any.
            column: its place.
            progress: called with numbers of images done, under the last network.
        """
        import torch

        groups = [Group(image, tuple(texts), (len(texts),), ()) for image, texts in references.items()]
        means = np.zeros((len(groups), len(captions)))
        for encoder in self.encoders:
            texts = encoder.texts(captions, triplets, references=False)
            order = sorted(range(len(captions)), key=lambda place: len(texts[captions[place]][0]))
            portions = [order[start : start + _CAPTIONS] for start in range(0, len(order), _CAPTIONS)]
            nodes = [encoder.graph([texts[captions[place]] for place in portion]) for portion in portions]
            of_references = self._references(encoder, [group.references for group in groups], triplets)
            for places in self._batches(groups):
                batch = [groups[place] for place in places]
                with torch.inference_mode():
                    (union,) = encoder.unions(
                        [g.image for g in batch],
                        [g.references for g in batch],
                        [g.prefixes for g in batch],
                        of_references,
                    )
                    for portion, graph in zip(portions, nodes, strict=True):
                        scores = _columns(encoder.model.network.scores(union, graph))[..., column]
                        means[np.ix_(places, portion)] += scores / len(self.encoders)
                if encoder is self.encoders[-1]:
                    progress(len(places))
        return means

    def products(self, group: Group, triplets: Triplets) -> list[list[list[FloatArray]]]:
        """Of each candidate of a group, by level and network: products (nodes, regions) of its nodes and union nodes.

        These are cosines where the network takes cosines. The variant has to see images.
        """
        import torch

        from capbench.metrics.grounding.scan import l2norm

        levels = 2 if self.relations else 1
        of_candidates: list[list[list[FloatArray]]] = [[[] for _ in range(levels)] for _ in group.candidates]
        for encoder in self.encoders:
            candidates = encoder.texts(group.candidates, triplets, references=False)
            references = self._references(encoder, [group.references], triplets)
            with torch.inference_mode():
                (union,) = encoder.unions([group.image], [group.references], [(len(group.references),)], references)
                assert union.fused is not None
                for level, nodes in enumerate(union.fused.levels):
                    z = nodes.vectors[0]
                    for text, of_candidate in zip(group.candidates, of_candidates, strict=True):
                        h = torch.from_numpy(candidates[text][level]).to(z.device)
                        if encoder.model.options.similarity == "cosine":
                            h, products = l2norm(h), l2norm(h) @ l2norm(z).t()
                        else:
                            products = h @ z.t()
                        of_candidate[level].append(products.double().cpu().numpy())
        return of_candidates

    def image_products(self, image: str, texts: Sequence[str], triplets: Triplets) -> list[FloatArray]:
        """Of each text, read as a reference, products (words, regions) with the image's own nodes of the object level.

        Means over the networks; cosines where they take cosines.
        """
        import torch

        from capbench.metrics.grounding.scan import l2norm

        sums: list[FloatArray] = []
        for encoder in self.encoders:
            nodes = encoder.texts(texts, triplets, references=True)
            v = torch.from_numpy(encoder.image(image)[0])
            products = []
            for text in texts:
                h = torch.from_numpy(nodes[text][0])
                if encoder.model.options.similarity == "cosine":
                    products.append((l2norm(h) @ l2norm(v).t()).double().numpy())
                else:
                    products.append((h @ v.t()).double().numpy())
            sums = [a + b for a, b in zip(sums, products, strict=True)] if sums else products
        return [total / len(self.encoders) for total in sums]


def _columns(scores: Scores) -> FloatArray:
    """(…, columns) float64; 0 for relations where there is no such level."""
    import torch

    relations = torch.zeros_like(scores.total) if scores.relations is None else scores.relations
    columns: FloatArray = torch.stack([scores.total, scores.objects, relations], dim=-1).double().cpu().numpy()
    return columns


_open: OrderedDict[tuple[object, ...], FaierSource] = OrderedDict()


def open_faier_source(features: str, model: str, *, any_features: bool = False) -> FaierSource:
    """A FAIEr model with a store, from memory if these files were opened before in this process.

    Args:
        features: path of a feature store.
        model: path of a FAIEr model (:func:`capbench.metrics.faier.files.load_faier`), or of an ensemble of some.
        any_features: whether features of another fingerprint than the training's are taken.

    Raises:
        FeatureError: the store cannot be read, holds features of another fingerprint than the model saw, or no boxes
            where the model needs them.
        ModelError: the model cannot be read, is for features of another size, or a part of an ensemble is not there,
            is another file than it was, or does not go with the others.
    """
    networks = opened_networks(model, "faier")
    store = open_store(features)
    key = (networks.sha256, store_key(store))
    if key not in _open:
        from capbench.metrics.faier.files import load_faier
        from capbench.weights.ensembles import check_together

        models = [load_faier(Path(path)) for path in networks.paths]
        if len(models) > 1:
            check_together(models)
        _open[key] = FaierSource(models, store)
        while len(_open) > _SOURCES:
            _open.popitem(last=False)
    _open.move_to_end(key)
    source = _open[key]
    for network in source.models:
        if not network.options.sees_images:
            continue
        check_features(network, source.store, network.options.image_dim, any_features)
        if network.options.relations and not source.store.header.boxes:
            raise FeatureError(
                f"holds no boxes, and the relation level of {network.path} is made of them",
                path=source.store.paths[0],
                hint="Give a store with boxes, or a model of the object level alone (variant faier-object)",
            )
    return source

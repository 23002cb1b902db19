"""FAIEr networks with a feature store: cached encodings of captions and images, and scores of groups of candidates.

Each caption and image is encoded once. Images and their references are fused in batches, and all candidates of a batch
are matched together.
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

    from capbench.metrics.faier.graphs import CaptionCode, Graph
    from capbench.metrics.faier.network import FaierModel, Scores, Union

# Encodings of one network: nodes of texts and images, each computed once and cached, and their union.

Array = NDArray[np.float32]
Triplets = Mapping[str, Sequence[Triplet]]
"""Text → its triplets."""

_CODES = 100_000  # captions whose ids are cached


class Encoder:
    """One network with a cache of its encodings.

    Args:
        model: the network.
        store: the region features that it reads.

    Attributes:
        encoded_texts: number of texts whose words were encoded so far.
        encoded_images: number of images encoded so far.
    """

    def __init__(self, model: FaierModel, store: FeatureStore) -> None:
        self.model, self.store = model, store
        self.encoded_texts = 0
        self.encoded_images = 0
        self._kept = Encodings()
        self._codes: dict[str, CaptionCode] = {}

    def image(self, image: str) -> Array:
        """Nodes (levels, R, d) of an image. Raises FeatureError if the image or required boxes are missing."""
        nodes = self._kept.get(("image", image))
        if nodes is None:
            from capbench.metrics.faier.graphs import region_boxes

            regions, options = self.store[image], self.model.options
            boxes = None
            if options.relations:
                try:
                    boxes = region_boxes(regions.boxes, regions.width, regions.height, options)
                except FeatureError as error:
                    raise FeatureError(
                        error.message, code=error.code, value=error.value, path=self.store.paths[0], hint=error.hint
                    ) from error
            objects, relations = self.model.encode_image(regions.features, boxes)
            nodes = np.stack([objects] if relations is None else [objects, relations])
            self.encoded_images += 1
            self._kept.put(("image", image), nodes)
        return nodes

    def texts(self, texts: Collection[str], triplets: Triplets, *, references: bool) -> dict[str, list[Array]]:
        """Nodes of texts by level: words (m, d), and with a relation level triplets (t, d)."""
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
        """Ids of a caption, cached by text: a text always has the same triplets, as candidate and as reference."""
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
        if () in keys:  # a caption without words if <start> and <end> are omitted
            encoded[()] = np.zeros((0, self.model.options.embed_dim), dtype=np.float32)
        return encoded

    def graph(self, rows: Sequence[Sequence[Array]]) -> Graph:
        """Nodes of several images or texts by level, padded to (rows, K, d)."""
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
        """The nodes that candidates are matched with, for each prefix; ``texts`` are the references' nodes by text."""
        import torch

        options = self.model.options
        image_nodes = self.graph([list(self.image(image)) for image in images]) if options.sees_images else None
        counts = torch.tensor(prefixes, dtype=torch.int64).t()  # (P, B)
        if not options.reads_references:
            return self.model.network.fuse_prefixes(image_nodes, None, None) * len(counts)
        distinct = {text: place for place, text in enumerate(dict.fromkeys(t for r in references for t in r))}
        most = max(len(of_image) for of_image in references)
        places = [[*(distinct[text] for text in r), *[0] * (most - len(r))] for r in references]
        nodes = self.graph([texts[text] for text in distinct])[torch.tensor(places)]
        return self.model.network.fuse_prefixes(image_nodes, nodes, counts)


COLUMNS = ("total", "objects", "relations")
"""Fields of :class:`~capbench.metrics.faier.network.Scores` in the order of score columns."""

_SOURCES = 2
_ROWS = 576  # maximum number of regions fused at once: sixteen images of 36
_CAPTIONS = 512  # captions matched with a batch of images at once


@dataclass(frozen=True)
class Group:
    """Candidates of one image that share references.

    Attributes:
        image: its id.
        references: one or more, ``"."`` if there are none.
        prefixes: numbers of first references; each gives one score per candidate.
        candidates: one or more.
    """

    image: str
    references: tuple[str, ...]
    prefixes: tuple[int, ...]
    candidates: tuple[str, ...]


class FaierSource:
    """FAIEr networks and the features that they read; made by :func:`open_faier_source`.

    Scores of an ensemble are the means of the networks' scores, column by column.

    Args:
        models: one network, or those of an ensemble.
        store: the region features.

    Attributes:
        models: the networks.
        store: the region features.
    """

    def __init__(self, models: Sequence[FaierModel], store: FeatureStore) -> None:
        self.models = tuple(models)
        self.store = store
        self.encoders = tuple(Encoder(model, store) for model in models)

    @property
    def relations(self) -> bool:
        """True if the networks have a relation level; all networks of an ensemble have the same variant."""
        return self.models[0].options.relations

    @property
    def reads_references(self) -> bool:
        """True if the networks read references."""
        return self.models[0].options.reads_references

    def signature_parts(self) -> dict[str, object]:
        """Networks, variant, vocabulary, and the detector of the features."""
        return {**signed_together(self.models), "features": self.store.signature()}

    def scores(self, groups: Sequence[Group], triplets: Triplets) -> list[FloatArray]:
        """Scores of each group's candidates: (prefixes, candidates, columns) of :data:`COLUMNS`.

        Args:
            groups: all with the same number of prefixes.
            triplets: those of all texts that have any.
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
        """Batches of groups, by index; sorted by number of references to reduce padding."""
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
        """Scores (images, captions) of every caption with every image, for one of :data:`COLUMNS`.

        Args:
            references: one or more for each image.
            captions: candidates.
            triplets: those of all texts that have any.
            column: index of the column.
            progress: called with the number of images done, by the last network.
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

    def products(self, group: Group, triplets: Triplets, *, fused: bool = True) -> list[list[list[FloatArray]]]:
        """Products (nodes, regions) of each candidate's nodes with union nodes, by candidate, level and network.

        Cosines if the network uses cosines. The variant must read images. With ``fused=False`` the candidates are
        encoded as references, and the nodes are those of the image before fusion.
        """
        import torch

        levels = 2 if self.relations else 1
        of_candidates: list[list[list[FloatArray]]] = [[[] for _ in range(levels)] for _ in group.candidates]
        for encoder in self.encoders:
            candidates = encoder.texts(group.candidates, triplets, references=not fused)
            with torch.inference_mode():
                if fused:
                    references = self._references(encoder, [group.references], triplets)
                    (union,) = encoder.unions([group.image], [group.references], [(len(group.references),)], references)
                    assert union.fused is not None
                    regions = [nodes.vectors[0] for nodes in union.fused.levels]
                else:
                    regions = list(torch.from_numpy(encoder.image(group.image)))
                for level, z in enumerate(regions):
                    for text, of_candidate in zip(group.candidates, of_candidates, strict=True):
                        of_candidate[level].append(_product(encoder, candidates[text][level], z))
        return of_candidates


def _product(encoder: Encoder, nodes: Array, regions: Tensor) -> FloatArray:
    """Products (k, n) of nodes (k, d) with regions (n, d); cosines if the network uses cosines."""
    import torch

    from capbench.metrics.grounding.scan import l2norm

    h = torch.from_numpy(nodes).to(regions.device)
    if encoder.model.options.similarity == "cosine":
        h, regions = l2norm(h), l2norm(regions)
    return np.asarray((h @ regions.t()).double().cpu().numpy())


def _columns(scores: Scores) -> FloatArray:
    """(…, columns) float64; relations are 0 without a relation level."""
    import torch

    relations = torch.zeros_like(scores.total) if scores.relations is None else scores.relations
    columns: FloatArray = torch.stack([scores.total, scores.objects, relations], dim=-1).double().cpu().numpy()
    return columns


_open: OrderedDict[tuple[object, ...], FaierSource] = OrderedDict()


def open_faier_source(features: str | FeatureStore, model: str, *, any_features: bool = False) -> FaierSource:
    """Open a FAIEr model with a feature store; the last two are cached in the process.

    Args:
        features: path of a feature store, or an open one.
        model: path of a FAIEr model (:func:`capbench.metrics.faier.network.load_faier`), or of an ensemble of them.
        any_features: True accepts features of another fingerprint than in training.

    Raises:
        FeatureError: the store cannot be read, has features of another fingerprint than in training, or no boxes that
            the model requires.
        ModelError: the model cannot be read, reads features of another size, or a file of an ensemble is missing, was
            changed or is incompatible with the others.
    """
    networks = opened_networks(model, "faier")
    store = open_store(features) if isinstance(features, str) else features
    key = (networks.sha256, store_key(store))
    if key not in _open:
        from capbench.metrics.faier.network import load_faier
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
                f"has no boxes, but the relation level of {network.path} requires them",
                code="wrong-features",
                path=source.store.paths[0],
                hint="Use a store with boxes, or a model without a relation level (variant faier-object)",
            )
    return source

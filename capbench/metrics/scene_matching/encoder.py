"""What one FAIEr network makes of texts and images: nodes, each encoded once and kept, and their union."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from capbench.errors import FeatureError
from capbench.features.store import FeatureStore
from capbench.models.encodings import Encodings, Key, encode_by_length
from capbench.text.scene_graph import Triplet
from capbench.text.vocabulary import UNKNOWN

if TYPE_CHECKING:
    from torch import Tensor

    from capbench.models.faier.files import FaierModel
    from capbench.models.faier.graphs import CaptionCode, Graph
    from capbench.models.faier.network import Union

__all__ = ["Array", "Encoder", "Triplets"]

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
            from capbench.models.faier.graphs import region_boxes

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

        from capbench.models.faier.graphs import Graph, Nodes

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

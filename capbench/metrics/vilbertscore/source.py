"""A ViLBERT, or an ensemble of some, with the features it looks at: loaded once in a process."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from capbench.core import files
from capbench.core.errors import FeatureError, ModelError
from capbench.features.records import UNKNOWN, RegionFeatures
from capbench.features.store import FeatureStore
from capbench.metrics.image_metric import check_features, opened_networks
from capbench.metrics.vilbertscore.files import VilbertModel, files_beside, load_vilbert
from capbench.metrics.vilbertscore.network import Connection, Projected, Vilbert
from capbench.weights.encodings import Encodings, StoredEncodings, filled, key_of, place_of, space_of

__all__ = [
    "MOST_REGIONS",
    "RELEASED_DETECTOR",
    "Encoder",
    "ImageRows",
    "Pair",
    "check_store",
    "image_rows",
    "open_models",
]


RELEASED_DETECTOR = "x152-fpn"
"""The detector of whose features the released weights were trained."""

_MODELS = 3

_open: OrderedDict[tuple[object, ...], VilbertModel] = OrderedDict()


def open_models(model: str, vocabulary: str | None, device: str, precision: str) -> tuple[VilbertModel, ...]:
    """The networks of a file of weights or of an ensemble, from memory if they were opened before.

    Args:
        model: path or name of weights.
        vocabulary: path of BERT's vocabulary, for released weights that it does not lie beside.
        device: ``cpu`` or ``cuda``.
        precision: ``float32`` or ``bfloat16``.

    Raises:
        ModelError: it cannot be read, or is no ViLBERT.
        DataError: the vocabulary cannot be read.
    """
    paths = opened_networks(model, "vilbertscore").paths
    return tuple(_opened(path, vocabulary, device, precision) for path in paths)


def _opened(path: Path, vocabulary: str | None, device: str, precision: str) -> VilbertModel:
    import torch

    given = None if vocabulary is None else files.sha256_file(vocabulary)
    beside = tuple(files.sha256_file(file) for file in files_beside(path))
    key = (files.sha256_file(path), str(path.resolve()), given, beside, device, precision)
    if key not in _open:
        loaded = load_vilbert(path, vocabulary, device)
        if precision != "float32":
            loaded.network.to(getattr(torch, precision))
        _open[key] = loaded
        while len(_open) > _MODELS:
            _open.popitem(last=False)
    _open.move_to_end(key)
    return _open[key]


def check_store(model: VilbertModel, store: FeatureStore, *, any_features: bool) -> None:
    """See to it that a store holds what a model reads: features of its size, of its kind, with boxes.

    An imported file does not tell what computed it; released weights take it.

    Raises:
        ModelError: the features are of another size.
        FeatureError: they have no boxes, or are of another kind and ``any_features`` is not said.
    """
    check_features(model, store, model.options.feature_dim, any_features)
    fingerprint = store.fingerprint
    if not store.header.boxes:
        raise FeatureError(
            "holds no boxes, and ViLBERT reads where each region lies",
            path=store.paths[0],
            hint="Extract the features anew, or import files that have boxes",
        )
    if model.is_released and fingerprint.detector not in (RELEASED_DETECTOR, UNKNOWN) and not any_features:
        raise FeatureError(
            f"holds features of {fingerprint.detector}, and the released weights of ViLBERT were trained on those of "
            f"{RELEASED_DETECTOR}",
            path=store.paths[0],
            hint=f"Make some with 'capbench extract-features --detector {RELEASED_DETECTOR}', or say any_features=true "
            "(it then stands in the signature)",
        )


def check_alike(models: tuple[VilbertModel, ...]) -> None:
    """Raise ModelError unless the networks of an ensemble have as many layers and know tasks alike."""
    first = models[0]
    for model in models[1:]:
        for name in ("connections", "tasks"):
            if getattr(model.options, name) != getattr(first.options, name):
                raise ModelError(
                    f"has {getattr(model.options, name)} {name}, and {first.path} of the same ensemble "
                    f"{getattr(first.options, name)}",
                    path=model.path,
                    hint="Take networks of one kind",
                )


# What ViLBERT sees of an image: its regions behind their mean, and where each of them lies.

MOST_REGIONS = 100
"""Regions of an image that are read; the published features have as many."""


@dataclass(frozen=True, eq=False)
class ImageRows:
    """An image as the network reads it.

    Attributes:
        features: (n + 1, d) float32: the mean of all regions, then the regions.
        places: (n + 1, 5) float32: x1, y1, x2, y2 and the area as shares of the image; the mean has all of it.
    """

    features: NDArray[np.float32]
    places: NDArray[np.float32]

    def blanked(self) -> ImageRows:
        """As many rows at the same places, which hold nothing but zeros."""
        return ImageRows(np.zeros_like(self.features), self.places)


def image_rows(regions: RegionFeatures, most: int = MOST_REGIONS) -> ImageRows:
    """The rows of an image, as the released code makes them: the mean is over all regions, then the first are kept.

    Args:
        regions: with boxes.
        most: regions that are kept.

    Raises:
        FeatureError: the boxes are not known.
    """
    if regions.boxes is None:
        raise FeatureError(f"the image '{regions.image}' has no boxes", hint="Use features that have boxes")
    features = regions.features.astype(np.float32)
    boxes = regions.boxes.astype(np.float32)
    width, height = regions.width, regions.height
    places = np.empty((len(boxes) + 1, 5), dtype=np.float32)
    places[0] = (0.0, 0.0, 1.0, 1.0, 1.0)
    places[1:, :4] = boxes / np.array([width, height, width, height], dtype=np.float32)
    places[1:, 4] = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]) / np.float32(width * height)
    rows = np.concatenate((features.mean(axis=0, dtype=np.float64).astype(np.float32)[None], features))
    return ImageRows(rows[: most + 1], places[: most + 1])


# Word states of captions that see their image, each computed once and nothing beside them.
#
# What the plain network does again and again is shared: the text layers before the first connection know no image and
# are computed once for a text, the image's embedding and its part in the first connection once for an image. What no
# word state depends on is left out: all that is behind the last layer asked for, and the image's side of its
# connection. Captions of one length are worked on together, so that nothing is padded and nothing is masked. Batches of
# few tokens are filled up: larger ones were seen to give a text the same bits whatever stands beside it.

Pair = tuple[str, tuple[int, ...]]
"""An image's id and the numbers of a caption's word pieces, ``[CLS]`` first."""

_ROWS = {"cpu": 16 * 101, "cuda": 256 * 101}
"""Rows of the image stream that are worked on at once: of a CPU's caches more do not fit."""
_TEXTS = 256
_TOKENS = 256 * 16
_VERSION = 1  # of how captions are encoded here


class Encoder:
    """A network that gives word states.

    Args:
        network: in evaluation mode, on ``device``.
        task: number of the task whose token stands behind ``[CLS]``, or None.
        layers: which layers are wanted, from 1 to the number of connections.
        device: where the network is.
        weights: what tells the network from all others; what is kept on disk is known by it.

    Attributes:
        encoded_pairs: pairs that went through the connections so far, for tests and benchmarks.
        encoded_texts: texts that went through the layers before them.
        encoded_images: images that were embedded.
    """

    def __init__(
        self, network: Vilbert, task: int | None, layers: Sequence[int], device: str = "cpu", weights: str = ""
    ) -> None:
        self._weights = weights
        self.network, self.task, self.layers, self.device = network, task, tuple(layers), torch.device(device)
        self.encoded_pairs = self.encoded_texts = self.encoded_images = 0
        self._dtype = network.text_pooler.weight.dtype
        self._connections = [cast(Connection, connection) for connection in network.connections]
        self._texts = Encodings()

    @torch.inference_mode()
    def states(
        self,
        images: Mapping[str, ImageRows],
        pairs: Sequence[Pair],
        done: Callable[[int], None] = lambda _: None,
        stored: StoredEncodings | None = None,
    ) -> dict[Pair, NDArray[np.float32]]:
        """States of the tokens of captions.

        Args:
            images: rows of all images that ``pairs`` name; they are in memory together.
            pairs: repeats are computed once.
            done: called with numbers of distinct pairs done.
            stored: what is kept on disk.

        Returns:
            For each pair (layers, m, T) float32; with a task its token is the second.
        """
        distinct = sorted(set(pairs), key=lambda pair: (len(pair[1]), pair))
        keys = _keys(images, distinct) if stored is not None else {}
        states = self._stored(keys, stored) if stored is not None else {}
        done(len(states))
        new = [pair for pair in distinct if pair not in states]
        texts = self._read_texts(sorted({ids for _, ids in new}, key=lambda ids: (len(ids), ids)))
        streams = self._read_images({image: images[image] for image, _ in new})
        groups: dict[tuple[int, int], list[Pair]] = {}
        for pair in new:
            groups.setdefault((len(pair[1]), len(streams[pair[0]][0])), []).append(pair)
        for (length, rows), group in groups.items():
            number = max(1, _ROWS[self.device.type] // rows)
            for start in range(0, len(group), number):
                batch = group[start : start + number]
                text = np.stack([texts[ids] for _, ids in filled(batch, length)])
                encoded = self._connect(
                    torch.from_numpy(text).to(self.device, self._dtype), [streams[image] for image, _ in batch]
                )
                for place, pair in enumerate(batch):
                    states[pair] = encoded[:, place].copy()  # a view would keep the whole batch
                if stored is not None:
                    for place, layer in enumerate(self.layers):
                        stored.put(self._space(layer), {keys[pair]: states[pair][place] for pair in batch})
                self.encoded_pairs += len(batch)
                done(len(batch))
        return states

    def _space(self, layer: int) -> str:
        """Everything that decides the states after a layer, but the caption and the image."""
        precision = str(self._dtype).removeprefix("torch.")
        return space_of(
            f"vilbert-{_VERSION}",
            ("torch",),
            weights=self._weights,
            task=self.task,
            layer=layer,
            precision=precision,
            device=place_of(self.device.type),
        )

    def _stored(self, keys: Mapping[Pair, bytes], stored: StoredEncodings) -> dict[Pair, NDArray[np.float32]]:
        """States of those pairs all of whose layers are kept on disk."""
        width, extra = self.network.options.text_dim, self.task is not None
        left = dict(keys)
        of_layers = []
        for layer in self.layers:
            shapes = {key: (len(ids) + extra, width) for (_, ids), key in left.items()}
            of_layers.append(stored.get(self._space(layer), shapes))
            left = {pair: key for pair, key in left.items() if key in of_layers[-1]}
        return {pair: np.stack([of_layer[key] for of_layer in of_layers]) for pair, key in left.items()}

    def _read_texts(self, texts: Sequence[tuple[int, ...]]) -> dict[tuple[int, ...], NDArray[np.float32]]:
        """(m, T) of each text before the first connection; ``texts`` are in the order of their lengths."""
        read: dict[tuple[int, ...], NDArray[np.float32]] = {}
        by_length: dict[int, list[tuple[int, ...]]] = {}
        for ids in texts:
            kept = self._texts.get(ids)
            if kept is None:
                by_length.setdefault(len(ids), []).append(ids)
            else:
                read[ids] = kept
        for length, waiting in by_length.items():
            number = max(1, min(_TEXTS, _TOKENS // length))
            for start in range(0, len(waiting), number):
                batch = waiting[start : start + number]
                numbers = torch.tensor(filled(batch, length), dtype=torch.int64, device=self.device)
                tasks = None if self.task is None else numbers.new_full((len(numbers),), self.task)
                rows = self.network.read_text(numbers, tasks=tasks).float().cpu().numpy()
                for ids, row in zip(batch, rows, strict=False):
                    read[ids] = row.copy()
                    self._texts.put(ids, read[ids])
                self.encoded_texts += len(batch)
        return read

    def _read_images(self, images: Mapping[str, ImageRows]) -> dict[str, tuple[Tensor, Projected]]:
        """Each image before the first connection, (n, V), and its part in it; images of as many rows together."""
        by_rows: dict[int, list[str]] = {}
        for image in sorted(images):
            by_rows.setdefault(len(images[image].features), []).append(image)
        read: dict[str, tuple[Tensor, Projected]] = {}
        for rows, names in by_rows.items():
            number = max(1, _ROWS[self.device.type] // rows)
            for start in range(0, len(names), number):
                batch = names[start : start + number]
                features, places = (
                    torch.from_numpy(np.stack(arrays)).to(self.device, self._dtype)
                    for arrays in zip(*((images[n].features, images[n].places) for n in batch), strict=True)
                )
                streams = self.network.read_image(features, places)
                projected = self._connections[0].project(streams, queries=max(self.layers) > 1)
                for place, image in enumerate(batch):
                    queries = None if projected.queries is None else projected.queries[place]
                    of_image = Projected(queries, projected.keys[place], projected.values[place])
                    read[image] = streams[place], of_image
        self.encoded_images += len(images)
        return read

    def _connect(self, text: Tensor, images: Sequence[tuple[Tensor, Projected]]) -> NDArray[np.float32]:
        """Texts (b + f, m, T), the last f repeats of the b-th that fill up, with b images → (layers, b + f, m, T)."""
        network, last = self.network, max(self.layers)
        image_of = torch.arange(len(text), device=text.device).clamp_max(len(images) - 1)
        image = torch.stack([stream for stream, _ in images])
        projected = Projected(
            None if last == 1 else torch.stack([cast(Tensor, part.queries) for _, part in images]),
            torch.stack([part.keys for _, part in images]),
            torch.stack([part.values for _, part in images]),
        )
        wanted: dict[int, Tensor] = {}
        for place, connection in enumerate(self._connections[:last]):
            layer = place + 1
            if place:
                projected = connection.project(image, queries=layer < last)
            seen = projected
            if len(text) > len(images):  # an image's rows are many: it is not worked on again for a repeat
                seen = Projected(None, projected.keys[image_of], projected.values[image_of])
            connected = connection.text_of(text, seen, None)
            if layer in self.layers:
                wanted[layer] = connected
            if layer < last:
                assert projected.queries is not None
                image = connection.image_of(image, projected.queries, text, None)
                image = network.image_after(place)(image)
                text = network.text_after(place)(connected)
        return torch.stack([wanted[layer] for layer in self.layers]).float().cpu().numpy()

    def attention(self, rows: ImageRows, ids: Sequence[int], layer: int) -> NDArray[np.float32]:
        """How the tokens of one caption divide their attention over the image's rows in one connection, (m, n).

        The mean over the heads. Row 0 of the image is the mean of its regions.
        """
        maps: list[list[Tensor]] = []  # of each connection
        numbers = torch.tensor([list(ids)], dtype=torch.int64, device=self.device)
        tasks = None if self.task is None else numbers.new_full((1,), self.task)
        features, places = (
            torch.from_numpy(array).to(self.device, self._dtype)[None] for array in (rows.features, rows.places)
        )
        with torch.inference_mode():
            text, image = self.network.read_text(numbers, tasks=tasks), self.network.read_image(features, places)
            for place, connection in enumerate(self._connections[:layer]):
                maps.append([])
                projected = connection.project(image)
                connected = connection.text_of(text, projected, None, maps[-1])
                assert projected.queries is not None
                image = self.network.image_after(place)(connection.image_of(image, projected.queries, text, None))
                text = self.network.text_after(place)(connected)
        return np.asarray(maps[-1][0][0].float().mean(dim=0).cpu().numpy(), dtype=np.float32)


def _keys(images: Mapping[str, ImageRows], pairs: Sequence[Pair]) -> dict[Pair, bytes]:
    """A key for each pair, by what the network sees of the image and the caption."""
    seen = {
        name: key_of(*(array.tobytes() for array in (np.array(rows.features.shape), rows.features, rows.places)))
        for name, rows in images.items()
    }
    return {(image, ids): key_of(seen[image], np.array(ids, dtype="<i4").tobytes()) for image, ids in pairs}

"""Loaded ViLBERT networks, image inputs, and word states of captions with their image."""

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
from capbench.core.machine import without_cudnn_attention
from capbench.features.records import UNKNOWN, RegionFeatures
from capbench.features.store import FeatureStore
from capbench.metrics.image_metric import check_features, opened_networks
from capbench.metrics.vilbertscore.files import VilbertModel, files_beside, load_vilbert
from capbench.metrics.vilbertscore.network import Connection, Projected, Vilbert
from capbench.weights.encodings import Encodings, StoredEncodings, filled, key_of, place_of, space_of

RELEASED_DETECTOR = "x152-fpn"
"""Detector of the features that the released weights were trained on."""

_MODELS = 3

_open: OrderedDict[tuple[object, ...], VilbertModel] = OrderedDict()


def open_models(model: str, vocabulary: str | None, device: str, precision: str) -> tuple[VilbertModel, ...]:
    """The networks of a weight file or of an ensemble; the last three are cached in the process.

    Args:
        model: path or name of weights.
        vocabulary: path of BERT's vocabulary; needed for released weights with their vocabulary in another folder.
        device: ``cpu`` or ``cuda``.
        precision: ``float32`` or ``bfloat16``.

    Raises:
        ModelError: the file cannot be read, or is not a ViLBERT.
        DataError: the vocabulary cannot be read.
    """
    paths = opened_networks(model, "vilbertscore").paths
    return tuple(_opened(path, vocabulary, device, precision) for path in paths)


def _opened(path: Path, vocabulary: str | None, device: str, precision: str) -> VilbertModel:
    import torch

    vocabulary_sha256 = None if vocabulary is None else files.sha256_file(vocabulary)
    others = tuple(files.sha256_file(file) for file in files_beside(path))
    key = (files.sha256_file(path), str(path.resolve()), vocabulary_sha256, others, device, precision)
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
    """Check that a store has features of the model's size and kind, with boxes.

    Released weights accept imported features from an unknown detector.

    Raises:
        ModelError: the features have another size.
        FeatureError: there are no boxes, or the features are of another kind and ``any_features`` is False.
    """
    check_features(model, store, model.options.feature_dim, any_features)
    fingerprint = store.fingerprint
    if not store.header.boxes:
        raise FeatureError(
            "has no boxes, but ViLBERT reads the position of each region",
            code="wrong-features",
            path=store.paths[0],
            hint="Extract the features again, or import files with boxes",
        )
    if model.is_released and fingerprint.detector not in (RELEASED_DETECTOR, UNKNOWN) and not any_features:
        raise FeatureError(
            f"has features of {fingerprint.detector}, but the released weights of ViLBERT were trained on those of "
            f"{RELEASED_DETECTOR}",
            code="wrong-features",
            value=fingerprint.detector,
            path=store.paths[0],
            hint=f"Extract features with 'capbench extract-features --detector {RELEASED_DETECTOR}', or set "
            "any_features=true, which becomes part of the signature",
        )


def check_alike(models: tuple[VilbertModel, ...]) -> None:
    """Raise ModelError unless all networks of an ensemble have the same numbers of layers and tasks."""
    first = models[0]
    for model in models[1:]:
        for name in ("connections", "tasks"):
            if getattr(model.options, name) != getattr(first.options, name):
                raise ModelError(
                    f"has {getattr(model.options, name)} {name}, but {first.path} of the same ensemble has "
                    f"{getattr(first.options, name)}",
                    code="mismatch",
                    value=name,
                    path=model.path,
                    hint="Use networks of the same kind",
                )


# Image inputs: the mean of the regions, the regions, and their positions.

MOST_REGIONS = 100
"""Maximum number of regions of an image, the first ones; the published features have 100."""


@dataclass(frozen=True, eq=False)
class ImageRows:
    """The network's input for an image.

    Attributes:
        features: (n + 1, d) float32: the mean of all regions, then the regions.
        places: (n + 1, 5) float32: x1, y1, x2, y2 and the area as fractions of the image; the mean covers all of it.
    """

    features: NDArray[np.float32]
    places: NDArray[np.float32]


def image_rows(regions: RegionFeatures, most: int = MOST_REGIONS) -> ImageRows:
    """The rows of an image as in the released code: the mean of all regions, then the first ``most`` regions.

    Args:
        regions: with boxes.
        most: maximum number of regions.

    Raises:
        FeatureError: there are no boxes.
    """
    if regions.boxes is None:
        raise FeatureError(
            f"the image '{regions.image}' has no boxes",
            code="wrong-features",
            value=regions.image,
            hint="Use features with boxes",
        )
    features = regions.features.astype(np.float32)
    boxes = regions.boxes.astype(np.float32)
    width, height = regions.width, regions.height
    places = np.empty((len(boxes) + 1, 5), dtype=np.float32)
    places[0] = (0.0, 0.0, 1.0, 1.0, 1.0)
    places[1:, :4] = boxes / np.array([width, height, width, height], dtype=np.float32)
    places[1:, 4] = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]) / np.float32(width * height)
    rows = np.concatenate((features.mean(axis=0, dtype=np.float64).astype(np.float32)[None], features))
    return ImageRows(rows[: most + 1], places[: most + 1])


# Word states of captions with their image, each computed once.
#
# Shared computations: the text layers before the first connection do not depend on the image and are computed once per
# text; the image's embedding and its projection for the first connection are computed once per image. Layers after the
# last requested one, and the image stream of its connection, are not computed. Captions of one length are processed
# together, without padding and masks. Batches of few tokens are filled up: in larger ones, a text's states were bitwise
# independent of the other texts.

Pair = tuple[str, tuple[int, ...]]
"""An image's id and the ids of a caption's word pieces, ``[CLS]`` first."""

_ROWS = {"cpu": 16 * 101, "cuda": 256 * 101}
"""Rows of the image stream processed at once; on a CPU, as many as fit in its caches."""
_TEXTS = 256
_TOKENS = 256 * 16
_VERSION = 1  # of the encoding of captions


class Encoder:
    """Computes word states with one network.

    Args:
        network: in evaluation mode, on ``device``.
        task: number of the task whose token follows ``[CLS]``, or None.
        layers: the requested layers, from 1 to the number of connections.
        device: device of the network.
        weights: identifier of the network, which is part of the keys of stored states.

    Attributes:
        encoded_pairs: number of pairs that passed the connections so far, for tests and benchmarks.
        encoded_texts: number of texts that passed the layers before them.
        encoded_images: number of embedded images.
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
    @without_cudnn_attention()
    def states(
        self,
        images: Mapping[str, ImageRows],
        pairs: Sequence[Pair],
        done: Callable[[int], None] = lambda _: None,
        stored: StoredEncodings | None = None,
    ) -> dict[Pair, NDArray[np.float32]]:
        """States of the tokens of captions.

        Args:
            images: rows of all images of ``pairs``, all in memory.
            pairs: images and captions; repeated ones are computed once.
            done: called with numbers of distinct pairs done.
            stored: states on disk.

        Returns:
            For each pair (layers, m, T) float32; with a task, its token is the second.
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
        """Key of everything that determines the states after a layer, except caption and image."""
        precision = str(self._dtype).removeprefix("torch.")
        return space_of(
            __name__,
            f"vilbert-{_VERSION}",
            ("torch",),
            weights=self._weights,
            task=self.task,
            layer=layer,
            precision=precision,
            device=place_of(self.device.type),
        )

    def _stored(self, keys: Mapping[Pair, bytes], stored: StoredEncodings) -> dict[Pair, NDArray[np.float32]]:
        """States of the pairs for which all layers are stored on disk."""
        width, extra = self.network.options.text_dim, self.task is not None
        left = dict(keys)
        of_layers = []
        for layer in self.layers:
            shapes = {key: (len(ids) + extra, width) for (_, ids), key in left.items()}
            of_layers.append(stored.get(self._space(layer), shapes))
            left = {pair: key for pair, key in left.items() if key in of_layers[-1]}
        return {pair: np.stack([of_layer[key] for of_layer in of_layers]) for pair, key in left.items()}

    def _read_texts(self, texts: Sequence[tuple[int, ...]]) -> dict[tuple[int, ...], NDArray[np.float32]]:
        """(m, T) of each text before the first connection; ``texts`` are sorted by length."""
        read: dict[tuple[int, ...], NDArray[np.float32]] = {}
        by_length: dict[int, list[tuple[int, ...]]] = {}
        for ids in texts:
            cached = self._texts.get(ids)
            if cached is None:
                by_length.setdefault(len(ids), []).append(ids)
            else:
                read[ids] = cached
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
        """(n, V) of each image before the first connection, and its projection; in batches of equal numbers of rows."""
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
        """Texts (b + f, m, T), the last f of them copies of the b-th as fillers; b images → (layers, b + f, m, T)."""
        network, last = self.network, max(self.layers)
        image_of = torch.arange(len(text), device=text.device).clamp_max(len(images) - 1)
        image = torch.stack([stream for stream, _ in images])
        projected = Projected(
            None if last == 1 else torch.stack([cast(Tensor, part.queries) for _, part in images]),
            torch.stack([part.keys for _, part in images]),
            torch.stack([part.values for _, part in images]),
        )
        states: dict[int, Tensor] = {}
        for place, connection in enumerate(self._connections[:last]):
            layer = place + 1
            if place:
                projected = connection.project(image, queries=layer < last)
            repeated = projected
            if len(text) > len(images):  # fillers share the image's projection, because an image has many rows
                repeated = Projected(None, projected.keys[image_of], projected.values[image_of])
            connected = connection.text_of(text, repeated, None)
            if layer in self.layers:
                states[layer] = connected
            if layer < last:
                assert projected.queries is not None
                image = connection.image_of(image, projected.queries, text, None)
                image = network.image_after(place)(image)
                text = network.text_after(place)(connected)
        return torch.stack([states[layer] for layer in self.layers]).float().cpu().numpy()

    def attention(self, rows: ImageRows, ids: Sequence[int], layer: int) -> NDArray[np.float32]:
        """Attention of a caption's tokens to the image's rows in one connection, mean over heads, (m, n).

        Row 0 of the image is the mean of its regions.
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
    """A key for each pair, from the network's inputs for image and caption."""
    of_images = {
        name: key_of(*(array.tobytes() for array in (np.array(rows.features.shape), rows.features, rows.places)))
        for name, rows in images.items()
    }
    return {(image, ids): key_of(of_images[image], np.array(ids, dtype="<i4").tobytes()) for image, ids in pairs}

"""A grounding model, or an ensemble of some, with the feature store that it looks at: what it encoded is kept.

Encoded captions and images are kept up to a limit of memory, in one place for all metrics of a process.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from capbench import files
from capbench.errors import ModelError
from capbench.features.store import FeatureStore, open_store
from capbench.metrics.networks import check_features, opened_networks, signed_together, store_key
from capbench.models.encodings import Encodings, Key, encode_by_length
from capbench.records import FloatArray
from capbench.text.vocabulary import UNKNOWN

if TYPE_CHECKING:
    from capbench.models.scan.files import GroundingModel

__all__ = ["GroundingSource", "open_source"]

_SOURCES = 2


class _Encoder:
    """One network, and what it has encoded so far.

    Args:
        model: the network with its vocabulary.
        store: the region features.
    """

    def __init__(self, model: GroundingModel, store: FeatureStore) -> None:
        self.model = model
        self.store = store
        self.encoded_captions = 0
        self.encoded_images = 0
        self._words = Encodings()
        self._regions = Encodings()

    def captions(self, texts: Iterable[str]) -> dict[str, NDArray[np.float32]]:
        """Word vectors (m, D) of each text, ``<start>`` and ``<end>`` included; texts of the same words but once."""
        keys = {text: tuple(self.model.vocabulary.encode(text)) for text in dict.fromkeys(texts)}
        vectors, number = encode_by_length(keys.values(), self._words, self._encode, UNKNOWN)
        self.encoded_captions += number
        return {text: vectors[key] for text, key in keys.items()}

    def _encode(self, captions: Sequence[Key]) -> NDArray[np.float32]:
        import torch

        with torch.inference_mode():
            ids = torch.tensor(captions, dtype=torch.int64, device=self.model.device)
            lengths = torch.full((len(captions),), ids.shape[1], dtype=torch.int64)
            encoded: NDArray[np.float32] = self.model.network.encode_captions(ids, lengths).float().cpu().numpy()
        return encoded

    def regions(self, image: str) -> FloatArray:
        """Region vectors (n, D) float64 of an image. Raises FeatureError if the store lacks it."""
        regions = self._regions.get(image)
        if regions is None:
            (regions,) = self.model.encode_images([self.store[image].features])
            self.encoded_images += 1
            self._regions.put(image, regions)
        return regions.astype(np.float64)


class GroundingSource:
    """A grounding model, or an ensemble of several, and the features it looks at; made by :func:`open_source`.

    Under an ensemble a word's vector is the networks' vectors side by side, and so is a region's: D is the sum of
    theirs, and :meth:`parts` takes them apart. All networks tokenise alike, so that they read a caption as equally many
    words, whichever of these each of them knows.

    Args:
        models: the trained networks with their vocabularies: one, or an ensemble's.
        store: the region features.
        path: the ensemble's file.

    Attributes:
        models: as given.
        store: as given.
    """

    def __init__(self, models: Sequence[GroundingModel], store: FeatureStore, path: Path | None = None) -> None:
        self.models = tuple(models)
        self.store = store
        self._path = path
        self._encoders = [_Encoder(model, store) for model in models]
        self._ends = np.cumsum([model.options.embed_dim for model in models])[:-1]

    @property
    def model(self) -> GroundingModel:
        """The network. Raises ModelError if there are several."""
        if len(self.models) > 1:
            raise ModelError(
                f"is an ensemble of {len(self.models)} networks, and this needs a single one",
                path=self._path,
                hint=f"Give one of them, such as {self.models[0].path}",
            )
        return self.models[0]

    @property
    def encoded_captions(self) -> int:
        """Captions encoded so far, by each network, for tests and benchmarks."""
        return sum(encoder.encoded_captions for encoder in self._encoders)

    @property
    def encoded_images(self) -> int:
        """Images encoded so far, by each network."""
        return sum(encoder.encoded_images for encoder in self._encoders)

    def signature_parts(self) -> dict[str, object]:
        """Model, vocabulary and attention as trained, and what computed the features."""
        return {**signed_together(self.models), "features": self.store.signature()}

    def captions(self, texts: Iterable[str]) -> dict[str, NDArray[np.float32]]:
        """Word vectors (m, D) of each text, ``<start>`` and ``<end>`` included; words are encoded once."""
        texts = list(texts)
        of_networks = [encoder.captions(texts) for encoder in self._encoders]
        if len(of_networks) == 1:
            return of_networks[0]
        return {text: np.concatenate([words[text] for words in of_networks], axis=1) for text in of_networks[0]}

    def regions(self, image: str) -> FloatArray:
        """Region vectors (n, D) float64 of an image. Raises FeatureError if the store lacks it."""
        return np.concatenate([encoder.regions(image) for encoder in self._encoders], axis=1)

    def parts(self, vectors: NDArray[Any]) -> list[NDArray[Any]]:
        """What of vectors (..., D) of words or regions is each network's: views (..., D_i)."""
        return np.split(vectors, self._ends, axis=-1) if len(self.models) > 1 else [vectors]


_open: OrderedDict[tuple[object, ...], GroundingSource] = OrderedDict()


def open_source(
    features: str, model: str, *, vocabulary: str | None = None, any_features: bool = False
) -> GroundingSource:
    """A model with a store, from memory if these files were opened before in this process.

    Args:
        features: path of a feature store.
        model: path of a grounding model (:func:`capbench.models.scan.files.load_scan`), or of an ensemble of some
            (:mod:`capbench.models.ensembles`).
        vocabulary: path of the vocabulary JSON, for a released checkpoint that it does not lie beside.
        any_features: whether features of another fingerprint than the training's are taken.

    Raises:
        FeatureError: the store cannot be read, or holds features of another fingerprint than the model saw.
        ModelError: the model cannot be read, its image layer is for features of another size, or a part of an
            ensemble is not there or is another file than it was.
    """
    files_of_networks = opened_networks(model)
    store = open_store(features)
    given = None if vocabulary is None else files.sha256_file(vocabulary)
    key = (files_of_networks.sha256, given, store_key(store))
    if key not in _open:
        from capbench.models.scan.files import load_scan

        networks = [load_scan(path, vocabulary) for path in files_of_networks.paths]
        _open[key] = GroundingSource(networks, store, files_of_networks.ensemble)
        while len(_open) > _SOURCES:
            _open.popitem(last=False)
    _open.move_to_end(key)
    source = _open[key]
    for network in source.models:
        check_features(network, source.store, network.options.image_dim, any_features)
    return source

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
from capbench.metrics.image_metric import check_features
from capbench.models.encodings import Encodings
from capbench.models.ensembles import read_ensemble
from capbench.models.registry import locate
from capbench.records import FloatArray
from capbench.text.vocabulary import UNKNOWN

if TYPE_CHECKING:
    from capbench.models.scan.files import GroundingModel

__all__ = ["GroundingSource", "open_source"]

_SOURCES = 2
_CAPTIONS_AT_ONCE = 128
_WORDS_AT_ONCE = 128 * 128
_STEP = 4


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
        """Word vectors (m, D) of each text, ``<start>`` and ``<end>`` included.

        Texts of the same words are encoded once, with others of their length in batches of a multiple of four, filled
        up with unknown words. Such batches were seen to give a caption the same bits whatever stands beside it; others
        differ in the eighth digit, since other kernels do the sums.
        """
        keys = {text: tuple(self.model.vocabulary.encode(text)) for text in dict.fromkeys(texts)}
        vectors: dict[tuple[int, ...], NDArray[np.float32]] = {}
        by_length: dict[int, list[tuple[int, ...]]] = {}
        for key in dict.fromkeys(keys.values()):
            kept = self._words.get(key)
            if kept is not None:
                vectors[key] = kept
            else:
                by_length.setdefault(len(key), []).append(key)
        for _, waiting in sorted(by_length.items()):
            # Fewer of long ones: what the network remembers of a batch grows with its words.
            number = min(_CAPTIONS_AT_ONCE, max(_STEP, _WORDS_AT_ONCE // len(waiting[0]) // _STEP * _STEP))
            for start in range(0, len(waiting), number):
                batch = waiting[start : start + number]
                for key, words in zip(batch, self._encode(batch), strict=True):
                    vectors[key] = words
                    self._words.put(key, words)
        return {text: vectors[key] for text, key in keys.items()}

    def _encode(self, captions: Sequence[tuple[int, ...]]) -> list[NDArray[np.float32]]:
        import torch

        filling = (UNKNOWN,) * len(captions[0])
        rows = [*captions, *[filling] * (-len(captions) % _STEP)]
        with torch.inference_mode():
            ids = torch.tensor(rows, dtype=torch.int64, device=self.model.device)
            lengths = torch.full((len(rows),), ids.shape[1], dtype=torch.int64)
            encoded = self.model.network.encode_captions(ids, lengths).float().cpu().numpy()
        self.encoded_captions += len(captions)
        return [row.copy() for row in encoded[: len(captions)]]  # a view would keep the whole batch

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
        """Model, vocabulary and attention as trained, and what computed the features.

        An ensemble names all its networks; of vocabulary and attention one, if all have the same.
        """
        signed = [model.signature_parts() for model in self.models]
        parts: dict[str, object] = {key: _one_or_all([of_model[key] for of_model in signed]) for key in signed[0]}
        if len(signed) > 1:
            parts["model"] = "+".join([f"mean-of-{len(signed)}", *(of_model["model"] for of_model in signed)])
        return {**parts, "features": self.store.signature()}

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


def _one_or_all(values: Sequence[str]) -> str:
    return values[0] if len(set(values)) == 1 else ",".join(values)


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
    file = locate(model)
    ensemble = read_ensemble(file)
    if ensemble is not None:
        ensemble.verify()
    store = open_store(features)
    given = None if vocabulary is None else files.sha256_file(vocabulary)
    # The store's place is part of the key, since two stores of one signature may hold different images.
    places = tuple((str(path.resolve()), path.stat().st_mtime_ns, path.stat().st_size) for path in store.paths)
    weights = files.sha256_file(file) if ensemble is None else tuple(network.sha256 for network in ensemble.parts)
    key = (weights, given, store.signature(), places)
    if key not in _open:
        from capbench.models.scan.files import load_scan

        if ensemble is None:
            _open[key] = GroundingSource([load_scan(file, vocabulary)], store)
        else:
            networks = [load_scan(member.path, vocabulary) for member in ensemble.parts]
            _open[key] = GroundingSource(networks, store, ensemble.path)
        while len(_open) > _SOURCES:
            _open.popitem(last=False)
    _open.move_to_end(key)
    source = _open[key]
    for network in source.models:
        check_features(network.path, network.options.image_dim, network.features, source.store, any_features)
    return source

"""What metrics over trained networks share: one network or an ensemble, beside the feature store that it looks at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from capbench.errors import FeatureError, ModelError
from capbench.features.store import FeatureStore
from capbench.files import sha256_file
from capbench.models.ensembles import read_ensemble
from capbench.models.registry import locate
from capbench.text.vocabulary import Vocabulary, tokenize_caption

__all__ = [
    "NetworkFiles",
    "TrainedModel",
    "check_features",
    "opened_networks",
    "signed_together",
    "store_key",
    "unknown_words",
]


class TrainedModel(Protocol):
    """A loaded network that looks at region features."""

    @property
    def path(self) -> Path:
        """The file of its weights."""

    @property
    def features(self) -> str | None:
        """Id of the fingerprint of the features that it was trained on, None if unknown."""

    def signature_parts(self) -> Mapping[str, str]:
        """What of it can change a score, ``model`` first."""


@dataclass(frozen=True)
class NetworkFiles:
    """The files of weights behind what ``--model`` names.

    Attributes:
        paths: of the networks, in the order in which they are used.
        sha256: of each.
        ensemble: the ensemble's file; None for a single network.
    """

    paths: tuple[Path, ...]
    sha256: tuple[str, ...]
    ensemble: Path | None


def opened_networks(model: str, metric: str = "tiger") -> NetworkFiles:
    """The files of one network or of an ensemble's.

    Args:
        model: a path or a name, as :func:`capbench.models.registry.locate` takes them.
        metric: for which it is.

    Raises:
        ModelError: there is none, or a part of an ensemble is not there or is another file than it was.
    """
    file = locate(model, metric)
    ensemble = read_ensemble(file)
    if ensemble is None:
        return NetworkFiles((file,), (sha256_file(file),), None)
    ensemble.verify()
    parts = ensemble.parts
    return NetworkFiles(tuple(part.path for part in parts), tuple(part.sha256 for part in parts), ensemble.path)


def store_key(store: FeatureStore) -> tuple[object, ...]:
    """What tells a store from others in this process: two of one signature may hold different images."""
    places = tuple((str(path.resolve()), path.stat().st_mtime_ns, path.stat().st_size) for path in store.paths)
    return (store.signature(), places)


def signed_together(models: Sequence[TrainedModel]) -> dict[str, object]:
    """What of networks can change a score. An ensemble names them all; of other facts one, if all have the same."""
    signed = [model.signature_parts() for model in models]
    parts: dict[str, object] = {}
    for key in signed[0]:
        values = [of_model[key] for of_model in signed]
        parts[key] = values[0] if len(set(values)) == 1 else ",".join(values)
    if len(signed) > 1:
        parts["model"] = "+".join([f"mean-of-{len(signed)}", *(of_model["model"] for of_model in signed)])
    return parts


def check_features(model: TrainedModel, store: FeatureStore, size: int, any_features: bool) -> None:
    """Check that a store holds the features that a network was trained on.

    Args:
        model: the network.
        store: the features.
        size: columns that the network reads.
        any_features: whether features of another fingerprint than the training's are taken.

    Raises:
        ModelError: its image layer is for features of another size.
        FeatureError: the store holds features of another fingerprint than the network saw.
    """
    if store.feature_size != size:
        raise ModelError(
            f"reads features of {size} columns, and {store.paths[0]} holds features of {store.feature_size}",
            path=model.path,
            hint="Give the features that it was trained on, or a model for these",
        )
    trained, fingerprint = model.features, store.fingerprint
    if trained is not None and trained not in (fingerprint.kind, fingerprint.digest) and not any_features:
        raise FeatureError(
            f"holds features of the kind {fingerprint.kind} ({fingerprint.detector}, {fingerprint.mode}), and "
            f"{model.path} was trained on features of the kind {trained}",
            path=store.paths[0],
            hint="Give the store of the kind it was trained on, or say any_features=true (it then stands in the "
            "signature)",
        )


def unknown_words(known: Sequence[Vocabulary], texts: Sequence[str]) -> list[str]:
    """One note that names the words of texts which a network does not know, or none."""
    distinct = dict.fromkeys(word for text in texts for word in tokenize_caption(text))
    words = [word for word in distinct if any(word not in vocabulary for vocabulary in known)]
    whose = "the model's vocabulary" if len(known) == 1 else "the vocabularies of all networks"
    return [f"not in {whose}, read as <unk>: {', '.join(words)}"] if words else []

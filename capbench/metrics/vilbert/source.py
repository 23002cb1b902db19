"""A ViLBERT, or an ensemble of some, with the features it looks at: loaded once in a process."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

from capbench import files
from capbench.errors import FeatureError, ModelError
from capbench.features.records import UNKNOWN
from capbench.features.store import FeatureStore
from capbench.metrics.networks import check_features, opened_networks
from capbench.models.vilbert.files import VilbertModel, files_beside, load_vilbert

__all__ = ["RELEASED_DETECTOR", "check_store", "open_models"]

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

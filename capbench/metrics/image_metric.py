"""Base class of metrics that use region features, and shared code of those with trained networks.

Scoring passes such a metric all items of an image together, so that an image's features are read and encoded once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import FeatureError, MetricError, ModelError
from capbench.core.files import sha256_file
from capbench.core.options import Choice, Count, File, Options, option
from capbench.core.records import Item
from capbench.metrics.base import Metric
from capbench.metrics.needs import Features, Need, References, Resources
from capbench.text.vocabulary import Vocabulary, tokenize_caption
from capbench.weights.arrays import read_metadata
from capbench.weights.ensembles import network_files, read_ensemble
from capbench.weights.registry import locate

if TYPE_CHECKING:
    from capbench.features.store import FeatureStore
    from capbench.weights.files import TrainedModel

T = TypeVar("T")


@dataclass(frozen=True)
class ImageOptions(Options):
    """Options of every metric that reads region features: what it is shown of an image.

    The difference between seen and other images is the image's contribution to the metric's agreement with raters.
    """

    image: str = option(
        "seen",
        Choice("seen", "blank", "mean", "shuffled"),
        "features shown to the metric: the image's (seen), zeros (blank), the mean over the training images (mean), or "
        "those of another image of the data set (shuffled)",
        quiet=True,
    )
    image_seed: int = option(
        1,
        Count(),
        "seed of image=shuffled, which permutes the images of the whole data set (within its groups), whatever part of "
        "it is scored",
        sign_as="",
    )
    training_images: str | None = option(
        None,
        File("image names, one per line"),
        "training images over which image=mean takes the mean, with features in the store; by default the mean that "
        "the network's file records",
        sign_as="",
    )


def shown_store(metric: str, resources: Resources, options: Any) -> FeatureStore:
    """The region features that a metric reads under its options; :class:`ImageOptions` change what is shown."""
    from capbench.features.shown import ShownStore, partners
    from capbench.features.store import open_store

    if resources.features is None:
        message, hint = f"{metric} has no region features", "Add --features STORE"
        raise MetricError(message, code="missing-features", value=metric, hint=hint)
    store = open_store(resources.features)
    kind = getattr(options, "image", "seen")
    if kind == "seen":
        return store
    if kind == "shuffled":
        if resources.image_groups is None:
            message = f"{metric}.image=shuffled requires the images of a data set, which are unknown here"
            hint = "Use it with 'capbench correlate' or 'capbench score'"
            raise MetricError(message, code="unsupported", value="shuffled", hint=hint)
        partner_of = partners(resources.image_groups(), options.image_seed)
        return ShownStore(store.paths, kind, partner_of=partner_of, seed=options.image_seed)
    vector = _training_mean(metric, store, resources, options.training_images) if kind == "mean" else None
    return ShownStore(store.paths, kind, vector=vector)


def _training_mean(metric: str, store: FeatureStore, resources: Resources, listed: str | None) -> NDArray[np.float32]:
    """(D,) the mean features of the training images: of a list, or as recorded in the networks' files."""
    from capbench.features.shown import MEAN_KEY, mean_from_text

    if listed is not None:
        # Two stores of one signature may have different images.
        states = tuple((str(path.resolve()), path.stat().st_mtime_ns, path.stat().st_size) for path in store.paths)
        return _mean_of_list((store.signature(), states), resources.features or "", listed, sha256_file(listed))
    paths = network_files(locate(resources.model, metric)) if resources.model is not None else ()
    recorded = {json.loads((read_metadata(path) or {}).get("training", "{}")).get(MEAN_KEY) for path in paths}
    if len(recorded) == 1 and None not in recorded:
        return mean_from_text(recorded.pop())
    reason = "do not record the mean features" if recorded <= {None} else "do not record the same mean features"
    raise MetricError(
        f"{metric}.image=mean: the weights {resources.model} {reason} of their training images",
        code="missing-value",
        value="mean",
        hint=f"Add --option {metric}.training_images=FILE, a list of these images, one per line, with features in "
        f"{resources.features}",
    )


@lru_cache(maxsize=8)  # once per store and list in this process
def _mean_of_list(_store: object, features: str, path: str, _sha256: str) -> NDArray[np.float32]:
    from capbench.features.shown import mean_features, read_images
    from capbench.features.store import open_store

    with open_store(features) as store:
        return mean_features(store, read_images(path))


class ImageMetric(Metric):
    """A metric that reads the region features of images; ``self.store[image].features`` are (regions, D) float32."""

    needs: ClassVar[tuple[Need, ...]] = (References(), Features())
    by_image: ClassVar[bool] = True

    @cached_property
    def store(self) -> FeatureStore:
        """The region features, as the option ``image`` shows them. Errors: see :func:`shown_store`."""
        return shown_store(self.name, self.resources, self.options)

    def prepare(self, items: Sequence[Item]) -> None:
        """Check that the store has the features of all images. Raises FeatureError otherwise."""
        super().prepare(items)
        self.store.require([item.image for item in items])

    def cache_key(self, item: Item) -> bytes:
        """The item's key with the checksum of its image's features. Stores of one fingerprint may have different ones,
        because an imported file does not identify its detector."""
        checksum = self.store.checksum(item.image)
        return item.key if checksum is None else item.key + checksum.to_bytes(4, "little")


# Shared code of metrics with trained networks: one network or an ensemble, and the feature store that it reads.


@lru_cache(maxsize=8)
def _loaded(load: Callable[..., T], path: Path, _sha256: str, *how: Any) -> T:
    return load(path, *how)


def loaded_networks(model: str, metric: str, load: Callable[..., T], *how: Any) -> tuple[T, ...]:
    """The networks of a model (a file, an ensemble, or a name of :func:`capbench.weights.registry.locate`), from memory
    if this process has read them before."""
    file = locate(model, metric)
    ensemble = read_ensemble(file)
    if ensemble is None:
        return (_loaded(load, file, sha256_file(file), *how),)
    ensemble.verify()
    return tuple(_loaded(load, part.path, part.sha256, *how) for part in ensemble.parts)


def signed_together(models: Sequence[TrainedModel[Any, Any]]) -> dict[str, object]:
    """Properties of networks that can change a score; equal values of an ensemble's networks are listed once."""
    signed = [model.signature_parts() for model in models]
    parts: dict[str, object] = {}
    for key in signed[0]:
        values = [of_model[key] for of_model in signed]
        parts[key] = values[0] if len(set(values)) == 1 else ",".join(values)
    if len(signed) > 1:
        parts["model"] = "+".join([f"mean-of-{len(signed)}", *(of_model["model"] for of_model in signed)])
    return parts


def check_features(model: TrainedModel[Any, Any], store: FeatureStore, size: int, any_features: bool) -> None:
    """Check that a store holds the features that a network was trained on."""
    if store.feature_size != size:
        message = f"reads features of {size} columns, but those in {store.paths[0]} have {store.feature_size}"
        hint = "Use the features that it was trained on, or a model for these"
        raise ModelError(message, code="wrong-features", value=store.feature_size, path=model.path, hint=hint)
    trained, fingerprint = model.features, store.fingerprint
    if trained is not None and trained not in (fingerprint.kind, fingerprint.digest) and not any_features:
        raise FeatureError(
            f"has features of the kind {fingerprint.kind} ({fingerprint.detector}, {fingerprint.mode}), but "
            f"{model.path} was trained on features of the kind {trained}",
            code="wrong-features",
            value=fingerprint.kind,
            path=store.paths[0],
            hint="Use features of the kind that it was trained on, or set any_features=true, which becomes part of the "
            "signature",
        )


def unknown_words(known: Sequence[Vocabulary], texts: Sequence[str]) -> list[str]:
    """A note with the words of texts that are not in a network's vocabulary; empty if there are none."""
    distinct = dict.fromkeys(word for text in texts for word in tokenize_caption(text))
    words = [word for word in distinct if any(word not in vocabulary for vocabulary in known)]
    whose = "the model's vocabulary" if len(known) == 1 else "the vocabularies of all networks"
    return [f"not in {whose}, read as <unk>: {', '.join(words)}"] if words else []

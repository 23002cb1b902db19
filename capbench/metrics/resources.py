"""What metrics are given beside captions and options: features, weights, pictures, corpora."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

__all__ = ["Resources"]


@dataclass(frozen=True)
class Resources:
    """What metrics are given beside captions and options.

    Attributes:
        features: path of a region-feature store for all metrics (``--features FILE``).
        model: path of weights for all metrics (``--model FILE``), or a name that
            :func:`capbench.models.registry.locate` knows.
        features_of: stores by label or metric name (``--features LABEL=FILE``), which come first.
        models: weights by label or metric name (``--model LABEL=FILE``), which come first.
        images: a folder with the pictures; None: the data folder's.
        data: the data folder, for named corpora such as ``coco-val``.
        allow_missing: whether items that lack a score in a file of scores are left out, for all metrics; else that is
            an error.
        captions: looks up a corpus of captions (``coco-val``, or a file): captions by image. Metrics know no
            data sets, so whoever runs them hands this in.
        pictures: looks up the files of images by their ids, as far as they are there; whoever runs metrics hands it in.
        cache: whether the cache folder may be read and written.
    """

    features: str | None = None
    model: str | None = None
    features_of: Mapping[str, str] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)
    images: str | None = None
    data: str | None = None
    allow_missing: bool = False
    captions: Callable[[str], Mapping[str, Sequence[str]]] | None = None
    pictures: Callable[[Sequence[str]], Mapping[str, Path]] | None = None
    cache: bool = True

    def of(self, label: str, metric: str) -> Resources:
        """What one request is given: by its label, else by its metric's name, else what is there for all.

        Raises:
            ModelError: the weights are given by a name of ``capbench models``, and are not here.
        """
        model = self.models.get(label, self.models.get(metric, self.model))
        if model is not None and not Path(model).exists():
            from capbench.models.registry import is_known, locate

            # What is neither a file nor a known name is the metric's own matter: it may be a name elsewhere.
            model = str(locate(model, metric)) if is_known(model) else model
        features = self.features_of.get(label, self.features_of.get(metric, self.features))
        return replace(self, features=features, model=model, features_of={}, models={})

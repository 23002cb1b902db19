"""An image's regions as explanations name them."""

from __future__ import annotations

import numpy as np

from capbench.explanations import Regions
from capbench.features.store import FeatureStore

__all__ = ["regions_of"]


def regions_of(store: FeatureStore, image: str) -> Regions:
    """An image's regions as a store has them, each called by its number, counted from 0, and its class if there is one.

    Raises:
        FeatureError: the store lacks the image.
    """
    features, class_names = store[image], store.header.class_names or ()
    names = [str(i) for i in range(len(features))]
    if features.class_ids is not None:
        classes = [class_names[c] if c < len(class_names) else f"class {c}" for c in features.class_ids.tolist()]
        names = [f"{number} {name}" for number, name in zip(names, classes, strict=True)]
    boxes = None if features.boxes is None else features.boxes.astype(np.float64)
    return Regions(tuple(names), boxes, (features.width, features.height))

"""SCAN's similarity written out plainly: one image and one caption at a time, contexts formed, float64."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from capbench.metrics.scan.network import ScanOptions

Array = NDArray[np.float64]


def similarity(options: ScanOptions, image: Array, caption: Array) -> float:
    """Regions (n, D), words (m, D)."""
    queries, values = (caption, image) if options.cross_attention == "t2i" else (image, caption)
    s = values @ queries.T  # (values, queries)
    kind = options.feature_norm
    if kind.startswith("clipped"):
        s = np.where(s > 0, s, 0.1 * s)
    if kind.endswith("l2norm"):
        s = s / (np.sqrt((s**2).sum(1, keepdims=True)) + 1e-8)
    if kind == "softmax":
        s = np.exp(s) / np.exp(s).sum(1, keepdims=True)
    weights = np.exp(options.lambda_softmax * s)
    weights /= weights.sum(0)
    contexts = weights.T @ values
    lengths = np.sqrt((queries**2).sum(1)) * np.sqrt((contexts**2).sum(1))
    cosines = (queries * contexts).sum(1) / np.maximum(lengths, 1e-8)
    if options.aggregation == "LogSumExp":
        return float(np.log(np.exp(options.lambda_lse * cosines).sum()) / options.lambda_lse)
    return {"Mean": float(cosines.mean()), "Max": float(cosines.max()), "Sum": float(cosines.sum())}[
        options.aggregation
    ]

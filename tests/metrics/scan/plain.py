"""TIGEr's grounding vector and contexts (eq. 1-6), region by region and word by word."""

from __future__ import annotations

import math

import numpy as np

from capbench.core.records import FloatArray


def slow_grounding(
    regions: FloatArray, words: FloatArray, norm: str = "clipped_l2norm", smoothing: float = 9.0, clip: str = "leaky"
) -> tuple[FloatArray, FloatArray]:
    """Grounding vector (n,) and contexts (n, D) of regions (n, D) in a caption's words (m, D)."""
    n, m = len(regions), len(words)
    similar = [[float(w @ v) for v in regions] for w in words]
    if norm.startswith("clipped"):
        slope = 0.1 if clip == "leaky" else 0.0
        similar = [[x if x > 0 else slope * x for x in row] for row in similar]
    if norm.endswith("l2norm"):
        similar = [[x / (math.sqrt(sum(y * y for y in row)) + 1e-8) for x in row] for row in similar]
    if norm == "softmax":
        similar = [[math.exp(x) / sum(math.exp(y) for y in row) for x in row] for row in similar]
    found, context = np.empty(n), np.empty_like(regions)
    for i in range(n):
        raised = [math.exp(smoothing * similar[j][i]) for j in range(m)]
        context[i] = sum(raised[j] / sum(raised) * words[j] for j in range(m))
        found[i] = regions[i] @ context[i] / max(np.linalg.norm(regions[i]) * np.linalg.norm(context[i]), 1e-8)
    return found, context

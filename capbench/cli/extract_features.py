"""``capbench extract-features``: region features of images, cached in HDF5."""

from __future__ import annotations

from capbench.errors import FeatureError

__all__ = ["extract_features"]


def extract_features() -> None:
    """Extract region features of images into an HDF5 store (not part of this version yet).

    Metrics that look at images (TIGEr, REO, FAIEr, ViLBERTScore) will read them. The command says so and leaves
    with exit code 2.

    Example: capbench extract-features
    """
    raise FeatureError(
        "extract-features waits for the detectors, which this version does not have",
        hint="Text metrics need no features: capbench score --metric cider",
    )

"""Modules that docs/extend.md once named are found where they were, for one version."""

from __future__ import annotations

import importlib
import warnings

import pytest

OLD = {
    "capbench.errors": ("CapbenchError", "DataError", "ModelError"),
    "capbench.explanations": ("ExplainedCandidate", "Explanation", "RegionMap", "RegionMaps", "Score", "Scores"),
    "capbench.options": ("Choice", "Count", "File", "Flag", "Number", "Options", "Positive", "Share", "Text", "option"),
    "capbench.records": ("FloatArray", "Item", "Judgements", "caption_key", "image_id"),
    "capbench.metrics.base": ("Metric", "Progress"),
    "capbench.metrics.image_metric": ("ImageMetric",),
    "capbench.metrics.needs": ("Features", "References", "Weights"),
    "capbench.features.class_names": ("regions_of",),
    "capbench.features.records": ("Fingerprint", "RegionFeatures"),
    "capbench.features.detectors.base": ("Detector",),
    "capbench.datasets.judgement_files": ("Repeats", "parse_caption", "parse_integer", "ratings", "table_rows"),
    "capbench.datasets.base": ("Dataset",),
    "capbench.datasets.protocol": ("ItemSelection", "accuracy", "correlations"),
}


@pytest.mark.parametrize("module", OLD)
def test_an_old_import_gives_what_the_new_one_gives(module: str) -> None:
    import capbench

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", capbench.CapbenchWarning)
        old = importlib.import_module(module)
    for name in OLD[module]:
        assert getattr(old, name) is not None
        if name in capbench._HOMES and name != "Judgements":
            assert getattr(old, name) is getattr(capbench, name)

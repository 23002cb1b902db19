"""``capbench.check_metric``: check a custom metric against the contract, like scikit-learn's ``check_estimator``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from capbench.core import plugins
from capbench.core.errors import UsageError
from capbench.core.plugins import stdout_to_stderr
from capbench.core.records import Item
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import find_root
from capbench.metrics.contract_checks import ContractCheck, check_contract
from capbench.metrics.from_function import metric_of_function
from capbench.metrics.needs import Resources
from capbench.metrics.scoring import complete

_IMAGES = 5
_CAPTIONS = 2  # of each image


@stdout_to_stderr()
def check_metric(
    metric: str | type | Callable[..., Any],
    *,
    options: Mapping[str, Any] | None = None,
    features: str | os.PathLike[str] | None = None,
    model: str | os.PathLike[str] | None = None,
    images: str | os.PathLike[str] | None = None,
) -> tuple[ContractCheck, ...]:
    """Check that a class or function fulfils the metric contract, with ten captions of the embedded sample.

    ``metric`` is a metric's name, ``module:Class``, ``module:function``, a class or a function. If the store of region
    features does not contain the images of the sample, images of the store replace them. The cache is not used.
    """
    found = plugins.load_any("capbench.metrics", metric) if isinstance(metric, str) else metric
    if not isinstance(found, type):
        if not callable(found):
            hint = "Pass a subclass of Metric or a function"
            raise UsageError(f"{str(metric)[:60]} is not a metric", code="wrong-type", hint=hint)
        found = metric_of_function(found)
    resources = Resources(
        features=None if features is None else os.fspath(features),
        model=None if model is None else os.fspath(model),
        images=None if images is None else os.fspath(images),
        data=str(find_root("sample").path),
    )
    items = _items(resources.features)
    return tuple(check_contract(found, items, complete(resources), options))


def _items(features: str | None) -> Sequence[Item]:
    """Distinct captions of some images of the sample, two of each image."""
    opened = open_dataset("flickr8k-expert", find_root("sample"))
    by_image: dict[str, dict[bytes, Item]] = {}
    for item in opened.load(opened.protocol(None).items)[0].items:
        by_image.setdefault(item.image, {}).setdefault(item.key, item)
    several = [list(of_image.values())[:_CAPTIONS] for of_image in by_image.values() if len(of_image) >= _CAPTIONS]
    several = several[:_IMAGES]
    if features is not None:
        from capbench.features.store import open_store

        with open_store(features) as store:
            stored = list(store.ids)
        if not {of_image[0].image for of_image in several} <= set(stored):
            several = [
                [replace(item, image=name) for item in of_image]
                for name, of_image in zip(stored, several, strict=False)
            ]
    return [item for of_image in several for item in of_image]

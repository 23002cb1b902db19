"""Plain Python functions as metrics, cached under a version that the user states.

The names of a function's parameters decide how it is called (:data:`FORMS`).
"""

from __future__ import annotations

import contextlib
import inspect
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from capbench.core.errors import (
    CapbenchError,
    FeatureError,
    MetricError,
    MissingFeaturesError,
    MissingFileError,
    UsageError,
)
from capbench.core.machine import choose_device
from capbench.core.progress import Progress
from capbench.core.records import FloatArray, Item
from capbench.metrics.base import Metric
from capbench.metrics.needs import Features, Image, ImageArgument, Images, References, Resources, images_of
from capbench.metrics.registry import as_label, metric_columns
from capbench.metrics.score_cache import item_name
from capbench.metrics.signing import version_signature

FORMS = (
    "candidate",
    "candidate, references",
    "image, candidate",
    "image, candidate, references",
    "candidates",
    "candidates, references",
    "images, candidates",
    "images, candidates, references",
    "items",
)
"""Accepted parameters, in any order. Parameters with other names must have defaults."""
_KNOWN = {name for form in FORMS for name in form.split(", ")}


class FunctionScores(Metric):
    """Scores of a Python function. :func:`metric_of_function` makes one subclass per function."""

    citation: ClassVar[str] = "A user-defined function"
    keeps_statistics = False
    batch_size = 256
    function: ClassVar[Callable[..., Any]]  # The function, as a static method
    arguments: ClassVar[Mapping[str, bool]]
    """Names of the parameters to pass, in their order; True for those that must be passed by name."""
    signed_as: ClassVar[str] = ""  # ``module.name,label@version:…``, or ``module.name@unsigned`` without a version

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """(n, 1) values of the function."""
        batched = bool({"candidates", "items"} & set(self.arguments))
        images = images_of((item.image for item in items), self.resources) if self._reads_images else {}
        rows: list[object] = []
        for start in range(0, len(items), len(items) if batched else 1):
            batch = items[start : start + (len(items) if batched else 1)]
            where = f"{len(items):,} items (first: {item_name(items[0])})" if batched else item_name(batch[0])
            try:
                returned = self._called(batch, images)
                values = [returned] if not batched else None if isinstance(returned, str | bytes) else list(returned)
            except Exception as error:
                message = f"the function {self.name} raised {type(error).__name__}: {str(error)[:200]} for {where}"
                hint = "Correct the function: it must return a number for every item"
                raise MetricError(message, code="tool-failed", value=self.name, hint=hint) from error
            if values is None or len(values) != len(batch):
                what = f"{returned!r:.40}" if values is None else f"{len(values):,} values"
                message = f"the function {self.name} returned {what} for {where}"
                hint = "A function of lists returns a number for each of their entries"
                raise MetricError(message, code="wrong-shape", value=self.name, hint=hint)
            rows += values
            progress(len(batch))
        return np.array([[self._number(value, item)] for value, item in zip(rows, items, strict=True)])

    def _called(self, batch: Sequence[Item], images: Mapping[str, Image]) -> Any:
        first = batch[0]
        values = {
            "image": images.get(first.image),
            "candidate": first.candidate,
            "references": first.references if "candidate" in self.arguments else [item.references for item in batch],
            "items": list(batch),
            "images": [images.get(item.image) for item in batch],
            "candidates": [item.candidate for item in batch],
            "device": choose_device("auto") if "device" in self.arguments else "",
        }
        named = {name: values[name] for name, by_name in self.arguments.items() if by_name}
        return self.function(*(values[name] for name, by_name in self.arguments.items() if not by_name), **named)

    def _number(self, value: Any, item: Item) -> float:
        """A number of Python, NumPy or PyTorch as a float. Raises MetricError for any other object."""
        kind = getattr(getattr(value, "dtype", None), "kind", "f")  # NumPy converts texts to numbers
        is_number = kind in "fiub" and (isinstance(value, numbers.Real) or getattr(value, "shape", None) == ())
        number = math.nan
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            number = float(value) if is_number else math.nan
        if not math.isfinite(number):
            shown, hint = f"{value!r:.60}", "Return a number also for such a caption"
            message = f"the function {self.name} returned {shown}, which is not a finite number, for {item_name(item)}"
            raise MetricError(message, code="not-a-number", value=shown, hint=hint)
        return number

    def signature(self) -> str:
        return f"function:{self.signed_as}"

    def statistics_signature(self) -> str:
        """The signature, with an id for functions without a version, which may have the same name."""
        return self.signature() if self.keeps_statistics else f"{self.signature()}|{id(self.function)}"

    def cache_key(self, item: Item) -> bytes:
        """The item's key; if the function takes the image, with a digest of its file and its features."""
        if not self._reads_images:
            return item.key
        if item.image not in self._image_keys:
            self._image_keys[item.image] = images_of([item.image], self.resources)[item.image].key()
        return item.key + self._image_keys[item.image]

    @cached_property
    def _image_keys(self) -> dict[str, bytes]:
        return {}

    @property
    def _reads_images(self) -> bool:
        return bool({"image", "images"} & set(self.arguments))

    @classmethod
    def check_items(cls, items: Sequence[Item], resources: Resources, options: Mapping[str, Any]) -> None:
        """Reject images without a file or features, if the function fails on the first of them: it may read the
        picture, the region features, or neither."""
        unmet: list[CapbenchError] = []
        for need in (Images(), Features()) if {"image", "images"} & set(cls.arguments) else ():
            try:
                need.check_items(items, resources, cls.option_type())
            except (MissingFeaturesError, MissingFileError) as error:
                unmet.append(error)
        for lack in unmet:
            try:
                cls(resources).statistics([next(item for item in items if item.image == lack.value)], lambda _: None)
            except MetricError as failure:
                read = FeatureError if isinstance(failure.__cause__, FeatureError) else MissingFileError
                lack = next((other for other in unmet if isinstance(other, read)), lack)
                lack.message = f"{lack.message}; without, {failure.message}"
                raise lack from failure


def metric_of_function(function: Callable[..., Any], label: str = "", version: str = "") -> type[FunctionScores]:
    """A metric class that calls a function of one of the :data:`FORMS`.

    ``image`` is an :class:`~capbench.metrics.needs.Image`, ``references`` a tuple. A parameter ``device`` with the
    default None receives ``cuda`` or ``cpu``; the default of ``batch_size`` is the length of the lists. The cache
    stores the function's scores under ``version``, and none without.
    """
    own_name = getattr(function, "__name__", type(function).__name__)
    name = as_label(label or own_name, "function")
    if name.lower() in {known.lower() for known in metric_columns()}:
        message = f"the function '{name}' has the name of a metric of capbench"
        hint = "Choose another name: metrics={'my-name': function}"
        raise UsageError(message, code="duplicate", value=name, hint=hint)
    signed = version_signature(function, name, version) if version else None
    module = getattr(function, "__module__", None) or "?"
    unsigned = f"{module}.{getattr(function, '__qualname__', type(function).__qualname__)}@unsigned"
    arguments, batch_size = _arguments(function, name)
    needs = [References()] if {"references", "items"} & set(arguments) else []
    return type(
        "FunctionScores",
        (FunctionScores,),
        {
            "__doc__": f"Scores of the function {name}.",
            "name": name,
            "columns": (name,),
            "titles": {name: label or name},
            "function": staticmethod(function),
            "arguments": arguments,
            "batch_size": batch_size,
            "signed_as": (signed or unsigned).replace("|", ","),
            # A function may return other numbers next time: it may read files, settings or other modules.
            "keeps_statistics": signed is not None,
            "needs": (*needs, *([ImageArgument()] if {"image", "images"} & set(arguments) else [])),
        },
    )


def _arguments(function: Callable[..., Any], name: str) -> tuple[dict[str, bool], int]:
    """:attr:`FunctionScores.arguments`, and the batch size. Raises UsageError for none of :data:`FORMS`."""
    signature: inspect.Signature | str = ""
    parameters: list[inspect.Parameter] = []
    with contextlib.suppress(TypeError, ValueError):  # written in C, without a signature
        signature = inspect.signature(function)
        parameters = list(signature.parameters.values())
    passed = {p.name: p.kind is p.KEYWORD_ONLY for p in parameters if p.name in _KNOWN}
    # Other parameters with defaults are settings. *args and **kwargs have no defaults.
    settings = {p.name: p.default for p in parameters if p.name not in _KNOWN}
    unset = inspect.Parameter.empty in settings.values()
    if unset or set(passed) not in [set(form.split(", ")) for form in FORMS]:
        forms = "; ".join(f"({form})" for form in FORMS)
        message = f"the function {name}{signature} cannot be called as a metric"
        hint = f"Name its parameters {forms}; others need defaults"
        raise UsageError(message, code="wrong-type", value=name, hint=hint)
    if settings.get("device", "") is None:
        passed["device"] = True
    size = settings.get("batch_size")
    return passed, size if type(size) is int and size > 0 else FunctionScores.batch_size

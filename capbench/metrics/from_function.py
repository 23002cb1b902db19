"""Plain Python functions as metrics, signed by their source code if possible."""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from capbench.core.errors import MetricError, UsageError
from capbench.core.records import FloatArray, Item
from capbench.metrics.base import Metric, Progress
from capbench.metrics.registry import as_label, metric_columns
from capbench.metrics.signing import function_signature, version_signature

__all__ = ["FunctionScores", "metric_of_function"]


class FunctionScores(Metric):
    """Scores of a Python function. :func:`metric_of_function` makes one subclass per function."""

    name: ClassVar[str] = ""
    columns: ClassVar[tuple[str, ...]] = ()
    titles: ClassVar[Mapping[str, str]] = {}
    citation: ClassVar[str] = "A user-defined function"
    keeps_statistics = False
    batch_size = 256
    function: ClassVar[Callable[..., Any]]
    """The function, as a static method."""
    takes_items: ClassVar[bool] = False
    """True if the function takes a list of items."""
    signed_as: ClassVar[str] = ""
    """The part of the signature after ``function:``."""

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """(n, 1) values of the function.

        Raises:
            MetricError: the function raised an error, or returned something other than a finite number.
        """
        if self.takes_items:
            values = self._called_with_items(list(items))
            progress(len(items))
        else:
            values = []
            for item in items:
                values.append(self._number(self._called(item), _name(item)))
                progress(1)
        return np.array(values, dtype=np.float64).reshape(-1, 1)

    def signature(self) -> str:
        """``function:module.name@…`` with 16 digits of a SHA-256, ``@version:…`` if one is stated, or ``@unsigned``."""
        return f"function:{self.signed_as}"

    def statistics_signature(self) -> str:
        """The signature, with an id for functions without one, which may have the same name."""
        return self.signature() if self.keeps_statistics else f"{self.signature()}|{id(self.function)}"

    def _called(self, item: Item) -> object:
        try:
            return self.function(item.image, item.candidate, item.references)
        except Exception as error:
            raise self._raised(error, _name(item)) from error

    def _called_with_items(self, items: list[Item]) -> list[float]:
        several = f"{len(items):,} items (first: {_name(items[0])})"
        try:
            returned = self.function(items)
            values = None if isinstance(returned, str | bytes) else list(returned)
        except Exception as error:
            raise self._raised(error, several) from error
        if values is None or len(values) != len(items):
            what = repr(returned)[:40] if values is None else f"{len(values):,} values"
            raise MetricError(
                f"the function {self.name} returned {what} for {several}",
                code="wrong-shape",
                value=self.name,
                hint="A function of one argument takes a list of items and returns a number for each",
            )
        return [self._number(value, _name(item)) for value, item in zip(values, items, strict=True)]

    def _raised(self, error: Exception, where: str) -> MetricError:
        message = f": {error}" if str(error) else ""
        return MetricError(
            f"the function {self.name} raised {type(error).__name__}{message[:200]} for {where}",
            code="tool-failed",
            value=self.name,
            hint="Correct the function: it must return a number for every item",
        )

    def _number(self, value: object, where: str) -> float:
        number = _as_float(value)
        if number is None:
            raise MetricError(
                f"the function {self.name} returned {repr(value)[:60]} for {where}, which is not a number",
                code="not-a-number",
                value=repr(value)[:60],
                hint="Return a number for every item",
            )
        if not math.isfinite(number):
            raise MetricError(
                f"the function {self.name} returned {number} for {where}, which is not a finite number",
                code="not-a-number",
                value=number,
                hint="Define in the function the score of such a caption",
            )
        return number


def metric_of_function(function: Callable[..., Any], label: str = "", version: str = "") -> type[FunctionScores]:
    """A metric class that calls a function.

    Args:
        function: ``function(image, candidate, references)``, which takes an item's image id, caption and tuple of
            references and returns a number; or a function of one argument, which takes a list of items and returns a
            number for each.
        label: name of the metric; default: the function's name.
        version: version in the signature, instead of everything that the function uses; the cache stores its scores
            under this version.

    Raises:
        UsageError: the name is that of one of capbench's metrics, or the function takes other arguments.
    """
    own_name = getattr(function, "__name__", type(function).__name__)
    name = as_label(label or own_name, "function")
    if name.lower() in {known.lower() for known in metric_columns()}:
        raise UsageError(
            f"the function '{name}' has the name of a metric of capbench",
            code="duplicate",
            value=name,
            hint="Choose another name: metrics={'my-name': function}",
        )
    signed = version_signature(function, name, version) if version else function_signature(function)
    module = getattr(function, "__module__", None) or "?"
    unsigned = f"{module}.{getattr(function, '__qualname__', type(function).__qualname__)}@unsigned"
    return type(
        "FunctionScores",
        (FunctionScores,),
        {
            "__doc__": f"Scores of the function {name}.",
            "__module__": FunctionScores.__module__,
            "name": name,
            "columns": (name,),
            "titles": {name: label or name},
            "function": staticmethod(function),
            "takes_items": _takes_items(function, name),
            "signed_as": (signed or unsigned).replace("|", ","),
            # A function without a signature may return other numbers next time.
            "keeps_statistics": signed is not None,
        },
    )


def _takes_items(function: Callable[..., Any], name: str) -> bool:
    """True if a function takes one argument, a list of items. Raises UsageError if it takes neither one nor three."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # written in C, without a signature
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = signature.parameters.values()
    required = [p for p in parameters if p.kind in positional and p.default is p.empty]
    # Parameters with defaults are settings: (items, batch_size=32, device="cpu").
    takes_more = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    for arguments in (1, 3) if len(required) == 1 and not takes_more else (3, 1):
        try:
            signature.bind(*range(arguments))
        except TypeError:
            continue
        return arguments == 1
    raise UsageError(
        f"the function {name}{signature} cannot be called as a metric",
        code="wrong-type",
        value=name,
        hint="Write def my_metric(image, candidate, references), or def my_metric(items) for lists of items",
    )


def _as_float(value: object) -> float | None:
    """A number of Python, NumPy or PyTorch as a float; None for any other object."""
    kind = getattr(getattr(value, "dtype", None), "kind", "f")  # NumPy converts texts to numbers
    if kind not in "fiub" or (not isinstance(value, numbers.Real) and getattr(value, "shape", None) != ()):
        return None
    try:
        return float(value)  # type: ignore[arg-type]  # or an array or a tensor of one number
    except (TypeError, ValueError, OverflowError):
        return None


def _name(item: Item) -> str:
    label = f"'{item.candidate_id}' " if item.candidate_id else ""
    return f"the item {label}of image '{item.image}' ('{item.candidate[:60]}')"

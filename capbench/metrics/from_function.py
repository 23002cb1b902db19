"""A plain Python function as a metric: through the same contract, signed by its source where that can be told."""

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
    """Scores of one Python function. Subclasses are made by :func:`metric_of_function`, one for each function."""

    name: ClassVar[str] = ""
    columns: ClassVar[tuple[str, ...]] = ()
    titles: ClassVar[Mapping[str, str]] = {}
    citation: ClassVar[str] = "A function of your own"
    keeps_statistics = False
    batch_size = 256
    function: ClassVar[Callable[..., Any]]
    """What is called, as a static method."""
    takes_items: ClassVar[bool] = False
    """Whether it takes a list of items at once."""
    signed_as: ClassVar[str] = ""
    """What stands in signatures behind ``function:``."""

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """(n, 1) what the function returns.

        Raises:
            MetricError: it raised something, or returned what is no finite number; the item is named.
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
        """The signature; two functions that cannot be signed may have one name, and are told apart all the same."""
        return self.signature() if self.keeps_statistics else f"{self.signature()}|{id(self.function)}"

    def _called(self, item: Item) -> object:
        try:
            return self.function(item.image, item.candidate, item.references)
        except Exception as error:
            raise self._raised(error, _name(item)) from error

    def _called_with_items(self, items: list[Item]) -> list[float]:
        several = f"{len(items):,} items, the first of which is {_name(items[0])}"
        try:
            returned = self.function(items)
            values = None if isinstance(returned, str | bytes) else list(returned)
        except Exception as error:
            raise self._raised(error, several) from error
        if values is None or len(values) != len(items):
            what = repr(returned)[:40] if values is None else f"{len(values):,} values"
            raise MetricError(
                f"the function {self.name} gave {what} for {several}",
                hint="A function of one argument gets a list of items, and returns a number for each",
            )
        return [self._number(value, _name(item)) for value, item in zip(values, items, strict=True)]

    def _raised(self, error: Exception, where: str) -> MetricError:
        told = f": {error}" if str(error) else ""
        return MetricError(
            f"the function {self.name} raised {type(error).__name__}{told[:200]}, for {where}",
            hint="It must return a number for every item; the cause is told above",
        )

    def _number(self, value: object, where: str) -> float:
        number = _as_float(value)
        if number is None:
            raise MetricError(
                f"the function {self.name} returned {repr(value)[:60]}, which is no number, for {where}",
                hint="It must return a number for every item",
            )
        if not math.isfinite(number):
            raise MetricError(
                f"the function {self.name} returned {number}, which is no finite number, for {where}",
                hint="Decide in the function what such a caption's score is",
            )
        return number


def metric_of_function(function: Callable[..., Any], label: str = "", version: str = "") -> type[FunctionScores]:
    """A metric class that calls a function.

    Args:
        function: ``function(image, candidate, references)``, called with an item's image id, its caption and the tuple
            of its references, returns a number; or a function of one argument, called with lists of items, that
            returns a number for each.
        label: what it is called; default: the function's name.
        version: what stands in its signature for all that the function reaches, which is not examined then; its scores
            are kept in the cache under it.

    Raises:
        UsageError: it is called like one of capbench's own metrics, or takes other arguments.
    """
    given = label or getattr(function, "__name__", type(function).__name__)
    name = as_label(given, "function")
    if name.lower() in {known.lower() for known in metric_columns()}:
        raise UsageError(
            f"the function '{name}' bears the name of one of capbench's metrics",
            hint="Give it another one: metrics={'my-name': function}",
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
            # What cannot be signed may give other numbers the next time.
            "keeps_statistics": signed is not None,
        },
    )


def _takes_items(function: Callable[..., Any], name: str) -> bool:
    """Whether a function takes one argument, a list of items. Raises UsageError if it takes neither one nor three."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # written in C, without a signature
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = signature.parameters.values()
    required = [p for p in parameters if p.kind in positional and p.default is p.empty]
    # What has a default is a setting: (items, batch_size=32, device="cpu").
    takes_more = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    for arguments in (1, 3) if len(required) == 1 and not takes_more else (3, 1):
        try:
            signature.bind(*range(arguments))
        except TypeError:
            continue
        return arguments == 1
    raise UsageError(
        f"the function {name}{signature} cannot be called as a metric",
        hint="Write def my_metric(image, candidate, references), or def my_metric(items) for lists of items",
    )


def _as_float(value: object) -> float | None:
    """A number of Python, NumPy or PyTorch as a float; None for what is none."""
    kind = getattr(getattr(value, "dtype", None), "kind", "f")  # NumPy takes texts for numbers
    if kind not in "fiub" or (not isinstance(value, numbers.Real) and getattr(value, "shape", None) != ()):
        return None
    try:
        return float(value)  # type: ignore[arg-type]  # or an array or a tensor of one number
    except (TypeError, ValueError, OverflowError):
        return None


def _name(item: Item) -> str:
    label = f"'{item.candidate_id}' " if item.candidate_id else ""
    return f"the item {label}of image '{item.image}' ('{item.candidate[:60]}')"

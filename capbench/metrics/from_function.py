"""Plain Python functions as metrics, cached under a version that the user states.

The names of a function's parameters decide how it is called (:data:`FORMS`).
"""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from capbench.core.errors import CapbenchError, FeatureError, MetricError, MissingFileError, UsageError
from capbench.core.options import Options
from capbench.core.progress import Progress
from capbench.core.records import FloatArray, Item
from capbench.metrics.base import Metric
from capbench.metrics.needs import Features, Image, ImageArgument, Images, Need, References, Resources, images_of
from capbench.metrics.registry import as_label, metric_columns
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
"""Accepted parameters, in any order. Parameters with other names must have defaults. ``reference`` may replace
``references`` of a single candidate, for data with one reference each."""


@dataclass(frozen=True)
class _Form:
    """The call of a function.

    Attributes:
        arguments: names of the parameters to pass, in their order.
        keywords: those that must be passed by name.
        batched: True if it takes lists and returns a number for each entry.
        batch_size: number of items in a call; from the function's default, if it has a parameter ``batch_size``.
        device: True if it has a parameter ``device`` with the default None, which receives ``cuda`` or ``cpu``.
    """

    arguments: tuple[str, ...]
    keywords: frozenset[str]
    batched: bool
    batch_size: int
    device: bool

    def call(self, function: Callable[..., Any], values: Mapping[str, object]) -> object:
        """The function's answer to values by name."""
        positional = [values[name] for name in self.arguments if name not in self.keywords]
        named = {name: values[name] for name in self.arguments if name in self.keywords}
        return function(*positional, **named, **({"device": _device()} if self.device else {}))


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
    form: ClassVar[_Form]
    signed_as: ClassVar[str] = ""
    """The part of the signature after ``function:``."""

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """(n, 1) values of the function.

        Raises:
            MetricError: the function raised an error, or returned something other than a finite number.
        """
        images = images_of((item.image for item in items), self.resources) if self._reads_images else {}
        if self.form.batched:
            values = self._called_with_lists(items, images)
            progress(len(items))
        else:
            values = []
            for item in items:
                values.append(self._number(self._called(item, images.get(item.image)), _name(item)))
                progress(1)
        return np.array(values, dtype=np.float64).reshape(-1, 1)

    def signature(self) -> str:
        """``function:module.name,label@version:…``, or ``function:module.name@unsigned`` without a version."""
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
        return bool({"image", "images"} & set(self.form.arguments))

    def _called(self, item: Item, image: Image | None) -> object:
        values: dict[str, object] = {"image": image, "candidate": item.candidate, "references": item.references}
        if "reference" in self.form.arguments:
            if len(item.references) != 1:
                raise _not_one_reference(self.name, item)
            values["reference"] = item.references[0]
        try:
            return self.form.call(self.function, values)
        except Exception as error:
            raise self._raised(error, _name(item)) from error

    def _called_with_lists(self, items: Sequence[Item], images: Mapping[str, Image]) -> list[float]:
        several = f"{len(items):,} items (first: {_name(items[0])})"
        values: dict[str, object] = {
            "items": list(items),
            "images": [images.get(item.image) for item in items],
            "candidates": [item.candidate for item in items],
            "references": [item.references for item in items],
        }
        try:
            returned = self.form.call(self.function, values)
            scores = None if isinstance(returned, str | bytes) else list(returned)  # type: ignore[call-overload]
        except Exception as error:
            raise self._raised(error, several) from error
        if scores is None or len(scores) != len(items):
            what = repr(returned)[:40] if scores is None else f"{len(scores):,} values"
            raise MetricError(
                f"the function {self.name} returned {what} for {several}",
                code="wrong-shape",
                value=self.name,
                hint="A function of lists returns a number for each of their entries",
            )
        return [self._number(value, _name(item)) for value, item in zip(scores, items, strict=True)]

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
        function: a function of one of the :data:`FORMS`. ``image`` is an :class:`~capbench.metrics.needs.Image`,
            ``candidate`` the caption, ``references`` a tuple; functions of lists return a number for each entry.
        label: name of the metric; default: the function's name.
        version: version in the signature; the cache stores the function's scores under this version, and none without.

    Raises:
        UsageError: the name is that of one of capbench's metrics, or its parameters have other names; the
            function is not called to find out.
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
    form = _form_of(function, name)
    signed = version_signature(function, name, version) if version else None
    module = getattr(function, "__module__", None) or "?"
    unsigned = f"{module}.{getattr(function, '__qualname__', type(function).__qualname__)}@unsigned"
    made: type[FunctionScores] = type(
        "FunctionScores",
        (FunctionScores,),
        {
            "__doc__": f"Scores of the function {name}.",
            "__module__": FunctionScores.__module__,
            "name": name,
            "columns": (name,),
            "titles": {name: label or name},
            "function": staticmethod(function),
            "form": form,
            "batch_size": form.batch_size,
            "signed_as": (signed or unsigned).replace("|", ","),
            # A function may return other numbers next time: it may read files, settings or other modules.
            "keeps_statistics": signed is not None,
        },
    )
    made.needs = tuple(_needs(made))
    return made


def _needs(made: type[FunctionScores]) -> Iterator[Need]:
    takes = set(made.form.arguments)
    if "reference" in takes:
        yield _OneReference(made.name)
    if {"references", "items"} & takes:
        yield References()
    if {"image", "images"} & takes:
        yield _ImageOfFunction(made)


@dataclass(frozen=True)
class _OneReference(References):
    """Exactly one reference of each item."""

    function: str

    def unmet_by(self, items: Sequence[Item], resources: Resources, options: Options) -> CapbenchError | None:
        """Items with another number of references."""
        return next((_not_one_reference(self.function, item) for item in items if len(item.references) != 1), None)


@dataclass(frozen=True)
class _ImageOfFunction(ImageArgument):
    """Items with an image for a function, which may read the picture, the region features, or neither."""

    scores: type[FunctionScores]

    def unmet_by(self, items: Sequence[Item], resources: Resources, options: Options) -> CapbenchError | None:
        """Images without a file or features, if the function fails on the first of them."""
        lacking = [error for need in (Images(), Features()) if (error := need.unmet_by(items, resources, options))]
        for item in (next(item for item in items if item.image == error.value) for error in lacking):
            try:
                self.scores(resources).statistics([item], lambda _: None)
            except MetricError as failure:
                cause = failure.__cause__
                read = FeatureError if isinstance(cause, FeatureError) else MissingFileError
                error = next((error for error in lacking if isinstance(error, read)), lacking[0])
                why = failure.message if cause is None else f"{type(cause).__name__}: {str(cause)[:100]}"
                message = f"{error.message}; without, the function {self.scores.name} fails ({why})"
                return type(error)(message, code=error.code, value=error.value, path=error.path, hint=error.hint)
        return None


def _not_one_reference(function: str, item: Item) -> MetricError:
    return MetricError(
        f"the function {function} takes one reference, but {_name(item)} has {len(item.references)}",
        code="wrong-shape",
        value=len(item.references),
        hint="Name its parameter 'references'",
    )


def _form_of(function: Callable[..., Any], name: str) -> _Form:
    """The form of a function, from the names of its parameters. Raises UsageError if it has none of :data:`FORMS`."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # written in C, without a signature
        raise _unknown_form(name, "") from None
    forms = [frozenset(form.split(", ")) for form in FORMS]
    forms += [frozenset(form.replace("references", "reference").split(", ")) for form in FORMS if "candidate," in form]
    known = frozenset[str]().union(*forms)
    parameters = signature.parameters.values()
    arguments = [p.name for p in parameters if p.name in known]
    # Other parameters with defaults are settings. *args and **kwargs have no defaults.
    others = [p for p in parameters if p.name not in known]
    if frozenset(arguments) not in forms or any(p.default is p.empty for p in others):
        raise _unknown_form(name, signature)
    defaults = {p.name: p.default for p in others}
    batch_size = defaults.get("batch_size")
    return _Form(
        arguments=tuple(arguments),
        keywords=frozenset(p.name for p in parameters if p.kind is p.KEYWORD_ONLY),
        batched=bool({"candidates", "items"} & set(arguments)),
        batch_size=batch_size if type(batch_size) is int and batch_size > 0 else FunctionScores.batch_size,
        device="device" in defaults and defaults["device"] is None,
    )


def _unknown_form(name: str, signature: object) -> UsageError:
    return UsageError(
        f"the function {name}{signature} cannot be called as a metric",
        code="wrong-type",
        value=name,
        hint=f"Name its parameters {'; '.join(f'({form})' for form in FORMS)}; others need defaults",
    )


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


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

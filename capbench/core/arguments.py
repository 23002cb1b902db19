"""Arguments declared once: type and range in ``Annotated``, with what a type does not say beside them.

One declaration is an argument of ``import capbench``, checked by :func:`capbench.api.checking.checked`, and an option
of the command line, made by :func:`capbench.cli.options.with_groups`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, get_args

from annotated_types import Ge, Gt, Le, Lt

T = TypeVar("T")


@dataclass(frozen=True)
class Help:
    """The option of an argument on the command line."""

    text: str
    flags: tuple[str, ...] = ()  # its option if it is not ``--name-of-the-argument``
    metavar: str | None = None

    def __get_pydantic_json_schema__(self, schema: Any, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """The JSON schema of the argument, with the text."""
        return {**handler(schema), "description": self.text}


@dataclass(frozen=True)
class Expected:
    """The valid values of an argument in words (``a path``), and the remedy for others."""

    words: str
    hint: str
    # the check if pydantic's of the type is not wanted: values stay the objects that they are
    fits: Callable[[Any], bool] | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        """The check in pydantic's form."""
        if self.fits is None:
            return handler(source)
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(self._checked)

    def _checked(self, value: object) -> object:
        if self.fits is not None and not self.fits(value):
            raise ValueError(f"should be {self.words}")
        return value


def strict(settings: type[T]) -> type[T]:
    """A ``TypedDict`` of arguments that accepts neither other keys nor values of other types (``"5"`` as a number)."""
    config = {"extra": "forbid", "strict": True, "arbitrary_types_allowed": True}
    settings.__pydantic_config__ = config  # type: ignore[attr-defined]  # where pydantic looks for it
    return settings


def declared(annotation: object, kind: type[Any]) -> Any:
    """The first object of a class, such as :class:`Help`, among the metadata of an annotation; None if none has one."""
    found = [entry for entry in getattr(annotation, "__metadata__", ()) if isinstance(entry, kind)]
    found += [first for part in get_args(annotation) if (first := declared(part, kind)) is not None]
    return found[0] if found else None


def is_path(value: object) -> bool:
    """True for a path that is not empty."""
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else ""
    return isinstance(text, str) and text != "" and "\0" not in text


PathGiven = Annotated[str | os.PathLike[str], Expected("a path", "Pass the path of a file or folder", is_path)]
PathsGiven = Annotated[PathGiven | Sequence[PathGiven], Expected("a path or a list of paths", "Pass paths of files")]
DataFolder = Annotated[
    PathGiven,
    Help("Data folder. Default: $CAPBENCH_DATA, else the embedded synthetic sample.", metavar="DIR"),
    Expected("a path", "Pass the path of a folder, or omit it"),
]
FEWEST_RESAMPLES, MOST_RESAMPLES = 100, 1_000_000
Unit = Literal["image", "item", "rating"]
"""Unit of resampling: all data points of an image, of an item, or a single data point."""
Test = Literal["permutation", "bootstrap", "williams", "steiger", "mcnemar"]
SystemTest = Literal["permutation", "bootstrap"]
Correction = Literal["holm", "bh", "none"]
BootstrapMethod = Literal["percentile", "bca"]
Resamples = Annotated[int, Ge(FEWEST_RESAMPLES), Le(MOST_RESAMPLES)]
Seed = Annotated[int, Ge(0)]
OpenShare = Annotated[float, Gt(0), Lt(1)]  # A number between 0 and 1, exclusive
Permutations = Annotated[Resamples, Help("Of the tests. Default: 10,000, or more if needed.", metavar="N")]
Corrected = Annotated[Correction, Help("Correction for the number of pairs.")]
Alpha = Annotated[OpenShare, Help("Significance level, two-sided.", metavar="SHARE")]
Sentinels = Annotated[bool, Help("Rows of sentinel metrics (docs/sentinels.md).", ("--sentinels/--no-sentinels",))]
Draw = Annotated[int, Ge(1), Help("Number of the sample of references, from 1.")]
Bootstrap = Annotated[Resamples, Help("95 % bootstrap intervals from N resamples. Default of N: 1,000.", metavar="[N]")]
KeepFirst = Annotated[bool, Help("Skip repeated images instead of raising an error.")]
Split = Annotated[
    str, Help("Split or domain of the references' file: test, val; in-domain. Default: all.", metavar="NAME")
]
Restrict = Annotated[bool, Help("With --split: leave out candidates of other splits.")]
Categories = Annotated[bool, Help("With SPICE: F of objects, attributes, relations, color, count, size.")]

"""Options declared once: a frozen dataclass from which checks, help and signatures follow.

A metric, a detector or a training file lists its options as fields::

    @dataclass(frozen=True)
    class CiderOptions(Options):
        df: str = option("items", Text("coco-val"), "where document frequencies come from")
        sigma: float = option(6.0, Positive(), "width of the length penalty")

    CiderOptions.read("cider", {"sigma": 5})      # checks; a value that does not fit is named
    CiderOptions.read("cider", {"sigma": -1})     # UsageError: cider.sigma=-1: not a number above 0

Each field has a *kind*, which says what fits, how a value is written in help and how it stands in a signature.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from capbench.core.errors import UsageError, suggest

__all__ = [
    "Choice",
    "Count",
    "Declaration",
    "File",
    "Flag",
    "Kind",
    "Number",
    "Options",
    "Positive",
    "Share",
    "Text",
    "option",
]


class Kind:
    """What values an option takes."""

    def describe(self) -> str:
        """The values in words, for help (``a number above 0``)."""
        raise NotImplementedError

    def example(self) -> str:
        """A value that fits, as one writes it."""
        raise NotImplementedError

    def read(self, value: object) -> Any:
        """The value as it is used. Raises ValueError if it does not fit."""
        raise NotImplementedError

    def hint(self, value: object) -> str:
        """What to do about a value that does not fit."""
        return f"Example: {self.example()}"

    def sign(self, value: Any) -> str:
        """The value as it stands in a signature."""
        return str(value)

    def schema(self) -> dict[str, Any]:
        """The values as a JSON schema, for editors; one without words fits everything."""
        return {}


@dataclass(frozen=True)
class Choice(Kind):
    """One of some names."""

    choices: tuple[str, ...]

    def __init__(self, *choices: str) -> None:
        object.__setattr__(self, "choices", choices)

    def describe(self) -> str:
        """The names."""
        return f"one of {', '.join(self.choices)}"

    def example(self) -> str:
        """The first name."""
        return self.choices[0]

    def read(self, value: object) -> str:
        """The name."""
        if value not in self.choices:
            raise ValueError
        return str(value)

    def hint(self, value: object) -> str:
        """The nearest name, and all of them."""
        return suggest(str(value), list(self.choices))

    def schema(self) -> dict[str, Any]:
        """The names."""
        return {"enum": list(self.choices)}


@dataclass(frozen=True)
class Flag(Kind):
    """True or false.

    Attributes:
        words: how false and true stand in a signature.
    """

    words: tuple[str, str] = ("false", "true")

    def describe(self) -> str:
        """In words."""
        return "true or false"

    def example(self) -> str:
        """A value."""
        return "true"

    def read(self, value: object) -> bool:
        """The value, which must be a truth value already: ``0`` and ``"no"`` are not."""
        if not isinstance(value, bool):
            raise ValueError
        return value

    def hint(self, value: object) -> str:
        """What to write."""
        return "Write true or false"

    def sign(self, value: Any) -> str:
        """One of the two words."""
        return self.words[bool(value)]


@dataclass(frozen=True)
class Number(Kind):
    """A finite number in a range.

    Attributes:
        least: the smallest value that fits.
        most: the largest.
    """

    least: float = -math.inf
    most: float = math.inf

    def describe(self) -> str:
        """In words."""
        if self.least > -math.inf and self.most < math.inf:
            return f"a number from {self.least:g} to {self.most:g}"
        return f"a number from {self.least:g}" if self.least > -math.inf else "a number"

    def example(self) -> str:
        """A value."""
        return f"{max(self.least, min(self.most, 1.5)):g}"

    def read(self, value: object) -> float:
        """The number."""
        number = _finite(value)
        if not self.least <= number <= self.most:
            raise ValueError
        return number

    def sign(self, value: Any) -> str:
        """The shortest digits that give the number back."""
        return _shortest(value)


@dataclass(frozen=True)
class Positive(Kind):
    """A finite number above 0.

    Attributes:
        most: the largest value that fits; beyond it squares overflow.
    """

    most: float = 1e100

    def describe(self) -> str:
        """In words."""
        return "a number above 0"

    def example(self) -> str:
        """A value."""
        return "1.5"

    def read(self, value: object) -> float:
        """The number."""
        number = _finite(value)
        if not 1 / self.most <= number <= self.most:
            raise ValueError
        return number

    def sign(self, value: Any) -> str:
        """The shortest digits that give the number back."""
        return _shortest(value)


@dataclass(frozen=True)
class Share(Kind):
    """A number between 0 and 1, ends left out."""

    def describe(self) -> str:
        """In words."""
        return "a number between 0 and 1"

    def example(self) -> str:
        """A value."""
        return "0.05"

    def read(self, value: object) -> float:
        """The number."""
        number = _finite(value)
        if not 0 < number < 1:
            raise ValueError
        return number

    def schema(self) -> dict[str, Any]:
        """The range."""
        return {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}

    def sign(self, value: Any) -> str:
        """The shortest digits that give the number back."""
        return _shortest(value)


@dataclass(frozen=True)
class Count(Kind):
    """A whole number.

    Attributes:
        least: the smallest value that fits.
        most: the largest.
    """

    least: int = 0
    most: int = 2**53

    def describe(self) -> str:
        """In words."""
        return f"a whole number from {self.least}" + (f" to {self.most}" if self.most < 2**53 else "")

    def example(self) -> str:
        """A value."""
        return str(max(self.least, 1))

    def read(self, value: object) -> int:
        """The number."""
        if isinstance(value, bool) or not isinstance(value, int) or not self.least <= value <= self.most:
            raise ValueError
        return value

    def schema(self) -> dict[str, Any]:
        """The range."""
        return {"type": "integer", "minimum": self.least} | ({"maximum": self.most} if self.most < 2**53 else {})


@dataclass(frozen=True)
class Text(Kind):
    """A text that is not empty.

    Attributes:
        such_as: an example.
    """

    such_as: str

    def describe(self) -> str:
        """In words."""
        return f"a text such as {self.such_as}"

    def example(self) -> str:
        """The example."""
        return self.such_as

    def read(self, value: object) -> str:
        """The text."""
        if not isinstance(value, str) or not value.strip():
            raise ValueError
        return value

    def schema(self) -> dict[str, Any]:
        """Any text."""
        return {"type": "string"}


@dataclass(frozen=True)
class File(Kind):
    """The path of a file.

    It stands in a signature by what it holds: the first 16 digits of its SHA-256.

    Attributes:
        holds: what the file holds, in words (``word vectors``).
    """

    holds: str

    def describe(self) -> str:
        """In words."""
        return f"a file of {self.holds}"

    def example(self) -> str:
        """A path."""
        return "FILE"

    def read(self, value: object) -> str:
        """The path, whether or not there is such a file: its reader says what is wrong with it."""
        if not isinstance(value, str | Path) or not str(value).strip():
            raise ValueError
        return str(value)

    def hint(self, value: object) -> str:
        """What to give."""
        return "Give the path of a file"

    def sign(self, value: Any) -> str:
        """The first digits of the file's SHA-256."""
        from capbench.core import files

        return files.sha256_file(value)[:16]


def _finite(value: object) -> float:
    # bool is an int in Python, and true is no number to a user.
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError
    number = float(value)
    if not math.isfinite(number):
        raise ValueError
    return number


def _shortest(value: float) -> str:
    """``6`` for 6.0, ``0.1`` for 0.1; always digits that give the same number back."""
    short = f"{value:g}"
    return short if float(short) == value else repr(float(value))


_METADATA = "capbench.option"


@dataclass(frozen=True)
class Declaration:
    """One declared option.

    Attributes:
        name: its name.
        default: its default; None means that something else decides (a model's own value, say).
        kind: what fits.
        help: one sentence.
        recombines: whether it only recombines statistics, which are then kept whatever its value.
        sign_as: its key in signatures; ``""`` keeps it out, where what is signed elsewhere says as much.
        quiet: whether it stands in signatures only where it is not the default.
    """

    name: str
    default: Any
    kind: Kind
    help: str
    recombines: bool = False
    sign_as: str = ""
    quiet: bool = False

    def describe(self) -> str:
        """Name, values, default and meaning in one line."""
        default = "none" if self.default is None else self.kind.sign(self.default)
        if isinstance(self.kind, Flag):
            default = str(self.default).lower()
        return f"{self.name}: {self.kind.describe()} (default: {default}); {self.help}"

    def read(self, owner: str, value: object) -> Any:
        """The value as it is used.

        Raises:
            UsageError: it does not fit; ``owner`` is whose option it is, for the message.
        """
        if value is None and self.default is None:
            return None
        try:
            return self.kind.read(value)
        except (ValueError, OverflowError):
            shown = str(value).lower() if isinstance(value, bool) else str(value)
            raise UsageError(
                f"{owner}.{self.name}={shown[:80]}: not {self.kind.describe()}", hint=self.kind.hint(value)
            ) from None


def option(
    default: Any,
    kind: Kind,
    help: str,
    *,
    recombines: bool = False,
    sign_as: str | None = None,
    quiet: bool = False,
) -> Any:
    """Declare an option as a field of an :class:`Options` class.

    Args:
        default: its default, which fits its kind, or None.
        kind: what fits.
        help: one sentence for ``--help``.
        recombines: whether scores change with it and statistics do not.
        sign_as: its key in signatures, by default its name; ``""`` keeps it out.
        quiet: whether it stands in signatures only where it is not the default.
    """
    extra = {"kind": kind, "help": help, "recombines": recombines, "sign_as": sign_as, "quiet": quiet}
    return dataclasses.field(default=default, metadata={_METADATA: extra})


@dataclass(frozen=True)
class Options:
    """Base of declared options. A subclass is a frozen dataclass whose fields are made by :func:`option`."""

    @classmethod
    def declared(cls) -> Iterator[Declaration]:
        """The options in the order of their declaration."""
        for declared in dataclasses.fields(cls):
            extra = dict(declared.metadata[_METADATA])
            sign_as = declared.name if extra["sign_as"] is None else extra["sign_as"]
            yield Declaration(declared.name, declared.default, **{**extra, "sign_as": sign_as})

    @classmethod
    def read(cls, owner: str, values: Mapping[str, object]) -> Self:
        """Check values, and fill in defaults.

        Args:
            owner: whose options they are, for messages (``cider``).
            values: by option name.

        Raises:
            UsageError: there is no such option, or a value does not fit; the first problem is told.
        """

        def refuse(message: str, hint: str) -> None:
            raise UsageError(message, hint=hint)

        return cls(**cls.checked(owner, values, refuse))

    @classmethod
    def checked(cls, owner: str, values: Mapping[str, object], problem: Callable[[str, str], None]) -> dict[str, Any]:
        """The values that fit, as they are used; each one that does not is told to ``problem`` (message, hint)."""
        kinds = {declared.name: declared for declared in cls.declared()}
        checked: dict[str, Any] = {}
        for name, value in values.items():
            declared = kinds.get(name)
            if declared is None:
                problem(f"{owner} has no option '{name}'", suggest(str(name), list(kinds)))
            else:
                try:
                    checked[name] = declared.read(owner, value)
                except UsageError as error:
                    problem(error.message, error.hint or "")
        return checked

    def signature_parts(self, *, recombining: bool = True) -> dict[str, str]:
        """What the options add to a signature, in the order of their declaration.

        Args:
            recombining: False leaves out options that only recombine statistics.
        """
        signed = {}
        for declared in self.declared():
            value = getattr(self, declared.name)
            hidden = not declared.sign_as or (declared.quiet and value == declared.default)
            if not hidden and (recombining or not declared.recombines):
                signed[declared.sign_as] = "none" if value is None else declared.kind.sign(value)
        return signed

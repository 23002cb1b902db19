"""Options of a metric, detector or training file, declared once as fields of a frozen dataclass.

Each field has a *kind*: its valid values, and their form in help texts and signatures.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from capbench.core.errors import UsageError, suggest


class Kind:
    """The set of valid values of an option, in words."""

    def __init__(self, words: str) -> None:
        self.words = words

    def read(self, value: object) -> Any:
        """The parsed value. Raises ValueError if it is invalid."""
        raise NotImplementedError

    def hint(self, value: object) -> str | None:
        """The remedy for an invalid value, if it says more than :attr:`words`."""
        return None

    def sign(self, value: Any) -> str:
        """The value's form in a signature."""
        return str(value)


class Choice(Kind):
    """One of several names."""

    def __init__(self, *choices: str) -> None:
        super().__init__(f"one of {', '.join(choices)}")
        self.choices = choices

    def read(self, value: object) -> str:
        if value not in self.choices:
            raise ValueError
        return str(value)

    def hint(self, value: object) -> str:
        return suggest(str(value), list(self.choices))


class Flag(Kind):
    """True or false; ``words`` are the forms of false and true in a signature."""

    def __init__(self, words: tuple[str, str] = ("false", "true")) -> None:
        super().__init__("true or false")
        self._signed = words

    def read(self, value: object) -> bool:
        if not isinstance(value, bool):
            raise ValueError
        return value

    def sign(self, value: Any) -> str:
        return self._signed[bool(value)]


class Number(Kind):
    """A finite number from ``minimum`` to ``maximum``."""

    def __init__(self, minimum: float = -math.inf, maximum: float = math.inf, words: str = "") -> None:
        limits = f" from {minimum:g}" if minimum > -math.inf else ""
        limits += f" to {maximum:g}" if limits and maximum < math.inf else ""
        super().__init__(words or f"a number{limits}")
        self._minimum, self._maximum = minimum, maximum

    def read(self, value: object) -> float:
        # bool is a subclass of int in Python, but users do not mean a number.
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError
        if not (math.isfinite(value) and self._minimum <= value <= self._maximum):
            raise ValueError
        return float(value)

    def sign(self, value: Any) -> str:
        """The shortest digits that parse to the same number: ``6`` for 6.0, ``0.1`` for 0.1."""
        short = f"{value:g}"
        return short if float(short) == value else repr(float(value))


class Positive(Number):
    """A finite number above 0 whose square does not overflow."""

    def __init__(self) -> None:
        super().__init__(1e-100, 1e100, "a number above 0")


class Count(Kind):
    """A whole number from ``minimum`` to ``maximum``."""

    def __init__(self, minimum: int = 0, maximum: int = 2**53) -> None:
        super().__init__(f"a whole number from {minimum}" + (f" to {maximum}" if maximum < 2**53 else ""))
        self._minimum, self._maximum = minimum, maximum

    def read(self, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not self._minimum <= value <= self._maximum:
            raise ValueError
        return value


class Text(Kind):
    """A text that is not empty, such as the example."""

    def __init__(self, such_as: str) -> None:
        super().__init__(f"a text such as {such_as}")

    def read(self, value: object) -> str:
        if not isinstance(value, str) or not value.strip():
            raise ValueError
        return value


class File(Kind):
    """The path of a file of ``content`` (``word vectors``); signed by the first 16 digits of the file's SHA-256."""

    def __init__(self, content: str) -> None:
        super().__init__(f"a file of {content}")

    def read(self, value: object) -> str:
        if not isinstance(value, str | Path) or not str(value).strip():
            raise ValueError
        return str(value)

    def sign(self, value: Any) -> str:
        from capbench.core import files

        return files.sha256_file(value)[:16]


@dataclass(frozen=True)
class Declaration:
    """One declared option."""

    name: str  # its name
    default: Any  # its default; None if the default comes from elsewhere (such as a model)
    kind: Kind  # the valid values
    help: str  # one sentence
    recombines: bool = False  # True if it only recombines statistics, so that cached statistics serve all its values
    sign_as: str | None = None  # its key in signatures, by default its name; ``""`` omits it, as it is implied there
    quiet: bool = False  # True if signatures omit it when it has its default value

    def describe(self) -> str:
        """Name, values, default and meaning in one line."""
        default = "none" if self.default is None else self.kind.sign(self.default)
        if isinstance(self.kind, Flag):
            default = str(self.default).lower()
        return f"{self.name}: {self.kind.words} (default: {default}); {self.help}"


def option(
    default: Any,
    kind: Kind,
    help: str,
    *,
    recombines: bool = False,
    sign_as: str | None = None,
    quiet: bool = False,
) -> Any:
    """Declare an option as a field of an :class:`Options` class; arguments as of :class:`Declaration`."""
    declared = {"kind": kind, "help": help, "recombines": recombines, "sign_as": sign_as, "quiet": quiet}
    return dataclasses.field(default=default, metadata=declared)


@dataclass(frozen=True)
class Options:
    """Base class of declared options. A subclass is a frozen dataclass with fields made by :func:`option`."""

    removed: ClassVar[Mapping[str, object]] = {}  # options of earlier versions, each with the only value that remains

    @classmethod
    def stored(cls, values: Mapping[str, Any]) -> Self:
        """The options in a file, which may name removed ones. Raises UsageError if one has another value."""
        for name, value in values.items():
            if value != cls.removed.get(name, value):
                message = f"has the option {name}={value}, which was removed; {cls.removed[name]} remains"
                raise UsageError(message, code="unsupported", value=value, hint="Train the network again")
        return cls(**{name: value for name, value in values.items() if name not in cls.removed})

    @classmethod
    def declared(cls) -> Iterator[Declaration]:
        """The options in order of declaration."""
        for field in dataclasses.fields(cls):
            yield Declaration(field.name, field.default, **field.metadata)

    @classmethod
    def read(cls, owner: str, values: Mapping[str, object]) -> Self:
        """Check values and fill in defaults."""
        return cls(**cls.checked(owner, values))

    @classmethod
    def checked(cls, owner: str, values: Mapping[str, object]) -> dict[str, Any]:
        """The parsed values. Raises UsageError if one is invalid."""
        return {name: cls._read_one(owner, name, value) for name, value in values.items()}

    @classmethod
    def _read_one(cls, owner: str, name: str, value: object) -> Any:
        options = {declared.name: declared for declared in cls.declared()}
        if name not in options:
            hint = suggest(str(name), list(options))
            raise UsageError(f"{owner} has no option '{name}'", code="unknown-option", value=name, hint=hint)
        kind = options[name].kind
        if value is None and options[name].default is None:
            return None
        try:
            return kind.read(value)
        except (ValueError, OverflowError):
            shown = str(value).lower() if isinstance(value, bool) else str(value)
            message = f"{owner}.{name}={shown[:80]}: not {kind.words}"
            raise UsageError(message, code="wrong-value", value=value, hint=kind.hint(value)) from None

    def signature_parts(self, *, recombining: bool = True) -> dict[str, str]:
        """The options' parts of a signature, in order of declaration.

        ``recombining``: False omits options that only recombine statistics.
        """
        signed = {}
        for declared in self.declared():
            value = getattr(self, declared.name)
            key = declared.name if declared.sign_as is None else declared.sign_as
            hidden = not key or (declared.quiet and value == declared.default)
            if not hidden and (recombining or not declared.recombines):
                signed[key] = "none" if value is None else declared.kind.sign(value)
        return signed

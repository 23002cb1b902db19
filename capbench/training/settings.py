"""Settings that every training file has, and the kinds of values that only training files know.

A trainer's settings are one frozen dataclass, which extends :class:`Training`. A section of the file (``optimiser:``)
is a field that holds :class:`~capbench.core.options.Options` of its own; the field's default has the section's
defaults::

    @dataclass(frozen=True, kw_only=True)
    class ToyTraining(Training):
        captions: str = option(MISSING, Text("captions.json"), "what is learned from")     # must be in the file
        optimiser: OptimiserOptions = option(OptimiserOptions(lr=0.01), Section(), "Adam")

A training file (YAML) is read into it. All of it but :attr:`Training.undeciding` is a part of what a
run folder is recognised by.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from capbench.core.errors import CapbenchError, StudyError, suggest
from capbench.core.options import Choice, Count, Declaration, Kind, Number, Options, Positive, Share, option
from capbench.core.yaml import parse_value, read_yaml

__all__ = [
    "SCHEMA_VERSION",
    "Fraction",
    "Names",
    "OptimiserOptions",
    "OrNull",
    "Pattern",
    "Section",
    "Training",
    "ValidationOptions",
    "find_training",
    "flat",
    "load_training",
    "parse_training",
]


SCHEMA_VERSION = 1
_LARGEST = 1e30  # of numbers that are multiplied with weights, which are float32


@dataclass(frozen=True)
class Section(Kind):
    """A section of the file: a mapping of options, whose defaults are those of the field's default.

    Attributes:
        decided: options that the data decides, which the file must not hold.
    """

    decided: tuple[str, ...] = ()

    def describe(self) -> str:
        """In words."""
        return "a mapping of keys to values"

    def example(self) -> str:
        """A section."""
        return "{key: value}"

    def read(self, value: object) -> Options:
        """The section, which was read from the training file already."""
        if not isinstance(value, Options):
            raise ValueError
        return value


@dataclass(frozen=True)
class OrNull(Kind):
    """A kind that may be switched off, where that is not the default.

    Attributes:
        kind: of the values otherwise.
    """

    kind: Kind

    def describe(self) -> str:
        """In words."""
        return f"{self.kind.describe()}, or null"

    def example(self) -> str:
        """A value."""
        return self.kind.example()

    def read(self, value: object) -> Any:
        """The value, or None."""
        return None if value is None else self.kind.read(value)


@dataclass(frozen=True)
class Fraction(Kind):
    """A number from 0 that is below 1."""

    def describe(self) -> str:
        """In words."""
        return "a number from 0 that is below 1"

    def example(self) -> str:
        """A value."""
        return "0.1"

    def read(self, value: object) -> float:
        """The number."""
        number = Number(0, 1).read(value)
        if number == 1:
            raise ValueError
        return number


@dataclass(frozen=True)
class Names(Kind):
    """A name or a list of names, at least one.

    Attributes:
        choices: what they may be; empty: anything.
    """

    choices: tuple[str, ...] = ()

    def describe(self) -> str:
        """In words."""
        return f"some of {', '.join(self.choices)}" if self.choices else "a name or a list of names"

    def example(self) -> str:
        """Two names."""
        return f"[{', '.join(self.choices[:2]) or 'train, restval'}]"

    def read(self, value: object) -> tuple[str, ...]:
        """The names."""
        names = (value,) if isinstance(value, str) else value
        if not isinstance(names, list | tuple) or not names:
            raise ValueError
        if not all(isinstance(name, str) and name.strip() and name in (self.choices or names) for name in names):
            raise ValueError
        return tuple(names)


@dataclass(frozen=True)
class Pattern(Kind):
    """A text of a certain form.

    Attributes:
        form: a regular expression that the whole text matches.
        words: the form in words.
        such_as: an example.
    """

    form: str
    words: str
    such_as: str

    def describe(self) -> str:
        """In words."""
        return self.words

    def example(self) -> str:
        """The example."""
        return self.such_as

    def read(self, value: object) -> str:
        """The text."""
        if not isinstance(value, str) or not re.fullmatch(self.form, value):
            raise ValueError
        return value


@dataclass(frozen=True)
class _Version(Kind):
    """The version of the file's layout."""

    def describe(self) -> str:
        return f"{SCHEMA_VERSION}, the layout that this version reads"

    def example(self) -> str:
        return str(SCHEMA_VERSION)

    def read(self, value: object) -> int:
        if isinstance(value, bool) or value != SCHEMA_VERSION:
            raise ValueError
        return SCHEMA_VERSION


@dataclass(frozen=True)
class _Warmup(Kind):
    """How an average of weights begins."""

    def describe(self) -> str:
        return "true, false or unbiased"

    def example(self) -> str:
        return "true"

    def read(self, value: object) -> bool | str:
        return value if isinstance(value, bool) else Choice("unbiased").read(value)

    def hint(self, value: object) -> str:
        return suggest(str(value), ["true", "false", "unbiased"])


@dataclass(frozen=True, kw_only=True)
class OptimiserOptions(Options):
    """Adam (Kingma and Ba 2015), and its learning rate over time."""

    kind: Literal["adam"] = option("adam", Choice("adam"), "the optimiser")
    lr: float = option(1e-3, Positive(_LARGEST), "learning rate at the start")
    lr_update: int | None = option(
        None, Count(1), "epochs after which it is divided by ten, again and again; null: never"
    )
    warmup: int = option(0, Count(), "steps over which it rises linearly from zero at the start")
    clip: float | None = option(2.0, OrNull(Positive()), "largest norm of all gradients together; null: no limit")
    weight_decay: float = option(0.0, Number(0, _LARGEST), "L2 penalty")

    def share(self, epoch: int) -> float:
        """What is left of the learning rate in an epoch, counted from 0."""
        return 1.0 if self.lr_update is None else 0.1 ** (epoch // self.lr_update)


@dataclass(frozen=True, kw_only=True)
class ValidationOptions(Options):
    """When the validation score is measured."""

    every: int | None = option(None, Count(1), "steps between two evaluations; null: at the end of each epoch")
    patience: int | None = option(
        None, Count(1), "evaluations without a better score after which training stops; null: never"
    )


@dataclass(frozen=True, kw_only=True)
class Training(Options):
    """A training as it was asked for: what all trainers share. Nothing is resolved yet.

    ``ema_warmup: true`` uses the decay min(ema, (1 + step) / (10 + step)) at a step, so that the average forgets the
    first weights; ``unbiased`` weighs all steps so far by ema^age, and the weights before the first not at all.
    """

    undeciding: ClassVar[tuple[str, ...]] = (
        *("name", "threads", "device", "log_every", "checkpoint_every", "checkpoint_seconds"),
    )
    """What may differ between the parts of one run: it changes no weights, or their last digits only."""

    schema: int = option(MISSING, _Version(), "version of the file's layout")
    name: str = option(
        MISSING,
        Pattern(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*", "a name of letters, digits, '-', '_' and '.'", "my-run"),
        "of the run folder",
    )
    optimiser: OptimiserOptions = option(OptimiserOptions(), Section(), "how weights are changed")
    evaluation: ValidationOptions = option(ValidationOptions(), Section(), "when the score is measured")
    epochs: int = option(30, Count(1), "passes over the training data")
    max_steps: int | None = option(None, Count(1), "stop after so many steps, within an epoch too")
    ema: float | None = option(
        None, Fraction(), "decay of the average of the weights, which is then evaluated and saved; null: no average"
    )
    ema_warmup: bool | Literal["unbiased"] = option(True, _Warmup(), "how the average begins")
    select: Literal["best", "last"] = option("best", Choice("best", "last"), "which weights are saved")
    seed: int = option(1, Count(0, 2**32 - 1), "of all randomness")
    threads: int | None = option(None, Count(1, 1024), "of torch on a CPU; null: torch's default")
    device: str = option(
        "auto", Pattern(r"auto|cpu|cuda(:\d+)?", "auto, cpu, cuda or cuda:N", "auto"), "auto: a GPU where there is one"
    )
    log_every: int = option(20, Count(1), "steps between two lines of the log")
    checkpoint_every: int | None = option(
        None, Count(1), "steps between two checkpoints, beside those after an evaluation; null: by time only"
    )
    checkpoint_seconds: float = option(300.0, Positive(), "a checkpoint is due after so long")

    def problems(self) -> list[str]:
        """What contradicts itself, one line each."""
        return []

    def to_dict(self) -> dict[str, Any]:
        """As JSON, with every default written out; without what the data decides."""
        values = {key: _plain(value) for key, value in asdict(self).items()}
        for declared in self.declared():
            for key in declared.kind.decided if isinstance(declared.kind, Section) else ():
                del values[declared.name][key]
        return values

    def deciding(self) -> dict[str, Any]:
        """The settings that decide what comes out, flat (``loss.kind``), without those that may change within a run."""
        return flat({key: value for key, value in self.to_dict().items() if key not in self.undeciding})


def flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one with dotted keys."""
    flattened: dict[str, Any] = {}
    for key, value in nested.items():
        flattened |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flattened


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return list(value) if isinstance(value, tuple) else value


# Reading of training files: found by name, changed by ``--set``, and checked as a whole.
#
# Every problem is told at once, in one line that names the file and, by its dotted key, each setting.

T = TypeVar("T", bound=Training)
_EXAMPLE = "Example: optimiser.lr=0.001"
_NUMBERS = (Count, Fraction, Number, Positive, Share)
_ROOT = "training"


def find_training(name: str) -> Path:
    """The path of a training file: as given, or one that comes with capbench by its name.

    Raises:
        StudyError: there is neither; the shipped ones are listed.
    """
    from capbench.core.yaml import shipped_configs

    path = Path(name)
    if os.path.isfile(path):  # noqa: PTH113  Path.is_file raises where a folder may not be looked into
        return path
    shipped = {p.stem: p for p in sorted((shipped_configs() / "train").glob("*.yaml"))}
    if path.stem in shipped and path.suffix in ("", ".yaml") and path.parent in (Path(), Path("configs/train")):
        return shipped[path.stem]
    raise StudyError("there is no such training file", path=name, hint=suggest(path.stem, list(shipped)))


def load_training(kind: type[T], path: str | os.PathLike[str], changes: Sequence[str] = ()) -> T:
    """Read and check a training file.

    Args:
        kind: the settings of what is trained (:class:`capbench.metrics.grounding.training.ScanTraining`).
        path: the YAML file.
        changes: ``key=value`` with dotted keys (``loss.temperature=0.2``), which replace what the file says.

    Raises:
        StudyError: it is no YAML, or something in it does not fit: every problem at once.
    """
    required = ", ".join(f"'{declared.name}'" for declared in kind.declared() if _is_required(declared))
    raw = read_yaml(path, f"a training file (a mapping with {required})")
    for change in changes:
        _apply(raw, change, path)
    return parse_training(kind, raw, path)


def _apply(raw: dict[Any, Any], change: str, path: str | os.PathLike[str]) -> None:
    """Put the value of ``key=value`` where the dotted key says."""
    key, equals, text = change.partition("=")
    if not equals or not key.strip():
        raise StudyError(f"'{change}' is not of the form key=value", hint=_EXAMPLE)
    try:
        value = parse_value(text)
    except ValueError as error:
        raise StudyError(f"'{change}': the value cannot be read", hint="Put it in quotes") from error
    *sections, last = key.strip().split(".")
    mapping = raw
    for section in sections:
        mapping = mapping.setdefault(section, {})
        if not isinstance(mapping, dict):
            raise StudyError(f"'{change}': '{section}' has no keys", path=path, hint=_EXAMPLE)
    mapping[last] = value


def parse_training(kind: type[T], raw: Mapping[Any, Any], path: str | os.PathLike[str] | None = None) -> T:
    """Check a raw mapping. Raises StudyError with every problem at once."""
    problems: list[str] = []

    def tell(message: str, hint: str) -> None:
        problems.append(f"{message.removeprefix(f'{_ROOT}.')}. {hint}")

    values: dict[Any, Any] = dict(raw)
    for declared in kind.declared():
        section = values.get(declared.name)
        if isinstance(declared.kind, Section) and isinstance(section, Mapping):
            values[declared.name] = _read_section(declared, section, tell)
        elif _is_required(declared) and declared.name not in values:
            tell(f"the key '{declared.name}' is missing", f"It says: {declared.help}")
    checked = _checked(kind, _ROOT, values, tell)
    if not problems:
        training = kind(**checked)
        problems += training.problems()
    if problems:
        listed = "; ".join(f"({i}) {problem}" for i, problem in enumerate(problems, 1))
        raise StudyError(problems[0] if len(problems) == 1 else f"{len(problems)} problems: {listed}", path=path)
    return training


def _is_required(declared: Declaration) -> bool:
    return declared.default is dataclasses.MISSING


def _read_section(declared: Declaration, raw: Mapping[Any, Any], tell: Callable[[str, str], None]) -> Options:
    """The section's defaults with the values of the file, as far as they fit."""
    defaults: Options = declared.default
    kind = declared.kind
    decided = kind.decided if isinstance(kind, Section) else ()
    for key in decided:
        if key in raw:
            tell(f"{declared.name}.{key} is decided by the data", "Remove it")
    values = {key: value for key, value in raw.items() if key not in decided}
    try:
        return dataclasses.replace(defaults, **_checked(type(defaults), declared.name, values, tell))
    except CapbenchError as error:  # values that fit, but not together
        tell(f"{declared.name}: {error.message}", error.hint or "")
        return defaults


def _checked(
    kind: type[Options], owner: str, raw: Mapping[Any, Any], tell: Callable[[str, str], None]
) -> dict[str, Any]:
    """The values that fit, by name."""
    numbers = {declared.name for declared in kind.declared() if _is_number(declared.kind)}
    values: dict[str, Any] = {}
    for key, value in raw.items():
        if not isinstance(key, str):
            tell(f"the key {key!r} is no text", "Write a setting's name")
        elif key in numbers and isinstance(value, str) and _reads_as_number(value):
            tell(f"{owner}.{key} is the text '{value}' and no number", "Write it without quotes")
        else:
            values[key] = value
    return kind.checked(owner, values, tell)


def _is_number(kind: Kind) -> bool:
    return isinstance(kind.kind if isinstance(kind, OrNull) else kind, _NUMBERS)


def _reads_as_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True

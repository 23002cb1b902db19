"""Training files: the settings of all trainings, kinds of values, and the reader.

A trainer's settings are a frozen dataclass that extends :class:`Training`. A section of the file (``optimiser:``) is a
field of a type that extends :class:`~capbench.core.options.Options`; the field's default contains the section's
defaults::

    @dataclass(frozen=True, kw_only=True)
    class ToyTraining(Training):
        captions: str = option(MISSING, Text("captions.json"), "training data")  # required
        optimiser: OptimiserOptions = option(OptimiserOptions(lr=0.01), Section(), "Adam")

A training file (YAML) is read into it. A run folder is identified by all settings except :attr:`Training.undeciding`.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from capbench.core.errors import CapbenchError, StudyError, suggest
from capbench.core.files import read_lines
from capbench.core.options import Choice, Count, Declaration, Kind, Number, Options, Positive, Share, option
from capbench.core.yaml import parse_value, read_yaml

SCHEMA_VERSION = 1
_LARGEST = 1e30  # factors of weights, which are float32


@dataclass(frozen=True)
class Section(Kind):
    """A section of the file: a mapping of options with the defaults of the field's default.

    Attributes:
        decided: options that depend on the data, which the file must not contain.
    """

    decided: tuple[str, ...] = ()

    def describe(self) -> str:
        """Description of the kind."""
        return "a mapping of keys to values"

    def example(self) -> str:
        """An example."""
        return "{key: value}"

    def read(self, value: object) -> Options:
        """The section, which the reader of the training file has already parsed."""
        if not isinstance(value, Options):
            raise ValueError
        return value


@dataclass(frozen=True)
class OrNull(Kind):
    """A kind that also accepts null, although null is not the default.

    Attributes:
        kind: kind of the other values.
    """

    kind: Kind

    def describe(self) -> str:
        """Description of the kind."""
        return f"{self.kind.describe()}, or null"

    def example(self) -> str:
        """An example."""
        return self.kind.example()

    def read(self, value: object) -> Any:
        """The value, or None."""
        return None if value is None else self.kind.read(value)


@dataclass(frozen=True)
class Fraction(Kind):
    """A number from 0 (inclusive) to 1 (exclusive)."""

    def describe(self) -> str:
        """Description of the kind."""
        return "a number from 0 to below 1"

    def example(self) -> str:
        """An example."""
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
        choices: allowed names; empty: any name.
    """

    choices: tuple[str, ...] = ()

    def describe(self) -> str:
        """Description of the kind."""
        return f"one or more of {', '.join(self.choices)}" if self.choices else "a name or a list of names"

    def example(self) -> str:
        """An example."""
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
        form: a regular expression that the whole text must match.
        words: description of the form.
        such_as: an example.
    """

    form: str
    words: str
    such_as: str

    def describe(self) -> str:
        """Description of the kind."""
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
    """Version of the file format."""

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
    """Warm-up of the average of weights."""

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
    """Adam (Kingma and Ba 2015) and its learning rate schedule."""

    kind: Literal["adam"] = option("adam", Choice("adam"), "the optimiser")
    lr: float = option(1e-3, Positive(_LARGEST), "initial learning rate")
    lr_update: int | None = option(None, Count(1), "epochs between divisions of the learning rate by ten; null: never")
    warmup: int = option(0, Count(), "first steps, over which the learning rate rises linearly from zero")
    clip: float | None = option(2.0, OrNull(Positive()), "maximum norm of all gradients together; null: no limit")
    weight_decay: float = option(0.0, Number(0, _LARGEST), "L2 penalty")

    def share(self, epoch: int) -> float:
        """Factor of the learning rate in an epoch, counted from 0."""
        return 1.0 if self.lr_update is None else 0.1 ** (epoch // self.lr_update)


@dataclass(frozen=True, kw_only=True)
class ValidationOptions(Options):
    """Frequency of evaluations."""

    every: int | None = option(None, Count(1), "steps between evaluations; null: one at the end of each epoch")
    patience: int | None = option(
        None, Count(1), "number of evaluations without improvement after which training stops; null: no limit"
    )


@dataclass(frozen=True, kw_only=True)
class Training(Options):
    """Settings of all trainings, as in the training file.

    ``ema_warmup: true`` uses the decay min(ema, (1 + step) / (10 + step)) at a step, so that the average forgets the
    initial weights; ``unbiased`` weights all steps so far by ema^age and ignores the initial weights.
    """

    undeciding: ClassVar[tuple[str, ...]] = (
        *("name", "threads", "device", "log_every", "checkpoint_every", "checkpoint_seconds"),
    )
    """Settings that may differ between the parts of one run: they change no weights, or only their last digits."""

    schema: int = option(MISSING, _Version(), "version of the file format")
    name: str = option(
        MISSING,
        Pattern(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*", "a name of letters, digits, '-', '_' and '.'", "my-run"),
        "name of the run folder",
    )
    optimiser: OptimiserOptions = option(OptimiserOptions(), Section(), "the optimiser")
    evaluation: ValidationOptions = option(ValidationOptions(), Section(), "evaluations on the dev set")
    epochs: int = option(30, Count(1), "passes over the training data")
    max_steps: int | None = option(None, Count(1), "maximum number of steps, also within an epoch; null: no limit")
    ema: float | None = option(
        None,
        Fraction(),
        "decay of the average of the weights, which is evaluated and saved instead of the weights; null: no average",
    )
    ema_warmup: bool | Literal["unbiased"] = option(True, _Warmup(), "warm-up of the average")
    select: Literal["best", "last"] = option("best", Choice("best", "last"), "the weights to save")
    seed: int = option(1, Count(0, 2**32 - 1), "seed of all random numbers")
    threads: int | None = option(None, Count(1, 1024), "threads of torch on a CPU; null: torch's default")
    device: str = option(
        "auto", Pattern(r"auto|cpu|cuda(:\d+)?", "auto, cpu, cuda or cuda:N", "auto"), "auto: a GPU if available"
    )
    log_every: int = option(20, Count(1), "steps between lines of the log")
    checkpoint_every: int | None = option(
        None, Count(1), "steps between checkpoints, in addition to those after evaluations; null: by time only"
    )
    checkpoint_seconds: float = option(300.0, Positive(), "maximum seconds between checkpoints")

    def problems(self) -> list[str]:
        """Contradictory settings, one line each."""
        return []

    def to_dict(self) -> dict[str, Any]:
        """The settings as JSON values, with all defaults and without options that depend on the data."""
        values = {key: _plain(value) for key, value in asdict(self).items()}
        for declared in self.declared():
            for key in declared.kind.decided if isinstance(declared.kind, Section) else ():
                del values[declared.name][key]
        return values

    def deciding(self) -> dict[str, Any]:
        """The settings that determine the result, flat (``loss.kind``), without :attr:`undeciding`.

        Options of a section that are declared ``quiet`` are omitted at their default value: they were added later, and
        earlier runs remain runs of the same settings.
        """
        values = flat({key: value for key, value in self.to_dict().items() if key not in self.undeciding})
        for declared in self.declared():
            section = getattr(self, declared.name)
            for inner in section.declared() if isinstance(section, Options) else ():
                if inner.quiet and getattr(section, inner.name) == inner.default:
                    del values[f"{declared.name}.{inner.name}"]
        return values


def flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Convert nested mappings to one mapping with dotted keys."""
    flattened: dict[str, Any] = {}
    for key, value in nested.items():
        flattened |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flattened


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return list(value) if isinstance(value, tuple) else value


# Reading of training files, with changes by ``--set``. One error reports all problems, with the dotted key of each
# setting.

T = TypeVar("T", bound=Training)
_EXAMPLE = "Example: optimiser.lr=0.001"
_NUMBERS = (Count, Fraction, Number, Positive, Share)
_ROOT = "training"


def _shipped() -> dict[str, Path]:
    """Training files that are part of capbench, by name."""
    from capbench.core.yaml import shipped_configs

    return {path.stem: path for path in sorted((shipped_configs() / "train").glob("*.yaml"))}


def shipped_trainings(network: str) -> dict[str, str]:
    """Name and description of the training files of a network that are part of capbench.

    The name of a file begins with that of the network, or its head names the command ``capbench train NETWORK``. The
    description is the beginning of the comment at the head.
    """
    found: dict[str, str] = {}
    for name, path in _shipped().items():
        head = itertools.takewhile(lambda line: line.startswith("#"), read_lines(path))
        text = " ".join(" ".join(line.lstrip("# ") for line in head).split())
        if name.startswith(f"{network}-") or f"capbench train {network} " in text:
            found[name] = re.split(r"[.:;](?:\s|$)", text, maxsplit=1)[0]
    return found


def find_training(name: str) -> Path:
    """Path of a training file: an existing path, or the name of a file that is part of capbench.

    Raises:
        StudyError: neither exists; the error lists the files that are part of capbench.
    """
    path = Path(name)
    if os.path.isfile(path):  # noqa: PTH113  Path.is_file raises without permission
        return path
    shipped = _shipped()
    if path.stem in shipped and path.suffix in ("", ".yaml") and path.parent in (Path(), Path("configs/train")):
        return shipped[path.stem]
    raise StudyError(
        "there is no such training file",
        code="unknown-name",
        value=path.stem,
        path=name,
        hint=suggest(path.stem, list(shipped)),
    )


def load_training(kind: type[T], path: str | os.PathLike[str], changes: Sequence[str] = ()) -> T:
    """Read and check a training file.

    Args:
        kind: the settings class (for example :class:`capbench.metrics.scan.train.ScanTraining`).
        path: the YAML file.
        changes: ``key=value`` with dotted keys (``loss.temperature=0.2``), which override the file.

    Raises:
        StudyError: the file is not YAML, or settings are invalid; one error reports all problems.
    """
    required = ", ".join(f"'{declared.name}'" for declared in kind.declared() if _is_required(declared))
    raw = read_yaml(path, f"a training file (a mapping with {required})")
    for change in changes:
        _apply(raw, change, path)
    return parse_training(kind, raw, path)


def _apply(raw: dict[Any, Any], change: str, path: str | os.PathLike[str]) -> None:
    """Apply one change ``key=value``."""
    key, equals, text = change.partition("=")
    if not equals or not key.strip():
        raise StudyError(f"'{change}' is not of the form key=value", code="wrong-format", value=change, hint=_EXAMPLE)
    try:
        value = parse_value(text)
    except ValueError as error:
        raise StudyError(
            f"'{change}': the value cannot be read", code="wrong-value", value=change, hint="Quote the value"
        ) from error
    *sections, last = key.strip().split(".")
    mapping = raw
    for section in sections:
        mapping = mapping.setdefault(section, {})
        if not isinstance(mapping, dict):
            raise StudyError(
                f"'{change}': '{section}' has no keys", code="unknown-key", value=section, path=path, hint=_EXAMPLE
            )
    mapping[last] = value


def parse_training(kind: type[T], raw: Mapping[Any, Any], path: str | os.PathLike[str] | None = None) -> T:
    """Check a raw mapping. Raises one StudyError that reports all problems."""
    problems: list[str] = []

    def report(message: str, hint: str) -> None:
        problems.append(f"{message.removeprefix(f'{_ROOT}.')}. {hint}")

    values: dict[Any, Any] = dict(raw)
    for declared in kind.declared():
        section = values.get(declared.name)
        if isinstance(declared.kind, Section) and isinstance(section, Mapping):
            values[declared.name] = _read_section(declared, section, report)
        elif _is_required(declared) and declared.name not in values:
            report(f"the key '{declared.name}' is missing", f"It is required: {declared.help}")
    checked = _checked(kind, _ROOT, values, report)
    if not problems:
        training = kind(**checked)
        problems += training.problems()
    if problems:
        listed = "; ".join(f"({i}) {problem}" for i, problem in enumerate(problems, 1))
        raise StudyError(
            problems[0] if len(problems) == 1 else f"{len(problems)} problems: {listed}", code="wrong-value", path=path
        )
    return training


def _is_required(declared: Declaration) -> bool:
    return declared.default is dataclasses.MISSING


def _read_section(declared: Declaration, raw: Mapping[Any, Any], report: Callable[[str, str], None]) -> Options:
    """The section's defaults with the valid values of the file."""
    defaults: Options = declared.default
    kind = declared.kind
    decided = kind.decided if isinstance(kind, Section) else ()
    for key in decided:
        if key in raw:
            report(f"{declared.name}.{key} is decided by the data", "Remove it")
    values = {key: value for key, value in raw.items() if key not in decided}
    try:
        return dataclasses.replace(defaults, **_checked(type(defaults), declared.name, values, report))
    except CapbenchError as error:  # values that contradict each other
        report(f"{declared.name}: {error.message}", error.hint or "")
        return defaults


def _checked(
    kind: type[Options], owner: str, raw: Mapping[Any, Any], report: Callable[[str, str], None]
) -> dict[str, Any]:
    """The valid values, by name."""
    numbers = {declared.name for declared in kind.declared() if _is_number(declared.kind)}
    values: dict[str, Any] = {}
    for key, value in raw.items():
        if not isinstance(key, str):
            report(f"the key {key!r} is not a text", "Write a setting's name")
        elif key in numbers and isinstance(value, str) and _reads_as_number(value):
            report(f"{owner}.{key} is the text '{value}', not a number", "Write it without quotes")
        else:
            values[key] = value
    return kind.checked(owner, values, report)


def _is_number(kind: Kind) -> bool:
    return isinstance(kind.kind if isinstance(kind, OrNull) else kind, _NUMBERS)


def _reads_as_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True

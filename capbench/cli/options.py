"""Options of commands: those declared with the arguments of Python, and groups that several commands share.

The groups are metrics (:class:`MetricNames`) and their inputs (:class:`ScoringInputs`), judgements (:class:`Target`),
workers (:class:`Place`) and the appearance of figures (:class:`FigureLook`).
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import MISSING, dataclass, fields
from os import PathLike
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer
from annotated_types import Ge, Le
from typing_extensions import is_typeddict

from capbench.cli import common
from capbench.cli.common import argument as argument
from capbench.core.arguments import Help, declared
from capbench.core.errors import UsageError

if TYPE_CHECKING:
    from capbench.api.resolve import MetricInputs
    from capbench.core.workers import Engine
    from capbench.datasets.root import DataRoot
    from capbench.metrics.from_file import ScoresEntry
    from capbench.reports.figures.style import Look


@dataclass(frozen=True)
class OptionGroup:
    """A group of options: a frozen dataclass whose fields are declared like parameters of a command."""


def with_groups(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of its parameters and of its groups, by a signature that typer reads.

    A parameter with a :class:`capbench.core.arguments.Help` becomes an option with its range and choices. A group is an
    :class:`OptionGroup`, or a ``TypedDict``, whose fields with a help text are options. The command receives one object
    for each group: of a ``TypedDict`` only what was passed, so that the defaults of the function that takes it hold::

        def score(*, draw: Draw = 1, inputs: ScoringInputs) -> None: ...

    Parameters are keyword-only (``*``), so a group may have any position; help lists options in this order.
    """
    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[Callable[..., Any], list[str]]] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        found = _group(hints[name])
        if found is None:
            parameters.append(_option(name, hints[name], parameter.default))
            continue
        groups[name] = found[0], list(found[1])
        of_field = get_type_hints(hints[name], include_extras=True)
        parameters += [_option(field, of_field[field], default) for field, default in found[1].items()]
    names = [parameter.name for parameter in parameters]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise TypeError(f"{command.__name__}: declared twice: {', '.join(twice)}")

    def run(**values: Any) -> Any:
        for name, (make, options) in groups.items():
            values[name] = make(**{option: values.pop(option) for option in options if option in values})
        return command(**values)

    run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads both
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _group(hint: Any) -> tuple[Callable[..., Any], dict[str, Any]] | None:
    if not isinstance(hint, type):
        return None
    if issubclass(hint, OptionGroup):
        defaults = {field.name: field.default for field in fields(hint)}
        return hint, {name: _NO_DEFAULT if value is MISSING else value for name, value in defaults.items()}
    if not is_typeddict(hint):
        return None
    hints = get_type_hints(hint, include_extras=True)
    defaults = {name: False if _plain(kind) is bool else None for name, kind in hints.items() if declared(kind, Help)}
    return functools.partial(_given, defaults), defaults


def _given(defaults: dict[str, Any], **values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value != defaults[name] and value != []}


_NO_DEFAULT = inspect.Parameter.empty


def _option(name: str, hint: Any, default: object) -> inspect.Parameter:
    shown = declared(hint, Help)
    if shown is not None:
        low, high = declared(hint, Ge), declared(hint, Le)
        option = typer.Option(
            *(shown.flags or [f"--{name.replace('_', '-')}"]),
            help=shown.text,
            metavar=shown.metavar,
            min=low and low.ge,
            max=high and high.le,
        )
        hint = Annotated[_plain(hint), option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def _plain(hint: Any) -> Any:
    """A type without its metadata, as typer knows it: of a union, the list of texts, the path or the first type."""
    if get_origin(hint) is Annotated:
        return _plain(get_args(hint)[0])
    if get_origin(hint) is Sequence:
        return list[_plain(get_args(hint)[0])]  # type: ignore[misc]  # a type at run time
    if get_origin(hint) not in (Union, UnionType):
        return hint
    kinds = [_plain(part) for part in get_args(hint) if part is not type(None)]
    several = [kind for kind in kinds if kind == list[str]]
    is_path = any(get_origin(kind) is PathLike for kind in kinds)
    kind = several[0] if several else Path if is_path else kinds[0]
    return kind | None if type(None) in get_args(hint) else kind


@dataclass(frozen=True)
class Inputs(OptionGroup):
    """Inputs of metrics: options, features, weights, pictures and the data folder."""

    option: Annotated[
        list[str] | None,
        Help(
            "Option of one or, without NAME, all metrics: cider.df=coco-val; repeatable.", metavar="NAME.OPTION=VALUE"
        ),
    ] = None
    data: common.DataOption = None
    features: Annotated[
        list[str] | None, Help("Region features, by default for all metrics; repeatable.", metavar="[NAME=]FILE")
    ] = None
    model: Annotated[
        list[str] | None, Help("Weights, by default for all metrics; repeatable.", metavar="[NAME=]FILE")
    ] = None
    image_root: Annotated[Path | None, Help("Folder of the images. Default: the data set's.", metavar="DIR")] = None

    def root(self) -> DataRoot:
        """The data folder. Raises UsageError if there is no such folder."""
        from capbench.datasets.root import find_root

        return find_root(self.data)

    def values(self) -> MetricInputs:
        """The values as Python objects. Raises UsageError if a text cannot be parsed."""
        return {
            "options": parse_options(self.option or []),
            "features": parse_files("--features", self.features or []),
            "model": parse_files("--model", self.model or []),
            "images": self.image_root,
            "data": self.data,
        }


@dataclass(frozen=True)
class Cached(Inputs):
    """Inputs of metrics whose scores are cached."""

    no_cache: Annotated[bool, Help("Do not read or write the score cache.")] = False

    @property
    def cache(self) -> bool:
        """True if the cache is read and written."""
        return not self.no_cache

    def values(self) -> MetricInputs:
        """The values as Python objects. See :meth:`Inputs.values`."""
        return {**super().values(), "cache": self.cache}


@dataclass(frozen=True)
class ScoringInputs(Cached):
    """Inputs of metrics, and score files: for all commands that score judgements or captions."""

    scores: Annotated[
        list[str] | None, Help("File of scores; each numeric column is a metric; repeatable.", metavar="[NAME=]FILE")
    ] = None
    allow_missing: Annotated[bool, Help("Use only items that have a score in every file of --scores.")] = False
    columns: common.ColumnsOption = None

    def values(self) -> MetricInputs:
        """The values as Python objects. See :meth:`Inputs.values`."""
        return {
            **super().values(),
            "scores": [parse_scores(text) for text in self.scores or ()],
            "allow_missing": self.allow_missing,
            "columns": parse_columns(self.columns or ()),
        }


@dataclass(frozen=True)
class MetricNames(OptionGroup):
    """Metrics to compare, as arguments or with ``-m``."""

    metrics: Annotated[list[str] | None, argument("METRIC", "Metrics, or columns of --scores.")] = None
    metric: common.MetricsOption = None

    @property
    def names(self) -> list[str]:
        """The metrics: first the arguments, then the values of ``-m``."""
        return [*(self.metrics or ()), *(self.metric or ())]


@dataclass(frozen=True)
class Target(OptionGroup):
    """The judgements that metrics are measured against: a data set and one of its protocols."""

    dataset: Annotated[str, Help("Data set, or a file of judgements.", ("--dataset", "-d"), "NAME")] = "flickr8k-expert"
    protocol: Annotated[str | None, Help("Protocol. Default: the usual one.", ("--protocol", "-p"), "ID")] = None

    def changed(self) -> dict[str, object]:
        """The arguments that were passed."""
        return {name: value for name, value in vars(self).items() if value != getattr(type(self), name)}


def _refuse(text: str, value: object, hint: str, code: str = "wrong-format") -> UsageError:
    return UsageError(text, code=code, value=value, hint=hint)


def parse_columns(texts: Sequence[str]) -> dict[str, str]:
    """Parse ``--columns`` arguments: ``image=file,candidate=text`` → ``{"image": "file", "candidate": "text"}``.

    A comma separates only where a field follows, so that a column's name may contain one.
    """
    columns: dict[str, str] = {}
    for part in (part for text in texts for part in re.split(r",(?=\s*\w+=)", text)):
        name, _, column = (side.strip() for side in part.partition("="))
        if not name or not column:
            hint = "Example: --columns image=file,candidate=text"
            raise _refuse(f"--columns {part}: not of the form FIELD=COLUMN", part, hint)
        if name in columns:
            hint = "Name one column for each field"
            raise _refuse(f"--columns: the field '{name}' occurs twice", name, hint, "duplicate")
        columns[name] = column
    return columns


def parse_options(options: list[str]) -> dict[str, dict[str, Any]]:
    """Parse ``name.option=value`` arguments: ``cider.df=coco-val`` → ``{"cider": {"df": "coco-val"}}``.

    Without a name the owner is :data:`capbench.metrics.requests.FOR_ALL`. Values are parsed as YAML scalars, so
    ``1.5`` and ``5e-4`` are numbers, ``true`` is a Boolean and ``null`` is None.
    """
    parsed: dict[str, dict[str, Any]] = {}
    if not options:
        return parsed
    from capbench.core.yaml import parse_value

    for text in options:
        name, equals, value = text.partition("=")
        owner, dot, option = name.strip().rpartition(".")
        if not equals or not option or (dot and not owner):
            raise _refuse(f"--option {text} does not have the form NAME=VALUE", text, "Example: cider.df=coco-val")
        if option in parsed.get(owner, {}):
            raise _refuse(f"--option {name.strip()} is repeated", name.strip(), "Pass it once", "duplicate")
        try:
            parsed.setdefault(owner, {})[option] = parse_value(value)
        except ValueError as error:
            raise _refuse(f"--option {text}: the value cannot be parsed", value, "Quote it") from error
    return parsed


def named_file(text: str) -> tuple[str, str]:
    """Name and path of ``FILE`` or ``NAME=FILE``; a path may contain '=', too, and then has no name."""
    name, equals, path = text.partition("=")
    is_path = not equals or not name or Path(text).exists() or "/" in name or "\\" in name
    return ("", text) if is_path else (name, path)


def parse_scores(text: str) -> ScoresEntry:
    """Parse a ``--scores`` argument, ``FILE`` or ``NAME=FILE``."""
    from capbench.metrics.from_file import ScoresEntry
    from capbench.metrics.requests import split_label

    if not named_file(text)[0]:
        return ScoresEntry(text)
    try:
        label, path = split_label(text)
    except UsageError as error:
        hint = "Write NAME=FILE, where NAME has letters, digits, '-', '_' and '+'"
        raise _refuse(f"--scores {text} does not have the form NAME=FILE", text, hint) from error
    return ScoresEntry(path, label)


def parse_files(flag: str, texts: Sequence[str]) -> dict[str, str]:
    """Parse ``--features`` or ``--model`` arguments: file by label or metric; under ``""`` the file for all others."""
    files: dict[str, str] = {}
    for text in texts:
        name, path = named_file(text)
        if not name and "" in files:
            raise _refuse(f"{flag} {text} is a second file for all metrics", text, "Write METRIC=FILE", "duplicate")
        if not path or name in files:
            message, hint = f"{flag} {text}: '{name}' requires exactly one file", f"Example: {flag} tiger=FILE"
            raise _refuse(message, name, hint, "duplicate" if path else "missing-value")
        files[name] = path
    return files


@dataclass(frozen=True)
class Place(OptionGroup):
    """Workers of a cluster. A command that also has local workers declares ``workers`` and ``threads`` itself."""

    on: Annotated[str | None, Help("Run on a Ray cluster; 'ray' starts one here.", metavar="ray[:ADDRESS]")] = None
    gpus_per_worker: Annotated[float | None, Ge(0.0), Help("With --on: GPUs of each worker.", metavar="G")] = None
    worker_memory: Annotated[int | None, Ge(1), Help("With --on: memory of each worker.", metavar="MB")] = None

    @contextlib.contextmanager
    def engine(self, workers: int | None, threads: int | None) -> Iterator[Engine | None]:
        """The requested engine; None if this process does the work."""
        if self.on is None:
            given = {name: value for name, value in vars(self).items() if name != "on"}
            common.refuse_options(given, "requires --on", code="missing-option", hint="Add --on ray")
            yield None
            return
        from capbench.core.workers import Cluster, Engine, parse_engine

        address = parse_engine(self.on)
        if workers == 0:
            hint = "Omit --workers to use all cores"
            raise _refuse("--workers 0: --on requires at least one worker", 0, hint, "out-of-range")
        common.note(f"starting workers on {'this machine' if address is None else address}")
        cluster = Cluster(address, workers, threads or 1, self.gpus_per_worker or 0.0, self.worker_memory)
        with Engine(cluster, common.note) as engine:
            yield engine


@dataclass(frozen=True)
class SpreadPlace(Place):
    """Workers of a cluster, for commands without local workers."""

    workers: Annotated[int | None, Ge(1), Help("With --on: number of workers. Default: as many as fit.")] = None
    threads: Annotated[int | None, Ge(1), Help("With --on: cores of each worker. Default: 1.")] = None

    def spread(self) -> AbstractContextManager[Engine | None]:
        """The requested engine; see :meth:`Place.engine`."""
        return self.engine(self.workers, self.threads)


_SIZE = re.compile(r"(\d+(?:\.\d+)?)x(\d+(?:\.\d+)?)", re.ASCII)


@dataclass(frozen=True)
class FigureLook(OptionGroup):
    """Appearance of a figure."""

    title: Annotated[str | None, Help("Title above the figure.", metavar="TEXT")] = None
    size: Annotated[str | None, Help("Width and height in inches: 6x4.", metavar="WxH")] = None
    font_size: Annotated[float | None, Ge(4), Le(40), Help("Font size. Default: 9.", metavar="POINTS")] = None
    draw_caption: Annotated[
        bool | None,
        Help(
            "Draw the line below the figure, or write it to a text file. Default: a text file for PDF only.",
            ("--draw-caption/--no-caption",),
        ),
    ] = None

    def look(self, path: Path | None = None) -> Look:
        """Title, size, font size and caption of a figure, by default without a caption in a PDF."""
        from capbench.reports.figures.style import USUAL, Look

        return Look(
            title=(self.title or "").strip(),
            size=None if self.size is None else parse_size(self.size),
            font_size=USUAL.font_size if self.font_size is None else self.font_size,
            caption=path is None or path.suffix != ".pdf" if self.draw_caption is None else self.draw_caption,
        )


def parse_size(text: str) -> tuple[float, float]:
    """Width and height in inches: ``6x4``."""
    match = _SIZE.fullmatch(text)
    width, height = map(float, match.groups()) if match else (0.0, 0.0)
    if min(width, height) < 1 or max(width, height) > 50:
        raise _refuse(f"--size {text} is not WIDTHxHEIGHT of 1 to 50 inches", text, "Example: 6x4")
    return width, height


SentinelsOption = Annotated[
    bool | None,
    Help(
        "Test the metrics against sentinels (docs/sentinels.md). Default: only in 'compare' and --report's page.",
        ("--sentinels/--no-sentinels",),
    ),
]


@dataclass(frozen=True)
class StudyFlags(OptionGroup):
    """Data sets, metrics and protocols of a study without a file."""

    dataset: Annotated[list[str] | None, Help("Data set; repeatable, or a list.", ("--dataset", "-d"), "NAME")] = None
    metric: common.MetricsOption = None
    protocol: Annotated[
        list[str] | None, Help("Protocol dataset/items/statistic, or a part; repeatable.", ("--protocol", "-p"), "ID")
    ] = None


@dataclass(frozen=True)
class LeftOut(OptionGroup):
    """Metrics of a study file that are left out."""

    without: Annotated[
        list[str] | None, Help("Leave out this metric or column; repeatable, or a list.", metavar="NAME")
    ] = None

    @property
    def names(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self.without or ())

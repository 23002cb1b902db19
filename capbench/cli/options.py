"""Options that many commands share, each group declared once as a dataclass of which a command takes one object.

Groups are inputs of metrics (:class:`Given`), judgements (:class:`Target`), workers (:class:`Place`) and the look of
figures (:class:`FigureLook`).
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar, get_type_hints

import typer

from capbench.cli import common
from capbench.core.errors import UsageError

if TYPE_CHECKING:
    from capbench.api.resolve import MetricInputs
    from capbench.core.workers import Spread
    from capbench.datasets.root import DataRoot
    from capbench.metrics.from_file import ScoresEntry
    from capbench.reports.figures.style import Look

__all__ = [
    "Cached",
    "FigureLook",
    "Given",
    "Inputs",
    "OptionGroup",
    "Place",
    "SpreadPlace",
    "Target",
    "parse_files",
    "parse_options",
    "parse_scores",
    "parse_size",
    "with_groups",
]


Result = TypeVar("Result")


@dataclass(frozen=True)
class OptionGroup:
    """A group of options: a frozen dataclass whose fields are what a command's parameters are to typer.

    A subclass may add options, or declare one anew with another default or help; it keeps its place.
    """


def with_groups(command: Callable[..., Result]) -> Callable[..., Result]:
    """A command in whose signature every parameter that is an :class:`OptionGroup` is replaced by the group's options.

    Typer reads that signature, and calls by name. The command gets one object for each group, and so an option that is
    added to a group reaches every command that takes the group::

        @with_groups
        def compare(*, metric: Annotated[list[str], typer.Argument()], given: Given) -> None: ...

    Parameters are given by name (``*``), so that a group may stand anywhere among them: help lists options in this
    order. They are read when somebody asks for them: a run needs those of one command.

    Raises:
        TypeError: two parameters have one name; when they are read.
    """
    return _Grouped(command)


class _Grouped(Generic[Result]):
    """A command that takes groups, as typer reads and calls it: by ``__signature__`` and ``__annotations__``."""

    def __init__(self, command: Callable[..., Result]) -> None:
        self._command = command
        self.__doc__ = command.__doc__
        self.__name__ = command.__name__
        self.__module__ = command.__module__

    @functools.cached_property
    def _declared(self) -> tuple[list[inspect.Parameter], dict[str, tuple[type[OptionGroup], tuple[str, ...]]]]:
        """The parameters, groups taken apart; and each group's class and options, by the name of its parameter."""
        hints = get_type_hints(self._command, include_extras=True)
        parameters: list[inspect.Parameter] = []
        groups: dict[str, tuple[type[OptionGroup], tuple[str, ...]]] = {}
        for name, parameter in inspect.signature(self._command).parameters.items():
            hint = hints[name]
            if not (isinstance(hint, type) and issubclass(hint, OptionGroup)):
                parameters.append(_by_name(name, hint, parameter.default))
                continue
            options = fields(hint)
            of_field = get_type_hints(hint, include_extras=True)
            groups[name] = hint, tuple(option.name for option in options)
            for option in options:
                default = inspect.Parameter.empty if option.default is MISSING else option.default
                parameters.append(_by_name(option.name, of_field[option.name], default))
        names = [parameter.name for parameter in parameters]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise TypeError(f"{self.__name__}: declared twice: {', '.join(twice)}")
        return parameters, groups

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.Signature(self._declared[0])

    @property
    def __annotations__(self) -> dict[str, Any]:  # type: ignore[override]
        # Resolved, since typer would look their names up in another module.
        return {parameter.name: parameter.annotation for parameter in self._declared[0]}

    def __call__(self, **values: Any) -> Result:
        for name, (group, options) in self._declared[1].items():
            values[name] = group(**{option: values.pop(option) for option in options if option in values})
        return self._command(**values)


def _by_name(name: str, annotation: object, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


@dataclass(frozen=True)
class Inputs(OptionGroup):
    """What metrics are given: their options, features and weights, and the data folder."""

    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            metavar="NAME.OPTION=VALUE",
            help="Option of a metric or label, such as cider.df=coco-val; OPTION=VALUE for all that have it; "
            "repeatable.",
        ),
    ] = None
    data: common.DataOption = None
    features: Annotated[
        list[str] | None,
        typer.Option(
            "--features",
            metavar="[NAME=]FILE",
            help="Region features of a metric or label, or FILE for all that look at images; repeatable.",
        ),
    ] = None
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="[NAME=]FILE",
            help="Weights of a metric or label, or FILE for all that need some; repeatable.",
        ),
    ] = None
    image_root: Annotated[
        Path | None,
        typer.Option(
            "--image-root", metavar="DIR", help="Where pictures are. Default: the image folders of the data set."
        ),
    ] = None

    def root(self) -> DataRoot:
        """The data folder. Raises UsageError if there is no such folder."""
        from capbench.datasets.root import find_root

        return find_root(self.data)

    def values(self) -> MetricInputs:
        """The values in Python's forms.

        Raises:
            UsageError: a text cannot be parsed: see :func:`parse_options` and :func:`parse_files`.
        """
        from capbench.api.resolve import MetricInputs

        return MetricInputs(
            options=parse_options(self.option or []),
            features=parse_files("--features", self.features or []),
            model=parse_files("--model", self.model or []),
            images=self.image_root,
            data=self.data,
        )


@dataclass(frozen=True)
class Cached(Inputs):
    """What metrics are given where their scores are cached."""

    no_cache: Annotated[bool, typer.Option("--no-cache", help="Score again, and do not read or write the cache.")] = (
        False
    )

    @property
    def cache(self) -> bool:
        """True if the cache is read and written."""
        return not self.no_cache

    def values(self) -> MetricInputs:
        """The values in Python's forms. See :meth:`Inputs.values`."""
        return replace(super().values(), cache=self.cache)


@dataclass(frozen=True)
class Given(Cached):
    """What metrics are given, and scores from elsewhere: in all commands that score judgements or captions."""

    scores: Annotated[
        list[str] | None,
        typer.Option(
            "--scores",
            metavar="[NAME=]FILE",
            help="Scores that were computed elsewhere, on what 'capbench items' writes: every column of numbers is a "
            "metric; repeatable. CSV, TSV, JSONL, Parquet or CaptionEvalKit's JSON.",
        ),
    ] = None
    allow_missing: Annotated[
        bool,
        typer.Option("--allow-missing", help="Leave out items without a score in a file of --scores, for all metrics."),
    ] = False

    def values(self) -> MetricInputs:
        """The values in Python's forms. See :meth:`Inputs.values`."""
        scores = [parse_scores(text) for text in self.scores or ()]
        return replace(super().values(), scores=scores, allow_missing=self.allow_missing)


@dataclass(frozen=True)
class Target(OptionGroup):
    """The judgements that metrics are measured against: a data set and one of its protocols."""

    dataset: Annotated[
        str, typer.Option("--dataset", "-d", metavar="NAME", help="Data set, or a file of judgements.")
    ] = "flickr8k-expert"
    protocol: Annotated[
        str | None, typer.Option("--protocol", "-p", metavar="ID", help="Protocol. Default: the literature's.")
    ] = None


def parse_options(options: list[str]) -> dict[str, dict[str, Any]]:
    """Parse ``name.option=value`` arguments: ``cider.df=coco-val`` → ``{"cider": {"df": "coco-val"}}``.

    Without a name the owner is :data:`capbench.metrics.requests.FOR_ALL`. Values are read as YAML scalars, so
    ``1.5``, ``5e-4``, ``true`` and ``null`` are what they look like.

    Raises:
        UsageError: an argument is not of that form, or an option is given twice.
    """
    parsed: dict[str, dict[str, Any]] = {}
    if not options:
        return parsed
    from capbench.core.yaml import parse_value

    for text in options:
        name, equals, value = text.partition("=")
        owner, dot, option = name.strip().rpartition(".")
        if not equals or not option or (dot and not owner):
            raise UsageError(f"--option {text}: not of the form metric.option=value", hint="Example: cider.df=coco-val")
        if option in parsed.get(owner, {}):
            raise UsageError(f"--option {name.strip()} is given twice", hint="Give it once")
        try:
            parsed.setdefault(owner, {})[option] = parse_value(value)
        except ValueError as error:
            raise UsageError(f"--option {text}: the value cannot be read", hint="Put it in quotes") from error
    return parsed


def parse_scores(text: str) -> ScoresEntry:
    """Parse a ``--scores`` argument, ``FILE`` or ``NAME=FILE``.

    Raises:
        UsageError: the name cannot be one.
    """
    from capbench.metrics.from_file import ScoresEntry
    from capbench.metrics.requests import split_label

    # A path may hold '=', too.
    if Path(text).exists() or "=" not in text or "/" in text.partition("=")[0]:
        return ScoresEntry(text)
    try:
        label, path = split_label(text)
    except UsageError as error:
        hint = "Write NAME=FILE, with a name of letters, digits, '-', '_' and '+'"
        raise UsageError(f"--scores {text}: no name, or no file", hint=hint) from error
    return ScoresEntry(path, label)


def parse_files(flag: str, texts: Sequence[str]) -> dict[str, str]:
    """Parse ``--features`` or ``--model`` arguments: files by label or metric; under ``""`` the file for all others.

    Args:
        flag: the flag, for messages.
        texts: its values, ``FILE`` or ``NAME=FILE``.

    Raises:
        UsageError: two files for all, or for one name.
    """
    files: dict[str, str] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        # A path may hold '=': what stands before it is a name only if it looks like one.
        if equals and name and not Path(text).exists() and "/" not in name and "\\" not in name:
            if not path or name in files:
                raise UsageError(f"{flag} {text}: give one file for '{name}'", hint=f"Example: {flag} tiger=FILE")
            files[name] = path
        elif "" in files:
            raise UsageError(f"{flag} {text}: a second file for all metrics", hint="Write METRIC=FILE")
        else:
            files[""] = text
    return files


@dataclass(frozen=True)
class Place(OptionGroup):
    """Where the work is done. A command with workers of its own declares ``workers`` and ``threads`` itself."""

    on: Annotated[
        str | None,
        typer.Option(
            "--on",
            metavar="ray[:ADDRESS]",
            help="Let workers of a Ray cluster do the work; ray alone starts them on this machine. Needs "
            "capbench[cluster].",
        ),
    ] = None
    gpus_per_worker: Annotated[
        float | None,
        typer.Option("--gpus-per-worker", min=0.0, metavar="G", help="GPUs of each worker of --on. Default: none."),
    ] = None
    worker_memory: Annotated[
        int | None,
        typer.Option(
            "--worker-memory",
            min=1,
            metavar="MB",
            help="Memory of each worker of --on: no more are started than there is room for. Default: what the work "
            "usually takes.",
        ),
    ] = None

    @contextlib.contextmanager
    def engine(self, workers: int | None, threads: int | None) -> Iterator[Spread | None]:
        """The engine that is asked for; None where this process does the work.

        Args:
            workers: their number, as it was given.
            threads: of each worker, as it was given.

        Raises:
            UsageError: options of workers without ``--on``, or no such engine.
            ToolError: Ray does not answer.
        """
        if self.on is None:
            if self.gpus_per_worker is not None or self.worker_memory is not None:
                raise UsageError("--gpus-per-worker and --worker-memory are for --on", hint="Add --on ray")
            yield None
            return
        from capbench.core.workers import Cluster, Engine, parse_engine

        address = parse_engine(self.on)
        if workers == 0:
            raise UsageError("--workers 0: --on needs one worker at least", hint="Leave --workers out for all cores")
        where = "this machine" if address is None else address
        common.note(f"starting workers on {where}")
        cluster = Cluster(address, workers, threads or 1, self.gpus_per_worker or 0.0, self.worker_memory)
        with Engine(cluster, common.note) as engine:
            yield engine


@dataclass(frozen=True)
class SpreadPlace(Place):
    """Where the work is done, for commands without workers of their own."""

    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="How many workers --on has. Default: as there is room for.")
    ] = None
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, help="Cores of each worker of --on. Default: 1.")
    ] = None

    @contextlib.contextmanager
    def spread(self) -> Iterator[Spread | None]:
        """The engine that is asked for; see :meth:`Place.engine`."""
        if self.on is None and (self.workers is not None or self.threads is not None):
            raise UsageError("--workers and --threads are for --on", hint="Add --on ray")
        with self.engine(self.workers, self.threads) as engine:
            yield engine


_INCHES = {"": 1.0, "in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4}
_LEAST, _MOST = 1.0, 50.0
_SIZE = re.compile(r"(\d+(?:\.\d+)?)x(\d+(?:\.\d+)?)(in|cm|mm)?", re.ASCII)


@dataclass(frozen=True)
class FigureLook(OptionGroup):
    """How a figure looks, and of which type its file is."""

    title: Annotated[str | None, typer.Option("--title", metavar="TEXT", help="Title above the figure.")] = None
    size: Annotated[
        str | None,
        typer.Option(
            "--size", metavar="WxH", help="Width and height: 6x4 (inches), 15x10cm. Default: fits what is drawn."
        ),
    ] = None
    font_size: Annotated[
        float | None, typer.Option("--font-size", metavar="POINTS", min=4, max=40, help="Default: 9.")
    ] = None
    format: Annotated[
        Literal["png", "svg", "pdf"] | None,
        typer.Option("--format", help="Type of the file. Default: what the file's name ends in."),
    ] = None

    def look(self) -> Look:
        """Title, size and font size. Raises UsageError if the size is none."""
        from capbench.reports.figures.style import USUAL, Look

        return Look(
            title=(self.title or "").strip(),
            size=None if self.size is None else parse_size(self.size),
            font_size=USUAL.font_size if self.font_size is None else self.font_size,
        )

    def endings(self, default: tuple[str, ...]) -> tuple[str, ...]:
        """The types of files of a command that writes several: the one that is given, or the default ones."""
        return default if self.format is None else (self.format,)

    def target(self, out: Path, default: str) -> Path:
        """Where the figure is written.

        Args:
            out: what ``--out`` says, or the command's default.
            default: that default; its ending gives way to ``--format``.

        Raises:
            UsageError: ``--format`` is unknown, or ``--out`` ends in another one.
        """
        from capbench.reports.figures.style import ENDINGS, check_ending

        if self.format is not None:
            ending = f".{self.format}"
            if str(out) == default:
                out = out.with_suffix(ending)
            elif out.suffix.lower() not in ENDINGS:
                out = out.with_name(out.name + ending)
            elif out.suffix.lower() != ending:
                raise UsageError(f"--format {self.format} and --out {out} do not go together", hint="Leave one out")
        check_ending(out)
        return out


def parse_size(text: str) -> tuple[float, float]:
    """Width and height in inches: ``6x4``, ``15x10cm``, ``150x100mm``.

    Raises:
        UsageError: it is no size, or one outside 1 to 50 inches.
    """
    match = _SIZE.fullmatch(text.strip().lower().replace("×", "x").replace(" ", ""))
    if match is None:
        raise UsageError(f"--size {text}: not of the form WIDTHxHEIGHT", hint="Example: 6x4 (inches), or 15x10cm")
    unit = _INCHES[match[3] or ""]
    width, height = float(match[1]) * unit, float(match[2]) * unit
    if not (_LEAST <= width <= _MOST and _LEAST <= height <= _MOST):
        raise UsageError(f"--size {text}: too small or too large", hint=f"From {_LEAST:g} to {_MOST:g} inches each way")
    return width, height

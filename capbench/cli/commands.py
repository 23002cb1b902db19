"""Commands with two levels of help, in groups that import a command's module when it is requested."""

from __future__ import annotations

import copy
import functools
import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from capbench.core.errors import UsageError, count, suggest

SECTIONS = {
    "Data": "*dataset *protocol *candidates *references *captions *data draw image-root columns split restrict extra "
    "missing keep-first",
    "Metrics": "*metric *features *model *scores option allow-missing without no-cache",
    "Statistics": "*tasks *bootstrap *compare *test *power *references-curve interval correction alpha permutations "
    "unit seed resamples gap all-pairs all-protocols counts draws group *fail-under *fail-if-worse inner-folds lower",
    "Output": "*out *report *json cite digits categories by-source details items examples "
    "title size font-size latex draw-caption format dtype compression replace class-probabilities "
    "weights-sha256",
    "Training": "*evaluate folds vocabulary shrinkage lambda-softmax norm clip count-ends any-features",
    "Computing": "device workers threads batch precision shard on gpus-per-worker worker-memory",
}
"""Heading in ``--help-all`` → its options. ``--help`` shows those with a star, and options that are not listed."""
_SECTION_OF = {f"--{name.lstrip('*')}": heading for heading, names in SECTIONS.items() for name in names.split()}
_OTHERS = frozenset(f"--{name}" for names in SECTIONS.values() for name in names.split() if name[0] != "*")
_SHOWS_ALL = "capbench.help-all"  # key of a context whose help shows all options
_OPTIONAL_VALUES = {"--bootstrap": "1000", "--power": "0.8"}  # if they are omitted; their metavars have brackets
_TWICE = re.compile(r"^\[\[([^\[\]]+)\](\.\.\.)?\](?:\.\.\.)?$")
"""An argument with the brackets of its metavar and those that typer adds."""
_LISTS = frozenset({"metric", "metrics", "dataset", "without"})  # repeatable, and with commas


class Command(TyperCommand):
    """A command whose ``--help`` shows the main options, and ``--help-all`` all under the headings of :data:`SECTIONS`.

    An option that takes one value raises an error if it is repeated, because the second value would silently replace
    the first. Flags without a value may be repeated.
    """

    @functools.cached_property
    def _help_all(self) -> Any:
        """``--help-all``, a copy of ``--help`` that the list of options does not show."""

        def show(ctx: Any, _: object, value: bool) -> None:
            if value and not ctx.resilient_parsing:
                ctx.meta[_SHOWS_ALL] = True
                print(ctx.get_help())
                ctx.exit()

        option: Any = copy.copy(self.get_help_option(typer.Context(self)))
        option.name, option.opts, option.hidden, option.callback = "help_all", ["--help-all"], True, show
        return option

    def get_params(self, ctx: Any) -> list[Any]:
        """The options and arguments with ``--help`` and ``--help-all``."""
        return [*super().get_params(ctx), self._help_all]

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """``[OPTIONS]`` and the arguments; the metavar of an argument may have its own brackets."""
        return [_TWICE.sub(r"[\1]\2", text) for text in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the main options under one heading, or all under their headings."""
        shows_all = _SHOWS_ALL in ctx.meta
        by_heading: dict[str, list[tuple[str, str]]] = {name: [] for name in ("Arguments", "Options", *SECTIONS)}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None or (parameter.name == "help" if shows_all else _is_other(parameter)):
                continue
            heading = "Arguments" if parameter.param_type_name == "argument" else "Options"
            if heading == "Arguments":
                # Without typer's type, a list of choices that the help text repeats.
                record = (record[0].partition(" <")[0], record[1])
            if shows_all:
                heading = next((_SECTION_OF[name] for name in parameter.opts if name in _SECTION_OF), heading)
            by_heading[heading].append(record)
        for heading, records in by_heading.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the number of options that only ``--help-all`` shows."""
        super().format_epilog(ctx, formatter)
        more = sum(_is_other(parameter) and not parameter.hidden for parameter in self.get_params(ctx))
        if more and _SHOWS_ALL not in ctx.meta:
            formatter.write_paragraph()
            formatter.write_text(f"Run '{ctx.command_path} --help-all' for {count(more, 'more option')}.")

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments."""
        typed = self._with_optional_values(args)
        rest: list[str] = super().parse_args(ctx, list(typed))
        _, _, in_order = self.make_parser(ctx).parse_args(typed)
        for place, parameter in enumerate(in_order):
            many = parameter.multiple or getattr(parameter, "is_flag", False)
            single = parameter.param_type_name == "option" and not many
            if single and parameter in in_order[:place]:
                name = max(parameter.opts, key=len)
                raise UsageError(f"{name} is repeated", code="duplicate", value=name, hint="It takes one value")
        for parameter in self.params:
            names = ctx.params.get(parameter.name)
            if parameter.name in _LISTS and names and not isinstance(names, str):
                files = ctx.params.get("scores") or ()
                ctx.params[parameter.name] = [name for text in names for name in split_names(text, files)]
        return rest

    def _with_optional_values(self, args: list[str]) -> list[str]:
        """The arguments with the default value after each ``--bootstrap`` or ``--power`` that no number follows."""
        names = {name for parameter in self.params if (parameter.metavar or "")[:1] == "[" for name in parameter.opts}
        filled: list[str] = []
        end = args.index("--") if "--" in args else len(args)
        for place, word in enumerate(args[:end]):
            filled.append(word)
            following = "".join(args[place + 1 : place + 2])
            if word in names and word in _OPTIONAL_VALUES and not NUMBER.fullmatch(following):
                filled.append(_OPTIONAL_VALUES[word])
        return filled + args[end:]


# A decimal number; float() also accepts 1_0 and digits of other scripts.
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)


def _is_other(parameter: Any) -> bool:
    """True for an option that only ``--help-all`` shows."""
    return not _OTHERS.isdisjoint(parameter.opts)


def split_names(text: str, score_files: Sequence[str] = ()) -> list[str]:
    """The names in a list with commas: ``cider,meteor`` → ``["cider", "meteor"]``.

    The text stays whole if it names an existing file, or if a column of a score file has this name.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    if len(names) < 2:
        return names or [text]
    # LABEL=combination:FILE and FILE@GROUP contain a file, too.
    file = text.rpartition("=")[2].removeprefix("combination:")
    if any(Path(path).is_file() for path in (text, file, file.rpartition("@")[0])):
        return [text]
    for path in (Path(name) for entry in score_files for name in (entry, entry.partition("=")[2])):
        if path.is_file():
            with path.open("rb") as opened:
                # CSV and JSON files quote a name that contains a comma.
                if f'"{text}"'.encode() in opened.read(1 << 16):
                    return [text]
    return names


@functools.cache  # the callbacks of an app are wrapped in place
def build(declared: Callable[..., Any] | typer.Typer, name: str) -> TyperCommand | TyperGroup:
    """The command of a function, or the group of an app, with options by :func:`capbench.cli.options.with_groups`."""
    from capbench.cli.options import with_groups

    if not isinstance(declared, typer.Typer):
        builder = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        builder.command(name, cls=Command)(with_groups(declared))
        command = typer.main.get_command(builder)
        assert isinstance(command, TyperCommand)
        return command
    for registered in declared.registered_commands:
        registered.cls = Command
        registered.callback = with_groups(registered.callback) if registered.callback is not None else None
    declared.info.name = name
    return typer.main.get_group(declared)


@dataclass(frozen=True)
class Entry:
    """A command or group in the list of a :class:`LazyGroup`."""

    module: str  # module of :mod:`capbench.cli` that declares it
    attribute: str  # its function, or its :class:`typer.Typer`
    help: str  # the first line of its help
    section: str  # heading in the list of commands

    def load(self, name: str) -> TyperCommand | TyperGroup:
        """Import the module and create the command or group."""
        return build(getattr(importlib.import_module(f"capbench.cli.{self.module}"), self.attribute), name)


class HelpGroup(TyperGroup):
    """A group of commands; it has no further options, so that ``--help-all`` is ``--help``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments before the name of the command."""
        return list(super().parse_args(ctx, ["--help", *args[1:]] if args[:1] == ["--help-all"] else args))


def group(text: str, example: str, cls: type[HelpGroup] = HelpGroup) -> typer.Typer:
    """A group of commands with its help."""
    return typer.Typer(cls=cls, help=f"{text}\n\nExample: {example}", no_args_is_help=True, rich_markup_mode=None)


class LazyGroup(HelpGroup):
    """A group that lists its commands from a table and imports the module of the requested command only."""

    entries: ClassVar[Mapping[str, Entry]]

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of all; nothing is imported."""
        return list(self.entries)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command or group, or None."""
        return self.entries[cmd_name].load(cmd_name) if cmd_name in self.entries else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that arguments begin with."""
        if args[0] not in self.entries and args[0][:1] != "-" and not ctx.resilient_parsing:
            message = f"{ctx.command_path} has no command '{args[0]}'"
            raise UsageError(message, code="unknown-name", value=args[0], hint=suggest(args[0], list(self.entries)))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands, under the headings of their sections."""
        width = max(map(len, self.entries))
        for section in dict.fromkeys(entry.section for entry in self.entries.values()):
            rows = [(f"{name:{width}}", e.help) for name, e in self.entries.items() if e.section == section]
            with formatter.section(section):
                formatter.write_dl(rows)

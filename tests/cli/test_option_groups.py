"""Options that are declared once and reach every command that takes their group."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields
from typing import Annotated, Literal

import pytest
import typer
from annotated_types import Ge
from pydantic import BaseModel, Field
from typer.testing import CliRunner
from typing_extensions import TypedDict

from capbench.api.resolve import PathGiven
from capbench.cli.options import Cached, FigureLook, Inputs, OptionGroup, ScoringInputs, with_groups
from capbench.core.arguments import Help
from capbench.core.errors import UsageError
from tests.cli.commands import commands


@dataclass(frozen=True)
class Size(OptionGroup):
    """Two options."""

    width: Annotated[int, typer.Option("--width", help="In pixels.")] = 3
    names: Annotated[list[str] | None, typer.Option("--name", help="Repeatable.")] = None


@dataclass(frozen=True)
class LargeSize(Size):
    """One of them with another default, and one more."""

    width: Annotated[int, typer.Option("--width", help="In metres.")] = 300
    deep: Annotated[bool, typer.Option("--deep")] = False


class Look(TypedDict, total=False):
    """Options of a function of Python, and one argument that is not an option."""

    color: Annotated[Literal["red", "blue"] | None, Help("Its colour.")]
    dots: Annotated[int, Ge(2), Help("Dots.", ("--dots", "-n"))]
    flat: Annotated[bool, Help("Flat.")]
    folder: Annotated[PathGiven, Help("Folder.")] | None
    hidden: int


class Statistics(BaseModel):
    """A model of settings."""

    resamples: Annotated[int, Help("Resamples.")] = Field(default=5, multiple_of=5)


def _app() -> typer.Typer:
    made = typer.Typer()

    @made.command()
    @with_groups
    def small(*, word: Annotated[str, typer.Argument()], size: Size, last: bool = False) -> None:
        """A small one."""
        print(word, size, last)

    @made.command()
    @with_groups
    def large(*, size: LargeSize) -> None:
        """A large one."""
        print(size)

    @made.command()
    @with_groups
    def derived(*, look: Look, statistics: Statistics, wide: Annotated[list[int] | None, Help("Wide.")] = None) -> None:
        """A derived one."""
        print(look, statistics, wide)

    return made


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        ("", "{} resamples=5 None"),
        (
            "-n 3 --flat --color red --folder x --resamples 10 --wide 2 --wide 3",
            "{'color': 'red', 'dots': 3, 'flat': True, 'folder': PosixPath('x')} resamples=10 [2, 3]",
        ),
    ],
)
def test_arguments_declared_for_python_are_options(arguments: str, printed: str) -> None:
    assert CliRunner().invoke(_app(), ["derived", *arguments.split()]).output == f"{printed}\n"


@pytest.mark.parametrize("arguments", ["--dots 1", "--color green", "--hidden 3", "--resamples many"])
def test_options_have_the_range_and_the_choices_of_the_argument(arguments: str) -> None:
    assert CliRunner().invoke(_app(), ["derived", *arguments.split()]).exit_code == 2


def test_an_invalid_model_is_one_error_that_names_the_option() -> None:
    error = CliRunner().invoke(_app(), ["derived", "--resamples", "7"]).exception
    assert isinstance(error, UsageError)
    assert (error.code, error.value) == ("wrong-type", 7)
    assert "--resamples" in error.message


def test_a_command_gets_one_object_of_its_options() -> None:
    result = CliRunner().invoke(_app(), ["small", "x", "--width", "5", "--name", "a", "--name", "b", "--last"])
    assert result.output == "x Size(width=5, names=['a', 'b']) True\n"


def test_defaults_are_those_of_the_group_and_a_subclass_may_change_them() -> None:
    assert CliRunner().invoke(_app(), ["small", "x"]).output == "x Size(width=3, names=None) False\n"
    assert CliRunner().invoke(_app(), ["large"]).output == "LargeSize(width=300, names=None, deep=False)\n"


def test_help_lists_options_where_the_group_stands() -> None:
    text = CliRunner().invoke(_app(), ["small", "--help"]).output
    places = [text.index(flag) for flag in ("--width", "--name", "--last")]
    assert places == sorted(places)
    assert "In pixels." in text
    assert "In metres." in CliRunner().invoke(_app(), ["large", "--help"]).output


def test_an_option_that_is_declared_twice_is_refused() -> None:
    @with_groups
    def small(*, width: int, size: Size) -> None: ...

    with pytest.raises(TypeError, match="small: declared twice: width"):
        inspect.signature(small)


def _options() -> dict[str, set[str]]:
    """Names of the parameters of every command."""
    return {name: {parameter.name for parameter in command.params} for name, command in commands()}


def test_commands_over_metrics_take_all_that_metrics_are_given() -> None:
    options = _options()
    over_judgements = ["score", "correlate", "compare", "train combination"]
    over_judgements += ["explore examples", "figure", "rank", "leaderboard"]
    for name in over_judgements:
        assert options[name] >= {field.name for field in fields(ScoringInputs)}, name
    for name in ("explore explain", "papers"):
        assert options[name] >= {field.name for field in fields(Inputs)}, name
    for name in ("explore retrieve", "explore words", "compare-systems"):
        assert options[name] >= {field.name for field in fields(Cached)}, name
    # No other command declares them on its own but metrics --check, whose options are those of one metric.
    once = {"explore explain", "explore retrieve", "explore words", "papers", "compare-systems", "metrics"}
    others = set(options) - {*over_judgements, *once}
    assert [name for name in others if {"features", "option", "model"} <= options[name]] == []


def test_every_command_that_draws_a_figure_takes_its_looks() -> None:
    looks = {field.name for field in fields(FigureLook)}
    options = _options()
    for name in ("figure", "explore explain"):
        assert options[name] >= looks, name

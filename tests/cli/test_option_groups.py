"""Options that are declared once and reach every command that takes their group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
import typer
from annotated_types import Ge
from pydantic import BaseModel, Field
from typer.testing import CliRunner
from typing_extensions import TypedDict

from capbench.api.resolve import PathGiven
from capbench.cli.options import OptionGroup, with_groups
from capbench.core.arguments import Help
from capbench.core.errors import UsageError


@dataclass(frozen=True)
class Size(OptionGroup):
    """Two options."""

    width: Annotated[int, typer.Option("--width", help="In pixels.")] = 3
    names: Annotated[list[str] | None, typer.Option("--name", help="Repeatable.")] = None


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
    def derived(*, look: Look, statistics: Statistics, wide: Annotated[list[int] | None, Help("Wide.")] = None) -> None:
        """A derived one."""
        print(look, statistics, wide)

    return made


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        ("derived", "{} resamples=5 None"),
        (
            "derived -n 3 --flat --color red --folder x --resamples 10 --wide 2 --wide 3",
            "{'color': 'red', 'dots': 3, 'flat': True, 'folder': PosixPath('x')} resamples=10 [2, 3]",
        ),
        ("small x", "x Size(width=3, names=None) False"),
        ("small x --width 5 --name a --name b --last", "x Size(width=5, names=['a', 'b']) True"),
    ],
)
def test_arguments_declared_once_are_options_of_a_command(arguments: str, printed: str) -> None:
    assert CliRunner().invoke(_app(), arguments.split()).output == f"{printed}\n"


def test_an_invalid_model_is_one_error_that_names_the_option() -> None:
    error = CliRunner().invoke(_app(), ["derived", "--resamples", "7"]).exception
    assert isinstance(error, UsageError)
    assert (error.code, error.value) == ("wrong-type", 7)
    assert "--resamples" in error.message


def test_an_option_that_is_declared_twice_is_refused() -> None:
    def small(*, width: int, size: Size) -> None: ...

    with pytest.raises(TypeError, match="small: declared twice: width"):
        with_groups(small)

"""What a user chooses of a figure: title, size, font size and file type, for all commands that draw."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from capbench.cli.common import check_choice
from capbench.cli.groups import OptionGroup
from capbench.errors import UsageError

if TYPE_CHECKING:
    from capbench.reports.figures.style import Look

__all__ = ["FigureLook", "parse_size"]

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
        str | None,
        typer.Option("--format", metavar="TYPE", help="png, svg or pdf. Default: what the file's name ends in."),
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
        self._check()
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

        self._check()
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

    def _check(self) -> None:
        from capbench.reports.figures.style import ENDINGS

        if self.format is not None:
            check_choice("--format", self.format, [ending.removeprefix(".") for ending in ENDINGS])


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

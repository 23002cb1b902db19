"""Options of commands that run studies: data sets and metrics, intervals and tests, and omitted metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from capbench.cli import common
from capbench.cli.options import OptionGroup

SentinelsOption = Annotated[
    bool | None,
    typer.Option(
        "--sentinels/--no-sentinels",
        help="Test the metrics against sentinels (docs/sentinels.md). Default: only in 'compare' and --report's page.",
        show_default=False,
    ),
]


@dataclass(frozen=True)
class StudyFlags(OptionGroup):
    """Data sets, metrics and protocols of a study without a file."""

    dataset: Annotated[
        list[str] | None,
        typer.Option("--dataset", "-d", metavar="NAME", help="Data set; repeatable, or a list."),
    ] = None
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            "-m",
            metavar="NAME",
            help="Metric or 'all'; repeatable, or a list: cider,meteor.",
        ),
    ] = None
    protocol: Annotated[
        list[str] | None,
        typer.Option(
            "--protocol",
            "-p",
            metavar="ID",
            help="Protocol dataset/items/statistic, or part of it with --dataset; repeatable.",
        ),
    ] = None


@dataclass(frozen=True)
class LeftOut(OptionGroup):
    """Metrics of a study file that are left out."""

    without: Annotated[
        list[str] | None,
        typer.Option(
            "--without",
            metavar="NAME",
            help="Leave out this metric, label or column; repeatable, or a list.",
        ),
    ] = None

    @property
    def names(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self.without or ())

    def refuse_without_study(self, study: str | None) -> None:
        """Raise UsageError if metrics are left out although no study file is named."""
        from capbench.api.checking import refuse_without

        if study is None:
            refuse_without(self.names, common.caller())

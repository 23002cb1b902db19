"""Options of commands that run studies: data sets and metrics, intervals and tests, and omitted metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from capbench.cli import common
from capbench.cli.options import OptionGroup

if TYPE_CHECKING:
    from capbench.studies.study import StatisticsChoice

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
class StatisticsFlags(OptionGroup):
    """Intervals and tests, which override a study file."""

    bootstrap: common.BootstrapOption = None
    interval: Annotated[
        str | None, typer.Option("--interval", metavar="METHOD", help="percentile (default) or bca, with --bootstrap.")
    ] = None
    test: Annotated[
        str | None,
        typer.Option(
            "--compare",
            metavar="TEST",
            help="Test all pairs of metrics: permutation, bootstrap, williams, steiger or mcnemar.",
        ),
    ] = None
    correction: Annotated[
        str | None, typer.Option("--correction", metavar="NAME", help="holm (default), bh or none, with --compare.")
    ] = None
    alpha: Annotated[
        float | None,
        typer.Option("--alpha", metavar="SHARE", help="Significance level, with --compare. Default: 0.05."),
    ] = None
    permutations: Annotated[
        int | None,
        typer.Option(
            "--permutations", metavar="N", min=100, help="With --compare. Default: 10,000, or more if needed."
        ),
    ] = None
    unit: Annotated[
        str | None, typer.Option("--unit", metavar="NAME", help="Unit of resampling: image (default), item or rating.")
    ] = None
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", min=0, help="Seed of resamples and permutations. Default: 0.")
    ] = None

    def choice(self) -> StatisticsChoice:
        """The values."""
        from capbench.studies.study import StatisticsChoice

        return StatisticsChoice(
            bootstrap=self.bootstrap,
            interval=self.interval,
            compare=self.test,
            correction=self.correction,
            alpha=self.alpha,
            permutations=self.permutations,
            unit=self.unit,
            seed=self.seed,
        )


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

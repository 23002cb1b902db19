"""The study that ``capbench correlate`` runs: a study file with what flags change, or one made of flags alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from capbench.cli import common
from capbench.cli.options import Given, OptionGroup
from capbench.core.errors import UsageError

if TYPE_CHECKING:
    from capbench.datasets.root import DataRoot
    from capbench.studies.study import Study

__all__ = [
    "LeftOut",
    "StatisticsFlags",
    "StudyFlags",
    "find_study_of_flags",
]


@dataclass(frozen=True)
class StudyFlags(OptionGroup):
    """A study without a file."""

    dataset: Annotated[
        list[str] | None,
        typer.Option("--dataset", "-d", metavar="NAME", help="Data set, instead of a study file; repeatable."),
    ] = None
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", "-m", metavar="NAME", help="Metric, instead of a study file; repeatable; or 'all'."),
    ] = None
    protocol: Annotated[
        list[str] | None,
        typer.Option(
            "--protocol",
            "-p",
            metavar="ID",
            help="dataset/items/statistic, or a part of it with --dataset; repeatable. See 'capbench protocols'.",
        ),
    ] = None


@dataclass(frozen=True)
class StatisticsFlags(OptionGroup):
    """Intervals and tests; what is given takes the place of what a study file says."""

    bootstrap: Annotated[
        int | None,
        typer.Option("--bootstrap", metavar="N", min=100, help="Bootstrap intervals from N resamples (1000 is usual)."),
    ] = None
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
        typer.Option("--permutations", metavar="N", min=100, help="For --compare. Default: 1000, or what is needed."),
    ] = None
    unit: Annotated[
        str | None, typer.Option("--unit", metavar="NAME", help="What is resampled: image (default), item or rating.")
    ] = None
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", min=0, help="Of resamples and permutations. Default: 0.")
    ] = None

    def applied_to(self, study: Study) -> Study:
        """The study with what is given; problems of the values are found when it is planned.

        Raises:
            UsageError: a flag changes nothing without another.
        """
        from capbench.studies.study import StatisticsChoice, with_statistics

        choice = StatisticsChoice(
            bootstrap=self.bootstrap,
            interval=self.interval,
            compare=self.test,
            correction=self.correction,
            alpha=self.alpha,
            permutations=self.permutations,
            unit=self.unit,
            seed=self.seed,
        )
        return with_statistics(study, choice, common.flag)


def find_study_of_flags(
    file: str | None, flags: StudyFlags, statistics: StatisticsFlags, given: Given, root: DataRoot
) -> Study:
    """The study that the command line asks for.

    Args:
        file: a study file, or the name of one; None for a study made of flags.
        flags: data sets, metrics and protocols of a study without a file.
        statistics: intervals and tests.
        given: options and files of metrics.
        root: the data folder; data sets that nobody named are those in it.

    Raises:
        UsageError: flags do not go together, or one does not fit.
        StudyError: the study file is not there, or does not hold a study.
        FeatureError: a feature store is not there.
    """
    if file is None:
        return statistics.applied_to(_study_without_file(flags, given, root))
    from capbench.api.resolve import with_inputs
    from capbench.studies.study_file import find_study, load_study

    if flags.dataset or flags.metric or flags.protocol:
        raise UsageError(
            "a study file and flags that define a study were given together",
            hint="Change the study file, or leave it out and use flags alone",
        )
    study = load_study(find_study(file))
    if study.task is not None:
        command = f"'capbench {study.task.command} {file}'"
        if study.published is None:
            raise UsageError(f"{study.name} is no study of agreement alone", hint=f"Run {command}")
        common.note(f"the published table alone; {command} computes its rows")
    return statistics.applied_to(with_inputs(study, given.values(), common.caller()))


@dataclass(frozen=True)
class LeftOut(OptionGroup):
    """Metrics that a study file names and that are left out."""

    without: Annotated[
        list[str] | None,
        typer.Option(
            "--without", metavar="NAME", help="Leave this metric, label or column of the study file out; repeatable."
        ),
    ] = None

    @property
    def names(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self.without or ())

    def refuse_without_study(self, study: str | None) -> None:
        """Raise UsageError if something is left out where metrics are named one by one."""
        if self.without and study is None:
            raise UsageError("--without leaves out metrics of a study file", hint="Leave them out of --metric instead")


def _study_without_file(flags: StudyFlags, given: Given, root: DataRoot) -> Study:
    from capbench.api.resolve import with_inputs
    from capbench.studies.study import Study, protocols_asked

    # Who brings scores asks for these.
    metrics = flags.metric or ([] if given.scores else ["all"])
    protocols = protocols_asked(flags.dataset or [], flags.protocol or [], common.flag)
    study = Study(
        name="quick-look",
        title="Agreement with human judgements",
        protocols=tuple(protocols or _data_sets_at_hand(root)),
        metrics=tuple(dict.fromkeys(metrics)),
    )
    return with_inputs(study, given.values(), common.caller())


# The whole test set of FOIL is left to those who ask for it: it has a hundred times as many pairs.
_PUBLISHED = (
    "flickr8k-expert",
    "flickr8k-crowdflower",
    "composite",
    "pascal-50s",
    "foil",
    "thumb",
    "nebula",
    "polaris",
)


def _data_sets_at_hand(root: DataRoot) -> list[str]:
    """Published judgements whose files are here, then imported ones; what is left out is told on stderr.

    All published ones if none is here, so that the error says what is missing.
    """
    from capbench.datasets.catalog import catalog
    from capbench.datasets.inventory import missing_needs
    from capbench.datasets.user.judgements import imported_names

    known = catalog().datasets
    absent = [name for name in _PUBLISHED if missing_needs(known[name], root)]
    at_hand = [*(name for name in _PUBLISHED if name not in absent), *imported_names(root)]
    if absent and at_hand:
        common.note(f"left out: {', '.join(absent)}; 'capbench data info NAME' says which files are missing")
    return at_hand or list(_PUBLISHED)

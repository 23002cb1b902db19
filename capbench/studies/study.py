"""A study: which metrics, on which protocols, beside which published table, with which intervals and tests.

A study comes from a YAML file (:mod:`capbench.studies.study_file`) or from flags; nothing is resolved here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from capbench.core.errors import CapbenchError, StudyError, UsageError
from capbench.core.options import Choice, Count, Options, Share, option
from capbench.datasets.protocol import Protocol
from capbench.metrics.from_file import ScoresEntry
from capbench.metrics.requests import Asked
from capbench.stats.agreement import Unit
from capbench.stats.resampling import MOST_RESAMPLES
from capbench.stats.significance import Correction, Test
from capbench.studies.tasks import Task

__all__ = [
    "LEARNERS",
    "METRIC",
    "BootstrapMethod",
    "BootstrapSettings",
    "CombineEntry",
    "CombineSettings",
    "Problems",
    "StatisticsChoice",
    "Study",
    "TestSettings",
    "TrainEntry",
    "misfit",
    "problems",
    "protocols_asked",
    "with_statistics",
]


# What a study says about intervals and tests.

BootstrapMethod = Literal["percentile", "bca"]
FEWEST = 100


@dataclass(frozen=True)
class BootstrapSettings(Options):
    """How the intervals of a study are made."""

    resamples: int = option(1000, Count(FEWEST, MOST_RESAMPLES), "resamples")
    unit: Unit = option("image", Choice(*get_args(Unit)), "what is drawn with replacement")
    seed: int = option(0, Count(), "seed of the resamples")
    method: BootstrapMethod = option("percentile", Choice(*get_args(BootstrapMethod)), "how ends are found")
    level: float = option(0.95, Share(), "nominal coverage")


@dataclass(frozen=True)
class TestSettings(Options):
    """How the metrics of a study are tested against each other, by :func:`capbench.stats.significance.compare`."""

    __test__ = False  # pytest takes classes that are called Test… for tests

    test: Test = option("permutation", Choice(*get_args(Test)), "the test of each pair")
    correction: Correction = option("holm", Choice(*get_args(Correction)), "for the number of pairs")
    alpha: float = option(0.05, Share(), "significance level")
    resamples: int | None = option(
        None,
        Count(FEWEST, MOST_RESAMPLES),
        "permutations, or resamples of the test bootstrap; by default 1,000, or what is needed",
    )
    seed: int = option(0, Count(), "seed of the permutations or resamples")
    unit: Unit = option("image", Choice(*get_args(Unit)), "what changes places or is drawn")


def problems(name: str, settings: BootstrapSettings | TestSettings) -> list[str]:
    """What is wrong with settings that were made without a check, by flags; empty if nothing is.

    Args:
        name: of the settings in a study file, ``bootstrap`` or ``compare``.
        settings: the settings.
    """
    told: list[str] = []
    values = {declared.name: getattr(settings, declared.name) for declared in settings.declared()}
    settings.checked(name, values, lambda message, hint: told.append(f"{message}. {hint}"))
    return told


def misfit(settings: TestSettings, protocol: Protocol) -> str:
    """Why a test cannot be done under a protocol; ``""`` if it can. Plain means are not tested at all."""
    spec, test = protocol.statistic, settings.test
    if spec.kind == "mean" or test in ("permutation", "bootstrap"):
        return ""
    if spec.level != "captions":
        return f"the test '{test}' takes captions as independent data points, and {protocol} does not"
    if protocol.items.draws > 1:
        return f"the test '{test}' is for one draw of references, and {protocol} has {protocol.items.draws}"
    if test == "mcnemar":
        if spec.kind != "accuracy":
            return f"the test 'mcnemar' is for accuracies, and {protocol} is a correlation"
        if spec.ties == "ties-half":
            return f"the test 'mcnemar' is not defined where ties count one half, as under {protocol}"
    elif spec.kind != "correlation" or spec.coefficient not in ("pearson", "spearman"):
        return f"the test '{test}' is for Pearson's r and Spearman's rho, which {protocol} is not"
    return ""


# What a study says about combinations of its metrics.

METRIC = "combination"
"""What stands as the metric of a combination's row."""
LEARNERS = ("auto", "ridge", "logistic", "monotone")


@dataclass(frozen=True)
class CombineSettings(Options):
    """How a combination is learnt."""

    learner: str = option(
        "auto", Choice(*LEARNERS), "the model; auto: ridge where people gave ratings, logistic where they chose"
    )
    folds: int = option(10, Count(2), "outer folds: each is scored by what was learnt on the others")
    inner_folds: int = option(5, Count(2), "inner folds, which choose the penalty")
    seed: int = option(0, Count(), "seed of the folds")


@dataclass(frozen=True)
class CombineEntry:
    """A combination as a study asks for it.

    Attributes:
        label: what its row is called.
        title: what it is called in tables; default: its label.
        of: names of the metrics or columns that it combines; all of the study's by default.
        lower: those of them whose lower scores are better, beside those that say so themselves.
        settings: how it is learnt.
    """

    label: str = METRIC
    title: str = ""
    of: tuple[str, ...] = ()
    lower: tuple[str, ...] = ()
    settings: CombineSettings = CombineSettings()


@dataclass(frozen=True)
class Study:
    """A study as it was asked for; nothing is resolved yet.

    Attributes:
        name: folder name of the results.
        title: one line for the table's head.
        protocols: protocol ids or data set names; none where a published table is printed alone.
        metrics: metric or column names, in the order of the table's rows; ``LABEL=NAME`` where one has a label; or
            classes, from Python; none where a published table is printed alone.
        options: metric options by label, metric or column name.
        titles: titles of rows by label.
        published: name of a published table, or None.
        features: path of a region-feature store for every metric that ``features_of`` does not name, or None.
        features_of: paths of stores by label or metric name.
        models: path of weights by label or metric name.
        model: path of weights for every metric that ``models`` does not name and that needs some.
        bootstrap: how intervals are made; None for none.
        compare: how metrics are tested against each other; None for no tests.
        human_ceiling: whether people's agreement with each other is shown where raters are known.
        path: the file it came from, None for a study made of flags.
        scores: files of scores that were computed elsewhere.
        allow_missing: whether items without a score in one of these files are left out, for all metrics.
        task: what is asked for in place of agreement with people; None for that.
        without: labels, metrics or rows that are left out; their rows say so. Given by ``--without`` alone.
        combine: combinations of the metrics, learnt from each protocol's judgements.
        images: the folder of the pictures; None: the data set's image folders.
        train: networks to train first, by ``capbench recipe``.
    """

    name: str
    title: str
    protocols: tuple[str, ...]
    metrics: tuple[Asked, ...]
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    published: str | None = None
    features: str | None = None
    models: dict[str, str] = field(default_factory=dict)
    bootstrap: BootstrapSettings | None = None
    compare: TestSettings | None = None
    human_ceiling: bool = True
    path: str | None = None
    model: str | None = None
    features_of: dict[str, str] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    scores: tuple[ScoresEntry, ...] = ()
    allow_missing: bool = False
    task: Task | None = None
    combine: tuple[CombineEntry, ...] = ()
    images: str | None = None
    train: TrainEntry | None = None


@dataclass(frozen=True)
class TrainEntry:
    """The networks that a study trains before it evaluates them (``capbench recipe STUDY``).

    Attributes:
        network: name of what is trained (``scan``).
        config: the training file, or the name of a shipped one.
        seeds: one network each.
        ensemble: evaluate the networks of several seeds as an ensemble; False: the first network.
        features: a feature store; or ``import``, ``detector`` and ``windows`` of one that is made.
        settings: changes of the training file, by dotted key.
    """

    network: str
    config: str
    seeds: tuple[int, ...] = (1,)
    ensemble: bool = True
    features: str | Mapping[str, str] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


class Problems:
    """Collects what is wrong with a study, to report it all at once."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self.path = path
        self.told: list[str] = []

    def add(self, problem: str) -> None:
        """Take a problem, once."""
        if problem not in self.told:
            self.told.append(problem)

    def catch(self, error: CapbenchError) -> None:
        """Take an error as a problem."""
        self.add(str(error))

    @contextmanager
    def catching(self) -> Iterator[None]:
        """Take an error that arises within as a problem, and go on behind."""
        try:
            yield
        except CapbenchError as error:
            self.catch(error)

    def raise_if_any(self) -> None:
        """Raise StudyError with all of them in one line, numbered where there are several."""
        if len(self.told) == 1:
            raise StudyError(self.told[0], path=self.path)
        if self.told:
            listed = "; ".join(f"({i}) {problem.removesuffix('.')}" for i, problem in enumerate(self.told, 1))
            raise StudyError(f"{len(self.told)} problems: {listed}", path=self.path)


# Studies without a file: what the flags of a command line, or the arguments of a function, say.


@dataclass(frozen=True)
class StatisticsChoice:
    """What is said of intervals and tests; None for what is not.

    Attributes:
        bootstrap: number of resamples.
        interval: ``percentile`` or ``bca``.
        compare: the test.
        correction: for the number of pairs.
        alpha: significance level.
        permutations: their number, or that of the test bootstrap's resamples.
        unit: what is resampled.
        seed: of resamples and permutations.
    """

    bootstrap: int | None = None
    interval: str | None = None
    compare: str | None = None
    correction: str | None = None
    alpha: float | None = None
    permutations: int | None = None
    unit: str | None = None
    seed: int | None = None


def with_statistics(study: Study, choice: StatisticsChoice, spelled: Callable[[str], str]) -> Study:
    """The study with what is chosen in the place of what it says; values are checked when it is planned.

    Args:
        study: the study.
        choice: intervals and tests.
        spelled: how the user writes one of the names of :class:`StatisticsChoice` (``--alpha``, ``alpha``).

    Raises:
        UsageError: a choice changes nothing without another.
    """
    shared = {"unit": choice.unit, "seed": choice.seed}
    of_bootstrap = _without_none({"resamples": choice.bootstrap, "method": choice.interval} | shared)
    of_compare = _without_none(
        {
            "test": choice.compare,
            "correction": choice.correction,
            "alpha": choice.alpha,
            "resamples": choice.permutations,
        }
        | shared
    )
    bootstrap, compare = study.bootstrap, study.compare
    if bootstrap is not None or choice.bootstrap is not None:
        bootstrap = replace(bootstrap or BootstrapSettings(), **of_bootstrap)
    if compare is not None or choice.compare is not None:
        settings = BootstrapSettings() if bootstrap is None else bootstrap
        compare = replace(compare or TestSettings(unit=settings.unit, seed=settings.seed), **of_compare)
    either = (bootstrap, compare)
    for name, needs, used in (
        ("interval", ("bootstrap",), (bootstrap,)),
        ("correction", ("compare",), (compare,)),
        ("alpha", ("compare",), (compare,)),
        ("permutations", ("compare",), (compare,)),
        ("unit", ("bootstrap", "compare"), either),
        ("seed", ("bootstrap", "compare"), either),
    ):
        if getattr(choice, name) is not None and not any(used):
            needed = " or ".join(map(spelled, needs))
            raise UsageError(
                f"{spelled(name)} changes nothing without {needed}",
                hint=f"Add {needed}, or leave {spelled(name)} out",
            )
    return replace(study, bootstrap=bootstrap, compare=compare)


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def protocols_asked(datasets: Sequence[str], protocols: Sequence[str], spelled: Callable[[str], str]) -> list[str]:
    """Ids of protocols, and names of data sets whose protocols are the literature's.

    Args:
        datasets: data sets.
        protocols: ids, or parts of ids that are meant of each data set.
        spelled: how the user writes ``protocol`` and ``dataset``.

    Raises:
        UsageError: there is a part of an id, and no data set.
    """
    # What names a group names its data set, so it is no part of an id of another one.
    partial = [p for p in protocols if p.count("/") < 2 and "@" not in p and ":" not in p]
    full = [p for p in protocols if p not in partial]
    if partial and not datasets:
        raise UsageError(
            f"{spelled('protocol')} {partial[0]} names no data set",
            hint=f"Give dataset/items/statistic, or add {spelled('dataset')}",
        )
    ids = list(full)
    for name in datasets:
        ids += [f"{name}/{part}" for part in partial]
        if not partial and not any(p == name or p.startswith((f"{name}/", f"{name}@", f"{name}:")) for p in full):
            ids.append(name)
    return ids

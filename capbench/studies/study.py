"""A study: metrics, protocols, a published table, intervals and tests.

A study comes from a YAML file (:mod:`capbench.studies.study_file`) or from command-line options; nothing is resolved.

Tasks of study files other than agreement with human judgements are retrieval, curves, layers, one image and regions.
Each has its command (``capbench explore retrieve faier-table6``). The file has one of the keys::

    retrieval: {captions: nocaps-val, images: 1000, seed: 0, references: 4, gallery: rest}
    curves: {counts: [0, 1, 2, 3, 4, 5], draws: 5, seed: 0}          # with 'protocols'
    layers: {resamples: 1000, seed: 0}                               # with 'protocols'
    image: {dataset: hm-coco, id: COCO_val2014_000000420113, candidates: [...], references: [...]}
    words: {entities: coco/coco_entities_release.json, references: [1, 2, 3, 4], images: 1000, seed: 0}

and 'metrics' with their resources, as in any study.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, get_args

from capbench.core.errors import CapbenchError, StudyError, UsageError
from capbench.core.options import Choice, Count, Kind, Options, Share, Text, option
from capbench.datasets.protocol import Protocol
from capbench.metrics.from_file import ScoresEntry
from capbench.metrics.metric_request import Asked
from capbench.stats.pairs import Correction, Test, Unit
from capbench.stats.resampling import MOST_RESAMPLES

# Settings of intervals and tests.

BootstrapMethod = Literal["percentile", "bca"]
FEWEST = 100


@dataclass(frozen=True)
class BootstrapSettings(Options):
    """Settings of the intervals of a study."""

    resamples: int = option(1000, Count(FEWEST, MOST_RESAMPLES), "resamples")
    unit: Unit = option("image", Choice(*get_args(Unit)), "resampled unit")
    seed: int = option(0, Count(), "seed of the resamples")
    method: BootstrapMethod = option("percentile", Choice(*get_args(BootstrapMethod)), "method of the interval")
    level: float = option(0.95, Share(), "nominal coverage")


@dataclass(frozen=True)
class TestSettings(Options):
    """Settings of the tests between the metrics of a study (:func:`capbench.stats.significance.compare`)."""

    __test__ = False  # pytest collects classes whose name begins with Test

    test: Test = option("permutation", Choice(*get_args(Test)), "test of each pair")
    correction: Correction = option("holm", Choice(*get_args(Correction)), "correction for the number of pairs")
    alpha: float = option(0.05, Share(), "significance level")
    resamples: int | None = option(
        None,
        Count(FEWEST, MOST_RESAMPLES),
        "permutations (default: 10,000), or resamples of the test bootstrap (1,000); more if the correction needs it",
    )
    seed: int = option(0, Count(), "seed of the permutations or resamples")
    unit: Unit = option("image", Choice(*get_args(Unit)), "permuted or resampled unit")


def problems(name: str, settings: BootstrapSettings | TestSettings) -> list[str]:
    """Problems of settings that were made from options without a check; empty if there are none.

    Args:
        name: name of the settings in a study file, ``bootstrap`` or ``compare``.
        settings: the settings.
    """
    messages: list[str] = []
    values = {declared.name: getattr(settings, declared.name) for declared in settings.declared()}
    settings.checked(name, values, lambda message, hint: messages.append(f"{message}. {hint}"))
    return messages


def misfit(settings: TestSettings, protocol: Protocol) -> str:
    """The reason a test does not apply to a protocol; ``""`` if it does. Plain means are not tested."""
    spec, test = protocol.statistic, settings.test
    if spec.kind == "mean" or test in ("permutation", "bootstrap"):
        return ""
    if spec.level != "captions":
        return f"the test '{test}' assumes that captions are independent data points, and {protocol} does not"
    if protocol.items.draws > 1:
        return f"the test '{test}' requires a single draw of references, and {protocol} has {protocol.items.draws}"
    if test == "mcnemar":
        if spec.kind != "accuracy":
            return f"the test 'mcnemar' requires an accuracy, and {protocol} is a correlation"
        if spec.ties == "ties-half":
            return f"the test 'mcnemar' is undefined if ties count one half, as under {protocol}"
    elif spec.kind != "correlation" or spec.coefficient not in ("pearson", "spearman"):
        return f"the test '{test}' requires Pearson's r or Spearman's rho, and {protocol} uses neither"
    return ""


# Settings of combinations.

METRIC = "combination"
"""Metric name of a combination's row."""
LEARNERS = ("auto", "ridge", "logistic", "monotone", "mean-rank")


@dataclass(frozen=True)
class CombineSettings(Options):
    """Settings of a combination."""

    learner: str = option(
        "auto", Choice(*LEARNERS), "the model; auto: ridge for ratings, logistic for choices between two captions"
    )
    folds: int = option(10, Count(2), "outer folds: each is scored by a model learned on the others")
    inner_folds: int = option(5, Count(2), "inner folds, which choose the penalty")
    seed: int = option(0, Count(), "seed of the folds")


@dataclass(frozen=True)
class CombineEntry:
    """A combination in a study.

    Attributes:
        label: label of its row.
        title: title in tables; default: its label.
        of: names of the metrics or columns that it combines; default: all of the study's.
        lower: those of them whose lower scores are better, in addition to metrics that declare it.
        settings: settings of the fit.
    """

    label: str = METRIC
    title: str = ""
    of: tuple[str, ...] = ()
    lower: tuple[str, ...] = ()
    settings: CombineSettings = CombineSettings()


@dataclass(frozen=True)
class Study:
    """A study before its names are resolved.

    Attributes:
        name: folder name of the results.
        title: one line for the table's heading.
        protocols: protocol ids or data set names; empty to print only a published table.
        metrics: metric or column names, in the order of the table's rows; ``LABEL=NAME`` with a label; or classes, from
            Python; empty to print only a published table.
        options: metric options by label, metric or column name.
        titles: titles of rows by label.
        published: name of a published table, or None.
        features: path of a region-feature store for every metric that ``features_of`` does not name, or None.
        features_of: paths of stores by label or metric name.
        models: path of weights by label or metric name.
        model: path of weights for every metric that ``models`` does not name and that requires weights.
        bootstrap: settings of intervals; None without intervals.
        compare: settings of tests between metrics; None without tests.
        human_ceiling: True to show agreement between human raters where raters are known.
        sentinels: True to show agreement of the sentinels, and to test the metrics against them.
        path: the file it came from, None for a study from command-line options.
        scores: files of scores that were computed elsewhere.
        allow_missing: True to leave out items without a score in one of these files, for all metrics.
        task: a task other than agreement with human judgements; None without one.
        without: labels, metrics or rows to leave out; their rows show this. Set by ``--without``.
        combine: combinations of the metrics, learned from each protocol's judgements.
        images: folder of the pictures; default: the data set's image folders.
        answers: True to find the best metric for each of the user's data sets, with intervals and tests, in a study
            without a file.
        columns: the column of a field, for data sets that are files with other column names.
        practices: True to compute the numbers under the protocols of other papers, too (a study without a file and
            without named protocols).
        own: the study as its file defines it, without options, features and weights of a command; None without a file.
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
    sentinels: bool = False
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
    answers: bool = False
    columns: Mapping[str, str] = field(default_factory=dict)
    practices: bool = False
    own: Study | None = None

    def statistics_of(self, *, answered: bool) -> tuple[BootstrapSettings | None, TestSettings | None]:
        """Settings of intervals and tests under one protocol.

        Args:
            answered: True for a protocol whose best metric is to be found, which always has intervals and tests.
        """
        bootstrap, compare = self.bootstrap, self.compare
        if answered:
            known = bootstrap or compare or BootstrapSettings()
            bootstrap = bootstrap or BootstrapSettings(unit=known.unit, seed=known.seed)
            compare = compare or TestSettings(unit=known.unit, seed=known.seed)
        return bootstrap, compare


class Problems:
    """Collects the problems of a study, to report them all at once."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self.path = path
        self.found: dict[str, tuple[str, object]] = {}

    def add(self, problem: str, code: str = "invalid", value: object = None) -> None:
        """Add a problem, once."""
        self.found.setdefault(problem, (code, value))

    def catch(self, error: CapbenchError) -> None:
        """Add an error as a problem."""
        self.add(str(error), error.code, error.value)

    @contextmanager
    def catching(self) -> Iterator[None]:
        """Add an error of the block as a problem, and continue after the block."""
        try:
            yield
        except CapbenchError as error:
            self.catch(error)

    def raise_if_any(self) -> None:
        """Raise StudyError with all problems in one line, numbered if there are several."""
        if len(self.found) == 1:
            ((problem, (code, value)),) = self.found.items()
            raise StudyError(problem, code=code, value=value, path=self.path)
        if self.found:
            listed = "; ".join(f"({i}) {problem.removesuffix('.')}" for i, problem in enumerate(self.found, 1))
            raise StudyError(f"{len(self.found)} problems: {listed}", path=self.path)


# Studies from command-line options, or from arguments of a function.


@dataclass(frozen=True)
class StatisticsChoice:
    """Choices of intervals and tests; None for the study's setting.

    Attributes:
        bootstrap: number of resamples.
        interval: ``percentile`` or ``bca``.
        compare: name of the test.
        correction: correction for the number of pairs.
        alpha: significance level.
        permutations: number of permutations, or of resamples of the test bootstrap.
        unit: resampled unit.
        seed: seed of resamples and permutations.
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
    """The study with some settings replaced; values are checked during planning.

    Args:
        study: the study.
        choice: intervals and tests.
        spelled: spelling of a name of :class:`StatisticsChoice` for the user (``--alpha``, ``alpha``).

    Raises:
        UsageError: a choice has no effect without another.
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
                f"{spelled(name)} has no effect without {needed}",
                code="missing-option",
                value=spelled(name),
                hint=f"Add {needed}, or remove {spelled(name)}",
            )
    return replace(study, bootstrap=bootstrap, compare=compare)


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def protocols_asked(datasets: Sequence[str], protocols: Sequence[str], spelled: Callable[[str], str]) -> list[str]:
    """Ids of protocols, and names of data sets for their default protocols.

    Args:
        datasets: data sets.
        protocols: ids, or parts of ids that apply to each data set.
        spelled: spelling of ``protocol`` and ``dataset`` for the user.

    Raises:
        UsageError: there is a part of an id, and no data set.
    """
    # A group belongs to a named data set, so a name with a group is not a part of an id.
    partial = [p for p in protocols if p.count("/") < 2 and "@" not in p and ":" not in p]
    full = [p for p in protocols if p not in partial]
    if partial and not datasets:
        raise UsageError(
            f"{spelled('protocol')} {partial[0]} has no data set",
            code="missing-option",
            value=partial[0],
            hint=f"Write dataset/items/statistic, or add {spelled('dataset')}",
        )
    ids = list(full)
    for name in datasets:
        ids += [f"{name}/{part}" for part in partial]
        if not partial and not any(p == name or p.startswith((f"{name}/", f"{name}@", f"{name}:")) for p in full):
            ids.append(name)
    return ids


Gallery = Literal["rest", "one"]
"""Captions of an image that are queries and gallery: all except the references, or the first of them."""


class _Texts(Kind):
    """One text or more."""

    def __init__(self) -> None:
        schema = {"type": "array", "items": {"type": "string"}, "minItems": 1}
        super().__init__("a list of texts", '["a dog runs", "two dogs"]', schema)

    def read(self, value: object) -> tuple[str, ...]:
        """The texts."""
        if not isinstance(value, list | tuple) or not value:
            raise ValueError
        if not all(isinstance(text, str) and text.strip() for text in value):
            raise ValueError
        return tuple(value)


class _Errors(Kind):
    """Errors that a human names in captions: for each caption two lists of phrases, both optional."""

    def __init__(self) -> None:
        lists = dict.fromkeys(("extra", "missing"), _Texts().schema())
        entry = {"type": "object", "properties": lists, "additionalProperties": False}
        super().__init__(
            "a list with {extra: [phrases], missing: [phrases]} for each candidate",
            '[{extra: ["on a table"]}, {missing: ["a red hat"]}]',
            {"type": "array", "items": entry, "minItems": 1},
        )

    def read(self, value: object) -> tuple[Mapping[str, tuple[str, ...]], ...]:
        """The errors."""
        if not isinstance(value, list | tuple) or not value:
            raise ValueError
        if not all(isinstance(entry, dict) and entry.keys() <= {"extra", "missing"} for entry in value):
            raise ValueError
        return tuple({kind: _Texts().read(texts) for kind, texts in entry.items()} for entry in value)


class _Counts(Kind):
    """Whole numbers from ``low``, ascending."""

    def __init__(self, low: int = 0) -> None:
        self._of_one = Count(low)
        schema = {"type": "array", "items": self._of_one.schema(), "minItems": 1}
        super().__init__(f"a list of whole numbers from {low}", "[1, 2, 5]", schema)

    def read(self, value: object) -> tuple[int, ...]:
        """The numbers, sorted, each once."""
        if not isinstance(value, list | tuple) or not value:
            raise ValueError
        return tuple(sorted({self._of_one.read(number) for number in value}))


@dataclass(frozen=True)
class Task(Options):
    """A task of a study file other than agreement with human judgements."""

    key: ClassVar[str]
    """Key in a study file."""
    command: ClassVar[str]
    """Command that runs it."""
    judged: ClassVar[bool] = False
    """True if the file names protocols."""


@dataclass(frozen=True)
class RetrievalTask(Task):
    """Retrieval of images by captions and of captions by images."""

    key: ClassVar[str] = "retrieval"
    command: ClassVar[str] = "explore retrieve"
    captions: str = option("flickr8k", Text("nocaps-val"), "a corpus of captions, or a file")
    split: str | None = option(None, Text("test"), "split or domain of the images")
    images: int = option(1000, Count(2), "number of sampled images")
    seed: int = option(0, Count(), "seed of the sample")
    references: int = option(4, Count(1), "number of an image's captions, from the first, that are its references")
    gallery: Gallery = option("rest", Choice(*get_args(Gallery)), "captions that are queries and gallery")


@dataclass(frozen=True)
class CurveTask(Task):
    """Agreement with human ratings by the number of references."""

    key: ClassVar[str] = "curves"
    command: ClassVar[str] = "correlate --references-curve"
    judged: ClassVar[bool] = True
    counts: tuple[int, ...] | None = option(None, _Counts(), "numbers of references")
    draws: int = option(5, Count(1, 10_000), "random orders of the references")
    seed: int = option(0, Count(), "seed of the orders")


@dataclass(frozen=True)
class LayerTask(Task):
    """Agreement with human ratings by the layer of a network."""

    key: ClassVar[str] = "layers"
    command: ClassVar[str] = "figure layers"
    judged: ClassVar[bool] = True
    resamples: int = option(1000, Count(100), "bootstrap resamples of the intervals")
    seed: int = option(0, Count(), "seed of the resamples")


@dataclass(frozen=True)
class ImageTask(Task):
    """Candidates of one image, scored with all metrics."""

    key: ClassVar[str] = "image"
    command: ClassVar[str] = "explore examples"
    id: str = option("image", Text("f8k_003"), "the image's id")
    dataset: str | None = option(None, Text("flickr8k-expert"), "data set of the references, if none are listed")
    candidates: tuple[str, ...] | None = option(None, _Texts(), "captions to score")
    references: tuple[str, ...] | None = option(None, _Texts(), "captions to compare with")
    errors: tuple[Mapping[str, tuple[str, ...]], ...] | None = option(
        None, _Errors(), "errors that a human names in each candidate"
    )


@dataclass(frozen=True)
class WordTask(Task):
    """Scores of words of a region, and of other words."""

    key: ClassVar[str] = "words"
    command: ClassVar[str] = "explore words"
    entities: str = option("coco/coco_entities_release.json", Text("entities.json"), "words and their regions")
    references: tuple[int, ...] = option((1, 2, 3, 4), _Counts(1), "numbers of references")
    images: int = option(1000, Count(1), "number of sampled images")
    seed: int = option(0, Count(), "seed of the sample")


TASKS: Mapping[str, type[Task]] = {
    task.key: task for task in (RetrievalTask, CurveTask, LayerTask, ImageTask, WordTask)
}

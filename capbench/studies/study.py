"""A study: metrics, protocols, a published table, intervals and tests; nothing is resolved.

A study comes from a YAML file (``docs/studies.md``), a call of Python or options of a command. The fields of
:class:`Study` that are not in :data:`NO_KEYS` are the keys of a file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, Required, Self, get_args, get_type_hints

from annotated_types import Ge, Le, MaxLen, MinLen
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    InstanceOf,
    SkipValidation,
    Strict,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)
from typing_extensions import TypedDict

from capbench.core.arguments import BootstrapMethod, Correction, Help, OpenShare, Resamples, Seed, Test, Unit
from capbench.core.errors import CapbenchError, StudyError, UsageError, suggest
from capbench.datasets.protocol import Protocol
from capbench.metrics.from_file import ScoresEntry
from capbench.metrics.metric_request import Asked

_CONFIG = ConfigDict(arbitrary_types_allowed=True, extra="forbid")
Text = Annotated[str, MinLen(1)]
Flag = Annotated[bool, Strict()]
Whole = Annotated[int, Strict()]
Positive = Annotated[Whole, Ge(1)]
_Seed = Annotated[Seed, Strict()]
_Resamples = Annotated[Resamples, Strict()]
_Share = Annotated[OpenShare, Strict()]


class Settings:
    """Base class of settings, which :meth:`read` checks."""

    __pydantic_config__: ClassVar[ConfigDict] = _CONFIG

    @classmethod
    def read(cls, owner: str, values: Mapping[str, Any]) -> Self:
        """The settings of ``owner``. Raises UsageError, which names the first wrong one."""
        try:
            return TypeAdapter(cls).validate_python(dict(values))
        except ValidationError as error:
            message, code, value = next(problems_in(error, cls, owner))
            raise UsageError(message, code=code, value=value) from None


Problem = tuple[str, str, object]
"""A message, its error code and the wrong value."""


def problems_in(error: ValidationError, kind: type[Any], owner: str = "") -> Iterator[Problem]:
    """Wrong values that pydantic found in the fields of ``kind``, by place: ``bootstrap.resamples=50: should be …``."""
    for details in error.errors(include_url=False):
        place = [str(part) for part in details["loc"] if not str(part).startswith(("function-", "constrained-"))]
        name, value, known = place[-1] if place else "", details["input"], _known(kind)
        of = ".".join([*filter(None, [owner]), *place[:-1]])
        path = f"{of}.{name}".strip(".")
        if details["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
            options = _known(_section(known[place[0]])) if len(place) > 1 else known
            yield f"{of or 'the file'} has no option '{name}'. {suggest(name, [*options])}", "unknown-option", name
        elif details["type"] == "missing":
            yield f"the key '{path}' is missing", "missing-key", name
        else:
            words = details["msg"].removeprefix("Value error, ").removeprefix("Input ")
            told = words if details["type"] == "value_error" else f"{path}={' '.join(str(value).split())[:80]}: {words}"
            yield told, "wrong-value", value


def _known(kind: type[Any]) -> dict[str, Any]:
    """The annotations of settings by their keys."""
    if issubclass(kind, BaseModel):
        return {field.alias or name: field.annotation for name, field in kind.model_fields.items()}
    return get_type_hints(kind)


def _section(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, Settings | BaseModel):
        return annotation
    return next(filter(None, map(_section, get_args(annotation))), None)


# Settings of intervals and tests.


@dataclass(frozen=True)
class BootstrapSettings(Settings):
    """Settings of the intervals of a study."""

    resamples: _Resamples = 1000
    unit: Annotated[Unit, Help("resampled unit")] = "image"
    seed: _Seed = 0
    method: BootstrapMethod = "percentile"
    level: Annotated[_Share, Help("nominal coverage")] = 0.95


@dataclass(frozen=True)
class TestSettings(Settings):
    """Settings of the tests between the metrics of a study (:func:`capbench.stats.significance.compare`)."""

    __test__ = False  # pytest collects classes whose name begins with Test

    test: Test = "permutation"
    correction: Annotated[Correction, Help("correction for the number of pairs")] = "holm"
    alpha: Annotated[_Share, Help("significance level")] = 0.05
    resamples: Annotated[
        _Resamples | None,
        Help("permutations (default: 10,000), or resamples of the test bootstrap (1,000); more if needed"),
    ] = None
    seed: _Seed = 0
    unit: Annotated[Unit, Help("permuted or resampled unit")] = "image"


def _sorted(numbers: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(set(numbers)))


def _numbers(text: object) -> object:
    """Numbers from a list of numbers and ranges: ``1,2,5-8`` → (1, 2, 5, 6, 7, 8)."""
    if not isinstance(text, str):
        return text
    parts = [re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", part.strip(), re.ASCII) for part in text.split(",")]
    ranges = [range(int(part[1]), int(part[2] or part[1]) + 1) if part else range(0) for part in parts]
    if not all(ranges):
        raise ValueError(f"'{text}' is not a list of numbers such as 1,2,5 or 1-50")
    return tuple(number for of_range in ranges for number in of_range)


@dataclass(frozen=True)
class CurveSettings(Settings):
    """Settings of the curves over the number of references of a study."""

    counts: (
        Annotated[tuple[Annotated[Whole, Ge(0)], ...], MinLen(1), AfterValidator(_sorted), BeforeValidator(_numbers)]
        | None
    ) = None
    draws: Annotated[Whole, Ge(1), Le(10_000), Help("random orders of the references")] = 5
    seed: _Seed = 0


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


def _listed(value: object) -> object:
    """One entry or a list of entries as a tuple; anything else unchanged."""
    return (value,) if isinstance(value, str | dict) else tuple(value) if isinstance(value, list) else value


_Names = Annotated[tuple[Text, ...], BeforeValidator(_listed, json_schema_input_type=Text | list[Text])]


# Tasks of study files other than agreement with human judgements.


class Task(Settings):
    """A task: its key in a study file, the command that runs it, and whether the file names protocols."""

    key: ClassVar[str]
    command: ClassVar[str]
    on_judgements: ClassVar[bool]

    def __init_subclass__(cls, *, key: str, command: str, on_judgements: bool = False) -> None:
        cls.key, cls.command, cls.on_judgements = key, command, on_judgements


@dataclass(frozen=True)
class RetrievalTask(Task, key="retrieval", command="explore retrieve"):
    """Retrieval of images by captions and of captions by images."""

    captions: Annotated[Text, Help("a corpus of captions, or a file")] = "flickr8k"
    split: Annotated[Text | None, Help("split or domain of the images")] = None
    images: Annotated[Whole, Ge(2), Help("number of sampled images")] = 1000
    seed: _Seed = 0
    references: Annotated[Positive, Help("number of an image's captions, from the first, that are its references")] = 4


@dataclass(frozen=True)
class LayerTask(Task, key="layers", command="figure layers", on_judgements=True):
    """Agreement with human ratings by the layer of a network."""

    resamples: _Resamples = 1000
    seed: _Seed = 0


_Phrases = dict[Annotated[str, StringConstraints(pattern="^(extra|missing)$")], Annotated[tuple[Text, ...], MinLen(1)]]


@dataclass(frozen=True)
class ImageTask(Task, key="image", command="explore examples"):
    """Candidates of one image, scored with all metrics."""

    id: Text = "image"
    dataset: Annotated[Text | None, Help("data set of the references, if none are listed")] = None
    candidates: Annotated[tuple[Text, ...], MinLen(1), Help("captions to score")] | None = None
    references: Annotated[tuple[Text, ...], MinLen(1), Help("captions to compare with")] | None = None
    errors: Annotated[tuple[_Phrases, ...], MinLen(1), Help("errors that a human names")] | None = None


@dataclass(frozen=True)
class WordTask(Task, key="words", command="explore words"):
    """Scores of words of a region, and of other words."""

    entities: Annotated[Text, Help("words and their regions")] = "coco/coco_entities_release.json"
    references: Annotated[tuple[Positive, ...], MinLen(1), AfterValidator(_sorted)] = (1, 2, 3, 4)
    images: Annotated[Positive, Help("number of sampled images")] = 1000
    seed: _Seed = 0


TASKS: Mapping[str, type[Task]] = {task.key: task for task in (RetrievalTask, LayerTask, ImageTask, WordTask)}

# The study.


class LabelledMetric(TypedDict, total=False):
    """A metric under a label, with its options."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]  # read by pydantic
    label: Required[Text]
    metric: Required[Text]
    title: Text
    features: Text
    model: Text


class ScoresKeys(TypedDict, total=False):
    """A file of scores, and how to read it."""

    file: Required[Text]
    label: str
    title: str
    columns: Text | list[Text]
    higher: Literal["better", "worse"]
    references: Literal["checked", "ignored"]
    repeats: Literal["refuse", "first", "mean"]


def _written_as(form: Any) -> BeforeValidator:
    """The form of a field in a file, for the JSON schema; :mod:`capbench.studies.study_file` reads it."""
    return BeforeValidator(lambda value: value, json_schema_input_type=form)


_FileMetric = Text | LabelledMetric | Annotated[dict[Text, dict[str, Any]], MinLen(1), MaxLen(1)]
_Paths = _written_as(Text | dict[Text, Text])


def _folder_name(name: str) -> str:
    if not name or name[0] in ".-" or not all(c.isalnum() or c in "-_." for c in name):
        raise ValueError(f"'name' {name!r} is not a valid folder name; use letters, digits, '-', '_' and '.'")
    return name


@dataclass(frozen=True)
class Study:
    """A study before its names are resolved."""

    __pydantic_config__: ClassVar[ConfigDict] = _CONFIG

    name: Annotated[str, AfterValidator(_folder_name), Help("folder name of the results")]
    title: Annotated[str, Help("heading of the tables; default: the name")] = ""
    protocols: Annotated[_Names, Help("dataset/items/statistic, or a data set for its default")] = ()
    metrics: Annotated[
        tuple[SkipValidation[Asked], ...],
        _written_as(_FileMetric | list[_FileMetric]),
        Help("rows of the tables, in order"),
    ] = ()
    options: dict[str, dict[str, Any]] = field(default_factory=dict)  # by label, metric or column
    published: Annotated[Text | None, Help("a published table to compare with")] = None
    features: Annotated[Text | None, _Paths, Help("region features: a path, or paths by label or metric")] = None
    models: Annotated[dict[str, Text], _Paths, Help("weights: a path, or paths by label or metric")] = field(
        default_factory=dict
    )
    bootstrap: Annotated[
        BootstrapSettings | None, _written_as(_Resamples | BootstrapSettings), Help("bootstrap intervals")
    ] = None
    compare: Annotated[
        TestSettings | None,
        _written_as(Test | TestSettings),
        Help("tests between metrics; default unit and seed: those of the intervals"),
    ] = None
    curves: Annotated[CurveSettings | None, Help("agreement against the number of references")] = None
    human_ceiling: Annotated[Flag, Help("row of agreement between human raters")] = True
    sentinels: Annotated[Flag, Help("rows of sentinels, and tests of the metrics against them")] = False
    path: str | None = None  # the file
    model: str | None = None  # weights of every metric that requires some and that `models` does not name
    features_of: dict[str, Text] = field(default_factory=dict)  # by label or metric
    titles: dict[str, str] = field(default_factory=dict)  # by label
    without: tuple[str, ...] = ()  # labels, metrics or rows to leave out; their rows show this
    scores: Annotated[
        tuple[InstanceOf[ScoresEntry], ...],
        _written_as(list[Text | ScoresKeys]),
        Help("files of scores from elsewhere"),
    ] = ()
    allow_missing: Annotated[Flag, Help("leave out items without a score in one of the files")] = False
    images: Annotated[Text | None, Help("folder of the pictures; default: the data set's image folders")] = None
    retrieval: RetrievalTask | None = None
    layers: LayerTask | None = None
    image: ImageTask | None = None
    words: WordTask | None = None
    answers: bool = False  # finds the best metric for each of the user's data sets, with intervals and tests
    columns: Mapping[str, str] = field(default_factory=dict)  # column of a field, for data sets that are files
    all_protocols: bool = False  # of the data sets that `protocols` names; ranks the metrics under each
    practices: bool = False  # notes the protocols of other papers
    base: Study | None = None  # as its file defines it, without options, features and weights of a command

    def __post_init__(self) -> None:
        if not self.title:
            object.__setattr__(self, "title", self.name)

    @property
    def task(self) -> Task | None:
        """A task other than agreement with human judgements."""
        return next(filter(None, (getattr(self, key) for key in TASKS)), None)

    def statistics_of(self, *, answered: bool) -> tuple[BootstrapSettings | None, TestSettings | None]:
        """Settings of intervals and tests; ``answered`` protocols, whose best metric is searched, always have both."""
        bootstrap, compare = self.bootstrap, self.compare
        if answered:
            known = bootstrap or compare or BootstrapSettings()
            bootstrap = bootstrap or BootstrapSettings(unit=known.unit, seed=known.seed)
            compare = compare or TestSettings(unit=known.unit, seed=known.seed)
        return bootstrap, compare


# Fields of a study that are not keys of a file.
NO_KEYS: list[str] = [
    "options",
    "path",
    "model",
    "features_of",
    "titles",
    "without",
    "answers",
    "all_protocols",
    "columns",
    "practices",
    "base",
]


class Problems:
    """Collects the problems of a study, to report them all at once."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self.path = path
        self.found: dict[str, tuple[str, object]] = {}
        self.errors: list[CapbenchError] = []

    def add_invalid(self, error: ValidationError, kind: type[Any]) -> None:
        """Add the wrong values that pydantic found in the fields of ``kind``."""
        for problem in problems_in(error, kind):
            self.add(*problem)

    def add(self, problem: str, code: str = "invalid", value: object = None) -> None:
        """Add a problem, once."""
        self.found.setdefault(problem, (code, value))

    @contextmanager
    def catching(self) -> Iterator[None]:
        """Add an error of the block as a problem, and continue after the block."""
        try:
            yield
        except CapbenchError as error:
            self.add(str(error), error.code, error.value)
            self.errors.append(error)

    def raise_if_any(self) -> None:
        """Raise StudyError with all problems in one line, numbered if there are several.

        The only problem of arguments, without a file, is raised as it was caught.
        """
        if self.path is None and len(self.found) == len(self.errors) == 1:
            raise self.errors[0]
        if len(self.found) == 1:
            ((problem, (code, value)),) = self.found.items()
            raise StudyError(problem, code=code, value=value, path=self.path)
        if self.found:
            listed = "; ".join(f"({i}) {problem.removesuffix('.')}" for i, problem in enumerate(self.found, 1))
            raise StudyError(f"{len(self.found)} problems: {listed}", path=self.path)


_CHOICES = {
    "bootstrap": {"bootstrap": "resamples", "interval": "method", "unit": "unit", "seed": "seed"},
    "compare": {
        "compare": "test",
        "correction": "correction",
        "alpha": "alpha",
        "permutations": "resamples",
        "unit": "unit",
        "seed": "seed",
    },
    "references_curve": {"counts": "counts", "draws": "draws", "seed": "seed"},
}
"""Choices with the settings that they change, by section of a study, which the choice of its name adds."""


def with_statistics(study: Study, choice: Mapping[str, object], spelled: Callable[[str], str]) -> Study:
    """The study with other settings of intervals and tests. Raises UsageError if one has no effect without another."""
    chosen = {name: choice[name] for names in _CHOICES.values() for name in names if choice.get(name) is not None}
    made: dict[str, Any] = {"bootstrap": study.bootstrap, "compare": study.compare, "references_curve": study.curves}
    kinds: tuple[type[Settings], ...] = BootstrapSettings, TestSettings, CurveSettings
    for section, kind in zip(_CHOICES, kinds, strict=True):
        if made[section] is not None or choice.get(section):
            known = made["bootstrap"] or BootstrapSettings()
            shared = {} if kind is CurveSettings else {"unit": known.unit, "seed": known.seed}
            values = vars(made[section]) if made[section] is not None else shared
            changed = {field: chosen[name] for name, field in _CHOICES[section].items() if name in chosen}
            made[section] = kind.read(section, {**values, **changed})
    for name in chosen:
        needed = [section for section, names in _CHOICES.items() if name in names]
        if not any(made[section] for section in needed):
            spelt = " or ".join(map(spelled, needed))
            message, hint = f"{spelled(name)} has no effect without {spelt}", f"Add {spelt}, or remove {spelled(name)}"
            raise UsageError(message, code="missing-option", value=spelled(name), hint=hint)
    return replace(study, curves=made.pop("references_curve"), **made)


def protocols_asked(datasets: Sequence[str], protocols: Sequence[str], spelled: Callable[[str], str]) -> list[str]:
    """Ids of protocols, and names of data sets for their default protocols; parts of ids apply to each data set."""
    # A group belongs to a named data set, so a name with a group is not a part of an id.
    partial = [p for p in protocols if p.count("/") < 2 and "@" not in p and ":" not in p]
    full = [p for p in protocols if p not in partial]
    if partial and not datasets:
        message = f"{spelled('protocol')} {partial[0]} has no data set"
        hint = f"Write dataset/items/statistic, or add {spelled('dataset')}"
        raise UsageError(message, code="missing-option", value=partial[0], hint=hint)
    ids = list(full)
    for name in datasets:
        ids += [f"{name}/{part}" for part in partial]
        if not partial and not any(p == name or p.startswith((f"{name}/", f"{name}@", f"{name}:")) for p in full):
            ids.append(name)
    return ids

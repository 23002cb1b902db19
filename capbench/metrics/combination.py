"""Saved combinations as metrics: ``combination:FILE``.

The file is JSON, written by ``capbench train combination --save FILE``. It contains the combined metrics with their
options and the fitted function of their scores. It contains no judgements, and nothing in it is run as code.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

import numpy as np
from pydantic import Field, model_validator

from capbench import __version__
from capbench.core import plugins
from capbench.core.errors import CapbenchError, CapbenchWarning, DataError, UsageError, check_choice
from capbench.core.files import sha256_file, write_text
from capbench.core.records import FloatArray, Item, photograph
from capbench.core.training_record import Digests, TrainingRecord
from capbench.core.typed_json import Strict, read_versioned
from capbench.metrics.base import CombinedMetric, Metric
from capbench.metrics.metric_request import MetricRequest
from capbench.metrics.needs import Columns, Need, References, Resources
from capbench.metrics.registry import as_label, metric_columns, metric_names
from capbench.metrics.signing import signature_line
from capbench.stats.combination import Basis, Fit

_SCHEMA_VERSION: Final = 2
_DIGEST_SIZE: Final = 4
_OF_THE_DATA = re.compile(r"df:(?:items|images)\([^)]*\)|\+id:[0-9a-f]+|\|labels:[^|]*")
"""Parts of a signature that identify captions and images: a document collection, a feature store, a label file."""


class SavedInput(Strict):
    """One input column of a combination."""

    name: str = Field(min_length=1)  # name of the input
    metric: str  # name of its metric
    # the metric's label; inputs of one label are columns of one metric with the same options
    label: str = Field(min_length=1)
    column: str  # the metric's column
    options: dict[str, str | bool | int | float | None] = Field(default_factory=dict)  # the metric's options
    lower_is_better: bool = False  # True if the scores are negated first
    signature: str  # the metric's signature when the combination was fitted
    center: float  # subtracted from the (negated) scores
    scale: float = Field(gt=0)  # divides the centred scores
    knots: tuple[float, ...] = ()  # knots of the piecewise linear curve; none for a straight line
    means: tuple[float, ...]  # mean of each feature
    weights: tuple[float, ...]  # weight of each feature; one more than knots, or a single one with levels
    levels: tuple[float, ...] = ()  # for the mean rank, the quantile at each knot

    @model_validator(mode="after")
    def _fits(self) -> SavedInput:
        knots = len(self.knots)
        sizes = (1, 1, knots) if self.levels else (knots + 1, knots + 1, 0)
        if (len(self.means), len(self.weights), len(self.levels)) != sizes or sorted(set(self.knots)) != [*self.knots]:
            raise ValueError("knots must ascend, and the numbers of means, weights and levels must fit to theirs")
        return self


class CombinationFile(Strict):
    """A combination that was fitted to a protocol's judgements."""

    kind: Literal["capbench combination"] = "capbench combination"  # identifies the file format
    schema_version: Literal[2] = _SCHEMA_VERSION  # version of this schema
    capbench: str = __version__  # version of capbench that fitted it
    learner: Literal["ridge", "logistic", "monotone", "mean-rank"]  # the model
    protocol: str  # the protocol of the training judgements, with the data set's version
    # digests of the training images (:func:`image_digest`)
    learnt_images: tuple[Annotated[str, Field(pattern="^[0-9a-f]{8}$")], ...] = Field(min_length=1)
    examples: int = Field(ge=1)  # number of training judgements
    seed: int = Field(ge=0)  # seed of the folds that selected the penalty
    inner_folds: int = Field(ge=2)  # number of these folds
    penalty: float = Field(ge=0)  # the penalty; 0 for the mean rank
    intercept: float  # the score of a caption whose features are all 0
    inputs: tuple[SavedInput, ...] = Field(min_length=1)  # the input columns

    @model_validator(mode="after")
    def _fits(self) -> CombinationFile:
        by_label: dict[str, tuple[str, dict[str, Any]]] = {}
        for entry in self.inputs:
            if by_label.setdefault(entry.label, (entry.metric, entry.options)) != (entry.metric, entry.options):
                raise ValueError(f"the label '{entry.label}' stands for two metrics")
        return self

    @property
    def fit(self) -> Fit:
        """The fitted function."""
        basis = Basis(
            np.array([entry.center for entry in self.inputs]),
            np.array([entry.scale for entry in self.inputs]),
            tuple(np.array(entry.knots, dtype=np.float64) for entry in self.inputs),
            np.array([mean for entry in self.inputs for mean in entry.means]),
            tuple(np.array(entry.levels, dtype=np.float64) for entry in self.inputs if entry.levels),
        )
        return Fit(basis, np.array([weight for entry in self.inputs for weight in entry.weights]), self.intercept)


def image_digest(image: str) -> str:
    """Eight hex digits of an image's photograph, to count training images among scored ones."""
    return hashlib.blake2b(photograph(image).encode(), digest_size=_DIGEST_SIZE).hexdigest()


def write_combination(combination: CombinationFile, path: str | Path) -> None:
    """Write a combination as JSON, atomically."""
    write_text(path, combination.model_dump_json(indent=2) + "\n")


def read_combination(path: str | Path) -> CombinationFile:
    """Read and check a combination."""
    hint = "Make one with 'capbench train combination --save FILE'"
    combination = read_versioned(CombinationFile, path, _SCHEMA_VERSION, "a saved combination", hint)
    for number, entry in enumerate(combination.inputs, 1):
        try:
            _request(entry)
        except CapbenchError as error:
            raise error.placed(DataError, path, f"input {number}") from error
    return combination


def saved_name(request: MetricRequest) -> str:
    """The name of a request's metric in a saved combination."""
    name = request.metric.name
    if name not in metric_names() or plugins.load("capbench.metrics", name) is not request.metric:
        message = f"a combination with {request.label} cannot be saved: it could not score other captions"
        hint = "Combine registered metrics only, without score files, functions and module:Class"
        raise UsageError(message, code="unsupported", value=request.label, hint=hint)
    return name


def _request(entry: SavedInput) -> MetricRequest:
    """An input's metric, checked. Only registered metrics are loaded: a file from elsewhere imports nothing else."""
    if entry.metric not in metric_names():
        message, hint = f"'{entry.metric}' is not installed", "Install the package that registers this metric"
        raise UsageError(message, code="unknown-name", value=entry.metric, hint=hint)
    metric: type[Metric] = plugins.load("capbench.metrics", entry.metric)
    check_choice(f"column of {entry.metric}", entry.column, metric.columns)
    metric.option_type.read(entry.metric, entry.options)
    return MetricRequest(metric, (entry.column,), entry.options, entry.label)


class SavedCombination(CombinedMetric):
    """A saved combination. :func:`metric_of_combination` makes one subclass per file."""

    citation: ClassVar[str] = "A combination of metrics, fitted to judgements"
    file: ClassVar[CombinationFile]  # Content of the file
    path: ClassVar[Path]
    digest: ClassVar[str]  # SHA-256 of the file
    warned: ClassVar[list[str]]  # Warnings that were shown

    def __init__(self, resources: Resources | None = None, **options: Any) -> None:
        super().__init__(resources, **options)
        self._metrics = {label: request.make(self.resources) for label, request in self.requests().items()}
        self._fit = self.file.fit

    @classmethod
    def requests(cls) -> dict[str, MetricRequest]:
        """The input metrics by label."""
        return {entry.label: _request(entry) for entry in cls.file.inputs}

    @classmethod
    def given(cls, resources: Resources, label: str) -> Resources:
        """All resources: the input metrics select theirs by label or name."""
        return resources

    @classmethod
    def missing(
        cls, resources: Resources, options: Mapping[str, Any] | None = None, label: str | None = None
    ) -> list[tuple[Need, str]]:
        return [need for request in cls.requests().values() for need in request.missing(resources)]

    @classmethod
    def check_items(cls, items: Sequence[Item], resources: Resources, options: Mapping[str, Any]) -> None:
        for request in cls.requests().values():
            if error := request.unmet_by(items, resources):
                raise error

    @classmethod
    def reference_free(cls) -> frozenset[str]:
        """The column, if all inputs are reference-free."""
        requests = cls.requests()
        free = all(entry.column in requests[entry.label].metric.reference_free() for entry in cls.file.inputs)
        return frozenset(cls.columns) if free else frozenset()

    def inputs(self) -> Sequence[Metric]:
        return list(self._metrics.values())

    def training_records(self) -> Sequence[TrainingRecord]:
        """The images with the judgements that it was fitted to, and the inputs' records."""
        records = [record for metric in self._metrics.values() for record in metric.training_records()]
        if self.file.learner == "mean-rank":  # uses no judgements
            return records
        fitted = Digests.of_hex(self.file.learnt_images, _DIGEST_SIZE)
        return [TrainingRecord(self.path.name, fitted=fitted), *records]

    def prepare(self, items: Sequence[Item]) -> None:
        """Prepare the inputs; warn of those whose signature changed, once per file: metrics are prepared repeatedly."""
        super().prepare(items)
        fitted = {entry.label: entry.signature for entry in self.file.inputs}
        for label, metric in self._metrics.items():
            now, then = _parts(metric.signature()), _parts(fitted[label])
            for key in {**then, **now}:
                before, after = then.get(key, "none"), now.get(key, "none")
                message = f"{self.path.name} was fitted with {label} of {key} {before}, which is now {after}"
                if before != after and message not in self.warned:
                    self.warned.append(message)
                    warnings.warn(message, CapbenchWarning, stacklevel=2)

    def combine_each(self, columns: Sequence[Mapping[str, FloatArray]]) -> FloatArray:
        of = dict(zip(self._metrics, columns, strict=True))
        inputs = [of[it.label][it.column] * (-1.0 if it.lower_is_better else 1.0) for it in self.file.inputs]
        return self._fit.scores(np.stack(inputs, axis=1))[:, None]

    def facts(self) -> Mapping[str, object]:
        fitted = {"learner": self.file.learner, "learnt": self.file.protocol, "seed": self.file.seed}
        return {"sha256": self.digest[:16], **fitted, **super().facts()}

    def signature(self) -> str:
        """``combination:NAME|capbench:…|sha256:…|learner:…|learnt:…|seed:…|of:…``, the inputs' signatures last."""
        return signature_line(f"combination:{self.path.name}", type(self), self.facts(), self.options)


def metric_of_combination(path: str | Path) -> type[SavedCombination]:
    """A saved combination as a metric class, named after its file."""
    path = Path(path)
    combination = read_combination(path)
    name = as_label(path.stem, "combination")
    if name.lower() in {"all", *(known.lower() for known in metric_columns())}:
        name = f"combination-{name}"
    content = {
        "__doc__": f"The combination {path.name}.",
        "name": name,
        "columns": (name,),
        "titles": {name: name},
        "file": combination,
        "path": path,
        "digest": sha256_file(path),
        "warned": [],
    }
    made: type[SavedCombination] = type("SavedCombination", (SavedCombination,), content)
    metrics = dict.fromkeys(entry.metric for entry in combination.inputs)
    made.needs = (*(() if made.reference_free() else (References(),)), Columns(*metrics))
    return made


def _parts(signature: str) -> dict[str, str]:
    """Parts of a signature by key, without those that identify captions and images."""
    return dict(part.partition(":")[::2] for part in _OF_THE_DATA.sub("", signature).split("|") if part)

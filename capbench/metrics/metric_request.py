"""A metric request: class, columns, options and label, and the table rows that it fills."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from capbench.core.errors import CapbenchError, DataError, FeatureError, ModelError, UsageError
from capbench.core.records import Item, ScoreColumn
from capbench.metrics.base import Metric
from capbench.metrics.needs import Columns, Features, ImageArgument, Images, Need, Resources

_OF_FILES = ("damaged", "missing-key", "unreadable", "wrong-format", "wrong-shape", "wrong-version")
FOR_ALL = ""  # Owner of options that apply to every metric that declares them


@dataclass(frozen=True)
class GivenMetric:
    """A metric that is passed as a class instead of a name; from Python."""

    metric: type[Metric]  # the class
    label: str = ""  # its label; by default the metric's name


Asked = str | GivenMetric  # Ways to request a metric: a name or a class


@dataclass(frozen=True)
class Row:
    """One row of a study's tables: a column of a request."""

    key: ScoreColumn  # label and column
    metric: str  # the metric's name
    name: str  # its name among all rows of the study
    title: str  # title in tables


@dataclass(frozen=True)
class MetricRequest:
    """A metric with options, requested columns and a label."""

    metric: type[Metric]  # its class
    columns: tuple[str, ...]  # the requested columns in their order
    options: Mapping[str, Any] = field(default_factory=dict)  # the user's options, checked
    label: str = ""  # identifier in results and flags; by default the metric's name
    title: str = ""  # title of the main column in tables; ``""`` for the metric's own title

    def __post_init__(self) -> None:
        if not self.label:
            object.__setattr__(self, "label", self.metric.name)

    @property
    def score_columns(self) -> tuple[ScoreColumn, ...]:
        """The requested columns with their label."""
        return tuple(ScoreColumn(self.label, column) for column in self.columns)

    @property
    def ignores_references(self) -> frozenset[str]:
        """Columns that do not use references under the request's options."""
        return self.metric.ignores_references(self.options)

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows of the requested columns.

        Under a label of its own, the main column's row is named after the label, and other rows ``label.column``.
        """
        return tuple(
            Row(key, self.metric.name, self._name(key.column), self._title(key.column)) for key in self.score_columns
        )

    def _name(self, column: str) -> str:
        if self.label == self.metric.name:
            return column
        main = self.metric.columns_under(self.options, self.metric.columns)[0]  # of several layers, that of the first
        return self.label if column == main else f"{self.label}.{column}"

    def _title(self, column: str) -> str:
        title = self.metric.titles.get(column, column)
        if self.title:
            return self.title if column == self.columns[0] else f"{self.title}, {title}"
        return title if self.label == self.metric.name else f"{title} ({self.label})"

    def given(self, resources: Resources) -> Resources:
        """The resources that belong to this request. Raises ModelError as :meth:`Resources.of`."""
        return self.metric.given(resources, self.label)

    def missing(self, resources: Resources) -> list[tuple[Need, str]]:
        """The unmet needs, each with a description of what is missing."""
        return self.metric.missing(self.given(resources), self.options, self.label)

    def lacks(self, resources: Resources) -> str:
        """Missing requirements, to follow "requires" or "missing:", except what may be spared; ``""`` if nothing."""
        return " and ".join(reason for need, reason in self.missing(resources) if not need.may_be_spared)

    def unmet_by(self, items: Sequence[Item], resources: Resources) -> CapbenchError | None:
        """The error of scoring items that lack features, an image file or the like; None if all can be scored.

        A damaged file is raised: it is not something that the items lack.
        """
        try:
            self.metric.check_captions(items)
            self.metric.check_items(items, self.given(resources), self.options)
        except CapbenchError as error:
            if isinstance(error, DataError | FeatureError) and error.code in _OF_FILES:
                raise
            return error
        return None

    def needs(self, kind: type[Need]) -> bool:
        """True if the metric declares a need of this kind."""
        return any(isinstance(need, kind) for need in self.metric.needs)

    def reads_features(self) -> bool:
        """True if the metric reads region features under its options."""
        options = self.metric.option_type.read(self.label, self.options)
        return any(isinstance(need, Features) and need.reads_store(options) for need in self.metric.needs)

    def requires_images(self) -> bool:
        """True if the metric, or one whose columns it combines, receives images or their region features."""
        combined = (single for need in self.metric.needs if isinstance(need, Columns) for single in need.each())
        if self.needs(Images) or self.needs(ImageArgument) or self.reads_features():
            return True
        return any(isinstance(need, Images | Features) for need in combined)

    def takes_parses(self, resources: Resources) -> bool:
        """True if its scores require SPICE's parses."""
        try:
            given = self.given(resources)
        except ModelError:  # missing weights: making the metric reports them
            given = Resources()
        return self.metric.takes_parses(given)

    def make(self, resources: Resources) -> Metric:
        """Build the metric with the label's resources. Raises UsageError for an invalid option."""
        try:
            return self.metric(self.given(resources), **self.options)
        except CapbenchError:
            raise
        except (TypeError, ValueError) as error:
            raise UsageError(f"options of {self.label}: {error}", value=self.label) from error

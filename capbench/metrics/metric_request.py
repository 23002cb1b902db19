"""A metric that is requested: its class, its columns, its options and a label, and the rows that it fills.

What a request lacks, and what of all that is given belongs to it, follows from the class's needs and abilities.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from capbench.core.errors import CapbenchError, ModelError, UsageError
from capbench.core.records import ScoreColumn
from capbench.metrics.abilities import IgnoresReferences, OffersByWeights, PassesOn
from capbench.metrics.base import Metric, Resources, columns_under, lacking
from capbench.metrics.needs import Features, Need, Parser

__all__ = ["MetricRequest", "Row"]


@dataclass(frozen=True)
class Row:
    """One row of a study's tables: a column of a request.

    Attributes:
        key: label and column.
        metric: the metric's name.
        name: its name among all rows of the study.
        title: what it is called in tables.
    """

    key: ScoreColumn
    metric: str
    name: str
    title: str


@dataclass(frozen=True)
class MetricRequest:
    """A metric with options, the columns of it that were asked for, and a label.

    Attributes:
        metric: its class.
        columns: the columns, in the order asked for.
        options: the options that are given, checked.
        label: its identity in results and flags; the metric's name by default.
        title: what its main column is called in tables, if not what the metric calls it.
    """

    metric: type[Metric]
    columns: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    title: str = ""

    def __post_init__(self) -> None:
        if not self.label:
            object.__setattr__(self, "label", self.metric.name)

    @property
    def score_columns(self) -> tuple[ScoreColumn, ...]:
        """The requested columns, named with their label."""
        return tuple(ScoreColumn(self.label, column) for column in self.columns)

    @property
    def needs_references(self) -> bool:
        """Whether a requested column needs references of every item."""
        return not self.metric.reference_free().issuperset(self.columns)

    @property
    def ignores_references(self) -> frozenset[str]:
        """Columns that look at no references under its options."""
        if issubclass(self.metric, IgnoresReferences):
            return self.metric.ignores_references(self.options)
        return self.metric.reference_free()

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows of the requested columns.

        A row is named by its column under the metric's own name; else by the label, with the column behind a dot
        unless it is the main one.
        """
        return tuple(
            Row(key, self.metric.name, self._name(key.column), self._title(key.column)) for key in self.score_columns
        )

    def _name(self, column: str) -> str:
        if self.label == self.metric.name:
            return column
        return self.label if column == self._main else f"{self.label}.{column}"

    @property
    def _main(self) -> str:
        """The metric's main column, of several layers the first one's."""
        return columns_under(self.metric, self.options, self.metric.columns)[0]

    def _title(self, column: str) -> str:
        title = self.metric.titles.get(column, column)
        if self.title:
            return self.title if column == self.columns[0] else f"{self.title}, {title}"
        return title if self.label == self.metric.name else f"{title} ({self.label})"

    def given(self, resources: Resources) -> Resources:
        """What of all that is given belongs to this request. Raises ModelError, see :meth:`Resources.of`."""
        if issubclass(self.metric, PassesOn):
            return self.metric.given(resources, self.label)
        return resources.of(self.label, self.metric.name)

    def lacking(self, resources: Resources) -> list[tuple[Need, str]]:
        """The needs that are not met, each with what is lacking."""
        return lacking(self.metric, self.given(resources), self.options, self.label)

    def lacks(self, resources: Resources) -> str:
        """What must be given before it can be computed (it follows "waits for"); ``""`` if nothing.

        Needs that may be spared (a parser, where everything was parsed before) do not count: the metric is tried.
        """
        return " and ".join(reason for need, reason in self.lacking(resources) if not need.may_be_spared)

    def needs(self, kind: type[Need]) -> bool:
        """Whether the metric declares a need of a kind."""
        return any(isinstance(need, kind) for need in self.metric.needs)

    def reads_features(self) -> bool:
        """Whether the metric reads region features under its options."""
        options = self.metric.option_type.read(self.label, self.options)
        return any(isinstance(need, Features) and need.reads_store(options) for need in self.metric.needs)

    def takes_parses(self, resources: Resources) -> bool:
        """True if its scores require SPICE's parses."""
        if not issubclass(self.metric, OffersByWeights):
            return any(isinstance(single, Parser) for need in self.metric.needs for single in need.each())
        try:
            given = self.given(resources)
        except ModelError:  # weights that are not here: whoever makes the metric is told
            given = Resources()
        return self.metric.takes_parses(given)

    def make(self, resources: Resources) -> Metric:
        """Build the metric with what is given to its label. Raises UsageError if an option's value does not fit."""
        try:
            return self.metric(self.given(resources), **self.options)
        except CapbenchError:
            raise
        except (TypeError, ValueError) as error:
            raise UsageError(f"options of {self.label}: {error}") from error

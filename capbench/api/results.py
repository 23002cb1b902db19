"""Results of the functions of ``import capbench``: records with tables for pandas and notebooks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from capbench.core import records
from capbench.core.errors import check_choice
from capbench.core.records import FloatArray
from capbench.core.training_record import TrainingOverlap
from capbench.datasets.protocol import Protocol
from capbench.metrics import scoring
from capbench.metrics.metric_request import Row
from capbench.studies.results import ON_SAMPLE
from capbench.studies.score_files import Incomplete

if TYPE_CHECKING:
    import pandas as pd

    from capbench.stats.intervals import Interval

_SHOWN = 10
"""Maximum number of rows in a notebook."""


@dataclass(frozen=True, eq=False, repr=False)
class Judgements(records.Judgements):
    """Human judgements of the items of one data set under one protocol, as :func:`capbench.load` returns them."""

    protocol: Protocol | None = None  # the protocol; None if these judgements were not loaded under one
    sample: bool = False  # True if the data is the embedded synthetic sample

    @property
    def kind(self) -> Literal["ratings", "preferences", "items"]:
        """Kind of the protocol's data: ratings of items, preferences between two items, or items only."""
        spec = None if self.protocol is None else self.protocol.statistic
        return "items" if spec is None or spec.side == "none" else spec.side

    def rows(self, limit: int | None = None) -> list[dict[str, Any]]:
        """One record for each rating, pair of captions or item, depending on :attr:`kind`; the first ``limit`` ones.

        Ratings have ``image``, ``candidate_id``, ``candidate``, ``system``, ``group``, ``rating`` and ``rater``; pairs
        ``image``, ``first``, ``second``, ``preferred`` (+1, 0, -1) and ``group``; items those of ratings but the last
        two.
        """
        if self.kind == "items" or self.protocol is None:
            return [_item(item) for item in self.items[:limit]]
        human = self.protocol.statistic.human
        if self.kind == "ratings":
            ratings = self.ratings[human]
            values = zip(ratings.item.tolist(), ratings.value.tolist(), ratings.rater.tolist(), strict=True)
            return [{**_item(self.items[i]), "rating": value, "rater": rater} for i, value, rater in [*values][:limit]]
        pairs = self.preferences[human]
        rows = zip(pairs.first.tolist(), pairs.second.tolist(), pairs.preferred.tolist(), pairs.group, strict=True)
        return [
            {
                "image": self.items[a].image,
                "first": self.items[a].candidate,
                "second": self.items[b].candidate,
                "preferred": preferred,
                "group": group,
            }
            for a, b, preferred, group in [*rows][:limit]
        ]

    def to_frame(self) -> pd.DataFrame:
        """The :meth:`rows` as a data frame."""
        import pandas as pd

        return pd.DataFrame(self.rows())

    def _number(self) -> int:
        if self.kind == "items" or self.protocol is None:
            return len(self.items)
        human = self.protocol.statistic.human
        return len(self.ratings[human] if self.kind == "ratings" else self.preferences[human])

    def __repr__(self) -> str:
        name = self.protocol or f"{self.dataset}/{self.selection}"
        size = "" if self.kind == "items" else f"{self._number():,} {self.kind} of "
        return f"Judgements({name}: {size}{len(self.items):,} items{ON_SAMPLE if self.sample else ''})"

    def _repr_html_(self) -> str:
        return _html(self, self.rows(_SHOWN))


@dataclass(frozen=True, eq=False, repr=False)
class ScoreTable(records.ScoreTable):
    """Scores of captions, as :func:`capbench.score` returns them. ``table["cider"]`` has the scores of one column."""

    rows: tuple[Row, ...] = ()  # name, title and key of every column
    notes: tuple[str, ...] = ()  # on the captions and the score files
    sample: bool = False  # whether the captions are those of the embedded synthetic sample
    incomplete: Mapping[Row, Incomplete] = field(default_factory=dict)  # columns of score files without a result
    intervals: Mapping[records.ScoreColumn, Interval] = field(default_factory=dict)  # 95 %, of corpus scores
    fixed: tuple[str, ...] = ()  # labels of metrics whose document statistics are not resampled for the intervals
    file_columns: Mapping[str, str] = field(default_factory=dict)  # field of each column of a user's judgements, or ""
    missing_captions: int = 0  # number of images with references but without a caption
    training: tuple[TrainingOverlap, ...] = ()  # overlap of the captions with the training data of metrics
    # if the references are those of nocaps: ``domain``, ``images`` and the corpus score of each column, with the
    # document frequencies of the domain's own references
    domains: tuple[dict[str, Any], ...] = ()
    categories: Mapping[str, FloatArray] = field(default_factory=dict)  # (n,) F of SPICE's categories, NaN if undefined

    def __post_init__(self) -> None:
        values = {key: array.view() for key, array in self.values.items()}
        for array in values.values():
            array.setflags(write=False)
        object.__setattr__(self, "values", values)

    def __getitem__(self, column: str) -> FloatArray:
        """(n,) scores of a column, in the order of :attr:`items`, read-only. Raises UsageError with the choices."""
        return self.values[self._key(column)]

    def __len__(self) -> int:
        return len(self.items)

    def corpus_score(self, column: str) -> float:
        """The corpus-level score of a column (corpus BLEU, mean CIDEr). Raises UsageError with the choices."""
        return self.corpus[self._key(column)]

    def _key(self, column: str) -> records.ScoreColumn:
        keys = {row.name: row.key for row in self.rows}
        check_choice("column", column, list(keys))
        return keys[column]

    def summary(self) -> list[dict[str, Any]]:
        """For each column its corpus score, its interval if there is one, and the mean and the range over captions.

        ``score --json`` prints this value.
        """
        intervals = {key: {"interval": dataclasses.asdict(interval)} for key, interval in self.intervals.items()}
        return [
            {
                "metric": key.label,
                "column": key.column,
                "corpus": self.corpus[key],
                "mean": float(values.mean()),
                "min": float(values.min()),
                "max": float(values.max()),
                **intervals.get(key, {}),
            }
            for key, values in self.values.items()
        ]

    def by_category(self) -> dict[str, dict[str, Any]]:
        """Mean F-measure of each of SPICE's categories (None if undefined), and the number of captions behind it."""
        defined = {column: values[~np.isnan(values)] for column, values in self.categories.items()}
        return {c: {"mean": float(v.mean()) if len(v) else None, "n": len(v)} for c, v in defined.items()}

    @property
    def with_categories(self) -> records.ScoreTable:
        """The scores with those of SPICE's categories as further columns, to be written."""
        label = next((row.key.label for row in self.rows if row.key.column == "spice"), "")
        more = {records.ScoreColumn(label, column): values for column, values in self.categories.items()}
        return dataclasses.replace(self, values={**self.values, **more})

    def to_frame(self, *, long: bool = False) -> pd.DataFrame:
        """A row for each caption and a column for each metric's column.

        ``long``: True for a row for each distinct caption and column, with signatures, as ``capbench score --out``
        writes them.
        """
        import pandas as pd

        if long:
            return scoring.to_frame(self.with_categories)
        frame = pd.DataFrame([_item(item) for item in self.items])
        for row in self.rows:
            frame[row.name] = self.values[row.key]
        for column, values in self.categories.items():
            frame[column] = values
        return frame

    def __repr__(self) -> str:
        scores = ", ".join(f"{row.name} {self.corpus[row.key]:.4f}" for row in self.rows)
        return f"ScoreTable({self.dataset}, {len(self.items):,} captions: {scores}{ON_SAMPLE if self.sample else ''})"

    def _repr_html_(self) -> str:
        return _html(self, dataclasses.replace(self, intervals={}).summary())


def _item(item: records.Item) -> dict[str, Any]:
    return {name: getattr(item, name) for name in ("image", "candidate_id", "candidate", "system", "group")}


def _html(result: Judgements | ScoreTable, rows: Sequence[Mapping[str, Any]]) -> str:
    """A result with records for a notebook."""
    import pandas as pd

    lines = [repr(result), *result.notes]
    return "".join(f"<p>{escape(line)}</p>" for line in lines) + pd.DataFrame(rows).to_html(index=False, border=0)

"""What the functions of ``import capbench`` return: the rooms' records, which also show themselves in a notebook."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from capbench import records, scoring
from capbench.analyses.comparing import MetricComparison
from capbench.datasets.protocol import Protocol
from capbench.errors import UsageError, suggest
from capbench.metrics.requests import Row
from capbench.records import FloatArray
from capbench.studies.results import StudyResult

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ComparisonResult", "CorrelationResult", "Judgements", "ScoreTable"]

_ON_SAMPLE = ", on the embedded synthetic sample"
_SHOWN = 10
"""Rows that a notebook shows of what may have thousands."""


@dataclass(frozen=True, eq=False, repr=False)
class Judgements(records.Judgements):
    """What people said about the items of one data set under one protocol, as :func:`capbench.load` gives it.

    Attributes:
        protocol: the protocol; None if these judgements were not loaded under one.
        sample: True if the data is the embedded synthetic sample.
    """

    protocol: Protocol | None = None
    sample: bool = False

    @property
    def kind(self) -> Literal["ratings", "preferences", "items"]:
        """What the protocol is about: ratings of items, preferences between two, or items alone."""
        spec = None if self.protocol is None else self.protocol.statistic
        if spec is not None and spec.kind == "correlation":
            return "ratings"
        return "preferences" if spec is not None and spec.kind == "accuracy" else "items"

    def to_frame(self) -> pd.DataFrame:
        """One row for each rating, or each pair of captions, or each item, whatever :attr:`kind` says.

        Ratings have the columns ``image``, ``candidate_id``, ``candidate``, ``system``, ``group``, ``rating`` and
        ``rater``; pairs ``image``, ``first``, ``second``, ``preferred`` (+1, 0, -1) and ``group``; items the columns of
        ratings but the last two.

        Raises:
            MissingFileError: the human side is in a file that is not here.
        """
        import pandas as pd

        return pd.DataFrame(self._rows(None), columns=self._columns())

    def _columns(self) -> list[str]:
        item = ["image", "candidate_id", "candidate", "system", "group"]
        return {
            "ratings": [*item, "rating", "rater"],
            "preferences": ["image", "first", "second", "preferred", "group"],
            "items": item,
        }[self.kind]

    def _rows(self, most: int | None) -> list[list[Any]]:
        if self.kind == "preferences" and self.protocol is not None:
            pairs = self.preferences[self.protocol.statistic.human]
            numbers = zip(
                pairs.first.tolist(), pairs.second.tolist(), pairs.preferred.tolist(), pairs.group, strict=True
            )
            chosen = list(numbers)[:most]
            return [
                [self.items[a].image, self.items[a].candidate, self.items[b].candidate, preferred, group]
                for a, b, preferred, group in chosen
            ]
        if self.kind == "ratings" and self.protocol is not None:
            ratings = self.ratings[self.protocol.statistic.human]
            values = zip(ratings.item.tolist(), ratings.value.tolist(), ratings.rater.tolist(), strict=True)
            return [[*_item(self.items[i]), value, rater] for i, value, rater in list(values)[:most]]
        return [_item(item) for item in self.items[:most]]

    def _number(self) -> int:
        if self.kind == "items" or self.protocol is None:
            return len(self.items)
        human = self.protocol.statistic.human
        return len(self.ratings[human] if self.kind == "ratings" else self.preferences[human])

    def __repr__(self) -> str:
        name = self.protocol or f"{self.dataset}/{self.selection}"
        what = "" if self.kind == "items" else f"{self._number():,} {self.kind} of "
        return f"Judgements({name}: {what}{len(self.items):,} items{_ON_SAMPLE if self.sample else ''})"

    def _repr_html_(self) -> str:
        from capbench.reports.html import SAMPLE, document, html_table

        rows = [[str(cell) for cell in row] for row in self._rows(_SHOWN)]
        texts = 5 if self.kind != "preferences" else 3
        number = self._number()
        notes = [*([SAMPLE] if self.sample else []), *_more(number, self.kind), *self.notes]
        return document(html_table(self._columns(), rows, texts=texts, title=repr(self)), notes=notes)


@dataclass(frozen=True, eq=False, repr=False)
class ScoreTable(records.ScoreTable):
    """Scores of captions, as :func:`capbench.score` gives them. ``table["cider"]`` are the scores of one column.

    Attributes:
        rows: name, title and key of every column.
        notes: what is to be said of the captions or the files of scores, one line each.
        sample: True if the captions are those of the embedded synthetic sample.
    """

    rows: tuple[Row, ...] = ()
    notes: tuple[str, ...] = ()
    sample: bool = False

    def __getitem__(self, column: str) -> FloatArray:
        """(n,) scores of a column, in the order of :attr:`items`. Raises UsageError with the choices."""
        return self.values[self._key(column)]

    def __len__(self) -> int:
        return len(self.items)

    def corpus_score(self, column: str) -> float:
        """The corpus-level score of a column (corpus BLEU, mean CIDEr). Raises UsageError with the choices."""
        return self.corpus[self._key(column)]

    def _key(self, column: str) -> records.ScoreColumn:
        for row in self.rows:
            if row.name == column:
                return row.key
        raise UsageError(f"'{column}' is not scored", hint=suggest(column, [row.name for row in self.rows]))

    def summary(self) -> list[dict[str, Any]]:
        """For each column its corpus score, and the mean and the range over captions: what ``score --json`` prints."""
        return scoring.summary(self)

    def to_frame(self, *, long: bool = False) -> pd.DataFrame:
        """A row for each caption and a column for each metric's column.

        Args:
            long: a row for each caption and column instead, with signatures, as ``capbench score --out`` writes them;
                what stands among the captions several times then has one row.
        """
        import pandas as pd

        if long:
            return scoring.to_frame(self)
        frame = pd.DataFrame([_item(item) for item in self.items], columns=_ITEM_COLUMNS)
        for row in self.rows:
            frame[row.name] = self.values[row.key]
        return frame

    def __repr__(self) -> str:
        scores = ", ".join(f"{row.name} {self.corpus[row.key]:.4f}" for row in self.rows)
        return f"ScoreTable({self.dataset}, {len(self.items):,} captions: {scores}{_ON_SAMPLE if self.sample else ''})"

    def _repr_html_(self) -> str:
        from capbench.records import signature_lines
        from capbench.reports.html import SAMPLE, document, html_table

        heads = ["corpus", "mean", "min", "max"]
        rows = [
            [row.title, *(f"{line[head]:.4f}" for head in heads)]
            for row, line in zip(self.rows, self.summary(), strict=True)
        ]
        title = f"{self.dataset}: {len(self.items):,} captions"
        captions = [
            [item.image, item.candidate, *(f"{self.values[row.key][place]:.4f}" for row in self.rows)]
            for place, item in enumerate(self.items[:_SHOWN])
        ]
        return document(
            html_table(["metric", *heads], rows, title=title),
            html_table(["image", "candidate", *(row.title for row in self.rows)], captions, texts=2),
            notes=[*([SAMPLE] if self.sample else []), *_more(len(self.items), "captions"), *self.notes],
            signatures=signature_lines(self.signatures),
        )


class CorrelationResult(StudyResult):
    """How well metrics agree with people, as :func:`capbench.correlate` gives it; ``print(result)`` prints its tables.

    Attributes are those of :class:`capbench.studies.results.StudyResult`, which is what ``correlate --json`` prints.
    """

    @classmethod
    def of(cls, result: StudyResult) -> CorrelationResult:
        """The same result."""
        return cls.model_construct(**{name: getattr(result, name) for name in StudyResult.model_fields})

    def value(self, column: str, protocol: str | None = None, group: str = "") -> float:
        """One number.

        Args:
            column: the row's name (``cider``).
            protocol: id of its protocol; may be left out where there is but one.
            group: the group, ``""`` for overall.

        Raises:
            UsageError: there is no such number; the choices are listed.
        """
        ids = [info.id for info in self.protocols]
        if protocol is None and len(ids) != 1:
            raise UsageError(f"the result has {len(ids)} protocols", hint=f"Name one: {', '.join(ids)}")
        cell = self.cell(protocol or ids[0], column, group)
        if cell is None:
            known = [c.column for c in self.cells if c.protocol == (protocol or ids[0]) and c.group == group]
            reason = next((f": {m.reason}" for m in self.missing if m.column == column), "")
            where = f"{protocol or ids[0]}{f', {group}' if group else ''}"
            raise UsageError(f"there is no number of '{column}' under {where}{reason}", hint=suggest(column, known))
        return cell.value

    def to_frame(self) -> pd.DataFrame:
        """A row for each number: protocol, group, column, ``value``, its interval, ``rank`` and ``top`` from tests."""
        import pandas as pd

        from capbench.reports.markup import cell_rows
        from capbench.studies.results import Cell

        return pd.DataFrame(cell_rows(self), columns=[*Cell.model_fields, "difference", "rank", "top", "own_model"])

    def pairs_to_frame(self) -> pd.DataFrame:
        """A row for each test of two metrics; none without ``compare``."""
        import pandas as pd

        from capbench.studies.results import PairTest

        rows = [
            {"protocol": tests.protocol, "group": tests.group, **pair.model_dump(), "test": tests.test}
            for tests in self.comparisons
            for pair in tests.pairs
        ]
        return pd.DataFrame(rows, columns=["protocol", "group", *PairTest.model_fields, "test"])

    def __repr__(self) -> str:
        where = ", ".join(info.id for info in self.protocols) or "nothing"
        waiting = f", {len(self.missing)} not computed" if self.missing else ""
        scored = {cell.column for cell in self.cells}
        return (
            f"CorrelationResult({where}: {_listed(scored, self.columns)}{waiting}{_ON_SAMPLE if self.sample else ''})"
        )

    def __str__(self) -> str:
        from rich.console import Console

        from capbench.reports.html import SAMPLE
        from capbench.reports.terminal import print_result

        text = io.StringIO()
        console = Console(file=text, width=200, highlight=False, force_jupyter=False, color_system=None)
        if self.sample:
            console.print(SAMPLE, markup=False)
        print_result(self, console)
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())

    def _repr_html_(self) -> str:
        from capbench.reports.html import to_html

        return to_html(self)


@dataclass(frozen=True, repr=False)
class ComparisonResult(MetricComparison):
    """Intervals of metrics and tests between all pairs, as :func:`capbench.compare` gives them.

    Attributes:
        statistic: short name of the statistic (``τ-c``).
        percent: whether values are shown times 100.
    """

    statistic: str = ""
    percent: bool = False

    @classmethod
    def of(cls, comparison: MetricComparison, statistic: str, *, percent: bool) -> ComparisonResult:
        """The same comparison, with what its numbers are."""
        fields = {f.name: getattr(comparison, f.name) for f in dataclasses.fields(comparison)}
        return cls(**fields, statistic=statistic, percent=percent)

    def as_json(self) -> dict[str, Any]:
        """What ``compare --json`` prints."""
        given = {f.name for f in dataclasses.fields(MetricComparison)}
        return {name: value for name, value in dataclasses.asdict(self).items() if name in given}

    def to_frame(self) -> pd.DataFrame:
        """A row for each metric, the best first: ``metric``, ``value``, ``low``, ``high``, ``rank``, ``top``."""
        import pandas as pd

        rows = [
            {
                "metric": name,
                "value": value,
                "low": self.intervals[name].low,
                "high": self.intervals[name].high,
                "rank": self.table.ranks[name],
                "top": name in self.table.top,
            }
            for name, value in self.table.values.items()
        ]
        return pd.DataFrame(rows)

    def pairs_to_frame(self) -> pd.DataFrame:
        """A row for each pair: ``better``, ``worse``, ``difference``, its interval, p-values, ``significant``."""
        import pandas as pd

        return pd.DataFrame([dataclasses.asdict(pair) for pair in self.table.pairs])

    def __repr__(self) -> str:
        on_sample = _ON_SAMPLE if self.sample else ""
        return f"ComparisonResult({self.protocol}: {', '.join(self.table.values)}{on_sample})"

    def __str__(self) -> str:
        from capbench.reports.comparing import basis, sentence
        from capbench.reports.html import SAMPLE

        lines = [SAMPLE] if self.sample else []
        lines += [sentence(pair, self, self.statistic, percent=self.percent) for pair in self.table.pairs]
        return "\n".join([*lines, basis(self), *self.notes, *records.signature_lines(self.signatures)])

    def _repr_html_(self) -> str:
        from capbench.reports.comparing import comparison_html

        return comparison_html(self, self.statistic, percent=self.percent)


_ITEM_COLUMNS = ["image", "candidate_id", "candidate", "system", "group"]


def _item(item: records.Item) -> list[Any]:
    return [item.image, item.candidate_id, item.candidate, item.system, item.group]


def _more(number: int, what: str) -> Sequence[str]:
    return (f"the first {_SHOWN} of {number:,} {what}",) if number > _SHOWN else ()


def _listed(scored: set[str], columns: Mapping[str, str]) -> str:
    return ", ".join(name for name in columns if name in scored) or "no numbers"

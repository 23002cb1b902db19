"""Compares captioning systems by their corpus scores, and computes intervals of corpus scores."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import Unpack

from capbench import __version__
from capbench.core.errors import MetricError
from capbench.core.files import write_text
from capbench.core.records import FloatArray, IntArray, ScoreColumn, ScoreTable, references_hash
from capbench.core.training_record import training_overlap
from capbench.datasets.user.captions import SystemCaptions
from capbench.metrics.metric_request import MetricRequest, Row
from capbench.metrics.needs import Resources
from capbench.metrics.scoring import CorpusStatistics, score, warnings_of_captions
from capbench.stats.intervals import Interval
from capbench.stats.resampling import Bootstrap
from capbench.stats.systems import (
    CorpusGroup,
    SumScores,
    SystemPair,
    SystemTable,
    SystemTests,
    compare_corpora,
    corpus_intervals,
)
from capbench.studies.data_points import photograph_codes
from capbench.studies.results import Shown, TableChoices
from capbench.studies.scoring import ProgressFactory, no_progress

if TYPE_CHECKING:
    import pandas as pd

# Relative tolerance: sums and rows give the same corpus score except for the order of additions.
_AGREEMENT = 1e-9


@dataclass(frozen=True)
class SystemComparison(Shown):
    """Result of :func:`compare_systems`."""

    baseline: str  # the first system
    systems: tuple[str, ...]
    titles: dict[str, str]  # of each score, by its name
    images: int
    table: SystemTable
    fixed: dict[str, str]  # by label, what a metric computes from all images and keeps in every resample
    signatures: dict[str, str]  # by label
    signature: str  # everything else that can change a number
    warnings: tuple[str, ...] = ()  # about the captions and the metrics, each with the systems' names

    def as_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    def rows(self) -> list[dict[str, Any]]:
        """One record for each score and pair of systems: both values with their intervals, the difference, its test."""
        rows = []
        for pair in self.table.pairs:
            row: dict[str, Any] = {"metric": pair.score, "system": pair.system, "other": pair.other}
            for role in ("system", "other"):
                interval = self.table.intervals[pair.score][row[role]]
                row |= {f"{role}_{end}": getattr(interval, end) for end in ("value", "low", "high")}
            rows.append(row | {name: value for name, value in asdict(pair).items() if name not in (*row, "score")})
        return rows

    def to_frame(self) -> pd.DataFrame:
        """The :meth:`rows` as a data frame."""
        import pandas as pd

        return pd.DataFrame(self.rows())

    def _document(self, **choices: Unpack[TableChoices]) -> Any:
        from capbench.reports.systems import systems_document
        from capbench.reports.table import TableStyle

        return systems_document(self, TableStyle(**dict[str, Any](choices)))

    def write_html(self, path: str | os.PathLike[str]) -> None:
        """Write one self-contained page, as ``capbench compare-systems --report`` does."""
        from capbench.reports.systems import systems_html

        write_text(path, systems_html(self))

    def worse(self) -> list[SystemPair]:
        """Comparisons in which a system is significantly below the baseline."""
        pairs = [pair for pair in self.table.pairs if pair.other == self.baseline]
        return [pair for pair in pairs if pair.significant and pair.difference < 0]


def compare_systems(
    captions: SystemCaptions,
    requests: Sequence[MetricRequest],
    settings: SystemTests,
    *,
    resources: Resources | None = None,
    cache: bool = True,
    progress: ProgressFactory = no_progress,
) -> SystemComparison:
    """Score the systems, and resample their corpus scores over images.

    Document frequencies are those of the references of all images, in every resample. The first system is the baseline;
    the correction is over columns times pairs of systems.
    """
    systems = tuple(captions.items)
    rows = [row for request in requests for row in request.rows]
    tables: dict[str, ScoreTable] = {}
    kept: dict[str, dict[str, CorpusStatistics]] = {}
    for system, items in captions.items.items():
        with progress(system, len(items) * len(requests)) as step:
            tables[system] = score(
                items,
                requests,
                resources,
                dataset=system,
                cache=cache,
                progress=step,
                statistics_of=kept.setdefault(system, {}),
            )
    # Images are ordered by name, so that intervals do not depend on the order of files.
    coded = {system: photograph_codes(items) for system, items in captions.items.items()}
    units = coded[systems[0]][1]
    groups = tuple(
        _group(request, {s: (kept[s][request.label], coded[s][0], tables[s]) for s in systems}, units)
        for request in requests
    )
    resamples, draws = settings.draws(len(rows) * len(settings.pairs(systems)))
    with progress("resampling", resamples + (draws if settings.test == "permutation" else 0)) as step:
        table = compare_corpora(
            groups,
            {row.name: {system: tables[system].corpus[row.key] for system in systems} for row in rows},
            units,
            settings,
            step,
        )
    baseline = systems[0]
    by_image = sorted((item.image, references_hash(item.references)) for item in captions.items[baseline])
    facts: dict[str, object] = {  # everything besides the metrics that can change a number
        "capbench": __version__,
        "images": table.units,
        "refs": hashlib.blake2b(repr(by_image).encode(), digest_size=4).hexdigest(),
        "unit": "image",
        "interval": "percentile-95",
        "bootstrap": table.resamples,
        "test": "paired-permutation" if table.test == "permutation" else "paired-bootstrap",
        **({} if table.permutations is None else {"permutations": table.permutations}),
        "seed": table.seed,
        "correction": table.correction,
        "comparisons": len(table.pairs),
        "pairs": "all" if settings.all_pairs else "with-first",
        "alpha": f"{table.alpha:g}",
    }
    fixed = {label: statistics.metric.corpus_id() for label, statistics in kept[baseline].items()}
    return SystemComparison(
        baseline,
        systems,
        {row.name: row.title for row in rows},
        len(captions.items[baseline]),
        table,
        {label: named for label, named in fixed.items() if named},
        dict(tables[baseline].signatures),
        "|".join(["compare-systems", *(f"{key}:{value}" for key, value in facts.items())]),
        tuple(_warnings(tables, requests)),
    )


def _warnings(tables: Mapping[str, ScoreTable], requests: Sequence[MetricRequest]) -> Iterator[str]:
    """Warnings as for one system; those of several systems once."""
    systems: dict[str, list[str]] = {}
    for system, table in tables.items():
        lines = warnings_of_captions(table.items, requests)
        lines += [f"{label}: {line}" for label, of_label in table.cautions.items() for line in of_label]
        overlaps = [training_overlap(label, records, table.items) for label, records in table.trained_on.items()]
        lines += [f"{overlap.label}: {line}" for overlap in overlaps if (line := overlap.line())]
        for line in lines:
            systems.setdefault(line, []).append(system)
    for line, names in systems.items():
        yield f"{', '.join(names)}: {line}"


def intervals_of_corpus(
    table: ScoreTable,
    kept: Mapping[str, CorpusStatistics],
    requests: Sequence[MetricRequest],
    *,
    resamples: int = 1000,
    seed: int = 0,
    progress: ProgressFactory = no_progress,
) -> dict[ScoreColumn, Interval]:
    """95 % percentile intervals of corpus scores over images, from the statistics behind the scores by label."""
    unit, units = photograph_codes(table.items)
    groups = tuple(_group(request, {table.dataset: (kept[request.label], unit, table)}, units) for request in requests)
    rows = [row for request in requests for row in request.rows]
    estimates = {row.name: {table.dataset: table.corpus[row.key]} for row in rows}
    with progress("resampling", resamples) as step:
        intervals = corpus_intervals(groups, estimates, Bootstrap(units, resamples, seed), progress=step)
    return {row.key: intervals[row.name][table.dataset] for row in rows}


def _group(
    request: MetricRequest, systems: Mapping[str, tuple[CorpusStatistics, IntArray, ScoreTable]], units: int
) -> CorpusGroup:
    """The corpus scores of one request."""
    rows = request.rows
    sums = {system: _sums(kept, unit, units, rows, table) for system, (kept, unit, table) in systems.items()}
    return CorpusGroup(tuple(row.name for row in rows), sums)


def _sums(
    statistics: CorpusStatistics, unit: IntArray, units: int, rows: Sequence[Row], table: ScoreTable
) -> SumScores:
    """Corpus scores from sums. Raises MetricError if the metric has none, or if they do not reproduce its scores."""
    metric = statistics.metric

    def of_sums(sums: FloatArray) -> FloatArray:
        columns = metric.corpus_of_sums(sums)
        return np.column_stack([columns[row.key.column] for row in rows])

    terms = metric.corpus_terms(statistics.rows)
    if terms is not None:
        by_unit = SumScores.of_items(np.asarray(terms, dtype=np.float64), unit, units, of_sums)
        (total,) = by_unit.scores(by_unit.terms.sum(axis=0, keepdims=True))
        if np.allclose(total, [table.corpus[row.key] for row in rows], rtol=_AGREEMENT, atol=_AGREEMENT):
            return by_unit
    message = f"{metric.name} does not compute its corpus score from sums over captions, so it cannot be resampled"
    hint = "Define corpus_terms and corpus_of_sums, see docs/extend.md"
    raise MetricError(message, code="unsupported", value=metric.name, hint=hint)

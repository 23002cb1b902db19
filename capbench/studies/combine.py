"""Combinations of metrics that are learnt from a protocol's judgements, as columns beside the metrics themselves.

A combination's scores are out of fold (:mod:`capbench.stats.nested_cross_validation`): each caption's comes from
judgements of other images alone. So it stands in every table, interval and test as any metric does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from capbench import __version__
from capbench.core.errors import ProtocolError, StatisticError, UsageError
from capbench.core.records import FloatArray, IntArray, Judgements, ScoreColumn, ScoreTable, photograph
from capbench.datasets.base import Dataset
from capbench.datasets.protocol import Protocol, with_version
from capbench.metrics.base import Resources
from capbench.metrics.combination import CombinationFile, SavedInput, image_digest, saved_name
from capbench.metrics.needs import Scores
from capbench.metrics.requests import MetricRequest, Row
from capbench.stats.combination import Fit
from capbench.stats.intervals import draw_bootstrap
from capbench.stats.nested_cross_validation import learn, weight_intervals
from capbench.stats.pairwise_accuracy import aggregate
from capbench.stats.resampling import unit_codes
from capbench.studies.compare import USUAL_RESAMPLES, MetricComparison, compare_scored, refuse_means, score_all
from capbench.studies.evaluate import agreement, check_human_side
from capbench.studies.judged import ProgressFactory, Scored, judge, no_progress
from capbench.studies.study import METRIC, CombineSettings, TestSettings

if TYPE_CHECKING:
    from capbench.stats.combination import Examples, Learner
    from capbench.stats.nested_cross_validation import OutOfFold, Settings

__all__ = [
    "Combined",
    "Input",
    "InputPart",
    "Learnt",
    "PlannedCombination",
    "Transfer",
    "combine_metrics",
    "examples_of",
    "image_codes",
    "inputs_of",
    "learn_out_of_fold",
    "learner_for",
    "matrix_of",
    "refuse_unlearnable",
    "row_of",
    "signed_inputs",
    "with_column",
]


T = TypeVar("T")


@dataclass(frozen=True)
class Input:
    """A column that is combined.

    Attributes:
        row: the column, with its name and title.
        lower_is_better: whether it is turned.
    """

    row: Row
    lower_is_better: bool = False

    @property
    def sign(self) -> float:
        """-1 if it is turned, else 1."""
        return -1.0 if self.lower_is_better else 1.0


@dataclass(frozen=True)
class PlannedCombination:
    """A combination whose names are resolved.

    Attributes:
        row: its row.
        inputs: what it combines.
        settings: how it is learnt.
    """

    row: Row
    inputs: tuple[Input, ...]
    settings: CombineSettings


@dataclass(frozen=True, eq=False)
class Learnt:
    """Out-of-fold scores of a combination on a protocol's items, and what they were learnt from.

    Attributes:
        values: (draws, items) scores.
        examples: the judgements beside the inputs' scores, of all draws.
        settings: how it was learnt.
        out_of_fold: folds, weights and penalties.
        signature: one line with everything that can change the scores.
        note: the same in words.
    """

    values: FloatArray
    examples: Examples
    settings: Settings
    out_of_fold: OutOfFold
    signature: str
    note: str


def row_of(label: str, title: str = "") -> Row:
    """The row of a combination."""
    return Row(ScoreColumn(label, METRIC), METRIC, label, title or label)


def inputs_of(rows: Sequence[Row], requests: Sequence[MetricRequest], lower: Sequence[str] = ()) -> tuple[Input, ...]:
    """Rows as inputs, turned where lower scores are better.

    Args:
        rows: the rows.
        requests: the metrics, some of which say that lower is better.
        lower: names of further rows, labels or metrics of which that is true.
    """
    declared = {ScoreColumn(request.label, column) for request in requests for column in request.metric.lower_is_better}
    return tuple(
        Input(row, row.key in declared or any(name in (row.name, row.key.label, row.metric) for name in lower))
        for row in rows
    )


def learner_for(protocol: Protocol, learner: str) -> Learner:
    """The learner that is meant.

    Raises:
        ProtocolError: the protocol has no human judgements, or they are of the other kind.
    """
    kind = protocol.statistic.kind
    if kind == "mean":
        raise ProtocolError(f"{protocol} has no human judgements to learn from")
    fits: Learner = "ridge" if kind == "correlation" else "logistic"
    if learner in ("auto", fits):
        return fits
    if learner == "monotone":
        return "monotone"
    what, other = ("ratings", "pairs") if kind == "correlation" else ("pairs", "ratings")
    raise ProtocolError(f"{learner} learns from {other}, and {protocol} has {what}", hint=f"Choose {fits} or monotone")


def image_codes(judgements: Judgements) -> tuple[IntArray, int]:
    """(items,) number of each item's photograph, and how many there are: one photograph may have two image ids."""
    return unit_codes([photograph(item.image) for item in judgements.items])


def matrix_of(tables: Sequence[ScoreTable], inputs: Sequence[Input]) -> FloatArray:
    """(draws, items, k) scores of the inputs, higher is better."""
    return np.stack(
        [np.stack([entry.sign * table.values[entry.row.key] for entry in inputs], axis=1) for table in tables]
    )


def examples_of(protocol: Protocol, judgements: Judgements, scores: FloatArray, unit: IntArray) -> Examples:
    """A protocol's judgements beside scores; several draws of references are that many examples of each judgement.

    Args:
        protocol: the protocol.
        judgements: the judgements of any draw: the human side is the same for all.
        scores: (draws, items, k) scores.
        unit: (items,) number of each item's image.

    Raises:
        MissingFileError: the human side is in a file that is not here.
    """
    from capbench.stats.combination import Examples

    check_human_side(protocol, judgements)
    spec, draws = protocol.statistic, len(scores)
    if spec.kind == "correlation":
        ratings = judgements.ratings[spec.human]
        item, human = aggregate(ratings.item, ratings.value, spec.aggregation)
        return Examples.of_ratings(np.concatenate(scores[:, item]), np.tile(human, draws), np.tile(unit[item], draws))
    pairs = judgements.preferences[spec.human]
    return Examples.of_pairs(
        np.concatenate(scores[:, pairs.first]),
        np.concatenate(scores[:, pairs.second]),
        np.tile(pairs.preferred, draws),
        np.tile(unit[pairs.first], draws),
    )


def refuse_unlearnable(protocol: Protocol, judgements: Judgements, settings: CombineSettings) -> None:
    """Refuse, before anything is scored, what no scores could be learnt to combine.

    Args:
        protocol: the protocol that is learnt from.
        judgements: its judgements, of any draw.
        settings: how.

    Raises:
        ProtocolError: see :func:`learner_for`.
        MissingFileError: the human side is in a file that is not here.
        StatisticError: see :func:`capbench.stats.nested_cross_validation.check_judgements`.
    """
    unit, _ = image_codes(judgements)
    examples = examples_of(protocol, judgements, np.zeros((1, len(judgements.items), 1)), unit)
    from capbench.stats.nested_cross_validation import check_judgements

    _named(protocol, lambda: check_judgements(examples, _settings(protocol, settings)))


def _settings(protocol: Protocol, settings: CombineSettings) -> Settings:
    from capbench.stats.nested_cross_validation import Settings

    return Settings(learner_for(protocol, settings.learner), settings.folds, settings.inner_folds, settings.seed)


def _named(protocol: Protocol, work: Callable[[], T]) -> T:
    """What some work gives; its errors name the protocol."""
    try:
        return work()
    except StatisticError as error:
        raise StatisticError(f"a combination under {protocol}: {error.message}", hint=error.hint) from error


def learn_out_of_fold(
    protocol: Protocol,
    draws: Sequence[Judgements],
    tables: Sequence[ScoreTable],
    inputs: Sequence[Input],
    settings: CombineSettings,
    progress: Callable[[int], None] = lambda _: None,
) -> Learnt:
    """Learn a combination from a protocol's judgements, and score all items out of fold.

    Args:
        protocol: the protocol.
        draws: its judgements, one for each draw.
        tables: their scores, which hold all inputs.
        inputs: what is combined.
        settings: how.
        progress: called with 1 for each outer fold.

    Raises:
        ProtocolError: see :func:`learner_for`.
        MissingFileError: the human side is in a file that is not here.
        StatisticError: see :func:`capbench.stats.nested_cross_validation.nested_scores`.
    """
    from capbench.stats.nested_cross_validation import nested_scores

    how = _settings(protocol, settings)
    scores = matrix_of(tables, inputs)
    unit, _ = image_codes(draws[0])
    examples = examples_of(protocol, draws[0], scores, unit)
    names = [entry.row.title for entry in inputs]
    captions, units = np.concatenate(scores), np.tile(unit, len(scores))
    result = _named(protocol, lambda: nested_scores(examples, captions, units, how, names, progress))
    signature = _signature(protocol, tables[0].signatures, inputs, how)
    note = (
        f"{how.learner} over {', '.join(_spelled(entry) for entry in inputs)}; every caption is scored by what was "
        f"learnt on other images ({how.folds} folds, {how.inner_folds} inner folds choose the penalty, "
        f"seed {how.seed})"
    )
    return Learnt(result.scores.reshape(len(scores), -1), examples, how, result, signature, note)


def with_column(
    tables: Sequence[ScoreTable], key: ScoreColumn, values: FloatArray, signature: str
) -> tuple[ScoreTable, ...]:
    """Tables with one more column.

    Args:
        tables: one for each draw.
        key: the column.
        values: (draws, items) its scores.
        signature: its signature.
    """
    return tuple(
        replace(
            table,
            values={**table.values, key: row},
            corpus={**table.corpus, key: float(row.mean())},
            signatures={**table.signatures, key.label: signature},
        )
        for table, row in zip(tables, values, strict=True)
    )


def _spelled(entry: Input) -> str:
    return f"{entry.row.title} (turned)" if entry.lower_is_better else entry.row.title


def _signature(protocol: Protocol, signatures: Mapping[str, str], inputs: Sequence[Input], settings: Settings) -> str:
    """What the scores depend on. Of the protocol it is the items and the human side, not the statistic."""
    spec = protocol.statistic
    aggregation = f",{spec.aggregation}" if spec.kind == "correlation" else ""
    items = with_version(f"{protocol.dataset}/{protocol.items.name}", protocol.version)
    parts = [
        METRIC,
        f"capbench:{__version__}",
        f"learner:{settings.learner}",
        f"out-of-fold:{settings.folds}x{settings.inner_folds}-by-photograph",
        f"seed:{settings.seed}",
        f"learnt:{items},{spec.human}{aggregation}",
        f"of:{signed_inputs(inputs, signatures)}",
    ]
    return "|".join(parts)


def signed_inputs(inputs: Sequence[Input], signatures: Mapping[str, str]) -> str:
    """The inputs with their signatures, without a bar; one that is turned has a minus before it."""
    return "+".join(
        f"{'-' if entry.lower_is_better else ''}{entry.row.name}[{signatures[entry.row.key.label].replace('|', ',')}]"
        for entry in inputs
    )


# A combination of metrics learnt from one protocol's judgements: how it agrees, what it is made of, how it travels.
#
# Its scores on the protocol's own items are out of fold, by image. On another data set it is the combination that was
# learnt from all judgements; captions of images that were among them are scored by the fold that was learnt without.

_LEVEL = 0.95


@dataclass(frozen=True)
class InputPart:
    """What one metric is in a combination.

    Attributes:
        title: the metric.
        lower_is_better: whether it is turned.
        weight: what one of its standard deviations moves the score: points of the ratings' scale, or log-odds of being
            preferred.
        weight_low: lower end of its bootstrap interval over images.
        weight_high: upper end.
        without: agreement of the combination that was learnt without it; None for the only one.
        drop: agreement of the combination minus ``without``.
        drop_low: lower end of the drop's interval, from the same resamples of images for both.
        drop_high: upper end.
    """

    title: str
    lower_is_better: bool
    weight: float
    weight_low: float
    weight_high: float
    without: float | None = None
    drop: float | None = None
    drop_low: float | None = None
    drop_high: float | None = None


@dataclass(frozen=True)
class Transfer:
    """A combination on another data set.

    Attributes:
        comparison: the combination beside the metrics there.
        images: image ids there.
        shared: those of them that show a photograph which was learnt from, too, under whichever id; their captions
            are scored by folds without it.
        shared_photographs: number of these photographs.
    """

    comparison: MetricComparison
    images: int
    shared: int
    shared_photographs: int


@dataclass(frozen=True)
class Combined:
    """What :func:`combine_metrics` found.

    Attributes:
        comparison: the combination, out of fold, beside the metrics.
        title: what it is called.
        settings: learner, folds and seed.
        images: photographs with judgements.
        on_pairs: whether these are choices between two captions, and not ratings.
        penalty: the penalty of the combination that was learnt from all of them.
        fold_penalties: those that were chosen without each fold.
        parts: what each metric is in it.
        transfers: how it does on other data sets.
        tables: out-of-fold scores of all items, one table for each draw.
        file: the combination that was learnt from all judgements; None if one of its metrics cannot be saved.
        untried: protocols of other data sets that it could not be tried on, with the reason: a file of scores lacks
            scores there.
    """

    comparison: MetricComparison
    title: str
    settings: Settings
    images: int
    on_pairs: bool
    penalty: float
    fold_penalties: tuple[float, ...]
    parts: tuple[InputPart, ...]
    transfers: tuple[Transfer, ...]
    tables: tuple[ScoreTable, ...]
    file: CombinationFile | None
    untried: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Plain values for JSON, without the scores."""
        values = asdict(replace(self, tables=(), file=None))
        del values["tables"], values["file"]
        return {**values, "combination": None if self.file is None else self.file.model_dump(mode="json")}


def combine_metrics(
    dataset: Dataset,
    protocol: Protocol,
    requests: Sequence[MetricRequest],
    settings: CombineSettings | None = None,
    *,
    tests: Sequence[tuple[Dataset, Protocol]] = (),
    label: str = "combination",
    lower: Sequence[str] = (),
    compare: TestSettings | None = None,
    resources: Resources | None = None,
    cache: bool = True,
    progress: ProgressFactory = no_progress,
) -> Combined:
    """Learn a combination, and measure it.

    Args:
        dataset: the data set that is learnt from.
        protocol: one of its protocols with human judgements.
        requests: the metrics; every requested column is combined.
        settings: how it is learnt.
        tests: other data sets, with a protocol each, that it is tried on.
        label: what it is called.
        lower: names of metrics or columns whose lower scores are better, beside those that say so themselves.
        compare: of the tests between metrics; its number of resamples is that of all intervals.
        resources: what metrics need beside captions.
        cache: whether the score cache is used.
        progress: makes progress bars.

    Raises:
        UsageError: the label is that of a metric, or a name of ``lower`` is none.
        ProtocolError, StatisticError: it cannot be learnt from these judgements.
        DataError, MetricError, …: loading or scoring failed.
    """
    for _, other in tests:
        refuse_means(other)
    rows = [row for request in requests for row in request.rows]
    inputs = _inputs(rows, requests, label, lower)
    compare = compare or TestSettings(resamples=USUAL_RESAMPLES)
    task = _Task(
        protocol,
        tuple(requests),
        inputs,
        row_of(label),
        settings or CombineSettings(),
        compare,
        resources,
        cache,
        progress,
        tuple(rows),
    )
    scored = task.score(dataset, protocol, lambda judgements: refuse_unlearnable(protocol, judgements, task.settings))
    # Columns of files without scores of all items are left out of the combination, and named.
    complete = scored.complete(rows)
    inputs = tuple(entry for entry in inputs if entry.row in complete)
    task = replace(task, inputs=inputs)
    untried = {str(other): reason for there, other in tests if (reason := task.unscored_on(there, other))}
    learnt = task.learn(scored, inputs, f"learning from {dataset.name}")
    joined = replace(scored, tables=with_column(scored.tables, task.row.key, learnt.values, learnt.signature))
    comparison = task.compared(protocol, joined)
    whole, penalty = learn(learnt.examples, learnt.settings, task.titles, stream=0)
    return Combined(
        comparison=comparison,
        title=task.row.title,
        settings=learnt.settings,
        images=len(np.unique(learnt.examples.unit)),
        on_pairs=learnt.examples.target is None,
        penalty=penalty,
        fold_penalties=learnt.out_of_fold.penalties,
        parts=_parts(task, joined, learnt, whole, penalty),
        transfers=tuple(
            _transfer(task, scored, learnt, whole, *entry) for entry in tests if str(entry[1]) not in untried
        ),
        untried=untried,
        tables=tuple(_alone(table, task.row) for table in joined.tables),
        file=_file(task, scored, learnt, whole, penalty),
    )


@dataclass(frozen=True)
class _Task:
    """What is asked for: the protocol that is learnt from, metrics, inputs, the combination's row, and how."""

    protocol: Protocol
    requests: tuple[MetricRequest, ...]
    inputs: tuple[Input, ...]
    row: Row
    settings: CombineSettings
    compare: TestSettings
    resources: Resources | None
    cache: bool
    progress: ProgressFactory
    rows: tuple[Row, ...]

    @property
    def titles(self) -> list[str]:
        """Titles of the inputs."""
        return [entry.row.title for entry in self.inputs]

    @property
    def resamples(self) -> int:
        """Number of resamples of intervals."""
        return self.compare.resamples or USUAL_RESAMPLES

    def score(self, dataset: Dataset, protocol: Protocol, check: Callable[[Judgements], None] | None = None) -> Scored:
        """The metrics' scores; ``check`` is that of :func:`capbench.studies.compare.score_all`."""
        return score_all(
            dataset,
            protocol,
            self.requests,
            self.resources,
            cache=self.cache,
            progress=self.progress,
            check=check,
        )

    def unscored_on(self, dataset: Dataset, protocol: Protocol) -> str:
        """Why the combination cannot be tried on a data set: what is wrong with a file of scores there; ``""`` if it
        can."""
        if not any(request.needs(Scores) for request in self.requests):
            return ""
        keys = {entry.row.key for entry in self.inputs}
        lacking = judge(dataset, protocol.items, self.requests, self.resources, cache=self.cache).lacking
        of_files = [less for less in lacking if less.of_file and not keys.isdisjoint(less.request.score_columns)]
        return f"{of_files[0].in_words()}: {of_files[0].error}" if of_files else ""

    def learn(self, scored: Scored, inputs: Sequence[Input], what: str) -> Learnt:
        """Out-of-fold scores of a combination of some inputs."""
        with self.progress(what, self.settings.folds) as step:
            return learn_out_of_fold(self.protocol, scored.draws, scored.tables, inputs, self.settings, step)

    def compared(self, protocol: Protocol, scored: Scored) -> MetricComparison:
        """The combination beside its metrics."""
        with self.progress(f"intervals and tests on {scored.dataset.name}", None):
            comparison = compare_scored(
                protocol, scored, [*(entry.row for entry in self.inputs), self.row], self.compare
            )
            return replace(comparison, incomplete=scored.incomplete(self.rows))


def _inputs(
    rows: Sequence[Row], requests: Sequence[MetricRequest], label: str, lower: Sequence[str]
) -> tuple[Input, ...]:
    names = {name for row in rows for name in (row.name, row.key.label, row.metric)}
    if label in names:
        raise UsageError(f"the combination cannot be called '{label}', as one of its metrics is", hint="Rename it")
    for name in lower:
        if name not in names:
            choices = ", ".join(dict.fromkeys(row.name for row in rows))
            raise UsageError(f"'{name}' is none of the metrics that are combined", hint=f"Choices: {choices}")
    return inputs_of(rows, requests, lower)


def _alone(table: ScoreTable, row: Row) -> ScoreTable:
    """The table with the column of one row."""
    return ScoreTable(
        table.dataset,
        table.items,
        {row.key: table.values[row.key]},
        {row.key: table.corpus[row.key]},
        {row.key.label: table.signatures[row.key.label]},
    )


def _parts(task: _Task, joined: Scored, learnt: Learnt, whole: Fit, penalty: float) -> tuple[InputPart, ...]:
    """Weights of the combination that was learnt from everything, and what is lost without each metric."""
    seed, unit = task.compare.seed, task.compare.unit
    with task.progress("intervals of the weights", task.resamples) as step:
        weights = weight_intervals(
            learnt.examples,
            whole,
            learnt.settings,
            penalty,
            resamples=task.resamples,
            seed=seed,
            level=_LEVEL,
            progress=step,
        )
    parts = [
        InputPart(entry.row.title, entry.lower_is_better, weight.value, weight.low, weight.high)
        for entry, weight in zip(task.inputs, weights, strict=True)
    ]
    if len(parts) < 2:
        return tuple(parts)
    scores = {task.row.title: np.stack([table.values[task.row.key] for table in joined.tables])}
    for entry in task.inputs:
        rest = [other for other in task.inputs if other is not entry]
        name = f"without {entry.row.title}"
        scores[name] = task.learn(joined, rest, name).values
    data = agreement(task.protocol, joined.draws[0], scores, unit)
    sample = draw_bootstrap(data, resamples=task.resamples, seed=seed, unit=unit)
    for place in range(len(parts)):
        drops = sample.values[0] - sample.values[1 + place]
        low, high = np.quantile(drops[~np.isnan(drops)], ((1 - _LEVEL) / 2, (1 + _LEVEL) / 2))
        without = float(sample.estimates[1 + place])
        parts[place] = replace(
            parts[place],
            without=without,
            drop=float(sample.estimates[0]) - without,
            drop_low=float(low),
            drop_high=float(high),
        )
    return tuple(parts)


def _transfer(
    task: _Task, scored: Scored, learnt: Learnt, whole: Fit, dataset: Dataset, protocol: Protocol
) -> Transfer:
    """The combination on another data set: captions of images that both hold are scored by folds without them."""
    there = task.score(dataset, protocol)
    unit, _ = image_codes(scored.draws[0])
    codes = dict(zip((photograph(item.image) for item in scored.draws[0].items), unit.tolist(), strict=True))
    # -1 is the combination that was learnt from everything; an image of our own has the fold that it was left out with.
    shown = [photograph(item.image) for item in there.draws[0].items]
    fold = np.array([learnt.out_of_fold.fold[codes[name]] if name in codes else -1 for name in shown])
    scores = matrix_of(there.tables, task.inputs)
    values = np.stack([whole.scores(draw) for draw in scores])
    for place, fit in enumerate(learnt.out_of_fold.fits):
        if (fold == place).any():
            values[:, fold == place] = np.stack([fit.scores(draw) for draw in scores[:, fold == place]])
    images = {item.image for item in there.draws[0].items}
    shared = sum(photograph(image) in codes for image in images)
    of = signed_inputs(task.inputs, there.tables[0].signatures)
    signature = f"{learnt.signature.partition('|of:')[0]}|shared-images:{shared}|of:{of}"
    tables = with_column(there.tables, task.row.key, values, signature)
    comparison = task.compared(protocol, replace(there, tables=tables))
    return Transfer(comparison, len(images), shared, len(codes.keys() & set(shown)))


def _digests(scored: Scored, examples: Examples) -> tuple[str, ...]:
    """The images of some examples."""
    unit, _ = image_codes(scored.draws[0])
    judged = set(np.unique(examples.unit).tolist())
    items = zip(unit.tolist(), scored.draws[0].items, strict=True)
    return tuple(sorted({image_digest(item.image) for code, item in items if code in judged}))


def _file(task: _Task, scored: Scored, learnt: Learnt, whole: Fit, penalty: float) -> CombinationFile | None:
    """The combination to be saved; None if other captions have no scores of one of its metrics."""
    try:
        names = {request.label: saved_name(request) for request in task.requests}
    except UsageError:
        return None
    by_label = {request.label: request for request in task.requests}
    owner = whole.basis.owner
    saved = []
    for place, entry in enumerate(task.inputs):
        request = by_label[entry.row.key.label]
        of_input = owner == place
        saved.append(
            SavedInput(
                name=entry.row.name,
                metric=names[request.label],
                label=request.label,
                column=entry.row.key.column,
                options=dict(request.options),
                lower_is_better=entry.lower_is_better,
                signature=scored.tables[0].signatures[request.label],
                center=float(whole.basis.centers[place]),
                scale=float(whole.basis.scales[place]),
                knots=tuple(whole.basis.knots[place].tolist()),
                means=tuple(whole.basis.means[of_input].tolist()),
                weights=tuple(whole.weights[of_input].tolist()),
            )
        )
    return CombinationFile(
        learner=learnt.settings.learner,
        protocol=task.protocol.versioned,
        learnt_images=_digests(scored, learnt.examples),
        examples=len(learnt.examples),
        seed=learnt.settings.seed,
        inner_folds=learnt.settings.inner_folds,
        penalty=penalty,
        intercept=whole.intercept,
        inputs=tuple(saved),
    )

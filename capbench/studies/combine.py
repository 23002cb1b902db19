"""Combinations of metrics that are learned from a protocol's judgements, as additional columns of scores.

A combination's scores are out of fold (:mod:`capbench.stats.nested_cross_validation`): the score of a caption comes
from a model fitted on judgements of other images. So tables, intervals and tests treat it like any other metric.
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
from capbench.metrics.combination import CombinationFile, SavedInput, image_digest, saved_name
from capbench.metrics.metric_request import MetricRequest, Row
from capbench.metrics.needs import Resources, Scores
from capbench.stats.combination import Fit
from capbench.stats.intervals import draw_bootstrap
from capbench.stats.nested_cross_validation import learn, weight_intervals
from capbench.stats.pairwise_accuracy import aggregate
from capbench.stats.resampling import unit_codes
from capbench.stats.significance import RESAMPLES
from capbench.studies.evaluate import agreement, check_human_side
from capbench.studies.judged import ProgressFactory, Scored, judge, no_progress, refuse_means, score_all
from capbench.studies.numbers import protocol_numbers, study_result
from capbench.studies.results import Missing, StudyResult
from capbench.studies.study import METRIC, BootstrapSettings, CombineSettings, Study, TestSettings

if TYPE_CHECKING:
    from capbench.stats.combination import Examples, Learner
    from capbench.stats.nested_cross_validation import OutOfFold, Settings

T = TypeVar("T")


@dataclass(frozen=True)
class Input:
    """An input column of a combination.

    Attributes:
        row: the column, with its name and title.
        lower_is_better: True if its sign is reversed.
    """

    row: Row
    lower_is_better: bool = False

    @property
    def sign(self) -> float:
        """-1 if the sign is reversed, else 1."""
        return -1.0 if self.lower_is_better else 1.0


@dataclass(frozen=True)
class PlannedCombination:
    """A combination whose names are resolved.

    Attributes:
        row: its row.
        inputs: its input columns.
        settings: how it is learned.
    """

    row: Row
    inputs: tuple[Input, ...]
    settings: CombineSettings


@dataclass(frozen=True, eq=False)
class Learned:
    """Out-of-fold scores of a combination on a protocol's items, with the fit behind them.

    Attributes:
        values: (draws, items) scores.
        examples: the judgements with the inputs' scores, of all draws.
        settings: settings of the fit.
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
    """Rows as inputs, with reversed signs where lower scores are better.

    Args:
        rows: the rows.
        requests: the metrics; each declares whether lower scores are better.
        lower: further names (rows, labels or metrics) whose lower scores are better.
    """
    declared = {ScoreColumn(request.label, column) for request in requests for column in request.metric.lower_is_better}
    return tuple(
        Input(row, row.key in declared or any(name in (row.name, row.key.label, row.metric) for name in lower))
        for row in rows
    )


def learner_for(protocol: Protocol, learner: str) -> Learner:
    """The learner that ``learner`` selects for a protocol.

    Raises:
        ProtocolError: the protocol has no human judgements, or the learner requires the other kind of judgements.
    """
    side = protocol.statistic.side
    if side == "none":
        raise ProtocolError(f"{protocol} has no human judgements to learn from", code="unsupported")
    fits: Learner = "ridge" if side == "ratings" else "logistic"
    if learner in ("auto", fits):
        return fits
    if learner == "monotone":
        return "monotone"
    if learner == "mean-rank":
        return "mean-rank"
    what, other = ("ratings", "pairs") if side == "ratings" else ("pairs", "ratings")
    raise ProtocolError(
        f"{learner} learns from {other}, and {protocol} has {what}",
        code="conflict",
        value=learner,
        hint=f"Choose {fits}, monotone or mean-rank",
    )


def image_codes(judgements: Judgements) -> tuple[IntArray, int]:
    """(items,) number of each item's photograph, and the number of photographs (one may have two image ids)."""
    return unit_codes([photograph(item.image) for item in judgements.items])


def matrix_of(tables: Sequence[ScoreTable], inputs: Sequence[Input]) -> FloatArray:
    """(draws, items, k) scores of the inputs, signed so that higher is better."""
    return np.stack(
        [np.stack([entry.sign * table.values[entry.row.key] for entry in inputs], axis=1) for table in tables]
    )


def examples_of(protocol: Protocol, judgements: Judgements, scores: FloatArray, unit: IntArray) -> Examples:
    """A protocol's judgements with scores as training examples; each draw of references repeats every judgement.

    Args:
        protocol: the protocol.
        judgements: the judgements of any draw (the human side is the same for all).
        scores: (draws, items, k) scores.
        unit: (items,) number of each item's image.

    Raises:
        MissingFileError: the file with the human side is missing.
    """
    from capbench.stats.combination import Examples

    check_human_side(protocol, judgements)
    spec, draws = protocol.statistic, len(scores)
    if spec.side == "ratings":
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
    """Reject, before scoring, judgements from which no combination can be learned.

    Args:
        protocol: the protocol with the training judgements.
        judgements: its judgements, of any draw.
        settings: settings of the fit.

    Raises:
        ProtocolError: see :func:`learner_for`.
        MissingFileError: the file with the human side is missing.
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
    """The result of ``work``; its errors name the protocol."""
    try:
        return work()
    except StatisticError as error:
        message = f"a combination under {protocol}: {error.message}"
        raise StatisticError(message, code=error.code, value=error.value, hint=error.hint) from error


def learn_out_of_fold(
    protocol: Protocol,
    draws: Sequence[Judgements],
    tables: Sequence[ScoreTable],
    inputs: Sequence[Input],
    settings: CombineSettings,
    progress: Callable[[int], None] = lambda _: None,
) -> Learned:
    """Learn a combination from a protocol's judgements, and score all items out of fold.

    Args:
        protocol: the protocol.
        draws: its judgements, one for each draw.
        tables: their scores, which hold all inputs.
        inputs: the input columns.
        settings: settings of the fit.
        progress: called with 1 for each outer fold.

    Raises:
        ProtocolError: see :func:`learner_for`.
        MissingFileError: the file with the human side is missing.
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
    note = f"{how.learner} over {', '.join(_spelled(entry) for entry in inputs)}; "
    if how.learner == "mean-rank":
        note += f"quantiles among the {len(examples.captions):,} judged captions; no judgement was used"
    else:
        note += (
            f"the score of each caption was learned on other images ({how.folds} folds, {how.inner_folds} inner folds "
            f"choose the penalty, seed {how.seed})"
        )
    return Learned(result.scores.reshape(len(scores), -1), examples, how, result, signature, note)


def with_column(
    tables: Sequence[ScoreTable], key: ScoreColumn, values: FloatArray, signature: str, inputs: Sequence[Input] = ()
) -> tuple[ScoreTable, ...]:
    """Tables with one more column.

    Args:
        tables: one for each draw.
        key: the column.
        values: (draws, items) scores of the column.
        signature: its signature.
        inputs: the columns that it combines; their training records are also its own.
    """
    of_inputs = (record for entry in inputs for record in tables[0].trained_on.get(entry.row.key.label, ()))
    records = tuple(dict.fromkeys(of_inputs))
    trained_on = {key.label: records} if records else {}
    return tuple(
        replace(
            table,
            trained_on={**table.trained_on, **trained_on},
            values={**table.values, key: row},
            corpus={**table.corpus, key: float(row.mean())},
            signatures={**table.signatures, key.label: signature},
        )
        for table, row in zip(tables, values, strict=True)
    )


def _spelled(entry: Input) -> str:
    return f"{entry.row.title} (turned)" if entry.lower_is_better else entry.row.title


def _signature(protocol: Protocol, signatures: Mapping[str, str], inputs: Sequence[Input], settings: Settings) -> str:
    """Everything that the scores depend on: of the protocol the items and the human side, not the statistic."""
    spec = protocol.statistic
    aggregation = f",{spec.aggregation}" if spec.side == "ratings" else ""
    items = with_version(f"{protocol.dataset}/{protocol.items.name}", protocol.version)
    how = [f"out-of-fold:{settings.folds}x{settings.inner_folds}-by-photograph", f"seed:{settings.seed}"]
    parts = [
        METRIC,
        f"capbench:{__version__}",
        f"learner:{settings.learner}",
        *([] if settings.learner == "mean-rank" else how),
        f"learnt:{items},{spec.human}{aggregation}",
        f"of:{signed_inputs(inputs, signatures)}",
    ]
    return "|".join(parts)


def signed_inputs(inputs: Sequence[Input], signatures: Mapping[str, str]) -> str:
    """The inputs with their signatures, without a bar; a minus marks a reversed sign."""
    return "+".join(
        f"{'-' if entry.lower_is_better else ''}{entry.row.name}[{signatures[entry.row.key.label].replace('|', ',')}]"
        for entry in inputs
    )


# capbench train combination: agreement of a combination, its weights, and its agreement on other data sets.
#
# Scores on the protocol's own items are out of fold, by image. Other data sets are scored with the combination learned
# from all judgements, except captions of training images: the fold that excludes the image scores these.

_LEVEL = 0.95


@dataclass(frozen=True)
class InputPart:
    """One metric's contribution to a combination.

    Attributes:
        title: title of the metric.
        lower_is_better: True if its sign is reversed.
        weight: change of the score per standard deviation of the metric: points of the ratings' scale, or log-odds of
            being preferred.
        weight_low: lower end of its bootstrap interval over images.
        weight_high: upper end.
        without: agreement of a combination learned without the metric; None for a single metric.
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
        comparison: the combination and the metrics on that data set.
        images: its image ids.
        shared: those of them that show a training photograph, under any id; folds without it score their captions.
        shared_photographs: number of these photographs.
    """

    comparison: StudyResult
    images: int
    shared: int
    shared_photographs: int


@dataclass(frozen=True)
class Combined:
    """Result of :func:`combine_metrics`.

    Attributes:
        comparison: the combination, out of fold, and the metrics.
        title: title of the combination.
        settings: learner, folds and seed.
        images: number of photographs with judgements.
        on_pairs: True if the judgements are choices between two captions, False for ratings.
        penalty: penalty of the combination learned from all judgements.
        fold_penalties: penalties chosen without each fold.
        parts: contribution of each metric.
        transfers: results on other data sets.
        tables: out-of-fold scores of all items, one table for each draw.
        file: the combination learned from all judgements; None if one of its metrics cannot be saved.
        untried: protocols of other data sets on which it could not be tested, with the reason: a score file has no
            scores of their items.
    """

    comparison: StudyResult
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
        values = asdict(replace(self, tables=(), file=None, transfers=()))
        del values["tables"], values["file"]
        values["comparison"] = self.comparison.model_dump(mode="json")
        values["transfers"] = [
            {**vars(transfer), "comparison": transfer.comparison.model_dump(mode="json")} for transfer in self.transfers
        ]
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
    """Learn a combination, and measure its agreement with human judgements.

    Args:
        dataset: data set with the training judgements.
        protocol: one of its protocols with human judgements.
        requests: the metrics; every requested column is combined.
        settings: settings of the fit.
        tests: other data sets to test it on, each with a protocol.
        label: label of the combination.
        lower: names of metrics or columns whose lower scores are better, in addition to metrics that declare it.
        compare: settings of the tests between metrics; all intervals have its number of resamples.
        resources: features, weights and images for the metrics.
        cache: True to use the score cache.
        progress: makes progress bars.

    Raises:
        UsageError: the label is that of a metric, or a name in ``lower`` is unknown.
        ProtocolError, StatisticError: no combination can be learned from these judgements.
        DataError, MetricError, …: loading or scoring failed.
    """
    for _, other in tests:
        refuse_means(other)
    rows = [row for request in requests for row in request.rows]
    inputs = _inputs(rows, requests, label, lower)
    compare = compare or TestSettings()
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
    # Columns of incomplete score files are left out of the combination, and named.
    complete = scored.complete(rows)
    inputs = tuple(entry for entry in inputs if entry.row in complete)
    task = replace(task, inputs=inputs)
    untried = {str(other): reason for there, other in tests if (reason := task.unscored_on(there, other))}
    learned = task.learn(scored, inputs, f"learning from {dataset.name}")
    joined = replace(scored, tables=with_column(scored.tables, task.row.key, learned.values, learned.signature, inputs))
    comparison = task.compared(protocol, joined)
    whole, penalty = learn(learned.examples, learned.settings, task.titles, stream=0)
    return Combined(
        comparison=comparison,
        title=task.row.title,
        settings=learned.settings,
        images=len(np.unique(learned.examples.unit)),
        on_pairs=learned.examples.target is None,
        penalty=penalty,
        fold_penalties=learned.out_of_fold.penalties,
        parts=_parts(task, joined, learned, whole, penalty),
        transfers=tuple(
            _transfer(task, scored, learned, whole, *entry) for entry in tests if str(entry[1]) not in untried
        ),
        untried=untried,
        tables=tuple(_alone(table, task.row) for table in joined.tables),
        file=_file(task, scored, learned, whole, penalty),
    )


@dataclass(frozen=True)
class _Task:
    """The request: protocol with the training judgements, metrics, inputs, the combination's row, settings."""

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
        return [entry.row.title for entry in self.inputs]

    @property
    def resamples(self) -> int:
        return self.compare.resamples or RESAMPLES

    def score(self, dataset: Dataset, protocol: Protocol, check: Callable[[Judgements], None] | None = None) -> Scored:
        """The metrics' scores; for ``check`` see :func:`capbench.studies.judged.score_all`."""
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
        """The problem of a score file that prevents a test on a data set; ``""`` without one."""
        if not any(request.needs(Scores) for request in self.requests):
            return ""
        keys = {entry.row.key for entry in self.inputs}
        lacking = judge(dataset, protocol.items, self.requests, self.resources, cache=self.cache).lacking
        of_files = [less for less in lacking if less.of_file and not keys.isdisjoint(less.request.score_columns)]
        return f"{of_files[0].in_words()}: {of_files[0].error}" if of_files else ""

    def learn(self, scored: Scored, inputs: Sequence[Input], what: str) -> Learned:
        with self.progress(what, self.settings.folds) as step:
            return learn_out_of_fold(self.protocol, scored.draws, scored.tables, inputs, self.settings, step)

    def compared(self, protocol: Protocol, scored: Scored) -> StudyResult:
        """The combination and the metrics under a protocol, with intervals and tests."""
        unit, seed = self.compare.unit, self.compare.seed
        study = Study(
            name="combination",
            title=f"{self.row.title} and its metrics",
            protocols=(str(protocol),),
            metrics=(),
            bootstrap=BootstrapSettings(resamples=self.resamples, unit=unit, seed=seed),
            compare=self.compare,
            human_ceiling=False,
        )
        rows = [*(entry.row for entry in self.inputs), self.row]
        with self.progress(f"intervals and tests on {scored.dataset.name}", None):
            numbers = protocol_numbers(study, protocol, scored, scored.tables, rows, no_progress, test_groups=False)
        incomplete = [
            Missing(protocol=str(protocol), column=row.name, title=row.title, reason=str(lacking.error))
            for row in self.rows
            for lacking in scored.lacking
            if lacking.of_file and row.key in lacking.request.score_columns
        ]
        key = f"{scored.dataset.name}/{protocol.items.name}"
        return study_result(
            study,
            [numbers],
            {row.name: row.title for row in rows},
            sample=False,
            signatures={key: scored.signatures},
            missing=tuple(incomplete),
            seconds={},
            training={key: scored.training} if scored.training else {},
        )


def _inputs(
    rows: Sequence[Row], requests: Sequence[MetricRequest], label: str, lower: Sequence[str]
) -> tuple[Input, ...]:
    names = {name for row in rows for name in (row.name, row.key.label, row.metric)}
    if label in names:
        raise UsageError(
            f"the combination has the label '{label}', which is also a metric",
            code="duplicate",
            value=label,
            hint="Choose another label",
        )
    for name in lower:
        if name not in names:
            choices = ", ".join(dict.fromkeys(row.name for row in rows))
            raise UsageError(
                f"'{name}' is not one of the combined metrics",
                code="unknown-name",
                value=name,
                hint=f"Choices: {choices}",
            )
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


def _parts(task: _Task, joined: Scored, learned: Learned, whole: Fit, penalty: float) -> tuple[InputPart, ...]:
    """Weights of the combination learned from all judgements, and the loss of agreement without each metric."""
    seed, unit = task.compare.seed, task.compare.unit
    with task.progress("intervals of the weights", task.resamples) as step:
        weights = weight_intervals(
            learned.examples,
            whole,
            learned.settings,
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
    task: _Task, scored: Scored, learned: Learned, whole: Fit, dataset: Dataset, protocol: Protocol
) -> Transfer:
    """The combination on another data set; folds without an image score captions of images in both data sets."""
    there = task.score(dataset, protocol)
    unit, _ = image_codes(scored.draws[0])
    codes = dict(zip((photograph(item.image) for item in scored.draws[0].items), unit.tolist(), strict=True))
    # -1 is the combination learned from everything; a training image has the fold that excludes it.
    shown = [photograph(item.image) for item in there.draws[0].items]
    fold = np.array([learned.out_of_fold.fold[codes[name]] if name in codes else -1 for name in shown])
    scores = matrix_of(there.tables, task.inputs)
    values = np.stack([whole.scores(draw) for draw in scores])
    for place, fit in enumerate(learned.out_of_fold.fits):
        if (fold == place).any():
            values[:, fold == place] = np.stack([fit.scores(draw) for draw in scores[:, fold == place]])
    images = {item.image for item in there.draws[0].items}
    shared = sum(photograph(image) in codes for image in images)
    of = signed_inputs(task.inputs, there.tables[0].signatures)
    signature = f"{learned.signature.partition('|of:')[0]}|shared-images:{shared}|of:{of}"
    tables = with_column(there.tables, task.row.key, values, signature, task.inputs)
    comparison = task.compared(protocol, replace(there, tables=tables))
    return Transfer(comparison, len(images), shared, len(codes.keys() & set(shown)))


def _digests(scored: Scored, examples: Examples) -> tuple[str, ...]:
    """The images of some examples."""
    unit, _ = image_codes(scored.draws[0])
    judged = set(np.unique(examples.unit).tolist())
    items = zip(unit.tolist(), scored.draws[0].items, strict=True)
    return tuple(sorted({image_digest(item.image) for code, item in items if code in judged}))


def _file(task: _Task, scored: Scored, learned: Learned, whole: Fit, penalty: float) -> CombinationFile | None:
    """The combination as a file; None if one of its metrics cannot score other captions."""
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
                levels=tuple(whole.basis.levels[place].tolist()) if whole.basis.levels else (),
            )
        )
    return CombinationFile(
        learner=learned.settings.learner,
        protocol=task.protocol.versioned,
        learnt_images=_digests(scored, learned.examples),
        examples=len(learned.examples),
        seed=learned.settings.seed,
        inner_folds=learned.settings.inner_folds,
        penalty=penalty,
        intercept=whole.intercept,
        inputs=tuple(saved),
    )

"""A combination of metrics learnt from one protocol's judgements: how it agrees, what it is made of, how it travels.

Its scores on the protocol's own items are out of fold, by image. On another data set it is the combination that was
learnt from all judgements; captions of images that were among them are scored by the fold that was learnt without.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from capbench.analyses.comparing import USUAL_RESAMPLES, MetricComparison, compare_scored, refuse_means, score_all
from capbench.datasets.base import Dataset
from capbench.datasets.protocol import Protocol
from capbench.errors import UsageError
from capbench.metrics.base import Resources
from capbench.metrics.combination import CombinationFile, SavedInput, image_digest, saved_name
from capbench.metrics.requests import MetricRequest, Row
from capbench.records import Judgements, ScoreTable
from capbench.stats.intervals import draw_bootstrap
from capbench.stats.learning import Examples, Fit
from capbench.stats.nested import Settings, learn, weight_intervals
from capbench.studies.combine_settings import CombineSettings
from capbench.studies.combining import (
    Input,
    Learnt,
    image_codes,
    inputs_of,
    learn_out_of_fold,
    matrix_of,
    refuse_unlearnable,
    row_of,
    signed_inputs,
    with_column,
)
from capbench.studies.human_side import agreement
from capbench.studies.judged import ProgressFactory, Scored, no_progress
from capbench.studies.settings import TestSettings

__all__ = ["Combined", "InputPart", "Transfer", "combine_metrics"]

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
        images: images there.
        shared: those of them that were learnt from, too; their captions are scored by folds without them.
    """

    comparison: MetricComparison
    images: int
    shared: int


@dataclass(frozen=True)
class Combined:
    """What :func:`combine_metrics` found.

    Attributes:
        comparison: the combination, out of fold, beside the metrics.
        title: what it is called.
        settings: learner, folds and seed.
        images: images with judgements.
        on_pairs: whether these are choices between two captions, and not ratings.
        penalty: the penalty of the combination that was learnt from all of them.
        fold_penalties: those that were chosen without each fold.
        parts: what each metric is in it.
        transfers: how it does on other data sets.
        tables: out-of-fold scores of all items, one table for each draw.
        file: the combination that was learnt from all judgements; None if one of its metrics cannot be saved.
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
    )
    scored = task.score(dataset, protocol, lambda judgements: refuse_unlearnable(protocol, judgements, task.settings))
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
        transfers=tuple(_transfer(task, scored, learnt, whole, *entry) for entry in tests),
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

    @property
    def titles(self) -> list[str]:
        """Titles of the inputs."""
        return [entry.row.title for entry in self.inputs]

    @property
    def resamples(self) -> int:
        """Number of resamples of intervals."""
        return self.compare.resamples or USUAL_RESAMPLES

    def score(self, dataset: Dataset, protocol: Protocol, check: Callable[[Judgements], None] | None = None) -> Scored:
        """The metrics' scores; ``check`` is that of :func:`capbench.analyses.comparing.score_all`."""
        return score_all(
            dataset,
            protocol,
            self.requests,
            self.resources,
            cache=self.cache,
            progress=self.progress,
            check=check,
        )

    def learn(self, scored: Scored, inputs: Sequence[Input], what: str) -> Learnt:
        """Out-of-fold scores of a combination of some inputs."""
        with self.progress(what, self.settings.folds) as step:
            return learn_out_of_fold(self.protocol, scored.draws, scored.tables, inputs, self.settings, step)

    def compared(self, protocol: Protocol, scored: Scored) -> MetricComparison:
        """The combination beside its metrics."""
        with self.progress(f"intervals and tests on {scored.dataset.name}", None):
            return compare_scored(protocol, scored, [*(entry.row for entry in self.inputs), self.row], self.compare)


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
    codes = dict(zip((item.image for item in scored.draws[0].items), unit.tolist(), strict=True))
    # -1 is the combination that was learnt from everything; an image of our own has the fold that it was left out with.
    fold = np.array(
        [learnt.out_of_fold.fold[codes[item.image]] if item.image in codes else -1 for item in there.draws[0].items]
    )
    scores = matrix_of(there.tables, task.inputs)
    values = np.stack([whole.scores(draw) for draw in scores])
    for place, fit in enumerate(learnt.out_of_fold.fits):
        if (fold == place).any():
            values[:, fold == place] = np.stack([fit.scores(draw) for draw in scores[:, fold == place]])
    images = {item.image for item in there.draws[0].items}
    shared = len(images & codes.keys())
    of = signed_inputs(task.inputs, there.tables[0].signatures)
    signature = f"{learnt.signature.partition('|of:')[0]}|shared-images:{shared}|of:{of}"
    tables = with_column(there.tables, task.row.key, values, signature)
    return Transfer(task.compared(protocol, replace(there, tables=tables)), len(images), shared)


def _digests(scored: Scored, examples: Examples) -> tuple[str, ...]:
    """The images of some examples."""
    unit, _ = image_codes(scored.draws[0])
    judged = set(np.unique(examples.unit).tolist())
    images = {item.image for code, item in zip(unit.tolist(), scored.draws[0].items, strict=True) if code in judged}
    return tuple(sorted(image_digest(image) for image in images))


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

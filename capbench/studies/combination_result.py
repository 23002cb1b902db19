"""``capbench train combination``: agreement of a combination, its weights, and its agreement on other data sets.

Scores on the protocol's own items are out of fold, by image. Other data sets are scored with the combination learned
from all judgements, except captions of training images: the fold that excludes the image scores these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from capbench.core.errors import UsageError, check_choice
from capbench.core.records import ScoreTable, photograph
from capbench.core.typed_json import Strict, Tidy
from capbench.datasets.base import Dataset
from capbench.datasets.protocol import Protocol
from capbench.metrics.combination import CombinationFile, SavedInput, image_digest, saved_name
from capbench.metrics.metric_request import MetricRequest
from capbench.metrics.needs import Resources
from capbench.stats.combination import Fit
from capbench.stats.intervals import draw_bootstrap
from capbench.stats.nested_cross_validation import Settings, learn, weight_intervals
from capbench.stats.significance import RESAMPLES
from capbench.studies.combine import (
    Input,
    Learned,
    image_codes,
    inputs_of,
    learn_out_of_fold,
    matrix_of,
    refuse_unlearnable,
    row_of,
    signed_inputs,
    with_column,
)
from capbench.studies.data_points import agreement
from capbench.studies.numbers import protocol_numbers, study_result
from capbench.studies.results import Missing, StudyResult
from capbench.studies.scoring import (
    ProgressFactory,
    Scorable,
    Scored,
    load_scorable,
    no_progress,
    refuse_means,
    score_all,
)
from capbench.studies.study import METRIC, BootstrapSettings, CombineSettings, Study, TestSettings

_ROW = row_of(METRIC)
_WEIGHTS = ("weight", "weight_low", "weight_high")


class InputPart(Strict):
    """One metric's contribution to a combination."""

    title: str
    lower_is_better: bool  # its sign is reversed
    # change of the score per standard deviation of the metric: points of the ratings' scale, or log-odds of being
    # preferred; with a bootstrap interval over images
    weight: float
    weight_low: float
    weight_high: float
    without: float | None = None  # agreement of a combination learned without the metric; None for a single metric
    drop: float | None = None  # agreement of the combination minus ``without``
    drop_low: float | None = None  # its interval, from the same resamples of images for both
    drop_high: float | None = None


class Transfer(Strict):
    """A combination on another data set."""

    comparison: StudyResult  # the combination and the metrics there
    images: int  # image ids
    shared: int  # those of them that show a training photograph, under any id
    shared_photographs: int  # number of these photographs


class CombinationResult(Tidy):
    """A combination of metrics, evaluated by nested cross-validation."""

    comparison: StudyResult  # the combination, out of fold, and the metrics
    title: str
    settings: Settings
    images: int  # photographs with judgements
    on_pairs: bool  # the judgements are choices between two captions, not ratings
    penalty: float  # of the combination learned from all judgements
    fold_penalties: tuple[float, ...]  # chosen without each fold
    parts: tuple[InputPart, ...]
    transfers: tuple[Transfer, ...]
    untried: dict[str, str] = Field(
        default_factory=dict
    )  # protocols of --test that files do not cover, with the reason
    combination: CombinationFile | None  # learned from all judgements; None if one of its metrics cannot be saved
    saved: Path | None = Field(default=None, exclude=True)  # the file for combination:FILE
    scores: Path | None = Field(default=None, exclude=True)  # the file of out-of-fold scores

    def rows(self) -> list[dict[str, Any]]:
        """One row for each metric: its weight and what it adds."""
        return [part.model_dump() for part in self.parts]


@dataclass(frozen=True, eq=False)
class _Fitted:
    """A combination learned from a protocol's judgements."""

    protocol: Protocol
    requests: Sequence[MetricRequest]
    inputs: tuple[Input, ...]
    scored: Scored
    learned: Learned
    whole: Fit  # learned from all judgements
    penalty: float


def combine_metrics(
    dataset: Dataset,
    protocol: Protocol,
    requests: Sequence[MetricRequest],
    settings: CombineSettings | None = None,
    *,
    tests: Sequence[tuple[Dataset, Protocol]] = (),
    lower: Sequence[str] = (),
    compare: TestSettings | None = None,
    resources: Resources | None = None,
    cache: bool = True,
    progress: ProgressFactory = no_progress,
) -> tuple[CombinationResult, tuple[ScoreTable, ...]]:
    """Learn a combination, and measure its agreement with human judgements; with its scores, a table for each draw.

    ``tests`` are other data sets to test it on; ``lower`` names metrics or columns whose lower scores are better.
    Intervals have the number of resamples of the tests (``compare``).
    """
    settings, compare = settings or CombineSettings(), compare or TestSettings()
    bootstrap = BootstrapSettings(compare.resamples or RESAMPLES, compare.unit, compare.seed)
    for _, other in tests:
        refuse_means(other)
    inputs = _inputs(requests, lower)
    check = lambda judgements: refuse_unlearnable(protocol, judgements, settings)  # noqa: E731
    scored = score_all(dataset, protocol, requests, resources, cache=cache, progress=progress, check=check)
    # Columns of incomplete score files are left out of the combination, and named.
    complete = scored.complete([entry.row for entry in inputs])
    inputs = tuple(entry for entry in inputs if entry.row in complete)

    def learned_from(inputs: Sequence[Input], what: str) -> Learned:
        with progress(what, settings.folds) as step:
            return learn_out_of_fold(protocol, scored.draws, scored.tables, inputs, settings, step)

    learned = learned_from(inputs, f"learning from {dataset.name}")
    whole, penalty = learn(learned.examples, learned.settings, [entry.row.title for entry in inputs], stream=0)
    fitted = _Fitted(protocol, requests, inputs, scored, learned, whole, penalty)
    study = Study(METRIC, f"{_ROW.title} and its metrics", (), (), bootstrap=bootstrap, compare=compare)
    study = replace(study, human_ceiling=False)
    tables = with_column(scored.tables, _ROW.key, learned.values, learned.signature, inputs)
    comparison = _compared(study, protocol, replace(scored, tables=tables), inputs, progress)
    with progress("intervals of the weights", bootstrap.resamples) as step:
        weights = weight_intervals(
            learned.examples,
            whole,
            learned.settings,
            penalty,
            resamples=bootstrap.resamples,
            seed=compare.seed,
            level=bootstrap.level,
            progress=step,
        )
    values = [learned.values]
    if len(inputs) > 1:
        values += [
            learned_from([other for other in inputs if other is not entry], f"without {entry.row.title}").values
            for entry in inputs
        ]
    data = agreement(
        protocol, scored.draws[0], dict(zip(map(str, range(len(values))), values, strict=True)), compare.unit
    )
    drawn = draw_bootstrap(data, resamples=bootstrap.resamples, seed=compare.seed, unit=compare.unit)
    parts = []
    for place, (entry, weight) in enumerate(zip(inputs, weights.tolist(), strict=True), 1):
        drop: dict[str, float] = {}
        if len(inputs) > 1:
            differences = drawn.values[0] - drawn.values[place]
            low, high = np.quantile(differences[~np.isnan(differences)], _ends(bootstrap.level)).tolist()
            own, without = drawn.estimates[[0, place]].tolist()
            drop = {"without": without, "drop": own - without, "drop_low": low, "drop_high": high}
        numbers = {**dict(zip(_WEIGHTS, weight, strict=True)), **drop}
        parts.append(InputPart(title=entry.row.title, lower_is_better=entry.lower_is_better, **numbers))
    transfers, untried = [], {}
    for there, other in tests:
        judged = load_scorable(there, other.items, requests, resources, cache=cache)
        if reason := _unscored(judged, inputs):
            untried[str(other)] = reason
            continue
        transfers.append(_transfer(study, fitted, other, judged.require_all().score(progress).require_all(), progress))
    result = CombinationResult(
        comparison=comparison,
        title=_ROW.title,
        settings=learned.settings,
        images=len(np.unique(learned.examples.unit)),
        on_pairs=learned.examples.target is None,
        penalty=penalty,
        fold_penalties=learned.out_of_fold.penalties,
        parts=tuple(parts),
        transfers=tuple(transfers),
        untried=untried,
        combination=_file(fitted),
    )
    return result, tuple(
        replace(
            table,
            values={_ROW.key: table.values[_ROW.key]},
            corpus={_ROW.key: table.corpus[_ROW.key]},
            signatures={METRIC: table.signatures[METRIC]},
        )
        for table in tables
    )


def _inputs(requests: Sequence[MetricRequest], lower: Sequence[str]) -> tuple[Input, ...]:
    rows = [row for request in requests for row in request.rows]
    names = {name for row in rows for name in (row.name, row.key.label, row.metric)}
    if METRIC in names:
        message = f"a metric has the label '{METRIC}', which is the combination's"
        raise UsageError(message, code="duplicate", value=METRIC, hint="Choose another label")
    for name in lower:
        check_choice("metric of the combination", name, names)
    return inputs_of(rows, requests, lower)


def _ends(level: float) -> tuple[float, float]:
    return (1 - level) / 2, (1 + level) / 2


def _unscored(judged: Scorable, inputs: Sequence[Input]) -> str:
    """The problem of a score file that prevents a test on a data set; ``""`` without one."""
    keys = {entry.row.key for entry in inputs}
    of_files = [one for one in judged.unscored if one.of_file and not keys.isdisjoint(one.request.score_columns)]
    return f"{of_files[0].in_words()}: {of_files[0].error}" if of_files else ""


def _compared(
    study: Study, protocol: Protocol, scored: Scored, inputs: Sequence[Input], progress: ProgressFactory
) -> StudyResult:
    """The combination and the metrics under a protocol, with intervals and tests."""
    rows, key = [*(entry.row for entry in inputs), _ROW], f"{scored.dataset.name}/{protocol.items.name}"
    with progress(f"intervals and tests on {scored.dataset.name}", None):
        numbers = protocol_numbers(study, protocol, scored, scored.tables, rows, no_progress, test_groups=False)
    return study_result(
        study,
        [numbers],
        {row.name: row.title for row in rows},
        sample=False,
        signatures={key: scored.signatures},
        missing=tuple(
            Missing(protocol=str(protocol), column=row.name, title=row.title, reason=str(lacking.error))
            for lacking in scored.unscored
            if lacking.of_file
            for row in lacking.request.rows
        ),
        seconds={},
        training={key: scored.training} if scored.training else {},
    )


def _transfer(study: Study, fitted: _Fitted, protocol: Protocol, there: Scored, progress: ProgressFactory) -> Transfer:
    """The combination on another data set; folds without an image score captions of images in both data sets."""
    learned, inputs, learned_from = fitted.learned, fitted.inputs, fitted.scored.draws[0]
    unit, _ = image_codes(learned_from)
    codes = dict(zip((photograph(item.image) for item in learned_from.items), unit.tolist(), strict=True))
    # -1 is the combination learned from everything; a training image has the fold that excludes it.
    shown = [photograph(item.image) for item in there.draws[0].items]
    fold = np.array([learned.out_of_fold.fold[codes[name]] if name in codes else -1 for name in shown])
    scores = matrix_of(there.tables, inputs)
    values = np.empty(scores.shape[:2])
    for place, fit in enumerate((fitted.whole, *learned.out_of_fold.fits), -1):
        if (fold == place).any():
            values[:, fold == place] = np.stack([fit.scores(draw) for draw in scores[:, fold == place]])
    images = {item.image for item in there.draws[0].items}
    shared = sum(photograph(image) in codes for image in images)
    of = signed_inputs(inputs, there.tables[0].signatures)
    signature = f"{learned.signature.partition('|of:')[0]}|shared-images:{shared}|of:{of}"
    tables = with_column(there.tables, _ROW.key, values, signature, inputs)
    return Transfer(
        comparison=_compared(study, protocol, replace(there, tables=tables), inputs, progress),
        images=len(images),
        shared=shared,
        shared_photographs=len(codes.keys() & set(shown)),
    )


def _file(fitted: _Fitted) -> CombinationFile | None:
    """The combination as a file; None if one of its metrics cannot score other captions."""
    requests = {request.label: request for request in fitted.requests}
    try:
        names = {label: saved_name(request) for label, request in requests.items()}
    except UsageError:
        return None
    basis, weights, judgements = fitted.whole.basis, fitted.whole.weights, fitted.scored.draws[0]
    saved = []
    for place, entry in enumerate(fitted.inputs):
        label, of_input = entry.row.key.label, basis.owner == place
        saved.append(
            SavedInput(
                name=entry.row.name,
                metric=names[label],
                label=label,
                column=entry.row.key.column,
                options=dict(requests[label].options),
                lower_is_better=entry.lower_is_better,
                signature=fitted.scored.tables[0].signatures[label],
                center=float(basis.centers[place]),
                scale=float(basis.scales[place]),
                knots=tuple(basis.knots[place].tolist()),
                means=tuple(basis.means[of_input].tolist()),
                weights=tuple(weights[of_input].tolist()),
                levels=tuple(basis.levels[place].tolist()) if basis.levels else (),
            )
        )
    judged, (unit, _) = set(fitted.learned.examples.unit.tolist()), image_codes(judgements)
    images = (item.image for code, item in zip(unit.tolist(), judgements.items, strict=True) if code in judged)
    settings = fitted.learned.settings
    return CombinationFile(
        learner=settings.learner,
        protocol=fitted.protocol.versioned,
        learnt_images=tuple(sorted({image_digest(image) for image in images})),
        examples=len(fitted.learned.examples),
        seed=settings.seed,
        inner_folds=settings.inner_folds,
        penalty=fitted.penalty,
        intercept=fitted.whole.intercept,
        inputs=tuple(saved),
    )

"""The functions of ``import capbench``. Arguments are called as on the command line, and so are the numbers got."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from capbench import records, scoring
from capbench.analyses.comparing import compare_metrics
from capbench.api.given import (
    DatasetGiven,
    FilesGiven,
    MetricsGiven,
    OptionsGiven,
    PathGiven,
    ScoresGiven,
    asked,
    dataset_name,
    options_by_owner,
    requested,
    resources_of,
    scores_entries,
    texts,
)
from capbench.api.results import ComparisonResult, CorrelationResult, Judgements, ScoreTable
from capbench.datasets.opening import open_dataset, with_group_of
from capbench.datasets.root import find_root
from capbench.datasets.user.captions import note_without_candidate
from capbench.datasets.user.in_memory import CandidatesGiven, ReferencesGiven, captions_in_memory
from capbench.errors import CapbenchWarning, UsageError
from capbench.metrics.asking import without_references
from capbench.metrics.requests import MetricRequest, Row
from capbench.progress import words
from capbench.studies.config import Study
from capbench.studies.evaluate import check_human_side
from capbench.studies.file_scores import items_with_scores
from capbench.studies.judged import ProgressFactory, judge, no_progress
from capbench.studies.plan import plan_study
from capbench.studies.quick import StatisticsChoice, protocols_asked, with_statistics
from capbench.studies.run import SlowPart, run_plan
from capbench.studies.settings import TestSettings

if TYPE_CHECKING:
    from capbench.stats.agreement import Unit
    from capbench.stats.correction import Correction
    from capbench.stats.significance import Test
    from capbench.studies.settings import BootstrapMethod

__all__ = ["compare", "correlate", "load", "score"]


def load(
    dataset: DatasetGiven, protocol: str | None = None, *, draw: int = 1, data: PathGiven | None = None
) -> Judgements:
    """Load what people said about captions, under a protocol.

    Args:
        dataset: a data set's name (``flickr8k-expert``, ``composite@8k``), a file of judgements, or a class.
        protocol: ``items/statistic``, a part of it, or a full id; by default the literature's.
        draw: which random draw of references, counted from 1.
        data: the data folder; by default ``CAPBENCH_DATA``, else the embedded sample.

    Raises:
        UsageError: there is no such data set, folder or draw.
        ProtocolError: the data set has no such protocol.
        DataError: a file is missing, or does not hold what it should.
    """
    root = find_root(data)
    opened = open_dataset(with_group_of(dataset_name(dataset), protocol), root)
    chosen = opened.protocol(protocol)
    draws = opened.load(chosen.items)
    judgements = draws[_place(draw, len(draws), f"{opened.name}/{chosen.items.name}")]
    check_human_side(chosen, judgements)
    fields = {field.name: getattr(judgements, field.name) for field in dataclasses.fields(records.Judgements)}
    return Judgements(**fields, protocol=chosen, sample=root.is_sample and opened.under_root)


def score(
    candidates: PathGiven | CandidatesGiven | Sequence[records.Item] | records.Judgements | None = None,
    references: PathGiven | ReferencesGiven | None = None,
    metrics: MetricsGiven = (),
    *,
    dataset: DatasetGiven | None = None,
    protocol: str | None = None,
    draw: int = 1,
    scores: ScoresGiven = (),
    allow_missing: bool = False,
    options: OptionsGiven | None = None,
    features: FilesGiven | None = None,
    model: FilesGiven | None = None,
    images: PathGiven | None = None,
    data: PathGiven | None = None,
    cache: bool = True,
    progress: bool = False,
) -> ScoreTable:
    """Score captions with one or more metrics, as ``capbench score`` does.

    Args:
        candidates: captions: a list in the order of the references, ``{image: caption}`` or ``{image: [caption, …]}``,
            records (``{"image_id": 42, "caption": "…"}``), the path of a file, or a list of
            :class:`capbench.Item`, or :class:`capbench.Judgements`, which bring their references.
        references: a list with a caption or a list of captions for each candidate, ``{image: [caption, …]}``, records,
            or the path of a file; none where metrics do without. Of a metric that is named as a whole, the columns that
            need none are then scored, which a note says.
        metrics: names, functions or classes, or a dictionary of them by label.
        dataset: instead of candidates and references, a data set whose candidates are scored.
        protocol: which of its items and references; by default the literature's.
        draw: which random draw of references, counted from 1.
        scores: files of scores that were computed elsewhere.
        allow_missing: whether captions without a score in such a file are left out, for all metrics.
        options: options of metrics: ``{"cider": {"df": "coco-val"}}`` or ``{"cider.df": "coco-val"}``.
        features: region features for all metrics, or by metric.
        model: weights for all metrics that need some, or by metric.
        images: the folder of the pictures; by default the data folder's.
        data: the data folder; by default ``CAPBENCH_DATA``, else the embedded sample.
        cache: whether the score cache is read and written.
        progress: whether progress is shown on stderr.

    Raises:
        UsageError: arguments do not go together, or a metric or an option does not fit.
        DataError: a caption, a file or a file of scores does not hold what it should.
        MetricError: a metric lacks something, or a function gave no number; the caption is named.
    """
    root = find_root(data)
    requests, resources = requested(metrics, scores, options, features, model, images, allow_missing, root)
    rows = tuple(row for request in requests for row in request.rows)
    bars = _bars(progress)
    if dataset is not None:
        if candidates is not None or references is not None:
            raise UsageError("candidates were given together with dataset", hint="Give one of them")
        opened = open_dataset(with_group_of(dataset_name(dataset), protocol), root)
        chosen = opened.protocol(protocol)
        judged = judge(opened, chosen.items, requests, resources, cache=cache).require_all()
        judgements = judged.draws[_place(draw, len(judged.draws), f"{opened.name}/{chosen.items.name}")]
        (table,) = dataclasses.replace(judged, draws=(judgements,)).score(bars).require_all().tables
        return _score_table(table, rows, judgements.notes, opened.name, root.is_sample and opened.under_root)
    if protocol is not None or draw != 1:
        raise UsageError("protocol and draw are for the captions of a data set", hint="Add dataset, or leave them out")
    requests, items, name, sample, said = _own_items(candidates, references, requests)
    rows = tuple(row for request in requests for row in request.rows)
    items, notes = items_with_scores(items, requests, name, allow_missing=allow_missing)
    with bars("scoring", len(items) * len(requests)) as step:
        table = scoring.score(items, requests, resources, dataset=name, cache=cache, progress=step)
    return _score_table(table, rows, (*said, *notes), name, sample)


def correlate(
    dataset: DatasetGiven | Sequence[DatasetGiven] | None = None,
    metrics: MetricsGiven = (),
    *,
    protocol: str | Sequence[str] | None = None,
    scores: ScoresGiven = (),
    allow_missing: bool = False,
    bootstrap: int | None = None,
    interval: BootstrapMethod | None = None,
    compare: Test | None = None,
    correction: Correction | None = None,
    alpha: float | None = None,
    permutations: int | None = None,
    unit: Unit | None = None,
    seed: int | None = None,
    without: str | Sequence[str] = (),
    options: OptionsGiven | None = None,
    features: FilesGiven | None = None,
    model: FilesGiven | None = None,
    images: PathGiven | None = None,
    data: PathGiven | None = None,
    cache: bool = True,
    progress: bool = False,
) -> CorrelationResult:
    """Measure how well metrics agree with people, as ``capbench correlate`` does.

    What cannot be computed (a metric that waits for weights) stands in the result's ``missing``, and is warned of.

    Args:
        dataset: a data set, or several: names (``flickr8k-expert``, ``composite@8k``), files of judgements, or classes.
        metrics: names, functions or classes, or a dictionary of them by label.
        protocol: ``dataset/items/statistic``, or a part of it that is meant of each data set; by default the
            literature's. One or several.
        scores: files of scores that were computed elsewhere; every column of numbers is a metric.
        allow_missing: whether items without a score in such a file are left out, for all metrics.
        bootstrap: number of resamples for intervals; none by default.
        interval: how their ends are found, ``percentile`` or ``bca``.
        compare: the test between all pairs of metrics: ``permutation``, ``bootstrap``, ``williams``, ``steiger`` or
            ``mcnemar``; none by default.
        correction: for the number of pairs, ``holm``, ``bh`` or ``none``.
        alpha: significance level.
        permutations: their number; by default 1,000, or what is needed.
        unit: what is resampled: ``image``, ``item`` or ``rating``.
        seed: of resamples and permutations.
        without: metrics, labels or columns that are left out.
        options: options of metrics: ``{"cider": {"df": "coco-val"}}`` or ``{"cider.df": "coco-val"}``.
        features: region features for all metrics, or by metric.
        model: weights for all metrics that need some, or by metric.
        images: the folder of the pictures; by default the data folder's.
        data: the data folder; by default ``CAPBENCH_DATA``, else the embedded sample.
        cache: whether the score cache is read and written.
        progress: whether progress is shown on stderr.

    Raises:
        UsageError, StudyError: an argument does not fit; StudyError lists all that do not.
        DataError: a file does not hold what it should.
        MetricError: a metric failed, or a function gave no number; the caption is named.
        StatisticError: a statistic is undefined on these numbers.
    """
    root = find_root(data)
    names = asked(metrics)
    entries = scores_entries(scores)
    protocols = protocols_asked(texts(dataset), texts(protocol), str)
    if not protocols:
        raise UsageError("no data set is named", hint="Give one, such as 'flickr8k-expert'")
    if not names and not entries:
        raise UsageError("no metric is named", hint="Give metrics=['cider', …], or scores=['file.csv']")
    given = resources_of(names, features, model, images, allow_missing, root)
    study = Study(
        name="quick-look",
        title="Agreement with human judgements",
        protocols=tuple(protocols),
        metrics=tuple(names),
        options=options_by_owner(options),
        features=given.features,
        features_of=dict(given.features_of),
        model=given.model,
        models=dict(given.models),
        images=given.images,
        scores=entries,
        allow_missing=allow_missing,
        without=(without,) if isinstance(without, str) else tuple(without),
    )
    choice = StatisticsChoice(
        bootstrap=bootstrap,
        interval=interval,
        compare=compare,
        correction=correction,
        alpha=alpha,
        permutations=permutations,
        unit=unit,
        seed=seed,
    )
    plan = plan_study(with_statistics(study, choice, str), root)
    result = run_plan(plan, _bars(progress), cache=cache, announce=_announce)
    for missing in result.missing:
        if not missing.left_out:
            text = f"{missing.title or missing.protocol} is not computed: {missing.reason}"
            warnings.warn(text, CapbenchWarning, stacklevel=2)
    return CorrelationResult.of(result)


def compare(
    dataset: DatasetGiven,
    metrics: MetricsGiven = (),
    *,
    protocol: str | None = None,
    scores: ScoresGiven = (),
    allow_missing: bool = False,
    test: Test = "permutation",
    correction: Correction = "holm",
    resamples: int = 1000,
    seed: int = 0,
    unit: Unit = "image",
    options: OptionsGiven | None = None,
    features: FilesGiven | None = None,
    model: FilesGiven | None = None,
    images: PathGiven | None = None,
    data: PathGiven | None = None,
    cache: bool = True,
    progress: bool = False,
) -> ComparisonResult:
    """Test whether metrics differ in how well they agree with people, as ``capbench compare`` does.

    Args:
        dataset: a data set's name, a file of judgements, or a class.
        metrics: two or more: names, functions or classes, or a dictionary of them by label.
        protocol: one of the data set's protocols; by default the literature's.
        scores: files of scores that were computed elsewhere; every column of numbers is a metric, or those that
            ``metrics`` names.
        allow_missing: whether items without a score in such a file are left out, for all metrics.
        test: ``permutation``, ``bootstrap``, ``williams``, ``steiger`` or ``mcnemar``.
        correction: for the number of pairs, ``holm``, ``bh`` or ``none``.
        resamples: bootstrap resamples, and permutations, of which more are drawn where the number of pairs needs them.
        seed: of both.
        unit: what is resampled: ``image``, ``item`` or ``rating``.
        options: options of metrics: ``{"cider": {"df": "coco-val"}}`` or ``{"cider.df": "coco-val"}``.
        features: region features for all metrics, or by metric.
        model: weights for all metrics that need some, or by metric.
        images: the folder of the pictures; by default the data folder's.
        data: the data folder; by default ``CAPBENCH_DATA``, else the embedded sample.
        cache: whether the score cache is read and written.
        progress: whether progress is shown on stderr.

    Raises:
        UsageError: there is but one metric, or an argument does not fit.
        ProtocolError: the data set has no such protocol, or the protocol knows no human judgements.
        DataError, MetricError, StatisticError: as :func:`correlate` raises them.
    """
    root = find_root(data)
    settings = TestSettings.read(
        "compare",
        {"test": test, "correction": correction, "resamples": resamples, "seed": seed, "unit": unit},
    )
    requests, resources = requested(metrics, scores, options, features, model, images, allow_missing, root)
    if sum(len(request.columns) for request in requests) < 2:
        raise UsageError("one metric alone cannot be compared", hint="Name two or more")
    opened = open_dataset(with_group_of(dataset_name(dataset), protocol), root)
    chosen = opened.protocol(protocol)
    comparison = compare_metrics(
        opened,
        chosen,
        requests,
        test=settings.test,
        correction=settings.correction,
        resamples=resamples,
        seed=seed,
        unit=settings.unit,
        resources=resources,
        cache=cache,
        progress=_bars(progress),
    )
    comparison = dataclasses.replace(comparison, sample=root.is_sample and opened.under_root)
    return ComparisonResult.of(comparison, chosen.statistic.label, percent=chosen.statistic.kind == "accuracy")


def _own_items(
    candidates: PathGiven | CandidatesGiven | Sequence[records.Item] | records.Judgements | None,
    references: PathGiven | ReferencesGiven | None,
    requests: tuple[MetricRequest, ...],
) -> tuple[tuple[MetricRequest, ...], tuple[records.Item, ...], str, bool, tuple[str, ...]]:
    """What can be scored, items, what to call them, whether they are the sample's, and what is to be said of them."""
    if candidates is None:
        raise UsageError("there are no candidates", hint="Give candidates and references, or dataset='…'")
    if isinstance(candidates, records.Judgements):
        sample = isinstance(candidates, Judgements) and candidates.sample
        return requests, candidates.items, candidates.dataset, sample, ()
    candidates = Path(candidates) if isinstance(candidates, os.PathLike) else candidates
    references = Path(references) if isinstance(references, os.PathLike) else references
    if not isinstance(candidates, str | Path | Mapping) and references is None:
        candidates = listed = tuple(candidates)
        items = tuple(item for item in listed if isinstance(item, records.Item))
        if listed and len(items) == len(listed):
            return requests, items, "items", False, ()
    left_out: list[str] = []
    if references is None:
        requests, left_out = without_references(requests, "references=…")
    name = Path(candidates).stem if isinstance(candidates, str | Path) else "captions"
    items, missing_images = captions_in_memory(candidates, references)  # type: ignore[arg-type]
    note = note_without_candidate(missing_images)
    return requests, items, name, False, (*((note,) if note else ()), *left_out)


def _score_table(
    table: records.ScoreTable,
    rows: tuple[Row, ...],
    notes: tuple[str, ...],
    name: str,
    sample: bool,
) -> ScoreTable:
    fields = {field.name: getattr(table, field.name) for field in dataclasses.fields(records.ScoreTable)}
    return ScoreTable(**{**fields, "dataset": name}, rows=rows, notes=notes, sample=sample)


def _place(draw: int, draws: int, name: str) -> int:
    if not 1 <= draw <= draws:
        raise UsageError(f"draw {draw}: {name} has {draws} draw(s)", hint="Draws are counted from 1")
    return draw - 1


def _bars(progress: bool) -> ProgressFactory:
    """What shows progress, or nothing."""
    if not progress:
        return no_progress

    def shown(description: str, steps: int | None) -> AbstractContextManager[Callable[[int], None]]:
        from capbench.cli.common import progress as bars

        return bars(description, steps)

    return shown


def _announce(slow: SlowPart) -> None:
    """Warn of what takes more than half a minute, and say how to do without."""
    what = "; ".join(f"{w.subject} {len(w.units):,} {w.unit} first, {words(w.seconds)}" for w in slow.works)
    text = f"{what}; leave it out with without={list(slow.labels)}, or see how far it is with progress=True"
    warnings.warn(text, CapbenchWarning, stacklevel=3)

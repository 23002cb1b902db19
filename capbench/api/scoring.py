"""``capbench.load`` and ``capbench.score``: judgements, and scores of captions."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typing_extensions import Unpack

from capbench.api.caller import PYTHON, Caller, ProgressGiven, python_caller
from capbench.api.checking import check_captions, checked
from capbench.api.resolve import DatasetGiven, FolderGiven, Inputs, MetricInputs, MetricsGiven, dataset_name, resolve
from capbench.api.results import Judgements, ScoreTable
from capbench.core import records
from capbench.core.arguments import Bootstrap, Categories, Draw, Expected, KeepFirst, PathGiven, Restrict, Seed, Split
from capbench.core.errors import MetricError, UsageError, count
from capbench.core.training_record import training_overlap
from capbench.datasets.nocaps import DOMAINS
from capbench.datasets.opening import open_dataset, with_group_of
from capbench.datasets.protocol import with_version
from capbench.datasets.root import find_root
from capbench.datasets.user.caption_warnings import note_without_candidate
from capbench.datasets.user.captions import (
    CandidatesGiven,
    ReadingOptions,
    ReferencesGiven,
    captions_in_memory,
    single_captions,
)
from capbench.metrics import scoring
from capbench.metrics.metric_request import MetricRequest, Row
from capbench.metrics.needs import Resources
from capbench.metrics.requests import without_references
from capbench.metrics.spice import Spice
from capbench.studies.score_files import Incomplete, items_with_scores
from capbench.studies.scoring import load_scorable

if TYPE_CHECKING:
    from capbench.studies.plan import Plan

_AS_IS = Expected("captions", "", lambda captions: True)  # :class:`Captions` checks them
Candidates = Annotated[PathGiven | CandidatesGiven | Sequence[records.Item] | records.Judgements | None, _AS_IS]
References = Annotated[PathGiven | ReferencesGiven | None, _AS_IS]
TEXT_METRICS = ("bleu", "rouge-l", "meteor", "cider")
"""Default metrics of :func:`score`: those that require references and nothing else."""


@checked
def load(
    dataset: DatasetGiven, protocol: str | None = None, *, draw: Draw = 1, data: FolderGiven | None = None
) -> Judgements:
    """Load human judgements of captions under a protocol (``items/statistic``, a part of it, or a full id).

    ``dataset`` is a name (``flickr8k-expert``, ``composite@8k``), a file of judgements, or a class.
    """
    from capbench.studies.evaluate import check_human_side

    root = find_root(data)
    opened = open_dataset(with_group_of(dataset_name(dataset), protocol), root)
    chosen = opened.protocol(protocol)
    draws = opened.load(chosen.items)
    judgements = draws[_place(draw, len(draws), f"{opened.name}/{chosen.items.name}", PYTHON)]
    check_human_side(chosen, judgements)
    values = {field.name: getattr(judgements, field.name) for field in fields(records.Judgements)}
    return Judgements(**values, protocol=chosen, sample=root.is_sample and opened.under_root)


@checked
def score(
    candidates: Candidates = None,
    references: References = None,
    metrics: MetricsGiven = (),
    *,
    dataset: DatasetGiven | None = None,
    protocol: str | None = None,
    draw: Draw = 1,
    keep_first: KeepFirst = False,
    split: Split | None = None,
    restrict: Restrict = False,
    bootstrap: Bootstrap | None = None,
    seed: Seed = 0,
    categories: Categories = False,
    progress: ProgressGiven = False,
    **inputs: Unpack[MetricInputs],
) -> ScoreTable:
    """Score captions with one or more metrics, as ``capbench score`` does; by default :data:`TEXT_METRICS`.

    Captions are a list in the order of the references, ``{image: caption}``, ``{image: [caption, …]}``, records
    (``{"image_id": 42, "caption": "…"}``), the path of a file, a list of :class:`capbench.Item`, or
    :class:`capbench.Judgements`, which include their references. Without references, only reference-free columns are
    scored; a note names the others. ``dataset`` is a data set whose candidates are scored instead.

    Several captions of an image are an error if more than half of the images have one, unless ``keep_first``, and are
    scored separately otherwise. ``split`` (Karpathy) or domain (nocaps) is a part of the file of references; candidates
    of images in other splits are an error, unless ``restrict``. ``bootstrap`` is the number of resamples of images for
    95 % intervals of corpus scores. Other inputs: :class:`capbench.api.resolve.MetricInputs`.
    """
    caller, cache = python_caller(progress), inputs.get("cache", True)
    check_captions("candidates", candidates, references)
    check_captions("references", references, candidates)
    if candidates is not None and not isinstance(candidates, str | os.PathLike | Mapping | records.Judgements):
        candidates = tuple(candidates)  # an iterator can be read only once, but its entries are read twice
    options, chosen = ReadingOptions(split, restrict, keep_first, caller.spelled), protocol is not None or draw != 1
    _refuse(candidates, references, dataset, options, chosen=chosen, columns=inputs.get("columns"))
    has_references = dataset is not None or references is not None or _items_in(candidates) is not None
    if not metrics and not inputs.get("scores") and has_references:
        metrics = TEXT_METRICS
        caller.tell(f"metrics: {', '.join(metrics)}; name others with {caller.spelled('metrics')}")
    if dataset is None:
        read = _read_own(metrics, candidates, references, options, inputs, caller)
    else:
        from capbench.api.agreement import plan_judged

        read = _read_dataset(plan_judged(dataset, metrics, protocol, inputs, caller), draw, cache, caller)
    with_spice = [request.label for request in read.requests if issubclass(request.metric, Spice)]
    if categories and not with_spice:
        message, hint = f"{caller.spelled('categories')} requires SPICE", f"Add spice to {caller.spelled('metrics')}"
        raise UsageError(message, code="missing-option", value="spice", hint=hint)
    resampled: dict[str, scoring.CorpusStatistics] = {}
    with caller.spread() as engine, caller.progress("scoring", len(read.items) * len(read.requests)) as step:
        table = scoring.score(
            read.items,
            read.requests,
            read.resources,
            dataset=read.name,
            cache=cache,
            progress=step,
            spread=engine,
            documents=read.documents,
            statistics_of=resampled,
        )
    training = tuple(training_overlap(label, of_label, read.items) for label, of_label in table.trained_on.items())
    cautions = dict(table.cautions)
    for overlap in training:
        if line := overlap.line():
            cautions[overlap.label] = (*cautions.get(overlap.label, ()), line)
    rows = tuple(row for row in read.rows if row.key not in read.unscored)
    scores = ScoreTable(
        **{**vars(table), "cautions": cautions},
        training=training,
        rows=rows,
        incomplete={row: read.unscored[row.key] for row in read.rows if row.key in read.unscored},
        domains=tuple(_domains(read, rows, table, cache)) if dataset is None else (),
        categories=Spice.categories(resampled[with_spice[0]].rows) if categories else {},
        **read.facts,
    )
    if bootstrap is not None:
        from capbench.studies.systems import intervals_of_corpus

        intervals = intervals_of_corpus(
            table, resampled, read.requests, resamples=bootstrap, seed=seed, progress=caller.progress
        )
        fixed = tuple(label for label, statistics in resampled.items() if statistics.metric.corpus_id())
        scores = replace(scores, intervals=intervals, fixed=fixed)
    for row, missing_scores in scores.incomplete.items():
        caller.lack(f"{row.title} is not computed: {missing_scores}")
    return scores


def _items_in(candidates: Candidates) -> tuple[records.Item, ...] | None:
    """Items, which include their references; None for captions in another form."""
    if isinstance(candidates, records.Judgements):
        return candidates.items
    given = candidates if isinstance(candidates, tuple) else ()
    items = tuple(entry for entry in given if isinstance(entry, records.Item))
    return items if items and len(items) == len(given) else None


def _refuse(
    candidates: object,
    references: object,
    dataset: DatasetGiven | None,
    options: ReadingOptions,
    *,
    chosen: bool,  # whether a protocol or a draw is named
    columns: object,
) -> None:
    """Raise UsageError if arguments exclude or require each other."""
    of, name = options.spelled, None if dataset is None else dataset_name(dataset)
    flag, first, both = of("dataset"), of("keep_first"), f"{of('candidates')} and {of('references')}"
    given, included = references is not None, isinstance(candidates, records.Judgements)

    def refuse(wrong: object, message: str, hint: str, value: object = None) -> None:
        if wrong:
            code = "conflict" if "exclude" in message else "missing-option"
            raise UsageError(message, code=code, value=value, hint=hint)

    refuse(name and options.keep_first, f"{flag} excludes {first}", f"Omit {first}", name)
    refuse(name and (given or candidates is not None), f"{flag} excludes {both}", f"Pass {flag}, or {both}", name)
    refuse(not name and columns, f"{of('columns')} requires {flag}", f"Omit {of('columns')}", of("columns"))
    refuse(not name and chosen, f"{of('protocol')} and {of('draw')} require {flag}", f"Add {flag}, or omit them")
    refuse(not name and candidates is None, f"{of('candidates')} is required", f"Pass {both}, or {flag}")
    hint = f"Omit {of('references')}"
    refuse(included and given, f"Judgements with references: {of('references')} excludes them", hint)
    split, restrict = of("split"), of("restrict")
    refuse(options.restrict and options.split is None, f"{restrict} requires {split}", f"Add {split}")


def _domains(read: _Read, rows: Sequence[Row], table: records.ScoreTable, cache: bool) -> Iterator[dict[str, object]]:
    """Corpus scores of nocaps' domains, each with the document frequencies of its own references, and of all images."""
    if not {item.group for item in read.items} <= set(DOMAINS):
        return
    for domain in (*DOMAINS, "entire"):
        items = tuple(item for item in read.items if domain in (item.group, "entire"))
        if items:
            of_domain = table
            if domain != "entire":
                of_domain = scoring.score(items, read.requests, read.resources, dataset=read.name, cache=cache)
            corpus = {row.name: of_domain.corpus[row.key] for row in rows}
            yield {"domain": domain, "images": len({item.image for item in items}), "corpus": corpus}


@dataclass(frozen=True)
class _Read:
    """Captions, and the metrics that can be scored on them."""

    items: tuple[records.Item, ...]
    rows: tuple[Row, ...]  # of all metrics
    requests: tuple[MetricRequest, ...]
    resources: Resources
    name: str
    unscored: Mapping[records.ScoreColumn, Incomplete]
    documents: Sequence[records.Item] | None  # for document frequencies, if more than the items
    facts: Mapping[str, Any]  # fields of the result: notes, sample, file_columns, missing_captions


def _read_dataset(plan: Plan, draw: int, cache: bool, caller: Caller) -> _Read:
    """The items of a data set, with one sample of references."""
    caller.on_rows(plan.rows)
    ((opened, chosen),) = plan.protocols
    loaded = load_scorable(opened, chosen.items, plan.requests, plan.resources, cache=cache).require_all()
    items = f"{opened.name}/{chosen.items.name}"
    judgements = loaded.draws[_place(draw, len(loaded.draws), items, caller)]
    caller.tell(f"items: {with_version(items, opened.version)}: {chosen.items.description}")
    for line in judgements.notes:
        caller.tell(f"  {line}")
    unscored = {
        key: entry.as_incomplete() for entry in loaded.unscored if entry.of_file for key in entry.request.score_columns
    }
    facts = {"notes": judgements.notes, "file_columns": opened.file_columns, "sample": plan.on_sample}
    metrics = plan.rows, loaded.requests, loaded.resources
    return _Read(judgements.items, *metrics, opened.name, unscored, judgements.documents, facts)


def _read_own(
    metrics: MetricsGiven,
    candidates: Candidates,
    references: References,
    options: ReadingOptions,
    inputs: Inputs,
    caller: Caller,
) -> _Read:
    """The captions of a user."""
    plan, notes = resolve(metrics, inputs, caller), list[str]()

    def note(*lines: str) -> None:
        notes.extend(lines)
        for line in lines:
            caller.tell(line)

    requests, items, sample = plan.requests, _items_in(candidates), False
    if references is None and items is None:
        requests, left_out = without_references(requests, caller.spelled("references"))
        note(*left_out)
    rows = tuple(row for request in requests for row in request.rows)
    caller.on_rows(rows)
    missing_images: tuple[str, ...] = ()
    if isinstance(candidates, records.Judgements):
        name, sample = candidates.dataset, isinstance(candidates, Judgements) and candidates.sample
    elif items is not None:
        name = "items"
    else:
        name = Path(candidates).stem if isinstance(candidates, str | os.PathLike) else "captions"
    if items is None:
        given, wanted = (Path(p) if isinstance(p, os.PathLike) else p for p in (candidates, references))
        items, missing_images, other_splits = captions_in_memory(given, wanted, options)  # type: ignore[arg-type]
        if other_splits:
            note(f"{count(other_splits, 'candidate')} of other splits left out ({caller.spelled('restrict')})")
        of = Path(references).name if isinstance(references, str | os.PathLike) else "the references"
        note(*filter(None, [note_without_candidate(missing_images, items, of)]))
    if options.keep_first or not isinstance(candidates, records.Judgements):
        path = Path(candidates) if isinstance(candidates, str | os.PathLike) else Path(name)
        kept = single_captions(items, path, options)
        if further := len(items) - len(kept):
            note(f"{count(further, 'further caption')} of the same images left out ({caller.spelled('keep_first')})")
        items = kept
    before = (isinstance(candidates, records.Judgements) and candidates.documents) or items
    items, requests, unscored, joined = items_with_scores(
        items, requests, name, allow_missing=inputs.get("allow_missing", False)
    )
    complete = []
    for request in requests:
        try:
            request.metric.check_captions(items)
            complete.append(request)
        except MetricError as error:
            if len(requests) == 1:
                raise
            unscored |= dict.fromkeys(request.score_columns, Incomplete("no score", str(error)))
    if not complete:
        raise MetricError(next(iter(unscored.values())).reason, code="missing-caption")
    requests = tuple(complete)
    cautions = scoring.warnings_of_captions(items, requests)
    note(*joined)
    for line in cautions:
        caller.caution(line)
    notes += cautions
    facts = {"notes": tuple(notes), "sample": sample, "missing_captions": len(missing_images)}
    documents = before if len(before) > len(items) else None
    return _Read(items, rows, requests, plan.resources, name, unscored, documents, facts)


def _place(draw: int, draws: int, name: str, caller: Caller) -> int:
    if not 1 <= draw <= draws:
        message = f"{caller.spelled('draw')} {draw}: {name} has {count(draws, 'draw')}"
        raise UsageError(message, code="out-of-range", value=draw, hint="Draws are counted from 1")
    return draw - 1

"""``capbench.load`` and ``capbench.score``: judgements, and scores of captions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

from typing_extensions import Unpack

from capbench.api.checking import check_captions, checked
from capbench.api.resolve import (
    PYTHON,
    Caller,
    DatasetGiven,
    FolderGiven,
    Inputs,
    MetricInputs,
    MetricsGiven,
    PathGiven,
    ProgressGiven,
    Resolved,
    checked_columns,
    dataset_name,
    python_caller,
    resolve,
)
from capbench.api.results import Judgements, ScoreTable
from capbench.core import records
from capbench.core.arguments import Bootstrap, Categories, Draw, Expected, KeepFirst, Restrict, Seed, Split
from capbench.core.errors import MetricError, UsageError, count
from capbench.core.training_record import training_overlap
from capbench.datasets.base import dataset_names
from capbench.datasets.nocaps import DOMAINS
from capbench.datasets.opening import open_dataset, with_group_of
from capbench.datasets.protocol import base_name, with_version
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
    caller = python_caller(progress)
    captions = Captions(candidates, references, dataset, protocol, draw, keep_first, split, restrict)
    resolved = _resolve(metrics, captions, inputs, caller)
    caller.on_rows(resolved.rows)
    with_spice = [request.label for request in resolved.requests if issubclass(request.metric, Spice)]
    if categories and not with_spice:
        message, hint = f"{caller.spelled('categories')} requires SPICE", f"Add spice to {caller.spelled('metrics')}"
        raise UsageError(message, code="missing-option", value="spice", hint=hint)
    reading = _read_own if dataset is None else _read_dataset
    read, cache = reading(resolved, captions, inputs, caller), inputs.get("cache", True)
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
    rows = tuple(row for row in resolved.rows if row.key not in read.unscored)
    scores = ScoreTable(
        **{**vars(table), "cautions": cautions},
        training=training,
        rows=rows,
        incomplete={row: read.unscored[row.key] for row in resolved.rows if row.key in read.unscored},
        domains=tuple(_domains(read, rows, table, cache)) if dataset is None else (),
        categories=Spice.categories(resampled[with_spice[0]].rows) if categories else {},
        **read.facts,
    )
    if bootstrap is not None:
        from capbench.studies.systems import intervals_of_corpus

        intervals = intervals_of_corpus(
            table, resampled, read.requests, resamples=bootstrap, seed=seed, progress=caller.progress
        )
        fixed = tuple(label for label, one in resampled.items() if one.metric.corpus_id())
        scores = replace(scores, intervals=intervals, fixed=fixed)
    for row, missing_scores in scores.incomplete.items():
        caller.lack(f"{row.title} is not computed: {missing_scores}")
    return scores


@dataclass(frozen=True)
class Captions:
    """Captions to score: a user's own, or those of a data set."""

    candidates: Candidates = None
    references: References = None
    dataset: DatasetGiven | None = None
    protocol: str | None = None
    draw: int = 1
    keep_first: bool = False
    split: str | None = None
    restrict: bool = False

    def __post_init__(self) -> None:
        check_captions("candidates", self.candidates, self.references)
        check_captions("references", self.references, self.candidates)
        entries = self.candidates
        # An iterator can be read only once, but its entries are read twice.
        if entries is not None and not isinstance(entries, str | os.PathLike | Mapping | records.Judgements):
            object.__setattr__(self, "candidates", tuple(entries))

    @property
    def dataset_name(self) -> str | None:
        """The name of the data set, with the group in the protocol if there is one; None for a user's captions."""
        return None if self.dataset is None else with_group_of(dataset_name(self.dataset), self.protocol)

    @property
    def items(self) -> tuple[records.Item, ...] | None:
        """Captions of a user as items, which include their references; None for captions in another form."""
        if isinstance(self.candidates, records.Judgements):
            return self.candidates.items
        if self.references is not None or not isinstance(self.candidates, tuple):
            return None
        items = tuple(entry for entry in self.candidates if isinstance(entry, records.Item))
        return items if items and len(items) == len(self.candidates) else None

    @property
    def has_references(self) -> bool:
        """True if a user's captions have references."""
        return self.references is not None or self.items is not None


def _resolve(metrics: MetricsGiven, captions: Captions, inputs: Inputs, caller: Caller) -> Resolved:
    """Resolve metrics for captions; without references, columns that require them are left out."""
    name = captions.dataset_name
    _refuse(captions, inputs, caller.spelled)
    if not metrics and not inputs.get("scores") and (name is not None or captions.has_references):
        metrics = TEXT_METRICS
        caller.tell(f"metrics: {', '.join(metrics)}; name others with {caller.spelled('metrics')}")
    published = base_name(name or "") in dataset_names()
    resolved = resolve(metrics, inputs, caller, on_sample=lambda root: root.is_sample and published, dataset=name or "")
    if name is not None or captions.has_references:
        return resolved
    requests, left_out = without_references(resolved.requests, caller.spelled("references"))
    for line in left_out:
        caller.tell(line)
    return replace(resolved, requests=requests, notes=tuple(left_out))


def _refuse(captions: Captions, inputs: Inputs, of: Callable[[str], str]) -> None:
    """Raise UsageError if arguments exclude or require each other."""
    own, dataset, name = captions.dataset is None, of("dataset"), captions.dataset_name
    both = f"{of('candidates')} and {of('references')}"
    given = captions.candidates is not None or captions.references is not None
    included = isinstance(captions.candidates, records.Judgements) and captions.references is not None
    other = captions.protocol is not None or captions.draw != 1

    def refuse(wrong: object, message: str, hint: str, value: object = None) -> None:
        if wrong:
            code = "conflict" if "exclude" in message else "missing-option"
            raise UsageError(message, code=code, value=value, hint=hint)

    first, columns, split, restrict = of("keep_first"), of("columns"), of("split"), of("restrict")
    refuse(not own and captions.keep_first, f"{dataset} excludes {first}", f"Omit {first}", name)
    refuse(not own and given, f"{dataset} excludes {both}", f"Pass {dataset}, or {both}", name)
    refuse(own and inputs.get("columns"), f"{columns} requires {dataset}", f"Omit {columns}", columns)
    refuse(own and other, f"{of('protocol')} and {of('draw')} require {dataset}", f"Add {dataset}, or omit them")
    refuse(own and captions.candidates is None, f"{of('candidates')} is required", f"Pass {both}, or {dataset}")
    refuse(included, f"Judgements with references: {of('references')} excludes them", f"Omit {of('references')}")
    refuse(captions.restrict and captions.split is None, f"{restrict} requires {split}", f"Add {split}")


def _domains(read: _Read, rows: Sequence[Row], whole: records.ScoreTable, cache: bool) -> Iterator[dict[str, object]]:
    """Corpus scores of nocaps' domains, each with the document frequencies of its own references, and of all images."""
    if not {item.group for item in read.items} <= set(DOMAINS):
        return
    for domain in (*DOMAINS, "entire"):
        items = tuple(item for item in read.items if domain in (item.group, "entire"))
        if items:
            table = whole
            if domain != "entire":
                table = scoring.score(items, read.requests, read.resources, dataset=read.name, cache=cache)
            images = len({item.image for item in items})
            yield {"domain": domain, "images": images, "corpus": {row.name: table.corpus[row.key] for row in rows}}


@dataclass(frozen=True)
class _Read:
    """Captions, and the metrics that can be scored on them."""

    items: tuple[records.Item, ...]
    requests: tuple[MetricRequest, ...]
    resources: Resources
    name: str
    unscored: Mapping[records.ScoreColumn, Incomplete]
    documents: Sequence[records.Item] | None  # for document frequencies, if more than the items
    facts: Mapping[str, Any]  # fields of the result: notes, sample, file_columns, missing_captions


def _read_dataset(resolved: Resolved, captions: Captions, inputs: Inputs, caller: Caller) -> _Read:
    """The items of a data set, with one sample of references."""
    root = resolved.root
    opened = open_dataset(str(captions.dataset_name), root, checked_columns(inputs, caller))
    caller.note_columns(opened)
    named = with_version(opened.name, opened.version)
    text = captions.protocol
    chosen = opened.protocol(text.removeprefix(f"{named}/").removeprefix(f"{opened.name}/") if text else None)
    caller.on_data(root, opened.under_root)
    judged = load_scorable(opened, chosen.items, resolved.requests, resolved.resources).require_all()
    judgements = judged.draws[_place(captions.draw, len(judged.draws), f"{opened.name}/{chosen.items.name}", caller)]
    caller.tell(f"items: {named}/{chosen.items.name}: {chosen.items.description}")
    for line in judgements.notes:
        caller.tell(f"  {line}")
    unscored = {
        key: entry.as_incomplete() for entry in judged.unscored if entry.of_file for key in entry.request.score_columns
    }
    facts: dict[str, Any] = {"notes": judgements.notes, "file_columns": opened.file_columns}
    facts["sample"] = root.is_sample and opened.under_root
    metrics = judged.requests, judged.resources
    return _Read(judgements.items, *metrics, opened.name, unscored, judgements.documents, facts)


def _read_own(resolved: Resolved, captions: Captions, inputs: Inputs, caller: Caller) -> _Read:
    """The captions of a user."""
    candidates, notes = captions.candidates, list(resolved.notes)
    options = ReadingOptions(captions.split, captions.restrict, captions.keep_first, caller.spelled)
    items, sample = captions.items, False
    missing_images: tuple[str, ...] = ()
    if isinstance(candidates, records.Judgements):
        name, sample = candidates.dataset, isinstance(candidates, Judgements) and candidates.sample
    elif items is not None:
        name = "items"
    else:
        name = Path(candidates).stem if isinstance(candidates, str | os.PathLike) else "captions"
    if items is None:
        given, wanted = (Path(p) if isinstance(p, os.PathLike) else p for p in (candidates, captions.references))
        items, missing_images, other_splits = captions_in_memory(given, wanted, options)  # type: ignore[arg-type]
        if other_splits:
            notes.append(f"{count(other_splits, 'candidate')} of other splits left out ({caller.spelled('restrict')})")
            caller.tell(notes[-1])
        references = captions.references
        of = Path(references).name if isinstance(references, str | os.PathLike) else "the references"
        if note := note_without_candidate(missing_images, items, of):
            caller.tell(note)
            notes.insert(0, note)
    if captions.keep_first or not isinstance(candidates, records.Judgements):
        path = Path(candidates) if isinstance(candidates, str | os.PathLike) else Path(name)
        kept = single_captions(items, path, options)
        if left_out := len(items) - len(kept):
            notes.append(
                f"{count(left_out, 'further caption')} of the same images left out ({caller.spelled('keep_first')})"
            )
            caller.tell(notes[-1])
        items = kept
    whole = (isinstance(candidates, records.Judgements) and candidates.documents) or items
    items, requests, unscored, joined = items_with_scores(
        items, resolved.requests, name, allow_missing=inputs.get("allow_missing", False)
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
    for line in joined:
        caller.tell(line)
    for line in cautions:
        caller.caution(line)
    notes += [*joined, *cautions]
    facts = {"notes": tuple(notes), "sample": sample, "missing_captions": len(missing_images)}
    documents = whole if len(whole) > len(items) else None
    return _Read(items, requests, resolved.resources, name, unscored, documents, facts)


def _place(draw: int, draws: int, name: str, caller: Caller) -> int:
    if not 1 <= draw <= draws:
        message = f"{caller.spelled('draw')} {draw}: {name} has {count(draws, 'draw')}"
        raise UsageError(message, code="out-of-range", value=draw, hint="Draws are counted from 1")
    return draw - 1

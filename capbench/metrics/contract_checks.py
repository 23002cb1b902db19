"""Checks of a metric class against the contract of :mod:`capbench.metrics.base`.

Each check tests one promise of the contract, its docstring, on a few items. It passes, fails with an observation and
advice, or is skipped if it does not apply. One that fails is the last, since the others rely on it.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from capbench.core.errors import CapbenchError, UsageError
from capbench.core.records import FloatArray, Item
from capbench.metrics.base import Metric
from capbench.metrics.from_function import FunctionScores
from capbench.metrics.metric_request import MetricRequest
from capbench.metrics.needs import Resources
from capbench.metrics.requests import checked_class, require_resources
from capbench.metrics.score_cache import item_name

_TOLERANCE = 1e-5  # Relative and absolute. Networks compute with 32 bits, and rounding depends on the size of a batch.


@dataclass(frozen=True)
class ContractCheck:
    """The outcome of one check, with its promise; if it failed, the observation and the remedy; if skipped, why."""

    name: str
    promise: str
    state: Literal["passed", "failed", "skipped"]
    seen: str = ""
    advice: str = ""


class _Failed(Exception):  # noqa: N818  (a result, not an error)
    """A broken promise: observation and advice."""


def _expect(kept: object, seen: str, advice: str) -> None:
    if not kept:
        raise _Failed(seen, advice)


@dataclass
class _Subject:
    """The metric class, distinct items of several images with references, resources and the user's options."""

    metric: type[Metric]
    items: Sequence[Item]
    resources: Resources
    options: Mapping[str, Any]

    def prepared(self, items: Sequence[Item] | None = None) -> Metric:
        """A new metric, prepared on all items."""
        metric = MetricRequest(self.metric, self.metric.columns, self.options).make(self.resources)
        metric.prepare(self.items if items is None else items)
        return metric

    def statistics(self, metric: Metric, items: Sequence[Item] | None = None) -> FloatArray:
        """Statistics of items, with the same calls as in scoring."""
        chosen = self.items if items is None else items
        for plain in metric.plain_metrics():
            plain.open(chosen)
            if work := plain.slow_work(chosen):
                work.run(lambda _: None, None)
        return np.asarray(metric.statistics(chosen, lambda _: None))

    def same(self, expected: FloatArray, found: FloatArray, where: str, advice: str) -> None:
        """Two arrays of statistics are equal up to rounding."""
        shapes = f"{where}: statistics of shape {found.shape} instead of {expected.shape}"
        _expect(expected.shape == found.shape, shapes, advice)
        for item, row, other in zip(self.items, expected, found, strict=True):
            near = np.allclose(row, other, rtol=_TOLERANCE, atol=_TOLERANCE)
            _expect(near, f"{where}: {other} instead of {row} for {item_name(item)}", advice)


def check_contract(
    metric: type[Any],
    items: Sequence[Item],  # distinct items of several images, each with references
    resources: Resources,  # must meet the metric's needs
    options: Mapping[str, Any] | None = None,
) -> Iterator[ContractCheck]:
    """Run the checks, up to one that fails."""
    subject = _Subject(metric, items, resources, options or {})
    for check in _CHECKS:
        name = check.__name__.removeprefix("_").replace("_", "-")
        outcome = partial(ContractCheck, name, str(check.__doc__).strip())
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                skipped = check(subject)
            yield outcome("skipped" if skipped else "passed", skipped or "")
        except Exception as error:  # a plug-in may raise anything
            seen = f"it raised {type(error).__name__}: {error}"
            advice = "Correct the code, or raise a capbench.MetricError with the remedy"
            if isinstance(error, CapbenchError):
                seen, advice = f"a valid item raised an error: {error.message}", error.hint or advice
            yield outcome("failed", *(error.args if isinstance(error, _Failed) else (seen, advice)))
            return
        if check is _declaration:
            require_resources([MetricRequest(metric, metric.columns, subject.options)], resources)


def _declaration(subject: _Subject) -> None:
    """The class declares name, columns, titles, citation, needs and options."""
    metric: Any = subject.metric
    is_metric = isinstance(metric, type) and issubclass(metric, Metric)
    _expect(is_metric, f"{metric!r} is not a subclass of capbench.Metric", "Derive the class from capbench.Metric")
    abstract = " and no ".join(sorted(metric.__abstractmethods__))
    _expect(not abstract, f"it has no method {abstract}", "Implement it: statistics(items, progress) -> (n, k)")
    checked_class(metric, metric.__name__)
    names = metric.columns
    _expect(isinstance(names, tuple) and len(set(names)) == len(names), f"columns are {names!r}", "Use distinct names")
    unknown = {*metric.reference_free(), *metric.lower_is_better} - set(names)
    seen = f"reference_free() or lower_is_better names {unknown}"
    _expect(not unknown, seen, f"Columns are {', '.join(names)}")
    untitled = ", ".join(column for column in names if column not in metric.titles)
    _expect(not untitled, f"the column '{untitled}' has no title", "Add it to 'titles'")


def _options(subject: _Subject) -> None:
    """Default values are valid, values are checked, and unknown options are rejected."""
    metric = subject.metric
    defaults = {declared.name: declared.default for declared in metric.option_type.declared()}
    metric.option_type.read(metric.name, {name: value for name, value in defaults.items() if value is not None})
    made = MetricRequest(metric, metric.columns, subject.options).make(subject.resources).options
    advice = "Call super().__init__(resources, **options) first"
    _expect(isinstance(made, metric.option_type), f"after __init__ its options are {made!r}", advice)
    try:
        metric(subject.resources, **{**subject.options, "no_such_option": "1"})
    except UsageError:
        return
    raise _Failed("an unknown option was accepted", "Call super().__init__(resources, **options)")


def _statistics(subject: _Subject) -> None:
    """statistics() returns one row of finite numbers per item, and reports each item as progress once."""
    metric = subject.prepared()
    found, n = subject.statistics(metric), len(subject.items)
    is_table = found.ndim == 2 and len(found) == n and found.dtype.kind in "fiu"
    _expect(is_table, f"an array of shape {found.shape} and type {found.dtype} for {n} items", "Return (n, k) float64")
    _expect(np.isfinite(found).all(), f"{found[~np.isfinite(found)][:1]} as a statistic", "Return finite numbers")
    steps: list[int] = []
    metric.statistics(subject.items, steps.append)
    advice = "Call progress(1) after each item, or progress(n)"
    _expect(sum(steps) == n, f"progress of {sum(steps)} items for {n}", advice)


def _scores(subject: _Subject) -> None:
    """scores() and corpus_scores() return finite numbers for every column; those of corpus_of_sums() are the same."""
    metric = subject.prepared()
    rows = subject.statistics(metric).astype(np.float64)
    scores, corpus, terms = metric.scores(rows), metric.corpus_scores(rows), metric.corpus_terms(rows)
    sums = None if terms is None else metric.corpus_of_sums(np.asarray(terms).sum(axis=0, keepdims=True))
    for column in subject.metric.columns_under(subject.options, subject.metric.columns):
        values, total = np.asarray(scores.get(column, np.nan), dtype=np.float64), corpus.get(column, np.nan)
        seen, advice = f"scores of '{column}' are {values}, of the corpus {total}", "Return (n,) finite numbers, a mean"
        _expect(values.shape == (len(rows),) and np.isfinite([*values, total]).all(), seen, advice)
        if sums is not None:
            seen = f"the corpus score of '{column}' is {total}, but {sums[column]} from sums of corpus_terms"
            advice = "Return from corpus_terms the terms that corpus_of_sums needs, or None"
            _expect(np.allclose(sums[column], total, rtol=_TOLERANCE, atol=_TOLERANCE), seen, advice)


def _repeatable(subject: _Subject) -> None:
    """The same items have the same statistics in repeated calls and in a new metric."""
    metric = subject.prepared()
    first, again = subject.statistics(metric), subject.statistics(metric)
    advice = "Do not use times or state of earlier calls; generate random numbers from an option 'seed'"
    subject.same(first, again, "the second call", advice)
    subject.same(first, subject.statistics(subject.prepared()), "a new metric", advice)
    other = subject.prepared(subject.items[:1])
    other.prepare(subject.items)
    advice = "A second call of prepare() must replace what the first one took from its items"
    subject.same(first, subject.statistics(other), "prepare() called again", advice)


def _batches(subject: _Subject) -> None:
    """Statistics of an item depend neither on the rest of its batch nor on the order of the items."""
    metric = subject.prepared()
    expected = subject.statistics(metric)
    advice = "Compute each item separately; what depends on all items, but not on their order, belongs in prepare()"
    for size in (1, max(2, len(subject.items) // 2)):
        starts = range(0, len(subject.items), size)
        parts = np.concatenate([subject.statistics(metric, subject.items[at : at + size]) for at in starts])
        subject.same(expected, parts, f"batches of {size}", advice)
    backwards = list(reversed(subject.items))
    found = subject.statistics(subject.prepared(backwards), backwards)[::-1]
    subject.same(expected, found, "the items in reverse order", advice)


def _pickling(subject: _Subject) -> str | None:
    """A prepared metric can be pickled (functions and files in cached properties), and its copy computes the same."""
    if issubclass(subject.metric, FunctionScores):
        return "functions are computed in one process"
    metric = subject.prepared()
    expected = subject.statistics(metric)
    sent = pickle.loads(pickle.dumps(metric))  # trusted: pickled in the same line
    subject.same(expected, subject.statistics(sent), "the copy", "Hold in attributes what statistics() needs")
    return None


def _cache(subject: _Subject) -> None:
    """Equal metrics have one signature of one line, equal cache keys and corpus ids; different items different keys."""
    first, second = subject.prepared(), subject.prepared()
    signature, other = first.signature(), second.signature()
    _expect(signature == other, f"{signature} and {other} with the same options", "Remove from facts() what changes")
    _expect(len(signature.splitlines()) == 1, f"the signature is {signature!r}", "Return one line")
    keys, again = ([metric.cache_key(item) for item in subject.items] for metric in (first, second))
    same = keys == again and first.corpus_id() == second.corpus_id()
    _expect(same, "keys or corpus ids of the same items differ", "Return the same cache_key(item) and corpus_id()")
    _expect(len(set(keys)) == len(keys), "different items have one key", "Return different keys for different items")


def _references(subject: _Subject) -> str | None:
    """The columns of reference_free() have scores without references."""
    free = sorted(subject.metric.reference_free())
    if not free:
        return "all columns need references"
    advice = f"Remove {free[0]} from reference_free(), or compute it without references"
    bare = [replace(item, references=()) for item in subject.items]
    metric = subject.prepared(bare)
    columns = metric.scores(subject.statistics(metric, bare).astype(np.float64))
    for column in free:
        _expect(np.isfinite(columns[column]).all(), f"without references '{column}' is not a finite number", advice)
    return None


def _bad_input(subject: _Subject) -> None:
    """Unusual items have a score, or raise a capbench error with a remedy."""
    item = subject.items[0]
    texts = ("", "dog", " ... !", "Ein Hündchen 犬 🐕", " ".join(["dog"] * 200))
    strange = [replace(item, candidate=text) for text in texts]
    for changed in (*strange, replace(item, image="no-such-image"), replace(item, references=())):
        try:
            metric = subject.prepared([changed])
            metric.scores(subject.statistics(metric, [changed]).astype(np.float64))
        except CapbenchError:
            continue
        except Exception as error:  # users of the metric would get a traceback
            what = f"{item_name(changed)} with {len(changed.references)} references"
            seen = f"{what} raised {type(error).__name__}: {error}"
            raise _Failed(seen, "Define a score for it, or raise a capbench.MetricError that names the item") from error


_CHECKS: Sequence[Callable[[_Subject], str | None]] = (
    _declaration,
    _options,
    _statistics,
    _scores,
    _repeatable,
    _batches,
    _pickling,
    _cache,
    _references,
    _bad_input,
)  # each returns why it does not apply, or None

"""Checks that run the contract of :mod:`capbench.metrics.base` against a metric class, one by one.

Each check looks at one promise of the contract on a few items and either passes, fails with what was seen and what to
do, or is skipped where it does not apply or an earlier check that it depends on failed. So a metric with one fault
fails one check.
"""

from __future__ import annotations

import dataclasses
import pickle
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from capbench.core.cache import Cache
from capbench.core.errors import CapbenchError, MetricError, UsageError
from capbench.core.options import Choice, File, Flag, Options
from capbench.core.records import FloatArray, Item
from capbench.metrics.abilities import HasSlowWork, Opens
from capbench.metrics.base import CombinedMetric, Metric, Resources, columns_under, corpus_of_sums, corpus_terms
from capbench.metrics.from_function import FunctionScores
from capbench.metrics.metric_request import MetricRequest
from capbench.metrics.needs import Need
from capbench.metrics.score_cache import Extraction, may_be_cached

__all__ = ["ContractCheck", "check_contract"]

_TOLERANCE = 1e-5
"""Relative and absolute; networks compute with 32 bits, and batches of another size round otherwise."""


@dataclass(frozen=True)
class ContractCheck:
    """The outcome of one check.

    Attributes:
        name: of the check (``batches``).
        promise: the promise that is checked, one line.
        state: ``passed``, ``failed`` or ``skipped``.
        seen: what was seen where it failed, or why it was skipped; else ``""``.
        advice: what to do where it failed; else ``""``.
    """

    name: str
    promise: str
    state: Literal["passed", "failed", "skipped"]
    seen: str = ""
    advice: str = ""


class _Failed(Exception):  # noqa: N818  (a result, not an error)
    """A promise that is not kept: what was seen, and what to do."""

    def __init__(self, seen: str, advice: str) -> None:
        super().__init__(seen)
        self.seen, self.advice = seen, advice


class _Skipped(Exception):  # noqa: N818  (a result, not an error)
    """A check that does not apply."""


@dataclass
class _Subject:
    """The metric that is checked.

    Attributes:
        metric: its class.
        items: distinct items of several images, each with references.
        resources: what is given to it.
        given: options that are given.
    """

    metric: type[Metric]
    items: Sequence[Item]
    resources: Resources
    given: Mapping[str, Any]

    def make(self, **options: Any) -> Metric:
        """A fresh metric that has not seen any items."""
        return MetricRequest(self.metric, self.metric.columns, {**self.given, **options}).make(self.resources)

    def prepared(self, items: Sequence[Item] | None = None, **options: Any) -> Metric:
        """A fresh metric that has seen all items."""
        metric = self.make(**options)
        metric.prepare(self.items if items is None else items)
        return metric

    def statistics(self, metric: Metric, items: Sequence[Item] | None = None) -> FloatArray:
        """Statistics of items, by the calls that scoring makes."""
        chosen = self.items if items is None else items
        for plain in metric.inputs() if isinstance(metric, CombinedMetric) else [metric]:
            if isinstance(plain, Opens):
                plain.open(chosen)
            work = plain.slow_work(chosen) if isinstance(plain, HasSlowWork) else None
            if work is not None:
                work.run(lambda _: None)
        return np.asarray(metric.statistics(chosen, lambda _: None))


def check_contract(
    metric: type[Any], items: Sequence[Item], resources: Resources, options: Mapping[str, Any] | None = None
) -> Iterator[ContractCheck]:
    """Run every check, in an order in which later ones rely on earlier ones.

    Args:
        metric: a class that should keep the contract.
        items: distinct items of several images, each with references.
        resources: what is given to the metric; it has to meet its needs.
        options: options that are given.

    Raises:
        UsageError: an option that is given does not fit.
        MetricError: something that the metric needs is not given.
    """
    subject = _Subject(metric, items, resources, options or {})
    failed: set[str] = set()
    for check, after in _CHECKS.items():
        name = check.__name__.removeprefix("_").replace("_", "-")
        outcome = partial(ContractCheck, name, str(check.__doc__).strip())
        broken = sorted(failed & set(after))
        if broken:
            yield outcome("skipped", f"relies on the check '{broken[0]}'")
            failed.add(name)  # what relies on this one cannot be told either
            continue
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                check(subject)
        except _Skipped as reason:
            yield outcome("skipped", str(reason))
        except _Failed as failure:
            failed.add(name)
            yield outcome("failed", failure.seen, failure.advice)
        except CapbenchError as error:
            failed.add(name)
            yield outcome("failed", f"an item that can be scored gave an error: {error.message}", error.hint or _ADVICE)
        except Exception as error:  # a metric of others may raise anything
            failed.add(name)
            seen = f"it raised {type(error).__name__}: {error}"
            yield outcome("failed", seen, "Correct the code, or raise a capbench.MetricError that says what to do")
        else:
            yield outcome("passed")
        if check is _declaration and not failed:
            _require(subject)


def _require(subject: _Subject) -> None:
    """Check what is given from outside: options and needs."""
    request = MetricRequest(subject.metric, subject.metric.columns, subject.given)
    subject.metric.option_type.read(request.label, subject.given)
    parses = request.takes_parses(subject.resources)
    missing = [why for need, why in request.lacking(subject.resources) if parses or not need.may_be_spared]
    if missing:
        raise MetricError(
            f"{request.label} cannot be checked; missing: {' and '.join(missing)}",
            hint="The checks use captions and images of the embedded sample",
        )


_ADVICE = "Give it what it needs, or correct the code"


def _declaration(subject: _Subject) -> None:
    """It declares name, columns, titles, citation, needs and options."""
    metric = subject.metric
    if not (isinstance(metric, type) and issubclass(metric, Metric)):
        raise _Failed(f"{metric!r} is not a subclass of capbench.Metric", "Derive the class from capbench.Metric")
    if abstract := sorted(getattr(metric, "__abstractmethods__", ())):
        raise _Failed(
            f"it has no method {' and no '.join(abstract)}", "Write it: statistics(items, progress) -> (n, k)"
        )
    for attribute in ("name", "columns", "titles", "citation"):
        if not getattr(metric, attribute, None):
            raise _Failed(f"it has no '{attribute}'", f"Set the class attribute '{attribute}'")
    columns: Any = metric.columns
    if isinstance(columns, str) or not all(isinstance(name, str) and name for name in columns):
        raise _Failed(f"columns are {columns!r}", 'Give a tuple of names: columns = ("my-metric",)')
    if len(set(columns)) < len(columns):
        raise _Failed(f"two columns have one name: {', '.join(columns)}", "Give each column a name of its own")
    declared = {"reference_free()": metric.reference_free(), "lower_is_better": metric.lower_is_better}
    for what, named in declared.items():
        if unknown := sorted(set(named) - set(columns)):
            raise _Failed(f"{what} names '{unknown[0]}', which is not a column", f"Columns are {', '.join(columns)}")
    if missing := [column for column in columns if column not in metric.titles]:
        raise _Failed(f"the column '{missing[0]}' has no title", "Add it to 'titles'")
    if not all(isinstance(need, Need) for need in metric.needs):
        raise _Failed(f"needs are {metric.needs!r}", "List objects of capbench.metrics.needs, such as References()")
    if not (isinstance(metric.option_type, type) and issubclass(metric.option_type, Options)):
        raise _Failed(f"option_type is {metric.option_type!r}", "Declare options in a subclass of capbench.Options")
    if int(metric.batch_size) < 1:
        raise _Failed(f"batch_size is {metric.batch_size}", "Give a number of items, at least 1")


def _options(subject: _Subject) -> None:
    """Defaults fit, values are checked, and unknown options are rejected."""
    metric = subject.metric
    if not dataclasses.is_dataclass(metric.option_type):
        raise _Failed("option_type is not a dataclass", "Put @dataclass(frozen=True) above it")
    for declared in metric.option_type.declared():
        if declared.default is None:
            continue
        try:
            metric.option_type.read(metric.name, {declared.name: declared.default})
        except UsageError as error:
            raise _Failed(f"the default of '{declared.name}' does not fit: {error.message}", "Correct it") from error
    made = subject.make()
    if not isinstance(made.options, metric.option_type):
        raise _Failed(
            f"after __init__ its options are {made.options!r}", "Call super().__init__(resources, **options) first"
        )
    try:
        metric(subject.resources, **{**subject.given, "no_such_option": "1"})
    except UsageError:
        return
    except TypeError as error:
        raise _Failed(f"an unknown option raised TypeError: {error}", "Take **options in __init__") from error
    raise _Failed("an unknown option was accepted", "Call super().__init__(resources, **options)")


def _statistics(subject: _Subject) -> None:
    """statistics() gives one row of finite numbers for each item."""
    found = subject.statistics(subject.prepared())
    n = len(subject.items)
    if found.ndim != 2 or len(found) != n or found.dtype.kind not in "fiu":
        raise _Failed(f"an array of shape {found.shape} and type {found.dtype} for {n} items", "Return (n, k) float64")
    bad = np.flatnonzero(~np.isfinite(found.astype(np.float64)).all(axis=1))
    if len(bad):
        raise _Failed(f"{found[bad[0]].tolist()} for {_named(subject.items[bad[0]])}", "Return finite numbers")


def _progress(subject: _Subject) -> None:
    """statistics() reports each item as progress, once."""
    metric = subject.prepared()
    subject.statistics(metric)  # which does what comes first
    steps: list[int] = []
    metric.statistics(subject.items, steps.append)
    if sum(steps) != len(subject.items):
        raise _Failed(
            f"progress of {sum(steps)} items for {len(subject.items)}",
            "Call progress(1) after each item, or progress(n)",
        )


def _scores(subject: _Subject) -> None:
    """scores() gives one finite number for each item and column."""
    metric = subject.prepared()
    columns = metric.scores(subject.statistics(metric).astype(np.float64))
    for column in _columns(subject):
        if column not in columns:
            raise _Failed(f"there are no scores of '{column}'", "Return every column of 'columns'")
        values = np.asarray(columns[column])
        if values.shape != (len(subject.items),):
            raise _Failed(f"scores of '{column}' have the shape {values.shape}", "Return (n,) for each column")
        bad = np.flatnonzero(~np.isfinite(values.astype(np.float64)))
        if len(bad):
            raise _Failed(f"{values[bad[0]]} as '{column}' of {_named(subject.items[bad[0]])}", "Return finite numbers")


def _repeatable(subject: _Subject) -> None:
    """The same items have the same statistics, in the same metric and in a new one."""
    metric = subject.prepared()
    first, again = subject.statistics(metric), subject.statistics(metric)
    advice = "Use no random numbers, times or state of earlier calls; make random numbers from an option 'seed'"
    _same(subject, first, again, "the second call", advice)
    _same(subject, first, subject.statistics(subject.prepared()), "a new metric", advice)


def _batches(subject: _Subject) -> None:
    """Statistics of an item do not depend on what else is in its batch."""
    metric = subject.prepared()
    whole = subject.statistics(metric)
    advice = "Compute each item alone; what depends on all items belongs into prepare()"
    for size in (1, max(2, len(subject.items) // 2)):
        parts = [
            subject.statistics(metric, subject.items[start : start + size])
            for start in range(0, len(subject.items), size)
        ]
        if {part.shape[1:] for part in parts} != {whole.shape[1:]}:
            raise _Failed(f"in batches of {size} the widths are {sorted({p.shape[1] for p in parts})}", "Use one width")
        _same(subject, whole, np.concatenate(parts), f"batches of {size}", advice)


def _order(subject: _Subject) -> None:
    """Statistics do not depend on the order of the items."""
    backwards = list(reversed(subject.items))
    found = subject.statistics(subject.prepared(backwards), backwards)[::-1]
    advice = "Take from prepare() only what does not depend on the order of the items"
    _same(subject, subject.statistics(subject.prepared()), found, "the items in reverse order", advice)


def _corpus(subject: _Subject) -> None:
    """corpus_scores() gives a finite number for each column, and sums over items give the same."""
    metric = subject.prepared()
    rows = subject.statistics(metric).astype(np.float64)
    for chosen in (rows, rows[: max(1, len(rows) // 2)]):
        corpus = metric.corpus_scores(chosen)
        terms = corpus_terms(metric, chosen)
        sums = None if terms is None else corpus_of_sums(metric, np.asarray(terms).sum(axis=0, keepdims=True))
        for column in _columns(subject):
            value = corpus.get(column)
            if value is None or not np.isfinite(value):
                raise _Failed(f"the corpus score of '{column}' is {value}", "Return a finite number for every column")
            if sums is not None and not np.allclose(sums[column], value, rtol=_TOLERANCE, atol=_TOLERANCE):
                raise _Failed(
                    f"the corpus score of '{column}' is {value}, and from sums of corpus_terms {sums[column].tolist()}",
                    "Return from corpus_terms what corpus_of_sums needs, or None",
                )


def _signature(subject: _Subject) -> None:
    """The signature is one line that is the same for the same metric, and other options change it."""
    first, second = subject.prepared().signature(), subject.prepared().signature()
    if first != second:
        raise _Failed(
            f"two metrics with the same options have {_difference(first, second)}",
            "Take out of facts() what changes from run to run",
        )
    if not first or len(first.splitlines()) != 1:
        raise _Failed(f"the signature is {first!r}", "Return one line")
    for name, value in _other_values(subject):
        try:
            other = subject.prepared(**{name: value}).signature()
        except CapbenchError:
            continue  # a value that does not go with what is given
        if other == first:
            raise _Failed(
                f"with the option {name}={value} it is the same",
                "Do not override signature(); leave the option in it unless what facts() says covers it",
            )


def _pickling(subject: _Subject) -> None:
    """A prepared metric can be sent to another process, and computes the same there."""
    if issubclass(subject.metric, FunctionScores):
        raise _Skipped("functions are computed in one process")
    metric = subject.prepared()
    expected = subject.statistics(metric)
    try:
        sent = pickle.loads(pickle.dumps(metric))  # what was pickled a line before
    except Exception as error:  # any object of the metric's may refuse
        raise _Failed(
            f"it cannot be pickled: {error}",
            "Keep functions and open files out of attributes: a functools.cached_property is made anew there",
        ) from error
    _same(subject, expected, subject.statistics(sent), "the copy", "Keep in attributes what statistics() needs")


def _cache(subject: _Subject) -> None:
    """Statistics come back from the score cache as they were, each item under a key of its own."""
    metric = subject.prepared()
    plain = metric.inputs() if isinstance(metric, CombinedMetric) else [metric]
    if not all(may_be_cached(each) for each in plain):
        raise _Skipped("its code cannot be signed, or it asks for it: its scores are not kept")
    index = np.arange(len(subject.items))
    store = _Memory()
    found = []
    for _ in range(2):
        extraction = Extraction(subject.items, subject.items, index, store, lambda _: None)
        again = subject.make()
        extraction.add(again, again.name)
        extraction.run()
        found.append(extraction.of(again))
    (first, _), (second, known) = found
    if not known.all():
        raise _Failed(
            f"{int((~known.astype(bool)).sum())} of {len(index)} items were not found again",
            "Return from cache_key(item) and corpus_id() what is the same for the same item and the same items",
        )
    _same(subject, first, second, "the cache", "Return from cache_key(item) what differs between items", exact=True)


def _references(subject: _Subject) -> None:
    """Columns that reference_free() names have scores without references."""
    free = sorted(subject.metric.reference_free())
    if not free:
        raise _Skipped("all columns need references")
    bare = [dataclasses.replace(item, references=()) for item in subject.items]
    metric = subject.prepared(bare)
    try:
        columns = metric.scores(subject.statistics(metric, bare).astype(np.float64))
    except CapbenchError as error:
        raise _Failed(
            f"without references there is an error: {error.message}", f"Take {free[0]} out of reference_free()"
        ) from error
    for column in free:
        values = np.asarray(columns[column])
        if not np.isfinite(values).all():
            raise _Failed(
                f"without references '{column}' is {values[~np.isfinite(values)][0]}",
                f"Take {column} out of reference_free(), or compute it without references",
            )


def _bad_input(subject: _Subject) -> None:
    """Strange items have a score, or an error of capbench's that says what to do."""
    item = subject.items[0]
    strange = {
        "an empty candidate": dataclasses.replace(item, candidate=""),
        "a candidate of one word": dataclasses.replace(item, candidate="dog"),
        "a candidate without words": dataclasses.replace(item, candidate=" ... !"),
        "a candidate with other letters": dataclasses.replace(item, candidate="Ein Hündchen 犬 🐕"),
        "a candidate of 200 words": dataclasses.replace(item, candidate=" ".join(["dog"] * 200)),
        "an unknown image": dataclasses.replace(item, image="no-such-image"),
        "no references": dataclasses.replace(item, references=()),
    }
    for what, changed in strange.items():
        try:
            metric = subject.prepared([changed])
            metric.scores(subject.statistics(metric, [changed]).astype(np.float64))
        except CapbenchError:
            continue
        except Exception as error:  # which a user of the metric would see as a traceback
            raise _Failed(
                f"{what} raised {type(error).__name__}: {error}",
                "Decide on a score for it, or raise a capbench.MetricError that names the item",
            ) from error


_CHECKS: Mapping[Callable[[_Subject], None], tuple[str, ...]] = {
    _declaration: (),
    _options: ("declaration",),
    _statistics: ("declaration", "options"),
    _progress: ("statistics",),
    _scores: ("statistics",),
    _repeatable: ("statistics",),
    _batches: ("repeatable",),
    _order: ("batches",),
    _corpus: ("scores",),
    _signature: ("options",),
    _pickling: ("repeatable",),
    _cache: ("batches", "signature"),
    _references: ("scores",),
    _bad_input: ("statistics", "scores"),
}
"""Checks in their order, each with those that it relies on."""


class _Memory(Cache):
    """A score cache that leaves no file."""

    def __init__(self) -> None:
        super().__init__("scores", enabled=False)
        self._held: dict[tuple[str, bytes], bytes] = {}

    def get(self, space: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The values of those keys that were put."""
        return {key: self._held[space, key] for key in keys if (space, key) in self._held}

    def put(self, space: str, entries: Any) -> None:
        """Keep entries."""
        self._held.update({(space, key): value for key, value in entries})


def _columns(subject: _Subject) -> tuple[str, ...]:
    """The columns under the options that are given."""
    return columns_under(subject.metric, subject.given, subject.metric.columns)


def _other_values(subject: _Subject) -> Iterator[tuple[str, Any]]:
    """For each option that signatures hold a value other than the present one, where one is known to fit."""
    present = subject.make().options
    for declared in subject.metric.option_type.declared():
        value, kind = getattr(present, declared.name), declared.kind
        if not declared.sign_as or isinstance(kind, File) or value is None:
            continue  # instead of None the weights decide, perhaps on the very value that is tried
        tried: list[Any] = []
        if isinstance(kind, Choice):
            tried = list(kind.choices)
        elif isinstance(kind, Flag):
            tried = [not value]
        elif isinstance(value, int | float):
            tried = [value + 1, value / 2, kind.example()]
        else:
            tried = [kind.example()]
        for other in tried:
            try:
                read = kind.read(other)
            except ValueError:
                continue
            if read != value:
                yield declared.name, other
                break


def _same(
    subject: _Subject, expected: FloatArray, found: FloatArray, where: str, advice: str, *, exact: bool = False
) -> None:
    """Raise unless two arrays of statistics are the same."""
    if expected.shape != found.shape:
        raise _Failed(f"{where}: statistics of shape {found.shape} instead of {expected.shape}", advice)
    tolerance = 0.0 if exact else _TOLERANCE
    unlike = np.atleast_1d(~np.isclose(expected, found, rtol=tolerance, atol=tolerance).all(axis=1))
    if unlike.any():
        place = int(np.flatnonzero(unlike)[0])
        column = int(np.argmax(np.abs(expected[place] - found[place])))
        raise _Failed(
            f"{where}: {found[place, column]:.6g} instead of {expected[place, column]:.6g} for "
            f"{_named(subject.items[place])}, and {int(unlike.sum())} of {len(unlike)} items differ",
            advice,
        )


def _difference(first: str, second: str) -> str:
    """The first part of two signatures that differs."""
    pairs = zip(first.split("|"), second.split("|"), strict=False)
    one, other = next(((a, b) for a, b in pairs if a != b), (first, second))
    return f"the signatures {one} and {other}"


def _named(item: Item) -> str:
    return f"image '{item.image}' ('{item.candidate[:40]}')"

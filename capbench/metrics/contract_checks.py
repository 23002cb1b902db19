"""Checks of a metric class against the contract of :mod:`capbench.metrics.base`.

Each check tests one promise of the contract on a few items. It passes, fails with an observation and advice, or is
skipped if it does not apply or a check that it depends on failed. So a metric with one fault fails one check.
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
from capbench.metrics.base import CombinedMetric, Metric
from capbench.metrics.from_function import FunctionScores
from capbench.metrics.metric_request import MetricRequest
from capbench.metrics.needs import Need, Resources
from capbench.metrics.score_cache import Extraction, may_be_cached

_TOLERANCE = 1e-5
"""Relative and absolute. Networks compute with 32 bits, and rounding depends on the size of a batch."""


@dataclass(frozen=True)
class ContractCheck:
    """The outcome of one check.

    Attributes:
        name: name of the check (``batches``).
        promise: the promise that is checked, in one line.
        state: ``passed``, ``failed`` or ``skipped``.
        seen: the observation if it failed, or the reason if it was skipped; otherwise ``""``.
        advice: the remedy if it failed; otherwise ``""``.
    """

    name: str
    promise: str
    state: Literal["passed", "failed", "skipped"]
    seen: str = ""
    advice: str = ""


class _Failed(Exception):  # noqa: N818  (a result, not an error)
    """A broken promise, with observation and advice."""

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
        resources: the metric's resources.
        options: the user's options.
    """

    metric: type[Metric]
    items: Sequence[Item]
    resources: Resources
    options: Mapping[str, Any]

    def make(self, **options: Any) -> Metric:
        """A new metric that is not prepared."""
        return MetricRequest(self.metric, self.metric.columns, {**self.options, **options}).make(self.resources)

    def prepared(self, items: Sequence[Item] | None = None, **options: Any) -> Metric:
        """A new metric, prepared on all items."""
        metric = self.make(**options)
        metric.prepare(self.items if items is None else items)
        return metric

    def statistics(self, metric: Metric, items: Sequence[Item] | None = None) -> FloatArray:
        """Statistics of items, with the same calls as in scoring."""
        chosen = self.items if items is None else items
        for plain in metric.inputs() if isinstance(metric, CombinedMetric) else [metric]:
            plain.open(chosen)
            work = plain.slow_work(chosen)
            if work is not None:
                work.run(lambda _: None)
        return np.asarray(metric.statistics(chosen, lambda _: None))


def check_contract(
    metric: type[Any], items: Sequence[Item], resources: Resources, options: Mapping[str, Any] | None = None
) -> Iterator[ContractCheck]:
    """Run all checks; later ones rely on earlier ones.

    Args:
        metric: the class.
        items: distinct items of several images, each with references.
        resources: the metric's resources, which must meet its needs.
        options: the user's options.

    Raises:
        UsageError: an invalid option.
        MetricError: a required resource is missing.
    """
    subject = _Subject(metric, items, resources, options or {})
    failed: set[str] = set()
    for check, after in _CHECKS.items():
        name = check.__name__.removeprefix("_").replace("_", "-")
        outcome = partial(ContractCheck, name, str(check.__doc__).strip())
        broken = sorted(failed & set(after))
        if broken:
            yield outcome("skipped", f"relies on the check '{broken[0]}'")
            failed.add(name)  # checks that rely on this one are skipped, too
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
            yield outcome("failed", f"a valid item raised an error: {error.message}", error.hint or _ADVICE)
        except Exception as error:  # a plug-in may raise anything
            failed.add(name)
            seen = f"it raised {type(error).__name__}: {error}"
            yield outcome("failed", seen, "Correct the code, or raise a capbench.MetricError with the remedy")
        else:
            yield outcome("passed")
        if check is _declaration and not failed:
            _require(subject)


def _require(subject: _Subject) -> None:
    """Check the user's options and resources."""
    request = MetricRequest(subject.metric, subject.metric.columns, subject.options)
    subject.metric.option_type.read(request.label, subject.options)
    parses = request.takes_parses(subject.resources)
    missing = [each for each in request.missing(subject.resources) if parses or not each[0].may_be_spared]
    if missing:
        raise MetricError(
            f"{request.label} cannot be checked; missing: {' and '.join(reason for _, reason in missing)}",
            code=missing[0][0].code,
            value=request.label,
            hint="The checks use captions and images of the embedded sample",
        )


_ADVICE = "Provide the resources that the metric requires, or correct the code"


def _declaration(subject: _Subject) -> None:
    """The class declares name, columns, titles, citation, needs and options."""
    metric = subject.metric
    if not (isinstance(metric, type) and issubclass(metric, Metric)):
        raise _Failed(f"{metric!r} is not a subclass of capbench.Metric", "Derive the class from capbench.Metric")
    if abstract := sorted(getattr(metric, "__abstractmethods__", ())):
        raise _Failed(
            f"it has no method {' and no '.join(abstract)}", "Implement it: statistics(items, progress) -> (n, k)"
        )
    for attribute in ("name", "columns", "titles", "citation"):
        if not getattr(metric, attribute, None):
            raise _Failed(f"it has no '{attribute}'", f"Set the class attribute '{attribute}'")
    columns: Any = metric.columns
    if isinstance(columns, str) or not all(isinstance(name, str) and name for name in columns):
        raise _Failed(f"columns are {columns!r}", 'Use a tuple of names: columns = ("my-metric",)')
    if len(set(columns)) < len(columns):
        raise _Failed(f"two columns have the same name: {', '.join(columns)}", "Use distinct names")
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
        raise _Failed(f"batch_size is {metric.batch_size}", "Use a number of items, at least 1")


def _options(subject: _Subject) -> None:
    """Default values are valid, values are checked, and unknown options are rejected."""
    metric = subject.metric
    if not dataclasses.is_dataclass(metric.option_type):
        raise _Failed("option_type is not a dataclass", "Put @dataclass(frozen=True) above it")
    for declared in metric.option_type.declared():
        if declared.default is None:
            continue
        try:
            metric.option_type.read(metric.name, {declared.name: declared.default})
        except UsageError as error:
            raise _Failed(f"the default of '{declared.name}' is not valid: {error.message}", "Correct it") from error
    made = subject.make()
    if not isinstance(made.options, metric.option_type):
        raise _Failed(
            f"after __init__ its options are {made.options!r}", "Call super().__init__(resources, **options) first"
        )
    try:
        metric(subject.resources, **{**subject.options, "no_such_option": "1"})
    except UsageError:
        return
    except TypeError as error:
        raise _Failed(f"an unknown option raised TypeError: {error}", "Accept **options in __init__") from error
    raise _Failed("an unknown option was accepted", "Call super().__init__(resources, **options)")


def _statistics(subject: _Subject) -> None:
    """statistics() returns one row of finite numbers per item."""
    found = subject.statistics(subject.prepared())
    n = len(subject.items)
    if found.ndim != 2 or len(found) != n or found.dtype.kind not in "fiu":
        raise _Failed(f"an array of shape {found.shape} and type {found.dtype} for {n} items", "Return (n, k) float64")
    bad = np.flatnonzero(~np.isfinite(found.astype(np.float64)).all(axis=1))
    if len(bad):
        raise _Failed(f"{found[bad[0]].tolist()} for {_named(subject.items[bad[0]])}", "Return finite numbers")


def _progress(subject: _Subject) -> None:
    """statistics() reports each item as progress once."""
    metric = subject.prepared()
    subject.statistics(metric)  # opens the metric and does its slow work
    steps: list[int] = []
    metric.statistics(subject.items, steps.append)
    if sum(steps) != len(subject.items):
        raise _Failed(
            f"progress of {sum(steps)} items for {len(subject.items)}",
            "Call progress(1) after each item, or progress(n)",
        )


def _scores(subject: _Subject) -> None:
    """scores() returns one finite number per item and column."""
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
    """The same items have the same statistics in repeated calls and in a new metric."""
    metric = subject.prepared()
    first, again = subject.statistics(metric), subject.statistics(metric)
    advice = "Do not use times or state of earlier calls; generate random numbers from an option 'seed'"
    _same(subject, first, again, "the second call", advice)
    _same(subject, first, subject.statistics(subject.prepared()), "a new metric", advice)
    other = subject.prepared(subject.items[:1])
    other.prepare(subject.items)
    advice = "A second call of prepare() must replace what the first one took from its items"
    _same(subject, first, subject.statistics(other), "prepare() called again", advice)


def _batches(subject: _Subject) -> None:
    """Statistics of an item do not depend on the rest of its batch."""
    metric = subject.prepared()
    whole = subject.statistics(metric)
    advice = "Compute each item separately; what depends on all items belongs in prepare()"
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
    """corpus_scores() returns a finite number per column, which equals the value from sums over items."""
    metric = subject.prepared()
    rows = subject.statistics(metric).astype(np.float64)
    for chosen in (rows, rows[: max(1, len(rows) // 2)]):
        corpus = metric.corpus_scores(chosen)
        terms = metric.corpus_terms(chosen)
        sums = None if terms is None else metric.corpus_of_sums(np.asarray(terms).sum(axis=0, keepdims=True))
        for column in _columns(subject):
            value = corpus.get(column)
            if value is None or not np.isfinite(value):
                raise _Failed(f"the corpus score of '{column}' is {value}", "Return a finite number for every column")
            if sums is not None and not np.allclose(sums[column], value, rtol=_TOLERANCE, atol=_TOLERANCE):
                raise _Failed(
                    f"the corpus score of '{column}' is {value}, but {sums[column].tolist()} from sums of corpus_terms",
                    "Return from corpus_terms the terms that corpus_of_sums needs, or None",
                )


def _signature(subject: _Subject) -> None:
    """The signature is one line, identical for identical metrics, and changes with the options."""
    first, second = subject.prepared().signature(), subject.prepared().signature()
    if first != second:
        raise _Failed(
            f"two metrics with the same options have {_difference(first, second)}",
            "Remove from facts() what changes from run to run",
        )
    if not first or len(first.splitlines()) != 1:
        raise _Failed(f"the signature is {first!r}", "Return one line")
    for name, value in _other_values(subject):
        try:
            other = subject.prepared(**{name: value}).signature()
        except CapbenchError:
            continue  # a value that conflicts with the user's options
        if other == first:
            raise _Failed(
                f"the option {name}={value} does not change it",
                "Do not override signature(); omit an option only if facts() covers it",
            )


def _pickling(subject: _Subject) -> None:
    """A prepared metric can be pickled, and its copy computes the same."""
    if issubclass(subject.metric, FunctionScores):
        raise _Skipped("functions are computed in one process")
    metric = subject.prepared()
    expected = subject.statistics(metric)
    try:
        sent = pickle.loads(pickle.dumps(metric))  # trusted: pickled in the same line
    except Exception as error:  # an attribute may raise anything
        raise _Failed(
            f"it cannot be pickled: {error}",
            "Hold functions and open files in a functools.cached_property, which the copy computes again",
        ) from error
    _same(subject, expected, subject.statistics(sent), "the copy", "Hold in attributes what statistics() needs")


def _cache(subject: _Subject) -> None:
    """The score cache returns each item's statistics unchanged, under distinct keys."""
    metric = subject.prepared()
    plain = metric.inputs() if isinstance(metric, CombinedMetric) else [metric]
    if not all(may_be_cached(each) for each in plain):
        raise _Skipped("its scores are not cached: its code cannot be signed, or keeps_statistics is False")
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
            f"{int((~known.astype(bool)).sum())} of {len(index)} items were not found in the cache",
            "Return the same cache_key(item) for the same item and the same corpus_id() for the same items",
        )
    _same(
        subject,
        first,
        second,
        "the cache",
        "Return different keys for different items from cache_key(item)",
        exact=True,
    )


def _references(subject: _Subject) -> None:
    """The columns of reference_free() have scores without references."""
    free = sorted(subject.metric.reference_free())
    if not free:
        raise _Skipped("all columns need references")
    bare = [dataclasses.replace(item, references=()) for item in subject.items]
    metric = subject.prepared(bare)
    try:
        columns = metric.scores(subject.statistics(metric, bare).astype(np.float64))
    except CapbenchError as error:
        raise _Failed(
            f"without references it raised an error: {error.message}", f"Remove {free[0]} from reference_free()"
        ) from error
    for column in free:
        values = np.asarray(columns[column])
        if not np.isfinite(values).all():
            raise _Failed(
                f"without references '{column}' is {values[~np.isfinite(values)][0]}",
                f"Remove {column} from reference_free(), or compute it without references",
            )


def _bad_input(subject: _Subject) -> None:
    """Unusual items have a score, or raise a capbench error with a remedy."""
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
        except Exception as error:  # users of the metric would get a traceback
            raise _Failed(
                f"{what} raised {type(error).__name__}: {error}",
                "Define a score for it, or raise a capbench.MetricError that names the item",
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
"""Checks in their order, each with the checks that it relies on."""


class _Memory(Cache):
    """A score cache in memory."""

    def __init__(self) -> None:
        super().__init__("scores", enabled=False)
        self._held: dict[tuple[str, bytes], bytes] = {}

    def get(self, space: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The stored values of some keys."""
        return {key: self._held[space, key] for key in keys if (space, key) in self._held}

    def put(self, space: str, entries: Any) -> None:
        """Store entries."""
        self._held.update({(space, key): value for key, value in entries})


def _columns(subject: _Subject) -> tuple[str, ...]:
    """The columns under the user's options."""
    return subject.metric.columns_under(subject.options, subject.metric.columns)


def _other_values(subject: _Subject) -> Iterator[tuple[str, Any]]:
    """Another valid value, if one is known, for each option that is part of the signature."""
    present = subject.make().options
    for declared in subject.metric.option_type.declared():
        value, kind = getattr(present, declared.name), declared.kind
        if not declared.sign_as or isinstance(kind, File) or value is None:
            continue  # None: the weights determine the value, possibly the one that would be tried
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
    """Raise unless two arrays of statistics are equal."""
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
    """The first differing part of two signatures."""
    pairs = zip(first.split("|"), second.split("|"), strict=False)
    one, other = next(((a, b) for a, b in pairs if a != b), (first, second))
    return f"the signatures {one} and {other}"


def _named(item: Item) -> str:
    return f"image '{item.image}' ('{item.candidate[:40]}')"

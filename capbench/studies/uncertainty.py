"""Computes intervals of a study's numbers, tests between its metrics, the human ceiling, and the best metric.

Scores are computed once and all metrics share the resamples of a protocol.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

import numpy as np

from capbench.core.errors import StatisticError, count
from capbench.core.records import FloatArray, Judgements, ScoreTable
from capbench.datasets.opening import group_of
from capbench.datasets.protocol import Protocol
from capbench.metrics.metric_request import Row
from capbench.stats.agreement import Agreement
from capbench.stats.intervals import BootstrapSample, Interval, bootstrap_intervals, draw_bootstrap
from capbench.stats.pairs import Tests
from capbench.stats.power import FEWEST_UNITS, fewest_units, power
from capbench.stats.significance import compare, permutations_to_use
from capbench.studies.evaluate import PEOPLE, agreement, people, photograph_note
from capbench.studies.judged import Scored
from capbench.studies.results import NO_TESTS, Answer, BootstrapInfo, Ceiling, Cell, Needed
from capbench.studies.study import BootstrapSettings, TestSettings


@dataclass
class Uncertainty:
    """Result of :func:`assess` for one protocol."""

    cells: list[Cell] = field(default_factory=list)
    ceilings: list[Ceiling] = field(default_factory=list)
    comparisons: list[Tests] = field(default_factory=list)
    bootstrap: BootstrapInfo | None = None
    notes: list[str] = field(default_factory=list)  # what could not be computed and why
    reasons: dict[str, str] = field(default_factory=dict)  # why overall numbers have no intervals, or no groups (tests)


def assess(
    protocol: Protocol,  # the protocol
    draws: Sequence[Judgements],  # its judgements, one for each draw
    tables: Sequence[ScoreTable],  # their scores, in the same order
    rows: Sequence[Row],  # the rows of the study
    cells: Sequence[Cell],  # its cells, from :func:`~capbench.studies.evaluate.evaluate`
    *,
    bootstrap: BootstrapSettings | None,  # settings of intervals, None for none
    tests: TestSettings | None,  # settings of tests, None for none
    ceiling: bool,  # True to compute the human ceiling
    groups: bool = True,  # False for the overall numbers only: groups get no intervals, tests and ceilings
    # by group, the scores of rows that were scored on its items only (:func:`group_scores`)
    of_groups: Mapping[str, Mapping[str, FloatArray]] | None = None,
    progress: Callable[[int], None] = lambda _: None,  # called with 1 for each group done
) -> Uncertainty:
    """Add intervals, tests and the human ceiling to one protocol's cells.

    A number without an interval, or metrics that cannot be tested (in a group of one image, say), get a note instead.
    Under a plain mean nothing is added.
    """
    uncertainty = Uncertainty(cells=list(cells))
    if protocol.statistic.kind == "mean":
        return uncertainty
    scores = common_scores(tables, rows)
    by_image = any(settings is not None and settings.unit == "image" for settings in (bootstrap, tests))
    if scores and by_image and (note := photograph_note(draws[0])):
        uncertainty.notes.append(f"{protocol}: {note}")
    for group in dict.fromkeys(cell.group for cell in cells if groups or not cell.group):
        defined = {cell.column for cell in cells if cell.group == group and cell.value is not None}
        of_group = {**scores, **(of_groups or {}).get(group, {})}
        of_group = {name: values for name, values in of_group.items() if name in defined}
        if of_group and (bootstrap is not None or tests is not None):
            _assess_group(uncertainty, protocol, draws[0], of_group, group, bootstrap, tests)
        if ceiling:
            defined_here = _add_ceiling(uncertainty, protocol, draws[0], group, bootstrap)
            ceiling = defined_here or bool(group)  # if all judgements are too few, so are those of every group
        progress(1)
    return uncertainty


def common_scores(tables: Sequence[ScoreTable], rows: Sequence[Row]) -> dict[str, FloatArray]:
    """(draws, items) scores by row name, of the rows with scores in all draws."""
    return {
        row.name: np.stack([table.values[row.key] for table in tables])
        for row in rows
        if tables and all(row.key in table.values for table in tables)
    }


def group_scores(scored: Scored, group: str, rows: Sequence[Row]) -> dict[str, FloatArray]:
    """(draws, items) scores by row name, of the rows that were scored on the items of a group only; others have 0."""
    alone = scored.groups.get(group)
    if alone is None:
        return {}
    places = group_of(scored.dataset, group).places(scored.draws[0])
    scores: dict[str, FloatArray] = {}
    for name, values in common_scores(alone.tables, rows).items():
        scores[name] = np.zeros((len(scored.draws), len(scored.draws[0].items)))
        scores[name][:, places] = values
    return scores


def _assess_group(
    uncertainty: Uncertainty,
    protocol: Protocol,
    judgements: Judgements,
    scores: Mapping[str, FloatArray],
    group: str,
    bootstrap: BootstrapSettings | None,
    tests: TestSettings | None,
) -> None:
    place = f"{protocol}{f' {group}' if group else ''}"
    sample = None
    if bootstrap is not None:
        try:
            data = agreement(protocol, judgements, scores, bootstrap.unit, group)
            sample, intervals = draw_intervals(data, bootstrap)
        except StatisticError as error:
            uncertainty.notes.append(f"{place}: no intervals: {error}")
            if not group:
                uncertainty.reasons["intervals"] = error.message
        else:
            uncertainty.cells = with_intervals(uncertainty.cells, intervals, group)
            if not group:
                uncertainty.bootstrap = _info(bootstrap, data.units)
            left_out = sum(interval.undefined for interval in intervals.values())
            if left_out:
                uncertainty.notes.append(
                    f"{place}: {left_out:,} resamples without variety are excluded from the intervals"
                )
    if tests is not None and len(scores) > 1:
        try:
            tested = compare_pairs(
                agreement(protocol, judgements, scores, tests.unit, group),
                tests,
                sample=sample if bootstrap is not None and bootstrap.unit == tests.unit else None,
                level=0.95 if bootstrap is None else bootstrap.level,
            )
        except StatisticError as error:
            uncertainty.notes.append(f"{place}{NO_TESTS}{error}")
            if not group:
                uncertainty.reasons["groups"] = error.message
        else:
            uncertainty.comparisons.append(replace(tested, protocol=str(protocol), group=group))


def compare_pairs(
    data: Agreement,
    settings: TestSettings,
    *,
    sample: BootstrapSample | None = None,
    level: float = 0.95,
) -> Tests:
    """Test all pairs of metrics, with more permutations than requested if the number of pairs requires them.

    ``sample`` is a bootstrap of the same data, for intervals of the differences with the coverage ``level``.
    """
    count = permutations_to_use(
        settings.resamples, len(data.names), settings.alpha, settings.correction, test=settings.test
    )
    resampling = settings.test in ("permutation", "bootstrap")
    raised = resampling and settings.resamples is not None and count > settings.resamples
    with_sample = sample
    if settings.test == "bootstrap" and (sample is None or (sample.resamples, sample.seed) != (count, settings.seed)):
        with_sample = draw_bootstrap(data, resamples=count, seed=settings.seed, unit=settings.unit)
    tests = compare(
        data,
        test=settings.test,
        correction=settings.correction,
        alpha=settings.alpha,
        permutations=count,
        seed=settings.seed,
        unit=settings.unit,
        sample=with_sample,
        level=level,
    )
    return replace(tests, requested=settings.resamples if raised else None)


def _add_ceiling(
    uncertainty: Uncertainty,
    protocol: Protocol,
    judgements: Judgements,
    group: str,
    bootstrap: BootstrapSettings | None,
) -> bool:
    """Add the human ceiling, if raters are known; False if it is undefined, with a note."""
    # It always has an interval: without settings, the default one.
    settings = bootstrap or BootstrapSettings()
    try:
        human = people(protocol, judgements, settings.unit, group)
        if human is None:
            return True
        data, ceiling = human
        if protocol.statistic.coefficient != "acc-eq":  # acc-eq has no intervals
            interval = draw_intervals(data, settings)[1][PEOPLE]
            made = {"low": interval.low, "high": interval.high, "bootstrap": _info(settings, data.units)}
            ceiling = ceiling.model_copy(update=made)
    except StatisticError as error:
        uncertainty.notes.append(f"{protocol}{f' {group}' if group else ''}: no human ceiling: {error}")
        return False
    uncertainty.ceilings.append(ceiling)
    return True


def draw_intervals(data: Agreement, settings: BootstrapSettings) -> tuple[BootstrapSample, dict[str, Interval]]:
    """A bootstrap of the metrics, and their intervals."""
    sample = draw_bootstrap(data, resamples=settings.resamples, seed=settings.seed, unit=settings.unit)
    return sample, bootstrap_intervals(data, sample, method=settings.method, level=settings.level)


def with_intervals(cells: Iterable[Cell], intervals: Mapping[str, Interval], group: str | None = None) -> list[Cell]:
    """The cells with their columns' intervals; with a group, only those of that group."""
    ends = {name: {"low": interval.low, "high": interval.high} for name, interval in intervals.items()}
    return [
        cell.model_copy(update=ends.get(cell.column, {})) if group in (None, cell.group) else cell for cell in cells
    ]


def _info(settings: BootstrapSettings, units: int) -> BootstrapInfo:
    return BootstrapInfo(**asdict(settings), units=units)


# The best metric for a user's judgements.

RANK_RULE = (
    "A metric opens a new rank if it is significantly worse than some metric of the rank above it, "
    "not necessarily the best"
)
_NAMES = {"τ": "Kendall's τ", "ρ": "Spearman's ρ", "r": "Pearson's r"}
_ABSENT = {
    "intervals": "intervals",
    "groups": "tests between the metrics",
    "needed": "estimate of the number of images that distinguishes the best metric from the next",
}
"""Parts of an answer that may be missing, by the key of their reason."""


def answer(
    protocol: Protocol,  # the protocol
    judgements: Judgements,  # its judgements
    tables: Sequence[ScoreTable],  # their scores, one table for each draw
    rows: Sequence[Row],  # the rows of the study
    uncertainty: Uncertainty,  # the numbers with intervals and tests, from :func:`assess`
    tests: TestSettings,  # settings of the tests; the power analysis has the same level, unit and seed
    # True for two rows of one metric, and if one is computed from the other; the power analysis is of the best row and
    # the next that is not related to it
    related: Callable[[str, str], bool] = lambda first, second: False,
) -> Answer | None:
    """The metric that agrees best with a user's judgements, and the metrics that cannot be distinguished from it.

    Returns the answer; None under a plain mean, and if no metric has a value.
    """
    cells = [cell for cell in uncertainty.cells if not cell.group and cell.value is not None]
    if protocol.statistic.kind == "mean" or not cells:
        return None
    cells.sort(key=lambda cell: -cell.number)  # equal values keep their order, as in the tests
    reasons = dict(uncertainty.reasons)
    groups: dict[int, list[str]] = {}
    ties: tuple[str, ...] = ()
    compared = next((one for one in uncertainty.comparisons if not one.group), None)
    if compared is not None:
        if too_few := too_few_units(compared):
            reasons["groups"] = too_few
        else:
            for column, rank in compared.ranks.items():
                groups.setdefault(rank, []).append(column)
            ties = tuple(column for column in compared.top if column != cells[0].column)
    needed = None
    if len(cells) > 1:
        best, *others = cells
        try:
            following = next((cell for cell in others if not related(best.column, cell.column)), None)
            if following is None:
                raise StatisticError(f"no other metric is computed independently of {best.title}", code="unsupported")
            needed = _needed(
                protocol, judgements, common_scores(tables, rows), (best, following), tests, math.comb(len(cells), 2)
            )
        except StatisticError as error:
            reasons["needed"] = error.message
    made = Answer(
        protocol=str(protocol),
        text=(),
        ranking=tuple(cell.column for cell in cells),
        groups=tuple(tuple(columns) for _, columns in sorted(groups.items())),
        ties=ties,
        needed=needed,
        reasons=reasons,
    )
    undefined = [cell for cell in uncertainty.cells if not cell.group and cell.shown_instead == "undefined"]
    return made.model_copy(update={"text": tuple(_sentences(made, protocol, judgements, cells, undefined))})


def too_few_units(tests: Tests) -> str:
    """The reason why no difference can be significant, whatever the scores; ``""`` if one can."""
    if tests.units is None or tests.test != "permutation":
        return ""
    return too_few_to_permute(tests.units, str(tests.unit), tests.correction, tests.alpha, len(tests.pairs))


def too_few_to_permute(units: int, unit: str, correction: str, alpha: float, tests: int) -> str:
    """The reason why no permutation test can be significant, whatever the scores; ``""`` if one can.

    ``unit``: what a unit is (``image``); ``correction``: correction for the number of tests; ``alpha``: significance
    level; ``tests``: number of tests.
    """
    fewest = _fewest_units("permutation", correction, alpha, tests)
    if units >= fewest:
        return ""
    return f"{count(units, unit)} are too few, since the permutation test requires {fewest:,} to find any difference"


def _fewest_units(test: str, correction: str, alpha: float, pairs: int) -> int:
    """The smallest number of units on which a test between some pairs can find any difference."""
    if test != "permutation":
        return 0
    return fewest_units(alpha, pairs if correction == "holm" else 1)


def _needed(
    protocol: Protocol,
    judgements: Judgements,
    scores: Mapping[str, FloatArray],
    pair: Sequence[Cell],
    tests: TestSettings,
    pairs: int,
) -> Needed:
    better, worse = pair
    if better.value == worse.value:
        raise StatisticError(f"{better.title} and {worse.title} have equal values", value=0)
    data = agreement(protocol, judgements, {cell.title: scores[cell.column] for cell in pair}, tests.unit)
    if data.units < FEWEST_UNITS:
        message = f"{count(data.units, tests.unit)} are too few, since the estimate requires {FEWEST_UNITS}"
        raise StatisticError(message, code="too-few", value=data.units)
    found = power(data, better.title, worse.title, alpha=tests.alpha, seed=tests.seed, unit=tests.unit)
    return Needed(
        better=better.column,
        worse=worse.column,
        difference=found.difference,
        unit=found.unit,
        units=found.units,
        needed=max(found.needed, _fewest_units(tests.test, tests.correction, tests.alpha, pairs)),
        power=found.target,
        alpha=found.alpha,
    )


def _sentences(
    made: Answer, protocol: Protocol, judgements: Judgements, cells: Sequence[Cell], undefined: Sequence[Cell]
) -> list[str]:
    """The answer in words.

    ``made``: the answer without its text; ``protocol``: its protocol; ``judgements``: its judgements; ``cells``: the
    overall numbers, best first; ``undefined``: the overall cells without a number.
    """
    best, titles = cells[0], {cell.column: cell.title for cell in cells}
    first = [cell.column for cell in cells if cell.number == best.number]
    percent = protocol.statistic.kind == "accuracy"
    value = f"{_statistic(protocol)} {_shown(best.number, percent)}"
    if len(first) == 1 and best.low is not None and best.high is not None:  # metrics with one value differ in intervals
        value += f", 95 % interval {_shown(best.low, percent)} to {_shown(best.high, percent)}"
    on = f"On your {_judged(protocol, judgements)}"
    if len(cells) == 1:
        text = f"{on}, {best.title} is the only metric with a value ({value})"
    else:
        tied = [titles[column] for column in made.ties if column not in first]
        others = [cell.title for cell in cells[len(first) :]]
        if len(first) == 1:
            text, them = f"{on}, {best.title} agrees best with the raters ({value})", "it"
        else:
            listed = _listed([titles[column] for column in first])
            text, them = f"{on}, {listed} tie for the best agreement with the raters ({value})", "them"
        if tied:
            text += f"; {_listed(tied)} cannot be distinguished from {them}"
        elif made.groups and others:
            text += f"; {others[0] if len(others) == 1 else 'every other metric'} is significantly worse"
    if undefined:
        text += f"; {_listed([cell.title for cell in undefined])} {'is' if len(undefined) == 1 else 'are'} undefined"
    sentences = [f"{text}.", *_chance(protocol, best)]
    if len(made.groups) > 1:
        listed = "; ".join(
            f"({place}) {', '.join(titles[column] for column in columns)}"
            for place, columns in enumerate(made.groups, 1)
        )
        sentences.append(f"Ranks, best first: {listed}. {RANK_RULE}.")
    elif made.groups and len(cells) > 2:
        sentences.append(f"No two of these {len(cells)} metrics can be distinguished.")
    if made.needed is not None:
        needed = made.needed
        enough = "" if needed.worse in made.ties or not made.groups else ", and they were enough here"
        sentences.append(
            f"If the true difference is the measured one, {_difference(needed.difference, percent)}, some "
            f"{_rounded(needed.needed)} {needed.unit}s are needed to distinguish {titles[needed.better]} from "
            f"{titles[needed.worse]} with {100 * needed.power:g} % power (α = {needed.alpha:g}); you have "
            f"{needed.units:,}{enough}."
        )
    absent: dict[str, list[str]] = {}
    for key, reason in made.reasons.items():
        absent.setdefault(reason.removesuffix("."), []).append(f"no {_ABSENT[key]}")
    return [*sentences, *(f"{_listed(what).capitalize()}: {reason}." for reason, what in absent.items())]


def _statistic(protocol: Protocol) -> str:
    """The name of a statistic in a sentence: ``Kendall's τ-b``, ``within-image Pearson's r``, ``accuracy``."""
    first, _, symbol = protocol.statistic.label.rpartition(" ")
    stem, hyphen, variant = symbol.partition("-")
    return f"{first} {_NAMES.get(stem, stem)}{hyphen}{variant}".strip()


def _chance(protocol: Protocol, best: Cell) -> list[str]:
    """A sentence if the best metric may agree with the raters by chance only.

    Statistics whose value by chance is unknown, such as accuracies with tie calibration, have none.
    """
    spec = protocol.statistic
    of_correlation = not any("acc" in str(name) for name in (spec.coefficient, spec.within, spec.systems))
    chance = best.chance if spec.kind == "accuracy" else 0.0 if of_correlation else None
    if chance is None:
        return []
    shown = _shown(chance, spec.kind == "accuracy")
    if best.number <= chance:
        return [f"This is not more than chance ({shown}): no metric agrees with the raters."]
    if best.low is not None and best.low <= chance:
        return [f"The interval includes {shown}, so this agreement may be due to chance."]
    return []


def _judged(protocol: Protocol, judgements: Judgements) -> str:
    """The amount of data: ``100 ratings of 50 images``; pairs without a preference only under grades."""
    human = protocol.statistic.human
    if protocol.statistic.side == "preferences":
        pairs = judgements.preferences[human]
        items = pairs.first
        if protocol.statistic.graded is None:
            items = items[np.asarray(pairs.preferred) != 0]
        size = count(len(items), "preference")
    else:
        items = judgements.ratings[human].item
        size = count(len(items), "rating")
    images = {judgements.items[place].image for place in np.unique(items).tolist()}
    return f"{size} of {count(len(images), 'image')}"


def _shown(value: float, percent: bool) -> str:
    return f"{100 * value:.1f} %" if percent else f"{value:.2f}"


def _difference(value: float, percent: bool) -> str:
    """A difference with two significant digits."""
    shown = np.format_float_positional(float(f"{100 * value if percent else value:.2g}"), trim="-")
    return f"{shown} percentage points" if percent else shown


def _rounded(number: int) -> str:
    """A number with two significant digits: an estimate is not known more precisely."""
    return f"{round(number, min(0, 2 - len(str(number)))):,}"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

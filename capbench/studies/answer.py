"""The metric that agrees best with a user's judgements, in words, and the data that distinguishes it from the next."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from capbench.core.errors import StatisticError, count
from capbench.core.records import FloatArray, Judgements
from capbench.datasets.protocol import Protocol
from capbench.stats.power import FEWEST_UNITS, power
from capbench.studies.data_points import agreement
from capbench.studies.results import Answer, Cell, Needed
from capbench.studies.study import TestSettings
from capbench.studies.uncertainty import RANK_RULE, Numbers, fewest_units_to_test, too_few_units

_NAMES = {"τ": "Kendall's τ", "ρ": "Spearman's ρ", "r": "Pearson's r"}
_ABSENT = {
    "intervals": "intervals",
    "groups": "tests between the metrics",
    "needed": "estimate of the number of images that distinguishes the best metric from the next",
}
"""Parts of an answer that may be missing, by the key of their reason."""


def answer(
    protocol: Protocol,
    judgements: Judgements,
    scores: Mapping[str, FloatArray],  # (draws, items) by row name
    numbers: Numbers,
    tests: TestSettings,  # the power analysis has the same level, unit and seed
    # True for two rows of one metric, and if one is computed from the other; the power analysis is of the best row and
    # the next that is not related to it
    related: Callable[[str, str], bool] = lambda first, second: False,
) -> Answer | None:
    """The metric that agrees best with a user's judgements; None under a plain mean, and if no metric has a value."""
    cells = [cell for cell in numbers.cells if not cell.group and cell.value is not None]
    if protocol.statistic.kind == "mean" or not cells:
        return None
    cells.sort(key=lambda cell: -cell.number)  # equal values keep their order, as in the tests
    reasons = dict(numbers.reasons)
    groups: dict[int, list[str]] = {}
    ties: tuple[str, ...] = ()
    compared = next((tests for tests in numbers.comparisons if not tests.group), None)
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
            needed = _needed(protocol, judgements, scores, (best, following), tests, math.comb(len(cells), 2))
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
    undefined = [cell for cell in numbers.cells if not cell.group and cell.shown_instead == "undefined"]
    return made.model_copy(update={"text": tuple(_sentences(made, protocol, judgements, cells, undefined))})


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
        needed=max(found.needed, fewest_units_to_test(tests.test, tests.correction, tests.alpha, pairs)),
        power=found.target,
        alpha=found.alpha,
    )


def _sentences(
    made: Answer, protocol: Protocol, judgements: Judgements, cells: Sequence[Cell], undefined: Sequence[Cell]
) -> list[str]:
    """The answer in words; ``cells`` are the overall numbers, best first, ``undefined`` those without a value."""
    best, titles = cells[0], {cell.column: cell.title for cell in cells}
    first = [cell.column for cell in cells if cell.number == best.number]
    value = f"{_statistic(protocol)} {_shown(best.number)}"
    if len(first) == 1 and best.low is not None and best.high is not None:  # metrics with one value differ in intervals
        value += f" [{_shown(best.low)}, {_shown(best.high)}]"
    on = f"On your {_amount(protocol, judgements)}"
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
        # Two significant digits: an estimate is not known more precisely.
        points = np.format_float_positional(float(f"{100 * needed.difference:.2g}"), trim="-")
        number = round(needed.needed, min(0, 2 - len(str(needed.needed))))
        pair = f"{titles[needed.better]} from {titles[needed.worse]}"
        sentences.append(
            f"If the true difference is the measured one, {points} points, some {number:,} {needed.unit}s are needed "
            f"to distinguish {pair} with {100 * needed.power:g} % power (α = {needed.alpha:g}); you have "
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
    """A sentence if the best metric may agree with the raters by chance only, where the value by chance is known."""
    spec = protocol.statistic
    of_correlation = "acc" not in str(spec.coefficient)
    chance = best.chance if spec.kind == "accuracy" else 0.0 if of_correlation else None
    if chance is None:
        return []
    shown = _shown(chance)
    if best.number <= chance:
        return [f"This is not more than chance ({shown}): no metric agrees with the raters."]
    if best.low is not None and best.low <= chance:
        return [f"The interval includes {shown}, so this agreement may be due to chance."]
    return []


def _amount(protocol: Protocol, judgements: Judgements) -> str:
    """The amount of data: ``100 ratings of 50 images``; pairs without a preference only under grades."""
    human = protocol.statistic.human
    if protocol.statistic.side == "preferences":
        pairs = judgements.preferences[human]
        items = pairs.first
        if protocol.statistic.level != "pairs":
            items = items[np.asarray(pairs.preferred) != 0]
        size = count(len(items), "preference")
    else:
        items = judgements.ratings[human].item
        size = count(len(items), "rating")
    images = {judgements.items[place].image for place in np.unique(items).tolist()}
    return f"{size} of {count(len(images), 'image')}"


def _shown(value: float) -> str:
    """A value × 100, as in the tables."""
    return f"{100 * value:z.1f}"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

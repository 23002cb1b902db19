"""One protocol's statistic over scored items: overall and by group, averaged over draws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import MissingFileError, ProtocolError, StatisticError
from capbench.core.records import (
    FloatArray,
    GradedCoefficient,
    IntArray,
    Judgements,
    Preferences,
    Ratings,
    ScoreTable,
    TieRule,
    photograph,
)
from capbench.datasets.protocol import Protocol, StatisticSpec, base_name
from capbench.metrics.metric_request import Row
from capbench.stats.agreement import Accuracies, Agreement, Correlations
from capbench.stats.correlation import correlation
from capbench.stats.graded_preferences import GradedPairs, length_sides
from capbench.stats.human_ceiling import leave_one_rater_out, pairwise_tau_b, vote_credit
from capbench.stats.pairs import Unit
from capbench.stats.pairwise_accuracy import aggregate, pairwise_accuracy
from capbench.stats.resampling import observed_value, unit_codes
from capbench.stats.system_agreement import FEW_SYSTEMS, Systems
from capbench.stats.tie_calibration import chance_level
from capbench.stats.ties import is_constant
from capbench.stats.within_images import WithinImages
from capbench.stats.within_sources import WithinSources
from capbench.studies.judged import Scored
from capbench.studies.results import Ceiling, Cell

# Statistics within images, within sources, over systems and on graded pairs, with notes on their data.
#
# Within images and over systems, each caption is one data point: its ratings are aggregated first, as the protocol
# specifies.

# Sources that a note lists by name.
_LISTED = 6


def leveled(
    spec: StatisticSpec, judgements: Judgements, scores: Mapping[str, FloatArray], group: str = ""
) -> WithinImages | WithinSources | Systems | GradedPairs:
    """Several metrics' (items,) or (draws, items) scores at the data points of a statistic not over all captions.

    With a group, only its captions or pairs.
    """
    if spec.graded is not None:
        return _graded_pairs(spec.graded, judgements, judgements.preferences[spec.human], scores, group)
    item, human = _points(spec, judgements, group)
    at_points = {title: np.asarray(values)[..., item] for title, values in scores.items()}
    images = _column(judgements, item, "image")
    photographs = [photograph(image) for image in images.tolist()]
    if spec.within is not None:
        # Captions are compared under the id that they were rated under; ids of one photograph are resampled together.
        return WithinImages.of(spec.within, at_points, human, images, drawn=photographs)
    systems = _column(judgements, item, "system")
    if spec.within_source is not None:
        return WithinSources.of(spec.within_source, at_points, human, systems, photographs)
    if spec.systems is not None:
        return Systems.of(spec.systems, at_points, human, systems, photographs)
    raise StatisticError(f"the statistic {spec.name} is over captions", code="unsupported", value=spec.name)


def _graded_pairs(
    coefficient: GradedCoefficient,
    judgements: Judgements,
    pairs: Preferences,
    scores: Mapping[str, FloatArray],
    group: str,
) -> GradedPairs:
    if pairs.grade is None:
        raise StatisticError("the preferences have no grades", code="unsupported")
    chosen = np.array([not group or of_pair == group for of_pair in pairs.group], dtype=np.bool_)
    first, second = pairs.first[chosen], pairs.second[chosen]
    return GradedPairs.of_pairs(
        coefficient,
        {title: np.asarray(values)[..., first] for title, values in scores.items()},
        {title: np.asarray(values)[..., second] for title, values in scores.items()},
        pairs.grade[chosen],
        [photograph(judgements.items[place].image) for place in first.tolist()],
    )


def _lengths(judgements: Judgements, pairs: Preferences) -> FloatArray:
    """(n,) words of each pair's first caption minus those of its second one."""
    words = np.array([len(item.candidate.split()) for item in judgements.items], dtype=np.float64)
    return words[pairs.first] - words[pairs.second]


def _sides(spec: StatisticSpec, judgements: Judgements) -> IntArray | None:
    """(n,) side of each pair in a length-balanced accuracy; None for other statistics."""
    if not spec.length_balanced:
        return None
    pairs = judgements.preferences[spec.human]
    return length_sides(pairs.preferred, _lengths(judgements, pairs), pairs.group)


def notes(
    protocol: Protocol, draws: Sequence[Judgements], tables: Sequence[ScoreTable], rows: Sequence[Row]
) -> tuple[str, ...]:
    """Notes below a number that is not over all captions, on the chance level of acc*_eq, and on length."""
    spec = protocol.statistic
    if not tables or spec.graded is not None:
        return ()
    if spec.level == "captions":
        of_length = _of_length(spec, draws[0], tables, rows)
        return tuple(f"{protocol}: {line}" for line in (*_chance(spec, draws[0]), *of_length))
    scores = _by_title(tables, rows)
    if not scores:
        return ()
    try:
        data = leveled(spec, draws[0], scores)
    except StatisticError:  # the cells give the reason
        return ()
    lines = _of_images(data) if isinstance(data, WithinImages) else []
    lines += _of_sources(data) if isinstance(data, WithinSources) else []
    lines += _of_systems(data) if isinstance(data, Systems) else []
    return tuple(f"{protocol}: {line}" for line in (*lines, *_chance(spec, draws[0])))


def _by_title(tables: Sequence[ScoreTable], rows: Sequence[Row]) -> dict[str, FloatArray]:
    """(draws, items) scores by title, of the rows with scores in all draws: a copy of all scores."""
    return {
        row.title: np.stack([table.values[row.key] for table in tables])
        for row in rows
        if all(row.key in table.values for table in tables)
    }


def _chance(spec: StatisticSpec, judgements: Judgements) -> list[str]:
    """The chance level of acc*_eq; empty for other statistics and without pairs."""
    if spec.coefficient != "acc-eq" and spec.within not in ("acc-eq", "acc-eq-held-out"):
        return []
    item, human = _points(spec, judgements, "")
    try:
        level, tied = chance_level(human, _column(judgements, item, "image") if spec.within else None)
    except StatisticError:  # the cells give the reason
        return []
    ties = "all pairs tied" if tied else "no pairs tied"
    return [f"chance level {level:.4f}: acc*_eq of scores without information, with {ties}"]


def no_agreement(spec: StatisticSpec, judgements: Judgements, group: str) -> float:
    """The value of scores without information: the chance level of acc*_eq, 0 for correlations."""
    if "acc-eq" not in str(spec.within or spec.coefficient):
        return 0.0
    item, human = _points(spec, judgements, group)
    return chance_level(human, _column(judgements, item, "image") if spec.within else None)[0]


def _of_length(
    spec: StatisticSpec, judgements: Judgements, tables: Sequence[ScoreTable], rows: Sequence[Row]
) -> list[str]:
    """The accuracy of preferring the longer caption, and each metric's length-balanced accuracy, on graded pairs.

    Both are means over the groups of pairs, like the accuracy itself.
    """
    pairs = judgements.preferences[spec.human] if spec.kind == "accuracy" else None
    if pairs is None or pairs.grade is None or spec.ties is None:
        return []
    scores = _by_title(tables, rows)
    if not scores:
        return []
    groups = np.array(pairs.group, dtype=object)
    decided = np.asarray(pairs.preferred) != 0
    if not decided.any():
        return []
    longer = _lengths(judgements, pairs)
    right = np.where(longer == 0, 0.5, longer * pairs.preferred > 0)
    accuracies = [right[decided & (groups == group)].mean() for group in dict.fromkeys(groups[decided].tolist())]
    mean = 100 * float(np.mean(accuracies))
    lines = [f"always preferring the longer caption (in words between spaces) has the accuracy {mean:.2f}"]
    balanced = replace(spec, ties="ties-half", length_balanced=True)
    if spec.length_balanced or not np.any(_sides(balanced, judgements)):
        return lines
    numbers = {
        title: [_accuracies(balanced, judgements, of_draw, title)[""].value for of_draw in draws]
        for title, draws in scores.items()
    }
    values = {title: [one for one in of_draws if one is not None] for title, of_draws in numbers.items()}
    listed = ", ".join(
        f"{title} {100 * np.mean(known):.2f}" for title, known in values.items() if len(known) == len(numbers[title])
    )
    return [*lines, f"length-balanced accuracy (any preference for length alone: 50.00): {listed}"]


def _of_images(data: WithinImages) -> list[str]:
    lines = []
    left_out = [
        f"{count:,} {why}"
        for count, why in ((data.few, "with one caption only"), (data.tied, "whose captions all have one rating"))
        if count
    ]
    if left_out:
        total = data.images + data.few + data.tied
        lines.append(f"{data.images:,} of {total:,} images are used; excluded are {' and '.join(left_out)}")
    flat = {name: data.flat(name) for name in data.names}
    if any(map(any, flat.values())):
        tied = ", ".join(f"{name} on {_range(counts)}" for name, counts in flat.items() if any(counts))
        lines.append(f"images count 0 if a metric gives all their captions the same score: {tied}")
    return lines


def _range(counts: Sequence[int]) -> str:
    """A number for each draw, in words: ``3``, or ``3 to 5``."""
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _of_sources(data: WithinSources) -> list[str]:
    captions = zip(data.sources[:_LISTED], data.sizes.tolist(), strict=False)
    listed = [f"{name} ({size:,} captions)" for name, size in captions]
    listed += [f"and {len(data.sources) - _LISTED:,} more"] if len(data.sources) > _LISTED else []
    lines = [f"captions of one source are compared: {', '.join(listed)}"]
    if data.few:
        lines.append(f"excluded are {data.few:,} source{'s' if data.few != 1 else ''} with one caption only")
    return lines


def _of_systems(data: Systems) -> list[str]:
    lines = []
    if data.n < FEW_SYSTEMS:
        lines.append(
            f"only {data.n} systems ({', '.join(data.systems)}): with fewer than {FEW_SYSTEMS}, agreement over systems "
            "is unreliable, and its interval covers the choice of images, not the choice of systems"
        )
    if data.shared < data.units:
        lines.append(
            f"{data.shared:,} of {data.units:,} images have a caption of every system; a system's mean is over all of "
            "its captions"
        )
    return lines


def _points(spec: StatisticSpec, judgements: Judgements, group: str) -> tuple[IntArray, FloatArray]:
    ratings = judgements.ratings[spec.human]
    item, human = aggregate(ratings.item, ratings.value, spec.aggregation)
    if not group:
        return item, human
    chosen = _column(judgements, item, "group") == group
    return item[chosen], human[chosen]


def _column(judgements: Judgements, item: IntArray, name: str) -> NDArray[np.str_]:
    return np.array([getattr(entry, name) for entry in judgements.items], dtype=np.str_)[item]


# The human side of a protocol paired with scores, as input of intervals and tests.

#: Minimum number of images of a human ceiling. With 30 images with one doubly rated caption each, a ceiling of .6
#: has a standard error of about (1 - .36) / sqrt(29) = .12, more than what separates most metrics; and percentile
#: intervals of fewer units fall short of their nominal coverage.
FEWEST_IN_CEILING = 30

#: Name of the human ceiling in the place of a metric.
PEOPLE = "human ceiling"


def agreement(
    # a protocol whose statistic is a correlation (over captions, within images or sources, or over systems) or an
    # accuracy
    protocol: Protocol,
    judgements: Judgements,  # the judgements of its items (of any draw: the human side is the same for all)
    scores: Mapping[str, FloatArray],  # (draws, items) scores by metric
    unit: Unit,  # the unit to resample. For preferences, ``item`` and ``rating`` are both the single pair
    group: str = "",  # only the data points of this group; ``""`` for all
    *,
    # True if m of tau-c is the number of distinct ratings, even if a score has fewer values, as the scores of sentinels
    # may
    rating_levels: bool = False,
) -> Agreement:
    """Several metrics' scores at the data points of a protocol."""
    spec = protocol.statistic
    if spec.level != "captions":
        if unit != "image":
            raise StatisticError(
                f"{spec.name} compares captions of an image, so images are resampled, not single {unit}s",
                code="conflict",
                value=unit,
                hint="Use the unit 'image'",
            )
        return leveled(spec, judgements, scores, group)
    images = np.array([photograph(item.image) for item in judgements.items])
    if spec.kind == "correlation" and spec.coefficient is not None:
        ratings = judgements.ratings[spec.human]
        item, human = aggregate(ratings.item, ratings.value, spec.aggregation)
        chosen = _of_group(judgements, item, group)
        item, human = item[chosen], human[chosen]
        at_points = {title: values[:, item] for title, values in scores.items()}
        labels = _labels(images, item, unit)
        return Correlations.of(spec.coefficient, at_points, human, unit=labels, rating_levels=rating_levels)
    if spec.ties is None:
        raise ProtocolError(
            f"{protocol} has no human judgements to compare metrics on", code="unsupported", value=str(protocol)
        )
    preferences = judgements.preferences[spec.human]
    groups = np.array(preferences.group)
    counted = groups == group if group else in_decided_groups(preferences)
    sides = _sides(spec, judgements)
    if sides is not None:
        # Both sides of a group have the same weight, as groups have.
        counted = counted & (sides != 0)
        groups = np.array([f"{name}|{side}" for name, side in zip(groups.tolist(), sides.tolist(), strict=True)])
    chosen = np.flatnonzero(counted)
    first, second = preferences.first[chosen], preferences.second[chosen]
    return Accuracies.of(
        spec.ties,
        {title: values[:, first] for title, values in scores.items()},
        {title: values[:, second] for title, values in scores.items()},
        preferences.preferred[chosen],
        groups[chosen].tolist(),
        unit=images[first] if unit == "image" else None,
    )


def in_decided_groups(preferences: Preferences) -> NDArray[np.bool_]:
    """(n,) True for pairs of groups that have an accuracy: the votes are not even on all of the group's pairs."""
    groups = np.array(preferences.group, dtype=object)
    return np.isin(groups, list(set(groups[np.asarray(preferences.preferred) != 0].tolist())))


def people(
    protocol: Protocol,
    judgements: Judgements,
    unit: Unit,
    group: str = "",
    scores: Mapping[str, FloatArray] | None = None,
) -> tuple[Agreement, Ceiling] | None:
    """The human ceiling of a protocol: human raters in the place of a metric.

    For unaggregated ratings, each rating is compared with the mean of the item's other ratings (the same human side
    that metrics are correlated with). For votes on pairs, each voter is compared with the majority of the pair's other
    voters. Aggregated ratings, and so statistics within images, within sources and over systems, have no ceiling,
    since the aggregate includes the rater.

    Returns the raters as the metric :data:`PEOPLE`, with metrics of (draws, items) ``scores`` at the same data points,
    and the ceiling without an interval; None if the raters are unknown. With scores, the denominator of tau-c is that
    of the ratings for all (``rating_levels``).

    Raises StatisticError: the ratings have no correlation, or there are fewer than :data:`FEWEST_IN_CEILING` images.
    """
    spec = protocol.statistic
    images = np.array([photograph(item.image) for item in judgements.items])
    if spec.kind == "correlation" and spec.coefficient is not None and spec.aggregation == "unaggregated":
        ratings = judgements.ratings[spec.human]
        chosen = _of_group(judgements, ratings.item, group)
        item, value = ratings.item[chosen], ratings.value[chosen]
        if not len(item) or int(np.bincount(item).max()) < 2:
            return None
        raters = leave_one_rater_out(item, value)
        _require_images(images[raters.item], "captions with two ratings or more")
        at_points = {name: values[:, raters.item] for name, values in (scores or {}).items()}
        data: Agreement = Correlations.of(
            spec.coefficient,
            {PEOPLE: _repeated(raters.others, scores), **at_points},
            raters.rating,
            unit=_labels(images, raters.item, unit),
            rating_levels=bool(scores),
        )
        ceiling = _ceiling(data, protocol, group, len(raters.rating), "leave-one-rater-out")
        if spec.coefficient in ("tau-b", "tau-c"):
            pairwise = pairwise_tau_b(item, value, ratings.rater[chosen])
            if pairwise is not None:
                ceiling = ceiling.model_copy(update={"pairwise_tau_b": pairwise[0], "raters": pairwise[1]})
        return data, ceiling
    if spec.kind != "accuracy" or spec.ties is None or spec.length_balanced:
        return None
    preferences = judgements.preferences[spec.human]
    if preferences.votes.shape[1:] != (2,):
        return None
    groups = np.array(preferences.group)
    # Pairs with even votes have no right answer, neither for raters nor for metrics.
    counted = groups == group if group else in_decided_groups(preferences)
    kept = counted & (preferences.preferred != 0) & (preferences.votes.sum(axis=1) > 1)
    if not kept.any() or set(groups[kept]) != set(groups[counted]):
        return None
    _require_images(images[preferences.first[kept]], "pairs with two votes or more")
    pair_images = images[preferences.first[kept]]
    labels, codes = np.unique(pair_images if unit == "image" else np.arange(len(pair_images)), return_inverse=True)
    credit = vote_credit(preferences.votes[kept])
    credits = {PEOPLE: _repeated(credit, scores)}
    if scores:
        first, second = preferences.first[kept], preferences.second[kept]
        of_first = {name: values[:, first] for name, values in scores.items()}
        of_second = {name: values[:, second] for name, values in scores.items()}
        credits |= Accuracies.of(spec.ties, of_first, of_second, preferences.preferred[kept]).scores
    group_codes, _ = unit_codes(groups[kept])
    data = Accuracies(spec.ties, credits, group_codes, codes.astype(np.int64), len(labels), labels)
    return data, _ceiling(data, protocol, group, int(kept.sum()), "votes")


def _repeated(values: FloatArray, scores: Mapping[str, FloatArray] | None) -> FloatArray:
    """(draws, n) the same values for each draw of the scores."""
    draws = next((len(of_draws) for of_draws in (scores or {}).values()), 1)
    return np.tile(values, (draws, 1))


def _require_images(images: NDArray[Any], what: str) -> None:
    _, count = unit_codes(images)
    if count < FEWEST_IN_CEILING:
        raise StatisticError(
            f"it would be based on {count} image{'s' if count != 1 else ''} with {what}; the minimum is "
            f"{FEWEST_IN_CEILING}",
            code="too-few",
            value=count,
        )


def photograph_note(judgements: Judgements) -> str | None:
    """A note on judgements in which one photograph has two image ids, None for others.

    ``unit: image`` resamples photographs.
    """
    images = {item.image for item in judgements.items}
    photographs = len({photograph(image) for image in images})
    if photographs == len(images):
        return None
    return f"{len(images):,} image ids show {photographs:,} photographs; ids of one photograph are resampled together"


def _ceiling(data: Agreement, protocol: Protocol, group: str, n: int, method: Any) -> Ceiling:
    value = observed_value(data.statistic(PEOPLE))
    return Ceiling(protocol=str(protocol), group=group, value=value, n=n, method=method)


def _of_group(judgements: Judgements, item: IntArray, group: str) -> NDArray[np.intp]:
    """Indices of the data points whose item is in the group."""
    if not group:
        return np.arange(len(item))
    groups = np.array([entry.group for entry in judgements.items])
    return np.flatnonzero(groups[item] == group)


def _labels(images: NDArray[Any], item: IntArray, unit: Unit) -> NDArray[Any] | None:
    return {"image": images[item], "item": item, "rating": None}[unit]


@dataclass(frozen=True)
class _Number:
    """The statistic on one draw, or the reason it is undefined."""

    value: float | None
    n: int
    p_value: float | None = None
    ties: int | None = None
    chance: float | None = None
    undefined: str = ""


def evaluate(
    protocol: Protocol,
    draws: Sequence[Judgements],
    tables: Sequence[ScoreTable],
    rows: Sequence[Row],
) -> tuple[list[Cell], tuple[str, ...]]:
    """Cells of every scored column under one protocol, and the names of the groups.

    A statistic that is undefined, overall or in one group, gives a cell without a value and with the reason; all other
    cells are computed. A column without scores in every draw has no cells.

    ``draws`` are the judgements, one for each draw, and ``tables`` their scores; empty if nothing could be scored.
    """
    check_human_side(protocol, draws[0])
    groups: dict[str, None] = {}
    cells: list[Cell] = []
    for row in rows if tables else ():
        if not all(row.key in table.values for table in tables):
            continue
        per_draw = [
            _numbers(protocol, judgements, table.values[row.key], table, row)
            for judgements, table in zip(draws, tables, strict=True)
        ]
        for group in dict.fromkeys(group for numbers in per_draw for group in numbers):
            cells.append(_cell(protocol, row, group, [numbers.get(group) for numbers in per_draw]))
            groups |= {group: None} if group else {}
    return cells, tuple(groups)


def unscored_cells(protocol: Protocol, scored: Scored, rows: Sequence[Row], groups: Sequence[str]) -> list[Cell]:
    """Cells of columns of incomplete score files, overall and in the groups (also of other rows) without all scores."""
    of_items = scored.draws[0].groups if protocol.statistic.side != "preferences" else ()
    cells = []
    for lacking in scored.lacking:
        columns = set(lacking.request.score_columns) if lacking.of_file else set()
        for row in (row for row in rows if row.key in columns):
            for group in dict.fromkeys(("", *groups, *of_items)):
                if group not in lacking.groups:
                    cells.append(
                        Cell(
                            **_names(protocol, row, group),
                            undefined=str(lacking.error),
                            placeholder=lacking.in_words(group if group in lacking.scored else ""),
                            n=0,
                        )
                    )
    return cells


def check_defined(cells: Iterable[Cell]) -> None:
    """Raise StatisticError with metric, protocol and reason if a cell has no value."""
    for cell in cells:
        if cell.value is None:
            place = f"{cell.protocol}{f', {cell.group}' if cell.group else ''}"
            raise StatisticError(
                f"{cell.title} under {place}: {cell.undefined}",
                value=cell.title,
                hint="Choose other metrics, another protocol or other data",
            )


def check_human_side(protocol: Protocol, judgements: Judgements) -> None:
    """Raise MissingFileError if the file with the human side of a protocol's statistic is missing."""
    spec = protocol.statistic
    there = {"ratings": judgements.ratings, "preferences": judgements.preferences, "none": None}[spec.side]
    if there is None or spec.human in there:
        return
    try:
        there[spec.human]  # a data set that knows the missing file raises here
    except KeyError as error:
        from capbench.datasets.catalog import catalog

        have, name = ", ".join(there) or "none", base_name(protocol.dataset)
        of_data = f"{name}'" if name in catalog().datasets else f"--protocols {name}'"
        raise MissingFileError(
            f"{protocol} requires the human '{spec.human}'; the available files contain: {have}",
            value=spec.human,
            hint=f"See 'capbench data info {of_data}",
        ) from error


def _numbers(
    protocol: Protocol, judgements: Judgements, values: FloatArray, table: ScoreTable, row: Row
) -> dict[str, _Number]:
    """The statistic overall (``""``) and by group. A mean is the corpus score, which for BLEU is not an average."""
    spec, title = protocol.statistic, row.title
    if spec.level != "captions":
        return _at_level(spec, judgements, values, title)
    if spec.kind == "correlation":
        return _correlations(spec, judgements, judgements.ratings[spec.human], values, title)
    if spec.kind == "accuracy":
        return _accuracies(spec, judgements, values, title)
    sizes = Counter(item.group for item in judgements.items)
    numbers = {"": _Number(table.corpus[row.key], len(values))}
    for name in judgements.groups:
        numbers[name] = _Number(table.group_corpus[name][row.key], sizes[name])
    return numbers


def _correlations(
    spec: StatisticSpec, judgements: Judgements, ratings: Ratings, values: FloatArray, title: str
) -> dict[str, _Number]:
    if spec.coefficient is None:
        raise StatisticError(f"the statistic {spec.name} has no coefficient", value=spec.name)
    item, human = aggregate(ratings.item, ratings.value, spec.aggregation)
    scores = values[item]
    group = np.array([judgements.items[i].group for i in item])
    numbers = {}
    for name in ("", *judgements.groups):
        chosen = group == name if name else np.ones(len(item), dtype=np.bool_)
        label = f"the human ratings{f' of {name}' if name else ''}"
        try:
            _check_varied(human[chosen], label)
            measured = correlation(spec.coefficient, scores[chosen], human[chosen], name_x=title, name_y=label)
        except StatisticError as error:
            numbers[name] = _Number(None, int(chosen.sum()), undefined=error.message)
            continue
        # A p-value assumes independent data points, which several ratings of one caption are not.
        p_value = None if spec.aggregation == "unaggregated" else measured.p_value
        numbers[name] = _Number(measured.value, measured.n, p_value, measured.ties_x)
    return numbers


def _check_varied(human: FloatArray, label: str) -> None:
    """Raise StatisticError with the reason if no metric can be correlated with these ratings."""
    if len(human) < 2:
        raise StatisticError(f"a correlation requires at least two data points, and {label} have {len(human)}")
    if is_constant(human):
        equal = f"all {len(human):,} values of {label} are equal to {human[0]:g}"
        raise StatisticError(f"no correlation is defined: {equal}")


def _at_level(spec: StatisticSpec, judgements: Judgements, values: FloatArray, title: str) -> dict[str, _Number]:
    """Within images or sources, or over systems."""
    numbers = {}
    of_pairs = spec.side == "preferences"
    groups = sorted(set(judgements.preferences[spec.human].group) - {""}) if of_pairs else judgements.groups
    for name in ("", *groups):
        try:
            data = leveled(spec, judgements, {title: values}, name)
            value = observed_value(data.statistic(title))
            if not np.isfinite(value):
                given = (
                    "all systems the same mean" if spec.systems else "captions with different ratings the same score"
                )
                raise StatisticError(f"{spec.name} is undefined: {title} gives {given}", value=title)
        except StatisticError as error:
            numbers[name] = _Number(None, 0, undefined=error.message)
            continue
        numbers[name] = _Number(value, data.n)
    return numbers


def _accuracies(spec: StatisticSpec, judgements: Judgements, values: FloatArray, title: str) -> dict[str, _Number]:
    if spec.ties is None:
        raise StatisticError(f"the statistic {spec.name} has no tie rule", value=spec.name)
    preferences, sides = judgements.preferences[spec.human], _sides(spec, judgements)
    if sides is not None:
        return _balanced(spec.ties, preferences, sides, values, title)
    # A group with even votes on all pairs has no accuracy, and the mean over groups excludes it.
    decided = in_decided_groups(preferences)
    sizes = Counter(preferences.group)
    numbers: dict[str, _Number] = {}
    try:
        accuracy = pairwise_accuracy(
            values[preferences.first[decided]],
            values[preferences.second[decided]],
            preferences.preferred[decided],
            ties=spec.ties,
            groups=[group for group, kept in zip(preferences.group, decided, strict=True) if kept],
            name=title,
        )
    except StatisticError as error:
        reason = f"the votes are even on all {len(decided):,} pairs" if len(decided) and not decided.any() else ""
        return {"": _Number(None, 0, undefined=reason or error.message)}
    # The mean over groups is what papers print as "All"; with groups of equal size it equals the pooled accuracy.
    numbers[""] = _Number(accuracy.mean, accuracy.pooled.n, None, accuracy.pooled.ties, accuracy.mean_chance)
    by_name = {group.name: group for group in accuracy.groups}
    for name in sorted(sizes.keys() - {""}):
        if name in by_name:
            group = by_name[name]
            numbers[name] = _Number(group.value, group.n, None, group.ties, group.chance)
        else:
            even = f"the votes are even on all {sizes[name]:,} pairs of {name}; the mean over groups excludes it"
            numbers[name] = _Number(None, 0, undefined=even)
    return numbers


def _balanced(
    ties: TieRule, preferences: Preferences, sides: IntArray, values: FloatArray, title: str
) -> dict[str, _Number]:
    """Length-balanced accuracies: of each group the mean of both sides, overall the mean of the groups."""
    numbers: dict[str, _Number] = {}
    groups = np.array(preferences.group, dtype=object)
    for group in dict.fromkeys(preferences.group):
        halves = []
        for side in (1, -1):
            chosen = (sides == side) & (groups == group)
            if chosen.any():
                first, second = values[preferences.first[chosen]], values[preferences.second[chosen]]
                halves.append(pairwise_accuracy(first, second, preferences.preferred[chosen], ties, name=title).pooled)
        if len(halves) < 2:
            where = f" of {group}" if group else ""
            reason = f"the longer caption, or the shorter one, is preferred in no pair{where}"
            numbers[group] = _Number(None, 0, undefined=reason)
            continue
        numbers[group] = _Number(
            float(np.mean([half.value for half in halves])),
            sum(half.n for half in halves),
            None,
            sum(half.ties for half in halves),
            float(np.mean([half.chance for half in halves])),
        )
    defined = [number for number in numbers.values() if number.value is not None]
    if not defined:
        return {"": next(iter(numbers.values()))} if numbers else {"": _Number(None, 0, undefined="there are no pairs")}
    overall = _Number(
        float(np.mean([number.value for number in defined if number.value is not None])),
        sum(number.n for number in defined),
        None,
        sum(number.ties or 0 for number in defined),
        float(np.mean([number.chance for number in defined if number.chance is not None])),
    )
    return {"": overall, **{name: numbers[name] for name in sorted(numbers) if name}}


def _cell(protocol: Protocol, row: Row, group: str, numbers: Sequence[_Number | None]) -> Cell:
    """The cell of some draws' numbers: None for a draw without data of the group."""
    known = [number for number in numbers if number is not None]
    values = [number.value for number in known if number.value is not None]
    chances = [number.chance for number in known if number.chance is not None]
    defined, single = len(values) == len(numbers), len(numbers) == 1
    return Cell(
        **_names(protocol, row, group),
        value=float(np.mean(values)) if defined else None,
        undefined="" if defined else _reason(numbers),
        sd=float(np.std(values, ddof=1)) if defined and not single else None,
        n=min(number.n for number in known),
        p_value=known[0].p_value if single else None,
        ties=known[0].ties if single else None,
        chance=float(np.mean(chances)) if len(chances) == len(numbers) else None,
    )


def _names(protocol: Protocol, row: Row, group: str) -> dict[str, Any]:
    """The fields of a cell that say which number it is."""
    return {
        "protocol": str(protocol),
        "metric": row.metric,
        "label": row.key.label,
        "column": row.name,
        "title": row.title,
        "group": group,
    }


def _reason(numbers: Sequence[_Number | None]) -> str:
    """The reason a mean over draws is undefined: of the first undefined draw, with its number unless all agree."""
    reasons = ["it has no data of this group" if number is None else number.undefined for number in numbers]
    draw, first = next((draw, reason) for draw, reason in enumerate(reasons, 1) if reason)
    return first if set(reasons) == {first} else f"on draw {draw} of {len(numbers)}: {first}"

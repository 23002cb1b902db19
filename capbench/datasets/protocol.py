"""Named, citable protocols: ``dataset/items/statistic``.

*items* defines the pairs, the references that are left out and the seed of sampled references: scores depend only on
this part. *statistic* defines the aggregation of human ratings, the coefficient and the tie rule.

The version of a data set is printed with every result (``composite:1@8k/same-text-out/correctness-tau-c``) and is
optional in the name of a protocol. Ids in result files omit it; the version is a separate field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from capbench.core.errors import ProtocolError, suggest
from capbench.core.records import TieRule

Aggregation = Literal["unaggregated", "mean", "median", "mode"]
#: The units that a statistic compares: all captions, the captions of each image or of each source, systems, or pairs of
#: captions.
Level = Literal["captions", "images", "sources", "systems", "pairs"]


@dataclass(frozen=True)
class ItemSelection:
    """The *items* part of a protocol."""

    name: str  # name in ids (``no-own-captions``)
    description: str  # one sentence on pairs and references
    draws: int = 1  # number of random samples of references; 1 if nothing is sampled
    seed: int | None = None  # random seed, None if nothing is sampled
    source: str = ""  # publications that use it ("TIGEr Table 1")
    systems: int | None = None  # number of systems, if these are so few that some statistics over systems are undefined


def by_name(*selections: ItemSelection) -> dict[str, ItemSelection]:
    """Selections by their names, the default one first."""
    return {selection.name: selection for selection in selections}


@dataclass(frozen=True)
class StatisticSpec:
    """The *statistic* part of a protocol."""

    name: str  # name in ids (``unaggregated-tau-c``)
    # ``correlation`` with ratings, ``accuracy`` on preferences, or ``mean`` scores. acc*_eq and accuracies over
    # systems are of kind ``correlation``, because they relate scores to ratings
    kind: Literal["correlation", "accuracy", "mean"]
    human: str  # aspect of the ratings, or label of the preferences
    aggregation: Aggregation = "unaggregated"  # aggregation of several ratings of one item (correlations)
    level: Level = "captions"  # the units that are compared
    # one of those of the level (``Coefficient``, ``WithinCoefficient``, …); None for accuracies and means
    coefficient: Any = None
    ties: TieRule | None = None  # value of a metric's tie on a pair (accuracies)
    description: str = ""  # one sentence
    source: str = ""  # publications that use it
    # True for an accuracy that weights pairs whose longer caption is preferred and pairs whose shorter one is
    # preferred equally
    length_balanced: bool = False

    @property
    def side(self) -> Literal["ratings", "preferences", "none"]:
        """The human side: ratings of captions, or preferences between two captions."""
        if self.kind == "accuracy" or self.level == "pairs":
            return "preferences"
        return "ratings" if self.kind == "correlation" else "none"

    @property
    def data_points(self) -> str:
        """The name of the data points, in the plural."""
        names = {"captions": "judgements", "images": "captions", "sources": "captions"}
        return names.get(self.level, self.level)

    @property
    def label(self) -> str:
        """Short name for table headings: ``τ-c``, ``ρ``, ``acc-eq``, ``within-image τ-b``, ``accuracy``, ``mean``."""
        if self.length_balanced:
            return "length-balanced accuracy"
        if self.coefficient is None:
            return self.kind
        before = {"images": "within-image ", "sources": "within-source ", "systems": "system ", "pairs": "graded "}
        return f"{before.get(self.level, '')}{_SYMBOLS.get(self.coefficient, self.coefficient)}"


@dataclass(frozen=True)
class Protocol:
    """One protocol of one data set. ``str()`` returns its id without the version."""

    dataset: str  # name of the data set, with its group; with its version only if that is not the default one
    items: ItemSelection  # the selection of items and references
    statistic: StatisticSpec  # the statistic
    version: str = ""  # version of the data set, ``""`` if it has none

    def __str__(self) -> str:
        return f"{self.dataset}/{self.items.name}/{self.statistic.name}"

    @property
    def versioned(self) -> str:
        """The id with the data set's version, as printed."""
        return with_version(str(self), self.version)


def with_version(name: str, version: str) -> str:
    """A data set's name, or an id that begins with one, with the version added to the name.

    >>> with_version("composite@8k/same-text-out/correctness-tau-c", "1")
    'composite:1@8k/same-text-out/correctness-tau-c'
    >>> with_version("nebula:1", "1")
    'nebula:1'
    >>> with_version("ratings.csv/as-given/tau-b", "")
    'ratings.csv/as-given/tau-b'
    """
    dataset, slash, rest = name.partition("/")
    base, at, group = dataset.partition("@")
    if not version or ":" in base:
        return name
    return f"{base}:{version}{at}{group}{slash}{rest}"


def base_name(dataset: str) -> str:
    """A data set's name without version and group.

    >>> base_name("composite:1@8k")
    'composite'
    """
    return dataset.partition("@")[0].partition(":")[0]


_SYMBOLS = {
    "tau-b": "τ-b",
    "tau-c": "τ-c",
    "spearman": "ρ",
    "pearson": "r",
    "acc-eq": "acc-eq",
    "acc-eq-held-out": "held-out acc-eq",
    "difference-pearson": "difference r",
    "soft-accuracy": "soft accuracy",
}
_TITLES = {"τ-b": "Kendall's τ-b", "τ-c": "Kendall's τ-c", "ρ": "Spearman's ρ", "r": "Pearson's r"}


def statistic_title(label: str) -> str:
    """The name of a statistic in headings and prose, from its label; other labels are their own names.

    >>> statistic_title("τ-c"), statistic_title("within-image τ-b"), statistic_title("accuracy")
    ("Kendall's τ-c", "within-image Kendall's τ-b", 'accuracy')
    """
    before, space, symbol = label.rpartition(" ")
    return f"{before}{space}{_TITLES.get(symbol, symbol)}"


_CAPTIONS = {
    "tau-b": "Kendall's tau-b",
    "tau-c": "Kendall's (Stuart's) tau-c",
    "spearman": "Spearman's rho",
    "pearson": "Pearson's r",
    "acc-eq": "pairwise accuracy with tie calibration, acc*_eq",
}
_IMAGES = {name: f"{title} of each image's captions, averaged over images" for name, title in _CAPTIONS.items()}
_COEFFICIENTS: dict[Level, dict[str, str]] = {
    "captions": _CAPTIONS,
    "images": {
        **_IMAGES,
        "acc-eq": f"{_IMAGES['acc-eq']}; one ε for all images",
        "acc-eq-held-out": "pairwise accuracy of each image's captions, averaged over images; ε of each random half of "
        "the images is calibrated on the other half (acc*_eq, cross-fitted; seed 0)",
        "difference-pearson": "pairwise difference Pearson: r of the differences between captions of one image, over "
        "the pairs of all images",
    },
    "sources": {
        "tau-b": "Kendall's tau-b over the pairs of captions of one source",
        "tau-c": "Kendall's (Stuart's) tau-c of each source's captions, averaged with weights n², n its number of "
        "captions",
        "pearson": "Pearson's r of the deviations from the mean of the source",
    },
    "systems": {
        "pearson": "Pearson's r of the systems' means",
        "tau-b": "Kendall's tau-b of the systems' means",
        "accuracy": "share of pairs of systems whose means are ordered as in the human ratings",
        "soft-accuracy": "soft pairwise accuracy: 1 - mean |p(human) - p(metric)| over pairs of systems, p one-sided "
        "from 1,000 paired permutations over images, seed 0",
    },
}
"""Coefficient → its meaning, by level."""
_SOURCES = {
    "acc-eq": "Deutsch, Foster and Freitag 2023",
    "acc-eq-held-out": "after Deutsch, Foster and Freitag 2023",
    "difference-pearson": "DiIanni and Deutsch 2025",
    "accuracy": "Kocmi et al. 2021",
    "soft-accuracy": "Thompson et al. 2024",
}
_REQUIREMENTS = {
    "within-image-": "two images or more with captions that are rated differently",
    "within-source-": "two sources or more, named by 'system', and captions of one source that are rated differently",
    "system-": "captions of three systems or more, named by 'system'",
}
_AGGREGATION_NAMES: dict[Aggregation, str] = {
    "unaggregated": "every single rating is a data point",
    "mean": "the mean of an item's ratings is its data point",
    "median": "the median of an item's ratings is its data point",
    "mode": "the most frequent rating of an item is its data point (ties: the lower)",
}


def correlations(
    human: str, aggregations: tuple[Aggregation, ...] = ("unaggregated",), prefix: str = ""
) -> dict[str, StatisticSpec]:
    """All correlations of scores with one aspect of ratings, named ``[prefix-][aggregation-]coefficient``."""
    several = len(aggregations) > 1
    specs = [_coefficients("captions", human, prefix, each if several else "", each) for each in aggregations]
    return {name: spec for of_aggregation in specs for name, spec in of_aggregation.items()}


def within_image_statistics(human: str, prefix: str = "") -> dict[str, StatisticSpec]:
    """All statistics within images of one aspect; several ratings of a caption are aggregated first."""
    return _coefficients("images", human, prefix, "within-image")


def within_source_statistics(human: str, prefix: str = "") -> dict[str, StatisticSpec]:
    """All statistics within sources of one aspect of ratings, named ``[prefix-]within-source-coefficient``."""
    return _coefficients("sources", human, prefix, "within-source")


def system_statistics(human: str, prefix: str = "") -> dict[str, StatisticSpec]:
    """All statistics over systems of one aspect of ratings, named ``[prefix-]system-coefficient``."""
    return _coefficients("systems", human, prefix, "system", before="a system's mean is over all its captions; ")


def all_statistics(human: str, prefix: str = "") -> dict[str, StatisticSpec]:
    """The statistics of one aspect at all levels, for data sets whose captions have systems."""
    levels = (correlations, within_image_statistics, within_source_statistics, system_statistics)
    return {name: spec for declare in levels for name, spec in declare(human, prefix=prefix).items()}


def _coefficients(
    level: Level, human: str, prefix: str, middle: str, aggregation: Aggregation = "mean", before: str = ""
) -> dict[str, StatisticSpec]:
    specs = {}
    for coefficient, title in _COEFFICIENTS[level].items():
        name = "-".join(filter(None, [prefix, middle, coefficient]))
        text = f"{title}; {before}{_AGGREGATION_NAMES[aggregation]}"
        source = _SOURCES.get(coefficient, "")
        specs[name] = StatisticSpec(
            name, "correlation", human, aggregation, level, coefficient, description=text, source=source
        )
    return specs


def accuracy(label: str) -> dict[str, StatisticSpec]:
    """The accuracies on one label of preferences under each tie rule, named ``label-ties``."""
    rules: dict[TieRule, str] = {
        "strict": "a tie of the metric is wrong",
        "ties-right": "a tie of the metric is right",
        "ties-half": "a tie of the metric counts one half",
    }
    return {
        f"{label}-{rule}": StatisticSpec(
            f"{label}-{rule}", "accuracy", label, ties=rule, description=f"share of pairs ordered as by humans; {text}"
        )
        for rule, text in rules.items()
    }


def graded_preferences(label: str) -> dict[str, StatisticSpec]:
    """All statistics of one label of graded preferences: :func:`accuracy`, length-balanced accuracy, correlations."""
    balanced = StatisticSpec(
        f"{label}-length-balanced",
        "accuracy",
        label,
        ties="ties-half",
        description="mean of two accuracies: on pairs whose longer caption is preferred, and on pairs whose shorter "
        "one is preferred; a tie of the metric counts one half; 50 % for any preference for length alone",
        length_balanced=True,
    )
    names = {"pearson": "Pearson's r", "tau-b": "Kendall's tau-b"}
    correlated = [
        StatisticSpec(
            f"{label}-graded-{coefficient}",
            "correlation",
            label,
            description=f"{title} of the difference between the two scores and the graded preference; each pair counts "
            "in both orders",
            level="pairs",
            coefficient=coefficient,
        )
        for coefficient, title in names.items()
    ]
    return {**accuracy(label), **{spec.name: spec for spec in (balanced, *correlated)}}


def resolve(
    dataset: str,
    selections: Mapping[str, ItemSelection],
    statistics: Mapping[str, StatisticSpec],
    default: tuple[str, str],
    # ``dataset/items/statistic``, ``items/statistic``, ``items``, ``statistic``, or None for the default; the data set
    # with or without its version
    text: str | None,
    version: str = "",
) -> Protocol:
    """Look up a protocol of a data set."""
    if not text:
        return Protocol(dataset, selections[default[0]], statistics[default[1]], version)
    # The authors of this statistic call it system-level; ids name the level at which it is computed.
    parts = text.strip().replace("system-difference-pearson", "within-image-difference-pearson").split("/")
    if parts[0] in (dataset, with_version(dataset, version)):
        parts = parts[1:] or list(default)
    elif len(parts) == 3 or "@" in parts[0] or ":" in parts[0]:
        problem, hint = f"the protocol '{text}' does not belong to {dataset}", f"Begin it with {dataset}/"
        raise ProtocolError(problem, code="mismatch", value=text, hint=hint)
    if len(parts) == 1:
        is_statistic = parts[0] not in selections and _completed(parts[0], statistics, default[1]) in statistics
        parts = [default[0], parts[0]] if is_statistic else [parts[0], default[1]]
    if len(parts) != 2:
        problem, hint = f"'{text}' is not a protocol id", "The form is dataset/items/statistic"
        raise ProtocolError(problem, code="wrong-value", value=text, hint=hint)
    items, statistic = parts[0], _completed(parts[1], statistics, default[1])
    for name in (part for part in (items, statistic) if part not in selections and part not in statistics):
        for level, requirement in _REQUIREMENTS.items():
            if level in name and not any(level in known for known in statistics):
                problem = f"{dataset} has no '{name}': such a statistic requires {requirement}"
                hint = f"The default protocol is {dataset}/{'/'.join(default)}"
                raise ProtocolError(problem, code="unsupported", value=name, hint=hint)
    # The name of a statistic without the aspect: system-pearson for precision-system-pearson.
    longer = [name for name in statistics if name.endswith(f"-{items}")] if "/" not in text else []
    if items not in selections and longer:
        problem, hint = f"'{items}' is an incomplete name of a statistic of {dataset}", ", ".join(longer)
        raise ProtocolError(problem, code="ambiguous", value=items, hint=f"Write the full name: {hint}")
    for kind, name, known in (("items", items, [*selections]), ("statistic", statistic, [*statistics])):
        if name not in known:
            problem = f"unknown {kind} '{name}' of {dataset}"
            raise ProtocolError(problem, code="unknown-name", value=name, hint=suggest(name, known))
    return Protocol(dataset, selections[items], statistics[statistic], version)


def _completed(name: str, statistics: Mapping[str, StatisticSpec], default: str) -> str:
    """The statistic with the aspect or the ending of the default one: ``tau-b`` is ``correctness-tau-b``."""
    if name in statistics:
        return name
    human = statistics[default].human
    longer = f"{human}-{name}", f"{name}{default.removeprefix(human)}"
    return next((full for full in longer if full in statistics), name)

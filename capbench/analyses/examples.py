"""Examples on which a metric and people agree, and on which they do not (TIGEr, Table 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from capbench.analyses.score_groups import RatedScores, score_groups
from capbench.errors import StatisticError, UsageError
from capbench.records import FloatArray, IntArray

__all__ = ["KINDS", "Example", "Examples", "choose_examples"]

Kind = Literal["metric-higher", "human-higher", "equal"]
KINDS: tuple[Kind, ...] = ("metric-higher", "human-higher", "equal")


@dataclass(frozen=True)
class Example:
    """One candidate with what people and the metric say of it.

    Attributes:
        kind: whether the metric's score group is above the rating, below it, or the same.
        image: image id.
        candidate: the caption.
        references: what it was scored against.
        human: people's rating.
        group: the metric's score on the human scale.
        score: its score.
    """

    kind: Kind
    image: str
    candidate: str
    references: tuple[str, ...]
    human: float
    group: float
    score: float


@dataclass(frozen=True)
class Examples:
    """An equal number of examples of each kind.

    Attributes:
        protocol: id of the protocol that the items are from.
        dataset_title: the data set's name in tables.
        metric: title of the metric column.
        signature: of the metric.
        aggregation: what was done with several ratings of one item.
        n: data points that the scale was made from.
        counts: data points by kind.
        seed: seed of the choice.
        sample: whether the data is the embedded sample.
        examples: by kind in the order of :data:`KINDS`.
        version: version of the data set, which ``protocol`` leaves out; ``""`` if it has none.
    """

    protocol: str
    dataset_title: str
    metric: str
    signature: str
    aggregation: str
    n: int
    counts: dict[str, int]
    seed: int
    sample: bool
    examples: tuple[Example, ...]
    version: str = ""

    def as_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def choose_examples(rated: RatedScores, *, number: int = 2, seed: int = 0) -> Examples:
    """Choose examples of each kind.

    Where people and metric differ, those with the greatest difference come first; among equals chance decides. Where
    they agree, chance decides alone. No image is taken twice while there are others.

    Args:
        rated: the scores of one metric column.
        number: examples of each kind.
        seed: of the choice; the same one gives the same examples.

    Raises:
        UsageError: more than one metric, or a number below 1.
        StatisticError: fewer examples of a kind than wanted.
    """
    if len(rated.scores) != 1:
        raise UsageError(
            f"examples are of one metric, and there are {len(rated.scores)}: {', '.join(rated.scores)}",
            hint="Name one column with --metric, such as bleu-4 in place of bleu",
        )
    if number < 1:
        raise UsageError(f"{number} examples are not possible", hint="Give 1 or more")
    ((title, scores),) = rated.scores.items()
    groups = score_groups(scores, rated.human, name=title)
    difference = groups - rated.human
    members = {
        "metric-higher": np.flatnonzero(difference > 0),
        "human-higher": np.flatnonzero(difference < 0),
        "equal": np.flatnonzero(difference == 0),
    }
    chosen = []
    for kind in KINDS:
        if len(members[kind]) < number:
            raise StatisticError(
                f"{title} has {len(members[kind])} data points of the kind '{kind}', {number} are wanted",
                hint="Ask for fewer",
            )
        for point in _choose(rated, members[kind], np.abs(difference), number, seed):
            item = rated.items[rated.item[point]]
            chosen.append(
                Example(
                    kind,
                    item.image,
                    item.candidate,
                    item.references,
                    float(rated.human[point]),
                    float(groups[point]),
                    float(scores[point]),
                )
            )
    return Examples(
        rated.protocol,
        rated.dataset_title,
        title,
        next(iter(rated.signatures.values())),
        rated.aggregation,
        len(groups),
        {kind: len(points) for kind, points in members.items()},
        seed,
        rated.sample,
        tuple(chosen),
        rated.version,
    )


def _choose(rated: RatedScores, points: IntArray, distance: FloatArray, number: int, seed: int) -> Sequence[int]:
    shuffled = np.random.default_rng(seed).permutation(points)
    order: list[int] = shuffled[np.argsort(-distance[shuffled], kind="stable")].tolist()
    points_of_new_images: list[int] = []
    seen: set[str] = set()
    for point in order:
        image = rated.items[rated.item[point]].image
        if image not in seen:
            seen.add(image)
            points_of_new_images.append(point)
    again = [point for point in order if point not in set(points_of_new_images)]
    return [*points_of_new_images, *again][:number]

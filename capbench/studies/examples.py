"""Scores paired with the ratings of a protocol, and examples of both (TIGEr, Table 3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from capbench.core.errors import ProtocolError, StatisticError, UsageError
from capbench.core.records import FloatArray, IntArray
from capbench.datasets.protocol import Protocol
from capbench.stats.pairwise_accuracy import aggregate
from capbench.stats.score_groups import RATING_BINS, binned, score_groups
from capbench.studies.plan import Plan
from capbench.studies.scoring import ProgressFactory, Scored, load_scorable, no_progress

MAX_LEVELS = 15  # distinct ratings of an n-point scale; more are binned


@dataclass(frozen=True, eq=False)
class RatedScores:
    """Scores at the n data points of a protocol with ratings."""

    protocol: Protocol
    scored: Scored  # of the protocol's first draw of references
    item: IntArray  # (n,) index of each data point's item
    human: FloatArray  # (n,) ratings, at most MAX_LEVELS distinct values: more are binned
    scores: Mapping[str, FloatArray]  # (n,) by title of the metric column
    notes: tuple[str, ...]
    sample: bool


def rated_scores(
    plan: Plan,  # of one protocol
    *,
    medians: bool = False,  # of several ratings of one item, unless the protocol aggregates them
    cache: bool = True,
    progress: ProgressFactory = no_progress,
) -> RatedScores:
    """Score judged items, and aggregate their ratings. Raises ProtocolError for a protocol without ratings."""
    ((dataset, protocol),) = plan.protocols
    spec = protocol.statistic
    if spec.side != "ratings":
        hint = "Choose a data set with ratings, such as composite"
        raise ProtocolError(f"{protocol} has no ratings", code="unsupported", value=str(protocol), hint=hint)
    if medians and spec.aggregation == "unaggregated":
        spec = replace(spec, aggregation="median")
    scorable = load_scorable(dataset, protocol.items, plan.requests, plan.resources, cache=cache).require_all()
    scored = replace(scorable, draws=scorable.draws[:1]).score(progress)
    judgements, table = scored.draws[0], scored.tables[0]
    ratings, notes = judgements.ratings[spec.human], judgements.notes
    item, human = aggregate(ratings.item, ratings.value, spec.aggregation)
    if (n := len(np.unique(human))) > MAX_LEVELS:
        bins = f"{RATING_BINS} bins of equal width from {human.min():g} to {human.max():g}"
        notes = (*notes, f"{n:,} distinct ratings are put into {bins}; each bin is named after its middle")
        human = binned(human)
    rows = scored.complete([row for request in scorable.requests for row in request.rows])
    scores = {row.title: table.values[row.key][item] for row in rows}
    return RatedScores(replace(protocol, statistic=spec), scored, item, human, scores, notes, plan.on_sample)


KINDS = {"metric-higher": 1, "human-higher": -1, "equal": 0}
"""Kinds of examples: the sign of the score group minus the rating."""


def choose_examples(rated: RatedScores, number: int = 2) -> dict[str, Any]:
    """Choose ``number`` examples of each kind from the scores of one metric column: the greatest disagreements, and
    random agreements (seed 0). An image is reused only if no other image remains.

    Returns as JSON the protocol and the metric, the number of data points ``n``, and by kind (``counts``), and the
    examples in the order of :data:`KINDS`: each with its item, rating, score, and ``group``, the score on the human
    scale.
    """
    if len(rated.scores) != 1:
        message = f"examples require exactly one metric, not {len(rated.scores)}: {', '.join(rated.scores)}"
        hint = "Name one column with --metric, such as bleu-4 instead of bleu"
        raise UsageError(message, code="wrong-value", value=len(rated.scores), hint=hint)
    ((title, scores),) = rated.scores.items()
    items, groups = rated.scored.draws[0].items, score_groups(scores, rated.human)
    difference = groups - rated.human
    counts, examples = dict[str, int](), list[dict[str, Any]]()
    for kind, sign in KINDS.items():
        points = np.flatnonzero(np.sign(difference) == sign)
        counts[kind] = len(points)
        if len(points) < number:
            message = f"{title} has {len(points)} data points of the kind '{kind}', fewer than the requested {number}"
            raise StatisticError(message, code="too-few", value=len(points), hint="Request fewer examples")
        shuffled = np.random.default_rng(0).permutation(points)
        order = shuffled[np.argsort(-np.abs(difference[shuffled]), kind="stable")]
        _, first = np.unique([items[place].image for place in rated.item[order]], return_index=True)
        has_used_image = np.isin(np.arange(len(order)), first, invert=True)
        for point in order[np.argsort(has_used_image, kind="stable")][:number]:
            of_item = {name: getattr(items[rated.item[point]], name) for name in ("image", "candidate", "references")}
            numbers = {"human": rated.human, "group": groups, "score": scores}
            examples.append({"kind": kind, **of_item, **{key: float(of[point]) for key, of in numbers.items()}})
    return {
        "protocol": str(rated.protocol),
        "dataset_title": rated.scored.dataset.title,
        "metric": title,
        "signature": next(iter(rated.scored.tables[0].signatures.values())),
        "aggregation": rated.protocol.statistic.aggregation,
        "n": len(groups),
        "counts": counts,
        "sample": rated.sample,
        "examples": examples,
        "version": rated.protocol.version,
    }

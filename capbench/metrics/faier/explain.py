"""Explanations of FAIEr's scores: the best region of each word and triplet, and its contribution (Figure 6).

All numbers are the metric's. In an ensemble, each network has its own best regions; shown are the means of the
networks' products and the region with the highest mean.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from capbench.core.errors import UsageError
from capbench.core.explanations import (
    Chart,
    ExplainedCandidate,
    Explanation,
    Matrix,
    Note,
    Panel,
    RegionMap,
    RegionMaps,
    Score,
    Scores,
    Series,
    Subject,
    Table,
)
from capbench.core.records import FloatArray, IntArray
from capbench.features.class_names import regions_of
from capbench.metrics.faier.source import FaierSource, Group
from capbench.metrics.image_metric import ImageMetric, unknown_words
from capbench.text.spice.scene_graph import Triplet
from capbench.text.vocabulary import SPECIAL, tokenize_caption

__all__ = ["FaierCandidate", "MatchedNodes", "explain_faier", "words_of"]


@dataclass(frozen=True, eq=False)
class MatchedNodes:
    """The nodes of one level of a candidate, matched with the regions of its image.

    Attributes:
        names: (k) the words or triplets.
        products: (k, n) products of each node with each region's union node; means over the networks of an ensemble.
        regions: (k,) index of the region with a node's highest product; the first of equal ones.
        added: (k,) the node's highest product; the level's score is the mean of these. For an ensemble, the mean of the
            networks' highest products.
    """

    names: tuple[str, ...]
    products: FloatArray
    regions: IntArray
    added: FloatArray


@dataclass(frozen=True, eq=False)
class FaierCandidate:
    """One candidate.

    Attributes:
        text: the candidate's text.
        read: the references that the metric reads, in its order.
        scores: column → score of the metric.
        words: the object level.
        triplets: the relation level; None without one.
        graph: caption → triplets, of the candidate and the references in ``read``; empty without a relation level.
        human: mean human rating of this candidate; None if unknown.
    """

    text: str
    read: tuple[str, ...]
    scores: Mapping[str, float]
    words: MatchedNodes
    triplets: MatchedNodes | None
    graph: Mapping[str, tuple[Triplet, ...]]
    human: float | None = None


def explain_faier(
    metric: ImageMetric,
    source: FaierSource,
    subject: Subject,
    *,
    chosen: Callable[[Sequence[str]], tuple[str, ...]],
    triplets_of: Callable[[Collection[str]], dict[str, tuple[Triplet, ...]]],
) -> Explanation:
    """Explanation of FAIEr's scores of one image's candidates; details are :class:`FaierCandidate`.

    Args:
        metric: FAIEr with its options.
        source: its networks and features.
        subject: candidates, with or without references.
        chosen: returns the references that the metric reads.
        triplets_of: returns the triplets of captions.

    Raises:
        UsageError: the model's variant is AIEr, which reads no images.
        FeatureError: the store does not contain the image.
        ToolError: a caption has no cached parse, and SPICE's parser is not set up or failed.
    """
    if not source.models[0].options.sees_images:
        raise UsageError(
            "reads only references, so that there are no regions to show",
            code="unsupported",
            value=source.models[0].options.variant,
            path=source.models[0].path,
            hint="Use a model of another variant",
        )
    regions = regions_of(source.store, subject.image)
    statistics = metric.statistics(subject.items, lambda _: None)
    scores = metric.scores(statistics)
    texts = [text for item in subject.items for text in (item.candidate, *chosen(item.references))]
    triplets = triplets_of(texts)
    explained = []
    for row, (item, human) in enumerate(zip(subject.items, subject.humans, strict=True)):
        read = chosen(item.references)
        group = Group(subject.image, read, (len(read),), (item.candidate,))
        (levels,) = source.products(group, triplets)
        candidate = FaierCandidate(
            item.candidate,
            read,
            {column: float(values[row]) for column, values in scores.items()},
            _matched(words_of(source, item.candidate), levels[0]),
            _matched([" ".join(t) for t in triplets.get(item.candidate, ())], levels[1]) if levels[1:] else None,
            {text: triplets.get(text, ()) for text in (item.candidate, *read)} if levels[1:] else {},
            human,
        )
        panels = _panels(candidate, regions.names)
        explained.append(ExplainedCandidate(item.candidate, item.references, human, panels, candidate))
    notes = unknown_words([model.vocabulary for model in source.models], texts)
    if len(source.models) > 1:
        notes.append(f"products are means over {len(source.models)} networks, each with its own best regions")
    title = metric.titles["faier"]
    return Explanation(title, subject.image, tuple(explained), metric.signature(), regions, notes=tuple(notes))


def words_of(source: FaierSource, text: str) -> list[str]:
    """The words of a caption that are nodes of the object level."""
    tokens = tokenize_caption(text)
    counted = source.models[0].options.ends == "counted"
    return [SPECIAL[1], *tokens, SPECIAL[2]] if counted else tokens


def _matched(names: Sequence[str], products: Sequence[FloatArray]) -> MatchedNodes:
    mean = np.mean(products, axis=0)
    added = np.mean([of_network.max(axis=1) for of_network in products], axis=0)
    return MatchedNodes(tuple(names), mean, mean.argmax(axis=1), added)


def _panels(candidate: FaierCandidate, names: Sequence[str]) -> tuple[Panel, ...]:
    scores = candidate.scores
    levels = [Score("faier-object", scores["faier-object"])]
    if candidate.triplets is not None:
        levels.append(Score("faier-relation", scores["faier-relation"]))
    panels: list[Panel] = [Scores("", (Score("faier", scores["faier"], tuple(levels)),))]
    panels += _level("word", candidate.words, names)
    if candidate.triplets is not None:
        panels += _level("triplet", candidate.triplets, names)
        rows = [(text, *triplet) for text, of_text in candidate.graph.items() for triplet in of_text]
        heads = ("caption", "subject", "relation", "object")
        panels.append(Table("Triplets of candidate and references", heads, tuple(rows)))
    return tuple(panels)


def _level(kind: str, nodes: MatchedNodes, names: Sequence[str]) -> list[Panel]:
    """Panels of one level: each node's best region and contribution. ``kind`` is "word" or "triplet"."""
    if not nodes.names:
        return [Note(f"The candidate has no {kind}s: this level's score is 0.")]
    low, high = float(nodes.products.min()), float(nodes.products.max())
    chosen = [names[region] for region in nodes.regions.tolist()]
    hints = tuple(
        f"{name}: {value:.3f} at region {region}"
        for name, value, region in zip(nodes.names, nodes.added.tolist(), chosen, strict=True)
    )
    maps = tuple(
        RegionMap(name, weights, (int(region),), f"region {names[region]}, {weights[region]:.3f}")
        for name, weights, region in zip(nodes.names, nodes.products, nodes.regions.tolist(), strict=True)
    )
    columns = list(dict.fromkeys(nodes.regions.tolist()))
    marked = tuple((row, columns.index(region)) for row, region in enumerate(nodes.regions.tolist()))
    rows = tuple(
        (name, region, f"{value:.4f}") for name, region, value in zip(nodes.names, chosen, nodes.added, strict=True)
    )
    return [
        RegionMaps(f"Best region of each {kind}", maps, low, high if high > low else low + 1.0, small=True),
        Chart(
            f"Contribution of each {kind} (mean: {nodes.added.mean():.4f})",
            nodes.names,
            (Series("best region", nodes.added),),
            kind,
            hints,
        ),
        Matrix(
            f"Products of {kind}s and the best regions of all {kind}s",
            nodes.names,
            tuple(names[region] for region in columns),
            nodes.products[:, columns],
            low,
            high if high > low else low + 1.0,
            marked,
        ),
        Table(f"All {kind}s", (kind, "region", "product"), rows),
    ]

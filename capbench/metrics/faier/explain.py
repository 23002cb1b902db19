"""Why FAIEr gave a caption its score: which region each word and each triplet chose, and what it adds (Figure 6).

The numbers are the metric's own. Under an ensemble each network chooses for itself; shown are the means of the
networks' products, and the region where the mean is highest.
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
    """The nodes of one level of a candidate over the regions of its image.

    Attributes:
        names: (k) the words, or the triplets.
        products: (k, n) of each node with each region's union node; means over the networks of an ensemble.
        regions: (k,) where a node's product is highest; at a tie the lower number.
        added: (k,) the node's highest product, which the level's score is the mean of; under an ensemble the mean of
            the networks' highest.
    """

    names: tuple[str, ...]
    products: FloatArray
    regions: IntArray
    added: FloatArray


@dataclass(frozen=True, eq=False)
class FaierCandidate:
    """One candidate.

    Attributes:
        text: as given.
        read: the references that were read, in their order.
        scores: column → score, as the metric gives it.
        words: the object level.
        triplets: the relation level; None without one.
        graph: triplets of the candidate and of the references that were read, by caption; empty without a relation
            level.
        human: mean human rating of this candidate, None if it is not known.
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
    """What FAIEr saw in candidates of one image; details are :class:`FaierCandidate`.

    Args:
        metric: FAIEr with its options.
        source: its networks and features.
        subject: candidates, which may have no references.
        chosen: gives the references that are read.
        triplets_of: gives the triplets of captions.

    Raises:
        UsageError: the model is of the variant AIEr, which looks at no image.
        FeatureError: the store lacks the image.
        ToolError: a caption must be parsed, and SPICE's parser is not set up or failed.
    """
    if not source.models[0].options.sees_images:
        raise UsageError(
            f"{source.models[0].path} looks at references alone: there are no regions to show",
            hint="Take a model of another variant",
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
        notes.append(f"products are means over {len(source.models)} networks, each of which chooses for itself")
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


def _level(what: str, nodes: MatchedNodes, names: Sequence[str]) -> list[Panel]:
    """What each node adds, on the picture and in numbers."""
    if not nodes.names:
        return [Note(f"The candidate has no {what}s: this level's score is 0.")]
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
        RegionMaps(f"The region that each {what} chose", maps, low, high if high > low else low + 1.0, small=True),
        Chart(
            f"What each {what} adds: the mean is {nodes.added.mean():.4f}",
            nodes.names,
            (Series("best region", nodes.added),),
            what,
            hints,
        ),
        Matrix(
            f"Products of {what}s and the regions chosen by any of them",
            nodes.names,
            tuple(names[region] for region in columns),
            nodes.products[:, columns],
            low,
            high if high > low else low + 1.0,
            marked,
        ),
        Table(f"All {what}s", (what, "region", "product"), rows),
    ]

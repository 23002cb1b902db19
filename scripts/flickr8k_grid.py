"""What the scripts about the grounding model of Flickr8k's grid features share: items, grounding vectors, columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from capbench.core.records import FloatArray, IntArray, Item
from capbench.metrics.base import Resources
from capbench.metrics.grounding.grounding import STATISTICS, compare, d_rel, wds
from capbench.metrics.tiger.metric import Tiger

MAPPINGS = ("released", "half", "clip")
TAUS = (0.5, 1.5, 3.0)
MAIN = ("tiger", "rrs", "wds", "grounding")


@dataclass(frozen=True, eq=False)
class Grounded:
    """Grounding vectors of items.

    Attributes:
        candidate: (n, regions) of each item's candidate.
        references: (n, regions) mean of its references'.
        counts: (n,) numbers of references.
    """

    candidate: FloatArray
    references: FloatArray
    counts: IntArray

    def statistics(self) -> dict[str, FloatArray]:
        """:func:`capbench.metrics.grounding.grounding.compare` by name."""
        values = compare(self.candidate, self.references, self.counts)
        return {name: values[:, i] for i, name in enumerate(STATISTICS)}


def ground(
    items: Sequence[Item], features: Path, model: Path, progress: Callable[[int], None] | None = None
) -> Grounded:
    """Grounding vectors of items under one model; each image's captions are encoded and grounded once."""
    metric = Tiger(Resources(features=str(features), model=str(model)))
    by_image: dict[str, list[int]] = {}
    for place, item in enumerate(items):
        by_image.setdefault(item.image, []).append(place)
    candidate: list[FloatArray] = [np.empty(0)] * len(items)
    references: list[FloatArray] = [np.empty(0)] * len(items)
    for images in _blocks(list(by_image)):
        places = [place for image in images for place in by_image[image]]
        words = metric.encode({text for p in places for text in (items[p].candidate, *items[p].references)})
        for image in images:
            items_of_image = [items[place] for place in by_image[image]]
            texts = [text for item in items_of_image for text in (item.candidate, *item.references)]
            vectors = metric.grounding_vectors(image, texts, words)
            for place, item in zip(by_image[image], items_of_image, strict=True):
                candidate[place] = vectors[item.candidate]
                references[place] = np.mean([vectors[text] for text in item.references], axis=0)
        if progress is not None:
            progress(len(places))
    counts = np.array([len(item.references) for item in items], dtype=np.int64)
    return Grounded(np.array(candidate), np.array(references), counts)


def _blocks(images: Sequence[str], size: int = 100) -> Iterator[Sequence[str]]:
    for start in range(0, len(images), size):
        yield images[start : start + size]


def mean_of(networks: Sequence[Grounded]) -> Grounded:
    """The mean grounding vectors of several models: an ensemble."""
    return Grounded(
        np.mean([network.candidate for network in networks], axis=0),
        np.mean([network.references for network in networks], axis=0),
        networks[0].counts,
    )


def columns(grounded: Grounded) -> dict[str, FloatArray]:
    """TIGEr's columns as specified, and under every mapping of D_rel and every τ: ``tiger half τ=0.5``."""
    statistics = grounded.statistics()
    named = {"rrs": statistics["rrs"], "grounding": statistics["grounding"]}
    for mapping in MAPPINGS:
        distance = statistics["kl"] + d_rel(
            statistics[f"norm_reference_{mapping}"], statistics[f"norm_candidate_{mapping}"]
        )
        for tau in TAUS:
            weights = wds(distance, tau)
            named[f"wds {mapping} τ={tau:g}"] = weights
            named[f"tiger {mapping} τ={tau:g}"] = (statistics["rrs"] + weights) / 2
    named["wds"], named["tiger"] = named["wds released τ=1.5"], named["tiger released τ=1.5"]
    # Without D_rel, what is left compares distributions only.
    named["wds without D_rel"] = wds(statistics["kl"], 1.5)
    named["tiger without D_rel"] = (statistics["rrs"] + named["wds without D_rel"]) / 2
    return named


def table(rows: Mapping[str, Sequence[str]], head: Sequence[str]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join((name, *cells)) + " |" for name, cells in rows.items()]
    return "\n".join(lines)

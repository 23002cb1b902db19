"""Draws of references: PASCAL-50S's samples, with the same references for all candidates of an image."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from capbench.core.records import Item, Judgements
from capbench.datasets.protocol import ItemSelection


def drawn(judgements: Judgements, selection: ItemSelection, count: int = 1) -> tuple[Judgements, ...]:
    """The judgements, or one per draw of ``count`` references if the selection samples them."""
    if selection.seed is None:
        return (judgements,)
    draws = draw_references(judgements.items, count, selection.seed, selection.draws)
    number = "one reference per image is" if count == 1 else f"{count} references per image are"
    notes = (*judgements.notes, f"{number} sampled (seed {selection.seed})")
    return tuple(replace(judgements, items=items, draw=draw, notes=notes) for draw, items in enumerate(draws))


def draw_references(items: Sequence[Item], count: int, seed: int, draws: int) -> list[tuple[Item, ...]]:
    """Items with the first ``count`` references of each in :func:`reference_orders`, in published order, per draw."""
    return [
        tuple(
            replace(item, references=tuple(item.references[place] for place in sorted(order[:count])))
            for item, order in zip(items, orders, strict=True)
        )
        for orders in reference_orders(items, seed, draws)
    ]


def reference_orders(items: Sequence[Item], seed: int, draws: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Random orders of every item's references (n tuples of indices from 0), one per draw.

    All items of an image get the same random order of its references, so that candidates that are compared with each
    other get the same references where the protocol allows it. The order comes from numpy's PCG64 generator seeded
    with (seed, number of the draw) and depends on nothing else; images are processed in the order of their ids.
    """
    named = {references: _numbered(references) for references in {item.references for item in items}}
    pools: dict[str, set[tuple[str, int]]] = {}
    for image, references in dict.fromkeys((item.image, item.references) for item in items):
        pools.setdefault(image, set()).update(named[references])
    # Sorted, so that the order in which a file lists an image's references does not matter.
    ordered = {image: sorted(pools[image]) for image in sorted(pools)}
    for draw in range(draws):
        generator = np.random.default_rng([seed, draw])
        places = {
            image: dict(zip(pool, generator.permutation(len(pool)).tolist(), strict=True))
            for image, pool in ordered.items()
        }
        known: dict[tuple[str, tuple[str, ...]], tuple[int, ...]] = {}
        for item in items:
            key = (item.image, item.references)
            if key not in known:
                place = [places[item.image][reference] for reference in named[item.references]]
                known[key] = tuple(sorted(range(len(place)), key=place.__getitem__))
        yield tuple(known[item.image, item.references] for item in items)


def _numbered(references: Sequence[str]) -> list[tuple[str, int]]:
    """References as (text, number of earlier occurrences), so that a text that occurs twice can be sampled twice."""
    before: Counter[str] = Counter()
    numbered = []
    for text in references:
        numbered.append((text, before[text]))
        before[text] += 1
    return numbered

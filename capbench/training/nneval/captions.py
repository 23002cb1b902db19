"""Which captions NNEval is trained on: people's and systems', with their references (Sharif et al., section 4.2).

Beside them may stand people's captions of other images, which count as systems': that is ours. A network that only
tells people from today's systems need not know whether a caption fits its image.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from capbench.errors import DataError
from capbench.records import Item, photograph
from capbench.training.nneval.config import DrawOptions

__all__ = ["FOREIGN", "HUMAN", "Drawn", "draw_captions"]

HUMAN, FOREIGN = "human", "foreign"
"""What an item names as its system if a person wrote it: of its image, or of another one."""


@dataclass(frozen=True)
class Drawn:
    """Captions to learn from.

    Attributes:
        items: captions with their references, an image's beside each other.
        human: for each item whether a person wrote it of its image.
        counts: what was taken and what was left out, by a short name, for the model's facts.
    """

    items: tuple[Item, ...]
    human: tuple[bool, ...]
    counts: Mapping[str, int]


def draw_captions(
    people: Mapping[str, Sequence[str]],
    systems: Mapping[str, Mapping[str, str]],
    judged: Collection[str],
    options: DrawOptions,
) -> Drawn:
    """Draw captions and references.

    Args:
        people: captions by image.
        systems: captions by system and image.
        judged: images that are left out, under any name (:func:`photograph`).
        options: how many of what.

    Raises:
        DataError: fewer than two images are left.
    """
    left_out = {photograph(image) for image in judged}
    by_system = {image: [name for name in sorted(systems) if image in systems[name]] for image in people}
    described = [image for image in people if by_system[image]]
    free = [image for image in described if photograph(image) not in left_out]
    fit = [
        image
        for image in free
        if len(people[image]) > options.references
        and len(people[image]) >= options.human
        and len(by_system[image]) >= options.machine
    ]
    # By a number of the name: a larger draw then holds a smaller one, and what was scored for that.
    chosen = sorted(fit, key=lambda image: _number(image, options.seed))[: options.images]
    if len(chosen) < 2:
        raise DataError(
            f"of {len(people):,} images {len(described):,} have captions by systems, {len(free):,} of these are not "
            f"judged, and {len(fit):,} have enough captions: too few to learn from",
            hint="Name other 'captions' or 'machine' files, or exclude less",
        )
    items: list[Item] = []
    human: list[bool] = []
    # Whose captions are foreign hangs on the names alone, but for images that are not there: the next one stands in.
    ring = sorted((_number(image, options.seed), image) for image in fit)
    for image in sorted(chosen):
        rng = np.random.default_rng((_number(image, options.seed), 1))
        texts = people[image]
        for place in rng.choice(len(texts), options.human, replace=False).tolist():
            others = [text for other, text in enumerate(texts) if other != place]
            items.append(Item(image, texts[place], _some(others, options.references, rng), system=HUMAN))
            human.append(True)
        for place in rng.choice(len(by_system[image]), options.machine, replace=False).tolist():
            system = by_system[image][place]
            references = _some(texts, options.references, rng)
            items.append(Item(image, systems[system][image], references, system=system))
            human.append(False)
        for other in _others(ring, image, options):
            place = _number(f"{image}\0{other}", options.seed) % len(people[other])
            references = _some(texts, options.references, rng)
            items.append(Item(image, people[other][place], references, system=FOREIGN))
            human.append(False)
    counts = {
        "images": len(chosen),
        "captions": len(items),
        "systems": len({item.system for item in items} - {HUMAN, FOREIGN}),
        "images with captions of systems": len(described),
        "images left out as judged": len(described) - len(free),
        "images left out for too few captions": len(free) - len(fit),
    }
    if options.foreign:
        counts["captions of other images"] = sum(item.system == FOREIGN for item in items)
    return Drawn(tuple(items), tuple(human), counts)


def _others(ring: Sequence[tuple[int, str]], image: str, options: DrawOptions) -> list[str]:
    """So many other images as foreign captions are wanted, or all that there are."""
    chosen: list[str] = []
    for number in range(min(options.foreign, len(ring) - 1)):
        place = bisect_left(ring, (_number(f"{image}\0{number}", options.seed), ""))
        while ring[place % len(ring)][1] in (image, *chosen):
            place += 1
        chosen.append(ring[place % len(ring)][1])
    return chosen


def _some(texts: Sequence[str], number: int, rng: np.random.Generator) -> tuple[str, ...]:
    """So many of the texts, drawn, and in their order."""
    return tuple(texts[place] for place in sorted(rng.choice(len(texts), number, replace=False).tolist()))


def _number(image: str, seed: int) -> int:
    return int.from_bytes(hashlib.blake2b(f"{seed}\0{image}".encode(), digest_size=8).digest(), "big")

"""Simulated human judgements: the quality of a caption for a scene, and raters who see it with noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from scripts.sample.chance import chance, normal
from scripts.sample.language import Caption, Mention
from scripts.sample.scenes import Group, Scene, holds

__all__ = ["Quality", "expert_ratings", "five_point", "prefers", "quality", "yes_votes"]


@dataclass(frozen=True)
class Quality:
    """The quality of a caption for a scene, all from 0 to 1.

    Attributes:
        correct: how much of what it says is so.
        thorough: how much of what is there it says.
    """

    correct: float
    thorough: float

    @property
    def overall(self) -> float:
        """One number: saying wrong things weighs more than leaving things out."""
        return 0.7 * self.correct + 0.3 * min(self.thorough, self.correct)


def _credit(mention: Mention, group: Group) -> float:
    """The fit of a noun phrase and a group of objects, 0 to 1."""
    if mention.general:
        return 0.45
    if mention.kind != group.kind:
        return 0.12 if mention.colour == group.colour else 0.0
    credit = 1.0
    if mention.colour is not None and mention.colour != group.colour:
        credit -= 0.42  # the mistake that people see first
    if mention.count and mention.count != group.count:
        credit -= 0.3
    elif not mention.count and group.count == 1:
        credit -= 0.2
    if mention.size is not None and mention.size != group.size and "medium" not in (mention.size, group.size):
        credit -= 0.12
    return max(credit, 0.1)


def quality(caption: Caption, scene: Scene) -> Quality:
    """The quality of a caption for a scene, from what the caption claims and what the scene holds."""
    groups = scene.plan.groups
    free = set(range(len(groups)))
    matched: list[int | None] = []
    credits_: list[float] = []
    for mention in caption.mentions:
        best = max(free, key=lambda at: (_credit(mention, groups[at]), -at), default=None)
        credit = _credit(mention, groups[best]) if best is not None else 0.0
        if best is not None and credit > 0.2:
            free.discard(best)
            matched.append(best)
        else:
            matched.append(None)
        credits_.append(credit)
    if not credits_:
        return Quality(0.2, 0.1)
    correct = sum(credits_) / len(credits_)
    # A made-up object hurts more than its share.
    correct *= 0.88 ** sum(credit < 0.2 for credit in credits_)
    if caption.relation is not None:
        first, relation, second = caption.relation
        a, b = matched[first], matched[second]
        if a is not None and b is not None and not holds(scene, a, relation, b):
            correct *= 0.78
    if caption.background is not None:
        correct = 0.9 * correct + 0.1 if caption.background == scene.plan.background else 0.78 * correct
    size = {"small": 0.8, "medium": 1.0, "large": 1.3}
    weights = [size[group.size] for group in groups]
    said = {at: c for at, c in zip(matched, credits_, strict=True) if at is not None}
    detail = sum((m.colour is not None) + 0.5 * (m.size is not None) for m in caption.mentions) / len(credits_)
    thorough = sum(w * said.get(at, 0.0) for at, w in enumerate(weights)) / sum(weights)
    thorough = min(thorough * (0.8 + 0.12 * detail) + (0.1 if caption.background else 0.0), 1.0)
    return Quality(min(correct, 1.0), thorough)


def _clip(value: float, low: int, high: int) -> int:
    return int(min(max(math.floor(value + 0.5), low), high))


def expert_ratings(rng: np.random.Generator, worth: Quality) -> tuple[int, int, int]:
    """Three ratings from 1 to 4: a view that the raters share, and each one's own strictness and slips."""
    shared = 1.0 + 3.15 * worth.overall**1.7 + 0.3 * normal(rng)
    ratings = [_clip(shared + bias + 0.28 * normal(rng), 1, 4) for bias in (-0.22, 0.0, 0.2)]
    return ratings[0], ratings[1], ratings[2]


def five_point(rng: np.random.Generator, worth: float) -> int:
    """One rating from 1 to 5 by a crowd worker, who now and then does not look."""
    if chance(rng, 0.05):
        return 1 + int(rng.random() * 5)
    return _clip(0.9 + 4.2 * max(worth, 0.0) ** 1.35 + 0.6 * normal(rng), 1, 5)


def yes_votes(rng: np.random.Generator, worth: Quality, raters: int) -> int:
    """Number of crowd workers who say that the caption describes the image."""
    probability = 1.0 / (1.0 + math.exp(-11.0 * (worth.overall - 0.68)))
    return sum(chance(rng, 0.02 + 0.94 * probability) for _ in range(raters))


def prefers(rng: np.random.Generator, first: float, second: float, sharpness: float = 7.0) -> int:
    """+1 if a person prefers the first of two captions, -1 if the second."""
    return 1 if chance(rng, 1.0 / (1.0 + math.exp(-sharpness * (first - second)))) else -1

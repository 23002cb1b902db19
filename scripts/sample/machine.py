"""Captions as captioners write them: few forms, common words, and mistakes of a known sort.

A captioner here is handed a changed plan and describes that, so a mistake is in what is said and not in how.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from scripts.sample.chance import below, chance, pick, shuffled
from scripts.sample.language import Caption, Speaker, be, places, relation_words, verb
from scripts.sample.scenes import COLOURS, COMMON, KINDS, Group, Plan, Scene, holds

__all__ = ["FAULTS", "fluent", "general", "inventory", "spoil"]

FAULTS = ("colour", "count", "missing", "extra", "relation", "kind", "background")
_OPPOSITE = {"left": "right", "right": "left", "above": "below", "below": "above", "near": "above"}


def spoil(rng: np.random.Generator, plan: Plan, fault: str) -> Plan:
    """A plan with one mistake of the named sort in it; ``relation`` is left to :func:`fluent`."""
    groups = shuffled(rng, plan.groups)
    first = groups[0]
    if fault == "colour":
        groups[0] = replace(first, colour=pick(rng, [c for c in COLOURS if c != first.colour]))
    elif fault == "count":
        groups[0] = replace(first, count=pick(rng, [n for n in (1, 2, 3, 4) if n != first.count]))
    elif fault == "missing" and len(groups) > 1:
        del groups[0]
    elif fault == "kind":
        groups[0] = replace(first, kind=pick(rng, [k for k in COMMON if k not in {g.kind for g in groups}]))
    elif fault == "extra":
        kind = pick(rng, [k for k in KINDS if k not in {g.kind for g in groups}])
        groups.insert(below(rng, 2), Group(kind, pick(rng, list(COLOURS)), "medium", 1))
    elif fault == "background":
        others = ("meadow", "beach", "snow", "night", "sea", "room")
        return replace(plan, background=pick(rng, [b for b in others if b != plan.background]), groups=tuple(groups))
    return replace(plan, groups=tuple(groups))


def _true_relation(rng: np.random.Generator, scene: Scene, first: Group, second: Group) -> str:
    groups = scene.plan.groups
    if first not in groups or second not in groups:
        return "near"
    a, b = groups.index(first), groups.index(second)
    true = [r for r in ("near", "left", "right", "above", "below") if holds(scene, a, r, b)]
    return pick(rng, true) if true else "near"


def fluent(rng: np.random.Generator, scene: Scene, faults: tuple[str, ...] = ()) -> Caption:
    """A neural captioner's sentence, in lower case with the full stop apart."""
    plan = scene.plan
    for fault in faults:
        plan = spoil(rng, plan, fault)
    say = Speaker(rng, 0.85, plainly=True)
    groups = list(plan.groups)
    relation: tuple[int, str, int] | None = None
    background: str | None = None
    form = pick(rng, ("near", "near", "acting", "list", "there"))
    if len(groups) > 1 and (form == "near" or "relation" in faults):
        word = _true_relation(rng, scene, groups[0], groups[1])
        word = _OPPOSITE[word] if "relation" in faults else word
        first = say.phrase(groups[0])
        middle = f"{verb(rng, groups[0], plan.background)} " if chance(rng, 0.6) else ""
        text = f"{first} {middle}{relation_words(rng, word)} {say.phrase(groups[1])}"
        relation = (0, word, 1)
    elif form == "list" and len(groups) > 1:
        parts = [say.phrase(group) for group in groups[:3]]
        text = f"{', '.join(parts[:-1])} and {parts[-1]}"
    elif form == "there":
        parts = [say.phrase(group) for group in groups[:2]]
        text = f"there {be(groups[0].count)} {' and '.join(parts)}"
    else:
        text = f"{say.phrase(groups[0])} {verb(rng, groups[0], plan.background)}"
        text = f"{text} with {say.phrase(groups[1])}" if len(groups) > 1 and chance(rng, 0.4) else text
        background = plan.background
    if background or "background" in faults or chance(rng, 0.35):
        background = plan.background
        text = f"{text} {places(rng, background)}"
    return Caption(f"{text} .".lower(), tuple(say.mentions), relation, background)


def inventory(rng: np.random.Generator, scene: Scene, faults: tuple[str, ...] = ()) -> Caption:
    """A template-based captioner's list of what it detected, in whole sentences."""
    plan = scene.plan
    for fault in faults:
        plan = spoil(rng, plan, fault)
    say = Speaker(rng, 0.4, plainly=True)
    parts = [say.phrase(group) for group in plan.groups]
    listed = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    relation: tuple[int, str, int] | None = None
    text = f"{pick(rng, ('The picture shows', 'The scene shows', 'This is a picture of'))} {listed}."
    if len(plan.groups) > 1 and chance(rng, 0.6):
        first, second = plan.groups[0], plan.groups[1]
        word = _true_relation(rng, scene, first, second)
        word = _OPPOSITE[word] if "relation" in faults else word
        nouns = [parts[i].split(" ")[-1] for i in (0, 1)]
        text += f" The {nouns[0]} {be(first.count)} {relation_words(rng, word)} the {nouns[1]}."
        relation = (0, word, 1)
    return Caption(text, tuple(say.mentions), relation, None)


def general(rng: np.random.Generator, scene: Scene) -> Caption:
    """A captioner's way out: true, and next to nothing."""
    say = Speaker(rng, 0.0, plainly=True)
    group = pick(rng, scene.plan.groups)
    phrase = say.phrase(group, general=True)
    background = scene.plan.background if chance(rng, 0.6) else None
    where = f" {places(rng, background)}" if background else ""
    text = f"{pick(rng, ('a picture of ', 'there is ', 'a close up of '))}{phrase}{where} ."
    return Caption(text, tuple(say.mentions), None, background)

"""Scenes: what is in a picture and where.

A *plan* says what should be seen (a background, groups of like objects, how the first two groups lie to each
other); a *scene* is a plan with a box for every object, in pixels of a 160 x 160 picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from scripts.sample.chance import below, chance, pick, shuffled, stream, weighted

__all__ = [
    "BACKGROUNDS",
    "COLOURS",
    "COMMON",
    "KINDS",
    "RARE",
    "SIDE",
    "Box",
    "Group",
    "Plan",
    "Scene",
    "Thing",
    "holds",
    "lay_out",
    "new_plan",
    "sibling",
]

SIDE = 160
Box = tuple[int, int, int, int]


@dataclass(frozen=True)
class Kind:
    """A class of objects: where it may stand, and its width and height in parts of its size."""

    place: str
    width: float = 1.0
    height: float = 1.0


KINDS: dict[str, Kind] = {
    "circle": Kind("any"),
    "square": Kind("any", 0.94, 0.94),
    "triangle": Kind("any", 1.1, 1.0),
    "star": Kind("any", 1.1, 1.1),
    "heart": Kind("any", 1.05, 1.0),
    "diamond": Kind("any", 0.9, 1.15),
    "ring": Kind("any"),
    "house": Kind("ground", 1.1, 1.1),
    "tree": Kind("ground", 0.9, 1.25),
    "car": Kind("ground", 1.35, 0.75),
    "flower": Kind("ground", 0.8, 1.3),
    "boat": Kind("water", 1.2, 1.15),
    "fish": Kind("water", 1.3, 0.75),
    "balloon": Kind("air", 0.8, 1.35),
    "kite": Kind("air", 0.8, 1.4),
    "crescent": Kind("air", 0.85, 1.1),
    "cross": Kind("any"),
    "hexagon": Kind("any", 1.1, 0.96),
    "arrow": Kind("any", 1.35, 0.85),
    "mushroom": Kind("ground", 1.0, 1.0),
    "umbrella": Kind("ground", 1.2, 1.2),
}
RARE = ("crescent", "cross", "hexagon", "arrow", "mushroom", "umbrella")  # what out-of-domain pictures show
COMMON = tuple(kind for kind in KINDS if kind not in RARE)

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (214, 49, 45),
    "orange": (240, 138, 36),
    "yellow": (246, 206, 52),
    "green": (58, 156, 70),
    "blue": (45, 100, 204),
    "purple": (128, 70, 172),
    "pink": (241, 132, 178),
    "brown": (130, 86, 54),
    "white": (249, 249, 246),
    "black": (40, 40, 44),
    "grey": (141, 145, 151),
}
_COLOUR_WEIGHTS = {
    "red": 5.0,
    "blue": 5.0,
    "green": 4.0,
    "yellow": 4.0,
    "orange": 3.0,
    "purple": 2.5,
    "pink": 2.0,
    "white": 2.0,
    "black": 2.0,
    "brown": 1.0,
    "grey": 1.0,
}


@dataclass(frozen=True)
class Background:
    """The background: its places, the row of its horizon (0: none), colours that would not show."""

    places: frozenset[str]
    horizon: int
    avoid: frozenset[str]
    weight: float


def _background(places: str, horizon: int, avoid: str, weight: float) -> Background:
    return Background(frozenset(places.split()), horizon, frozenset(avoid.split()), weight)


BACKGROUNDS: dict[str, Background] = {
    "meadow": _background("any ground air", 88, "green blue", 4.0),
    "beach": _background("any ground air", 92, "yellow", 2.0),
    "snow": _background("any ground air", 90, "white grey", 2.0),
    "night": _background("any ground air", 104, "black blue purple grey", 1.5),
    "sea": _background("any water air", 74, "blue", 2.5),
    "room": _background("any", 96, "brown orange", 2.0),
    "plain white": _background("any ground air water", 0, "white", 2.0),
    "plain grey": _background("any ground air water", 0, "grey white", 1.5),
    "plain blue": _background("any ground air water", 0, "blue", 1.5),
    "plain pink": _background("any ground air water", 0, "pink red", 1.0),
    "plain yellow": _background("any ground air water", 0, "yellow orange white", 1.0),
    "plain black": _background("any ground air water", 0, "black brown purple blue", 1.0),
}
_OPPOSITE = {"left": "right", "right": "left", "above": "below", "below": "above"}
_SIZES = {"small": (24, 27), "medium": (38, 44), "large": (60, 68)}


@dataclass(frozen=True)
class Group:
    """Objects of one class, colour and size."""

    kind: str
    colour: str
    size: str
    count: int


@dataclass(frozen=True)
class Plan:
    """The plan of a picture; ``relation`` is the position of the first group relative to the second."""

    background: str
    groups: tuple[Group, ...]
    relation: str


@dataclass(frozen=True)
class Thing:
    """One object in a picture; ``box`` is (x1, y1, x2, y2) in pixels, ``group`` the number of its group."""

    kind: str
    colour: str
    size: str
    box: Box
    group: int


@dataclass(frozen=True)
class Scene:
    """A laid-out plan."""

    name: str
    plan: Plan
    things: tuple[Thing, ...]

    def centre(self, group: int) -> tuple[float, float]:
        """The mean centre of a group's objects."""
        boxes = [thing.box for thing in self.things if thing.group == group]
        return sum(b[0] + b[2] for b in boxes) / 2 / len(boxes), sum(b[1] + b[3] for b in boxes) / 2 / len(boxes)


def holds(scene: Scene, first: int, relation: str, second: int) -> bool:
    """True if the first group lies left, right, above, below or near the second."""
    (x1, y1), (x2, y2) = scene.centre(first), scene.centre(second)
    if relation == "near":
        return abs(x1 - x2) < 100 and abs(y1 - y2) < 80
    return {"left": x2 - x1, "right": x1 - x2, "above": y2 - y1, "below": y1 - y2}[relation] > 8


def _new_group(rng: np.random.Generator, background: str, kinds: Sequence[str], taken: Sequence[Group]) -> Group:
    ground = BACKGROUNDS[background]
    fitting = [kind for kind in kinds if KINDS[kind].place in ground.places]
    # Pictured things are nicer to look at than bare shapes where the background has room for them.
    weights = {kind: 1.0 if KINDS[kind].place == "any" else 2.0 for kind in fitting}
    for group in taken:
        weights.pop(group.kind, None) if len(weights) > 1 else None
    kind = weighted(rng, weights)
    colours = {colour: w for colour, w in _COLOUR_WEIGHTS.items() if colour not in ground.avoid}
    if kind == "tree":
        colours = {"green": 6.0, "orange": 1.0, "pink": 0.7}
    colour = weighted(rng, colours)
    count = weighted(rng, {1: 6.0, 2: 2.0, 3: 1.3, 4: 0.5})
    size = weighted(rng, {"small": 1.0, "medium": 1.5, "large": 1.0 if count == 1 else 0.0})
    return Group(kind, colour, "small" if count > 2 else size, count)


def _relation(rng: np.random.Generator, background: str, groups: Sequence[Group]) -> str:
    if len(groups) < 2:
        return "left"
    sides = [pick(rng, ("left", "right"))]
    if BACKGROUNDS[background].horizon == 0 or all(KINDS[g.kind].place == "any" for g in groups[:2]):
        sides.append(pick(rng, ("above", "below")))
    elif KINDS[groups[0].kind].place == "air" and KINDS[groups[1].kind].place != "air":
        sides.append("above")
    elif KINDS[groups[1].kind].place == "air" and KINDS[groups[0].kind].place != "air":
        sides.append("below")
    return pick(rng, sides)


def new_plan(
    rng: np.random.Generator, kinds: Sequence[str] = COMMON, rare: float = 0.05, rare_kinds: Sequence[str] = RARE
) -> Plan:
    """A plan of one to four groups; with probability ``rare`` one group is of a rare class."""
    background = weighted(rng, {name: ground.weight for name, ground in BACKGROUNDS.items()})
    groups: list[Group] = []
    for _ in range(weighted(rng, {1: 0.7, 2: 4.0, 3: 3.0, 4: 0.8})):
        if sum(group.count for group in groups) < 6:
            pool = rare_kinds if not groups and chance(rng, rare) else kinds
            if not any(KINDS[kind].place in BACKGROUNDS[background].places for kind in pool):
                pool = kinds
            groups.append(_new_group(rng, background, pool, groups))
    return Plan(background, tuple(groups), _relation(rng, background, groups))


def sibling(rng: np.random.Generator, plan: Plan, change: str) -> Plan:
    """A plan that differs from another in one respect.

    Args:
        rng: source of the choices.
        plan: the other plan.
        change: ``colour``, ``count``, ``kind``, ``missing``, ``extra``, ``relation`` or ``background``.
    """
    groups = list(plan.groups)
    at = below(rng, len(groups))
    ground = BACKGROUNDS[plan.background]
    if change == "colour":
        others = [c for c in _COLOUR_WEIGHTS if c != groups[at].colour and c not in ground.avoid]
        groups[at] = replace(groups[at], colour=pick(rng, others))
    elif change == "count":
        count = groups[at].count
        new = 2 + below(rng, 2) if count == 1 else count - 1 if chance(rng, 0.6) or count > 3 else count + 1
        groups[at] = replace(groups[at], count=new, size="small" if new > 2 else groups[at].size)
        if new == 2 and groups[at].size == "large":
            groups[at] = replace(groups[at], size="medium")
    elif change == "kind":
        new_group = _new_group(rng, plan.background, COMMON, groups)
        groups[at] = replace(groups[at], kind=new_group.kind)
    elif change == "missing" and len(groups) > 1:
        del groups[at]
    elif change == "relation" and len(groups) > 1 and KINDS[groups[0].kind].place == KINDS[groups[1].kind].place:
        return replace(plan, relation=_OPPOSITE[plan.relation])
    elif change == "background":
        fitting = [
            name
            for name, other in BACKGROUNDS.items()
            if name != plan.background
            and all(KINDS[g.kind].place in other.places for g in groups)
            and not any(g.colour in other.avoid for g in groups)
        ]
        if fitting:
            background = pick(rng, fitting)
            return Plan(background, plan.groups, _relation(rng, background, groups))
    else:
        groups.append(_new_group(rng, plan.background, COMMON, groups))
    return Plan(plan.background, tuple(groups), _relation(rng, plan.background, groups))


def _rows(kind: str, ground: Background, height: int) -> tuple[int, int]:
    """Lowest and highest row that the bottom of an object may have."""
    place = KINDS[kind].place
    top, bottom = height + 5, SIDE - 5
    if ground.horizon and place == "air":
        bottom = max(ground.horizon - 2, top)
    elif ground.horizon and place == "ground":
        top = max(ground.horizon + 8, top)
    elif ground.horizon and place == "water":
        top = max(ground.horizon + (8 if kind == "boat" else height + 4), top)
        bottom = max(ground.horizon + 44 if kind == "boat" else bottom, top)
    return top, bottom


def _apart(box: Box, others: Sequence[Box]) -> bool:
    gap = 4
    return all(box[0] > o[2] + gap or box[2] < o[0] - gap or box[1] > o[3] + gap or box[3] < o[1] - gap for o in others)


def _try(rng: np.random.Generator, name: str, plan: Plan) -> Scene | None:
    ground = BACKGROUNDS[plan.background]
    placed: dict[int, list[Thing]] = {}
    boxes: list[Box] = []
    # Large objects first: what comes last has the least room.
    for at in sorted(range(len(plan.groups)), key=lambda i: (-_SIZES[plan.groups[i].size][0], i)):
        group = plan.groups[at]
        side = {0: plan.relation, 1: _OPPOSITE[plan.relation]}.get(at, "") if len(plan.groups) > 1 else ""
        for _ in range(group.count):
            low, high = _SIZES[group.size]
            extent = low + below(rng, high - low + 1)
            width, height = int(extent * KINDS[group.kind].width), int(extent * KINDS[group.kind].height)
            top, bottom = _rows(group.kind, ground, height)
            for _attempt in range(60):
                left, right = 5, SIDE - 5 - width
                x = left + below(rng, max(right - left, 1))
                y = top + below(rng, max(bottom - top, 1))
                cx, cy = x + width / 2, y - height / 2
                fits = {"left": cx < 78, "right": cx > 82, "above": cy < 78, "below": cy > 82}.get(side, True)
                box = (x, y - height, x + width, y)
                if fits and _apart(box, boxes):
                    boxes.append(box)
                    placed.setdefault(at, []).append(Thing(group.kind, group.colour, group.size, box, at))
                    break
            else:
                return None
    return Scene(name, plan, tuple(thing for at in sorted(placed) for thing in placed[at]))


def lay_out(name: str, plan: Plan) -> Scene:
    """Place a plan's objects without overlap.

    A plan that finds no room is thinned: smaller objects first, then fewer groups.
    """
    rng = stream("layout", name)
    while True:
        for _ in range(40):
            scene = _try(rng, name, plan)
            if scene is not None and (len(plan.groups) < 2 or holds(scene, 0, plan.relation, 1)):
                return scene
        smaller = {"large": "medium", "medium": "small", "small": "small"}
        groups = tuple(replace(group, size=smaller[group.size]) for group in plan.groups)
        if groups == plan.groups:
            groups = groups[:-1] if len(groups) > 1 else (replace(groups[0], count=1),)
            plan = replace(plan, relation=_relation(rng, plan.background, groups))
        plan = replace(plan, groups=groups)


def order_of_mention(rng: np.random.Generator, scene: Scene) -> list[int]:
    """Groups in the order in which a person would speak of them: mostly the largest first."""
    area: dict[int, int] = {}
    for thing in scene.things:
        x1, y1, x2, y2 = thing.box
        area[thing.group] = area.get(thing.group, 0) + (x2 - x1) * (y2 - y1)
    if chance(rng, 0.3):
        return shuffled(rng, list(area))
    return sorted(area, key=lambda group: (-area[group], group))

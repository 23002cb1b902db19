"""Captions as people write them: many forms, much or little detail, now and then careless."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from scripts.sample.chance import chance, pick, weighted
from scripts.sample.language import Caption, Speaker, article, be, places, relation_words, verb
from scripts.sample.scenes import BACKGROUNDS, Group, Scene, holds, order_of_mention

__all__ = ["describe", "describe_many", "punctuate"]

_SKY = {"meadow": "a sunny meadow", "beach": "a sandy beach", "snow": "a snowy landscape", "night": "a dark night sky",
        "sea": "a calm blue sea", "room": "an empty room"}  # fmt: skip


_PICTURES = ("a picture of", "an image of", "a drawing of", "a child's drawing of", "an illustration of",
             "a cartoon of", "clip art of", "a simple picture of")  # fmt: skip


class _Teller:
    """Tells of one scene in one of the forms below; remembers what the text claims."""

    def __init__(self, rng: np.random.Generator, scene: Scene) -> None:
        self.rng, self.scene = rng, scene
        self.detail = rng.random()
        self.say = Speaker(rng, self.detail)
        self.order = order_of_mention(rng, scene)
        self.groups = scene.plan.groups
        self.relation: tuple[int, str, int] | None = None
        self.background: str | None = None

    def group(self, place: int) -> Group:
        return self.groups[self.order[place]]

    def where(self, likely: float = 1.0) -> str:
        """A phrase for the background, or nothing."""
        if not chance(self.rng, likely):
            return ""
        self.background = self.scene.plan.background
        said = self.order[: max(len(self.say.mentions), 1)]
        horizon = BACKGROUNDS[self.background].horizon
        aloft = horizon > 0 and all(thing.box[3] < horizon + 6 for thing in self.scene.things if thing.group in said)
        return " " + places(self.rng, self.background, aloft)

    def relate(self) -> str:
        """A preposition that is true of the first two groups to be mentioned."""
        a, b = self.order[0], self.order[1]
        true = [r for r in ("left", "right", "above", "below") if holds(self.scene, a, r, b)]
        (xa, ya), (xb, yb) = self.scene.centre(a), self.scene.centre(b)
        sideways = abs(xa - xb) >= abs(ya - yb)
        fit = [r for r in true if (r in ("left", "right")) == sideways] or true or ["near"]
        relation = "near" if sideways and chance(self.rng, 0.5) else fit[0]
        self.relation = (0, relation, 1)
        return relation_words(self.rng, relation)

    def many(self, most: int, bare: bool = False) -> list[str]:
        return [self.say.phrase(self.groups[at], bare=bare) for at in self.order[:most]]

    def listed(self, parts: list[str]) -> str:
        if len(parts) == 1:
            return parts[0]
        comma = "," if len(parts) > 2 and chance(self.rng, 0.3) else ""
        return f"{', '.join(parts[:-1])}{comma} and {parts[-1]}"

    def does(self, place: int, still: bool = False) -> str:
        return verb(self.rng, self.group(place), self.scene.plan.background, still)

    # The forms. Those that speak of two groups are only used where there are two.

    def simple(self) -> str:
        return f"{self.listed(self.many(2))}{self.where(0.75)}"

    def near(self) -> str:
        first = self.say.phrase(self.group(0))
        return f"{first} {self.relate()} {self.say.phrase(self.group(1))}{self.where(0.35)}"

    def acting(self) -> str:
        return f"{self.say.phrase(self.group(0))} {self.does(0)}{self.where(0.9) or ' here'}"

    def acting_near(self) -> str:
        first = f"{self.say.phrase(self.group(0))} {self.does(0)}"
        return f"{first} {self.relate()} {self.say.phrase(self.group(1))}{self.where(0.3)}"

    def there_is(self) -> str:
        count = self.group(0).count
        start = "there's" if count == 1 and chance(self.rng, 0.3) else f"there {be(count)}"
        return f"{start} {self.listed(self.many(3))}{self.where(0.6)}"

    def there_is_near(self) -> str:
        start = f"there {be(self.group(0).count)} {self.say.phrase(self.group(0))}"
        return f"{start} {self.relate()} {self.say.phrase(self.group(1))}{self.where(0.2)}"

    def all_of_it(self) -> str:
        return f"{self.listed(self.many(4))}{self.where(0.7)}"

    def picture_of(self) -> str:
        what = pick(self.rng, _PICTURES)
        return f"{what} {self.listed(self.many(3))}{self.where(0.4)}"

    def background_first(self) -> str:
        background = self.background = self.scene.plan.background
        if background.startswith("plain"):
            return f"{places(self.rng, background)} {be(self.group(0).count)} {self.listed(self.many(3))}"
        if chance(self.rng, 0.5):
            return f"{_SKY[background]} with {self.listed(self.many(3))}"
        return f"{places(self.rng, background)}, {self.listed(self.many(2))} {self.does_all(2)}"

    def does_all(self, most: int) -> str:
        together = sum(self.groups[at].count for at in self.order[:most])
        words = ("stands alone", "can be seen", "is visible") if together == 1 else ("can be seen", "are visible")
        return pick(self.rng, words)

    def telegraphic(self) -> str:
        return (", " if chance(self.rng, 0.6) else " and ").join(self.many(3, bare=True))

    def telegraphic_near(self) -> str:
        first = self.say.phrase(self.group(0), bare=True)
        return f"{first} {self.relate()} {self.say.phrase(self.group(1), bare=True)}"

    def with_at_its_side(self) -> str:
        first, second = self.say.phrase(self.group(0)), self.say.phrase(self.group(1))
        a, b = self.order[0], self.order[1]
        side = "left" if holds(self.scene, b, "left", a) else "right" if holds(self.scene, b, "right", a) else ""
        if not side or self.group(0).count > 1:
            return f"{first} with {second}{self.where(0.6)}"
        self.relation = (1, side, 0)
        return f"{first} with {second} {pick(self.rng, ('to its', 'on its', 'on the'))} {side}{self.where(0.3)}"

    def two_sentences(self) -> str:
        alone = " on its own" if self.group(0).count == 1 else " close together"
        first = f"{self.say.phrase(self.group(0))} {self.does(0, still=True)}{self.where(0.8) or alone}"
        second = self.say.phrase(self.group(1))
        tail = pick(self.rng, ("", " nearby", " in the picture"))
        return f"{first}. there {be(self.group(1).count)} also {second}{tail}"

    def bigger(self) -> str:
        def area(at: int) -> int:
            boxes = [thing.box for thing in self.scene.things if thing.group == at]
            return max((b[2] - b[0]) * (b[3] - b[1]) for b in boxes)

        if area(self.order[0]) <= 1.5 * area(self.order[1]):
            return self.simple()
        first = self.say.phrase(self.group(0), definite=True)
        second = self.say.phrase(self.group(1), definite=True)
        return f"{first} {be(self.group(0).count)} bigger than {second}"

    def general(self) -> str:
        total = sum(group.count for group in self.groups)
        if total == 1:
            word = pick(self.rng, ("colorful", "single", "simple"))
            return f"{article(word)} {self.say.phrase(self.group(0), bare=True, general=True)}{self.where()}"
        word = pick(self.rng, ("colorful ", "different ", "simple ", ""))
        number = pick(self.rng, ("some", "several", "a few", "a number of"))
        for at in self.order:
            self.say.phrase(self.groups[at], general=True)
        return f"{number} {word}{pick(self.rng, ('objects', 'things', 'shapes'))}{self.where(0.8)}"

    def counted(self) -> str:
        total = sum(group.count for group in self.groups)
        if len(self.groups) < 2 or total > 6:
            return self.all_of_it()
        number = ("two", "three", "four", "five", "six")[total - 2]
        return f"{number} {pick(self.rng, ('objects', 'things', 'items'))}: {self.listed(self.many(4))}"


_Form = Callable[[_Teller], str]
_ONE: dict[_Form, float] = {
    _Teller.simple: 2.0,
    _Teller.acting: 4.0,
    _Teller.there_is: 2.0,
    _Teller.picture_of: 1.5,
    _Teller.background_first: 1.5,
    _Teller.telegraphic: 0.7,
    _Teller.general: 0.25,
}
_TWO: dict[_Form, float] = {
    **_ONE,
    _Teller.near: 5.0,
    _Teller.acting_near: 4.5,
    _Teller.there_is_near: 1.5,
    _Teller.all_of_it: 3.0,
    _Teller.telegraphic_near: 0.8,
    _Teller.with_at_its_side: 2.0,
    _Teller.two_sentences: 1.0,
    _Teller.bigger: 0.8,
    _Teller.counted: 0.5,
}
_TYPOS = {"triangle": "trangle", "purple": "purpel", "yellow": "yelow", "balloon": "baloon", "umbrella": "umbrela",
          "diamond": "dimond", "square": "sqaure", "beside": "besides", "flower": "flour"}  # fmt: skip
_CARELESS: dict[str, Callable[[str], str]] = {
    "no article": lambda text: re.sub(r"^(?:a|an|the) ", "", text),
    "an": lambda text: re.sub(r"\ban (?=[aeiou])", "a ", text),
    "is": lambda text: text.replace("there are", "there is").replace("There are", "There is"),
    "to": lambda text: text.replace("to the left", "on left").replace("to the right", "on right"),
    "verb": lambda text: re.sub(r"\b(?:is|are) (?=\w+ing\b)", "", text, count=1),
}


def punctuate(rng: np.random.Generator, text: str, style: str) -> str:
    """Capitals and full stops as the annotators of a data set set them.

    Args:
        rng: source of the choices.
        text: a caption in lower case without a final full stop.
        style: ``flickr8k`` (tokens apart), ``flickr30k``, ``coco``, ``pascal``, ``nocaps``.
    """
    low, full = {"flickr8k": (0.05, 0.9), "flickr30k": (0.03, 0.92), "coco": (0.15, 0.75),
                 "pascal": (0.2, 0.65), "nocaps": (0.02, 0.9)}[style]  # fmt: skip
    if not chance(rng, low):
        text = text[0].upper() + text[1:]
        text = re.sub(r"\. (\w)", lambda match: f". {match[1].upper()}", text)
    end = "." if chance(rng, full) else ""
    if style == "flickr8k":
        text = text.replace(",", " ,").replace(":", " :").replace(". ", " . ")
        text = re.sub(r"'s\b", " 's", text) if chance(rng, 0.8) else text
        return f"{text} {end}".rstrip() if chance(rng, 0.9) else text + end
    if style == "coco" and chance(rng, 0.12):
        end += " "
    return text + end


def describe(rng: np.random.Generator, scene: Scene, style: str, form: _Form | None = None) -> Caption:
    """One caption of a scene, as one person might write it."""
    teller = _Teller(rng, scene)
    forms = _TWO if len(scene.plan.groups) > 1 else _ONE
    text = (form or weighted(rng, forms))(teller)
    if chance(rng, 0.09):
        text = _CARELESS[pick(rng, list(_CARELESS))](text)
    if chance(rng, 0.03):
        for right, wrong in _TYPOS.items():
            text = re.sub(rf"\b{right}\b", wrong, text, count=1)
    return Caption(punctuate(rng, text, style), tuple(teller.say.mentions), teller.relation, teller.background)


def describe_many(rng: np.random.Generator, scene: Scene, style: str, count: int) -> list[Caption]:
    """Captions by some people: no two the same, and the first few in different forms."""
    forms = dict(_TWO if len(scene.plan.groups) > 1 else _ONE)
    seen: dict[str, Caption] = {}
    unused = dict(forms)
    for _ in range(400):
        if not unused:
            unused = dict(forms)
        form = weighted(rng, unused)
        caption = describe(rng, scene, style, form)
        key = re.sub(r"[^a-z0-9]", "", caption.text.lower())
        if key not in seen:
            seen[key] = caption
            if count <= 10:
                unused.pop(form, None)
        if len(seen) == count:
            break
    else:
        raise AssertionError(f"{scene.name}: only {len(seen)} different captions of {count}")
    return list(seen.values())

"""Words and phrases, and what a phrase claims about a picture."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scripts.sample.chance import chance, pick, weighted
from scripts.sample.scenes import Group

__all__ = [
    "Caption",
    "Mention",
    "Speaker",
    "article",
    "be",
    "commonest_noun",
    "places",
    "plural",
    "relation_words",
    "verb",
]

_NOUNS: dict[str, dict[str, float]] = {
    "circle": {"circle": 5, "ball": 4, "disc": 1, "round shape": 0.5},
    "square": {"square": 6, "box": 2, "block": 1, "cube": 0.5},
    "triangle": {"triangle": 8, "pyramid": 0.7, "triangular shape": 0.4},
    "star": {"star": 9, "five-pointed star": 0.8},
    "heart": {"heart": 9, "love heart": 0.5, "heart shape": 0.8},
    "diamond": {"diamond": 6, "rhombus": 1, "diamond shape": 1},
    "ring": {"ring": 6, "hoop": 1.5, "donut": 0.6},
    "house": {"house": 6, "home": 1, "cottage": 1.2, "building": 0.8, "hut": 0.5},
    "tree": {"tree": 9, "leafy tree": 0.6, "bush": 0.3},
    "car": {"car": 8, "vehicle": 1, "automobile": 0.4, "toy car": 0.6},
    "flower": {"flower": 8, "daisy": 0.8, "blossom": 0.5, "plant": 0.4},
    "boat": {"boat": 5, "sailboat": 3, "ship": 1.2, "sailing boat": 0.6},
    "fish": {"fish": 9},
    "balloon": {"balloon": 9, "party balloon": 0.4},
    "kite": {"kite": 9},
    "crescent": {"crescent": 2, "moon": 4, "half moon": 1, "crescent moon": 3},
    "cross": {"cross": 5, "plus sign": 3, "plus": 1},
    "hexagon": {"hexagon": 6, "six-sided shape": 1, "polygon": 0.7},
    "arrow": {"arrow": 9},
    "mushroom": {"mushroom": 7, "toadstool": 2},
    "umbrella": {"umbrella": 8, "parasol": 1.5},
}
_PLURALS = {"box": "boxes", "fish": "fish", "daisy": "daisies", "rhombus": "rhombuses", "bush": "bushes",
            "cross": "crosses", "plus": "pluses"}  # fmt: skip
_GENERAL = {"circle": "shape", "square": "shape", "triangle": "shape", "star": "shape", "heart": "shape",
            "diamond": "shape", "ring": "shape", "cross": "shape", "hexagon": "shape", "car": "vehicle",
            "flower": "plant", "tree": "plant"}  # fmt: skip
_COLOUR_WORDS: dict[str, dict[str, float]] = {
    "red": {"red": 9, "bright red": 1},
    "blue": {"blue": 9, "bright blue": 0.5, "dark blue": 0.5},
    "purple": {"purple": 8, "violet": 1.5},
    "grey": {"grey": 4, "gray": 5},
    "yellow": {"yellow": 9, "bright yellow": 0.6, "golden": 0.4},
    "green": {"green": 9, "dark green": 0.4},
}
_SIZE_WORDS = {"small": {"small": 6.0, "little": 3.0, "tiny": 1.2}, "large": {"big": 5.0, "large": 5.0, "huge": 0.8}}
_NUMBERS: dict[int, dict[str, float]] = {
    2: {"two": 9, "a pair of": 1, "a couple of": 0.8, "2": 0.6},
    3: {"three": 9, "3": 0.8, "a trio of": 0.4, "some": 0.7, "several": 0.8, "a few": 0.8},
    4: {"four": 8, "4": 0.8, "some": 0.8, "several": 1.4, "a bunch of": 0.5, "a group of": 0.8},
}
_VAGUE = {"some", "several", "a few", "a bunch of", "a group of"}
_RELATIONS: dict[str, dict[str, float]] = {
    "left": {"to the left of": 5, "on the left of": 2, "left of": 1.5, "on the left side of": 1},
    "right": {"to the right of": 5, "on the right of": 2, "right of": 1.5, "on the right side of": 1},
    "above": {"above": 6, "over": 3, "on top of": 0.8},
    "below": {"below": 5, "under": 4, "underneath": 1.5, "beneath": 1},
    "near": {"next to": 6, "beside": 3, "near": 3, "by": 1.5, "close to": 1, "alongside": 0.5},
}
_VERBS: dict[str, dict[tuple[str, str], float]] = {
    "car": {("is parked", "are parked"): 5, ("drives", "drive"): 1, ("is driving", "are driving"): 2},
    "boat": {("sails", "sail"): 3, ("is sailing", "are sailing"): 3, ("is floating", "are floating"): 2},
    "fish": {("swims", "swim"): 3, ("is swimming", "are swimming"): 4},
    "balloon": {("floats", "float"): 3, ("is floating", "are floating"): 4, ("hovers", "hover"): 0.6},
    "kite": {("flies", "fly"): 3, ("is flying", "are flying"): 4},
    "tree": {("stands", "stand"): 4, ("is standing", "are standing"): 2, ("grows", "grow"): 2},
    "house": {("stands", "stand"): 4, ("sits", "sit"): 2},
    "flower": {("grows", "grow"): 3, ("is growing", "are growing"): 2, ("blooms", "bloom"): 1},
    "mushroom": {("grows", "grow"): 3, ("stands", "stand"): 2},
    "crescent": {("shines", "shine"): 3, ("hangs", "hang"): 1},
}
_ANY_VERB = {("is", "are"): 5.0, ("sits", "sit"): 2.0, ("is sitting", "are sitting"): 1.0, ("lies", "lie"): 1.0,
             ("can be seen", "can be seen"): 0.6, ("is placed", "are placed"): 1.0}  # fmt: skip
_PLACES: dict[str, tuple[str, ...]] = {
    "meadow": ("on the grass", "in a meadow", "on a grassy field", "in a green field", "on green grass",
               "on a lawn under a blue sky", "in a park", "outside on a sunny day"),
    "beach": ("on the sand", "on a beach", "at the beach", "on a sandy beach", "on the beach under a blue sky"),
    "snow": ("in the snow", "on snowy ground", "in a snowy field", "on a white winter's day", "while it's snowing"),
    "night": ("at night", "in the dark", "under a starry sky", "under the stars", "on a dark night"),
    "sea": ("on the water", "at sea", "on the ocean", "on a blue lake", "on a calm sea", "in the sea"),
    "room": ("on a wooden floor", "in a room", "in an empty room", "against a wall", "indoors"),
}  # fmt: skip
_ALOFT: dict[str, tuple[str, ...]] = {
    "meadow": ("in the sky", "in a blue sky", "over a meadow", "above the grass", "above a green field"),
    "beach": ("in the sky", "over a beach", "above the sand", "in a blue sky"),
    "snow": ("above the snow", "in a snowy sky", "over a snowy field"),
    "night": ("in the night sky", "in a starry sky", "at night", "in the dark sky"),
    "sea": ("over the sea", "above the water", "in the sky", "above the ocean"),
    "room": ("on a wall", "in a room", "against a beige wall"),
}
_PLAIN: dict[str, tuple[str, ...]] = {
    "white": ("white",),
    "grey": ("grey", "gray"),
    "blue": ("light blue", "light-blue", "blue", "pale blue"),
    "pink": ("pink", "light pink", "pale-pink"),
    "yellow": ("yellow", "pale yellow", "light-yellow"),
    "black": ("black", "dark"),
}


@dataclass(frozen=True)
class Mention:
    """The claims of a noun phrase: a class (or ``shape``, ``object``), and colour, size and count where it says them.

    ``count`` is 0 for "several" and the like; ``general`` is True where the noun is less than the class.
    """

    kind: str
    colour: str | None
    size: str | None
    count: int
    general: bool = False


@dataclass(frozen=True)
class Caption:
    """A caption and all that it claims. ``relation`` is (first mention, relation, second mention)."""

    text: str
    mentions: tuple[Mention, ...]
    relation: tuple[int, str, int] | None = None
    background: str | None = None


def article(phrase: str) -> str:
    """``a`` or ``an`` before a phrase."""
    return f"an {phrase}" if phrase[0] in "aeiou" else f"a {phrase}"


def be(count: int) -> str:
    """``is`` or ``are``."""
    return "is" if count == 1 else "are"


def commonest_noun(kind: str) -> str:
    """The word that most people use for a class."""
    return max(_NOUNS[kind], key=lambda noun: _NOUNS[kind][noun])


def plural(noun: str) -> str:
    """Many of a noun: its last word changes."""
    *head, last = noun.split(" ")
    return " ".join([*head, _PLURALS.get(last, last + "s")])


def relation_words(rng: np.random.Generator, relation: str) -> str:
    """A preposition for a relation."""
    return weighted(rng, _RELATIONS[relation])


def places(rng: np.random.Generator, background: str, aloft: bool = False) -> str:
    """A phrase for where everything is; ``aloft`` if it is all above the horizon."""
    if not background.startswith("plain"):
        return pick(rng, (_ALOFT if aloft else _PLACES)[background])
    colour = pick(rng, _PLAIN[background.split()[1]])
    word = pick(rng, ("background", "background", "background", "backdrop", "surface"))
    preposition = "on" if word == "surface" or chance(rng, 0.65) else "against"
    return f"{preposition} {article(colour)} {word}"


def verb(rng: np.random.Generator, group: Group, background: str, still: bool = False) -> str:
    """A verb for what a group does, agreeing with its number; ``still`` for one that fits anything."""
    verbs = {} if still or background in ("room",) else _VERBS.get(group.kind, {})
    if background.startswith("plain") and chance(rng, 0.5):
        verbs = {}
    forms = weighted(rng, verbs or _ANY_VERB)
    return forms[0] if group.count == 1 else forms[1]


class Speaker:
    """Says noun phrases, with one person's habits.

    Args:
        rng: source of all choices.
        detail: how much is said, 0 to 1: colours, sizes, exact numbers.
        plainly: True for the commonest word only, as a captioner says it.
    """

    def __init__(self, rng: np.random.Generator, detail: float, plainly: bool = False) -> None:
        self.rng, self.detail, self.plainly = rng, detail, plainly
        self.mentions: list[Mention] = []

    def _word(self, words: dict[str, float]) -> str:
        return max(words, key=lambda word: words[word]) if self.plainly else weighted(self.rng, words)

    def phrase(self, group: Group, definite: bool = False, bare: bool = False, general: bool = False) -> str:
        """A noun phrase for a group; what it claims is added to ``mentions``."""
        rng = self.rng
        noun = _GENERAL.get(group.kind, "object") if general else self._word(_NOUNS[group.kind])
        says_colour = chance(rng, 0.45 + 0.55 * self.detail) and not general
        says_size = group.size in _SIZE_WORDS and chance(rng, 0.05 + 0.45 * self.detail)
        words = []
        if says_size:
            words.append(self._word(_SIZE_WORDS[group.size]))
        if says_colour:
            words.append(self._word(_COLOUR_WORDS.get(group.colour, {group.colour: 1.0})))
        words.append(noun if group.count == 1 else plural(noun))
        phrase, count = " ".join(words), group.count
        if group.count == 1:
            phrase = phrase if bare else f"the {phrase}" if definite else article(phrase)
            if not (bare or definite or self.plainly) and chance(rng, 0.06):
                phrase = pick(rng, ("one ", "a single ")) + " ".join(words)
        elif not definite:
            number = self._word(_NUMBERS.get(min(group.count, 4), _NUMBERS[4]) if group.count <= 4 else {"five": 1.0})
            count = 0 if number in _VAGUE else count
            phrase = phrase if bare and chance(rng, 0.4) else f"{number} {phrase}"
        else:
            phrase = f"the {phrase}"
        self.mentions.append(
            Mention(
                group.kind,
                group.colour if says_colour else None,
                group.size if says_size else None,
                count,
                general,
            )
        )
        return phrase

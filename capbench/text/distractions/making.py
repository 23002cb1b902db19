"""Distracted captions: each image's, by six tasks (after Hodosh and Hockenmaier 2016)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from capbench.records import caption_key
from capbench.text.distractions.rules import Phrase, find_person, find_scene, make_wrong, tokens
from capbench.text.stopwords import ENGLISH
from capbench.text.swaps.lexicon import lexicon as common_lexicon
from capbench.text.swaps.rules import pick

__all__ = ["TASKS", "Distraction", "Task", "make_distractions"]

Task = Literal["replace-person", "replace-scene", "share-person", "share-scene", "just-person", "just-scene"]
TASKS: tuple[Task, ...] = get_args(Task)
_MORE_TOKENS = 3
"""A right caption has so many tokens besides its phrase, or the phrase alone would leave hardly anything out."""


@dataclass(frozen=True)
class Distraction:
    """A right caption and a distractor.

    Attributes:
        task: what was done.
        image: image id.
        place: which of the image's captions is the right one, from 0.
        caption: the right caption.
        distractor: the wrong one.
        phrase: the person or scene of the right caption.
    """

    task: Task
    image: str
    place: int
    caption: str
    distractor: str
    phrase: Phrase


@dataclass(frozen=True)
class _Known:
    """A caption of an image with one phrase of it."""

    image: str
    place: int
    caption: str
    phrase: Phrase
    rest: frozenset[str]
    """Its content words besides the phrase's."""


def make_distractions(captions: Mapping[str, Sequence[str]]) -> list[Distraction]:
    """At most one pair of every task for each image, task by task; distractors come from the other images.

    Args:
        captions: image id → its captions.
    """
    made: list[Distraction] = []
    gendered = common_lexicon().gendered
    said = {image: frozenset(token for text in texts for token in tokens(text)) for image, texts in captions.items()}
    for part, find in (("person", find_person), ("scene", find_scene)):
        known_by_image = {image: _known(image, texts, find) for image, texts in captions.items()}
        every = [known for of_image in known_by_image.values() for known in of_image]
        by_key: dict[str, list[_Known]] = {}
        by_fit: dict[tuple[bool, str], list[_Known]] = {}
        one_by_kind: dict[tuple[bool, str], dict[str, Phrase]] = {}
        for known in every:
            by_key.setdefault(known.phrase.key, []).append(known)
            by_fit.setdefault(_fit(known.phrase), []).append(known)
            one_by_kind.setdefault(_fit(known.phrase), {})[known.phrase.kind] = known.phrase
        for image, rights in known_by_image.items():
            taken = {caption_key(text) for text in captions[image]}
            for kind in ("replace", "share", "just"):
                (task,) = [name for name in TASKS if name == f"{kind}-{part}"]
                left = list(rights)
                while left:
                    right = left.pop(pick(range(len(left)), image, task, str(len(left))))
                    if kind == "replace":
                        if part == "person" and gendered & set(tokens(right.caption)):
                            continue
                        fit = _fit(right.phrase)
                        distractors = _replaced(right, by_fit[fit], one_by_kind[fit], said[image], task)
                    elif kind == "share":
                        distractors = _sharing(right, by_key[right.phrase.key], said[image], task)
                    else:
                        distractors = iter([right.phrase.text])
                    text = next((text for text in distractors if caption_key(text) not in taken), None)
                    if text is not None:
                        made.append(Distraction(task, image, right.place, right.caption, text, right.phrase))
                        break
    return sorted(made, key=lambda one: TASKS.index(one.task))


def _known(image: str, texts: Sequence[str], find: Callable[[str], Phrase | None]) -> list[_Known]:
    known = []
    for place, text in enumerate(texts):
        phrase = find(text)
        if phrase is None:
            continue
        inside = tokens(phrase.text)
        if len(tokens(text)) < len(inside) + _MORE_TOKENS:
            continue
        rest = frozenset(token for token in tokens(text) if token.isalnum() and token not in ENGLISH) - set(inside)
        known.append(_Known(image, place, text, phrase, rest))
    return known


def _fit(phrase: Phrase) -> tuple[bool, str]:
    """What phrases have in common that can stand in each other's place."""
    return (phrase.plural if phrase.part == "person" else False, phrase.preposition)


def _in_turn(of: Sequence[_Known], right: _Known, task: Task) -> Iterator[_Known]:
    """All of other images, from a place on that a hash of the image, the task and the caption says."""
    if not of:
        return
    first = pick(range(len(of)), right.image, task, str(right.place), "distractor")
    for number in range(len(of)):
        other = of[(first + number) % len(of)]
        if other.image != right.image:
            yield other


def _replaced(
    right: _Known, others: Sequence[_Known], one_by_kind: Mapping[str, Phrase], said: frozenset[str], task: Task
) -> Iterator[str]:
    """The right caption with the phrases of others that make it wrong; of each kind of these one is given, too."""
    phrase = right.phrase
    # What makes a caption wrong hangs on the kind alone, since others fit in number and preposition.
    wrong_kinds = {kind for kind, one in one_by_kind.items() if make_wrong(phrase, one, said)}
    if not wrong_kinds:
        return
    for other in _in_turn(others, right, task):
        if other.phrase.kind in wrong_kinds:
            new = other.phrase.text.lower()
            if phrase.text[:1].isupper():
                new = new[:1].upper() + new[1:]
            yield right.caption[: phrase.start] + new + right.caption[phrase.end :]


def _sharing(right: _Known, others: Sequence[_Known], said: frozenset[str], task: Task) -> Iterator[str]:
    """Captions of other images with the same phrase and no other content word of the image's captions."""
    for other in _in_turn(others, right, task):
        if other.rest and not other.rest & said:
            yield other.caption

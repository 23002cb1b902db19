"""Distractors: captions whose person or scene is replaced, for six tasks.

Hodosh and Hockenmaier (2016) make distractors from the person and scene chunks of annotated captions. This module
finds the phrases by rules over ``distractions_lexicon.yaml``, and only where their neighbours are unambiguous:

- The **person** is the first noun for people in a caption, with its modifiers and its determiner or number ("two young
  men"), or a group of people ("a group of people"). No other noun may follow, so "man" in "man cave" is skipped. The
  determiner may be missing before plurals and at the beginning of the caption.
- The **scene** is the last scene noun of the lexicon that follows a preposition ("in the snow"), with its modifiers and
  its determiner. A preposition, a conjunction or the end of a clause must follow.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.resources
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from capbench.core.errors import DataError
from capbench.core.records import caption_key
from capbench.text.swaps import lexicon as common_lexicon
from capbench.text.swaps import lexicon_data, pick
from capbench.text.vocabulary import ENGLISH

_TOKEN = re.compile(r"\w+(?:[-']\w+)*|[^\w\s]")
_STOPS = frozenset(".,;:!")
_BEHIND_SCENE = frozenset({"while", "with", "as", "during", "where", "next"})
_BESIDE_CLAUSE = frozenset({"of", "and", "or", "'", "-"})
_BEFORE_PEOPLE = frozenset({",", "and", "while", "as", "is", "are"})


@dataclass(frozen=True)
class Phrase:
    """A phrase of a caption that names its person or its scene.

    Attributes:
        part: ``person`` or ``scene``.
        kind: the kind of person or scene (``man``, ``beach``); ``group`` for a group of people.
        head: the noun in lower case, as in the caption.
        lemma: the noun's singular.
        plural: True if a following verb takes the plural.
        text: the phrase, from its determiner to its noun.
        start: offset of its beginning in the caption.
        end: offset of its end.
        key: its words in lower case, without the determiner; phrases with the same key have the same meaning.
        preposition: the preposition before a scene; ``""`` for persons.
    """

    part: Literal["person", "scene"]
    kind: str
    head: str
    lemma: str
    plural: bool
    text: str
    start: int
    end: int
    key: str
    preposition: str = ""


@dataclass(frozen=True, eq=False)
class Words:
    """The parsed lexicon.

    Attributes:
        version: version of the rules.
        fingerprint: eight hex digits that identify this lexicon and that of :mod:`capbench.text.swaps`.
        people: form → (kind, singular, True for a plural).
        sex_of: kind of person → its sex, if it has one.
        replaced_by: kind of person → kinds that may replace it.
        sexes: sex → words that indicate it.
        groups: words such as "group", before "of" and people.
        modifiers: words that may precede the noun.
        scenes: form → kind.
        may_be: kind of scene → words which indicate that the image may show such a scene.
    """

    version: str
    fingerprint: str
    people: Mapping[str, tuple[str, str, bool]]
    sex_of: Mapping[str, str]
    replaced_by: Mapping[str, tuple[str, ...]]
    sexes: Mapping[str, frozenset[str]]
    groups: frozenset[str]
    modifiers: frozenset[str]
    scenes: Mapping[str, str]
    may_be: Mapping[str, frozenset[str]]


def tokens(caption: str) -> list[str]:
    """Words and punctuation marks of a caption, in lower case."""
    return [token.lower() for token in _TOKEN.findall(caption)]


def find_person(caption: str) -> Phrase | None:
    """The first person of a caption; None if there is none, or if the rules cannot determine its boundaries."""
    text = _Text(caption)
    lexicon = words()
    place = next((place for place, token in enumerate(text.tokens) if token in lexicon.people), None)
    if place is None:
        return None
    head = text.tokens[place]
    kind, lemma, plural = lexicon.people[head]
    after = text.at(place + 1)
    if after in _BESIDE_CLAUSE - {"and", "or"} or after in text.nouns:
        return None
    first = text.before(place)
    determined = text.is_determiner(first - 1)
    if text.at(first - 1) == "of" and text.at(first - 2) in lexicon.groups and plural:
        kind, first = "group", text.before(first - 2)
        determined = text.is_determiner(first - 1)
    elif not determined and first > 0 and not (plural and text.leads_in(first - 1)):
        return None
    return text.phrase("person", kind, lemma, plural, first - determined, first, place)


def find_scene(caption: str) -> Phrase | None:
    """The last scene of a caption that follows a preposition; None if the rules find none."""
    text = _Text(caption)
    lexicon = words()
    for place in range(len(text.tokens) - 1, 0, -1):
        head, after = text.tokens[place], text.at(place + 1)
        if head not in lexicon.scenes:
            continue
        if after in _BESIDE_CLAUSE or not (
            after in _STOPS or after in text.common.prepositions or after in _BEHIND_SCENE
        ):
            continue
        first = text.before(place)
        determined = text.is_determiner(first - 1)
        preposition = text.at(first - 1 - determined)
        if preposition not in text.common.prepositions or preposition == "of":
            continue
        lemma = head[:-1] if head.endswith("s") and head[:-1] in lexicon.scenes else head
        plural = lemma != head
        return text.phrase(
            "scene", lexicon.scenes[head], lemma, plural, first - determined, first, place, preposition=preposition
        )
    return None


def make_wrong(phrase: Phrase, other: Phrase, image_words: Collection[str]) -> bool:
    """True if a caption becomes wrong when ``other`` replaces ``phrase``.

    Args:
        phrase: a phrase of the caption.
        other: its replacement, from a caption of another image.
        image_words: all words of all captions of the image, in lower case.
    """
    lexicon = words()
    if phrase.part == "person":
        return (
            other.kind in lexicon.replaced_by.get(phrase.kind, ())
            and other.plural == phrase.plural
            and lexicon.sexes[lexicon.sex_of[other.kind]].isdisjoint(image_words)
        )
    return (
        other.kind != phrase.kind
        and other.preposition == phrase.preposition
        and lexicon.may_be[other.kind].isdisjoint(image_words)
    )


class _Text:
    """One caption in tokens."""

    def __init__(self, caption: str) -> None:
        self.caption, self.common = caption, common_lexicon()
        matches = list(_TOKEN.finditer(caption))
        self.spans = [match.span() for match in matches]
        self.tokens = [match.group().lower() for match in matches]
        self.nouns = self.common.nouns

    def at(self, place: int) -> str:
        """The token at a place; ``.`` outside the caption."""
        return self.tokens[place] if 0 <= place < len(self.tokens) else "."

    def before(self, place: int) -> int:
        """Place at which the noun's modifiers begin."""
        modifiers = words().modifiers
        while self.at(place - 1) in modifiers or self.at(place - 1) in self.common.adjectives:
            place -= 1
        return place

    def is_determiner(self, place: int) -> bool:
        """True if the token is a determiner or a number."""
        return self.at(place) in self.common.determiners or self.at(place) in self.common.numbers

    def leads_in(self, place: int) -> bool:
        """True if a plural without a determiner may begin after this token."""
        return self.at(place) in self.common.prepositions or self.at(place) in _BEFORE_PEOPLE

    def phrase(
        self,
        part: Literal["person", "scene"],
        kind: str,
        lemma: str,
        plural: bool,
        first: int,
        bare: int,
        place: int,
        preposition: str = "",
    ) -> Phrase:
        """The phrase from the token ``first`` to the noun at ``place``; without its determiner it begins at ``bare``.

        A number distinguishes persons and belongs to the key; a determiner does not.
        """
        start, end = self.spans[first][0], self.spans[place][1]
        begin = first if self.at(first) in self.common.numbers else bare
        key = " ".join(self.tokens[begin : place + 1])
        text = self.caption[start:end]
        return Phrase(part, kind, self.tokens[place], lemma, plural, text, start, end, key, preposition)


@functools.cache
def words() -> Words:
    """The lexicon that is part of capbench."""
    text = importlib.resources.files("capbench.text").joinpath("distractions_lexicon.yaml").read_text(encoding="utf-8")
    return parse_words(text)


def parse_words(text: str, path: str = "distractions_lexicon.yaml") -> Words:
    """Parse and check a lexicon.

    Args:
        text: the YAML text.
        path: its file name, for error messages.

    Raises:
        DataError: the text is not YAML, or a section has the wrong content; the error names the section.
    """
    data = lexicon_data(text, path)
    sexes = {name: frozenset(_list(listed, path, name)) for name, listed in _part(data, "sexes", path).items()}
    people: dict[str, tuple[str, str, bool]] = {}
    sex_of: dict[str, str] = {}
    replaced_by: dict[str, tuple[str, ...]] = {}
    kinds = _part(data, "people", path)
    for kind, entry in kinds.items():
        for one, many in _part(entry, "nouns", path).items():
            people[one] = (kind, one, False)
            people[many] = (kind, one, True)
        replaced_by[kind] = tuple(_list(entry.get("replaced_by", []), path, kind))
        if "sex" in entry:
            sex_of[kind] = entry["sex"]
    for kind, others in replaced_by.items():
        for other in others:
            if sex_of.get(other) not in sexes:
                raise DataError(
                    f"{kind} is replaced by {other}, which has no sex",
                    code="invalid",
                    value=other,
                    path=path,
                    row="people",
                )
    scenes: dict[str, str] = {}
    may_be: dict[str, frozenset[str]] = {}
    for kind, entry in _part(data, "scenes", path).items():
        nouns = _list(entry.get("nouns"), path, kind)
        scenes |= dict.fromkeys(nouns, kind)
        may_be[kind] = frozenset([*nouns, *_list(entry.get("also"), path, kind)])
    return Words(
        version=str(data.get("version", "")),
        fingerprint=hashlib.blake2b((text + common_lexicon().fingerprint).encode(), digest_size=4).hexdigest(),
        people=people,
        sex_of=sex_of,
        replaced_by=replaced_by,
        sexes=sexes,
        groups=frozenset(_list(data.get("groups"), path, "groups")),
        modifiers=frozenset(_list(data.get("modifiers"), path, "modifiers")),
        scenes=scenes,
        may_be=may_be,
    )


def _part(data: Any, name: str, path: str) -> dict[str, Any]:
    value = data.get(name) if isinstance(data, dict) else None
    if not isinstance(value, dict) or not value:
        raise DataError(f"has no mapping '{name}'", code="missing-key", value=name, path=path, row=name)
    return value


def _list(value: Any, path: str, name: str) -> Sequence[str]:
    if not isinstance(value, list) or not all(isinstance(word, str) and word == word.lower() for word in value):
        raise DataError("is not a list of words in lower case", code="wrong-type", path=path, row=name)
    return value


Task = Literal["replace-person", "replace-scene", "share-person", "share-scene", "just-person", "just-scene"]
TASKS: tuple[Task, ...] = get_args(Task)
_MORE_TOKENS = 3
"""Minimum number of tokens of a caption outside its phrase; otherwise the phrase alone would be almost the caption."""


@dataclass(frozen=True)
class Distraction:
    """A correct caption and a distractor.

    Attributes:
        task: one of :data:`TASKS`.
        image: image id.
        place: index of the correct caption among the image's captions, from 0.
        caption: the correct caption.
        distractor: the wrong caption.
        phrase: the person or scene of the correct caption.
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
    """Content words of the caption outside the phrase."""


def make_distractions(captions: Mapping[str, Sequence[str]]) -> list[Distraction]:
    """Make at most one pair of each task for each image, ordered by task; distractors come from other images.

    Args:
        captions: image id → its captions.
    """
    made: list[Distraction] = []
    gendered = common_lexicon().gendered
    image_words = {
        image: frozenset(token for text in texts for token in tokens(text)) for image, texts in captions.items()
    }
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
                        distractors = _replaced(right, by_fit[fit], one_by_kind[fit], image_words[image], task)
                    elif kind == "share":
                        distractors = _sharing(right, by_key[right.phrase.key], image_words[image], task)
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
    """Key of phrases that can replace each other: number (of persons) and preposition."""
    return (phrase.plural if phrase.part == "person" else False, phrase.preposition)


def _in_turn(of: Sequence[_Known], right: _Known, task: Task) -> Iterator[_Known]:
    """All captions of other images, beginning at a place derived from a hash of image, task and caption."""
    if not of:
        return
    first = pick(range(len(of)), right.image, task, str(right.place), "distractor")
    for number in range(len(of)):
        other = of[(first + number) % len(of)]
        if other.image != right.image:
            yield other


def _replaced(
    right: _Known, others: Sequence[_Known], one_by_kind: Mapping[str, Phrase], image_words: frozenset[str], task: Task
) -> Iterator[str]:
    """The correct caption with each phrase that makes it wrong; ``one_by_kind`` has an example of each kind."""
    phrase = right.phrase
    # Number and preposition agree, so only the kind decides if the caption becomes wrong.
    wrong_kinds = {kind for kind, one in one_by_kind.items() if make_wrong(phrase, one, image_words)}
    if not wrong_kinds:
        return
    for other in _in_turn(others, right, task):
        if other.phrase.kind in wrong_kinds:
            new = other.phrase.text.lower()
            if phrase.text[:1].isupper():
                new = new[:1].upper() + new[1:]
            yield right.caption[: phrase.start] + new + right.caption[phrase.end :]


def _sharing(right: _Known, others: Sequence[_Known], image_words: frozenset[str], task: Task) -> Iterator[str]:
    """Captions of other images with the same phrase that share no other content word with the image's captions."""
    for other in _in_turn(others, right, task):
        if other.rest and not other.rest & image_words:
            yield other.caption

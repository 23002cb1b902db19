"""Captions with one object, action or property replaced: by a similar word, and by a word that makes them wrong.

TIGEr (Jiang et al., EMNLP-IJCNLP 2019, section 4.6) tests metrics with such pairs but did not publish them. Here they
follow from rules over the lexicon ``swaps_lexicon.yaml``. A word is replaced only where its neighbours confirm its part
of speech and sense, so most captions yield few pairs, but correct English:

- An **object** is a noun after a determiner, a preposition, a number or an adjective of the lexicon, and before a
  preposition, a form of *be*, a conjunction or the end of a clause; people and animals also before a verb. So "bike" in
  "bike rack" is not replaced. A noun for a location may require its preposition ("on the beach").
- An **action** is a verb in its *-ing* form, third person or plural, after a noun and before words that the lexicon
  lists for this sense of the verb ("looking **at**", "holding **a**").
- A **property** is an adjective or number (colour, count, size, state) before a noun of the lexicon, with only other
  adjectives between them.

Number, person, ``a`` or ``an`` and the first capital are adapted. A *different* word is never used if the word or one
of its synonyms occurs in a reference of the image, since it might be correct. Nouns that occur twice are not replaced,
nor are persons where a pronoun (*he*, *her*) would reveal the replacement.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.resources
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from capbench.core.errors import DataError

_VOWELS = "aeiou"
_LISTS = ("determiners", "prepositions", "numbers", "gendered", "adjectives", "nouns", "people")


@dataclass(frozen=True)
class ObjectRule:
    """A noun and its replacements; the comments of the YAML file give details.

    Attributes:
        noun: the noun, singular.
        similar: nouns that leave a caption true.
        different: nouns that make it wrong.
        kind: ``person``, ``animal`` or ``""``.
        after: words of which one must precede the noun; empty for any.
        as_is: True if the noun has one form only.
    """

    noun: str
    similar: tuple[str, ...]
    different: tuple[str, ...]
    kind: str = ""
    after: frozenset[str] = frozenset()
    as_is: bool = False


@dataclass(frozen=True)
class ActionRule:
    """A verb in one sense and its replacements.

    Attributes:
        verb: the infinitive.
        before: token sequences of which one must follow the verb in this sense.
        similar: verbs that leave a caption true.
        different: verbs that make it wrong.
        unless: words that disable the rule for a caption.
    """

    verb: str
    before: tuple[tuple[str, ...], ...]
    similar: tuple[str, ...]
    different: tuple[str, ...]
    unless: frozenset[str] = frozenset()


@dataclass(frozen=True)
class PropertyRule:
    """An adjective or number and its replacements.

    Attributes:
        word: the word, in tokens.
        category: ``colour``, ``count``, ``size`` or ``state``.
        similar: words that leave a caption true.
        different: words that make it wrong.
        people: False if the rule does not apply before nouns for people.
        nouns: nouns before which the rule applies; empty for any noun.
    """

    word: tuple[str, ...]
    category: str
    similar: tuple[str, ...]
    different: tuple[str, ...]
    people: bool = True
    nouns: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class Lexicon:
    """All rules, indexed by word form.

    Attributes:
        version: version of the rules.
        fingerprint: eight hex digits that identify the file.
        objects: form → (rule, True for a plural).
        verbs: form → (rule, ``ing``, ``third`` or ``plural``).
        properties: first token → rules.
        nouns: form of every known noun → True for a plural.
        as_is: nouns that have one form only.
        people: forms of nouns for people and parts of people.
        adjectives: known adjectives, including properties.
        colours: words for colours.
    """

    version: str
    fingerprint: str
    irregular_plurals: Mapping[str, str]
    irregular_verbs: Mapping[str, tuple[str, str]]
    determiners: frozenset[str]
    prepositions: frozenset[str]
    numbers: frozenset[str]
    gendered: frozenset[str]
    objects: dict[str, list[tuple[ObjectRule, bool]]] = field(default_factory=dict)
    verbs: dict[str, list[tuple[ActionRule, str]]] = field(default_factory=dict)
    properties: dict[str, list[PropertyRule]] = field(default_factory=dict)
    nouns: dict[str, bool] = field(default_factory=dict)
    as_is: set[str] = field(default_factory=set)
    people: set[str] = field(default_factory=set)
    adjectives: set[str] = field(default_factory=set)
    colours: set[str] = field(default_factory=set)
    related: dict[str, set[str]] = field(default_factory=dict)

    def plural(self, noun: str) -> str:
        """Plural of a noun; of a phrase, the last word is inflected."""
        *head, last = noun.split(" ")
        many = self.irregular_plurals.get(last)
        if many is None:
            if last.endswith(("s", "x", "z", "ch", "sh")):
                many = f"{last}es"
            elif last.endswith("y") and last[-2] not in _VOWELS:
                many = f"{last[:-1]}ies"
            else:
                many = f"{last}s"
        return " ".join([*head, many])

    def verb(self, verb: str, form: str) -> str:
        """A verb in the form ``ing``, ``third`` or ``plural``; of a phrase, the first word is inflected.

        ``be seated`` gives ``seated``, ``is seated`` and ``are seated``.
        """
        if form == "plural":
            return f"are{verb[2:]}" if verb.startswith("be ") else verb
        place = ("third", "ing").index(form)
        if verb in self.irregular_verbs:
            return self.irregular_verbs[verb][place]
        first, *particles = verb.split(" ")
        if first in self.irregular_verbs:
            return " ".join([self.irregular_verbs[first][place], *particles])
        if form == "ing":
            stem = first[:-1] if first.endswith("e") and not first.endswith("ee") else first
            return " ".join([f"{stem}ing", *particles])
        if first.endswith("y") and first[-2] not in _VOWELS:
            first = f"{first[:-1]}ie"
        elif first.endswith(("s", "x", "z", "ch", "sh")):
            first = f"{first}e"
        return " ".join([f"{first}s", *particles])

    def noun_forms(self, noun: str) -> list[str]:
        """Singular and plural of a noun; the plural is formed even if the noun has one form only."""
        return [noun, self.plural(noun)]

    def verb_forms(self, verb: str) -> list[str]:
        """All forms of a verb."""
        return [verb, *(self.verb(verb, form) for form in ("ing", "third", "plural"))]

    def kin(self, word: str) -> list[str]:
        """A noun, adjective or number and its synonyms in the lexicon, in all forms."""
        return [form for kin in (word, *sorted(self.related.get(word, ()))) for form in self.noun_forms(kin)]

    def verb_kin(self, verb: str) -> list[str]:
        """A verb and its synonyms in the lexicon, in all forms."""
        return [form for kin in (verb, *sorted(self.related.get(verb, ()))) for form in self.verb_forms(kin)]


@functools.cache
def lexicon() -> Lexicon:
    """The lexicon that is part of capbench."""
    text = importlib.resources.files("capbench.text").joinpath("swaps_lexicon.yaml").read_text(encoding="utf-8")
    return parse_lexicon(text)


def lexicon_data(text: str, path: str) -> dict[str, Any]:
    """The sections of a lexicon, with strings as values. Raises DataError if it is not one."""
    from capbench.core.yaml import parse_own

    data = parse_own(text, path, strings=True)
    if not isinstance(data, dict) or data.get("schema") != "1":
        raise DataError("is not a lexicon of schema 1", code="wrong-version", path=path)
    return data


def parse_lexicon(text: str, path: str = "swaps_lexicon.yaml") -> Lexicon:
    """Parse and check a lexicon.

    Args:
        text: the YAML text.
        path: its file name, for error messages.

    Raises:
        DataError: the text is not YAML, or an entry has the wrong content; the error names the entry.
    """
    data = lexicon_data(text, path)
    known = {*_LISTS, "schema", "version", "irregular_plurals", "irregular_verbs", "objects", "actions", "properties"}
    if known - set(data) or set(data) - known:
        raise DataError(f"must have the sections {', '.join(sorted(known))}", code="unknown-key", path=path)
    lists = {name: frozenset(_words(data, name, path, name)) for name in _LISTS}
    made = Lexicon(
        version=str(data["version"]),
        fingerprint=hashlib.blake2b(text.encode(), digest_size=4).hexdigest(),
        irregular_plurals=dict(data["irregular_plurals"]),
        irregular_verbs={verb: (third, ing) for verb, (third, ing) in data["irregular_verbs"].items()},
        determiners=lists["determiners"],
        prepositions=lists["prepositions"],
        numbers=lists["numbers"],
        gendered=lists["gendered"],
    )
    made.adjectives.update(lists["adjectives"])
    for noun in sorted(lists["nouns"]):
        _know(made, noun)
    made.people.update(form for noun in lists["people"] for form in made.noun_forms(noun))
    for number, entry in enumerate(data["objects"], 1):
        _add_object(made, _checked(entry, {"noun", "is", "number", "after"}, path, f"object {number}"), path)
    for number, entry in enumerate(data["actions"], 1):
        _add_action(made, _checked(entry, {"verb", "before", "unless"}, path, f"action {number}"), path)
    for category, entries in data["properties"].items():
        for number, entry in enumerate(entries, 1):
            row = f"{category} {number}"
            _add_property(made, category, _checked(entry, {"word", "people", "with"}, path, row), path)
    return made


def _words(entry: Mapping[str, Any], key: str, path: str, row: str) -> tuple[str, ...]:
    value = entry.get(key, [])
    if not isinstance(value, list) or not all(isinstance(word, str) and word for word in value):
        raise DataError(f"'{key}' is not a list of words", code="wrong-type", value=key, path=path, row=row)
    return tuple(value)


def _checked(entry: Any, keys: set[str], path: str, row: str) -> dict[str, Any]:
    if not isinstance(entry, dict) or set(entry) - keys - {"similar", "different"}:
        raise DataError(
            f"must have the keys {', '.join(sorted(keys))}, similar and different",
            code="unknown-key",
            path=path,
            row=row,
        )
    similar, different = (_words(entry, key, path, row) for key in ("similar", "different"))
    if not similar or not different or set(similar) & set(different):
        raise DataError("requires similar and different words without overlap", code="invalid", path=path, row=row)
    return {**entry, "similar": similar, "different": different, "row": row}


def _relate(made: Lexicon, word: str, similar: Iterable[str]) -> None:
    """Record synonyms in both directions."""
    for other in similar:
        made.related.setdefault(word, set()).add(other)
        made.related.setdefault(other, set()).add(word)


def _know(made: Lexicon, noun: str) -> None:
    made.nouns[noun] = False
    made.nouns[made.plural(noun)] = True


def _add_object(made: Lexicon, entry: Mapping[str, Any], path: str) -> None:
    noun, kind = entry["noun"], entry.get("is", "")
    if kind not in ("", "person", "animal"):
        raise DataError(
            f"'is' must be person or animal, not '{kind}'", code="wrong-value", value=kind, path=path, row=entry["row"]
        )
    as_is = entry.get("number") == "as-is"
    after = frozenset(_words(entry, "after", path, entry["row"]))
    rule = ObjectRule(noun, entry["similar"], entry["different"], kind, after, as_is)
    made.objects.setdefault(noun, []).append((rule, as_is))
    if as_is:
        made.nouns[noun] = True
        made.as_is.add(noun)
    else:
        made.objects.setdefault(made.plural(noun), []).append((rule, True))
        _know(made, noun)
    if kind == "person":
        made.people.update(made.noun_forms(noun))
    _relate(made, noun, rule.similar)


def _add_action(made: Lexicon, entry: Mapping[str, Any], path: str) -> None:
    verb = entry["verb"]
    before = tuple(tuple(words.split()) for words in _words(entry, "before", path, entry["row"]))
    if not before:
        raise DataError(
            "requires the words that follow it ('before')", code="missing-value", path=path, row=entry["row"]
        )
    unless = frozenset(_words(entry, "unless", path, entry["row"]))
    rule = ActionRule(verb, before, entry["similar"], entry["different"], unless)
    for form in ("ing", "third", "plural"):
        made.verbs.setdefault(made.verb(verb, form), []).append((rule, form))
    _relate(made, verb, rule.similar)


def _add_property(made: Lexicon, category: str, entry: Mapping[str, Any], path: str) -> None:
    word = entry["word"]
    nouns = frozenset(form for n in _words(entry, "with", path, entry["row"]) for form in made.noun_forms(n))
    people = entry.get("people", "yes")
    if people not in ("yes", "no"):
        raise DataError("'people' must be yes or no", code="wrong-value", value=people, path=path, row=entry["row"])
    rule = PropertyRule(tuple(word.split()), category, entry["similar"], entry["different"], people == "yes", nouns)
    made.properties.setdefault(rule.word[0], []).append(rule)
    if category != "count":
        made.adjectives.update(w for w in (word, *rule.similar, *rule.different) if " " not in w)
    if category == "colour":
        made.colours.update((word, *rule.similar, *rule.different))
    _relate(made, word, rule.similar)


Component = Literal["object", "action", "property"]
COMPONENTS: tuple[Component, ...] = get_args(Component)
CATEGORIES = ("colour", "count", "size", "state")
"""Categories of properties."""

_TOKEN = re.compile(r"\w+(?:[-']\w+)*|[^\w\s]")
_STOPS = frozenset(".,;:!")
_JOINS = frozenset({"is", "are", "has", "have", "and", "or", "while", "as", "wearing"})
_BEHIND_NOUN = _JOINS | {"was", "were", "who", "that", "which", "to", "during", "before", "after", "without", "because"}
_BEFORE_NOUN = _JOINS | {",", "wears", "wear", "holding", "carrying", "playing", "riding"}
_NO_VERB_OF_ANIMALS = frozenset({"riding", "racing", "sledding", "fighting"})
_RELATIVES = frozenset({"who", "that", "which"})
_BEFORE_ING = frozenset({"is", "are", "was", "were", "and", "while", ",", *_RELATIVES})
_SHADES = frozenset({"dark", "light", "bright", "pale", "and", "or"})
_NOT_AN = re.compile(r"(?:uni|use|eu|one\b|once\b)")
_SILENT = ("hour", "honest")


@dataclass(frozen=True)
class Swap:
    """One place in a caption where a word can be replaced.

    Attributes:
        component: ``object``, ``action`` or ``property``.
        category: category of a property, one of :data:`CATEGORIES`; ``""`` for objects and actions.
        word: the word in the caption.
        similar: inflected replacements that leave the caption true.
        different: inflected replacements that make it wrong.
    """

    component: Component
    category: str
    caption: str
    start: int
    end: int
    similar: tuple[str, ...]
    different: tuple[str, ...]

    @property
    def word(self) -> str:
        """The word in the caption."""
        return self.caption[self.start : self.end]

    def put(self, new: str) -> str:
        """The caption with ``new`` in the word's place; a directly preceding ``a`` or ``an`` is adapted."""
        before, behind = self.caption[: self.start], self.caption[self.end :]
        if self.word[:1].isupper():
            new = new[:1].upper() + new[1:]
        article = re.search(r"(?<!\w)([Aa])n?(\s+)$", before)
        if article is not None:
            before = f"{before[: article.start()]}{article[1]}{'n' if _takes_an(new) else ''}{article[2]}"
        return f"{before}{new}{behind}"


def pick(options: Sequence[str] | range, *key: str) -> int:
    """Index of one of the options, determined by a hash of the key and therefore the same on every machine."""
    digest = hashlib.blake2b("\x1f".join(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % len(options)


def find_swaps(caption: str, references: Sequence[str] = ()) -> list[Swap]:
    """Find all places of a caption where the rules replace a word.

    Args:
        caption: a caption in English as published.
        references: all captions of its image; their words are not used as wrong words.
    """
    words = lexicon()
    text = _Text(caption, words)
    image_words = " ".join([" ", *(" ".join(_tokens(reference)) for reference in (*references, caption)), " "])
    swaps: list[Swap] = []
    for place in range(len(text.tokens)):
        swaps += text.objects(place, image_words)
        swaps += text.actions(place, image_words)
        swaps += text.properties(place, image_words)
    return swaps


def _tokens(caption: str) -> list[str]:
    return [token.lower() for token in _TOKEN.findall(caption)] + ["."]


def _takes_an(text: str) -> bool:
    low = text.lower()
    return low.startswith(_SILENT) or (low[:1] in "aeiou" and not _NOT_AN.match(low))


class _Text:
    """One caption in tokens, with the conditions of the rules."""

    def __init__(self, caption: str, words: Lexicon) -> None:
        self.caption, self.words = caption, words
        matches = list(_TOKEN.finditer(caption))
        self.spans = [match.span() for match in matches]
        self.tokens = [match.group().lower() for match in matches]
        self.joined = f" {' '.join(self.tokens)} "

    def at(self, place: int) -> str:
        """The token at a place; ``.`` outside the caption."""
        return self.tokens[place] if 0 <= place < len(self.tokens) else "."

    def swap(
        self,
        component: Component,
        category: str,
        places: tuple[int, int],
        similar: Sequence[tuple[str, Sequence[str]]],
        different: Sequence[tuple[str, Sequence[str]]],
        image_words: str,
    ) -> list[Swap]:
        """The swap, unless no similar or no different words remain.

        Args:
            component: component of the word.
            category: category of a property.
            places: of the first token and of the one after the last.
            similar: inflected words, each with all forms that must not occur in the caption.
            different: inflected words, each with all forms that must not occur in any reference.
            image_words: tokens of all references and the caption, joined by spaces.
        """
        right = tuple(new for new, forms in similar if not any(f" {form} " in self.joined for form in forms))
        wrong = tuple(new for new, forms in different if not any(f" {form} " in image_words for form in forms))
        if not right or not wrong:
            return []
        start, end = self.spans[places[0]][0], self.spans[places[1] - 1][1]
        return [Swap(component, category, self.caption, start, end, right, wrong)]

    def behind(self, place: int) -> tuple[str, str]:
        """The determiner of the noun at a place (or ``""``) and the token before the noun phrase."""
        place -= 1
        while self.at(place) in self.words.adjectives:
            place -= 1
        determiner = ""
        while self.at(place) in self.words.determiners or self.at(place) in self.words.numbers:
            determiner = self.at(place)
            place -= 1
        return determiner, self.at(place)

    # Objects

    def objects(self, place: int, image_words: str) -> list[Swap]:
        words = self.words
        swaps = []
        for rule, plural in words.objects.get(self.tokens[place], ()):
            if not self._is_noun(place, rule, plural) or not self._fits(place, rule):
                continue
            forms = words.noun_forms(rule.noun)
            if sum(token in forms for token in self.tokens) != 1:
                continue
            many = plural and not rule.as_is
            similar = [(words.plural(n) if many else n, words.noun_forms(n)) for n in rule.similar]
            different = [(words.plural(n) if many else n, words.kin(n)) for n in rule.different]
            swaps += self.swap("object", "", (place, place + 1), similar, different, image_words)
        return swaps

    def _is_noun(self, place: int, rule: ObjectRule, plural: bool) -> bool:
        before, after = self.at(place - 1), self.at(place + 1)
        words = self.words
        known = (words.determiners, words.prepositions, words.numbers, words.adjectives, _BEFORE_NOUN)
        if place > 0 and not any(before in group for group in known):
            return False
        if after in _STOPS or after in words.prepositions or after in _BEHIND_NOUN:
            return True
        if not rule.kind:
            return False
        if rule.kind == "person" and after.endswith("ing"):
            return True
        return any(form in ("ing", "plural" if plural else "third") for _, form in words.verbs.get(after, ())) and (
            after not in _NO_VERB_OF_ANIMALS
        )

    def _fits(self, place: int, rule: ObjectRule) -> bool:
        if rule.kind == "person" and any(token in self.words.gendered for token in self.tokens):
            return False
        determiner, before = self.behind(place)
        if rule.as_is and (determiner in ("a", "an") or (rule.after and not determiner)):
            return False
        if self.at(place + 1) == "of" and rule.after:
            return False
        return not rule.after or before in rule.after

    # Actions

    def actions(self, place: int, image_words: str) -> list[Swap]:
        words = self.words
        swaps = []
        for rule, form in words.verbs.get(self.tokens[place], ()):
            if not self._is_verb(place, form) or not self._goes_on(place, rule):
                continue
            if any(token in rule.unless for token in self.tokens):
                continue
            verbs = [v for v in rule.similar if not (self.at(place - 1) == "to" and v.startswith("be "))]
            similar = [(words.verb(v, form), words.verb_forms(v)) for v in verbs]
            different = [(words.verb(v, form), words.verb_kin(v)) for v in rule.different]
            swaps += self.swap("action", "", (place, place + 1), similar, different, image_words)
        return swaps

    def _is_verb(self, place: int, form: str) -> bool:
        before = self.at(place - 1)
        plural = self.words.nouns.get(before)
        if form == "ing":
            return place == 0 or plural is not None or before in _BEFORE_ING
        if form == "third":
            return plural is False or before in _RELATIVES
        return plural is True or before == "to"

    def _goes_on(self, place: int, rule: ActionRule) -> bool:
        for pattern in rule.before:
            for offset, expected in enumerate(pattern, 1):
                token = self.at(place + offset)
                if expected == "DET":
                    fits = token in self.words.determiners
                else:
                    fits = token in _STOPS if expected == "." else token == expected
                if not fits:
                    break
            else:
                return True
        return False

    # Properties

    def properties(self, place: int, image_words: str) -> list[Swap]:
        words = self.words
        swaps = []
        for rule in words.properties.get(self.tokens[place], ()):
            end = place + len(rule.word)
            if tuple(self.tokens[place:end]) != rule.word or not self._may_stand(place, rule):
                continue
            noun = self._noun(end)
            if noun is None or not self._describes(noun, rule):
                continue
            similar = [(new, [new]) for new in rule.similar]
            different = [(new, words.kin(new)) for new in rule.different]
            swaps += self.swap("property", rule.category, (place, end), similar, different, image_words)
        return swaps

    def _may_stand(self, place: int, rule: PropertyRule) -> bool:
        before, words = self.at(place - 1), self.words
        if place == 0:
            return True
        if rule.category == "count":
            return before != "of" and (before in words.prepositions or before in _BEFORE_NOUN)
        if rule.category == "colour" and (before in _SHADES or before in words.colours):
            return False
        known = (words.determiners, words.prepositions, words.numbers, words.adjectives, _BEFORE_NOUN)
        return any(before in group for group in known)

    def _noun(self, place: int) -> str | None:
        """The noun of the phrase, after other adjectives; None if it is ambiguous."""
        while self.at(place) in self.words.adjectives and self.at(place) not in self.words.nouns:
            place += 1
        noun = self.at(place)
        if noun not in self.words.nouns or self.at(place + 1) in ("'", "-"):
            return None
        # "tennis player", "dog house": the phrase's noun is the last one.
        return None if self.at(place + 1) in self.words.nouns else noun

    def _describes(self, noun: str, rule: PropertyRule) -> bool:
        words = self.words
        if rule.category == "count":
            return words.nouns[noun] and noun not in words.as_is
        if not rule.people and noun in words.people:
            return False
        return not rule.nouns or noun in rule.nouns

"""Candidates with references, on which METEOR is compared with its jar."""

from __future__ import annotations

import random
from collections.abc import Sequence

Pairs = list[tuple[str, list[str]]]
CAPTIONS: Pairs = [
    ("a dog runs on the grass", ["a dog running on the grass", "a cat sits"]),
    ("two kids play with a red ball", ["a couple of children are playing with a ball that is red", "kids play"]),
    ("the man sits on a sofa", ["a man sitting on a couch", "the woman stands"]),
    ("a group of people", ["a number of persons", "people in a group"]),
    ("a a a a a a a", ["a a a", "the a the a the a"]),
    ("the dog the cat the dog", ["the cat the dog the cat the dog the"]),
    ("", ["a dog"]),
    ("a dog", [""]),
    ("", [""]),
    ("dog", ["dog"]),
    ("dog", ["cat"]),
    ("let", ["n't"]),
    ("a man 's hat is n't red", ["the man 's red hat", "do n't"]),
    ("in front of the house", ["before the house", "facing the home", "outside of the building"]),
    ("a woman is taking a photograph of herself", ["a woman takes a picture of herself with her cell phone"]),
    ("10 of 3,000 people , 5.5 % - 2-3", ["ten of 3000 people 5.5 percent 2 3"]),
]


_COMMON = (
    "a the the a of on in with man men woman people person kid kids child children dog dogs puppy sofa couch run runs "
    "running jumped jumping photo picture photograph take takes taking bicycle bike street road big large small little "
    "next to near beside front group couple number some several two three sitting seated standing is are 's n't water "
    "sea ocean boat ship car automobile green red field grass grassy air sky ball playing plays game"
)
WORDS = _COMMON.split()


def common_pairs(rng: random.Random) -> Pairs:
    def text(lengths: Sequence[int]) -> str:
        return " ".join(rng.choice(WORDS) for _ in range(rng.choice(lengths)))

    short = [1, 3, 6, 9, 14, 25]
    pairs = [(text(short), [text(short) for _ in range(rng.randint(1, 5))]) for _ in range(300)]
    long = [text([400]) for _ in range(4)]
    return [*pairs, (long[0], [long[1]]), (long[2], [long[2]]), (long[3], [long[0], "a dog"])]


def odd_pairs(rng: random.Random) -> Pairs:
    odd = "éÉñßİıΣσςЖǅﬁ😀𝒳中文字ア‘’“”–—…·•°½²٣\u00a0\u2003\u200b\u202f\u3000ŠžꙀᴀԧ¿€™\u0301\x01\x7f\x85\xad\ufeff"
    punctuation = ".,;:!?'\"`-()[]{}<>/\\@#$%^&*_+=~"
    short = ["dr.", "e.g.", "u.s.a.", "no. 5", "vs.", "...", "..", "--", "''", "``", "-lrb-", "DOTMULTI"]

    def token() -> str:
        kind = rng.random()
        if kind < 0.5:
            return rng.choice(WORDS)
        if kind < 0.6:
            return rng.choice(short)
        if kind < 0.7:
            return rng.choice(WORDS) + rng.choice("'s n't - -- ... . % , '".split()) + rng.choice("ab ")  # noqa: SIM905
        letters = rng.choice([odd + "abe", punctuation, "0123456789.,", odd + punctuation + "abc12 "])
        return "".join(rng.choice(letters) for _ in range(rng.randint(1, 6)))

    def text() -> str:
        return rng.choice([" ", "  "]).join(token() for _ in range(rng.choice([0, 1, 2, 5, 10, 30])))

    pairs: Pairs = []
    for _ in range(200):
        first = text()
        pairs.append((first, [first.lower() if rng.random() < 0.2 else text() for _ in range(rng.randint(1, 3))]))
        pairs.append((first, [" ".join(rng.sample(first.split(" "), len(first.split(" "))))]))
    return pairs

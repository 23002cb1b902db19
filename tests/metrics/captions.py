from __future__ import annotations

import random

from capbench.core.records import Item

_TEXT = "a the red blue small dog cat ball man woman house runs sits on under near with two and not can't it's"
_WORDS = _TEXT.split()

CORNERS = (
    Item("i1", "A dog runs.", ("A dog runs.", "The dog is running")),
    Item("i1", "", ("a dog", "a cat")),
    Item("i2", "...", ("a dog", "")),
    Item("i2", "a cat", (".", "!")),
    Item("i2", "", ("",)),
    Item("i3", "dog", ("dog",)),
    Item("i3", "dog dog dog dog dog", ("dog", "a dog and a dog")),
    Item("i3", "a ||| b", ("a ||| b ||| c", "|||")),
    Item("i4", "Ein Café über dem Fluß 😀", ("un café", "日本語 の 文")),
    Item("i4", "the man " * 300, ("the woman " * 200, "a man")),
    Item("i4", "a dog near a house no. 5", ("(a dog) near a house; no. 5",)),
)


def invented(number: int, seed: int = 3) -> tuple[Item, ...]:
    generator = random.Random(seed)

    def caption() -> str:
        return " ".join(generator.choices(_WORDS, k=generator.randint(1, 14))) + generator.choice([".", "", " !"])

    groups = [tuple(caption() for _ in range(generator.randint(1, 6))) for _ in range(number // 3 + 1)]
    items = []
    for i in range(number):
        which = generator.randrange(len(groups))
        text = generator.choice(groups[which]) if i % 7 == 0 else caption()
        items.append(Item(f"r{which}", text, groups[which], f"c{i}"))
    return (*CORNERS, *items, *items[:5])

"""PTB tokenisation: capbench's engine without Java beside the jar that it follows.

Both see the same captions, each distinct one once. By default captions are generated (plain words,
some punctuation, contractions, abbreviations and numbers); with ``--data DIR`` they are all captions of
Flickr8k and those of COCO's Karpathy test split.

Example: python scripts/bench/tokenizer.py --captions 100000
"""

from __future__ import annotations

import argparse
import itertools
import platform
import random
import time
from importlib.metadata import version

from capbench.java import find_java
from capbench.text.ptb import tokenize_jar
from capbench.text.ptb.native import NativeTokenizer

_ODD = ["it's", "can't", "St.", "U.S.", "1,000", "10:30", "well-known", '"red"', "(small)", "...", "--", "$5", "p.m."]


def generated(captions: int, seed: int = 0) -> list[str]:
    """Captions of 7 to 15 words, one in five with something that is no plain word."""
    rng = random.Random(seed)
    letters = "etaoinshrdlu"
    words = ["".join(rng.choices(letters, k=rng.randint(2, 9))) for _ in range(12_000)]
    cumulative = list(itertools.accumulate(1 / (i + 2) for i in range(len(words))))
    captions_made: dict[str, None] = {}
    while len(captions_made) < captions:
        text = rng.choices(words, cum_weights=cumulative, k=rng.randint(7, 15))
        if rng.random() < 0.2:
            text[rng.randrange(len(text))] = rng.choice(_ODD)
        captions_made[" ".join(text).capitalize() + rng.choice([".", ".", " .", ""])] = None
    return list(captions_made)


def published(data: str) -> list[str]:
    """Distinct captions of the published data."""
    from capbench.datasets.captions import load_captions
    from capbench.datasets.root import find_root

    texts: dict[str, None] = {}
    for corpus in ("flickr8k", "coco-test"):
        for captions in load_captions(corpus, find_root(data)).values():
            texts.update(dict.fromkeys(captions))
    return list(texts)


def main() -> None:
    """Run both and print what they took, and whether they agree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of the published data; generated captions if not given")
    parser.add_argument("--captions", type=int, default=100_000, help="generated captions (default 100000)")
    options = parser.parse_args()
    captions = published(options.data) if options.data else generated(options.captions)
    print(f"{platform.platform()}, Python {platform.python_version()}, capbench {version('capbench')}, ", end="")
    print(f"Java {find_java().version}; {len(captions):,} distinct captions")

    begin = time.perf_counter()
    tokenizer = NativeTokenizer()
    ready = time.perf_counter() - begin
    seconds = []
    for _ in range(2):
        begin = time.perf_counter()
        native = [tokenizer.tokenize(caption) for caption in captions]
        seconds.append(time.perf_counter() - begin)
    begin = time.perf_counter()
    reference = tokenize_jar(captions)
    jar = time.perf_counter() - begin
    begin = time.perf_counter()
    tokenize_jar(captions[:1])
    start = time.perf_counter() - begin

    for name, took in (("native, first pass", seconds[0]), ("native, words known", seconds[1]), ("jar", jar)):
        print(f"{name:20} {took:7.2f} s {len(captions) / took:10,.0f} captions/s")
    print(f"to be ready: native {ready:.2f} s, jar (one caption, with Java's start) {start:.2f} s")
    routed = sum(tokens is None for tokens in native)
    differ = sum(tokens is not None and tokens != text for tokens, text in zip(native, reference, strict=True))
    print(f"handed back to the jar: {routed} ({100 * routed / len(captions):.4f} %); different tokens: {differ}")


if __name__ == "__main__":
    main()

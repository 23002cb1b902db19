"""PTB tokenisation: capbench's engine without Java beside the jar that it follows.

Both see the same captions, each distinct one once, as often as the other (``--repeats``). The least processor time
counts (user and system, Java's process with its threads included), and their tokens must be the same. By default
captions are generated (plain words, some punctuation, contractions, abbreviations and numbers); with ``--data DIR``
they are all captions of Flickr8k and those of COCO's Karpathy test split.

Example: python scripts/bench/tokenizer.py --captions 100000
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import random
from collections.abc import Callable
from importlib.metadata import version
from typing import TypeVar

from capbench.text.java import find_java
from capbench.text.ptb import NativeTokenizer, tokenize_jar

T = TypeVar("T")
_ODD = ["it's", "can't", "St.", "U.S.", "1,000", "10:30", "well-known", '"red"', "(small)", "...", "--", "$5", "p.m."]


def generated(captions: int, seed: int = 0) -> list[str]:
    """Captions of 7 to 15 words, one in five with a token that is not a plain word."""
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
    parser.add_argument("--repeats", type=int, default=3, help="runs of each side, the least counts (default 3)")
    options = parser.parse_args()
    captions = published(options.data) if options.data else generated(options.captions)
    print(f"{platform.platform()}, Python {platform.python_version()}, capbench {version('capbench')}, ", end="")
    print(f"Java {find_java().version}; {len(captions):,} distinct captions")

    repeats = range(options.repeats)
    runs = [timed(lambda: NativeTokenizer().tokenize_all(captions)) for _ in repeats]  # with the automaton's tables
    known = NativeTokenizer()
    native = known.tokenize_all(captions)
    again = [timed(lambda: known.tokenize_all(captions)) for _ in repeats]
    jar_runs = [timed(lambda: tokenize_jar(captions)) for _ in repeats]
    start = min(timed(lambda: tokenize_jar(captions[:1]))[0] for _ in repeats)
    reference = jar_runs[0][1]

    jar = min(seconds for seconds, _ in jar_runs)
    for name, taken in (("native, from nothing", runs), ("native, words known", again), ("jar", jar_runs)):
        seconds = min(each for each, _ in taken)
        rate, ratio = len(captions) / seconds, jar / seconds
        print(f"{name:20} {seconds:7.2f} s CPU {rate:10,.0f} captions/s {ratio:6.1f} x the jar")
    print(f"the jar for one caption, with Java's start: {start:.2f} s CPU")
    routed = sum(tokens is None for tokens in native)
    differ = sum(tokens is not None and tokens != text for tokens, text in zip(native, reference, strict=True))
    print(f"handed back to the jar: {routed} ({100 * routed / len(captions):.4f} %); different tokens: {differ}")
    if differ or any(tokens != native for _, tokens in (*runs, *again)):
        raise SystemExit("the two sides do not give the same tokens")


def timed(work: Callable[[], list[T]]) -> tuple[float, list[T]]:
    """Processor seconds of this process and its children, and what the work gives."""
    begin = sum(os.times()[:4])
    tokens = work()
    return sum(os.times()[:4]) - begin, tokens


if __name__ == "__main__":
    main()

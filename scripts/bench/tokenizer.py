"""PTB tokenisation without Java, compared with the jar (its start included)."""

from __future__ import annotations

import os
from collections.abc import Iterator

from scripts.bench.common import Row, Settings, Work, between
from scripts.bench.inputs import captions


def texts(count: int) -> list[str]:
    """Distinct captions."""
    return list(dict.fromkeys(text for _, references in captions(count // 5) for text in references))


def fresh(texts: list[str]) -> Work:
    """A tokeniser that knows no word yet."""
    from capbench.text.ptb import NativeTokenizer

    NativeTokenizer().tokenize_all(["a dog"])  # with the automaton's tables
    return lambda: NativeTokenizer().tokenize_all(texts)


def known(texts: list[str]) -> Work:
    """A tokeniser that has seen the words."""
    from capbench.text.ptb import NativeTokenizer

    tokenizer = NativeTokenizer()
    tokenizer.tokenize_all(texts)
    return lambda: tokenizer.tokenize_all(texts)


def jar(texts: list[str]) -> Work:
    """pycocoevalcap's wrapper of Stanford's tokeniser."""
    from capbench.text.java import find_java

    os.environ["PATH"] = f"{find_java().path.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    items = {place: [{"caption": text}] for place, text in enumerate(texts)}
    return lambda: [tokens for (tokens,) in PTBTokenizer().tokenize(items).values()]


def measure(settings: Settings) -> Iterator[Row]:
    """Unknown and known words."""
    distinct = texts(settings.pick(10_000, 60_000))
    for title, ours in (("new words", fresh), ("known words", known)):
        what = f"tokenisation, {len(distinct):,} captions, {title}"
        yield between(what, "PTB jar", ours, jar, distinct, repeats=settings.repeats)

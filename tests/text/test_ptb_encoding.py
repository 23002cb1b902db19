from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from capbench.text import ptb
from capbench.text.ptb import CaptionEncoder, NativeTokenizer, tokenize

_TEXTS = st.one_of(
    st.lists(
        st.sampled_from(
            [
                *(
                    "a",
                    "A",
                    "dog",
                    "dogs.",
                    "St.",
                    "U.S.",
                    "p.m.",
                    "can't",
                    "cannot",
                    "1/2",
                    "2",
                    "$5",
                    "No.",
                    "",
                    "...",
                ),
                *(
                    "S.",
                    "(small)",
                    '"red"',
                    "a.",
                    "m.",
                    "\t",
                    "\u00a0",
                    "5\u00a01/2",
                    ":-)",
                    "well-known",
                    "gonna",
                    "Σ",
                ),
            ]
        ),
        max_size=8,
    ).map(" ".join),
    st.text(st.characters(codec="utf-8"), max_size=12),
    st.text("aAbsS.,'\"-– 12/:$()\n\r\u2028\u00a0", max_size=12),
)
_TOKENIZER = NativeTokenizer()
SIZES = [
    pytest.param(settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))),
    pytest.param(
        settings(max_examples=1_000, deadline=None, suppress_health_check=list(HealthCheck)), marks=pytest.mark.slow
    ),
]


@pytest.mark.parametrize("size", SIZES)
def test_captions_cut_all_at_once_have_the_tokens_of_each_alone(size: settings) -> None:
    @size
    @given(st.lists(_TEXTS, max_size=6))
    @example(["a dog.", "", " ", "Σ", "the letter S.", "a\nb", "5\u00a01/2 x", "St. Louis", "St."])
    def check(captions: list[str]) -> None:
        fresh = [NativeTokenizer.tokenize(_TOKENIZER, caption) for caption in captions]
        assert _TOKENIZER.tokenize_all(captions) == fresh
        # And what the automaton finds when it reads each caption from end to end, without any memory of pieces.
        for caption, tokens in zip(captions, fresh, strict=True):
            whole = _TOKENIZER._whole(caption)
            assert whole is None or tokens == whole

    check()


def _jar(captions: Sequence[str]) -> list[str]:
    return [caption.lower() for caption in captions]  # stands for the jar


@pytest.mark.parametrize("size", SIZES)
def test_numbers_stand_for_the_words_of_the_tokens(size: settings) -> None:
    @size
    @given(st.lists(_TEXTS, max_size=6))
    @example(["", "a dog.", "5\u00a01/2 x", "\u00a0", "Σ Σ"])
    def check(captions: list[str]) -> None:
        encoder = CaptionEncoder(_TOKENIZER, _jar)
        words, lengths, spaced = encoder.encode(captions)
        names = list(encoder.vocabulary)
        ends = np.cumsum(lengths)
        for i, caption in enumerate(captions):
            tokens = _TOKENIZER.tokenize(caption)
            text = caption.lower() if tokens is None else tokens
            assert [names[n] for n in words[ends[i] - lengths[i] : ends[i]]] == text.split()
            cut = [names[n] for n in spaced[i]] if i in spaced else text.split()
            assert cut == text.split(" ")

    check()


def test_memory_of_pieces_is_bounded_and_parts_fit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptb, "_REMEMBERED_WORDS", 5)
    monkeypatch.setattr(ptb, "_AT_ONCE", 3)
    encoder = CaptionEncoder(NativeTokenizer(), _jar)
    captions = [f"a {name} of {n} p.m. runs{end}" for n in range(7) for name in ("dog", "cat") for end in ("", ".")] + [
        ""
    ]
    words, lengths, spaced = encoder.encode(captions)
    names = list(encoder.vocabulary)
    texts = tokenize(captions, cache=False)
    assert [names[n] for n in words] == " ".join(texts).split()
    assert lengths.tolist() == [len(text.split()) for text in texts]
    assert spaced == {len(captions) - 1: [encoder.vocabulary[""]]}
    assert len(encoder._numbers) <= 5

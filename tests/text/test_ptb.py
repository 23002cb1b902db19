from __future__ import annotations

import random
from pathlib import Path

import pytest

from capbench.core.cache import Cache
from capbench.core.errors import CapbenchWarning, DataError, ToolError, UsageError
from capbench.text import ptb
from capbench.text.java import find_java
from tests.errors import raises


@pytest.fixture(autouse=True)
def _fresh_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptb, "_known", {})


def _no_jar(captions: object) -> list[str]:
    raise AssertionError("the tokeniser was started")


def _reference(captions: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Tokens by pycocoevalcap's wrapper, which starts ``java`` from the PATH."""
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    monkeypatch.setenv("PATH", str(find_java().path.parent), prepend=":")
    found = PTBTokenizer().tokenize({i: [{"caption": text}] for i, text in enumerate(captions)})
    return [tokens for i in range(len(captions)) for tokens in found.get(i, [""])]


@pytest.mark.java
def test_lower_case_tokens_without_punctuation() -> None:
    captions = [
        "A Man's dog -- the \"big\" one -- can't swim!",
        "Two  spaces,   three.",
        "It costs $5.50 (really); ok?",
    ]
    assert ptb.tokenize(captions) == [
        "a man 's dog the big one ca n't swim",
        "two spaces three",
        "it costs $ 5.50 -lrb- really -rrb- ok",
    ]


@pytest.mark.java
def test_empty_captions_give_empty_text_and_shift_nothing() -> None:
    assert ptb.tokenize(["", "a dog", "   ", "", ". . !", "a cat", "", ""]) == [
        "",
        "a dog",
        "",
        "",
        "",
        "a cat",
        "",
        "",
    ]


@pytest.mark.java
def test_line_ends_inside_a_caption_shift_nothing() -> None:
    broken = [f"left{end}right" for end in ("\n", "\r", "\r\n", "\x0b", "\x0c", "\u2028", "\u2029", "\n\n")]
    assert ptb.tokenize([*broken, "after"]) == ["left right"] * len(broken) + ["after"]


@pytest.mark.java
def test_unusual_characters_shift_nothing() -> None:
    odd = ["zero\0zero", "file\x1cseparator", "next\x85line", "emoji 😀 end", "hard\u00a0space", "*NL*", "x", "a ||| b"]
    tokens = ptb.tokenize([*odd, "after"])
    assert tokens[-1] == "after"
    assert tokens[-4:-1] == ["* nl *", "x", "a | | | b"]
    assert tokens[4] == "hard space"


@pytest.mark.java
def test_tokens_of_a_caption_do_not_depend_on_the_next_one() -> None:
    # Where a caption ends in an abbreviation, the tokeniser by itself looks at what comes next.
    alone = ptb.tokenize_jar(["this is house no."])
    assert ptb.tokenize_jar(["this is house no.", "5 dogs"])[:1] == alone
    assert (
        ptb.tokenize_jar(["a sign with the letter A.", "Two dogs"])[0]
        == ptb.tokenize_jar(["a sign with the letter A.", "two dogs"])[0]
    )


@pytest.mark.java
def test_same_as_the_reference_wrapper(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [
        "A",
        "dog",
        "U.S.",
        "can't",
        "it's",
        "(red)",
        '"big"',
        "'",
        "``",
        "...",
        ";",
        "3/4",
        "10:30",
        "café",
        "&",
        "x-ray",
    ]
    generator = random.Random(7)
    captions = [" ".join(generator.choices(words, k=generator.randint(0, 12))) + " end." for _ in range(300)]
    assert ptb.tokenize(captions) == _reference(captions, monkeypatch)


@pytest.mark.java
@pytest.mark.real_data
def test_same_as_the_reference_wrapper_on_published_captions(real_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (real_data / "flickr8k" / "Flickr8k.token.txt").read_text("utf-8").splitlines()
    captions = [line.split("\t")[1] for line in lines[::13]]
    assert len(captions) > 3000
    assert ptb.tokenize(captions) == _reference(captions, monkeypatch)


@pytest.mark.java
def test_distinct_captions_are_tokenised_once_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    first = ptb.tokenize(["a dog", "a cat", "a dog"], engine="jar", cache=False)
    monkeypatch.setattr(ptb, "tokenize_jar", _no_jar)
    assert ptb.tokenize(["a cat", "a dog"], engine="jar", cache=False) == [first[1], first[0]]


@pytest.mark.java
def test_a_later_process_reads_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    first = ptb.tokenize(["A dog!", ""], engine="jar")
    monkeypatch.setattr(ptb, "_known", {})
    monkeypatch.setattr(ptb, "tokenize_jar", _no_jar)
    assert ptb.tokenize(["A dog!", ""], engine="jar") == first == ["a dog", ""]
    with pytest.raises(AssertionError):
        ptb.tokenize(["A dog!", "another"], engine="jar")


def test_tokens_that_were_finished_survive_an_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def breaks_down(captions: list[str]) -> list[str]:
        calls.append(len(captions))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return [caption.upper() for caption in captions]

    monkeypatch.setattr(ptb, "_BATCH", 10)
    monkeypatch.setattr(ptb, "tokenize_jar", breaks_down)
    captions = [f"caption {i}" for i in range(45)]
    with pytest.raises(KeyboardInterrupt):
        ptb.tokenize(captions, engine="jar")
    monkeypatch.setattr(ptb, "_known", {})
    assert ptb.tokenize(captions, engine="jar") == [caption.upper() for caption in captions]
    assert calls == [10, 10, 10, 10, 10, 5]


def test_without_a_cache_it_still_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("CAPBENCH_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr(ptb, "tokenize_jar", lambda captions: ["tokens"] * len(captions))
    with pytest.warns(CapbenchWarning, match="'tokens'"):
        assert ptb.tokenize(["a"], engine="jar") == ["tokens"]


def test_switched_off_cache_is_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptb, "tokenize_jar", lambda captions: ["tokens"] * len(captions))
    ptb.tokenize(["a"], engine="jar", cache=False)
    with Cache("tokens") as cache:
        assert cache.get(ptb.VERSION, [ptb._key("a")]) == {}


def test_answer_that_is_out_of_step_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for answer in ("a\nx\n", "a\nb\nx\nx\n", "a\nx\nb\nx\nc\n", ""):
        monkeypatch.setattr(ptb, "run_batch", lambda *_, answer=answer, **__: answer)
        with raises(ToolError, "mismatch"):
            ptb.tokenize(["a", "b"], engine="jar", cache=False)


def test_half_a_surrogate_pair_is_a_data_error() -> None:
    with raises(DataError, "unreadable", value="broken \ud83d"):
        ptb.tokenize(["a dog", "broken \ud83d"])


def test_unknown_engine_prints_the_choices() -> None:
    with raises(UsageError, "unknown-name", value="nltk") as caught:
        ptb.tokenize(["a"], engine="nltk")  # type: ignore[arg-type]
    assert "native, jar" in str(caught.value.hint)


def test_no_captions_start_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptb, "run_batch", _no_jar)
    assert ptb.tokenize([]) == []
    assert ptb.tokenize_jar([]) == []


def test_the_native_engine_needs_no_jar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptb, "tokenize_jar", _no_jar)
    assert ptb.tokenize(["A dog's ball (red).", "", "A dog's ball (red)."]) == [
        "a dog 's ball -lrb- red -rrb-",
        "",
        "a dog 's ball -lrb- red -rrb-",
    ]


@pytest.mark.java
def test_what_the_native_engine_does_not_match_goes_to_the_jar() -> None:
    captions = ["a dog", "ΤΟΣ ΣΟΦΟΣ", "two dogs"]
    assert ptb.tokenize(captions) == ptb.tokenize(captions, engine="jar")

"""METEOR's normaliser and stemmer."""

from __future__ import annotations

import pytest

from capbench.text.java import meteor_jar, run_lines
from capbench.text.meteor import paraphrases
from capbench.text.meteor.aligner import java_hash
from capbench.text.meteor.stemmer import stem, words

LINES = {
    "a dog runs": "a dog runs",
    "  A Dog,  runs ": "a dog , runs",
    "the dog's ball isn't dogs' 'quoted' 90's": "the dog 's ball isn 't dogs ' ' quoted ' 90 's",
    "``well'' he said": '" well " he said',
    "t-shirt 3-4 a--b - x - u.s.-based": "t shirt 3 4 a b - x - us based",
    "3,000 dogs, cats,3 4,a": "3,000 dogs , cats , 3 4 , a",
    "wait... what.. no....": "wait ... what .. no ....",
    "the u.s.a. team. e.g. this. dr. no. 5 no. x fig. Y": "the usa team. eg this. dr. no . 5 no. x fig . y",
    "end.": "end .",
    ".": ".",
    "50% of $3 (half) [x] #1 @you a/b c_d": "50 % of $ 3 ( half ) [ x ] # 1 @ you a / b c _ d",
    "x=1 & y": "x = 1 & y",
    "": "",
    " . , ": ". ,",
    "2.5 .5 5. 5.": "2.5 .5 5 . 5 .",
    "the dog\u2019s \u201cball\u201d\u00a0is\u2013red": 'the dog \'s " ball " is - red',
    "two\U0001f600s": "two \U0001f600 s",
    "Caf\u00e9 \u017dIVOT \u0416\u0416 \u4e2d\u6587": "caf\u00e9 \u017eivot \u0436\u0436 \u4e2d \u6587",
}


@pytest.mark.parametrize("line", LINES)
def test_lines_are_normalised(line: str) -> None:
    assert " ".join(words(line)) == LINES[line]


@pytest.mark.java
def test_the_jars_normaliser_gives_the_same() -> None:
    lines = [line for line in LINES if line]
    jar = meteor_jar()
    command = ["-cp", jar.name, "edu.cmu.meteor.util.Normalizer", "en", "true"]
    out = run_lines(command, lines, name="normaliser", folder=jar.parent)
    assert [line.lower() for line in out] == [LINES[line] for line in lines]


STEMS = """
    running run runs run children children flies fli dies die happily happili hopping hop hoping hope skies sky
    dying die news news proceed proceed agreed agre feed feed bled bled troubled troubl say say cry cri by by
    relational relat operator oper decisiveness decis apology apolog formative format allowance allow adoption adopt
    rate rate cease ceas roll roll generous generous general general communism communism arsenal arsenal dog's dog
    dogs' dog 'tis tis gas gas this this yellow yellow saying say cafés café
""".split()  # noqa: SIM905


def test_words_are_stemmed() -> None:
    assert [stem(word) for word in STEMS[::2]] == STEMS[1::2]


def test_function_words_are_the_jars() -> None:
    assert {"the", "a", "of", "'s", "-rrb-"} <= paraphrases.function_words()
    assert "dog" not in paraphrases.function_words()


def test_hashes_are_javas() -> None:
    assert java_hash("") == 0
    assert java_hash("dog") == 99644
    assert java_hash("let") == java_hash("n't")  # two words that METEOR takes for one
    assert java_hash("caf\u00e9") == java_hash("caf\u00e8") + 1
    assert java_hash("\U0001f600") == 0xD83D * 31 + 0xDE00

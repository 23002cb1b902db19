"""Invented captions, tokenised, with the tuples of SPICE's parser."""

from __future__ import annotations

_TUPLES = {
    "two small brown dogs chase a red ball across the wet grass": (
        "chase,small/chase,brown/ball,red/grass,wet/ball,grass,across/chase,dog/ball/grass"
    ),
    "a woman 's green umbrella lies behind the bench": (
        "umbrella,bench,lie behind/umbrella,green/woman,umbrella,have/bench/umbrella/woman"
    ),
    "an old man sits next to a young girl and they eat ice cream": (
        "man,girl,sit next to/man,cream,eat/girl,young/man,old/cream,ice/girl/man"
    ),
    "a couch and a sofa stand in front of three big windows": (
        "couch,window,stand in front of/sofa,window,stand in front of/window,big/window,three/window/front/couch/sofa"
    ),
    "a dog runs": "dog,run/dog",
    "running quickly": "",
    "the boy is very tall": "boy,tall/boy,tall/boy",
    "a gray cat a grey cat and a kitten sleep on the couch": (
        "cat,gray/cat,grey/sleep,couch,on/sleep,kitten/cat/cat/couch"
    ),
    "kids are being watched by their teacher": "kid,teacher,have/teacher,kid,watch/teacher/kid",
}
CAPTIONS: dict[str, list[list[str]]] = {
    caption: [words.split(",") for words in tuples.split("/") if words] for caption, tuples in _TUPLES.items()
}

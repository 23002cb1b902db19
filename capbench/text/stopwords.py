"""English function words that Word Mover's Distance leaves out.

The set is that of NLTK's English list as it stood for years (179 words; NLTK keeps it in a data package that its
wheel does not hold). Three kinds of entries: whole words, contractions with their apostrophe, and the
pieces that a split at the apostrophe leaves behind (``couldn``, ``ll``, ``t``).
"""

from __future__ import annotations

from typing import Final

__all__ = ["ENGLISH"]

_PRONOUNS = """
    i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers herself
    it its itself they them their theirs themselves what which who whom this that these those
"""
_VERBS = """
    am is are was were be been being have has had having do does did doing can will should
"""
_PARTICLES = """
    a an the and but if or because as until while of at by for with about against between into through during before
    after above below to from up down in out on off over under again further then once here there when where why how
    all any both each few more most other some such no nor not only own same so than too very just now
"""
_NEGATED = "aren couldn didn doesn don hadn hasn haven isn mightn mustn needn shan shouldn wasn weren won wouldn"
_CONTRACTED = "you're you've you'll you'd she's it's that'll should've"
_PIECES = "s t d ll m o re ve y ain ma"

ENGLISH: Final[frozenset[str]] = frozenset(
    [
        *_PRONOUNS.split(),
        *_VERBS.split(),
        *_PARTICLES.split(),
        *_NEGATED.split(),
        *(f"{stem}'t" for stem in _NEGATED.split()),
        *_CONTRACTED.split(),
        *_PIECES.split(),
    ]
)
"""179 lower-case words."""

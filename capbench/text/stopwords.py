"""English function words that metrics over word vectors leave out.

:data:`ENGLISH` is that of NLTK's English list as it stood for years (179 words; NLTK keeps it in a data package that
its wheel does not hold). Three kinds of entries: whole words, contractions with their apostrophe, and the
pieces that a split at the apostrophe leaves behind (``couldn``, ``ll``, ``t``).
"""

from __future__ import annotations

from typing import Final

__all__ = ["ENGLISH", "GLASGOW"]

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

_GLASGOW = """
    a about above across after afterwards again against all almost alone along already also although always am among
    amongst amoungst amount an and another any anyhow anyone anything anyway anywhere are around as at
    back be became because become becomes becoming been before beforehand behind being below beside besides between
    beyond bill both bottom but by
    call can cannot cant co con could couldnt cry de describe detail do done down due during
    each eg eight either eleven else elsewhere empty enough etc even ever every everyone everything everywhere except
    few fifteen fifty fill find fire first five for former formerly forty found four from front full further
    get give go had has hasnt have he hence her here hereafter hereby herein hereupon hers herself him himself his how
    however hundred i ie if in inc indeed interest into is it its itself keep last latter latterly least less ltd
    made many may me meanwhile might mill mine more moreover most mostly move much must my myself
    name namely neither never nevertheless next nine no nobody none noone nor not nothing now nowhere
    of off often on once one only onto or other others otherwise our ours ourselves out over own
    part per perhaps please put rather re same see seem seemed seeming seems serious several she should show side since
    sincere six sixty so some somehow someone something sometime sometimes somewhere still such system
    take ten than that the their them themselves then thence there thereafter thereby therefore therein thereupon these
    they thick thin third this those though three through throughout thru thus to together too top toward towards
    twelve twenty two un under until up upon us very via was we well were what whatever when whence whenever where
    whereafter whereas whereby wherein whereupon wherever whether which while whither who whoever whole whom whose why
    will with within without would yet you your yours yourself yourselves
"""

GLASGOW: Final[frozenset[str]] = frozenset(_GLASGOW.split())
"""The 318 words of the Glasgow Information Retrieval Group's list, slips included, as scikit-learn has it."""

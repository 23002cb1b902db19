"""The stop word lists."""

from __future__ import annotations

import hashlib

from capbench.text.vocabulary import ENGLISH


def test_the_list_is_nltks_of_179_words() -> None:
    assert len(ENGLISH) == 179
    # Digest of NLTK's list, sorted, one word a line: a word more, less or changed is another list.
    assert hashlib.sha256("\n".join(sorted(ENGLISH)).encode()).hexdigest()[:16] == "63c081f949766b37"

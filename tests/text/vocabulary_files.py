"""Vocabulary files in the form of the published models."""

from __future__ import annotations

import json
from pathlib import Path

from capbench.text.vocabulary import Vocabulary


def write_vocabulary(path: Path | str, vocabulary: Vocabulary) -> None:
    """Write the JSON format of the published models."""
    words = vocabulary.words
    record = {
        "word2idx": {word: i for i, word in enumerate(words)},
        "idx2word": {str(i): word for i, word in enumerate(words)},
        "idx": len(words),
    }
    Path(path).write_text(json.dumps(record, ensure_ascii=False), encoding="utf-8")

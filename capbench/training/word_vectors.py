"""Training of word vectors on caption corpora (word2vec, Mikolov et al. 2013)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import DataError, ModelError, require
from capbench.core.options import Count, Options, option
from capbench.text import ptb

__all__ = ["WordVectorOptions", "train_sequence_vectors", "train_word_vectors"]


@dataclass(frozen=True)
class WordVectorOptions(Options):
    """Settings of word vector training."""

    dimension: int = option(300, Count(1), "components of a vector")
    window: int = option(5, Count(1), "predicted words on each side")
    min_count: int = option(2, Count(1), "minimum frequency of words with a vector")
    epochs: int = option(20, Count(1), "passes over the captions")
    negative: int = option(5, Count(1), "noise words sampled for each word")
    seed: int = option(1, Count(0, 2**32 - 1), "seed of all random numbers")


def train_word_vectors(
    captions: Sequence[str],
    options: WordVectorOptions | None = None,
    progress: Callable[[int], None] = lambda _done: None,
) -> tuple[list[str], NDArray[np.float32]]:
    """Train skip-gram vectors with negative sampling on the PTB tokens of captions.

    Training uses one thread, so that the same captions in the same order and the same seed yield the same vectors, bit
    for bit, with the same gensim and numpy on the same kind of processor.

    Args:
        captions: texts as published; repeats count as often as they occur.
        options: see :class:`WordVectorOptions`.
        progress: called with 1 after each epoch.

    Returns:
        The words, most frequent first, and their (n, dimension) float32 vectors.

    Raises:
        UsageError: an option is invalid.
        DataError: no word is frequent enough.
        ModelError: gensim is not installed.
    """
    options = WordVectorOptions.read("word-vectors", vars(options or WordVectorOptions()))
    _word2vec()  # reports a missing package before the captions are tokenised
    return train_sequence_vectors([text.split() for text in ptb.tokenize(captions)], options, progress)


def train_sequence_vectors(
    sentences: Sequence[Sequence[str]],
    options: WordVectorOptions,
    progress: Callable[[int], None] = lambda _done: None,
) -> tuple[list[str], NDArray[np.float32]]:
    """:func:`train_word_vectors` for tokenised texts."""
    word2vec = _word2vec()
    model = word2vec(
        vector_size=options.dimension,
        window=options.window,
        min_count=options.min_count,
        negative=options.negative,
        seed=options.seed,
        sg=1,
        workers=1,
    )
    model.build_vocab(sentences)
    if not len(model.wv):
        raise DataError(
            f"no word occurs {options.min_count} times in {len(sentences)} captions",
            code="too-few",
            value=options.min_count,
            hint="Provide more captions or a lower --min-count",
        )
    # One call for all epochs, since the learning rate decreases over all of them; the callback reports progress.
    model.train(
        sentences,
        total_examples=model.corpus_count,
        epochs=options.epochs,
        callbacks=[_callback(progress)],
    )
    matrix = np.array(model.wv.vectors, dtype=np.float32)
    if not np.isfinite(matrix).all():
        raise ModelError(
            "the training did not converge: a vector is not finite", code="not-converged", hint="Try fewer epochs"
        )
    return list(model.wv.index_to_key), matrix


def _word2vec() -> Any:
    require("gensim", purpose="training word vectors")
    from gensim.models import Word2Vec

    return Word2Vec


def _callback(progress: Callable[[int], None]) -> Any:
    from gensim.models.callbacks import CallbackAny2Vec

    class EpochDone(CallbackAny2Vec):  # type: ignore[misc]  # gensim has no types
        def on_epoch_end(self, model: Any) -> None:
            del model
            progress(1)

    return EpochDone()

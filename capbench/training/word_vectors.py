"""Training of word vectors on caption corpora (word2vec, Mikolov et al. 2013)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import DataError, ModelError, count, require
from capbench.core.options import Count, Options, option
from capbench.core.training_record import TrainingRecord, captions_of, photographs_of
from capbench.datasets.base import dataset_names
from capbench.datasets.captions import load_captions
from capbench.datasets.opening import judged_images
from capbench.datasets.root import DataRoot
from capbench.datasets.user.judgements import imported_names
from capbench.text import ptb
from capbench.text.word_vectors import write_word2vec
from capbench.weights.training_files import write_training_record

Bars = Callable[[str, "int | None"], AbstractContextManager[Callable[[int], None]]]
"""Opens a progress bar from a description and a number of steps."""


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


# Vectors of caption corpora as a file with the record of its captions.


@dataclass(frozen=True)
class CaptionVectors:
    """Trained vectors of corpora.

    Attributes:
        words: number of words.
        captions: number of captions.
        judged: number of images that were left out because they are judged.
    """

    words: int
    captions: int
    judged: int


def train_caption_vectors(
    corpora: Sequence[str],
    out: Path,
    root: DataRoot,
    options: WordVectorOptions,
    bars: Bars,
    *,
    include_judged: bool = False,
    say: Callable[[str], None] = lambda _text: None,
) -> CaptionVectors:
    """Train word vectors on the captions of corpora, and write them with the record of their captions.

    Captions of judged images are left out by default: metrics whose vectors have read the references and candidates on
    which they are tested agree better with the ratings than they would on other images.

    Args:
        corpora: names of corpora or files (:func:`capbench.datasets.captions.load_captions`).
        out: the file, in word2vec's binary format; the record is next to it.
        root: the data folder, whose data sets of judgements name the images to leave out.
        options: see :class:`WordVectorOptions`.
        bars: opens progress bars.
        include_judged: True to read the captions of judged images, too.
        say: receives a message about images that are left out.

    Raises:
        DataError: a file is invalid, all images are judged, or no word is frequent enough.
        CapbenchError: see :func:`train_word_vectors` and :func:`capbench.datasets.captions.load_captions`.
    """
    read = [load_captions(name, root) for name in corpora]
    _word2vec()  # reports a missing package before the data sets are read
    judged: dict[str, set[str]] = {}
    if not include_judged:
        known = [*dataset_names(), *imported_names(root)]
        with bars("reading the images of judged data sets", len(known)) as step:
            judged = judged_images(root, step)
    left_out = photographs_of(image for images in judged.values() for image in images)
    images = [image for captions in read for image in captions]
    is_judged = dict(zip(images, left_out.has_photographs(images).tolist(), strict=True))
    remaining = dict.fromkeys(image for image in images if not is_judged[image])
    number = len(is_judged) - len(remaining)
    if not remaining:
        by = [name for name, of_name in judged.items() if photographs_of(of_name).has_photographs(images).any()]
        raise DataError(
            f"{count(number, 'image')} of {', '.join(corpora)}: all are judged, by {', '.join(by)}",
            code="too-few",
            value=0,
            hint="Name other captions, or read those of judged images with --include-judged (include_judged=True)",
        )
    if number:
        say(
            f"captions of {number:,} of {len(is_judged):,} images are left out, since these images are judged "
            "(--include-judged reads them)"
        )
    texts = [text for captions in read for image in captions if image in remaining for text in captions[image]]
    with bars("training word vectors", options.epochs) as done:
        words, matrix = train_word_vectors(texts, options, done)
    write_word2vec(out, words, matrix)
    facts = {"left_out": sorted(judged), "images": number} if not include_judged else {"included": True}
    record = TrainingRecord(out.name, photographs_of(remaining), captions_of(texts), judged=facts)
    write_training_record(out, record)
    return CaptionVectors(len(words), len(texts), number)

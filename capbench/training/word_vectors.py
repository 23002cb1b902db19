"""Word vectors of caption corpora (word2vec, Mikolov et al. 2013), with the record of their captions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import DataError, ModelError, count, require
from capbench.core.files import sha256_file
from capbench.core.options import Count, Options, option
from capbench.core.training_record import TrainingRecord, captions_of, photographs_of
from capbench.datasets.base import dataset_names
from capbench.datasets.captions import load_captions
from capbench.datasets.opening import judged_images
from capbench.datasets.root import DataRoot
from capbench.datasets.user.judgements import imported_folders
from capbench.text import ptb
from capbench.text.word_vectors import write_word2vec
from capbench.weights.training_files import write_training_record


@dataclass(frozen=True)
class WordVectorOptions(Options):
    """Settings of the training."""

    dimension: int = option(300, Count(1), "components of a vector")
    window: int = option(5, Count(1), "predicted words on each side")
    min_count: int = option(2, Count(1), "minimum frequency of words with a vector")
    epochs: int = option(20, Count(1), "passes over the captions")
    seed: int = option(1, Count(0, 2**32 - 1), "seed of all random numbers")


@dataclass(frozen=True)
class TrainedVectors:
    """Trained word vectors."""

    path: Path  # the file, for WMD's option ``vectors``
    words: int  # number of words
    dimension: int
    captions: int  # number of training captions
    sha256: str  # of the file
    left_out: int = 0  # number of images whose captions were left out because they are judged


def train_sequence_vectors(
    sentences: Sequence[Sequence[str]],
    options: WordVectorOptions,
    progress: Callable[[int], None] = lambda _done: None,  # called with 1 after each epoch
) -> tuple[list[str], NDArray[np.float32]]:
    """Train skip-gram vectors with negative sampling on sequences of words, in one thread, so that a seed repeats them.

    Returns the words, most frequent first, and their (n, dimension) float32 vectors.
    """
    from gensim.models import Word2Vec
    from gensim.models.callbacks import CallbackAny2Vec

    class Epochs(CallbackAny2Vec):  # type: ignore[misc]  # gensim has no types
        def on_epoch_end(self, model: Any) -> None:
            progress(1)

    sizes = {"vector_size": options.dimension, "window": options.window, "min_count": options.min_count}
    model = Word2Vec(**sizes, negative=5, seed=options.seed, sg=1, workers=1)
    model.build_vocab(sentences)
    if not len(model.wv):
        message, hint = f"no word occurs {options.min_count} times in {len(sentences)} captions", "Lower --min-count"
        raise DataError(message, code="too-few", value=options.min_count, hint=hint)
    model.train(sentences, total_examples=model.corpus_count, epochs=options.epochs, callbacks=[Epochs()])
    matrix = np.array(model.wv.vectors, dtype=np.float32)
    if not np.isfinite(matrix).all():
        raise ModelError("a vector is not finite", code="not-converged", hint="Try fewer epochs")
    return list(model.wv.index_to_key), matrix


def train_caption_vectors(
    corpora: Sequence[str], out: Path, root: DataRoot, options: WordVectorOptions, caller: Any, *, include_judged: bool
) -> TrainedVectors:
    """Train word vectors on corpora, and write them (word2vec's binary format) with the record of their captions.

    Captions of judged images are left out unless ``include_judged``: vectors that have read them agree better there.
    """
    require("gensim", purpose="training word vectors")
    read = [load_captions(name, root) for name in corpora]
    ratings: dict[str, set[str]] = {}
    if not include_judged:
        known = [*dataset_names(), *imported_folders(root)]
        with caller.progress("reading the images of judged data sets", len(known)) as step:
            ratings = judged_images(root, step)
    images = list(dict.fromkeys(image for captions in read for image in captions))
    is_judged = photographs_of({image for of_name in ratings.values() for image in of_name}).has_photographs(images)
    remaining = {image for image, left_out in zip(images, is_judged, strict=True) if not left_out}
    number = len(images) - len(remaining)
    if not remaining:
        by = [name for name, of_name in ratings.items() if photographs_of(of_name).has_photographs(images).any()]
        message = f"{count(number, 'image')} of {', '.join(corpora)}: all are judged, by {', '.join(by)}"
        hint = "Name other captions, or read those of judged images with --include-judged (include_judged=True)"
        raise DataError(message, code="too-few", value=0, hint=hint)
    if number:
        caller.tell(
            f"captions of {number:,} of {len(images):,} images are left out, since these images are judged "
            "(--include-judged reads them)"
        )
    texts = [text for captions in read for image in captions if image in remaining for text in captions[image]]
    with caller.progress("training word vectors", options.epochs) as done:
        words, matrix = train_sequence_vectors([text.split() for text in ptb.tokenize(texts)], options, done)
    write_word2vec(out, words, matrix)
    facts = {"included": True} if include_judged else {"left_out": sorted(ratings), "images": number}
    photographs = photographs_of(image for image in images if image in remaining)
    write_training_record(out, TrainingRecord(out.name, photographs, captions_of(texts), treatment=facts))
    return TrainedVectors(out, len(words), options.dimension, len(texts), sha256_file(out), number)

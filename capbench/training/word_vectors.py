"""Word vectors of caption corpora (word2vec, Mikolov et al. 2013), with the record of their captions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from capbench.core.errors import DataError, count, require
from capbench.core.files import sha256_file
from capbench.core.training_record import TrainingRecord, captions_of, photographs_of
from capbench.datasets.base import dataset_names
from capbench.datasets.captions import load_captions
from capbench.datasets.opening import judged_images
from capbench.datasets.root import DataRoot
from capbench.datasets.user.judgements import imported_folders
from capbench.text import ptb
from capbench.text.word_vectors import train_word2vec, write_word2vec
from capbench.weights.training_files import write_training_record


@dataclass(frozen=True)
class TrainedVectors:
    """Trained word vectors."""

    path: Path  # the file, for WMD's option ``vectors``
    words: int  # number of words
    dimension: int
    captions: int  # number of training captions
    sha256: str  # of the file
    left_out: int = 0  # number of images whose captions were left out because they are judged


def train_caption_vectors(
    corpora: Sequence[str],
    out: Path,
    root: DataRoot,
    caller: Any,
    *,
    include_judged: bool = False,
    epochs: int = 20,
    **settings: Any,  # further ones of :func:`train_word2vec`
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
    sentences = [text.split() for text in ptb.tokenize(texts)]
    with caller.progress("training word vectors", epochs) as done:
        words, matrix = train_word2vec(sentences, done, epochs=epochs, **settings)
    write_word2vec(out, words, matrix)
    facts = {"included": True} if include_judged else {"left_out": sorted(ratings), "images": number}
    photographs = photographs_of(image for image in images if image in remaining)
    write_training_record(out, TrainingRecord(out.name, photographs, captions_of(texts), treatment=facts))
    return TrainedVectors(out, len(words), matrix.shape[1], len(texts), sha256_file(out), number)

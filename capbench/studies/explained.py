"""Captions of one image under several metrics (FAIEr, Wang et al. 2021, Figure 5), and what an explanation is of."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from capbench.core import files
from capbench.core.errors import DataError, FeatureError, ToolError, UsageError
from capbench.core.explanations import Subject
from capbench.core.records import Item, caption_key, image_id, signature_lines
from capbench.datasets.images import all_images, image_finder
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import DataRoot
from capbench.features.store import FeatureStore
from capbench.metrics.metric_request import MetricRequest
from capbench.metrics.needs import Resources, Scores
from capbench.metrics.scoring import score
from capbench.studies.score_files import items_with_scores
from capbench.studies.scoring import with_pictures_of
from capbench.studies.study import ImageTask


@dataclass(frozen=True)
class ImageScores:
    """Captions of one image under several metrics (FAIEr, Wang et al. 2021, Figure 5)."""

    image: str  # id
    references: tuple[str, ...]
    candidates: tuple[str, ...]
    scores: Mapping[str, tuple[float, ...]]  # by title of the metric's column, one score for each candidate
    signatures: tuple[str, ...]  # one line for each metric
    missing: Mapping[str, str]  # by title, the requirement that a metric is missing
    under_root: bool  # True if a data set below the data folder was read
    title: str = ""  # of the study that names the captions


def score_image(
    task: ImageTask,
    requests: Sequence[MetricRequest],
    root: DataRoot,
    *,
    resources: Resources | None = None,
    cache: bool = True,
) -> ImageScores:
    """Score captions of one image with all metrics; those that lack features of this image, or a tool, are named."""
    candidates, references = task.candidates or (), task.references or ()
    under_root = False
    if not (candidates and references):
        dataset = open_dataset(task.dataset or "flickr8k-expert", root)
        under_root = dataset.under_root
        resources = with_pictures_of(dataset, resources or Resources())
        items = [item for item in dataset.load(dataset.protocol().items)[0].items if item.image == task.id]
        if not items:
            message, hint = f"{dataset.name} does not contain the image '{task.id}'", "Set another 'dataset'"
            hint += ", or set 'candidates' and 'references'"
            raise UsageError(message, code="unknown-item", value=task.id, hint=hint)
        references = references or max((item.references for item in items), key=len)
        candidates = candidates or tuple(dict.fromkeys(item.candidate for item in items))
    captions = [Item(task.id, text, references, f"{task.id}#{place}") for place, text in enumerate(candidates)]
    scores: dict[str, tuple[float, ...]] = {}
    signatures: dict[str, str] = {}
    missing: dict[str, str] = {}
    for request in requests:
        complete: Sequence[MetricRequest] = [request]
        try:
            if request.needs(Scores):
                _, complete, incomplete, _ = items_with_scores(captions, [request], f"image {task.id}")
                missing |= {row.title: str(incomplete[row.key]) for row in request.rows if row.key in incomplete}
            table = score(captions, complete, resources, dataset=task.id, cache=cache)
        except (FeatureError, ToolError, DataError) as error:
            of_file = request.needs(Scores)
            if isinstance(error, DataError) and not of_file:
                raise
            missing |= {row.title: str(error) if of_file else f"missing: {error}" for row in request.rows}
            continue
        scores |= {row.title: tuple(table.values[row.key].tolist()) for row in request.rows if row.title not in missing}
        signatures |= table.signatures
    return ImageScores(task.id, references, candidates, scores, tuple(signature_lines(signatures)), missing, under_root)


MOST_CANDIDATES = 5  # of a data set that are explained by default


class FoundSubject(NamedTuple):
    """The input of an explanation, and its source."""

    subject: Subject
    under_root: bool  # True if a data set below the data folder was read
    notes: tuple[str, ...]


def find_subject(
    image: str,  # id, or the picture's file
    store: FeatureStore | None,  # must contain the image; None for a metric without features
    captions: Sequence[str],  # default: the first :data:`MOST_CANDIDATES` candidates of the data set
    references: Sequence[str],  # default: a judged candidate has its own, any other the longest of the image's lists
    dataset: str | None,  # default: ``flickr8k-expert`` if captions or references are missing, else none
    root: DataRoot,
    image_root: Path | None = None,  # with the picture; default: the image folders of the data set, or all ``*/images``
) -> FoundSubject:
    """Find an image's references, ratings and picture."""
    if not all(text.strip() for text in (*captions, *references)):
        raise UsageError("a caption or reference is empty", code="missing-value", hint="Enter a text")
    if image_root is not None:
        files.check_folder(image_root, "--image-root")
    file = Path(image) if Path(image).is_file() else None
    name = image if store is not None and image in store else image_id(image)
    if store is not None:
        store.regions(name)  # raises if the image is absent
    if dataset is None and not (captions and references):
        dataset = "flickr8k-expert"
    notes: list[str] = []
    opened = None if dataset is None else open_dataset(dataset, root)
    judgements = None if opened is None else opened.load(opened.protocol().items)[0]
    rated = () if judgements is None else tuple(item for item in judgements.items if item.image == name)
    if opened is not None and not rated and not (captions and references):
        message, hint = f"{opened.name} has no judgements of the image '{name}'", "add --caption and --reference"
        raise UsageError(message, code="unknown-item", value=name, hint=f"Name its data set with --dataset, or {hint}")
    texts = list(dict.fromkeys(captions or (item.candidate for item in rated)))
    if not captions and len(texts) > MOST_CANDIDATES:
        notes.append(f"the first {MOST_CANDIDATES} of {len(texts)} candidates; choose others with --caption")
        texts = texts[:MOST_CANDIDATES]
    longest = max((item.references for item in rated), key=len, default=())
    items, humans = [], []
    for text in texts:
        alike = [entry for entry in rated if caption_key(entry.candidate) == caption_key(text)]
        meant = [entry for entry in alike if entry.candidate == text]
        if not meant and len({entry.candidate for entry in alike}) == 1:  # the only text of this key
            meant = alike
        item = meant[0] if meant else None
        usual = longest if item is None else item.references
        items.append(Item(name, text, tuple(references) or usual))
        rating = None
        if judgements is not None and item is not None and judgements.ratings:
            ratings = next(iter(judgements.ratings.values()))  # of the first aspect
            same = [place for place, entry in enumerate(judgements.items) if entry.key == item.key]
            values = ratings.value[np.isin(ratings.item, same)]
            rating = float(values.mean()) if len(values) else None
        humans.append(rating)
    picture = file
    with contextlib.suppress(DataError):  # there are no pictures
        if file is None and (opened is not None or image_root is not None):
            picture = image_finder(root, image_root, opened)([name]).get(name)
        elif file is None:
            picture = next((entry.path for entry in all_images(root) if entry.image == name), None)
    if picture is None:
        places = (root.path,) if opened is None else opened.image_places()
        where = " or ".join(map(str, places if image_root is None else (image_root,)))
        notes.append(f"no picture found below {where}: drawn without it (pass its file, or --image-root)")
    under_root = opened is not None and opened.under_root
    return FoundSubject(Subject(name, tuple(items), tuple(humans), picture), under_root, tuple(notes))

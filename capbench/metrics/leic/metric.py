"""LEIC: the probability that a caption is human-written, given the image and a reference (Cui et al., CVPR 2018)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from capbench.core.options import Choice, Flag, option
from capbench.core.records import FloatArray, Item
from capbench.core.training_record import TrainingRecord, shared_record
from capbench.metrics.image_metric import (
    ImageMetric,
    ImageOptions,
    check_features,
    loaded_networks,
    signed_together,
)
from capbench.metrics.needs import Features, References, Resources, Weights
from capbench.metrics.pair_metric import Pair, PairMetric
from capbench.weights.registry import locate
from capbench.weights.training_files import record_in_facts


@dataclass(frozen=True)
class LeicOptions(ImageOptions):
    """Options of LEIC."""

    references: str = option(
        "mean", Choice("mean", "max"), "combination of the scores with several references", sign_as="refs"
    )
    any_features: bool = option(False, Flag(), "accept features of another fingerprint than in training", quiet=True)


class Leic(PairMetric, ImageMetric):
    """LEIC (LearnToEval): the probability that a caption is human-written according to a network that reads image,
    caption and a reference; the mean over references.

    The image's vector is the mean of its region features. The score of an ensemble is the mean of the networks' scores;
    a network does not score its training images if the ensemble has others, so that the networks of several folds form
    one metric for all images.

    The paper trains a network for each submission to a benchmark and scores the submission as a whole; scores of
    captions were used later (Wang et al., CVPR 2021).
    """

    name = "leic"
    columns = ("leic",)
    titles: ClassVar[Mapping[str, str]] = {"leic": "LEIC"}
    citation = "Cui et al., Learning to Evaluate Image Captioning, CVPR 2018"
    packages = ("torch",)
    needs = (References(), Features(), Weights("a LEIC network", "capbench train leic", "leic"))
    option_type = LeicOptions
    options: LeicOptions

    def __init__(self, resources: Resources | None = None, **options: Any) -> None:
        super().__init__(resources, **options)
        from capbench.metrics.leic.network import LeicModel

        self._models = loaded_networks(str(self.resources.model), self.name, LeicModel.load)
        for model in self._models:
            check_features(model, self.store, model.options.image_dim, self.options.any_features)
        self._records = [record_in_facts(model.training, model.path) for model in self._models]
        self.texts_at_once = max(1, PairMetric.texts_at_once // len(self._models))

    def facts(self) -> Mapping[str, object]:
        return {**signed_together(self._models), "features": self.store.signature()}

    def warnings(self, dataset: str, items: Sequence[Item]) -> Sequence[str]:
        from capbench.metrics.leic.network import words_of

        abouts = dict.fromkeys(str(model.training["about"]) for model in self._models if "about" in model.training)
        lines = [f"weights {about}" for about in abouts]
        texts = {text for item in items for text in (item.candidate, *item.references)}
        steps = min(model.options.steps for model in self._models)
        if cut := sum(len(words_of(text)) > steps - 1 for text in texts):
            lines.append(f"{cut:,} of {len(texts):,} captions have more than {steps - 1} words and were truncated")
        return lines

    def training_records(self) -> Sequence[TrainingRecord]:
        """The data that all networks of an ensemble were trained on."""
        return [shared_record(self._records, locate(str(self.resources.model), self.name).name)]

    def encode(self, texts: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """(networks, state_dim) states of each text."""
        return dict(zip(texts, np.stack([model.states(texts) for model in self._models], axis=1), strict=True))

    def pairs(self, pairs: Sequence[Pair], encodings: Mapping[str, Any]) -> FloatArray:
        """(pairs,) probabilities, the mean over the networks that score the image."""
        from capbench.metrics.leic.network import mean_vector

        images = dict.fromkeys(pair.image for pair in pairs)
        vectors = {image: mean_vector(self.store[image].features) for image in images}
        scoring = {image: self._scoring(image) for image in images}
        human = np.zeros(len(pairs))
        for place, model in enumerate(self._models):
            rows = [row for row, pair in enumerate(pairs) if place in scoring[pair.image]]
            if rows:
                of_images, candidates, references = zip(*(pairs[row] for row in rows), strict=True)
                states = (np.stack([encodings[text][place] for text in texts]) for texts in (references, candidates))
                found = model.human(np.stack([vectors[image] for image in of_images]), *states)
                human[rows] += found / [len(scoring[image]) for image in of_images]
        return human

    def reduce(self, rows: Sequence[FloatArray]) -> FloatArray:
        """(1,) mean or maximum over references."""
        return np.array([np.mean(rows) if self.options.references == "mean" else np.max(rows)])

    def _scoring(self, image: str) -> list[int]:
        """Indices of the networks that score an image."""
        trained = [record.photographs for record in self._records]
        unseen = [n for n, images in enumerate(trained) if images is None or not images.has_photographs([image])[0]]
        return unseen or list(range(len(trained)))

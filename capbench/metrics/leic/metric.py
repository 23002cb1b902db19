"""LEIC: the probability that a caption is human-written, given the image and a reference (Cui et al., CVPR 2018)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from capbench.core.options import Choice, Flag, option
from capbench.core.records import FloatArray, Item
from capbench.core.training_record import TrainingRecord, shared_record
from capbench.metrics.image_metric import (
    ImageMetric,
    ImageOptions,
    check_features,
    opened_networks,
    signed_together,
)
from capbench.metrics.needs import Features, Need, References, Resources, Weights
from capbench.weights.training_files import record_in_facts

if TYPE_CHECKING:
    from capbench.metrics.leic.network import LeicModel

_MODELS = 16
_open: OrderedDict[str, LeicModel] = OrderedDict()


def _opened(path: str, sha256: str) -> LeicModel:
    """A network, from memory if this process has read the file before."""
    from capbench.metrics.leic.network import load_leic

    if sha256 not in _open:
        _open[sha256] = load_leic(path)
        while len(_open) > _MODELS:
            _open.popitem(last=False)
    _open.move_to_end(sha256)
    return _open[sha256]


@dataclass(frozen=True)
class LeicOptions(ImageOptions):
    """Options of LEIC. Settings of the training are in the network's file."""

    references: str = option(
        "mean", Choice("mean", "max"), "combination of the scores with several references", sign_as="refs"
    )
    seen: bool = option(
        False,
        Flag(("left-out", "used")),
        "let networks of an ensemble score their training images; by default only if all were trained on the image",
    )
    any_features: bool = option(False, Flag(), "accept features of another fingerprint than in training", quiet=True)


class Leic(ImageMetric):
    """LEIC (LearnToEval): the probability that a caption is human-written according to a network that reads image,
    caption and a reference; the mean over references.

    The image's vector is the mean of its region features. The score of an ensemble is the mean of the networks' scores;
    a network does not score its training images if the ensemble has others, so that the networks of several folds form
    one metric for all images.

    The paper trains a network for each submission to a benchmark and scores the submission as a whole; scores of
    captions were used later (Wang et al., CVPR 2021).
    """

    name: ClassVar[str] = "leic"
    columns: ClassVar[tuple[str, ...]] = ("leic",)
    titles: ClassVar[Mapping[str, str]] = {"leic": "LEIC"}
    citation: ClassVar[str] = "Cui et al., Learning to Evaluate Image Captioning, CVPR 2018"
    packages = ("torch",)
    needs: ClassVar[tuple[Need, ...]] = (
        References(),
        Features(),
        Weights("a LEIC network", "capbench train leic", "leic"),
    )
    order: ClassVar[int] = 160

    option_type = LeicOptions
    options: LeicOptions

    def __init__(self, resources: Resources | None = None, **options: Any) -> None:
        super().__init__(resources, **options)
        files = opened_networks(str(self.resources.model), self.name)
        self._models = [_opened(str(path), digest) for path, digest in zip(files.paths, files.sha256, strict=True)]
        for model in self._models:
            check_features(model, self.store, model.options.image_dim, self.options.any_features)
        self._records = [record_in_facts(model.training, model.path) for model in self._models]
        self._combined = str(files.ensemble.name) if files.ensemble else self._models[0].path.name
        self.texts_at_once = max(1, ImageMetric.texts_at_once // len(self._models))

    def facts(self) -> Mapping[str, object]:
        """Networks, vocabularies and features."""
        return {**signed_together(self._models), "features": self.store.signature()}

    def warnings(self, dataset: str, items: Sequence[Item]) -> Sequence[str]:
        """Training data of the networks, and the number of truncated captions."""
        from capbench.metrics.leic.network import is_cut

        abouts = dict.fromkeys(str(model.training["about"]) for model in self._models if "about" in model.training)
        lines = [f"weights {about}" for about in abouts]
        texts = {text for item in items for text in (item.candidate, *item.references)}
        steps = min(model.options.steps for model in self._models)
        cut = sum(is_cut(text, steps) for text in texts)
        if cut:
            lines.append(f"{cut:,} of {len(texts):,} captions have more than {steps - 1} words and were truncated")
        return lines

    def training_records(self) -> Sequence[TrainingRecord]:
        """The data that all networks of an ensemble were trained on: networks do not score their training images if
        others can. With ``seen``, the data of each network.
        """
        return self._records if self.options.seen else [shared_record(self._records, self._combined)]

    def encode(self, texts: Iterable[str]) -> dict[str, Any]:
        """Contributions of each text to each network's hidden units, as a reference and as a candidate."""
        ordered = list(texts)
        of_models = [model.parts(ordered) for model in self._models]
        return {
            text: [(references[row], candidates[row]) for references, candidates in of_models]
            for row, text in enumerate(ordered)
        }

    def image_statistics(self, image: str, items: Sequence[Item], encodings: Mapping[str, Any]) -> FloatArray:
        """(items, 1) probabilities."""
        from capbench.core.errors import MetricError
        from capbench.metrics.leic.network import mean_vector

        for item in items:
            if not item.references:
                message = f"leic requires references, but '{item.candidate_id or item.image}' has none"
                raise MetricError(message, code="missing-references", value=item.image)
        vector = mean_vector(self.store[image].features)
        rows = [(item.candidate, reference) for item in items for reference in item.references]
        distinct = {pair: place for place, pair in enumerate(dict.fromkeys(rows))}
        human = np.zeros(len(distinct))
        scoring = self._scoring(image)
        for place in scoring:
            model = self._models[place]
            references = np.stack([encodings[reference][place][0] for _, reference in distinct])
            candidates = np.stack([encodings[candidate][place][1] for candidate, _ in distinct])
            human += model.human(model.image_part(vector), references, candidates) / len(scoring)
        combine = np.mean if self.options.references == "mean" else np.max
        scores = [combine([human[distinct[item.candidate, text]] for text in item.references]) for item in items]
        return np.array(scores, dtype=np.float64)[:, None]

    def _scoring(self, image: str) -> list[int]:
        """Indices of the networks that score an image."""
        every = list(range(len(self._models)))
        if self.options.seen:
            return every
        trained = [one.photographs is not None and one.photographs.has_photographs([image])[0] for one in self._records]
        return [place for place in every if not trained[place]] or every

"""Training of LEIC (Cui et al., CVPR 2018): the task that the general loop carries out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from capbench.datasets.root import DataRoot
from capbench.models.leic import HUMAN, Leic, save_leic
from capbench.text.vocabulary import PAD
from capbench.training.device import check_memory
from capbench.training.leic.captions import Images, Pair, draw_negative
from capbench.training.leic.config import LeicTraining
from capbench.training.leic.prepare import Prepared, prepare
from capbench.training.loop import train
from capbench.training.task import Running, Task, TrainingResult
from capbench.training.weights import adam, count_weights
from capbench.training.words import pad

__all__ = ["LeicTask", "train_leic"]

_AT_ONCE = 500  # pairs that are evaluated at once


def train_leic(
    config: LeicTraining,
    run: Path,
    *,
    root: DataRoot | None = None,
    **running: Unpack[Running],
) -> TrainingResult:
    """Train LEIC, or go on training it, in a run folder.

    ``root`` is the data folder, for relative paths; all else is as :func:`capbench.training.loop.train` says, which
    raises CapbenchError also where captions or features are missing or do not fit.
    """
    return train(
        config,
        lambda device, say: LeicTask(config, prepare(config, root, say), device),
        run,
        **running,
        smaller="'batch' or 'network.state_dim'",
    )


class LeicTask(Task[Leic, Sequence[Pair]]):
    """Did a person write this caption of this image?

    An epoch has every image once, with one of its captions as the reference, another one, and one wrong caption.

    Args:
        config: the settings.
        data: what is learned from.
        device: where the network is trained.

    Raises:
        UsageError: the network is too large for this machine.
    """

    score = "log_likelihood"

    def __init__(self, config: LeicTraining, data: Prepared, device: torch.device) -> None:
        self._config, self._train, self._dev, self._device = config, data.train, data.dev, device
        self._vocabulary = data.vocabulary
        options = dataclasses.replace(
            config.network, vocabulary_size=len(data.vocabulary), image_dim=data.train.vectors.shape[1]
        )
        check_memory(count_weights(lambda: Leic(options)), "Lower 'network.state_dim' or 'network.word_dim'")
        # Drawn on the CPU, so that a seed means the same weights on every device.
        self.model = Leic(options, torch.Generator().manual_seed(config.seed))
        if data.words is not None:
            known = torch.from_numpy(~np.isnan(data.words).any(axis=1))
            with torch.no_grad():
                self.model.words.weight[known] = torch.from_numpy(data.words)[known]
        self.model.to(device)
        self.optimiser = adam(self.model, config.optimiser)
        self._half = config.batch // 2
        self.steps_per_epoch = -(-len(data.train) // self._half)
        self.data, self.facts = data.names, data.facts
        ruined = list(config.negatives or ())
        self._ruined, self._machine = ruined, bool(data.train.machine)
        self._dev_pairs = self._fixed_pairs(data.dev)

    def _kind(self, rng: np.random.Generator) -> str:
        """A kind of wrong caption: a system's and a ruined one equally often, and of these all kinds."""
        if self._machine and (not self._ruined or rng.integers(2) == 0):
            return "machine"
        return self._ruined[int(rng.integers(len(self._ruined)))]

    def _fixed_pairs(self, images: Images) -> list[Pair]:
        """What is measured: each image's captions in turn beside the next one, and wrong ones beside the first.

        Of wrong captions each kind that is learned from has one an image, and each system's caption is there.
        """
        pairs = []
        rng = np.random.default_rng((self._config.evaluation.seed, 2))
        for image, captions in enumerate(images.human):
            reference = captions[0]
            pairs.append(Pair(image, reference, captions[1], True, "human"))
            for kind in self._ruined:
                wrong = draw_negative(images, image, kind, len(self._vocabulary), rng)
                pairs.append(Pair(image, reference, wrong, False, kind))
            for system in sorted(images.machine[image]) if images.machine else ():
                pairs.append(Pair(image, reference, images.machine[image][system], False, "machine"))
        return pairs

    def batches(self, epoch: int, first: int) -> Iterator[Sequence[Pair]]:
        """The batches of an epoch from the ``first``-th on."""
        images = self._train
        order = np.random.default_rng((self._config.seed, 1, epoch)).permutation(len(images)).tolist()
        for number in range(first, self.steps_per_epoch):
            rng = np.random.default_rng((self._config.seed, 2, epoch * self.steps_per_epoch + number))
            pairs = []
            for image in order[number * self._half : (number + 1) * self._half]:
                captions = images.human[image]
                reference, right = rng.choice(len(captions), 2, replace=False).tolist()
                wrong = draw_negative(images, image, kind := self._kind(rng), len(self._vocabulary), rng)
                pairs.append(Pair(image, captions[reference], captions[right], True, "human"))
                pairs.append(Pair(image, captions[reference], wrong, False, kind))
            yield pairs

    def _logits(self, model: Leic, images: Images, pairs: Sequence[Pair], dropout: float) -> Tensor:
        # A reference stands beside a right and a wrong caption, and is read once.
        place: dict[tuple[int, ...], int] = {}
        rows = [
            [place.setdefault(tuple(caption), len(place)) for caption in (pair.reference, pair.candidate)]
            for pair in pairs
        ]
        ids, lengths = pad(list(place))
        # Padding to one length for all keeps a caption's numbers from hanging on the others of the batch.
        ids = functional.pad(ids, (0, model.options.steps - ids.shape[1]), value=PAD)
        states = model.states(ids.to(self._device), lengths, dropout)
        references, candidates = torch.tensor(rows, device=self._device).T
        vectors = torch.from_numpy(images.vectors[[pair.image for pair in pairs]]).to(self._device)
        return model.logits(vectors, states[references], states[candidates], dropout)

    def loss(self, batch: Sequence[Pair], step: int) -> Tensor:
        """The mean cross entropy."""
        labels = torch.tensor([HUMAN if pair.human else 1 - HUMAN for pair in batch], device=self._device)
        return functional.cross_entropy(self._logits(self.model, self._train, batch, self._config.dropout), labels)

    @torch.inference_mode()
    def validate(self, model: Leic, pause: Callable[[], None]) -> dict[str, Any]:
        """Mean log-likelihood and accuracy, people's and wrong captions weighing the same, and the mean probability
        that a person wrote captions of each kind."""
        model.eval()
        pairs, human = self._dev_pairs, []
        for begin in range(0, len(pairs), _AT_ONCE):
            pause()
            logits = self._logits(model, self._dev, pairs[begin : begin + _AT_ONCE], 0.0)
            human.append(functional.log_softmax(logits.double(), dim=1).cpu())
        scores = torch.cat(human).numpy()
        right = np.array([pair.human for pair in pairs])
        likelihood = np.where(right, scores[:, HUMAN], scores[:, 1 - HUMAN])
        correct = (scores[:, HUMAN] > scores[:, 1 - HUMAN]) == right
        kinds = np.array([pair.kind for pair in pairs])
        numbers = {
            "log_likelihood": float(likelihood[right].mean() + likelihood[~right].mean()) / 2,
            "accuracy": float(correct[right].mean() + correct[~right].mean()) / 2,
            **{
                f"p {kind}": float(np.exp(scores[kinds == kind, HUMAN]).mean())
                for kind in dict.fromkeys(kinds.tolist())
            },
        }
        return {name: round(value, 6) for name, value in numbers.items()}

    def save(self, path: Path, model: Leic, facts: Mapping[str, Any]) -> None:
        """Weights, options, vocabulary and facts as one ``.safetensors``."""
        save_leic(path, model, self._vocabulary, facts)

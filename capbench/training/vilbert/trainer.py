"""Training of ViLBERT (Lu et al., NeurIPS 2019, arXiv:1908.02265): the task that the general loop carries out."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from capbench.datasets.root import DataRoot
from capbench.models.vilbert.files import save_vilbert
from capbench.models.vilbert.options import VilbertOptions
from capbench.training.caption_task import CaptionTask
from capbench.training.device import check_memory
from capbench.training.loop import train
from capbench.training.losses import info_nce
from capbench.training.task import Running, TrainingResult
from capbench.training.vilbert.batches import IGNORED, Batch, Specials, batches
from capbench.training.vilbert.config import VilbertTraining
from capbench.training.vilbert.data import VilbertData, prepare
from capbench.training.vilbert.evaluation import draw_trials, evaluate
from capbench.training.vilbert.learner import VilbertLearner
from capbench.training.vilbert.losses import (
    alignment_loss,
    f_scores,
    matching_loss,
    region_loss,
    word_loss,
)
from capbench.training.weights import count_weights

__all__ = ["VilbertTask", "train_vilbert"]


def train_vilbert(
    config: VilbertTraining,
    run: Path,
    *,
    root: DataRoot | None = None,
    **running: Unpack[Running],
) -> TrainingResult:
    """Train ViLBERT, or go on training it, in a run folder.

    ``root`` is the data folder, for relative paths; all else is as :func:`capbench.training.loop.train` says, which
    raises CapbenchError also where captions or features are missing or do not fit.
    """
    return train(
        config,
        lambda device, say: VilbertTask(config, prepare(config, root, say), device, say),
        run,
        **running,
        smaller="'batch' or the sizes in 'network'",
    )


class VilbertTask(CaptionTask[VilbertLearner, Batch]):
    """Masked words and regions, and captions and images that belong together.

    Args:
        config: the settings.
        data: what is learned from, read.
        device: where the network is trained.
        say: called with one line for what takes its time.

    Raises:
        UsageError: the network is too large for this machine.
    """

    score = "alignment"

    def __init__(
        self,
        config: VilbertTraining,
        data: VilbertData,
        device: torch.device,
        say: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self._config, self._split, self._dev = config, data.train, data.dev
        self._pieces, self._specials = data.pieces, Specials.of(data.pieces)
        self._trial = draw_trials(data.dev.pairs, data.dev.captions, config.evaluation.seed)
        images = data.train.images
        options = dataclasses.replace(
            config.network,
            vocabulary_size=len(data.pieces),
            feature_dim=images.feature_dim,
            region_outputs=images.target_dim,
        )
        check_memory(weights_of(options), "Lower the sizes in 'network', or 'pieces.size'")
        # Drawn on the CPU, so that a seed means the same weights on every device.
        generator = torch.Generator().manual_seed(config.seed)
        model = VilbertLearner(options, generator, config.initial)
        if config.word_start.epochs:
            say("word vectors of the captions, to begin with")
            self._start_from_vectors(model)
        super().__init__(config, data.train.pairs, images.regions, model, device)
        self._variance = images.variance() if images.classes is None else None
        self.data, self.facts = data.names, {"features": data.features, "longest": config.pieces.longest}

    @torch.no_grad()
    def _start_from_vectors(self, model: VilbertLearner) -> None:
        """Embeddings of the pieces that the captions hold become their skip-gram vectors, at the same deviation."""
        from capbench.training.word_vectors import WordVectorOptions, train_sequence_vectors

        config, pieces = self._config, self._pieces.pieces
        start = config.word_start
        options = WordVectorOptions(
            dimension=config.network.text_dim, window=start.window, epochs=start.epochs, seed=config.seed
        )
        sequences = [[str(number) for number in caption[1:-1]] for caption in self._split.captions]
        numbers, vectors = train_sequence_vectors(sequences, options)
        vectors = vectors - vectors.mean(axis=0)
        vectors *= config.initial / max(float(np.sqrt(np.square(vectors).mean())), 1e-12)
        weight = model.network.text_embedding.words.weight
        assert len(weight) == len(pieces)
        weight[torch.tensor([int(number) for number in numbers])] = torch.from_numpy(vectors)

    def make_batches(self, orders: list[NDArray[np.int64]], first_step: int) -> Iterator[Batch]:
        """Batches of chosen captions."""
        return batches(
            orders,
            self._split.pairs,
            self._split.captions,
            self._split.images,
            self._specials,
            self._config.masking,
            seed=self._config.seed,
            first_step=first_step,
        )

    def loss(self, batch: Batch, step: int) -> Tensor:
        """The weighted sum of the losses."""
        bfloat16 = self._config.precision == "amp-bfloat16"
        with contextlib.ExitStack() as stack:
            if self._device.type == "cpu":
                # Of heads this small the fused attention's way back takes as long as all of the rest in bfloat16.
                stack.enter_context(sdpa_kernel(SDPBackend.MATH))
            stack.enter_context(torch.autocast(self._device.type, torch.bfloat16, enabled=bfloat16))
            return self._loss(batch)

    def _loss(self, batch: Batch) -> Tensor:
        """The weighted sum of the losses.

        Three captions go through the connections with each image: its own, masked; another of its own; and a foreign
        one. Words and regions are told from the first, alignment from all.
        """
        weights, model = self._config.loss, self.model
        moved = {field.name: getattr(batch, field.name).to(self._device) for field in dataclasses.fields(batch)}
        size, present = len(batch.image_of), moved["present"]
        read, _ = model.read(moved["ids"], present, moved["features"], moved["places"])
        total = read.text.new_zeros(())
        counted = present & torch.isin(moved["ids"], self._not_special())
        similarities = None
        if weights.contrast:
            similarities = model.similarities(read.text[size:], counted[size:], read.image).float()
            total = total + weights.contrast * self._contrast(similarities, moved["image_of"])
        foreign = self._foreign(similarities, moved["image_of"])
        own = torch.arange(size, device=self._device)
        if foreign is None:  # all captions are of one image
            chosen, seen = torch.cat((own, own + size)), torch.cat((own, own))
        else:
            chosen, seen = torch.cat((own, own + size, foreign + size)), torch.cat((own, own, own))
        last, end = model.connect(read.text[chosen], read.image[seen], present[chosen])
        heads = model.network.heads
        assert heads is not None
        if weights.words:
            masked = moved["words"] != IGNORED
            logits = heads.words(end.text[:size][masked], model.network.text_embedding.words.weight)
            total = total + weights.words * word_loss(logits, moved["words"][masked])
        if weights.regions:
            hidden = moved["hidden"]
            told = heads.regions(end.image[:size][hidden])
            total = total + weights.regions * region_loss(told, moved["targets"][hidden], self._variance)
        together = torch.arange(len(chosen), device=self._device) < 2 * size
        if foreign is not None and weights.alignment:
            total = total + weights.alignment * alignment_loss(model.aligned(end), together)
        kept = counted[chosen]
        # A caption all of whose words are masked still has its tokens.
        kept = torch.where(kept.any(dim=1, keepdim=True), kept, present[chosen])
        if foreign is not None and weights.fit:
            logits = (model.fits(last.float(), kept) - weights.fit_level) / weights.fit_temperature
            total = total + weights.fit * alignment_loss(torch.stack((logits, -logits), dim=1), together)
        if foreign is not None and weights.matching:
            reference, matched = last[:size], last[size:]
            f = f_scores(matched.float(), kept[size:], reference.float().repeat(2, 1, 1), kept[:size].repeat(2, 1))
            total = total + weights.matching * matching_loss(f[:size], f[size:], weights.matching_temperature)
        return total

    def _not_special(self) -> Tensor:
        return torch.from_numpy(self._specials.ordinary).to(self._device)

    def _contrast(self, similarities: Tensor, image_of: Tensor) -> Tensor:
        """InfoNCE over the batch; captions of the same image are not each other's negatives."""
        same = (image_of[:, None] == image_of[None, :]) & ~torch.eye(
            len(image_of), dtype=torch.bool, device=image_of.device
        )
        return info_nce(similarities.masked_fill(same, -1.0), self._config.loss.temperature)

    def _foreign(self, similarities: Tensor | None, image_of: Tensor) -> Tensor | None:
        """(b,) for each image the place of a caption of another image of the batch, or None if there is none."""
        same = image_of[:, None] == image_of[None, :]
        if bool(same.all(dim=1).any()):
            return None
        weights = self._config.loss
        if weights.negatives == "hard" and similarities is not None:
            logits = similarities.detach() / weights.temperature
        else:
            logits = torch.zeros(same.shape, device=same.device)
        shares = logits.masked_fill(same, -torch.inf).softmax(dim=1)
        return torch.multinomial(shares, 1)[:, 0]

    def validate(self, model: VilbertLearner, pause: Callable[[], None]) -> dict[str, Any]:
        """Accuracies on dev."""
        dev = self._dev
        return evaluate(model, self._trial, dev.captions, dev.images, self._specials, self._device, pause)

    def save(self, path: Path, model: VilbertLearner, facts: Mapping[str, Any]) -> None:
        """Weights, sizes, word pieces and facts as one ``.safetensors``; without what only training needs."""
        network = model.network
        network.heads = None
        save_vilbert(path, network, self._pieces, facts)


def weights_of(options: VilbertOptions) -> int:
    """How many numbers are learned, counted without making them."""
    return count_weights(lambda: VilbertLearner(options, None, 1.0))

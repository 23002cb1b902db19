"""Training of ViLBERT (Lu et al., NeurIPS 2019, arXiv:1908.02265): the task that the general loop carries out."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from capbench.core.errors import DataError
from capbench.datasets.root import DataRoot
from capbench.metrics.vilbertscore.files import save_vilbert
from capbench.metrics.vilbertscore.network import Connection, Streams, Vilbert, VilbertOptions, mask_of
from capbench.metrics.vilbertscore.training_data import (
    IGNORED,
    Batch,
    ImageData,
    Specials,
    VilbertData,
    VilbertTraining,
    batches,
    padded,
    prepare,
)
from capbench.training.captions import Pairs
from capbench.training.loop import Running, TrainingResult, train
from capbench.training.matching_task import CaptionTask, info_nce
from capbench.training.run_folder import check_memory, count_weights
from capbench.training.trainable import Trainable

__all__ = [
    "TRAINABLE",
    "Trial",
    "VilbertLearner",
    "VilbertTask",
    "alignment_loss",
    "draw_trials",
    "evaluate",
    "f_scores",
    "late_similarities",
    "matching_loss",
    "region_loss",
    "train_vilbert",
    "word_loss",
]


# What a ViLBERT learns from: losses of words, regions, alignment, contrast and matching, each a mean over a batch.

_FAR = -1e4  # in place of a similarity with what is not there


def word_loss(logits: Tensor, words: Tensor) -> Tensor:
    """Mean cross entropy of masked words; 0 where none is masked.

    Args:
        logits: (k, vocabulary) of the masked places.
        words: (k,) what stood there.
    """
    return functional.cross_entropy(logits, words, ignore_index=IGNORED, reduction="sum") / max(1, len(words))


def region_loss(told: Tensor, targets: Tensor, variance: float | None) -> Tensor:
    """Loss of masked regions; 0 where none is masked.

    Args:
        told: (k, d) features or (k, classes) logits.
        targets: (k, d) features or (k, classes) probabilities.
        variance: of the features: mean squared error as a share of it. None: the targets are probabilities, and the
            loss is the Kullback-Leibler divergence of what is told from them (Lu et al. 2019, section 2.3).
    """
    count = max(1, len(told))
    if variance is None:
        return functional.kl_div(told.log_softmax(dim=-1), targets, reduction="sum") / count
    return ((told - targets).square().mean(dim=-1).sum() / variance) / count


def alignment_loss(logits: Tensor, together: Tensor) -> Tensor:
    """Cross entropy of "they belong together" (class 0), both classes weighing the same.

    Args:
        logits: (k, 2).
        together: (k,) bool; both kinds are among them.
    """
    losses = functional.cross_entropy(logits, (~together).long(), reduction="none")
    return (losses[together].mean() + losses[~together].mean()) / 2


def late_similarities(tokens: Tensor, present: Tensor, regions: Tensor) -> Tensor:
    """Similarity of every image with every caption: the mean over tokens of the best cosine with a region.

    Args:
        tokens: (c, m, D) of captions.
        present: (c, m) which count.
        regions: (i, n, D) of images.

    Returns:
        (i, c).
    """
    words, areas = functional.normalize(tokens, dim=-1), functional.normalize(regions, dim=-1)
    flat = words.flatten(0, 1) @ areas.flatten(0, 1).t()  # (c·m, i·n)
    best = flat.view(*words.shape[:2], *areas.shape[:2]).amax(dim=3)  # (c, m, i)
    counts = present.sum(dim=1).clamp_min(1)
    return ((best * present[..., None]).sum(dim=1) / counts[:, None]).t()


def f_scores(first: Tensor, first_present: Tensor, second: Tensor, second_present: Tensor) -> Tensor:
    """F of greedy matching by cosine of pairs of captions (Lee et al. 2020, equations 1 to 3), without padding.

    Args:
        first: (k, m, D).
        first_present: (k, m) which tokens count; at least one of each caption.
        second: (k, n, D).
        second_present: (k, n).

    Returns:
        (k,).
    """
    a, b = functional.normalize(first, dim=-1), functional.normalize(second, dim=-1)
    similar = (a @ b.transpose(1, 2)).masked_fill(~(first_present[:, :, None] & second_present[:, None, :]), _FAR)
    precision = _mean(similar.amax(dim=2), first_present)
    recall = _mean(similar.amax(dim=1), second_present)
    return 2 * precision * recall / (precision + recall).clamp_min(1e-3)


def _mean(values: Tensor, present: Tensor) -> Tensor:
    return values.masked_fill(~present, 0.0).sum(dim=1) / present.sum(dim=1).clamp_min(1)


def matching_loss(own: Tensor, foreign: Tensor, temperature: float) -> Tensor:
    """Mean over all pairs of ln(1 + exp((foreign - own) / temperature)): a soft count of pairs in the wrong order.

    Captions of an image with one of its own shall match better than captions with a foreign one, over all images at
    once: a metric's scores are compared between images, too.

    Args:
        own: (b,) F-scores.
        foreign: (k,) F-scores.
        temperature: that differences are divided by.
    """
    return functional.softplus((foreign[None, :] - own[:, None]) / temperature).mean()


# The network as it is trained: what a metric reads, and what only training asks of it.


class VilbertLearner(nn.Module):
    """A network with its heads, and the direction of fitting words (``loss.fit``).

    Args:
        options: sizes of the network.
        generator: draws the first weights; the global one if None.
        initial: their standard deviation.
    """

    def __init__(self, options: VilbertOptions, generator: torch.Generator | None, initial: float) -> None:
        super().__init__()
        self.network = Vilbert(options, generator, heads=True)
        self.fit_direction = nn.Parameter(torch.empty(options.text_dim))
        with torch.no_grad():
            for module in self.modules():
                if isinstance(module, nn.Linear | nn.Embedding):
                    module.weight.normal_(0.0, initial, generator=generator)
            self.fit_direction.normal_(0.0, initial, generator=generator)

    def read(self, ids: Tensor, present: Tensor, features: Tensor, places: Tensor) -> tuple[Streams, Tensor | None]:
        """Texts (c, m, T) and images (i, n, V) before the first connection, and the mask of the texts."""
        mask = mask_of(present)
        return Streams(self.network.read_text(ids, mask), self.network.read_image(features, places)), mask

    def similarities(self, text: Tensor, present: Tensor, image: Tensor) -> Tensor:
        """Similarity (i, c) of every image with every caption as the first connection attends.

        Its queries of tokens (c, m, B) are compared with its keys of regions (i, n, B): learning these similarities
        (:func:`~capbench.metrics.vilbertscore.training.late_similarities`) is learning where tokens look.
        """
        first = cast(Connection, self.network.connections[0])
        return late_similarities(first.text_query(text), present, first.image_key(image))

    def connect(self, text: Tensor, image: Tensor, present: Tensor) -> tuple[Tensor, Streams]:
        """Pairs of a text and an image through all connections.

        Args:
            text: (k, m, T) before the first connection.
            image: (k, n, V).
            present: (k, m) what of the texts is no padding.

        Returns:
            The text right after the last connection (k, m, T), which a metric compares, and the streams at the end.
        """
        network, mask = self.network, mask_of(present)
        streams = Streams(text, image)
        last = text
        for place, connection in enumerate(network.connections):
            streams = connection(streams, mask, None)
            last = streams.text
            streams = Streams(
                network.text_after(place)(streams.text, mask), network.image_after(place)(streams.image, None)
            )
        return last, streams

    def fits(self, states: Tensor, present: Tensor) -> Tensor:
        """(k,) mean cosine of word states (k, m, T) with the direction of fitting words; (k, m) says which count."""
        cosines = functional.cosine_similarity(states, self.fit_direction, dim=-1)
        return (cosines * present).sum(dim=1) / present.sum(dim=1).clamp_min(1)

    def aligned(self, streams: Streams) -> Tensor:
        """Logits (k, 2) of "they belong together" and "they do not"."""
        heads = self.network.heads
        assert heads is not None
        return heads.alignment(*self.network.pool(streams))


# How well a ViLBERT knows a caption of an image from a foreign one, on images that it has not learned from.

_AT_ONCE = 64
_LOOKED_AT = 20


@dataclass(frozen=True, eq=False)
class Trial:
    """Questions to a network: which of two captions is of the image?

    Attributes:
        image: (q,) places of images.
        reference: (q,) places of captions of the image.
        own: (q,) others of its captions.
        foreign: (q,) captions of other images, drawn at random.
        near: (q,) captions of other images: of some drawn at random, the one that has most word pieces in common with
            ``own``.
    """

    image: NDArray[np.int64]
    reference: NDArray[np.int64]
    own: NDArray[np.int64]
    foreign: NDArray[np.int64]
    near: NDArray[np.int64]


def draw_trials(pairs: Pairs, captions: Sequence[Sequence[int]], seed: int) -> Trial:
    """One question for each image that has two captions or more.

    Raises:
        DataError: there is no such image, or only one image.
    """
    rng = np.random.default_rng((seed, 4))
    counts = np.bincount(pairs.image_of, minlength=len(pairs.images))
    images = np.flatnonzero(counts > 1)
    if not len(images) or len(pairs.images) < 2:
        raise DataError("needs two images with two captions or more to measure on", path=pairs.source)
    sets = [frozenset(caption) for caption in captions]
    firsts = np.cumsum(counts) - counts
    rows = []
    for image in images.tolist():
        reference, own = firsts[image] + rng.choice(counts[image], 2, replace=False)
        others = rng.permutation(np.flatnonzero(pairs.image_of != image))[:_LOOKED_AT]
        common = [len(sets[own] & sets[other]) / len(sets[own] | sets[other]) for other in others.tolist()]
        rows.append((image, reference, own, others[0], others[int(np.argmax(common))]))
    return Trial(*np.array(rows, dtype=np.int64).T)


@torch.inference_mode()
def evaluate(
    model: VilbertLearner,
    trial: Trial,
    captions: Sequence[Sequence[int]],
    images: ImageData,
    specials: Specials,
    device: torch.device,
    pause: Callable[[], None] = lambda: None,
) -> dict[str, float]:
    """Accuracies in %, ties counting half; nothing is masked.

    ``alignment`` asks the alignment's head, ``attention`` the first connection's similarity of caption and image,
    ``matching`` the F-score between the reference and each of the two after
    the last connection, ``matching_blank`` the same where all images are replaced by zeros. ``_near`` is against the
    near captions.

    Args:
        model: set to evaluation mode while this runs.
        trial: the questions.
        captions: word pieces of the captions.
        images: of the same split.
        specials: of the word pieces.
        device: where the network is.
        pause: called between blocks; an exception from it leaves.
    """
    was_training = model.training
    model.eval()
    wins: dict[str, list[torch.Tensor]] = {}
    try:
        for start in range(0, len(trial.image), _AT_ONCE):
            pause()
            part = slice(start, start + _AT_ONCE)
            features, places, _ = (tensor.to(device) for tensor in images.take(trial.image[part]))
            asked = (trial.reference[part], trial.own[part], trial.foreign[part], trial.near[part])
            numbers, here = padded([captions[i] for places_ in asked for i in places_.tolist()], specials.pad)
            ids, present = torch.from_numpy(numbers).to(device), torch.from_numpy(here).to(device)
            scored = present & torch.from_numpy(np.isin(numbers, specials.ordinary)).to(device)
            text = model.network.read_text(ids, mask_of(present))
            fits = _attended(model, text, scored, model.network.read_image(features, places))
            wins.setdefault("attention", []).append(_won(fits[1], fits[2]))
            wins.setdefault("attention_near", []).append(_won(fits[1], fits[3]))
            for suffix, shown in (("", features), ("_blank", torch.zeros_like(features))):
                image = model.network.read_image(shown, places).repeat(len(asked), 1, 1)
                last, streams = model.connect(text, image, present)
                states, counted = (array.reshape(len(asked), -1, *array.shape[1:]) for array in (last, scored))
                f = [f_scores(states[k], counted[k], states[0], counted[0]) for k in (1, 2, 3)]
                for name, other in (("matching", f[1]), ("matching_near", f[2])):
                    wins.setdefault(name + suffix, []).append(_won(f[0], other))
                if not suffix:
                    logits = model.aligned(streams)
                    fits = (logits[:, 0] - logits[:, 1]).reshape(len(asked), -1)
                    wins.setdefault("alignment", []).append(_won(fits[1], fits[2]))
                    wins.setdefault("alignment_near", []).append(_won(fits[1], fits[3]))
    finally:
        model.train(was_training)
    return {name: round(float(torch.cat(values).mean()) * 100, 4) for name, values in wins.items()}


def _attended(model: VilbertLearner, text: torch.Tensor, scored: torch.Tensor, image: torch.Tensor) -> torch.Tensor:
    """(k, q) similarity of q images with k captions each, as the first connection attends; texts (k·q, m, T)."""
    questions = len(image)
    matrix = model.similarities(text, scored, image)  # (q, k·q)
    own = torch.arange(questions, device=matrix.device)
    return torch.stack([part[own, own] for part in torch.split(matrix, questions, dim=1)])


def _won(own: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (own > other).double() + (own == other).double() / 2


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


_ACCURACIES = (
    *("attention", "attention_near", "alignment", "alignment_near", "matching", "matching_near"),
    *("matching_blank", "matching_near_blank"),
)

TRAINABLE = Trainable(
    settings=VilbertTraining,
    train=train_vilbert,
    line=lambda entry: "dev " + ", ".join(f"{name} {entry[name]:.1f}" for name in _ACCURACIES),
    table=lambda entry: [f"{name:21}{entry[name]:6.1f} %" for name in _ACCURACIES],
    score="alignment",
    metric="vilbertscore",
)

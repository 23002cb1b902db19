"""Training of ViLBERT (Lu et al., NeurIPS 2019, arXiv:1908.02265): losses, evaluation, and the training task."""

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
from capbench.core.machine import without_cudnn_attention
from capbench.datasets.root import DataRoot
from capbench.metrics.vilbertscore.files import read_bert, save_vilbert
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
from capbench.training.run_folder import check_memory, count_weights, is_slow_in_bfloat16
from capbench.training.trainable import Trainable

# Losses of words, regions, alignment, contrast and matching, each a mean over a batch.

_FAR = -1e4  # similarity with padding
_TEMPERATURE = 0.1  # of the contrast and of the sampling of hard negatives
_FIT_LEVEL, _FIT_TEMPERATURE = 0.5, 0.2
"""Threshold of the mean cosine between captions that fit and others, and the temperature of the difference from it. The
threshold is clearly above 0, because the metric multiplies the states of candidate and reference."""
_MATCHING_TEMPERATURE = 0.05  # of the differences of F-scores


def word_loss(logits: Tensor, words: Tensor) -> Tensor:
    """Mean cross entropy of masked words; 0 if none is masked.

    Args:
        logits: (k, vocabulary) of the masked positions.
        words: (k,) the original word pieces.
    """
    return functional.cross_entropy(logits, words, ignore_index=IGNORED, reduction="sum") / max(1, len(words))


def region_loss(predicted: Tensor, targets: Tensor, variance: float | None) -> Tensor:
    """Loss of masked regions; 0 if none is masked.

    Args:
        predicted: (k, d) features or (k, classes) logits.
        targets: (k, d) features or (k, classes) probabilities.
        variance: variance of the features, for the loss mean squared error / variance. None if targets are
            probabilities, for the Kullback-Leibler divergence of the predictions from them (Lu et al. 2019, section
            2.3).
    """
    count = max(1, len(predicted))
    if variance is None:
        return functional.kl_div(predicted.log_softmax(dim=-1), targets, reduction="sum") / count
    return ((predicted - targets).square().mean(dim=-1).sum() / variance) / count


def alignment_loss(logits: Tensor, together: Tensor) -> Tensor:
    """Cross entropy of the class "aligned" (class 0), with equal weights of both classes.

    Args:
        logits: (k, 2).
        together: (k,) bool, True for aligned pairs; contains both values.
    """
    losses = functional.cross_entropy(logits, (~together).long(), reduction="none")
    return (losses[together].mean() + losses[~together].mean()) / 2


def late_similarities(tokens: Tensor, present: Tensor, regions: Tensor) -> Tensor:
    """Similarity of every image with every caption: the mean over tokens of the highest cosine with a region.

    Args:
        tokens: (c, m, D) of captions.
        present: (c, m) True for tokens that count.
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
    """F of greedy matching by cosine for pairs of captions (Lee et al. 2020, equations 1 to 3), without padding.

    Args:
        first: (k, m, D).
        first_present: (k, m) True for tokens that count; at least one of each caption.
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


def matching_loss(own: Tensor, foreign: Tensor) -> Tensor:
    """Mean over all pairs of ln(1 + exp((foreign - own) / temperature)), a soft count of pairs in the wrong order.

    Two captions of an image should match better than a caption of it and one of another image. Pairs are compared
    across images, because a metric's scores are too.

    Args:
        own: (b,) F-scores of two captions of an image.
        foreign: (k,) F-scores of captions of different images.
    """
    return functional.softplus((foreign[None, :] - own[:, None]) / _MATCHING_TEMPERATURE).mean()


# The network in training: the metric's network, and the parts that only training uses.


class VilbertLearner(nn.Module):
    """A network with its heads and the learned direction of ``loss.fit``.

    Args:
        options: sizes of the network.
        generator: draws the initial weights; the global one if None.
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
        """Similarity (i, c) of every image with every caption (:func:`late_similarities`) in the first connection.

        Compares its queries of tokens (c, m, B) with its keys of regions (i, n, B), so that learning these similarities
        trains the attention of tokens to regions.
        """
        first = cast(Connection, self.network.connections[0])
        return late_similarities(first.text_query(text), present, first.image_key(image))

    def connect(self, text: Tensor, image: Tensor, present: Tensor) -> tuple[Tensor, Streams]:
        """Apply all connections to pairs of a text and an image.

        Args:
            text: (k, m, T) before the first connection.
            image: (k, n, V).
            present: (k, m) False for padding of the texts.

        Returns:
            The text right after the last connection (k, m, T), which the metric matches, and the streams at the end.
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
        """(k,) mean cosine of word states (k, m, T) with the learned direction; ``present`` (k, m) selects words."""
        cosines = functional.cosine_similarity(states, self.fit_direction, dim=-1)
        return (cosines * present).sum(dim=1) / present.sum(dim=1).clamp_min(1)

    def aligned(self, streams: Streams) -> Tensor:
        """Logits (k, 2) of the classes "aligned" and "not aligned"."""
        heads = self.network.heads
        assert heads is not None
        return heads.alignment(*self.network.pool(streams))


# Evaluation: accuracy at choosing the caption of an image instead of another image's, on images not in the training.

_AT_ONCE = 64
_NEAR_CANDIDATES = 20


@dataclass(frozen=True, eq=False)
class Trial:
    """Choices between a caption of an image and a caption of another image.

    Attributes:
        image: (q,) indices of images.
        reference: (q,) indices of captions of the image.
        own: (q,) indices of other captions of the image.
        foreign: (q,) indices of random captions of other images.
        near: (q,) indices of captions of other images: of 20 random ones, the one with the most word pieces in common
            with ``own`` (Jaccard index).
    """

    image: NDArray[np.int64]
    reference: NDArray[np.int64]
    own: NDArray[np.int64]
    foreign: NDArray[np.int64]
    near: NDArray[np.int64]


def draw_trials(pairs: Pairs, captions: Sequence[Sequence[int]], seed: int) -> Trial:
    """One choice for each image with at least two captions.

    Raises:
        DataError: there is no such image, or there is only one image.
    """
    rng = np.random.default_rng((seed, 4))
    counts = np.bincount(pairs.image_of, minlength=len(pairs.images))
    images = np.flatnonzero(counts > 1)
    if not len(images) or len(pairs.images) < 2:
        raise DataError(
            "the evaluation requires two images, one of them with at least two captions",
            code="too-few",
            value=len(pairs.images),
            path=pairs.source,
        )
    sets = [frozenset(caption) for caption in captions]
    firsts = np.cumsum(counts) - counts
    rows = []
    for image in images.tolist():
        reference, own = firsts[image] + rng.choice(counts[image], 2, replace=False)
        others = rng.permutation(np.flatnonzero(pairs.image_of != image))[:_NEAR_CANDIDATES]
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
    """Accuracies in %, without masking; ties count half.

    ``alignment`` compares logits of the alignment head, ``attention`` the first connection's similarity of caption and
    image, ``matching`` the F-score with the reference after the last connection, ``matching_blank`` the same with all
    image features zero. Keys with ``_near`` are for the near captions.

    Args:
        model: in evaluation mode during the call.
        trial: the choices.
        captions: word pieces of the captions.
        images: images of the same split.
        specials: ids of special tokens.
        device: device of the network.
        pause: called between blocks; may raise an exception to stop.
    """
    was_training = model.training
    model.eval()
    wins: dict[str, list[torch.Tensor]] = {}
    try:
        for start in range(0, len(trial.image), _AT_ONCE):
            pause()
            part = slice(start, start + _AT_ONCE)
            features, places, _ = (tensor.to(device) for tensor in images.take(trial.image[part]))
            chosen = (trial.reference[part], trial.own[part], trial.foreign[part], trial.near[part])
            numbers, mask = padded([captions[i] for places_ in chosen for i in places_.tolist()], specials.pad)
            ids, present = torch.from_numpy(numbers).to(device), torch.from_numpy(mask).to(device)
            scored = present & torch.from_numpy(np.isin(numbers, specials.ordinary)).to(device)
            text = model.network.read_text(ids, mask_of(present))
            fits = _attended(model, text, scored, model.network.read_image(features, places))
            wins.setdefault("attention", []).append(_won(fits[1], fits[2]))
            wins.setdefault("attention_near", []).append(_won(fits[1], fits[3]))
            for suffix, shown in (("", features), ("_blank", torch.zeros_like(features))):
                image = model.network.read_image(shown, places).repeat(len(chosen), 1, 1)
                last, streams = model.connect(text, image, present)
                states, counted = (array.reshape(len(chosen), -1, *array.shape[1:]) for array in (last, scored))
                f = [f_scores(states[k], counted[k], states[0], counted[0]) for k in (1, 2, 3)]
                for name, other in (("matching", f[1]), ("matching_near", f[2])):
                    wins.setdefault(name + suffix, []).append(_won(f[0], other))
                if not suffix:
                    logits = model.aligned(streams)
                    fits = (logits[:, 0] - logits[:, 1]).reshape(len(chosen), -1)
                    wins.setdefault("alignment", []).append(_won(fits[1], fits[2]))
                    wins.setdefault("alignment_near", []).append(_won(fits[1], fits[3]))
    finally:
        model.train(was_training)
    return {name: round(float(torch.cat(values).mean()) * 100, 4) for name, values in wins.items()}


def _attended(model: VilbertLearner, text: torch.Tensor, scored: torch.Tensor, image: torch.Tensor) -> torch.Tensor:
    """(k, q) similarity of q images with k captions each in the first connection; texts (k·q, m, T)."""
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
    """Train ViLBERT in a run folder, or resume its training.

    ``root`` is the data folder, for relative paths; other arguments and errors are those of
    :func:`capbench.training.loop.train`.

    Raises:
        CapbenchError: captions or features are missing or invalid.
    """
    return train(
        config,
        lambda device, say: VilbertTask(config, prepare(config, root, say), device, say),
        run,
        **running,
        smaller="'batch' or the sizes in 'network'",
    )


class VilbertTask(CaptionTask[VilbertLearner, Batch]):
    """Prediction of masked words and regions, and alignment of captions and images.

    Args:
        config: the settings.
        data: the data.
        device: device of the network.
        say: called with progress messages.

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
        if config.precision == "amp-bfloat16" and is_slow_in_bfloat16(device):
            say("this processor emulates bfloat16, several times slower than float32 ('precision: float32')")
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
        # Drawn on the CPU, so that a seed gives the same weights on every device.
        generator = torch.Generator().manual_seed(config.seed)
        model = VilbertLearner(options, generator, config.initial)
        if config.word_start.epochs:
            say("training word vectors on the captions for the initial embeddings")
            self._start_from_vectors(model)
        started = {} if data.bert is None else {"text_start": _start_from_bert(model, data.bert)}
        super().__init__(config, data.train.pairs, images.regions, model, device)
        self._variance = images.variance() if images.classes is None else None
        self.data = {**data.names, **started}
        self.facts = {"features": data.features, "longest": config.pieces.longest, **started}
        self.trained_on = data.record

    @torch.no_grad()
    def _start_from_vectors(self, model: VilbertLearner) -> None:
        """Initialise embeddings of the captions' word pieces with skip-gram vectors, at the same standard deviation."""
        from capbench.training.word_vectors import WordVectorOptions, train_sequence_vectors

        config, pieces = self._config, self._pieces.pieces
        options = WordVectorOptions(
            dimension=config.network.text_dim, window=5, epochs=config.word_start.epochs, seed=config.seed
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
            seed=self._config.seed,
            first_step=first_step,
        )

    def loss(self, batch: Batch, step: int) -> Tensor:
        """The weighted sum of the losses."""
        bfloat16 = self._config.precision == "amp-bfloat16"
        with contextlib.ExitStack() as stack:
            if self._device.type == "cpu":
                # For heads this small, the fused attention's backward pass in bfloat16 takes as long as all the rest.
                stack.enter_context(sdpa_kernel(SDPBackend.MATH))
            else:
                stack.enter_context(without_cudnn_attention())
            stack.enter_context(torch.autocast(self._device.type, torch.bfloat16, enabled=bfloat16))
            return self._loss(batch)

    def _loss(self, batch: Batch) -> Tensor:
        """The weighted sum of the losses.

        The connections process three captions with each image: one of its captions, masked; another of its captions;
        and a caption of another image. Words and regions are predicted from the first, alignment from all.
        """
        weights, model = self._config.loss, self.model
        moved = {field.name: getattr(batch, field.name).to(self._device) for field in dataclasses.fields(batch)}
        size, present = len(batch.image_of), moved["present"]
        read, _ = model.read(moved["ids"], present, moved["features"], moved["places"])
        total = read.text.new_zeros(())
        counted = present & torch.isin(moved["ids"], self._not_special())
        similarities = None
        if weights.contrast:
            second = slice(size, 2 * size)
            similarities = model.similarities(read.text[second], counted[second], read.image).float()
            total = total + weights.contrast * self._contrast(similarities, moved["image_of"])
        foreign = self._foreign(similarities, moved["image_of"])
        own = torch.arange(size, device=self._device)
        if foreign is None:  # all captions are of one image
            chosen, shown = torch.cat((own, own + size)), torch.cat((own, own))
        else:
            chosen, shown = torch.cat((own, own + size, foreign + size)), torch.cat((own, own, own))
        last, end = model.connect(read.text[chosen], read.image[shown], present[chosen])
        heads = model.network.heads
        assert heads is not None
        if weights.words:
            masked = moved["words"] != IGNORED
            logits = heads.words(end.text[:size][masked], model.network.text_embedding.words.weight)
            total = total + weights.words * word_loss(logits, moved["words"][masked])
        if weights.regions:
            hidden = moved["hidden"]
            predicted = heads.regions(end.image[:size][hidden])
            total = total + weights.regions * region_loss(predicted, moved["targets"][hidden], self._variance)
        together = torch.arange(len(chosen), device=self._device) < 2 * size
        if foreign is not None and weights.alignment:
            total = total + weights.alignment * alignment_loss(model.aligned(end), together)
        scored = counted[chosen]
        # All tokens count in a caption whose words are all masked.
        scored = torch.where(scored.any(dim=1, keepdim=True), scored, present[chosen])
        if foreign is not None and weights.fit:
            logits = (model.fits(last.float(), scored) - _FIT_LEVEL) / _FIT_TEMPERATURE
            total = total + weights.fit * alignment_loss(torch.stack((logits, -logits), dim=1), together)
        if foreign is not None and weights.matching:
            # F of another caption of each image, then of a caption of another image, with the first caption.
            reference, matched = last[:size].float().repeat(2, 1, 1), last[size:].float()
            f = f_scores(matched, scored[size:], reference, scored[:size].repeat(2, 1))
            total = total + weights.matching * matching_loss(f[:size], f[size:])
        return total

    def _not_special(self) -> Tensor:
        return torch.from_numpy(self._specials.ordinary).to(self._device)

    def _contrast(self, similarities: Tensor, image_of: Tensor) -> Tensor:
        """InfoNCE over the batch; captions of the same image are not used as negatives of each other."""
        same = (image_of[:, None] == image_of[None, :]) & ~torch.eye(
            len(image_of), dtype=torch.bool, device=image_of.device
        )
        return info_nce(similarities.masked_fill(same, -1.0), _TEMPERATURE)

    def _foreign(self, similarities: Tensor | None, image_of: Tensor) -> Tensor | None:
        """(b,) for each image the index of a caption of another image of the batch; None if an image has none."""
        same = image_of[:, None] == image_of[None, :]
        if bool(same.all(dim=1).any()):
            return None
        if self._config.loss.negatives == "hard" and similarities is not None:
            logits = similarities.detach() / _TEMPERATURE
        else:
            logits = torch.zeros(same.shape, device=same.device)
        shares = logits.masked_fill(same, -torch.inf).softmax(dim=1)
        return torch.multinomial(shares, 1)[:, 0]

    def validate(self, model: VilbertLearner, pause: Callable[[], None]) -> dict[str, Any]:
        """Accuracies on dev."""
        dev = self._dev
        return evaluate(model, self._trial, dev.captions, dev.images, self._specials, self._device, pause)

    def save(self, path: Path, model: VilbertLearner, facts: Mapping[str, Any]) -> None:
        """Weights, sizes, word pieces and facts as one ``.safetensors``, without the parts that only training uses."""
        network = model.network
        network.heads = None
        save_vilbert(path, network, self._pieces, facts)


def _start_from_bert(model: VilbertLearner, folder: Path) -> str:
    """Initialise the text stream with a BERT's weights; returns the SHA-256 of its weight file."""
    network = model.network
    tensors, digest = read_bert(folder, network)
    network.load_state_dict(tensors, strict=False)
    return digest


def weights_of(options: VilbertOptions) -> int:
    """Number of trained weights, counted without allocating them."""
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

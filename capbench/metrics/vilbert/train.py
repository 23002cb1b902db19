"""Training of ViLBERT: settings of training files, data, losses, and the training task.

The default sizes are the published ones (Lu et al., NeurIPS 2019, arXiv:1908.02265), and the default losses are the
three of section 2.3 with equal weights: masked words, masked regions and alignment. But Lu et al. predict a masked
region's distribution over the detector's classes, by Kullback-Leibler divergence, which is ``region_target: classes``;
the default, ``features``, predicts the feature, because most features come without classes. ``contrast``, ``fit``,
``matching``, ``negatives: hard`` and ``word_start`` are additions, by default off.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, InstanceOf
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from capbench.core.errors import DataError, FeatureError
from capbench.core.machine import without_cudnn_attention
from capbench.datasets.root import DataRoot
from capbench.features.records import RegionFeatures
from capbench.metrics.vilbert.encode import WHOLE, places_of
from capbench.metrics.vilbert.files import VOCABULARY, read_bert, save_vilbert
from capbench.metrics.vilbert.network import Connection, Heads, Streams, Vilbert, VilbertOptions, mask_of
from capbench.text.vocabulary import pad_rows
from capbench.text.word_pieces import MASK, PAD, WordPieces, learn_word_pieces, read_word_pieces
from capbench.text.word_vectors import train_word2vec
from capbench.training import data, settings
from capbench.training.data import Regions
from capbench.training.matching import CaptionTask, Split, info_nce
from capbench.training.trainer import Watcher


class PieceOptions(settings.Section):
    """Word pieces of the network."""

    size: Annotated[int, Field(ge=6)] = 30_522  # maximum number of learned word pieces, including special tokens
    longest: Annotated[int, Field(ge=3, le=512)] = 37  # maximum number of tokens of a caption, with [CLS] and [SEP]


class WordStart(settings.Section):
    """First embeddings of word pieces: skip-gram vectors of the training captions."""

    epochs: settings.Whole = 0  # epochs of skip-gram on the captions; 0: random embeddings


class TextStart(settings.Section):
    """A BERT's folder, from which the text stream takes its word pieces and first weights, as in the publication."""

    folder: settings.Text | None = None  # with config.json, weights and vocab.txt; null: random weights


class VilbertLoss(settings.Section):
    """Losses and their weights."""

    words: settings.Number = 1.0  # masked words
    regions: settings.Number = 1.0  # masked regions
    region_target: Literal["classes", "features"] = "features"
    """``classes``, as published: Kullback-Leibler divergence from the detector's probabilities; ``features``: squared
    error / variance."""
    alignment: settings.Number = 1.0  # alignment of caption and image
    negatives: Literal["random", "hard"] = "random"  # captions of other images; hard: by similarity (``contrast``)
    contrast: settings.Number = 0.0  # InfoNCE of captions and images of a batch, by the first connection's attention
    fit: settings.Number = 0.0  # alignment from the last word states: their mean cosine with one learned direction
    matching: settings.Number = 0.0  # captions of one image must match better than captions of two images


class VilbertTraining(data.CaptionTraining):
    """Settings of a training of ViLBERT."""

    measured = ("vocabulary_size", "feature_dim", "region_outputs")

    network: InstanceOf[VilbertOptions] = VilbertOptions()
    pieces: PieceOptions = PieceOptions()
    word_start: WordStart = WordStart()
    text_start: TextStart = TextStart()
    initial: settings.Positive = 0.02  # standard deviation of the first weights
    loss: VilbertLoss = VilbertLoss()
    optimiser: settings.OptimiserOptions = settings.OptimiserOptions(lr=1e-4, warmup=1000)
    order: Literal["captions", "rounds"] = "rounds"
    precision: Literal["float32", "amp-bfloat16"] = "float32"
    """``amp-bfloat16``: large products in bfloat16, on a GPU and on processors that support it; weights in float32."""

    def dev_captions(self) -> int:
        return 2

    def deciding(self) -> dict[str, Any]:
        """As for all trainings, without the folder of ``text_start``: its weights and word pieces count as data."""
        return {key: value for key, value in super().deciding().items() if key != "text_start.folder"}

    def contradictions(self) -> Iterable[str]:
        loss, longest, places = self.loss, self.pieces.longest, self.network.positions
        if loss.negatives == "hard" and not loss.contrast:
            yield "'loss.negatives: hard' requires 'loss.contrast' above 0, which defines the similarity"
        if not any((loss.words, loss.regions, loss.alignment, loss.contrast, loss.fit, loss.matching)):
            yield "all weights of 'loss' are 0; at least one must be above 0"
        if longest > places:
            yield f"'pieces.longest' is {longest}, but the network has {places} 'positions'"
        if self.text_start.folder is not None:
            idle = {"pieces.size": self.pieces.size != PieceOptions().size, "word_start.epochs": self.word_start.epochs}
            for key in filter(idle.get, idle):
                yield f"'{key}' does nothing with 'text_start.folder', whose BERT has its own pieces and embeddings"


# Data: captions as word pieces, and images as rows (the mean of the regions, then the regions).


def shown(regions: Regions, chosen: NDArray[np.int64]) -> tuple[Tensor, Tensor, Tensor]:
    """Features (b, n, d), places (b, n, 5) and targets (b, n, k) of some images; the mean's target is 0."""
    read, places, *shares = regions.take(chosen)
    features = torch.cat((read.mean(dim=1, keepdim=True), read), dim=1)
    places = torch.cat((torch.tensor(WHOLE).expand(len(places), 1, 5), places), dim=1)
    targets = features
    if shares:  # they are rounded to half precision
        targets = functional.pad(shares[0] / shares[0].sum(dim=2, keepdim=True), (0, 0, 1, 0))
    return features, places, targets


def _inputs(classes: bool, regions: RegionFeatures) -> list[NDArray[Any]]:
    """The inputs of an image besides features: places and, as targets, probabilities of ``classes``."""
    shares = [regions.class_probabilities] if classes else []
    if regions.boxes is None or any(of is None for of in shares):
        message = "the network reads boxes, and with 'region_target: classes' class probabilities"
        hint = "Import the features with boxes, and with --class-probabilities"
        raise FeatureError(message, code="wrong-features", value=regions.image, hint=hint)
    return [places_of(regions), *(cast(NDArray[Any], of) for of in shares)]


# Batches: masking, and pairs of captions of the same image.

IGNORED = -100  # Target of word pieces that are not masked
_SELECTED = 0.15  # of the word pieces and of the regions
_MASKED, _REPLACED = 0.8, 0.1  # of the selected word pieces; others stay (Devlin et al. 2019, section 3.1)
_ZEROED = 0.9  # of the selected regions (Lu et al. 2019, section 2.3)


def ordinary_pieces(pieces: WordPieces) -> NDArray[np.int64]:
    """Ids of all word pieces but the special tokens, which are in brackets."""
    special = [piece.startswith("[") and piece.endswith("]") and len(piece) > 2 for piece in pieces.pieces]
    return np.flatnonzero(~np.array(special))


class Batch(NamedTuple):
    """Data of one training step: b images with two captions each."""

    features: Tensor  # (b, n, d) float32, the mean of the regions first; zeros for masked regions
    places: Tensor  # (b, n, 5) float32
    hidden: Tensor  # (b, n) bool, True for regions to be predicted
    targets: Tensor  # (b, n, k) float32 targets of the regions
    ids: Tensor  # (2b, m) int64 word pieces: the images' captions, masked, then another caption of each
    present: Tensor  # as ``ids``, bool, False for padding
    words: Tensor  # (b, m) int64 the masked word pieces, elsewhere :data:`IGNORED`
    image_of: Tensor  # (b,) int64 index of each image in the split


def make_batch(split: Split, ordinary: NDArray[np.int64], chosen: NDArray[np.int64], rng: np.random.Generator) -> Batch:
    """The batch of some captions, each with another caption of its image."""
    counts, firsts = np.bincount(split.pairs.image_of), split.pairs.firsts()
    image_of = split.pairs.image_of[chosen]
    # Another caption of the image: one of those after it, cyclically.
    others = np.maximum(counts[image_of] - 1, 1)
    ahead = (counts[image_of] > 1) * (1 + rng.integers(others))
    second = firsts[image_of] + (chosen - firsts[image_of] + ahead) % counts[image_of]
    ids, present = padded([split.captions[i] for i in [*chosen.tolist(), *second.tolist()]], split.vocabulary)
    masked, words = mask_words(ids[: len(chosen)].numpy(), ordinary, split.vocabulary.places[MASK], rng)
    ids[: len(chosen)] = torch.from_numpy(masked)
    features, places, targets = shown(split.regions, image_of)
    hidden = torch.from_numpy(rng.random(features.shape[:2])) < _SELECTED
    hidden[:, 0] = False  # the mean of all regions
    zeroed = hidden & (torch.from_numpy(rng.random(hidden.shape)) < _ZEROED)
    features = features.masked_fill(zeroed[..., None], 0.0)
    return Batch(features, places, hidden, targets, ids, present, *map(torch.from_numpy, (words, image_of)))


def padded(captions: Sequence[Sequence[int]], pieces: WordPieces) -> tuple[Tensor, Tensor]:
    """Captions as (b, longest) ids, padded at the end, and a mask that is False for padding."""
    ids, lengths = pad_rows(captions, pieces.places[PAD])
    return ids, torch.arange(ids.shape[1]) < lengths[:, None]


def mask_words(
    ids: NDArray[np.int64], ordinary: NDArray[np.int64], mask: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Mask word pieces (b, m) as in BERT: 80 % of the selected ones become ``[MASK]`` and 10 % a random piece.

    Only ``ordinary`` pieces are selected. Returns the masked ids, and the original ids of selected pieces,
    :data:`IGNORED` elsewhere.
    """
    chosen = np.isin(ids, ordinary) & (rng.random(ids.shape) < _SELECTED)
    words = np.where(chosen, ids, IGNORED)
    way = rng.random(ids.shape)
    masked = np.where(chosen & (way < _MASKED), mask, ids)
    replaced = chosen & (way >= _MASKED) & (way < _MASKED + _REPLACED)
    return np.where(replaced, rng.choice(ordinary, ids.shape), masked), words


# Losses, each a mean over a batch.

_FAR = -1e4  # similarity with padding
_TEMPERATURE = 0.1  # of the contrast and of the sampling of hard negatives
_FIT_LEVEL, _FIT_TEMPERATURE = 0.5, 0.2  # mean cosine between captions that fit and others; of its differences
_MATCHING_TEMPERATURE = 0.05  # of the differences of F-scores


def region_loss(predicted: Tensor, targets: Tensor, variance: float | None) -> Tensor:
    """Loss of masked regions; 0 if none is masked.

    Features (k, d): mean squared error / ``variance``. Without a variance, logits and probabilities (k, classes):
    Kullback-Leibler divergence (Lu et al. 2019, section 2.3).
    """
    count = max(1, len(predicted))
    if variance is None:
        return functional.kl_div(predicted.log_softmax(dim=-1), targets, reduction="sum") / count
    return ((predicted - targets).square().mean(dim=-1).sum() / variance) / count


def alignment_loss(logits: Tensor, together: Tensor) -> Tensor:
    """Cross entropy of (k, 2) logits, class 0 for aligned pairs (``together`` (k,)), with equal weights of classes."""
    losses = functional.cross_entropy(logits, (~together).long(), reduction="none")
    return (losses[together].mean() + losses[~together].mean()) / 2


def late_similarities(tokens: Tensor, present: Tensor, regions: Tensor) -> Tensor:
    """(i, c) similarities of images and captions: the mean over tokens of the highest cosine with a region.

    ``tokens`` (c, m, D) of captions, of which those in ``present`` (c, m) count; ``regions`` (i, n, D) of images.
    """
    words, areas = functional.normalize(tokens, dim=-1), functional.normalize(regions, dim=-1)
    flat = words.flatten(0, 1) @ areas.flatten(0, 1).t()  # (c·m, i·n)
    best = flat.view(*words.shape[:2], *areas.shape[:2]).amax(dim=3)  # (c, m, i)
    counts = present.sum(dim=1).clamp_min(1)
    return ((best * present[..., None]).sum(dim=1) / counts[:, None]).t()


def f_scores(first: Tensor, first_present: Tensor, second: Tensor, second_present: Tensor) -> Tensor:
    """(k,) F of greedy matching for pairs of captions (Lee et al. 2020, equations 1 to 3), without padding.

    ``first`` (k, m, D) and ``second`` (k, n, D); ``…_present`` (k, m) and (k, n) are True for tokens that count.
    """
    a, b = functional.normalize(first, dim=-1), functional.normalize(second, dim=-1)
    similar = (a @ b.transpose(1, 2)).masked_fill(~(first_present[:, :, None] & second_present[:, None, :]), _FAR)
    precision = _mean(similar.amax(dim=2), first_present)
    recall = _mean(similar.amax(dim=1), second_present)
    return 2 * precision * recall / (precision + recall).clamp_min(1e-3)


def _mean(values: Tensor, present: Tensor) -> Tensor:
    return values.masked_fill(~present, 0.0).sum(dim=1) / present.sum(dim=1).clamp_min(1)


class VilbertLearner(nn.Module):
    """The network with its heads, and the learned direction of ``loss.fit``."""

    def __init__(self, options: VilbertOptions, generator: torch.Generator | None, initial: float) -> None:
        super().__init__()
        self.network = Vilbert(options, generator, heads=True)
        self.fit_direction = nn.Parameter(torch.empty(options.text_dim))
        self.network.draw(initial, generator)
        with torch.no_grad():
            self.fit_direction.normal_(0.0, initial, generator=generator)

    def aligned(self, streams: Streams) -> Tensor:
        """Logits (k, 2) of the classes "aligned" and "not aligned"."""
        text, image = self.network.pool(streams)
        logits: Tensor = cast(Heads, self.network.heads).alignment_output(text * image)
        return logits


# Evaluation: accuracy at choosing the caption of an image instead of another image's, on images not in the training.

_AT_ONCE = 64


def draw_trials(pairs: data.Pairs) -> NDArray[np.int64]:
    """(4, q) indices of an image, two captions of it and one of another image, for each image with several captions."""
    rng = np.random.default_rng((1, 4))
    counts, firsts = np.bincount(pairs.image_of, minlength=len(pairs.images)), pairs.firsts()
    images = np.flatnonzero(counts > 1)
    if not len(images) or len(pairs.images) < 2:
        message = "the evaluation requires two images, one of them with at least two captions"
        raise DataError(message, code="too-few", value=len(pairs.images), path=pairs.source)
    rows = []
    for image in images.tolist():
        two = firsts[image] + rng.choice(counts[image], 2, replace=False)
        rows.append((image, *two, rng.permutation(np.flatnonzero(pairs.image_of != image))[0]))
    return np.array(rows, dtype=np.int64).T


class VilbertTask(CaptionTask[VilbertLearner, Batch]):
    """Prediction of masked words and regions, and alignment of captions and images."""

    settings = VilbertTraining
    metric = "vilbertscore"
    score = "alignment"
    config: VilbertTraining

    def __init__(self, config: VilbertTraining, root: DataRoot | None, device: torch.device, watcher: Watcher) -> None:
        classes = config.loss.region_target == "classes"
        super().__init__(config, root, device, watcher, partial(_inputs, classes))
        folder, longest = config.text_start.folder, config.pieces.longest
        if bert := None if folder is None else data.locate(folder, root, "a BERT"):
            self._pieces = read_word_pieces(bert / VOCABULARY)
            if MASK not in self._pieces.places:
                message = f"has no {MASK}, which training requires"
                raise DataError(message, code="missing-value", value=MASK, path=bert / VOCABULARY)
        else:
            self._pieces = learn_word_pieces(self.train.captions, config.pieces.size)
        watcher.say(f"word pieces: {len(self._pieces):,}")
        if cut := sum(len(self._pieces.sequence(text, longest + 1)) > longest for text in self.train.captions):
            watcher.say(f"{cut:,} training captions have more than {longest} word pieces and are truncated")
        splits = (self.train, self.regions), (self.sample, self.dev_regions)
        self._split, self.dev = (
            Split(pairs, [self._pieces.sequence(text, longest) for text in pairs.captions], regions, self._pieces)
            for pairs, regions in splits
        )
        self._ordinary = ordinary_pieces(self._pieces)
        self._trials = draw_trials(self.sample)
        outputs = shown(self.regions, np.zeros(1, np.int64))[2].shape[2]
        sizes = {"vocabulary_size": len(self._pieces), "feature_dim": self.regions.shape[2], "region_outputs": outputs}
        options = dataclasses.replace(config.network, **sizes)
        model = VilbertLearner(options, torch.Generator().manual_seed(config.seed), config.initial)
        if config.word_start.epochs:
            watcher.say("training word vectors on the captions for the first embeddings")
            self._start_from_vectors(config, model)
        started = {}
        if bert is not None:
            tensors, started["text_start"] = read_bert(bert, model.network)
            model.network.load_state_dict(tensors, strict=False)
        self.start(model)
        first = self.regions.take(range(min(1000, self.regions.shape[0])))[0]
        # The mean over columns.
        self._variance = None if classes else float(first.flatten(0, 1).var(dim=0, correction=0).mean())
        self.data |= {"pieces": self._pieces.sha256, **started}
        if classes:
            self.data["region targets"] = f"probabilities of {outputs} classes, background included"
        self._facts |= {"longest": longest, **started}

    @torch.no_grad()
    def _start_from_vectors(self, config: VilbertTraining, model: VilbertLearner) -> None:
        """Initialise embeddings of the captions' word pieces with skip-gram vectors, at the same standard deviation."""
        dimension, epochs = config.network.text_dim, config.word_start.epochs
        sequences = [[str(number) for number in caption[1:-1]] for caption in self._split.captions]
        numbers, vectors = train_word2vec(sequences, dimension=dimension, epochs=epochs, seed=config.seed)
        vectors = vectors - vectors.mean(axis=0)
        vectors *= config.initial / max(float(np.sqrt(np.square(vectors).mean())), 1e-12)
        weight = model.network.text_embedding.words.weight
        weight[torch.tensor([int(number) for number in numbers])] = torch.from_numpy(vectors)

    def batch(self, chosen: NDArray[np.int64], step: int) -> Batch:
        return make_batch(self._split, self._ordinary, chosen, np.random.default_rng((self.config.seed, 2, step)))

    def loss(self, batch: Batch, step: int) -> Tensor:
        kind, bfloat16 = self.device.type, self.config.precision == "amp-bfloat16"
        # For heads this small, the fused attention's backward pass in bfloat16 takes as long on a CPU as all the rest.
        attention = sdpa_kernel(SDPBackend.MATH) if kind == "cpu" else without_cudnn_attention()
        with attention, torch.autocast(kind, torch.bfloat16, enabled=bfloat16):
            return self._loss(batch)

    def _loss(self, batch: Batch) -> Tensor:
        """The weighted sum of the losses.

        The connections process three captions with each image: one of its captions, masked; another of its captions;
        and a caption of another image. Words and regions are predicted from the first, alignment from all.
        """
        weights, model, network = self.config.loss, self.model, self.model.network
        moved = Batch(*(tensor.to(self.device) for tensor in batch))
        size, present = len(batch.image_of), moved.present
        texts = network.read_text(moved.ids, mask_of(present))
        images = network.read_image(moved.features, moved.places)
        total = texts.new_zeros(())
        counted = self._counted(moved.ids)
        similarities, same = None, moved.image_of[:, None] == moved.image_of[None, :]
        if weights.contrast:
            attention = cast(Connection, network.connections[0])
            words, regions = attention.text_query(texts[size:]), attention.image_key(images)
            similarities = late_similarities(words, counted[size:], regions).float()
            # InfoNCE over the batch, in which captions of the same image are not negatives of each other.
            others = same & ~torch.eye(size, dtype=torch.bool, device=self.device)
            total = total + weights.contrast * info_nce(similarities.masked_fill(others, -1.0), _TEMPERATURE)
        foreign = self._foreign(similarities, same)
        first = torch.arange(size, device=self.device)
        groups = [first, first + size] if foreign is None else [first, first + size, foreign + size]
        chosen, of = torch.cat(groups), first.repeat(len(groups))
        layers, end = network.connect(Streams(texts[chosen], images[of]), mask_of(present[chosen]))
        last = layers[-1].text  # the states that the metric matches
        heads = cast(Heads, network.heads)
        if weights.words:
            masked = moved.words != IGNORED
            logits = heads.words(end.text[:size][masked], network.text_embedding.words.weight)
            loss = functional.cross_entropy(logits, moved.words[masked], reduction="sum") / max(1, len(logits))
            total = total + weights.words * loss  # 0 if no word is masked
        if weights.regions:
            predicted = heads.regions(end.image[:size][moved.hidden])
            total = total + weights.regions * region_loss(predicted, moved.targets[moved.hidden], self._variance)
        together = torch.arange(len(chosen), device=self.device) < 2 * size
        if foreign is not None and weights.alignment:
            total = total + weights.alignment * alignment_loss(model.aligned(end), together)
        scored = counted[chosen]
        # All tokens count in a caption whose words are all masked.
        scored = torch.where(scored.any(dim=1, keepdim=True), scored, present[chosen])
        if foreign is not None and weights.fit:
            cosines = functional.cosine_similarity(last.float(), model.fit_direction, dim=-1)
            logits = (_mean(cosines, scored) - _FIT_LEVEL) / _FIT_TEMPERATURE
            total = total + weights.fit * alignment_loss(torch.stack((logits, -logits), dim=1), together)
        if foreign is not None and weights.matching:
            # F of another caption of each image, then of a caption of another image, with the first caption.
            reference, matched = last[:size].float().repeat(2, 1, 1), last[size:].float()
            f = f_scores(matched, scored[size:], reference, scored[:size].repeat(2, 1))
            # Mean over all pairs of ln(1 + exp((foreign - paired) / temperature)): a soft count of wrong orders.
            ahead = (f[None, size:] - f[:size, None]) / _MATCHING_TEMPERATURE
            total = total + weights.matching * functional.softplus(ahead).mean()
        return total

    def _counted(self, ids: Tensor) -> Tensor:
        """True for word pieces except special tokens."""
        return torch.isin(ids, torch.from_numpy(self._ordinary).to(self.device))

    def _foreign(self, similarities: Tensor | None, same: Tensor) -> Tensor | None:
        """(b,) for each image the index of a caption of another image of the batch; None if an image has none."""
        if bool(same.all(dim=1).any()):
            return None
        logits = torch.zeros(same.shape, device=same.device)
        if self.config.loss.negatives == "hard" and similarities is not None:
            logits = similarities.detach() / _TEMPERATURE
        shares = logits.masked_fill(same, -torch.inf).softmax(dim=1)
        return torch.multinomial(shares, 1)[:, 0]

    @torch.inference_mode()
    def validate(self, model: VilbertLearner, pause: Callable[[], None]) -> dict[str, Any]:
        """Accuracies on dev in %, without masking; ties count half.

        ``alignment`` compares logits of the alignment head, ``matching`` F with the other caption of the image.
        """
        model.eval()
        wins: list[Tensor] = []
        for start in range(0, self._trials.shape[1], _AT_ONCE):
            pause()
            wins.append(self._compared(model, self._trials[:, start : start + _AT_ONCE]))
        shares = torch.cat(wins, dim=1).mean(dim=1).tolist()
        return {name: round(share * 100, 4) for name, share in zip(("alignment", "matching"), shares, strict=True)}

    def _compared(self, model: VilbertLearner, trials: NDArray[np.int64]) -> Tensor:
        """(2, q) outcomes of some trials (4, q) by alignment and matching: 1 won, ½ tied, 0 lost."""
        dev, texts = self.dev, len(trials) - 1
        features, places, _ = (tensor.to(self.device) for tensor in shown(dev.regions, trials[0]))
        captions = padded([dev.captions[i] for i in trials[1:].ravel().tolist()], self._pieces)
        ids, present = (tensor.to(self.device) for tensor in captions)
        scored = self._counted(ids)
        text = model.network.read_text(ids, mask_of(present))
        image = model.network.read_image(features, places).repeat(texts, 1, 1)
        layers, end = model.network.connect(Streams(text, image), mask_of(present))
        first, *others = torch.tensor_split(layers[-1].text, texts)
        paired, foreign = (
            f_scores(states, counted, first, scored[: len(first)])
            for states, counted in zip(others, torch.tensor_split(scored, texts)[1:], strict=True)
        )
        logits = model.aligned(end)
        _, aligned, apart = torch.tensor_split(logits[:, 0] - logits[:, 1], texts)
        ahead = torch.stack((aligned - apart, paired - foreign))
        return (ahead.sign().double() + 1) / 2

    def save(self, path: Path, model: VilbertLearner, facts: Mapping[str, Any]) -> None:
        save_vilbert(path, model.network, self._pieces, facts)

"""BERTScore (Zhang et al., ICLR 2020): greedy matching of contextual word vectors, and its BERT."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import MetricError, MissingFileError, ModelError, require
from capbench.core.files import sha256_file
from capbench.core.machine import choose_device
from capbench.core.options import Choice, Count, Options, option
from capbench.core.progress import Progress
from capbench.core.records import FloatArray, Item
from capbench.metrics.abilities import ReferenceSweep
from capbench.metrics.base import Metric
from capbench.metrics.needs import References, Resources, Weights
from capbench.metrics.pair_metric import Pair, PairMetric
from capbench.text.greedy_matching import Frequencies, Tokens, match, unit
from capbench.weights.encodings import Encodings

# Networks of the BERT family in a local folder, loaded with ``transformers``: states of a text's word pieces.

LAYERS = {
    ("bert", 12): 9,
    ("bert", 24): 18,
    ("roberta", 12): 10,
    ("roberta", 24): 17,
    ("xlm-roberta", 12): 9,
    ("xlm-roberta", 24): 17,
    ("distilbert", 6): 5,
}
"""Kind of network and number of layers → the layer that BERTScore's authors chose (``bert-score`` 0.3.13)."""

_FOLDER = "FOLDER with config.json, weights and the tokeniser's files"
_TEXTS = 128  # encoded at once
_LONGEST = 512
_FILES = (
    *("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.txt", "vocab.json", "merges.txt", "sentencepiece.bpe.model", "spiece.model", "spm.model"),
)  # Files that determine the states, besides the weights


def open_bert(folder: str | os.PathLike[str], layer: int | None, device: str = "cpu") -> Bert:
    """The network in a folder in transformers' format; two are kept in memory as long as their files are unchanged.

    Layers are counted from 1; 0 is for the embeddings, None for the layer in :data:`LAYERS`.
    """
    path = Path(folder).resolve()
    if not (path / "config.json").is_file():
        raise MissingFileError("has no config.json", value="config.json", path=folder, hint=f"Use a {_FOLDER}")
    digest = hashlib.sha256()
    weights = sorted(path.glob("*.safetensors")) or sorted(path.glob("pytorch_model*.bin"))
    for file in sorted([*(path / name for name in _FILES if (path / name).is_file()), *weights]):
        digest.update(f"{file.name}\0{sha256_file(file)}\0".encode())
    return _opened(path, digest.hexdigest(), layer, device)


class Bert:
    """A network of the BERT family, cut after the layer whose states it returns; arguments as of :func:`open_bert`."""

    def __init__(self, folder: Path, sha256: str, layer: int | None, device: str) -> None:
        require("transformers", purpose="a BERT")
        import transformers

        self.folder, self.sha256, self._device = folder, sha256, device
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        try:
            config = transformers.AutoConfig.from_pretrained(folder, **options)
            # RoBERTa marks words by the space before them; as in BERTScore, the first word gets one, too.
            prefix = {"add_prefix_space": True} if config.model_type in ("roberta", "gpt2") else {}
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **options, **prefix)
            self._network, loading = transformers.AutoModel.from_pretrained(
                folder, weights_only=True, output_loading_info=True, **options
            )
            number = config.num_hidden_layers
            # BERT, RoBERTa, XLM-RoBERTa, ELECTRA, DeBERTa and MPNet have an encoder, DistilBERT a transformer.
            stack: Any = getattr(self._network, "encoder", None) or self._network.transformer
            layers = stack.layer
        except Exception as error:  # transformers, tokenizers and readers of weights raise anything on a bad file
            reason = (str(error).strip().splitlines() or [""])[0][:200]
            message = f"cannot be read as a BERT-like model ({type(error).__name__}: {reason})"
            hint = "Download the model's files again"
            raise ModelError(message, code="unreadable", path=folder, hint=hint) from error
        # transformers draws weights that a file lacks at random.
        missing = sorted(name for name in loading["missing_keys"] if "pooler" not in name)
        if missing:
            message, hint = f"has no weights '{missing[0]}'", "Use config.json and weights of the same model"
            raise ModelError(message, code="wrong-weights", value=missing[0], path=folder, hint=hint)
        chosen = LAYERS.get((config.model_type, number)) if layer is None else layer
        if chosen is None:
            message, hint = f"has no default layer: it is a {config.model_type} of {number}", "Set layer=N"
            raise ModelError(message, code="missing-option", value=config.model_type, path=folder, hint=hint)
        if chosen > number:
            message = f"has {number} layers; there is no layer {chosen}"
            raise ModelError(message, code="out-of-range", value=chosen, path=folder)
        self.layer, stack.layer = chosen, layers[:chosen]  # the states of this layer become the output
        self._network.eval().to(device)
        positions = getattr(config, "max_position_embeddings", _LONGEST) - (2 if "roberta" in config.model_type else 0)
        self.longest = min(int(getattr(self._tokenizer, "model_max_length", _LONGEST)), positions)
        self._pieces: dict[str, list[int]] = {}
        self._states = Encodings()

    def pieces(self, text: str) -> list[int]:
        """Ids of all pieces of a text, with start and end tokens."""
        if text not in self._pieces:
            self._pieces[text] = self._tokenizer.encode(text.strip(), add_special_tokens=True, verbose=False)
        return self._pieces[text]

    def ids(self, text: str) -> tuple[int, ...]:
        """Ids of the pieces that the network reads: a long text is truncated, and its end token is kept."""
        pieces = self.pieces(text)
        return tuple(pieces) if len(pieces) <= self.longest else (*pieces[: self.longest - 1], pieces[-1])

    def names(self, text: str) -> list[str]:
        """The pieces of a text, including start and end tokens."""
        names: list[str] = self._tokenizer.convert_ids_to_tokens(list(self.ids(text)))
        return names

    def states(self, texts: Iterable[str]) -> dict[str, NDArray[np.float32]]:
        """(m, D) states of all pieces of texts, including start and end tokens, by text."""
        ids_of = {text: self.ids(text) for text in texts}
        states = self._states.of(ids_of.values(), self._encode, _TEXTS)
        return {text: states[ids] for text, ids in ids_of.items()}

    def _encode(self, texts: Sequence[tuple[int, ...]]) -> Iterator[NDArray[np.float32]]:
        """(m, D) states of texts of m pieces; those of one length together, without padding."""
        import torch

        for _, same in itertools.groupby(texts, key=len):
            numbers = torch.tensor(list(same), device=self._device)
            with torch.inference_mode():
                hidden = self._network(numbers, attention_mask=torch.ones_like(numbers))[0].float().cpu().numpy()
            if not np.isfinite(hidden).all():
                raise ModelError("returns NaN or infinite states", code="not-a-number", path=self.folder)
            yield from map(np.array, hidden)


_opened = lru_cache(maxsize=2)(Bert)


@dataclass(frozen=True)
class BertOptions(Options):
    """Options of every metric over a BERT."""

    device: str = option("auto", Choice("auto", "cpu", "cuda"), "device of the network", sign_as="")


class BertMetric(Metric):
    """A metric over the word states of a BERT, with document frequencies."""

    packages = ("torch", "transformers")
    needs = (References(), Weights("a BERT-like model", "", "bertscore", f"{_FOLDER}, or NAME"))
    batch_size = 512
    by_image = False

    option_type = BertOptions
    options: Any

    def __init__(self, resources: Resources | None = None, **options: object) -> None:
        super().__init__(resources, **options)
        assert self.resources.model is not None
        self.bert = open_bert(self.resources.model, self.options.layer, choose_device(self.options.device))
        self._frequencies: Frequencies | None = None
        self._corpus = ""

    def documents(self, item: Item) -> Iterable[str]:
        """The texts of an item in which document frequencies are counted; by default none."""
        return ()

    def facts(self) -> Mapping[str, object]:
        return {"model": self.bert.sha256[:16], "layer": str(self.bert.layer)}

    def prepare(self, items: Sequence[Item]) -> None:
        """Count the texts that contain each word piece; a text of several items counts for each of them."""
        super().prepare(items)
        counts = Counter(text for item in items for text in self.documents(item))
        if not counts:
            return
        self._frequencies = Frequencies(self.bert.ids(text) for text in counts.elements())
        digest = hashlib.sha256()
        for text in sorted(counts):
            digest.update(f"{text}\0{counts[text]}\0".encode("utf-8", "surrogatepass"))
        self._corpus = f"idf:{counts.total()}-{digest.hexdigest()[:16]}"

    def corpus_id(self) -> str:
        return self._corpus

    def warnings(self, dataset: str, items: Sequence[Item]) -> Sequence[str]:
        texts = {text for item in items for text in (item.candidate, *item.references)}
        cut = sum(len(self.bert.pieces(text)) > self.bert.longest for text in texts)
        if not cut:
            return ()
        return [f"{cut:,} of {len(texts):,} captions have more than {self.bert.longest} word pieces and were truncated"]

    @property
    def frequencies(self) -> Frequencies:
        """Document frequencies, which :meth:`prepare` counts."""
        if self._frequencies is None:
            message = f"{self.name} has no document frequencies"
            raise MetricError(message, code="missing-value", value=self.name, hint="Call prepare(items) first")
        return self._frequencies


_SCORES = ("bertscore-p", "bertscore-r", "bertscore-f")


@dataclass(frozen=True)
class BERTScoreOptions(BertOptions):
    """Options of BERTScore; defaults are those of the package ``bert-score`` without rescaling."""

    layer: int | None = option(
        None,
        Count(),
        "layer of the word states; by default the one that the authors chose for a network of this kind",
    )
    idf: str = option(
        "none",
        Choice("none", "references"),
        "weights of word pieces in the mean: equal, or inverse document frequencies in all references",
    )
    reduce: str = option("max", Choice("max", "mean"), "reduction of P, R and F over references", recombines=True)


class BERTScore(PairMetric, BertMetric):
    """Precision, recall and F of greedy matching between the word pieces of a candidate and a reference.

    Equal to the package ``bert-score`` without rescaling: pieces may match any piece, including the start and end
    tokens, which have weight 0 in the mean; P, R and F are each the maximum over references. The package's padding,
    which matters only if all similarities are negative, is not matched. The package leaves one case undefined: if all
    pieces of a text have an idf of 0, they have equal weights here.
    """

    name = "bertscore"
    columns = ("bertscore-f", "bertscore-p", "bertscore-r")
    titles: ClassVar[Mapping[str, str]] = {
        "bertscore-f": "BERTScore-F",
        "bertscore-p": "BERTScore-P",
        "bertscore-r": "BERTScore-R",
    }
    citation = "Zhang et al., BERTScore: evaluating text generation with BERT, ICLR 2020"
    by_image = False
    texts_at_once = 512

    option_type = BERTScoreOptions
    options: BERTScoreOptions

    def documents(self, item: Item) -> Iterable[str]:
        return item.references if self.options.idf == "references" else ()

    def encode(self, texts: Sequence[str]) -> dict[str, Tokens]:
        special = set(self.bert.ids(""))
        tokens = {}
        for text, states in self.bert.states(texts).items():
            ids = self.bert.ids(text)
            if self.options.idf == "none":
                weights = np.array([float(number not in special) for number in ids])
            else:
                weights = np.array([self.frequencies.weight(number) for number in ids])
            has_words = len(ids) > len(self.bert.ids(""))
            tokens[text] = Tokens(unit(states), weights) if has_words else Tokens(states[:0], weights[:0])
        return tokens

    def sweep(self, sweep: ReferenceSweep, progress: Progress) -> Iterator[FloatArray] | None:
        """As of any metric of pairs; None with idf, whose document frequencies change with the references."""
        return None if self.options.idf != "none" else super().sweep(sweep, progress)

    def pairs(self, pairs: Sequence[Pair], encodings: Mapping[str, Tokens]) -> list[FloatArray]:
        """P, R and F (3,) of each pair."""
        return [match(encodings[pair.candidate], encodings[str(pair.reference)]) for pair in pairs]

    def reduce(self, rows: Sequence[FloatArray]) -> FloatArray:
        """(6,) the maxima over references of P, R and F, then their means."""
        return np.concatenate((np.max(rows, axis=0), np.mean(rows, axis=0)))

    def scores(self, statistics: FloatArray) -> dict[str, FloatArray]:
        first = 0 if self.options.reduce == "max" else 3
        return {column: np.ascontiguousarray(statistics[:, first + _SCORES.index(column)]) for column in self.columns}

"""BERTScore: greedy matching of contextual word vectors (Zhang et al., ICLR 2020)."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import logging
import os
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from capbench.core import errors
from capbench.core.errors import MetricError, MissingFileError, ModelError, SetupError
from capbench.core.files import read_json, sha256_file
from capbench.core.machine import choose_device
from capbench.core.options import Choice, Count, Options, option
from capbench.core.progress import Progress, share_of
from capbench.core.records import FloatArray, Item
from capbench.metrics.base import Metric, Resources
from capbench.metrics.needs import ModelFolder, Need, References
from capbench.text.greedy_matching import Frequencies, Tokens, greedy_matching, unit
from capbench.weights.encodings import DEFAULT_MB, Encodings, StoredEncodings, filled, key_of, place_of, space_of

__all__ = ["LAYERS", "BERTScore", "Bert", "BertMetric", "BertOptions", "open_bert"]


# Networks of the BERT family in a local folder, read by ``transformers``: states of a text's word pieces.
#
# A folder is what ``save_pretrained`` writes, or a download of a model's page: ``config.json``, weights as safetensors
# or ``pytorch_model.bin``, and the tokeniser's files. Nothing is fetched, no code of the folder is run.

LAYERS = {
    ("bert", 12): 9,
    ("bert", 24): 18,
    ("roberta", 12): 10,
    ("roberta", 24): 17,
    ("xlm-roberta", 12): 9,
    ("xlm-roberta", 24): 17,
    ("distilbert", 6): 5,
}
"""Kind of network and its number of layers → the layer that BERTScore's authors chose for the model of that kind that
they recommend (``model2layers`` of the package ``bert-score`` 0.3.13)."""

_CODE = ("auto_map", "custom_pipelines")
_TEXTS = 64
_VERSION = 1  # of how texts are encoded here
_MODELS = 2
_MOST_LAYERS = 1000
_LONGEST = 512
_FILES = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "sentencepiece.bpe.model",
    "spiece.model",
    "spm.model",
)

_open: OrderedDict[tuple[object, ...], Bert] = OrderedDict()


class Bert:
    """A network of the BERT family that gives states after one of its layers; layers behind it are thrown away.

    Args:
        folder: the model's folder.
        layer: from 1 on; 0 for the embeddings; None for what :data:`LAYERS` says.
        device: ``cpu`` or ``cuda``.

    Attributes:
        folder: where it was read.
        layer: the layer.
        sha256: of the files that were read, 64 digits.
        encoded_texts: texts that went through the network so far, for tests and benchmarks.

    Raises:
        SetupError: ``transformers`` is not installed.
        MissingFileError: there is no such folder.
        ModelError: it holds no such network, or the network has no such layer.
    """

    def __init__(self, folder: str | os.PathLike[str], layer: int | None, device: str = "cpu") -> None:
        self.folder, self.device = Path(folder), device
        config = _config(self.folder)
        self.layer = _layer(self.folder, config, layer)
        self.sha256 = folder_sha256(self.folder)
        self._tokenizer, self._network = _load(self.folder, config["model_type"])
        self._network = _cut(self._network, self.layer).eval().to(device)
        self._check()
        longest = getattr(self._tokenizer, "model_max_length", _LONGEST)
        positions = config.get("max_position_embeddings", _LONGEST)
        self._longest = min(int(longest), int(positions) - (2 if "roberta" in config["model_type"] else 0))
        self._width = int(self._network.config.hidden_size)
        self.encoded_texts = 0
        self._kept = Encodings()
        self._ids: dict[str, tuple[int, ...]] = {}

    def _check(self) -> None:
        for name, tensor in self._network.state_dict().items():
            if tensor.is_floating_point() and not tensor.isfinite().all():
                raise ModelError(f"'{name}' holds NaN or infinite values", path=self.folder)

    @property
    def special(self) -> frozenset[int]:
        """Numbers of the tokens that begin and end a text."""
        return frozenset(self.ids(""))

    def ids(self, text: str) -> tuple[int, ...]:
        """Numbers of a text's pieces between those that begin and end it; what is too long is cut, the end is kept."""
        if text not in self._ids:
            numbers = self._tokenizer.encode(
                text.strip(), add_special_tokens=True, truncation=True, max_length=self._longest
            )
            self._ids[text] = tuple(numbers)
        return self._ids[text]

    def names(self, text: str) -> list[str]:
        """The pieces of a text, special ones included."""
        names: list[str] = self._tokenizer.convert_ids_to_tokens(list(self.ids(text)))
        return names

    @property
    def space(self) -> str:
        """Everything that decides the states of a text's pieces."""
        return space_of(
            f"bert-{_VERSION}",
            ("torch", "transformers"),
            folder=self.sha256,
            layer=self.layer,
            precision="float32",
            device=place_of(self.device),
        )

    def states(
        self,
        texts: Sequence[str],
        done: Callable[[int], None] = lambda _: None,
        stored: StoredEncodings | None = None,
    ) -> dict[str, NDArray[np.float32]]:
        """States of all pieces of texts, those of the special tokens included.

        Texts of one length go through the network together, so that nothing is padded; batches of few tokens are filled
        up (:func:`~capbench.weights.encodings.filled`). What was encoded before comes from memory, or from disk.

        Args:
            texts: repeats are encoded once.
            done: called with numbers of distinct texts done.
            stored: what is kept on disk.

        Returns:
            For each text (m, D) float32.
        """
        by_ids: dict[tuple[int, ...], list[str]] = {}
        for text in dict.fromkeys(texts):
            by_ids.setdefault(self.ids(text), []).append(text)
        states: dict[str, NDArray[np.float32]] = {}

        def take(ids: tuple[int, ...], of_text: NDArray[np.float32]) -> None:
            states.update(dict.fromkeys(by_ids[ids], of_text))
            done(len(by_ids[ids]))

        unknown: list[tuple[int, ...]] = []
        for ids in by_ids:
            kept = self._kept.get(ids)
            if kept is None:
                unknown.append(ids)
            else:
                take(ids, kept)
        waiting: dict[int, list[tuple[int, ...]]] = {}
        known = {} if stored is None else self._stored(unknown, stored)
        for ids in unknown:
            if ids in known:
                self._kept.put(ids, known[ids])
                take(ids, known[ids])
            else:
                waiting.setdefault(len(ids), []).append(ids)
        for length in sorted(waiting):
            for start in range(0, len(waiting[length]), _TEXTS):
                batch = waiting[length][start : start + _TEXTS]
                rows = self._encode(filled(batch, length))
                # Copies, since a view would keep the whole batch.
                encoded = {ids: row.copy() for ids, row in zip(batch, rows, strict=False)}
                self.encoded_texts += len(batch)
                if stored is not None:
                    stored.put(self.space, {_key(ids): of_text for ids, of_text in encoded.items()})
                for ids, of_text in encoded.items():
                    self._kept.put(ids, of_text)
                    take(ids, of_text)
        return states

    def _stored(
        self, texts: Sequence[tuple[int, ...]], stored: StoredEncodings
    ) -> dict[tuple[int, ...], NDArray[np.float32]]:
        """States that are kept on disk."""
        arrays = stored.get(self.space, {_key(ids): (len(ids), self._width) for ids in texts})
        return {ids: arrays[key] for ids in texts if (key := _key(ids)) in arrays}

    def _encode(self, batch: Sequence[tuple[int, ...]]) -> NDArray[np.float32]:
        import torch

        with torch.inference_mode():
            numbers = torch.tensor(batch, dtype=torch.int64, device=self.device)
            hidden = self._network(numbers, attention_mask=torch.ones_like(numbers))[0]
        encoded: NDArray[np.float32] = hidden.float().cpu().numpy()
        if not np.isfinite(encoded).all():
            raise ModelError("gives NaN or infinite states", path=self.folder)
        return encoded


def _key(ids: tuple[int, ...]) -> bytes:
    return key_of(np.array(ids, dtype="<i4").tobytes())


def open_bert(folder: str | os.PathLike[str], layer: int | None, device: str = "cpu") -> Bert:
    """A network of a folder, from memory if it was opened before and its files are the same.

    Arguments and errors are those of :class:`Bert`.
    """
    _config(Path(folder))
    key = (str(Path(folder).resolve()), folder_sha256(Path(folder)), layer, device)
    if key not in _open:
        _open[key] = Bert(folder, layer, device)
        while len(_open) > _MODELS:
            _open.popitem(last=False)
    _open.move_to_end(key)
    return _open[key]


def folder_sha256(folder: Path) -> str:
    """SHA-256 of what decides states: names and contents of configuration, weights and tokeniser."""
    digest = hashlib.sha256()
    for path in sorted(_read_files(folder)):
        digest.update(f"{path.name}\0{sha256_file(path)}\0".encode())
    return digest.hexdigest()


def _read_files(folder: Path) -> Iterator[Path]:
    yield from (folder / name for name in _FILES if (folder / name).is_file())
    yield from _weights(folder)


def _weights(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))


def _check_weights(folder: Path) -> bool:
    """Read ``.bin`` weights by our own reader first: transformers uses ``torch.load``, which hostile files crash.

    Returns:
        True if they are safetensors, which are not read here.
    """
    from capbench.weights.checkpoints import read_torch

    weights = _weights(folder)
    safe = any(path.suffix == ".safetensors" for path in weights)
    index = folder / ("model.safetensors.index.json" if safe else "pytorch_model.bin.index.json")
    parts = read_json(index) if index.is_file() else {}
    named = parts.get("weight_map") if isinstance(parts, dict) else None
    known = {path.name for path in weights}
    for name in dict.fromkeys(named.values()) if isinstance(named, dict) else ():
        if name not in known:
            raise ModelError(f"names the weights '{name}', which the folder does not hold", path=index)
    for path in weights:
        if not safe:
            read_torch(path)
    return safe


def _config(folder: Path) -> dict[str, Any]:
    """The folder's configuration, checked."""
    hint = "Give the folder of a BERT-like model: config.json, weights and the tokeniser's files"
    if not folder.is_dir():
        raise MissingFileError(
            "there is no such folder" if not folder.exists() else "is no folder", path=folder, hint=hint
        )
    if not (folder / "config.json").is_file():
        raise MissingFileError("holds no config.json", path=folder, hint=hint)
    config = read_json(folder / "config.json")
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise ModelError("names no 'model_type'", path=folder / "config.json", hint=hint)
    for key in _CODE:
        if config.get(key):
            raise ModelError(
                f"brings code of its own ('{key}'), which is not run",
                path=folder / "config.json",
                hint="Take a model of a kind that transformers knows",
            )
    return config


def _layer(folder: Path, config: dict[str, Any], layer: int | None) -> int:
    kind = config["model_type"]
    number = config.get("num_hidden_layers", config.get("n_layers"))
    if not isinstance(number, int) or number < 1:
        raise ModelError("names no 'num_hidden_layers'", path=folder / "config.json")
    if number > _MOST_LAYERS:  # the network is made before its weights are looked at
        raise ModelError(f"names {number} layers, and {_MOST_LAYERS} at most are read", path=folder / "config.json")
    if layer is None:
        if (kind, number) not in LAYERS:
            raise ModelError(
                f"is a {kind} of {number} layers, for which no layer is known to be the one to take",
                path=folder,
                hint=f"Say layer=N, from 1 to {number}",
            )
        return LAYERS[kind, number]
    if not 0 <= layer <= number:
        raise ModelError(f"has {number} layers, and none is number {layer}", path=folder)
    return layer


def _load(folder: Path, kind: str) -> tuple[Any, Any]:
    try:
        import transformers
    except ImportError as error:
        raise SetupError(
            "this needs the package transformers, which is not installed",
            hint=f"Add it with {errors.install_command('transformers')}",
        ) from error
    safe = _check_weights(folder)
    try:
        with _quiet():
            options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
            # RoBERTa knows a word by the space before it; BERTScore gives the first word one, too.
            prefix = {"add_prefix_space": True} if kind in ("roberta", "gpt2") else {}
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **options, **prefix)
            network, loading = transformers.AutoModel.from_pretrained(
                folder, weights_only=True, use_safetensors=safe, output_loading_info=True, **options
            )
    except Exception as error:  # whatever transformers, tokenizers or a reader of weights raises of a bad file
        lines = str(error).strip().splitlines()
        reason = f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
        raise ModelError(
            f"cannot be read as a BERT-like model ({reason})", path=folder, hint="Download the model's files again"
        ) from error
    missing = sorted(name for name in loading["missing_keys"] if "pooler" not in name)
    if missing or loading.get("mismatched_keys"):
        raise ModelError(
            f"lacks weights of its network: '{(missing or sorted(map(str, loading['mismatched_keys'])))[0]}'"
            + (f" and {len(missing) - 1} more" if len(missing) > 1 else ""),
            path=folder,
            hint="Its config.json and its weights are of different models",
        )
    if getattr(network.config, "is_encoder_decoder", False):
        network = network.get_encoder()
    return tokenizer, network


def _cut(network: Any, layer: int) -> Any:
    """The network without the layers behind one, whose states are then its output."""
    for place in ("encoder.layer", "transformer.layer"):
        owner, _, name = place.partition(".")
        layers = getattr(getattr(network, owner, None), name, None)
        if layers is not None:
            setattr(getattr(network, owner), name, layers[:layer])
            return network
    raise ModelError(
        f"{type(network).__name__} is no network of layers over word pieces that is known here",
        hint="Take BERT, RoBERTa, XLM-RoBERTa, ELECTRA, DeBERTa, MPNet or DistilBERT",
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the reports and bars that transformers prints while it reads a model."""
    import transformers

    reports: Any = transformers.utils.logging
    level, bars = reports.get_verbosity(), reports.is_progress_bar_enabled()
    reports.set_verbosity(logging.CRITICAL)
    reports.disable_progress_bar()
    try:
        yield
    finally:
        reports.set_verbosity(level)
        if bars:
            reports.enable_progress_bar()


# The base of metrics that match the word states of a text-only BERT: a folder of weights, and document frequencies.


@dataclass(frozen=True)
class BertOptions(Options):
    """Options of every metric over a BERT."""

    encodings_mb: int = option(
        DEFAULT_MB,
        Count(),
        "megabytes of word states that the cache folder may hold, of all networks together, so that a caption is not "
        "encoded again; 0 keeps none",
        sign_as="",
    )
    device: str = option("auto", Choice("auto", "cpu", "cuda"), "where the network runs", sign_as="")


class BertMetric(Metric):
    """A metric over the word states of a BERT.

    Raises:
        SetupError: the package transformers is not installed.
        MissingFileError, ModelError: the folder is not there, or holds no such network.
    """

    needs: ClassVar[tuple[Need, ...]] = (References(), ModelFolder())
    batch_size: int = 512

    option_type = BertOptions
    options: BertOptions

    def __init__(self, resources: Resources | None = None, **options: object) -> None:
        super().__init__(resources, **options)
        assert self.resources.model is not None
        self.bert = open_bert(self.resources.model, self.layer(), choose_device(self.options.device))
        self._frequencies: Frequencies | None = None
        self._corpus = ""

    def __getstate__(self) -> dict[str, Any]:
        """As of any metric; another process keeps no word states."""
        return {**super().__getstate__(), "resources": dataclasses.replace(self.resources, cache=False)}

    def layer(self) -> int | None:
        """The layer whose states are taken; None for the one that is known to be right."""
        return None

    def documents(self, item: Item) -> Iterable[str]:
        """The texts of an item in which document frequencies are counted; by default none are needed."""
        return ()

    def facts(self) -> Mapping[str, object]:
        """The folder by the first 16 digits of its files' SHA-256, and the layer."""
        return {"model": self.bert.sha256[:16], "layer": str(self.bert.layer)}

    def prepare(self, items: Sequence[Item]) -> None:
        """Count in how many texts each word piece stands; a text of several items counts for each of them."""
        super().prepare(items)
        counts = Counter(text for item in items for text in self.documents(item))
        if not counts:
            return
        self._frequencies = Frequencies(self.bert.ids(text) for text in sorted(counts) for _ in range(counts[text]))
        digest = hashlib.sha256()
        for text in sorted(counts):
            digest.update(f"{text}\0{counts[text]}\0".encode("utf-8", "surrogatepass"))
        self._corpus = f"idf:{counts.total()}-{digest.hexdigest()[:16]}"

    def corpus_id(self) -> str:
        """The texts that document frequencies were counted in."""
        return self._corpus

    @property
    def frequencies(self) -> Frequencies:
        """Document frequencies. Raises MetricError if :meth:`prepare` was not called with items that have texts."""
        if self._frequencies is None:
            raise MetricError(f"{self.name} has counted no document frequencies", hint="Score items of a data set")
        return self._frequencies

    def states(self, items: Sequence[Item], progress: Progress) -> dict[str, NDArray[np.float32]]:
        """States of all pieces of items' candidates and references, by text; ``progress`` is told of items."""
        texts = list(dict.fromkeys(text for item in items for text in (item.candidate, *item.references)))
        step = share_of(progress, len(texts), len(items))
        with StoredEncodings(self.options.encodings_mb if self.resources.cache else 0) as stored:
            return self.bert.states(texts, step, stored)

    def check(self, items: Sequence[Item]) -> None:
        """Raise MetricError if one of the items has no references."""
        for item in items:
            if not item.references:
                raise MetricError(f"{self.name} needs references, and '{item.candidate_id or item.image}' has none")


_SCORES = ("bertscore-p", "bertscore-r", "bertscore-f")


@dataclass(frozen=True)
class BERTScoreOptions(BertOptions):
    """Options of BERTScore; defaults are those of the package ``bert-score``, rescaling with a baseline left off."""

    layer: int | None = option(
        None,
        Count(),
        "after which layer word states are taken; by default the one that the authors chose for a network of this kind",
    )
    idf: str = option(
        "none",
        Choice("none", "references"),
        "weights of word pieces in the mean: all alike, or their inverse document frequency in all references",
    )
    reduce: str = option("max", Choice("max", "mean"), "what is taken of P, R and F over references", recombines=True)


class BERTScore(BertMetric):
    """Precision, recall and F of greedy matching between the word pieces of a candidate and a reference.

    Equal to the package ``bert-score`` without rescaling: any piece may be matched with any, also with those that begin
    and end a text, which themselves count for nothing in the mean; of several references each of P, R and F is the
    maximum. There the pieces of a short text may match the padding of its batch with similarity 0, which counts only
    where all similarities are negative; here nothing is padded.

    Values that the package leaves undefined: where all pieces of a text have an idf of 0, they count alike.
    """

    name: ClassVar[str] = "bertscore"
    columns: ClassVar[tuple[str, ...]] = ("bertscore-f", "bertscore-p", "bertscore-r")
    titles: ClassVar[Mapping[str, str]] = {
        "bertscore-f": "BERTScore-F",
        "bertscore-p": "BERTScore-P",
        "bertscore-r": "BERTScore-R",
    }
    citation: ClassVar[str] = "Zhang et al., BERTScore: evaluating text generation with BERT, ICLR 2020"
    order: ClassVar[int] = 70

    option_type = BERTScoreOptions
    options: BERTScoreOptions

    def layer(self) -> int | None:
        """As the options say."""
        return self.options.layer

    def documents(self, item: Item) -> Iterable[str]:
        """An item's references, with idf."""
        return item.references if self.options.idf == "references" else ()

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """(n, 6): the maxima over references of P, R and F, then their means.

        Raises:
            MetricError: an item has no references.
        """
        self.check(items)
        states = self.states(items, progress)
        tokens = {text: self._tokens(text, of_text) for text, of_text in states.items()}
        pairs = list(dict.fromkeys((item.candidate, text) for item in items for text in item.references))
        matched = greedy_matching([tokens[first] for first, _ in pairs], [tokens[second] for _, second in pairs])
        empty = np.array([self._is_empty(first) or self._is_empty(second) for first, second in pairs])
        scores = dict(zip(pairs, np.where(empty[:, None], 0.0, matched), strict=True))
        rows = np.empty((len(items), 6))
        for row, item in zip(rows, items, strict=True):
            of_references = np.array([scores[item.candidate, text] for text in item.references])
            row[:3], row[3:] = of_references.max(axis=0), of_references.mean(axis=0)
        return rows

    def _is_empty(self, text: str) -> bool:
        return len(self.bert.ids(text)) == len(self.bert.ids(""))

    def _tokens(self, text: str, states: NDArray[np.float32]) -> Tokens:
        ids = self.bert.ids(text)
        if self.options.idf == "none":
            weights = np.array([float(number not in self.bert.special) for number in ids])
        else:
            weights = np.array([self.frequencies.weight(number) for number in ids])
        return Tokens(unit(states), weights)

    def scores(self, statistics: FloatArray) -> dict[str, FloatArray]:
        """P, R and F by column."""
        first = 0 if self.options.reduce == "max" else 3
        return {column: np.ascontiguousarray(statistics[:, first + _SCORES.index(column)]) for column in self.columns}

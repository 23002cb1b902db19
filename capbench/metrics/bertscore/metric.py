"""BERTScore (Zhang et al., ICLR 2020): greedy matching of contextual word vectors, and its BERT."""

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
from capbench.core.errors import MetricError, MissingFileError, ModelError
from capbench.core.files import read_json, sha256_file
from capbench.core.machine import choose_device
from capbench.core.options import Choice, Count, Options, option
from capbench.core.progress import Progress, share_of
from capbench.core.records import FloatArray, Item
from capbench.metrics.base import Metric
from capbench.metrics.needs import ModelFolder, Need, References, Resources
from capbench.text.greedy_matching import Frequencies, Tokens, greedy_matching, unit
from capbench.weights.encodings import DEFAULT_MB, Encodings, StoredEncodings, filled, key_of, place_of, space_of

# Networks of the BERT family in a local folder, loaded with ``transformers``: states of a text's word pieces.
#
# The folder comes from ``save_pretrained`` or a download: ``config.json``, weights as safetensors or
# ``pytorch_model.bin``, and the tokeniser's files. Nothing is downloaded, and no code of the folder is run.

LAYERS = {
    ("bert", 12): 9,
    ("bert", 24): 18,
    ("roberta", 12): 10,
    ("roberta", 24): 17,
    ("xlm-roberta", 12): 9,
    ("xlm-roberta", 24): 17,
    ("distilbert", 6): 5,
}
"""Kind of network and its number of layers → the layer that BERTScore's authors chose for their recommended model of
this kind (``model2layers`` of the package ``bert-score`` 0.3.13)."""

_CODE = ("auto_map", "custom_pipelines")
_TEXTS = 64
_VERSION = 1  # of the encoding of texts
_MODELS = 2
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
    """A network of the BERT family, cut after the layer whose states it returns.

    Args:
        folder: the model's folder.
        layer: counted from 1; 0 for the embeddings; None for the layer in :data:`LAYERS`.
        device: ``cpu`` or ``cuda``.

    Attributes:
        folder: the model's folder.
        layer: the layer.
        sha256: SHA-256 of the files, 64 digits.
        longest: maximum number of word pieces of a text, with start and end tokens.
        encoded_texts: number of texts that the network has encoded, for tests and benchmarks.

    Raises:
        SetupError: ``transformers`` is not installed.
        MissingFileError: the folder does not exist.
        ModelError: not a valid network of the BERT family, or no such layer.
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
        self.longest = min(int(longest), int(positions) - (2 if "roberta" in config["model_type"] else 0))
        self._width = int(self._network.config.hidden_size)
        self.encoded_texts = 0
        self._memory = Encodings()
        self._ids: dict[str, tuple[int, ...]] = {}

    def _check(self) -> None:
        for name, tensor in self._network.state_dict().items():
            if tensor.is_floating_point() and not tensor.isfinite().all():
                message = f"'{name}' has NaN or infinite values"
                raise ModelError(message, code="not-a-number", value=name, path=self.folder)

    @property
    def special(self) -> frozenset[int]:
        """Ids of the tokens at the start and end of a text."""
        return frozenset(self.ids(""))

    def ids(self, text: str) -> tuple[int, ...]:
        """Ids of a text's pieces with start and end tokens; a long text is truncated, and its end token is kept."""
        if text not in self._ids:
            numbers = self._tokenizer.encode(
                text.strip(), add_special_tokens=True, truncation=True, max_length=self.longest
            )
            self._ids[text] = tuple(numbers)
        return self._ids[text]

    def is_cut(self, text: str) -> bool:
        """True if a text is truncated."""
        # A text has no more pieces than bytes, apart from the start and end tokens.
        if len(text.encode("utf-8", "surrogatepass")) + 2 <= self.longest or len(self.ids(text)) < self.longest:
            return False
        return len(self._tokenizer.encode(text.strip(), add_special_tokens=True, verbose=False)) > self.longest

    def names(self, text: str) -> list[str]:
        """The pieces of a text, including start and end tokens."""
        names: list[str] = self._tokenizer.convert_ids_to_tokens(list(self.ids(text)))
        return names

    @property
    def space(self) -> str:
        """Name of everything that determines the states of a text's pieces."""
        return space_of(
            __name__,
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
        """States of all pieces of texts, including start and end tokens.

        Texts of the same length are encoded together without padding; small batches are filled up
        (:func:`~capbench.weights.encodings.filled`). States of earlier texts come from memory or from disk.

        Args:
            texts: the texts; repeats are encoded once.
            done: called with numbers of distinct texts done.
            stored: the states on disk.

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
            held = self._memory.get(ids)
            if held is None:
                unknown.append(ids)
            else:
                take(ids, held)
        waiting: dict[int, list[tuple[int, ...]]] = {}
        known = {} if stored is None else self._stored(unknown, stored)
        for ids in unknown:
            if ids in known:
                self._memory.put(ids, known[ids])
                take(ids, known[ids])
            else:
                waiting.setdefault(len(ids), []).append(ids)
        for length in sorted(waiting):
            for start in range(0, len(waiting[length]), _TEXTS):
                batch = waiting[length][start : start + _TEXTS]
                rows = self._encode(filled(batch, length))
                # Copies, because a view would keep the whole batch in memory.
                encoded = {ids: row.copy() for ids, row in zip(batch, rows, strict=False)}
                self.encoded_texts += len(batch)
                if stored is not None:
                    stored.put(self.space, {_key(ids): of_text for ids, of_text in encoded.items()})
                for ids, of_text in encoded.items():
                    self._memory.put(ids, of_text)
                    take(ids, of_text)
        return states

    def _stored(
        self, texts: Sequence[tuple[int, ...]], stored: StoredEncodings
    ) -> dict[tuple[int, ...], NDArray[np.float32]]:
        """States on disk."""
        arrays = stored.get(self.space, {_key(ids): (len(ids), self._width) for ids in texts})
        return {ids: arrays[key] for ids in texts if (key := _key(ids)) in arrays}

    def _encode(self, batch: Sequence[tuple[int, ...]]) -> NDArray[np.float32]:
        import torch

        with torch.inference_mode():
            numbers = torch.tensor(batch, dtype=torch.int64, device=self.device)
            hidden = self._network(numbers, attention_mask=torch.ones_like(numbers))[0]
        encoded: NDArray[np.float32] = hidden.float().cpu().numpy()
        if not np.isfinite(encoded).all():
            raise ModelError("returns NaN or infinite states", code="not-a-number", path=self.folder)
        return encoded


def _key(ids: tuple[int, ...]) -> bytes:
    return key_of(np.array(ids, dtype="<i4").tobytes())


def open_bert(folder: str | os.PathLike[str], layer: int | None, device: str = "cpu") -> Bert:
    """The network in a folder, from memory if it was opened before and its files are unchanged.

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
    """SHA-256 of the names and contents of configuration, weights and tokeniser, which determine the states."""
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
    """Validate ``.bin`` weights with capbench's reader, because malicious files can crash ``torch.load``.

    Returns:
        True for safetensors, which are not read.
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
            message = f"lists the weight file '{name}', which is not in the folder"
            raise ModelError(message, code="missing-file", value=name, path=index)
    for path in weights:
        if not safe:
            read_torch(path)
    return safe


def _config(folder: Path) -> dict[str, Any]:
    """The folder's configuration, checked."""
    hint = "Use the folder of a BERT-like model with config.json, weights and the tokeniser's files"
    if not folder.is_dir():
        message = "is not a folder" if folder.exists() else "does not exist"
        raise MissingFileError(message, path=folder, hint=hint)
    if not (folder / "config.json").is_file():
        raise MissingFileError("has no config.json", value="config.json", path=folder, hint=hint)
    config = read_json(folder / "config.json")
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        path = folder / "config.json"
        raise ModelError("has no 'model_type'", code="missing-key", value="model_type", path=path, hint=hint)
    for key in _CODE:
        if config.get(key):
            raise ModelError(
                f"requires custom code ('{key}'), which is not run",
                code="unsafe",
                value=key,
                path=folder / "config.json",
                hint="Use a model of a kind that transformers supports",
            )
    return config


def _layer(folder: Path, config: dict[str, Any], layer: int | None) -> int:
    kind = config["model_type"]
    number = config.get("num_hidden_layers", config.get("n_layers"))
    if not isinstance(number, int) or number < 1:
        path = folder / "config.json"
        raise ModelError("has no 'num_hidden_layers'", code="missing-key", value="num_hidden_layers", path=path)
    if layer is None:
        if (kind, number) not in LAYERS:
            raise ModelError(
                f"is a {kind} of {number} layers, for which there is no default layer",
                code="missing-option",
                value=kind,
                path=folder,
                hint=f"Set layer=N, from 1 to {number}",
            )
        return LAYERS[kind, number]
    if not 0 <= layer <= number:
        message = f"has {number} layers; there is no layer {layer}"
        raise ModelError(message, code="out-of-range", value=layer, path=folder)
    return layer


def _load(folder: Path, kind: str) -> tuple[Any, Any]:
    errors.require("transformers", purpose="a BERT")
    import transformers

    safe = _check_weights(folder)
    try:
        with _quiet():
            options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
            # RoBERTa marks words by the space before them; as in BERTScore, the first word gets one, too.
            prefix = {"add_prefix_space": True} if kind in ("roberta", "gpt2") else {}
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **options, **prefix)
            network, loading = transformers.AutoModel.from_pretrained(
                folder, weights_only=True, use_safetensors=safe, output_loading_info=True, **options
            )
    except Exception as error:  # transformers, tokenizers and readers of weights raise anything on a bad file
        lines = str(error).strip().splitlines()
        reason = f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
        raise ModelError(
            f"cannot be read as a BERT-like model ({reason})",
            code="unreadable",
            path=folder,
            hint="Download the model's files again",
        ) from error
    missing = sorted(name for name in loading["missing_keys"] if "pooler" not in name)
    if missing or loading.get("mismatched_keys"):
        first = (missing or sorted(map(str, loading["mismatched_keys"])))[0]
        raise ModelError(
            f"has no weights '{first}' of its network" + (f" and {len(missing) - 1} more" if len(missing) > 1 else ""),
            code="wrong-weights",
            value=first,
            path=folder,
            hint="Use config.json and weights of the same model",
        )
    if getattr(network.config, "is_encoder_decoder", False):
        network = network.get_encoder()
    return tokenizer, network


def _cut(network: Any, layer: int) -> Any:
    """The network without the layers after the given one, whose states become its output."""
    for place in ("encoder.layer", "transformer.layer"):
        owner, _, name = place.partition(".")
        layers = getattr(getattr(network, owner, None), name, None)
        if layers is not None:
            setattr(getattr(network, owner), name, layers[:layer])
            return network
    raise ModelError(
        f"networks of the kind {type(network).__name__} are not supported",
        code="unsupported",
        value=type(network).__name__,
        hint="Use BERT, RoBERTa, XLM-RoBERTa, ELECTRA, DeBERTa, MPNet or DistilBERT",
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the output of transformers while it loads a model."""
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


# Base class of metrics over a BERT, with document frequencies.


@dataclass(frozen=True)
class BertOptions(Options):
    """Options of every metric over a BERT."""

    encodings_mb: int = option(
        DEFAULT_MB,
        Count(),
        "maximum megabytes of word states in the cache folder, for all networks together; 0 stores none",
        sign_as="",
    )
    device: str = option("auto", Choice("auto", "cpu", "cuda"), "device of the network", sign_as="")


class BertMetric(Metric):
    """A metric over the word states of a BERT.

    Raises:
        SetupError: the package transformers is not installed.
        MissingFileError, ModelError: the folder does not exist or has no valid network.
    """

    packages = ("torch", "transformers")
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
        """State for another process, which stores no word states."""
        return {**super().__getstate__(), "resources": dataclasses.replace(self.resources, cache=False)}

    def layer(self) -> int | None:
        """The layer whose states are used; None for the default of the network."""
        return None

    def documents(self, item: Item) -> Iterable[str]:
        """The texts of an item in which document frequencies are counted; by default none."""
        return ()

    def facts(self) -> Mapping[str, object]:
        """First 16 digits of the SHA-256 of the folder's files, and the layer."""
        return {"model": self.bert.sha256[:16], "layer": str(self.bert.layer)}

    def prepare(self, items: Sequence[Item]) -> None:
        """Count the texts that contain each word piece; a text of several items counts for each of them."""
        super().prepare(items)
        counts = Counter(text for item in items for text in self.documents(item))
        if not counts:
            return
        self._frequencies = Frequencies(self.bert.ids(text) for text in sorted(counts) for _ in range(counts[text]))
        digest = hashlib.sha256()
        for text in sorted(counts):
            digest.update(f"{text}\0{counts[text]}\0".encode("utf-8", "surrogatepass"))
        self._corpus = f"idf:{counts.total()}-{digest.hexdigest()[:16]}"

    def warnings(self, dataset: str, items: Sequence[Item]) -> Sequence[str]:
        """Number of captions that are truncated."""
        texts = {text for item in items for text in (item.candidate, *item.references)}
        cut = sum(map(self.bert.is_cut, texts))
        if not cut:
            return ()
        return [f"{cut:,} of {len(texts):,} captions have more than {self.bert.longest} word pieces and were truncated"]

    def corpus_id(self) -> str:
        """Identifier of the texts in which document frequencies were counted."""
        return self._corpus

    @property
    def frequencies(self) -> Frequencies:
        """Document frequencies. Raises MetricError if :meth:`prepare` was not called with items that have texts."""
        if self._frequencies is None:
            message = f"{self.name} has no document frequencies"
            raise MetricError(message, code="missing-value", value=self.name, hint="Call prepare(items) first")
        return self._frequencies

    def states(self, items: Sequence[Item], progress: Progress) -> dict[str, NDArray[np.float32]]:
        """States of all pieces of items' candidates and references, by text; ``progress`` counts items."""
        texts = list(dict.fromkeys(text for item in items for text in (item.candidate, *item.references)))
        step = share_of(progress, len(texts), len(items))
        with StoredEncodings(self.options.encodings_mb if self.resources.cache else 0) as stored:
            return self.bert.states(texts, step, stored)

    def check(self, items: Sequence[Item]) -> None:
        """Raise MetricError if one of the items has no references."""
        for item in items:
            if not item.references:
                message = f"{self.name} requires references, but '{item.candidate_id or item.image}' has none"
                raise MetricError(message, code="missing-references", value=item.image)


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


class BERTScore(BertMetric):
    """Precision, recall and F of greedy matching between the word pieces of a candidate and a reference.

    Equal to the package ``bert-score`` without rescaling: pieces may match any piece, including the start and end
    tokens, which have weight 0 in the mean; P, R and F are each the maximum over references. In the package, the pieces
    of a short text may match the padding of its batch with similarity 0, which matters only if all similarities are
    negative; this implementation does not pad.

    The package leaves one case undefined: if all pieces of a text have an idf of 0, they have equal weights here.
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

    @classmethod
    def check_captions(cls, items: Sequence[Item]) -> None:
        """Nothing: an empty candidate scores 0."""

    option_type = BERTScoreOptions
    options: BERTScoreOptions

    def layer(self) -> int | None:
        """The option ``layer``."""
        return self.options.layer

    def documents(self, item: Item) -> Iterable[str]:
        """An item's references if the option ``idf`` is set."""
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
